"""The HTTP server over TLS, with throwaway certificates."""

from __future__ import annotations

import re
import shutil
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import requests
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from support.exporter_http import address, connected, our_threads, serving
from support.patience import PATIENCE_SECONDS
from support.published_states import full_published
from support.tls import Authority

from querypulse.exporter import server as server_module
from querypulse.exporter.server import Tls


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Paths of a server's certificate and key, a client's, and of the authority behind both."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    server = authority._ca.issue_cert("127.0.0.1")
    paths = {name: str(folder / f"server.{name}") for name in ("cert", "key")}
    server.cert_chain_pems[0].write_to_path(paths["cert"])
    server.private_key_pem.write_to_path(paths["key"])
    client = (authority.cert_file, authority.key_file)
    return {**paths, "ca": authority.ca_file, "client": client}


def tls(files, **changes):
    return Tls(**{"cert_file": files["cert"], "key_file": files["key"], **changes})


def get(server, files, **options):
    url = f"{server.url}/metrics"
    return requests.get(url, verify=files["ca"], timeout=PATIENCE_SECONDS, **options)


def test_plain_http_is_rejected_silently_and_tls_is_served(files, capfd):
    with serving(full_published(), tls=tls(files)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        with pytest.raises(requests.ConnectionError):
            requests.get(server.url.replace("https", "http"), timeout=PATIENCE_SECONDS)
        answer = get(server, files)
        assert answer.status_code == 200
        assert "spark_streaming_query_active" in answer.text
    assert capfd.readouterr() == ("", "")


def test_only_clients_of_the_client_ca_are_accepted(files):
    with serving(full_published(), tls=tls(files, client_ca_file=files["ca"])) as server:
        assert get(server, files, cert=files["client"]).status_code == 200
        with pytest.raises(requests.ConnectionError):
            get(server, files)


def test_new_certificate_is_used_once_it_is_reloaded(files, tmp_path):
    paths = {name: shutil.copy(files[name], tmp_path) for name in ("cert", "key")}
    with serving(full_published(), tls=tls(paths)) as server:
        assert not server.renew()
        before = ssl.get_server_certificate(address(server), timeout=PATIENCE_SECONDS)
        other = trustme.CA().issue_cert("127.0.0.1")
        other.private_key_pem.write_to_path(paths["key"])
        with pytest.raises(OSError, match=re.escape(paths["cert"])):
            server.renew()
        assert ssl.get_server_certificate(address(server), timeout=PATIENCE_SECONDS) == before
        other.cert_chain_pems[0].write_to_path(paths["cert"])
        assert server.renew()
        assert ssl.get_server_certificate(address(server), timeout=PATIENCE_SECONDS) != before


@pytest.mark.parametrize("shakes_hands", [False, True])
@pytest.mark.fault(
    "Readers over HTTP", "A client that never starts its TLS handshake", "It is dropped"
)
def test_silent_client_is_dropped_before_and_after_the_handshake(files, monkeypatch, shakes_hands):
    monkeypatch.setattr(server_module, "CLIENT_SECONDS", 0.5)
    context = ssl.create_default_context(cafile=files["ca"])
    # On a busy machine, it may be dropped during its handshake.
    dropped = suppress(ssl.SSLEOFError, ConnectionError)
    with serving(full_published(), tls=tls(files)) as server, connected(server) as client, dropped:
        if shakes_hands:
            client = context.wrap_socket(client, server_hostname="127.0.0.1")  # noqa: PLW2901
        with client:
            assert client.recv(1) == b""


@pytest.mark.parametrize("field", ["cert_file", "key_file", "client_ca_file"])
@pytest.mark.parametrize("content", [None, "nonsense"])
def test_unreadable_file_is_an_error_that_names_it(files, field, content, tmp_path):
    path = tmp_path / "file.pem"
    if content:
        path.write_text(content)
    with (
        pytest.raises(OSError, match=str(path)),
        serving(None, tls=tls(files, **{field: str(path)})),
    ):
        """It does not start."""
    assert our_threads() == []


def test_encrypted_key_is_an_error_without_a_prompt(files, tmp_path):
    key = load_pem_private_key(Path(files["key"]).read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    )
    with pytest.raises(OSError, match="locked"):
        tls(files, key_file=str(locked)).context()
