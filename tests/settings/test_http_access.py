"""Access to the HTTP server is checked before it starts, and unusable files are reported."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trustme

from querypulse.settings import wiring
from querypulse.sidecar import Settings, SettingsError


def refused(**settings):
    with pytest.raises(SettingsError) as error:
        wiring.http_access(Settings(**settings))
    return str(error.value)


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pem")
    authority = trustme.CA()
    server, other = (authority.issue_cert("localhost") for _ in range(2))
    paths = {name: str(folder / name) for name in ("ca", "cert", "key", "other")}
    authority.cert_pem.write_to_path(paths["ca"])
    server.cert_chain_pems[0].write_to_path(paths["cert"])
    server.private_key_pem.write_to_path(paths["key"])
    other.private_key_pem.write_to_path(paths["other"])
    return SimpleNamespace(**paths)


def test_token_and_certificate_are_read_from_their_files(tmp_path, pem):
    token = tmp_path / "token"
    token.write_text("token\n")
    access = wiring.http_access(
        Settings(
            http_token_file=str(token),
            http_tls_cert_file=pem.cert,
            http_tls_key_file=pem.key,
            http_tls_client_ca_file=pem.ca,
        )
    )

    assert access.token.known == "token"
    assert (access.tls.cert_file, access.tls.key_file) == (pem.cert, pem.key)
    assert access.tls.client_ca_file == pem.ca


@pytest.mark.parametrize("name", ["http_tls_cert_file", "http_tls_key_file"])
def test_certificate_and_key_are_required_together(pem, name):
    message = refused(**{name: pem.cert})

    assert "http_tls_cert_file" in message
    assert "http_tls_key_file" in message


def test_client_certificates_require_tls(pem):
    assert "http_tls_client_ca_file" in refused(http_tls_client_ca_file=pem.ca)


def test_unusable_files_are_reported_before_the_server_starts(pem):
    files = [
        ("nowhere", "key", None),
        ("cert", "nowhere", None),
        ("cert", "other", None),
        ("key", "cert", None),
        ("cert", "key", "nowhere"),
        ("cert", "key", "key"),
        ("", "", None),
    ]

    for cert, key, authority in files:
        message = refused(
            http_tls_cert_file=getattr(pem, cert or "", cert),
            http_tls_key_file=getattr(pem, key or "", key),
            http_tls_client_ca_file=authority and getattr(pem, authority, authority),
        )
        assert "http_tls" in message


# -- other machines ---------------------------------------------------------------------------


def test_server_may_start_if_readers_are_authenticated_or_local():
    safe = [
        {},
        {"http_host": "localhost"},
        {"http_host": "127.0.0.53"},
        {"http_host": "::1"},
        {"http_host": "0.0.0.0", "http_token_file": "/t"},
        {"http_host": "0.0.0.0", "http_tls_client_ca_file": "/ca"},
        {"http_host": "0.0.0.0", "http_allow_anonymous": True},
        {"http_host": "0.0.0.0", "http_port": -1},
    ]

    assert [settings for settings in safe if wiring.refused_address(Settings(**settings))] == []


@pytest.mark.fault("Settings", "A public address without a token", "The server stays off")
def test_server_stays_off_if_anybody_could_read():
    for host in ("0.0.0.0", "::", "10.1.2.3", "driver.example.com", ""):
        message = wiring.refused_address(Settings(http_host=host, http_tls_cert_file="/c"))

        for name in ("http_host", host, "http_token_file", "http_allow_anonymous"):
            assert name in message
