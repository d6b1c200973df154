"""Addresses of stores, and secrets that never show."""

from __future__ import annotations

import pytest

from heisd_ros.demonstrations.store_address import (
    Credentials,
    ServerAddress,
    check_key_is_safe,
    is_server,
    parse_address,
    read_credentials,
)
from heisd_ros.errors import StoreError

SECRET = "tr0ub4dor-and-3"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("grpc://robots.lan", ServerAddress("grpc", "robots.lan", 6334, "heisd")),
        ("grpcs://robots.lan/libero", ServerAddress("grpcs", "robots.lan", 6334, "libero")),
        ("http://10.0.0.7:80/", ServerAddress("http", "10.0.0.7", 80, "heisd")),
        ("https://q:443/a-b", ServerAddress("https", "q", 443, "a-b")),
        ("http://[::1]:6333/x", ServerAddress("http", "::1", 6333, "x")),
    ],
)
def test_an_address_says_transport_host_port_and_collection(text, wanted):
    assert parse_address(text) == wanted
    assert parse_address(str(wanted)) == wanted
    assert (wanted.grpc, wanted.tls) == ("grpc" in text, text.split(":")[0].endswith("s"))


@pytest.mark.parametrize(
    "text",
    [
        "ftp://host/x",
        "grpc://",
        "grpc:///x",
        "http://host:port",
        "http://host:99999",
        "http://host/a/b",
        "http://host/a?key=1",
        "http://[::1",
        "host:6333",
    ],
)
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(StoreError, match="expected grpc://host:6334/collection"):
        parse_address(text)


def test_a_folder_is_no_server():
    assert [is_server(t) for t in ("", "none", "weights/store", "/a://b", "grpc://h")] == [
        *(False, False, False, False),
        True,
    ]


def test_a_password_in_the_address_is_refused_and_not_repeated():
    with pytest.raises(StoreError, match="HEISD_QDRANT_API_KEY") as caught:
        parse_address(f"http://robot:{SECRET}@host:6333/x")
    assert SECRET not in str(caught.value)


def test_the_key_comes_from_the_environment_or_from_a_file(tmp_path):
    (tmp_path / "key").write_text(f"{SECRET}\n")
    assert read_credentials({}) == Credentials()
    assert read_credentials({"HEISD_QDRANT_API_KEY": SECRET}).api_key == SECRET
    found = read_credentials({"HEISD_QDRANT_API_KEY_FILE": str(tmp_path / "key")})
    assert found.api_key == SECRET
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HEISD_QDRANT_API_KEY": SECRET, "HEISD_QDRANT_API_KEY_FILE": "/x"}, "both set"),
        ({"HEISD_QDRANT_API_KEY_FILE": "/nowhere/key"}, "/nowhere/key, which cannot be read"),
        ({"HEISD_QDRANT_API_KEY_FILE": "EMPTY"}, "is empty"),
        ({"HEISD_QDRANT_API_KEY_FILE": "BINARY"}, "cannot be read"),
        ({"HEISD_QDRANT_API_KEY": f"{SECRET} x"}, "printable ASCII without spaces"),
        ({"HEISD_QDRANT_API_KEY": f"{SECRET}ü"}, "printable ASCII without spaces"),
        ({"HEISD_QDRANT_CA_FILE": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
    ],
)
def test_credentials_that_cannot_work_are_refused_without_showing_them(
    environment, words, tmp_path
):
    files = {"EMPTY": b"\n", "BINARY": b"\xff\xfe"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    environment = {
        name: str(tmp_path / value) if value in files else value
        for name, value in environment.items()
    }
    with pytest.raises(StoreError, match=words) as caught:
        read_credentials(environment)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("grpcs://robots.lan", True),
        ("https://robots.lan", True),
        ("grpc://127.0.0.1", True),
        ("http://localhost", True),
        ("http://[::1]", True),
        ("grpc://robots.lan", False),
        ("http://10.0.0.7", False),
    ],
)
def test_a_key_does_not_travel_unencrypted(text, safe):
    address = parse_address(text)
    check_key_is_safe(address, Credentials())
    if safe:
        check_key_is_safe(address, Credentials(SECRET))
    else:
        with pytest.raises(StoreError, match=r"unencrypted; use (grpc|http)s://") as caught:
            check_key_is_safe(address, Credentials(SECRET))
        assert SECRET not in str(caught.value)
