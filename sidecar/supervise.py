"""Starts and restarts queries, in the thread that calls ``Sidecar.supervise``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.rules import driver_down, query_stopped
from ..core.redaction import redact
from ..listener.identity import base_label
from ..listener.probe import Context
from ..listener.snapshot import Snapshot, SupervisedQuery
from ..listener.spark.jvm import THROWN
from . import restarting
from .failure import QueryFailure
from .restarting import Indexed, RestartTerms, Supervision, SupervisionEnd

log = logging.getLogger("querypulse")


# -- supervisions -----------------------------------------------------------------------------
# The supervised queries of one sidecar, for the threads that supervise, evaluate and forget.


Starts = Mapping[str, Callable[[], Any]]


class SuperviseCall:
    """One call of ``supervise``, whose thread starts its queries one after the other."""

    def __init__(self, starts: Starts, terms: RestartTerms, now: float) -> None:
        self.starts = starts
        self.terms = terms
        self.news = threading.Event()
        self.handles: dict[str, Any] = {}
        """What the start functions returned last."""
        self.advanced_at = now
        """When a start function was last called or last returned."""


class Supervisions:
    """All supervised queries, and what was given up. ``redact_ours`` hides our own secrets.

    Its lock is held for moments only: neither a log nor Spark is waited for.
    """

    def __init__(self, redact_ours: Callable[[str], str], clock: Callable[[], float]) -> None:
        self._redact_ours = redact_ours
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, Supervision] = {}
        self._calls: dict[str, SuperviseCall] = {}
        """By name: the call that is responsible for it."""
        self._waiting: tuple[SuperviseCall, ...] = ()

    def published(self) -> dict[str, SupervisedQuery]:
        """By label: what rules and readers see."""
        with self._lock:
            known = [(one, self._calls.get(one.name)) for one in self._known.values()]
        return {
            one.label: (restarting.queued(one, call.advanced_at) if call else one).published
            for one, call in known
            if one.end in {SupervisionEnd.GIVEN_UP, None}
        }

    def wake(self) -> None:
        """Signal a new evaluation, or the end, to every call; never blocks."""
        for call in self._waiting:
            call.news.set()

    def begin(self, call: SuperviseCall) -> None:
        """Supervise the queries of a call.

        Raises:
            ValueError: a query is supervised already.

        """
        with self._lock:
            twice = sorted(set(self._calls).intersection(call.starts))
            if twice:
                raise ValueError(f"supervise: already supervised: {', '.join(twice)}")
            for name in call.starts:
                self._known[name] = restarting.begin(name, base_label(name), self._clock())
                self._calls[name] = call
            self._waiting = (*self._waiting, call)

    def end(self, call: SuperviseCall) -> None:
        """Leave only what was given up, so that its alert stays until somebody fixes it."""
        with self._lock:
            self._waiting = tuple(one for one in self._waiting if one is not call)
            for name in [name for name in call.starts if self._calls.get(name) is call]:
                del self._calls[name]
                if self._known[name].end is not SupervisionEnd.GIVEN_UP:
                    del self._known[name]

    def of(self, call: SuperviseCall) -> list[Supervision]:
        """The queries that a call is responsible for."""
        with self._lock:
            names = [name for name in call.starts if self._calls.get(name) is call]
            return [self._known[name] for name in names]

    def is_current(self, one: Supervision) -> bool:
        """Whether nothing has changed since ``of`` returned it; ``forget`` may change it."""
        return self._known.get(one.name) is one

    def change(self, name: str, change: Callable[[Supervision], Supervision]) -> None:
        """Change one query, for the thread that supervises it; what has ended stays as it is."""
        before = self._known.get(name)
        if before is None or before.end is not None:
            return
        after = change(before)
        if after == before:
            return
        after = replace(after, failure=self._redact_ours(after.failure))
        with self._lock:
            if not self.is_current(before):  # forgotten meanwhile
                return
            self._known[name] = after
        _log(before, after, self._clock())

    def forget(self, name: str) -> bool:
        """Drop a query that is not running; whether it was supervised or given up."""
        with self._lock:
            known = [one for one in self._known.values() if name in (one.name, one.label)]
            for one in known:
                if one.name in self._calls:
                    self._known[one.name] = restarting.forgotten(one)
                else:
                    del self._known[one.name]
        self.wake()
        return bool(known)

    def drop_recovered(self, snapshot: Callable[[], Snapshot]) -> None:
        """Drop each query that was given up and now runs again, so that it can be supervised."""
        known = list(self._known.values())
        given_up = [one for one in known if one.end is SupervisionEnd.GIVEN_UP]
        if not given_up:
            return
        seen = Indexed.of(snapshot())
        recovered = [one for one in given_up if restarting.runs_again(one, seen)]
        with self._lock:
            for one in recovered:
                if self.is_current(one):
                    del self._known[one.name]
                    self._calls.pop(one.name, None)


def _log(before: Supervision, after: Supervision, now: float) -> None:
    if after.end is SupervisionEnd.GIVEN_UP:
        log.error("querypulse: %s is not restarted any more: %s", after.name, after.failure)
    elif after.due_at is not None and after.failure and after.failed_at != before.failed_at:
        pause = after.due_at - now
        log.warning("querypulse: %s restarts in %.0f s: %s", after.name, pause, after.failure)


# -- supervisor -------------------------------------------------------------------------------


ROUND_SECONDS = 1.0
UNSEEN_SECONDS = 10.0
"""After this time without any signal of a new run, Spark is asked whether it is active."""
MAX_ERROR_CHARACTERS = 300


class Supervisor:
    """Knows all supervised queries of one sidecar.

    ``snapshot`` returns the newest one; once ``closed`` returns True, all supervision ends.
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
        self._supervisions = Supervisions(redact_ours, clock)

    def publish(self) -> Mapping[str, SupervisedQuery]:
        """By label: what rules and readers see; what was given up ends once it runs again."""
        self._supervisions.drop_recovered(self._snapshot)
        return self._supervisions.published()

    def wake(self) -> None:
        """Signal a new evaluation, or the end; never blocks."""
        self._supervisions.wake()

    def forget(self, name: str) -> bool:
        """Drop a query that is not running; whether it was supervised or given up."""
        return self._supervisions.forget(name)

    def supervise(self, starts: Starts, terms: RestartTerms) -> None:
        """Start each query, and start it again after a failure, until none is left.

        Raises:
            ValueError: a query is supervised already.
            QueryFailure: a query was given up, and no other is left; or Spark has ended.

        """
        call = SuperviseCall(starts, terms, self._clock())
        self._supervisions.begin(call)
        try:
            while True:
                call.news.clear()
                snapshot = self._snapshot()
                if self._closed() or snapshot.context.is_on_purpose:
                    return
                if not self._has_left(call, snapshot):
                    return
        finally:
            self._supervisions.end(call)

    def _has_left(self, call: SuperviseCall, snapshot: Snapshot) -> bool:
        """One round: follow what the snapshot says, start what is due, else wait for news.

        Returns whether a query is left to supervise.

        Raises:
            QueryFailure: as ``supervise``.

        """
        _require_spark(snapshot.context)
        seen = Indexed.of(snapshot)
        for one in self._supervisions.of(call):
            self._follow(call, one, seen)
        known = self._supervisions.of(call)
        if all(one.end is not None for one in known):
            _require_none_given_up(known)
            return False
        now = self._clock()
        due = [one for one in known if restarting.may_start(one, seen, now)]
        self._start_in_turn(call, due, snapshot)
        if not due:
            times = [one.start_at - now for one in known if one.start_at is not None]
            call.news.wait(min([ROUND_SECONDS, *(one for one in times if one > 0)]))
        return True

    def _follow(self, call: SuperviseCall, one: Supervision, seen: Indexed) -> None:
        """Change what is known of one query as the newest snapshot says."""
        now, is_lost = self._clock(), self._is_lost(call, one)

        def changed(before: Supervision) -> Supervision:
            after = restarting.observed(before, seen, now, call.terms)
            lost = is_lost and not after.seen
            return restarting.run_lost(after, now, call.terms) if lost else after

        self._supervisions.change(one.name, changed)

    def _start_in_turn(
        self, call: SuperviseCall, due: Sequence[Supervision], snapshot: Snapshot
    ) -> None:
        """Start what is due, until a newer snapshot says more about it."""
        for one in sorted(due, key=lambda one: one.start_at or 0.0):
            if self._supervisions.is_current(one):
                self._start(call, one.name)
            if self._closed() or self._snapshot() is not snapshot:
                return

    def _start(self, call: SuperviseCall, name: str) -> None:
        """Call the start function, without any lock: it may take as long as it likes."""
        change = self._supervisions.change
        if name in call.handles and _is_active(call.handles[name]):
            change(name, lambda one: restarting.still_active(one, self._clock()))
            return
        call.advanced_at = self._clock()
        try:
            query = call.starts[name]()
            run_id, called = str(query.runId), query.name
        except Exception as error:  # noqa: BLE001 - a start function may raise anything
            why, now = described(error, self._redact_ours), self._clock()
            change(name, lambda one: restarting.start_failed(one, why, now, call.terms))
            return
        finally:
            call.advanced_at = self._clock()
        call.handles[name] = query
        change(name, lambda one: restarting.started(one, run_id, self._clock()))
        if called != name:
            why = f"its start function started a query named {called!r}"
            change(name, lambda one: restarting.given_up(one, why))

    def _is_lost(self, call: SuperviseCall, one: Supervision) -> bool:
        """Whether Spark says that a run which no signal has shown for a while is not active."""
        handle, at = call.handles.get(one.name), one.started_at
        runs = one.due_at is None and one.end is None
        if handle is None or at is None or one.seen or not runs:
            return False
        return self._clock() - at > UNSEEN_SECONDS and not _is_active(handle)


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


def described(error: Exception, redact_ours: Callable[[str], str]) -> str:
    """Class and first line of an error, without secrets."""
    text = redact(f"{type(error).__name__}: {error}").strip()
    return redact_ours(text).partition("\n")[0][:MAX_ERROR_CHARACTERS]


def _is_active(query: Any) -> bool:
    """Whether Spark says that the run is active; also if it does not answer."""
    try:
        return bool(query.isActive)
    except (*THROWN, OSError):
        return True


def _require_spark(context: Context) -> None:
    if context is Context.JVM_GONE:
        raise QueryFailure(WHOLE_DRIVER, driver_down.ENDED)
    if context is Context.STOPPED:
        raise QueryFailure(WHOLE_DRIVER, query_stopped.CONTEXT_GONE)


def _require_none_given_up(known: Sequence[Supervision]) -> None:
    for one in known:
        if one.end is SupervisionEnd.GIVEN_UP:
            raise QueryFailure(one.label, one.failure)


# -- unwatched --------------------------------------------------------------------------------
# What ``supervise`` does where nothing is watched, because of an internal error.


def run_unwatched(starts: Starts, redact_ours: Callable[[str], str]) -> None:
    """Start each query once, and wait until none of them is active. Nothing is restarted.

    Raises:
        QueryFailure: the first of those that did not start, or that failed.

    """
    failures: list[QueryFailure] = []

    def attempt(name: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - the other queries go on after any error
            failure = QueryFailure(name, described(error, redact_ours))
            failure.__cause__ = error
            failures.append(failure)
            log.error("querypulse: %s, and nothing restarts it", failure)  # noqa: TRY400 - redacted
            return None

    queries = {name: attempt(name, start) for name, start in starts.items()}
    for name, query in queries.items():
        if query is not None:
            attempt(name, query.awaitTermination)
    if failures:
        raise failures[0]
