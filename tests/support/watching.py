"""Drivers to be watched: the exporter's own server without any Spark."""

from __future__ import annotations

import time
from types import SimpleNamespace

from support.exporter_http import address, get
from support.exporter_http import serving as serving_board

from querypulse.exporter.board import Board, Monitor
from querypulse.listener.snapshot import Snapshot

__all__ = ["address", "driver_board", "get", "serving"]


def driver_board(app="etl", heartbeat=None, **states):
    """What a driver shows whose queries are in these states; its worker beats unless told."""
    verdicts = {
        query: SimpleNamespace(state=state, reason="told", window_seconds=60.0, ignored=False)
        for query, state in states.items()
    }
    beat = time.time() if heartbeat is None else heartbeat
    return Board(
        app=app,
        spark_version="4.0.0",
        snapshot=Snapshot(at=100.0, began_at=0.0),
        verdicts=verdicts,
        alerts=(),
        monitor=Monitor(heartbeat_timestamp=beat),
        wall=time.time(),
    )


def serving(app="etl", *, board=None, **access):
    """A started server of a driver that is well, or as its board says."""
    return serving_board(board or (lambda: driver_board(app)), **access)
