"""Reverts of fixes to batches in flight: their allowed duration and their severity."""

from __future__ import annotations

from typing import Any

from querypulse.alerting import stuck_batch
from querypulse.alerting.finding import Severity

from .mutating import Mutation, only
from .scenarios import plan_of


def _moved_within_trigger(case: Any, flight: Any) -> bool:
    return stuck_batch.still(case, flight) <= case.window.seconds


BATCHES = (
    Mutation("a slow batch is never critical", "P1",
             stuck_batch, "is_slow_for_long", lambda *_: False, plan=plan_of("the first batch of a run is retried for ever"), essential=True),
    Mutation("a slow batch is never critical, in random histories", "P1",
             stuck_batch, "is_slow_for_long", lambda *_: False,
             only("crawl", minutes=(12.0,), slow_critical=(240.0,))),
    Mutation("the trigger interval counts while a batch is in flight", "P1",
             stuck_batch, "moved_lately", _moved_within_trigger, plan=plan_of("a batch hangs under a trigger of ten minutes")),
    Mutation("a delayed batch is critical after its window", "P2",
             stuck_batch, "stall_severity", lambda *_: Severity.CRITICAL,
             only("skew", "starve", minutes=(8.0,))),
    Mutation("a delayed batch is never critical", "P1",
             stuck_batch, "stall_severity", lambda *_: Severity.WARNING,
             only("skew", "starve", minutes=(12.0,))),
)  # fmt: skip
"""Mutations that random histories and the scenarios must detect."""
