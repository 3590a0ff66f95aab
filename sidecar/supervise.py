"""Starts queries and restarts them after failures, in the thread that calls ``Sidecar.supervise``.

A restart comes after a pause that doubles with each failure. Two counts end the restarts: the
failures within a period, and those since the query last committed or was idle; so a query that
always fails ends, however long its pauses are. All times are monotonic seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import random
from typing import Any

import msgspec

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.kinds import SharedCause
from ..alerting.policy import Limits
from ..alerting.rules.query_ends import poison_batch
from ..alerting.words.reasons import CAUSES, JVM_ENDED, SESSION_GONE
from ..core.redaction import redact
from ..listener.probe_report import Context
from ..listener.spark.jvm import THROWN
from ..listener.state.identity import base_label
from ..listener.state.query import Query
from ..listener.state.run import Outcome
from ..listener.state.snapshot import Snapshot, SupervisedQuery
from .failure import QueryFailure

log = logging.getLogger("querypulse")

Starts = Mapping[str, Callable[[], Any]]

UNPLANNED_ENDS = {
    Context.JVM_GONE: JVM_ENDED,
    Context.STOPPED: CAUSES[SharedCause.CONTEXT_STOPPED],
    Context.SESSION_ENDED: SESSION_GONE,
}
"""The ends of Spark that the application did not ask for, and what each is called."""
ROUND_SECONDS = 1.0
UNSEEN_SECONDS = 10.0
"""After this time without any signal of a new run, Spark is asked whether it is active."""
MAX_ERROR_CHARACTERS = 300


class RestartTerms(msgspec.Struct, frozen=True):
    """How often and how fast a query is started again.

    Raises:
        ValueError: a term is not allowed.

    """

    restarts: int = 10
    """How many restarts it may use up within ``within_seconds``, or without a commit."""
    within_seconds: float = 3600.0
    max_pause_seconds: float = 300.0
    same_batch_failures: int = 5
    """So many failures of one batch with one error class end the restarts; at most 16."""

    def __post_init__(self) -> None:
        allowed = {
            "restarts": (self.restarts, 0, 1000),
            "within_seconds": (self.within_seconds, 1, float("inf")),
            "max_pause_seconds": (self.max_pause_seconds, 1, 86400),
            "same_batch_failures": (self.same_batch_failures, 2, 16),
        }
        for name, (value, least, most) in allowed.items():
            if not isinstance(value, (int, float)) or not least <= value <= most:
                raise ValueError(f"supervise: {name} must be {least:g} to {most:g}, given {value}")

    def pause(self, failures: int) -> float:
        """Seconds until the next start: 1, 2, 4, 8 ..., and at random up to one more.

        So queries that fail together are not started together.
        """
        return min(2.0 ** min(failures - 1, 17), self.max_pause_seconds) + random()  # noqa: S311


class Supervision(msgspec.Struct, eq=False):
    """One supervised query, from its first start to the end of its supervision.

    Decides what its run and the snapshots mean; touches no lock, no log and no Spark.
    """

    name: str
    label: str
    terms: RestartTerms
    due_at: float | None
    """Since when, or from when on, a start is due; None while a run is active."""
    advanced_at: float = 0.0
    """When the start function of any query of the same call was last called or last returned."""
    run_id: str = ""
    """The run that was started last."""
    started_at: float | None = None
    """When its start function last returned."""
    handle: Any = None
    """What it returned."""
    seen: bool = False
    """Whether a snapshot has shown that run."""
    restarts: int = 0
    failed_at: tuple[float, ...] = ()
    """When it failed, within the period of the terms."""
    in_a_row: int = 0
    """The failures since it last committed or was idle."""
    failure: str = ""
    is_over: bool = False
    """Whether it is not started any more: completed, stopped, forgotten or given up."""
    is_given_up: bool = False

    def may_start(self, snapshot: Snapshot, now: float) -> bool:
        """Whether its start is due, and the probe has seen Spark running since its last failure.

        A query that ended with its SparkContext must not be started again.
        """
        if self.is_over or self.due_at is None or now < self.due_at:
            return False
        probe = snapshot.probe
        return not self.failed_at or (probe is not None and probe.began_at > self.failed_at[-1])

    def runs_again(self, snapshot: Snapshot) -> bool:
        """Whether somebody started it after it was given up, and that run works or has worked."""
        query = _own(snapshot, self.label)
        if not self.is_given_up or query is None or query.run.run_id == self.run_id:
            return False
        is_later = self.started_at is not None and query.run.started_at > self.started_at
        return query.run.activity_seen and (query.run.alive or is_later)

    def is_unseen(self, now: float) -> bool:
        """Whether no signal has shown its run for so long that it may have ended."""
        is_late = self.started_at is not None and now - self.started_at > UNSEEN_SECONDS
        return is_late and not (self.seen or self.is_over) and self.due_at is None

    def publish(self) -> SupervisedQuery:
        """What rules and readers see; it is not overdue while other starts advance."""
        due_at = None if self.due_at is None else max(self.due_at, self.advanced_at)
        given_up = self.failure if self.is_given_up else ""
        return SupervisedQuery(
            self.restarts, due_at, self.failure, given_up, started_at=self.started_at
        )

    def start(self, handle: Any, run_id: str, name: str, now: float) -> None:
        """Its start function has returned a query with this run and name."""
        self.restarts += bool(self.failure)
        self.handle = handle
        self.run_id = run_id
        self.started_at = now
        self.seen = False
        self.due_at = None
        if name != self.name:
            self.give_up(f"its start function started a query named {name!r}")

    def fail_start(self, why: str, now: float) -> None:
        """Its start function has raised, which counts as a failure."""
        self.restarts += bool(self.failure)
        self.fail(f"its start failed: {why}", now)

    def give_up(self, why: str) -> None:
        """It is not started again."""
        self.leave()
        self.failure = why
        self.is_given_up = True

    def leave(self) -> None:
        """It has ended as intended, or the application says that it will not come back."""
        self.due_at = None
        self.is_over = True
        self.is_given_up = False

    def observe(self, snapshot: Snapshot, now: float) -> None:
        """What the newest snapshot says about its run.

        A run of its name that somebody else has started is supervised like one that was started
        here, but not one that another process on the same JVM has started.
        """
        runs = (
            query for query in snapshot.queries if self.run_id and query.run.run_id == self.run_id
        )
        query = next(runs, None)
        if query is None and (self.seen or not self.run_id):
            later = _own(snapshot, self.label)
            query = later if later is not None and later.run.alive else None
        if query is None:
            return
        self.run_id = query.run.run_id
        self.label = query.label
        self.seen = True
        if query.run.alive:
            self.due_at = None
            self.in_a_row = 0 if query.run.activity_seen else self.in_a_row
        elif query.run.stop_expected or (
            query.run.ended is not None and query.run.ended.outcome is Outcome.COMPLETED
        ):
            self.leave()
        elif self.due_at is None:
            self._fail_run(query, now)

    def _fail_run(self, query: Query, now: float) -> None:
        """Its run has ended, and not on purpose."""
        times = self.terms.same_batch_failures
        poison = poison_batch(query, Limits(restart_budget=times))
        if poison is not None:
            self.give_up(f"batch {poison.batch_id} failed {times} times with {poison.error_class}")
        elif query.run.ended is None:
            self.fail("it disappeared without an end event", now)
        else:
            failure = query.run.ended.failure
            self.fail(failure.reason if failure else "it stopped without an exception", now)

    def fail(self, why: str, now: float) -> None:
        """It failed: it is started again after a pause, or given up."""
        period = self.terms.within_seconds
        allowed = self.terms.restarts
        self.failed_at = (*(at for at in self.failed_at if now - at <= period), now)
        self.in_a_row += 1
        self.failure = why
        within = len(self.failed_at)
        if within > allowed:
            self.give_up(f"{within} failures within {period:.0f} s, the last: {why}")
        elif self.in_a_row > allowed:
            self.give_up(f"{self.in_a_row} failures without a commit in between, the last: {why}")
        else:
            self.due_at = now + self.terms.pause(max(within, self.in_a_row))


def _own(snapshot: Snapshot, label: str) -> Query | None:
    """The query of this label; None if another process on this JVM has started it."""
    is_own = snapshot.ownership.is_own
    return next(
        (query for query in snapshot.queries if query.label == label and is_own(query.run.session)),
        None,
    )


class Supervisor:
    """All supervised queries of one sidecar, for the threads that supervise, evaluate and forget.

    ``snapshot`` returns the newest one; once ``closed`` returns True, all supervision ends;
    ``news`` is notified of both. ``redact_ours`` hides our own secrets. The lock is held for
    moments only: neither a log nor Spark is waited for.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        closed: Callable[[], bool],
        redact_ours: Callable[[str], str],
        news: threading.Condition,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshot = snapshot
        self._closed = closed
        self._news = news
        self._redact_ours = redact_ours
        self._clock = clock
        self._lock = threading.RLock()
        self._queries: dict[str, Supervision] = {}
        """By name. What was given up stays after its call: its alert waits until it is fixed."""

    def publish(self) -> Mapping[str, SupervisedQuery]:
        """By label: what rules and readers see; what was given up ends once it runs again."""
        with self._lock:
            for query in self._queries.values():
                if query.is_given_up and query.runs_again(self._snapshot()):
                    query.leave()
            return {query.label: query.publish() for query in self._supervised()}

    def _supervised(self) -> list[Supervision]:
        queries = self._queries.values()
        return [query for query in queries if query.is_given_up or not query.is_over]

    def forget(self, name: str, *, is_label: bool = False) -> bool:
        """Drop what is not running, by name or label; whether it was supervised or given up."""
        with self._lock:
            named = [
                query
                for query in self._supervised()
                if name == query.label or (name == query.name and not is_label)
            ]
            for query in named:
                query.leave()
        with self._news:
            self._news.notify_all()
        return bool(named)

    def supervise(self, starts: Starts, terms: RestartTerms) -> None:
        """Start each query, and start it again after a failure, until none is left.

        Raises:
            ValueError: a query is supervised already.
            QueryFailure: a query was given up, and no other is left; or Spark has ended.

        """
        now = self._clock()
        mine = [Supervision(name, base_label(name), terms, now, advanced_at=now) for name in starts]
        with self._lock:
            others = {name for name, query in self._queries.items() if not query.is_over}
            if others.intersection(starts):
                twice = ", ".join(sorted(others.intersection(starts)))
                raise ValueError(f"supervise: already supervised: {twice}")
            self._queries |= {query.name: query for query in mine}
        try:
            while self._run_round(mine, starts):
                pass
        finally:
            with self._lock:
                for query in mine:
                    if not query.is_given_up and self._queries.get(query.name) is query:
                        del self._queries[query.name]

    def _run_round(self, mine: list[Supervision], starts: Starts) -> bool:
        """Run one round: follow what the snapshot says, start what is due, else wait for news.

        Returns whether a query is left to supervise.

        Raises:
            QueryFailure: as ``supervise``.

        """
        snapshot = self._snapshot()
        if self._closed() or snapshot.context.is_on_purpose:
            return False
        if snapshot.context in UNPLANNED_ENDS:
            raise QueryFailure(WHOLE_DRIVER, UNPLANNED_ENDS[snapshot.context])
        for query in mine:
            self._follow(query, snapshot)
        left = [query for query in mine if not query.is_over]
        if left:
            if not self._start_due(left, starts, snapshot):
                self._wait_for_news(left, snapshot)
            return True
        for query in mine:
            if query.is_given_up:
                raise QueryFailure(query.label, query.failure)
        return False

    def _wait_for_news(self, left: list[Supervision], snapshot: Snapshot) -> None:
        """Wait for a newer snapshot, the end, or a query that is forgotten; or until one is due."""
        now = self._clock()
        pauses = [query.due_at - now for query in left if query.due_at is not None]
        seconds = min([ROUND_SECONDS, *(pause for pause in pauses if pause > 0)])

        def has_come() -> bool:
            is_newer = self._snapshot() is not snapshot
            return is_newer or self._closed() or any(query.is_over for query in left)

        with self._news:
            self._news.wait_for(has_come, seconds)

    def _follow(self, query: Supervision, snapshot: Snapshot) -> None:
        now = self._clock()
        self._change(query, partial(query.observe, snapshot, now))
        if query.is_unseen(now) and not _is_active(query.handle):
            why = "it ended, and no signal has shown its run"
            self._change(query, partial(query.fail, why, now))

    def _start_due(self, mine: list[Supervision], starts: Starts, snapshot: Snapshot) -> bool:
        """Start what is due, until a newer snapshot says more; return whether anything was due."""
        now = self._clock()
        # What disappeared from a poll may be active after all.
        due = [
            query
            for query in mine
            if query.may_start(snapshot, now) and not _is_active(query.handle)
        ]
        for query in sorted(due, key=lambda query: query.due_at or 0.0):
            if not query.is_over:  # It may have been forgotten meanwhile.
                self._start(query, starts[query.name], mine)
            if self._closed() or self._snapshot() is not snapshot:
                break
        return bool(due)

    def _start(
        self, query: Supervision, start: Callable[[], Any], mine: Iterable[Supervision]
    ) -> None:
        """Call the start function, without any lock: it may take as long as it likes."""
        self._advance(mine)
        try:
            handle = started_by(start)
            run_id = str(handle.runId)
            name = handle.name
        except Exception as error:  # noqa: BLE001 - a start function may raise anything
            why = describe_error(error, self._redact_ours)
            self._change(query, partial(query.fail_start, why, self._clock()))
        else:
            self._change(query, partial(query.start, handle, run_id, name, self._clock()))
        finally:
            self._advance(mine)

    def _advance(self, mine: Iterable[Supervision]) -> None:
        for query in mine:
            query.advanced_at = self._clock()

    def _change(self, query: Supervision, change: Callable[[], None]) -> None:
        """Change one query, unless it is over: another thread may have forgotten it."""
        with self._lock:
            if query.is_over:
                return
            failed_at = query.failed_at
            change()
            query.failure = self._redact_ours(query.failure)
            name = query.name
            failure = query.failure
            due_at = query.due_at
        if query.is_given_up:
            log.error("querypulse: %s is not restarted any more: %s", name, failure)
        elif due_at is not None and query.failed_at is not failed_at:
            pause = due_at - self._clock()
            log.warning("querypulse: %s restarts in %.0f s: %s", name, pause, failure)


def check_starts(starts: Starts) -> None:
    """Check what an application gives.

    Raises:
        ValueError: it is not a function by query name.

    """
    if not isinstance(starts, Mapping) or not starts:
        raise ValueError("supervise: give a start function by query name, such as {'a': start_a}")
    for name, start in starts.items():
        if not isinstance(name, str) or not name or not callable(start):
            raise ValueError(f"supervise: {name!r}: give a query's name and a start function")


def started_by(start: Callable[[], Any]) -> Any:
    """Call a start function; return the query that it has started.

    Raises:
        TypeError: it returned something else.
        Exception: what it raises.

    """
    query = start()
    if not hasattr(query, "runId"):
        raise TypeError(f"its start function returned no query, but {type(query).__name__}")
    return query


def describe_error(error: Exception, redact_ours: Callable[[str], str]) -> str:
    """Class and first line of an error, without secrets."""
    text = redact(f"{type(error).__name__}: {error}").strip()
    return redact_ours(text).partition("\n")[0][:MAX_ERROR_CHARACTERS]


def _is_active(handle: Any) -> bool:
    """Whether Spark says that the run is active; also if it does not answer."""
    try:
        return handle is not None and bool(handle.isActive)
    except (*THROWN, OSError):
        return True
