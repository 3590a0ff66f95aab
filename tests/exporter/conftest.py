"""Fixtures of the exporter's tests."""

from __future__ import annotations

import pytest

from querypulse.exporter import server

LONG_SECONDS = 3600.0


@pytest.fixture(autouse=True)
def patient_server(monkeypatch):
    """The server never cuts a client off for being slow; a test of the limit sets it itself."""
    monkeypatch.setattr(server, "CLIENT_SECONDS", LONG_SECONDS)
