"""A server that takes what is sent to it, and posts that succeed on a machine of any speed."""

from __future__ import annotations

import pytest
from support.http_double import HttpDouble, reply
from support.tls import Authority

from querypulse.alerting.receivers import alertmanager, email, http
from querypulse.core import socket_deadline

LONG_SECONDS = 3600.0


@pytest.fixture(autouse=True)
def long_deadlines(monkeypatch):
    """Let only those posts end at a deadline whose tests set one."""
    monkeypatch.setitem(http.HttpPoster.__init__.__kwdefaults__, "total_seconds", LONG_SECONDS)
    monkeypatch.setattr(alertmanager, "TOTAL_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(email, "TOTAL_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(socket_deadline, "CONNECT_SECONDS", LONG_SECONDS)


@pytest.fixture
def double():
    """It answers as every kind of receiver expects."""
    with HttpDouble(otherwise=reply(200, body=b"ok")) as double:
        yield double


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))
