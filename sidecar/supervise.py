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
from random import random
from typing import Any

import msgspec
from msgspec.structs import replace

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.policy import Limits
from ..alerting.rules.monitoring import JVM_ENDED
from ..alerting.rules.query_ends import CONTEXT_GONE, poison_batch
from ..core.redaction import redact
from ..listener.probe import Context
from ..listener.spark.jvm import THROWN
from ..listener.state.identity import base_label
from ..listener.state.query import Outcome, Query
from ..listener.state.snapshot import Ownership, Snapshot, SupervisedQuery
from .failure import QueryFailure

log = logging.getLogger("querypulse")

Starts = Mapping[str, Callable[[], Any]]

ENDS = {Context.JVM_GONE: JVM_ENDED, Context.STOPPED: CONTEXT_GONE}
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
    is_over: bool = False
    """Whether it is not started any more: completed, stopped, forgotten or given up."""
    is_given_up: bool = False

    def may_start(self, seen: Indexed, now: float) -> bool:
        """Whether its start is due, and the probe has seen Spark running since its last failure.

        A query that ended with its SparkContext must not be started again.
        """
        if self.is_over or self.due_at is None or now < self.due_at:
            return False
        polled_at = seen.polled_at
        return not self.failed_at or (polled_at is not None and polled_at > self.failed_at[-1])

    def runs_again(self, seen: Indexed) -> bool:
        """Whether somebody started it after it was given up, and that run works or has worked."""
        query = seen.own(self.label)
        if not self.is_given_up or query is None or query.run_id == self.run_id:
            return False
        is_later = self.started_at is not None and query.started_at > self.started_at
        return query.activity_seen and (query.alive or is_later)

    def published(self, advanced_at: float) -> SupervisedQuery:
        """What rules and readers see; another start of the same thread began or ended last then.

        It is not overdue while those starts advance.
        """
        due_at = None if self.due_at is None else max(self.due_at, advanced_at)
        given_up = self.failure if self.is_given_up else ""
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
        return replace(self.leave(), failure=why, is_given_up=True)

    def leave(self) -> Supervision:
        """It has ended as intended, or the application says that it will not come back."""
        return replace(self, due_at=None, is_over=True, is_given_up=False)

    def observe(self, seen: Indexed, now: float) -> Supervision:
        """What the newest snapshot says about its run.

        A run of its name that somebody else has started is supervised like one that was started
        here, but not one that another process on the same JVM has started.
        """
        query = self._query(seen)
        if self.is_over or query is None:
            return self
        after = replace(self, run_id=query.run_id, label=query.label, seen=True)
        if query.alive:
            in_a_row = 0 if query.activity_seen else self.in_a_row
            return replace(after, due_at=None, in_a_row=in_a_row)
        is_completed = query.ended is not None and query.ended.outcome is Outcome.COMPLETED
        if query.stop_expected or is_completed:
            return after.leave()
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

    def __init__(self, starts: Starts, terms: RestartTerms, now: float) -> None:
        self.starts = starts
        self.queries = {
            name: Supervision(name, base_label(name), terms, due_at=now) for name in starts
        }
        self.handles: dict[str, Any] = {}
        """What the start functions returned last."""
        self.advanced_at = now
        """When a start function was last called or last returned."""
        self.news = threading.Event()


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
        self._calls: list[_Call] = []
        self._given_up: dict[str, Supervision] = {}
        """By name: what calls that have ended gave up. Its alert stays until somebody fixes it."""

    def publish(self) -> Mapping[str, SupervisedQuery]:
        """By label: what rules and readers see; what was given up ends once it runs again."""
        with self._lock:
            self._drop_recovered()
            published = {query.label: query.published(0.0) for query in self._given_up.values()}
            for call in self._calls:
                for query in call.queries.values():
                    if query.is_given_up or not query.is_over:
                        published[query.label] = query.published(call.advanced_at)
        return published

    def _drop_recovered(self) -> None:
        """Drop each query that was given up and now runs again, so that it can be supervised."""
        all_queries = [self._given_up, *(call.queries for call in self._calls)]
        given_up = [
            (queries, query)
            for queries in all_queries
            for query in queries.values()
            if query.is_given_up
        ]
        seen = Indexed.of(self._snapshot()) if given_up else None
        for queries, query in given_up:
            if seen is not None and query.runs_again(seen):
                del queries[query.name]

    def wake(self) -> None:
        """Signal a new evaluation, or the end; never blocks."""
        for call in list(self._calls):
            call.news.set()

    def forget(self, name: str) -> bool:
        """Drop a query that is not running; whether it was supervised or given up."""
        with self._lock:
            given_up = _called(name, self._given_up)
            for query in given_up:
                del self._given_up[query.name]
            supervised = [
                (call, query) for call in self._calls for query in _called(name, call.queries)
            ]
            for call, query in supervised:
                call.queries[query.name] = query.leave()
        self.wake()
        return bool(given_up or supervised)

    def supervise(self, starts: Starts, terms: RestartTerms) -> None:
        """Start each query, and start it again after a failure, until none is left.

        Raises:
            ValueError: a query is supervised already.
            QueryFailure: a query was given up, and no other is left; or Spark has ended.

        """
        call = _Call(starts, terms, self._clock())
        with self._lock:
            twice = sorted(name for other in self._calls for name in other.queries.keys() & starts)
            if twice:
                raise ValueError(f"supervise: already supervised: {', '.join(twice)}")
            for name in starts:
                self._given_up.pop(name, None)
            self._calls.append(call)
        try:
            while self._has_left(call):
                pass
        finally:
            with self._lock:
                self._calls.remove(call)
                self._given_up |= {
                    name: query for name, query in call.queries.items() if query.is_given_up
                }

    def _has_left(self, call: _Call) -> bool:
        """One round: follow what the snapshot says, start what is due, else wait for news.

        Returns whether a query is left to supervise.

        Raises:
            QueryFailure: as ``supervise``.

        """
        call.news.clear()
        snapshot = self._snapshot()
        if self._closed() or snapshot.context.is_on_purpose:
            return False
        if snapshot.context in ENDS:
            raise QueryFailure(WHOLE_DRIVER, ENDS[snapshot.context])
        seen = Indexed.of(snapshot)
        for query in list(call.queries.values()):
            self._follow(call, query, seen)
        queries, now = list(call.queries.values()), self._clock()
        if all(query.is_over for query in queries):
            for query in queries:
                if query.is_given_up:
                    raise QueryFailure(query.label, query.failure)
            return False
        # What disappeared from a poll may be active after all.
        due = [
            query
            for query in queries
            if query.may_start(seen, now) and not _is_active(call.handles.get(query.name))
        ]
        self._start_in_turn(call, due, snapshot)
        if not due:
            pauses = [query.due_at - now for query in queries if query.due_at is not None]
            call.news.wait(min([ROUND_SECONDS, *(pause for pause in pauses if pause > 0)]))
        return True

    def _follow(self, call: _Call, query: Supervision, seen: Indexed) -> None:
        """Change what is known of one query as the newest snapshot says."""
        now = self._clock()
        after = query.observe(seen, now)
        is_unseen = not after.seen and after.due_at is None and not after.is_over
        is_late = query.started_at is not None and now - query.started_at > UNSEEN_SECONDS
        if is_unseen and is_late and not _is_active(call.handles.get(query.name)):
            after = after.fail("it ended, and no signal has shown its run", now)
        self._change(call, query, after)

    def _start_in_turn(self, call: _Call, due: Iterable[Supervision], snapshot: Snapshot) -> None:
        """Start what is due, until a newer snapshot says more about it."""
        for query in sorted(due, key=lambda query: query.due_at or 0.0):
            if call.queries.get(query.name) is query:  # else it was forgotten
                self._start(call, query)
            if self._closed() or self._snapshot() is not snapshot:
                return

    def _start(self, call: _Call, query: Supervision) -> None:
        """Call the start function, without any lock: it may take as long as it likes."""
        name, call.advanced_at = query.name, self._clock()
        try:
            handle = call.starts[name]()
            run_id, started_name = str(handle.runId), handle.name
        except Exception as error:  # noqa: BLE001 - a start function may raise anything
            why = describe_error(error, self._redact_ours)
            self._change(call, query, query.fail_start(why, self._clock()))
            return
        finally:
            call.advanced_at = self._clock()
        call.handles[name] = handle
        after = query.start(run_id, self._clock())
        if started_name != name:
            after = after.give_up(f"its start function started a query named {started_name!r}")
        self._change(call, query, after)

    def _change(self, call: _Call, before: Supervision, after: Supervision) -> None:
        """Change one query, unless it was forgotten meanwhile."""
        if after == before:
            return
        name, after = before.name, replace(after, failure=self._redact_ours(after.failure))
        with self._lock:
            if call.queries.get(name) is not before:
                return
            call.queries[name] = after
        if after.is_given_up:
            log.error("querypulse: %s is not restarted any more: %s", name, after.failure)
        elif after.due_at is not None and after.failed_at != before.failed_at:
            pause = after.due_at - self._clock()
            log.warning("querypulse: %s restarts in %.0f s: %s", name, pause, after.failure)


def _called(name: str, queries: Mapping[str, Supervision]) -> list[Supervision]:
    return [query for query in queries.values() if name in (query.name, query.label)]


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
