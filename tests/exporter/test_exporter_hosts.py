"""A foreign web page cannot read a loopback server under its own host name (DNS rebinding)."""

from __future__ import annotations

import socket

import pytest
import requests
from support.exporter_http import get, serving
from support.patience import PATIENCE_SECONDS
from support.published_states import full_published

from querypulse.exporter.server import is_own_name

OWN = [
    "localhost",
    "localhost:9719",
    "LOCALHOST.",
    "driver.localhost:80",
    "127.0.0.1:9719",
    "10.1.2.3:9719",
    "[::1]:9719",
    "[fe80::1]",
    "host.docker.internal:9719",
    "driver-a",
    "driver-a:9719",
    socket.gethostname(),
]
STRANGE = [
    "",
    ":9719",
    "evil.example",
    "evil.example:9719",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "xlocalhost",
    "a@evil.example",
    "[::1",
    "evil.example/localhost",
    "internal.evil.example:80",
]


def test_name_of_this_machine_or_an_address_is_accepted_and_no_other():
    assert [host for host in OWN if not is_own_name(host, "driver-a")] == []
    assert [host for host in STRANGE if is_own_name(host, "driver-a")] == []


@pytest.mark.fault("Readers over HTTP", "A foreign `Host`, as in DNS rebinding", "421")
def test_loopback_server_rejects_a_foreign_host_name():
    paths = ("/", "/livez", "/status", "/metrics")
    with serving(full_published()) as server:
        codes = {
            (path, host): get(server, path, Host=host).status_code
            for path in paths
            for host in ("evil.example", "localhost")
        }
    assert codes == {(path, host): 421 if "evil" in host else 200 for path, host in codes}


def test_server_for_other_machines_accepts_every_host_name():
    with serving(full_published(), host="0.0.0.0") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        headers = {"Host": "driver.example.com"}
        assert (
            requests.get(f"{url}/livez", headers=headers, timeout=PATIENCE_SECONDS).status_code
            == 200
        )
