"""Spools on a real disk, closed after the test."""

from __future__ import annotations

import threading

import pytest
from support.deliveries import WALL
from support.patience import PATIENCE_SECONDS

from querypulse.alerting.delivery.spool import Spool
from querypulse.core.guard import Guard


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def spool(folder):
    opened = []

    def open_spool(app="etl", where=folder):
        opened.append(Spool(where, app, Guard(), wall=lambda: WALL))
        return opened[-1]

    yield open_spool
    for one in opened:
        one.close(PATIENCE_SECONDS)
    assert "querypulse-spool" not in {thread.name for thread in threading.enumerate()}
