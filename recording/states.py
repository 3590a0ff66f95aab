"""A snapshot as plain values that JSON can hold, and back: what an evaluation depends on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ..alerting.incidents.lifecycle import Held, Tracked
from ..listener.mailbox import Ending
from ..listener.state.flow import Datasets
from ..listener.state.query import Query
from ..listener.state.snapshot import Snapshot
from .lines import Patch

ENDING = "ending"
"""The member of the driver's state that says how the process ends."""
MOST_ELSEWHERE = 20
"""Alerts outside of an incident that its recording begins with."""


def plain(value: object) -> Any:
    """What JSON can hold of a record: it has no infinite numbers, so they are texts."""
    return _finite(msgspec.to_builtins(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def driver_state(snapshot: Snapshot, ending: Ending | None) -> Patch:
    """All of a snapshot but its queries, whose states have what the probe and the log show."""
    probe = snapshot.probe
    log = snapshot.log
    shared = replace(
        snapshot,
        queries=(),
        probe=None if probe is None else replace(probe, runs=(), unowned_tasks=None),
        log=None if log is None else replace(log, logs={}, starts={}, sinks={}),
    )
    state: Patch = plain(shared)
    return state if ending is None else {**state, ENDING: plain(ending)}


def query_state(query: Query) -> Patch:
    """The state of one query, without what it only caches, or counts for those who pay."""
    datasets = replace(query.checkpoint.datasets, seen=Datasets().seen)
    checkpoint = replace(query.checkpoint, datasets=datasets)
    history = replace(query.history, spent=None)
    state: Patch = plain(replace(query, checkpoint=checkpoint, history=history))
    return state


def held_state(held: Held, subject: str) -> Patch:
    """What a lifecycle has held, as the incident of ``subject`` depends on it.

    Of what is open elsewhere, only the newest is kept, and no words.
    """
    own = [tracked for tracked in held.tracked if _is_of(tracked, subject)]
    others = [_wordless(tracked) for tracked in held.tracked if not _is_of(tracked, subject)]
    others.sort(key=lambda tracked: tracked.opened_at or math.inf)
    tracked = (*own, *others[-MOST_ELSEWHERE:])
    subjects = {subject, *(entry.subject for entry in tracked)}
    incidents = {
        query: incident if query == subject else replace(incident, ended=())
        for query, incident in held.incidents.items()
        if query in subjects
    }
    state: Patch = plain(Held(tracked, incidents))
    return {name: value for name, value in state.items() if value}


def _is_of(tracked: Tracked, subject: str) -> bool:
    return subject in (tracked.subject, tracked.alert.query)


def _wordless(tracked: Tracked) -> Tracked:
    return replace(tracked, alert=replace(tracked.alert, annotations={}))


def held_of(state: Patch) -> Held:
    """What a lifecycle has held.

    Raises:
        msgspec.ValidationError: somebody else has written it.

    """
    held: Held = _record(state, Held)
    return held


def snapshot_of(driver: Patch, queries: Iterable[Patch]) -> Snapshot:
    """The snapshot of these states.

    Raises:
        msgspec.ValidationError: a newer version has written them, or somebody else.

    """
    snapshot: Snapshot = _record(driver, Snapshot)
    return replace(snapshot, queries=tuple(_record(query, Query) for query in queries))


def ending_of(driver: Mapping[str, Any]) -> Ending | None:
    """How the process ends, if it does.

    Raises:
        msgspec.ValidationError: somebody else has written it.

    """
    state = driver.get(ENDING)
    return None if state is None else _record(state, Ending)


def _record(state: Any, kind: Any) -> Any:
    # Not strict: an infinite number is a text.
    return msgspec.convert(state, kind, strict=False)
