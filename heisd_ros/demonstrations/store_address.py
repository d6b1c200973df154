"""Where a store on a server is, and with which secret it is opened.

The address is configuration and may be printed. Secrets are no configuration: they come from the
environment or from a file that the environment names, and are never part of a message.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from heisd_ros.errors import StoreError

DEFAULT_COLLECTION = "heisd"
SCHEMES = {"http": 6333, "https": 6333, "grpc": 6334, "grpcs": 6334}
"""Transports with the port that a Qdrant server listens on; the s is TLS."""
EXAMPLE = "expected grpc://host:6334/collection (or grpcs, http, https)"
KEY, KEY_FILE = "HEISD_QDRANT_API_KEY", "HEISD_QDRANT_API_KEY_FILE"
CA_FILE = "HEISD_QDRANT_CA_FILE"
KEY_HELP = f"set {KEY}, or {KEY_FILE} to a file with the key alone"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Address of one collection.

    Attributes:
        scheme: http, https, grpc or grpcs.
        host: Name or address.
        port: Of that transport.
        collection: Name of the collection.
    """

    scheme: str
    host: str
    port: int
    collection: str

    @property
    def grpc(self) -> bool:
        """Whether the transport is gRPC, else REST."""
        return self.scheme.startswith("grpc")

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted and the server's certificate checked."""
        return self.scheme.endswith("s")

    @property
    def loopback(self) -> bool:
        """Whether the server is this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def netloc(self) -> str:
        """`host:port`, an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        """Return the address as it is written in a configuration."""
        return f"{self.scheme}://{self.netloc}/{self.collection}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a server asks for; the key shows in no repr.

    Attributes:
        api_key: Key of the server, empty for none.
        ca_file: PEM file of the authority that signed the server's certificate; None: the
            authorities that the client library trusts.
    """

    api_key: str = field(default="", repr=False)
    ca_file: Path | None = None


def is_server(store: str) -> bool:
    """Return whether `retrieval.store` names a server, not a folder."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", store) is not None


def parse_address(text: str) -> ServerAddress:
    """Read `scheme://host[:port][/collection]`.

    Raises:
        StoreError: If it is something else. A user or password in it is refused and not repeated.
    """
    if "@" in text:
        raise StoreError(f"the address of a store must hold no user or password; {KEY_HELP}")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise StoreError(f"{text!r} is no address of a store ({error}); {EXAMPLE}") from error
    names = [name for name in parts.path.split("/") if name]
    if parts.scheme not in SCHEMES or not host or len(names) > 1 or parts.query or parts.fragment:
        raise StoreError(f"{text!r} is no address of a store; {EXAMPLE}")
    return ServerAddress(
        parts.scheme,
        host,
        SCHEMES[parts.scheme] if port is None else port,
        names[0] if names else DEFAULT_COLLECTION,
    )


def read_credentials(environment: Mapping[str, str] | None = None) -> Credentials:
    """Read key and authority from the environment (None: this process's).

    Raises:
        StoreError: If both or unreadable files are named, or the key cannot be one. The key itself
            is never repeated.
    """
    values = os.environ if environment is None else environment
    key, key_file, ca_file = (values.get(name, "") for name in (KEY, KEY_FILE, CA_FILE))
    if key and key_file:
        raise StoreError(f"{KEY} and {KEY_FILE} are both set; unset one")
    where = KEY
    if key_file:
        where = f"{KEY_FILE} {key_file}"
        key = _text(Path(key_file), KEY_FILE).strip()
        if not key:
            raise StoreError(f"{where} is empty; write the key of the server into it")
    if any(not 33 <= ord(letter) <= 126 for letter in key):
        raise StoreError(f"{where} must hold one key of printable ASCII without spaces")
    if ca_file:
        _text(Path(ca_file), CA_FILE)
    return Credentials(key, Path(ca_file) if ca_file else None)


def check_key_is_safe(address: ServerAddress, credentials: Credentials) -> None:
    """Refuse to send a key over the network in the clear.

    Raises:
        StoreError: If there is a key, no TLS, and the server is not this machine.
    """
    if credentials.api_key and not address.tls and not address.loopback:
        secure = f"{'grpcs' if address.grpc else 'https'}://{address.netloc}"
        raise StoreError(
            f"{address} would send the API key unencrypted; use {secure}, or a tunnel to this "
            "machine"
        )


def _text(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{name} names {path}, which cannot be read ({type(error).__name__}); check the path"
        ) from None
