"""What earlier processes stored of queries, until this process sees them: failures, positions.

The rules of ``identity.py`` decide which query is the same: the one with the same query id; or,
under a new id, the one of the same name in the same checkpoint folder; or the only active query of
a name, matched to the stored query of that name that ran last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from ..core.text import digest
from .state import positions
from .state.history import MAX_PAST_FAILURES, RunFailure, latest
from .state.positions import LastRead
from .state.query import Query

MAX_KEPT = 1000
"""Queries whose failures are kept: as many as ended queries are kept."""
KEEP_SECONDS = 30 * 24 * 3600.0
"""Long enough for a batch that fails once a week; older failures are dropped."""
CLOCKS_DIFFER_SECONDS = 60.0
"""A stored failure may be this far in the future by our clock; it then counts as just now."""
LEAST_AGE_SECONDS = 1.0
"""A stored failure counts as at least this much older than this process, despite any clock."""
MARK_CHARACTERS = 16


QueryKey = tuple[str, str]
"""A query's id and mark: it may have taken the checkpoint, and so the id, of another query."""


class FailedQuery(msgspec.Struct, frozen=True):
    """What is stored of one query. Times are monotonic seconds, on disk Unix seconds."""

    query_id: str
    mark: str
    """The hash of its name, see ``mark_of``."""
    failures: tuple[RunFailure, ...] = msgspec.field(default=(), name="deaths")
    unrecovered_failures: int = msgspec.field(default=0, name="unrecovered_deaths")
    """How many of them happened since its last commit or idle trigger."""
    gone_at: float | None = None
    """When its last run ended; None if it was active."""
    reading: LastRead | None = None
    """Where it had read up to, and what it had passed over."""
    folder: str = ""
    """The hash of its checkpoint's folder; empty if that is unknown or temporary."""
    completed_at: float | None = None
    """When a run of it last completed."""

    @property
    def key(self) -> QueryKey:
        """What identifies it among what is stored."""
        return self.query_id, self.mark


@lru_cache(maxsize=2 * MAX_KEPT)
def mark_of(name: str | None) -> str:
    """A hash that identifies a name or a folder on disk, because it may be long or secret."""
    return digest(name, MARK_CHARACTERS) if name else ""


def key_of(query: Query) -> QueryKey:
    """The key of a query of this process."""
    return query.query_id, mark_of(query.name)


def shifted(failed: FailedQuery, seconds: float) -> FailedQuery:
    """Convert the times to a clock that is ``seconds`` ahead."""
    return replace(
        failed,
        failures=tuple(replace(died, at=died.at + seconds) for died in failed.failures),
        gone_at=None if failed.gone_at is None else failed.gone_at + seconds,
        completed_at=None if failed.completed_at is None else failed.completed_at + seconds,
        reading=None if failed.reading is None else positions.shifted(failed.reading, seconds),
    )


class PastFailures:
    """The failures that earlier processes stored. Each query of this process is matched once."""

    def __init__(self) -> None:
        self._kept: dict[QueryKey, FailedQuery] = {}
        self._met: set[str] = set()

    @property
    def unmet(self) -> Iterable[FailedQuery]:
        """The stored failures whose query has not been seen yet."""
        return self._kept.values()

    def add(self, kept: Iterable[FailedQuery], *, now: float, wall: float, began_at: float) -> None:
        """Add records read at ``now`` and ``wall``, in a process that began at ``began_at``.

        What is in the future counts as just now if clocks may differ by that much; otherwise it is
        dropped.
        """
        stored = [shifted(failed, now - wall) for failed in kept]
        for failed in stored[:MAX_KEPT]:
            believable = [
                replace(died, at=min(died.at, began_at - LEAST_AGE_SECONDS))
                for died in failed.failures
                if -CLOCKS_DIFFER_SECONDS <= now - died.at <= KEEP_SECONDS
            ]
            failures = tuple(sorted(believable, key=lambda died: died.at)[-MAX_PAST_FAILURES:])
            unrecovered = min(max(0, failed.unrecovered_failures), len(failures))
            reading = None if failed.reading is None else positions.not_after(failed.reading, now)
            completed_at = failed.completed_at
            if completed_at is not None and completed_at - now > CLOCKS_DIFFER_SECONDS:
                completed_at = None
            self._kept[failed.key] = replace(
                failed,
                failures=failures,
                unrecovered_failures=unrecovered,
                reading=reading,
                completed_at=None if completed_at is None else min(completed_at, now),
            )
        if stored:
            self._met.clear()

    def restored(self, queries: Mapping[str, Query]) -> list[Query]:
        """The queries not matched before of which something is stored, with that added."""
        if not self._kept:
            return []
        new = [query for label, query in queries.items() if label not in self._met]
        self._met.update(query.label for query in new)
        # All ids first: a namesake must not take what belongs to another query's id.
        by_both = [(query, self._kept.pop(key_of(query), None)) for query in new]
        by_id = [(query, own or self._renamed(query)) for query, own in by_both]
        return [
            _with_past(query, past)
            for query, own in by_id
            if (past := own or self._in_folder(query) or self._namesake(query, queries)) is not None
        ]

    def _renamed(self, query: Query) -> FailedQuery | None:
        """The stored query with the same id, which had another name, or none."""
        return self._pop(
            failed for failed in self._kept.values() if failed.query_id == query.query_id
        )

    def _in_folder(self, query: Query) -> FailedQuery | None:
        """The stored query of the same name in the same checkpoint folder, under another id."""
        place = (mark_of(query.run.checkpoint_folder), mark_of(query.name))
        return self._pop(
            failed
            for failed in self._kept.values()
            if failed.folder and (failed.folder, failed.mark) == place
        )

    def _namesake(self, query: Query, queries: Mapping[str, Query]) -> FailedQuery | None:
        """The stored query of the same name that ran last; one still active counts as last."""
        if not query.name or any(
            other.run.alive and other.name == query.name and other.label != query.label
            for other in queries.values()
        ):
            return None
        mark = mark_of(query.name)
        return self._pop(failed for failed in self._kept.values() if failed.mark == mark)

    def _pop(self, found: Iterable[FailedQuery]) -> FailedQuery | None:
        last = max(found, key=_ran_until, default=None)
        return None if last is None else self._kept.pop(last.key)


def _ran_until(failed: FailedQuery) -> tuple[float, str]:
    return math.inf if failed.gone_at is None else failed.gone_at, failed.query_id


def _with_past(query: Query, past: FailedQuery) -> Query:
    """Put what was stored first; activity in this process means that they are recovered."""
    history = query.history
    checkpoint = query.checkpoint
    is_recovered = query.run.activity_seen or history.totals.commits > 0
    before = 0 if is_recovered else past.unrecovered_failures
    is_same_id = past.query_id == query.query_id
    reading = history.reading
    if past.reading is not None:
        reading = positions.restore(reading, past.reading, is_same=is_same_id)
    is_same_folder = bool(past.folder) and past.folder == mark_of(query.run.checkpoint_folder)
    if is_same_folder and not is_same_id and not checkpoint.id_before:
        checkpoint = replace(checkpoint, id_before=past.query_id)
    history = replace(
        history,
        reading=reading,
        failures=(*past.failures, *history.failures)[-MAX_PAST_FAILURES:],
        unrecovered_failures=history.unrecovered_failures + before,
        completed_at=latest(past.completed_at, history.completed_at),
    )
    return replace(query, history=history, checkpoint=checkpoint)
