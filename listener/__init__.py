"""Reads events, probe, commit log and sources into one state per streaming query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .state.query import Query
from .state.snapshot import Snapshot
from .state.state import State

if TYPE_CHECKING:
    from .spark.health_listener import HealthListener

__all__ = ["HealthListener", "Query", "Snapshot", "State"]


def __getattr__(name: str) -> Any:
    # Import pyspark only on demand: code that only reads snapshots does not need it.
    if name == "HealthListener":
        from .spark.health_listener import HealthListener

        return HealthListener
    raise AttributeError(name)
