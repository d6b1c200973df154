"""TLS: the server's certificate is checked against the authority that the environment names."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer

import pytest

pytest.importorskip("qdrant_client")

import grpc
from qdrant_loopback import GrpcHandler, Loopback, RestHandler

from heisd_ros.demonstrations.qdrant_store import QdrantStore
from heisd_ros.demonstrations.qdrant_transfer import export_to_qdrant
from heisd_ros.demonstrations.synthetic import SyntheticSpec, synthetic_store
from heisd_ros.errors import StoreUnavailableError

SAFETY_S = 60.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of 127.0.0.1 that is its own authority: (certificate, key)."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing: no certificate to test TLS with")
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", str(files[0]), "-keyout", str(files[1])),
        ],
        check=True,
        capture_output=True,
    )
    return files


@pytest.fixture(params=["https", "grpcs"])
def url(request, certificate, tmp_path):
    """Address of a server that speaks TLS alone and holds a store."""
    there = Loopback()
    source = synthetic_store(tmp_path / "store", SyntheticSpec(1, 2, 8, 8))
    export_to_qdrant(source, there.client, "heisd")
    if request.param == "https":
        secure = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (RestHandler,), {"loopback": there})
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        threading.Thread(target=secure.serve_forever, args=(0.02,), daemon=True).start()
        port = secure.server_port

        def stop():
            secure.shutdown()

    else:
        server = grpc.server(ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((GrpcHandler(there),))
        pair = [(certificate[1].read_bytes(), certificate[0].read_bytes())]
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(pair))
        server.start()

        def stop():
            server.stop(0)

    yield f"{request.param}://127.0.0.1:{port}"
    stop()
    there.stop()


def test_a_server_of_the_named_authority_is_trusted(url, certificate, monkeypatch):
    monkeypatch.setenv("HEISD_QDRANT_CA_FILE", str(certificate[0]))
    monkeypatch.setenv("HEISD_QDRANT_API_KEY", "a-key")
    store = QdrantStore.open(url, timeout_s=SAFETY_S)
    assert store.manifest.rows > 0
    store.close()


def test_a_server_of_an_unknown_authority_is_not(url, monkeypatch):
    monkeypatch.delenv("HEISD_QDRANT_CA_FILE", raising=False)
    store = QdrantStore.open(url, timeout_s=SAFETY_S, pause_s=0.0)
    with pytest.raises(StoreUnavailableError):
        store.greet()
    store.close()


def test_a_plain_client_does_not_reach_it(url):
    store = QdrantStore.open(url.replace("s://", "://"), timeout_s=SAFETY_S, pause_s=0.0)
    with pytest.raises(StoreUnavailableError):
        store.greet()
    store.close()
