"""Starts queries and restarts them after failures, in the thread that calls ``Sidecar.supervise``.

A restart comes after a pause that doubles with each failure. Two counts end the restarts: the
failures within a period, and those since the query last committed or was idle; so a query that
always fails ends, however long its pauses are. All times are monotonic seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
import tenacity
from msgspec.structs import replace

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.policy import Limits
from ..alerting.retries import nth_wait
from ..alerting.rules import driver_down, query_stopped
from ..alerting.rules.query_flapping import poison_batch
from ..core.redaction import redact
from ..listener.probe import Context
from ..listener.spark.jvm import THROWN
from ..listener.state.identity import base_label
from ..listener.state.query import Outcome, Query
from ..listener.state.snapshot import Ownership, Snapshot, SupervisedQuery
from .failure import QueryFailure

log = logging.getLogger("querypulse")

Starts = Mapping[str, Callable[[], Any]]

FIRST_PAUSE_SECONDS = 1.0
JITTER = tenacity.wait_random(0.0, 1.0)
"""Queries that fail together are not started together."""
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
            "max_pause_seconds": (self.max_pause_seconds, FIRST_PAUSE_SECONDS, 86400),
            "same_batch_failures": (self.same_batch_failures, 2, 16),
        }
        for name, (value, least, most) in allowed.items():
            if not isinstance(value, (int, float)) or not least <= value <= most:
                raise ValueError(f"supervise: {name} must be {least:g} to {most:g}, given {value}")

    def pause(self, failures: int) -> float:
        """Seconds until the next start, after so many failures: 1, 2, 4, 8 ... and jitter."""
        longest = self.max_pause_seconds
        wait = tenacity.wait_exponential(multiplier=FIRST_PAUSE_SECONDS, max=longest)
        return nth_wait(wait + JITTER, failures)


class Indexed(msgspec.Struct, frozen=True):
    """A snapshot, indexed once for all supervised queries."""

    by_run: dict[str, Query]
    by_label: dict[str, Query]
    ownership: Ownership
    polled_at: float | None
    """When the last poll of the probe began."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Indexed:
        """Index a snapshot."""
        by_run = {query.run_id: query for query in snapshot.queries}
        polled_at = snapshot.probe.began_at if snapshot.probe is not None else None
        return cls(by_run, snapshot.labels(), snapshot.ownership, polled_at)

    def own(self, label: str) -> Query | None:
        """The query of this label; None if another process on this JVM has started it."""
        query = self.by_label.get(label)
        return query if query is not None and self.ownership.is_own(query.session) else None


class SupervisionEnd(str, Enum):
    """Why a query is not supervised any more."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    GIVEN_UP = "given up"
    FORGOTTEN = "forgotten"


class Supervision(msgspec.Struct, frozen=True):
    """One supervised query, from its first start to the end of its supervision.

    Each method that changes it returns the changed one.
    """

    name: str
    label: str
    terms: RestartTerms
    due_at: float | None
    """Since when, or from when on, a start is due; None while a run is active."""
    run_id: str = ""
    """The run that was started last."""
    started_at: float | None = None
    """When its start function last returned."""
    seen: bool = False
    """Whether a snapshot has shown that run."""
    restarts: int = 0
    failed_at: tuple[float, ...] = ()
    """When it failed, within the period of the terms."""
    in_a_row: int = 0
    """The failures since it last committed or was idle."""
    failure: str = ""
    end: SupervisionEnd | None = None

    def may_start(self, seen: Indexed, now: float) -> bool:
        """Whether its start is due, and the probe has seen Spark running since its last failure.

        A query that ended with its SparkContext must not be started again.
        """
        if self.end is not None or self.due_at is None or now < self.due_at:
            return False
        polled_at = seen.polled_at
        return not self.failed_at or (polled_at is not None and polled_at > self.failed_at[-1])

    def runs_again(self, seen: Indexed) -> bool:
        """Whether somebody started it after it was given up, and that run works or has worked."""
        query = seen.own(self.label)
        if self.end is not SupervisionEnd.GIVEN_UP or query is None or query.run_id == self.run_id:
            return False
        is_later = self.started_at is not None and query.started_at > self.started_at
        return query.activity_seen and (query.alive or is_later)

    def published(self, advanced_at: float) -> SupervisedQuery:
        """What rules and readers see; another start of the same thread began or ended last then.

        It is not overdue while those starts advance.
        """
        due_at = None if self.due_at is None else max(self.due_at, advanced_at)
        given_up = self.failure if self.end is SupervisionEnd.GIVEN_UP else ""
        return SupervisedQuery(
            self.restarts, due_at, self.failure, given_up, started_at=self.started_at
        )

    def start(self, run_id: str, now: float) -> Supervision:
        """Its start function has returned a query with this run."""
        counted = self._count_restart()
        return replace(counted, run_id=run_id, started_at=now, seen=False, due_at=None)

    def fail_start(self, why: str, now: float) -> Supervision:
        """Its start function has raised, which counts as a failure."""
        return self._count_restart().fail(f"its start failed: {why}", now)

    def give_up(self, why: str) -> Supervision:
        """It is not started again."""
        return replace(self, due_at=None, failure=why, end=SupervisionEnd.GIVEN_UP)

    def forget(self) -> Supervision:
        """The application says that it will not come back."""
        return replace(self, due_at=None, end=SupervisionEnd.FORGOTTEN)

    def observe(self, seen: Indexed, now: float) -> Supervision:
        """What the newest snapshot says about its run.

        A run of its name that somebody else has started is supervised like one that was started
        here, but not one that another process on the same JVM has started.
        """
        query = self._query(seen)
        if self.end is not None or query is None:
            return self
        after = replace(self, run_id=query.run_id, label=query.label, seen=True)
        if query.alive:
            in_a_row = 0 if query.activity_seen else self.in_a_row
            return replace(after, due_at=None, in_a_row=in_a_row)
        if query.stop_expected:
            return replace(after, due_at=None, end=SupervisionEnd.STOPPED)
        if query.ended is not None and query.ended.outcome is Outcome.COMPLETED:
            return replace(after, due_at=None, end=SupervisionEnd.COMPLETED)
        return after if after.due_at is not None else after.fail_run(query, now)

    def _query(self, seen: Indexed) -> Query | None:
        """The query of its run, or of a later run that somebody else has started."""
        query = seen.by_run.get(self.run_id) if self.run_id else None
        if query is not None:
            return query
        later = seen.own(self.label) if self.seen or not self.run_id else None
        return later if later is not None and later.alive else None

    def _count_restart(self) -> Supervision:
        return replace(self, restarts=self.restarts + 1) if self.failure else self

    def fail_run(self, query: Query, now: float) -> Supervision:
        """Its run has ended, and not on purpose."""
        times = self.terms.same_batch_failures
        poison = poison_batch(query, Limits(restart_budget=times))
        if poison is not None:
            batch, error = poison.batch_id, poison.error_class
            return self.give_up(f"batch {batch} failed {times} times with {error}")
        if query.ended is None:
            return self.fail("it disappeared without an end event", now)
        failure = query.ended.failure
        return self.fail(failure.reason if failure else "it stopped without an exception", now)

    def fail(self, why: str, now: float) -> Supervision:
        """It failed: it is started again after a pause, or given up."""
        period = self.terms.within_seconds
        failed_at = (*(at for at in self.failed_at if now - at <= period), now)
        within, in_a_row = len(failed_at), self.in_a_row + 1
        after = replace(self, failed_at=failed_at, in_a_row=in_a_row, failure=why)
        if within > self.terms.restarts:
            return after.give_up(f"{within} failures within {period:.0f} s, the last: {why}")
        if in_a_row > self.terms.restarts:
            return after.give_up(
                f"{in_a_row} failures without a commit in between, the last: {why}"
            )
        due_at = now + self.terms.pause(max(within, in_a_row))
        return replace(after, due_at=due_at)


class _Call:
    """One call of ``supervise``, whose thread starts its queries one after the other."""

    def __init__(self, starts: Starts, now: float) -> None:
        self.starts = starts
        self.news = threading.Event()
        self.handles: dict[str, Any] = {}
        """What the start functions returned last."""
        self.advanced_at = now
        """When a start function was last called or last returned."""


class Supervisor:
    """All supervised queries of one sidecar, for the threads that supervise, evaluate and forget.

    ``snapshot`` returns the newest one; once ``closed`` returns True, all supervision ends.
    ``redact_ours`` hides our own secrets. The lock is held for moments only: neither a log nor
    Spark is waited for.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        closed: Callable[[], bool],
        redact_ours: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshot = snapshot
        self._closed = closed
        self._redact_ours = redact_ours
        self._clock = clock
        self._lock = threading.RLock()
        self._known: dict[str, Supervision] = {}
        """By name: what is supervised, and what was given up."""
        self._calls: dict[str, _Call] = {}
        """By name: the call that is responsible for it."""

    def publish(self) -> Mapping[str, SupervisedQuery]:
        """By label: what rules and readers see; what was given up ends once it runs again."""
        self._drop_recovered()
        published = {}
        with self._lock:
            for query in self._known.values():
                if query.end in {SupervisionEnd.GIVEN_UP, None}:
                    call = self._calls.get(query.name)
                    published[query.label] = query.published(call.advanced_at if call else 0.0)
        return published

    def wake(self) -> None:
        """Signal a new evaluation, or the end; never blocks."""
        for call in list(self._calls.values()):
            call.news.set()

    def forget(self, name: str) -> bool:
        """Drop a query that is not running; whether it was supervised or given up."""
        with self._lock:
            queries = [query for query in self._known.values() if name in (query.name, query.label)]
            for query in queries:
                if query.name in self._calls:
                    self._known[query.name] = query.forget()
                else:
                    del self._known[query.name]
        self.wake()
        return bool(queries)

    def supervise(self, starts: Starts, terms: RestartTerms) -> None:
        """Start each query, and start it again after a failure, until none is left.

        Raises:
            ValueError: a query is supervised already.
            QueryFailure: a query was given up, and no other is left; or Spark has ended.

        """
        call = self._begin(starts, terms)
        try:
            while True:
                call.news.clear()
                snapshot = self._snapshot()
                if self._closed() or snapshot.context.is_on_purpose:
                    return
                if not self._has_left(call, snapshot):
                    return
        finally:
            self._end(call)

    def _begin(self, starts: Starts, terms: RestartTerms) -> _Call:
        now = self._clock()
        call = _Call(starts, now)
        with self._lock:
            twice = sorted(set(self._calls).intersection(starts))
            if twice:
                raise ValueError(f"supervise: already supervised: {', '.join(twice)}")
            for name in starts:
                self._known[name] = Supervision(name, base_label(name), terms, due_at=now)
                self._calls[name] = call
        return call

    def _end(self, call: _Call) -> None:
        """Leave only what was given up, so that its alert stays until somebody fixes it."""
        with self._lock:
            for query in self._queries(call):
                del self._calls[query.name]
                if query.end is not SupervisionEnd.GIVEN_UP:
                    del self._known[query.name]

    def _queries(self, call: _Call) -> list[Supervision]:
        with self._lock:
            return [self._known[name] for name in call.starts if self._calls.get(name) is call]

    def _drop_recovered(self) -> None:
        """Drop each query that was given up and now runs again, so that it can be supervised."""
        queries = list(self._known.values())
        given_up = [query for query in queries if query.end is SupervisionEnd.GIVEN_UP]
        if not given_up:
            return
        seen = Indexed.of(self._snapshot())
        with self._lock:
            for query in given_up:
                if query.runs_again(seen) and self._known.get(query.name) is query:
                    del self._known[query.name]
                    self._calls.pop(query.name, None)

    def _change(self, name: str, change: Callable[[Supervision], Supervision]) -> None:
        """Change one query; what has ended stays as it is."""
        with self._lock:
            before = self._known.get(name)
            if before is None or before.end is not None:
                return
            after = change(before)
            if after == before:
                return
            after = replace(after, failure=self._redact_ours(after.failure))
            self._known[name] = after
        if after.end is SupervisionEnd.GIVEN_UP:
            log.error("querypulse: %s is not restarted any more: %s", name, after.failure)
        elif after.due_at is not None and after.failed_at != before.failed_at:
            pause = after.due_at - self._clock()
            log.warning("querypulse: %s restarts in %.0f s: %s", name, pause, after.failure)

    def _has_left(self, call: _Call, snapshot: Snapshot) -> bool:
        """One round: follow what the snapshot says, start what is due, else wait for news.

        Returns whether a query is left to supervise.

        Raises:
            QueryFailure: as ``supervise``.

        """
        if snapshot.context is Context.JVM_GONE:
            raise QueryFailure(WHOLE_DRIVER, driver_down.ENDED)
        if snapshot.context is Context.STOPPED:
            raise QueryFailure(WHOLE_DRIVER, query_stopped.CONTEXT_GONE)
        seen = Indexed.of(snapshot)
        for query in self._queries(call):
            self._follow(call, query, seen)
        queries = self._queries(call)
        if all(query.end is not None for query in queries):
            for query in queries:
                if query.end is SupervisionEnd.GIVEN_UP:
                    raise QueryFailure(query.label, query.failure)
            return False
        now = self._clock()
        due = [
            query
            for query in queries
            # What disappeared from a poll may be active after all.
            if query.may_start(seen, now) and not _is_active(call.handles.get(query.name))
        ]
        self._start_in_turn(call, due, snapshot)
        if not due:
            pauses = [query.due_at - now for query in queries if query.due_at is not None]
            call.news.wait(min([ROUND_SECONDS, *(pause for pause in pauses if pause > 0)]))
        return True

    def _follow(self, call: _Call, query: Supervision, seen: Indexed) -> None:
        """Change what is known of one query as the newest snapshot says."""
        now, at = self._clock(), query.started_at
        is_unseen = not query.seen and query.due_at is None and query.end is None
        is_late = is_unseen and at is not None and now - at > UNSEEN_SECONDS
        is_lost = is_late and not _is_active(call.handles.get(query.name))

        def observe(before: Supervision) -> Supervision:
            after = before.observe(seen, now)
            if not is_lost or after.seen:
                return after
            return after.fail("it ended, and no signal has shown its run", now)

        self._change(query.name, observe)

    def _start_in_turn(self, call: _Call, due: Sequence[Supervision], snapshot: Snapshot) -> None:
        """Start what is due, until a newer snapshot says more about it."""
        for query in sorted(due, key=lambda query: query.due_at or 0.0):
            if self._known.get(query.name) is query:  # else it was forgotten
                self._start(call, query.name)
            if self._closed() or self._snapshot() is not snapshot:
                return

    def _start(self, call: _Call, name: str) -> None:
        """Call the start function, without any lock: it may take as long as it likes."""
        call.advanced_at = self._clock()
        try:
            handle = call.starts[name]()
            run_id, started_name = str(handle.runId), handle.name
        except Exception as error:  # noqa: BLE001 - a start function may raise anything
            why, now = describe_error(error, self._redact_ours), self._clock()
            self._change(name, lambda query: query.fail_start(why, now))
            return
        finally:
            call.advanced_at = self._clock()
        call.handles[name] = handle
        self._change(name, lambda query: query.start(run_id, self._clock()))
        if started_name != name:
            why = f"its start function started a query named {started_name!r}"
            self._change(name, lambda query: query.give_up(why))


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


def run_unwatched(starts: Starts, redact_ours: Callable[[str], str]) -> None:
    """Start each query once, and wait until none is active, where nothing can be watched.

    Raises:
        QueryFailure: the first of those that did not start, or that failed.

    """
    failures: list[QueryFailure] = []

    def attempt(name: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - the other queries go on after any error
            failure = QueryFailure(name, describe_error(error, redact_ours))
            failure.__cause__ = error
            failures.append(failure)
            log.error("querypulse: %s, and nothing restarts it", failure)  # noqa: TRY400 - redacted
            return None

    handles = {name: attempt(name, start) for name, start in starts.items()}
    for name, handle in handles.items():
        if handle is not None:
            attempt(name, handle.awaitTermination)
    if failures:
        raise failures[0]
