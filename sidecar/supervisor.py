"""Starts and restarts queries, in the thread that calls ``Sidecar.supervise``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.rules import driver_down, query_stopped
from ..core.redaction import redact
from ..listener.java_errors import THROWN
from ..listener.labels import base_label
from ..listener.probing import Context
from ..listener.snapshot import Snapshot
from ..listener.supervised import SupervisedQuery
from . import restarting
from .failure import QueryFailure
from .restarting import RestartTerms, Supervision, SupervisionEnd

log = logging.getLogger("querypulse")

ROUND_SECONDS = 1.0
UNSEEN_SECONDS = 10.0
"""After this time without any signal of a new run, Spark is asked whether it is active."""
MAX_ERROR_CHARACTERS = 300
Starts = Mapping[str, Callable[[], Any]]


class Supervisor:
    """Knows all supervised queries of one sidecar. ``published`` is what rules and readers see.

    ``snapshot`` returns the newest one; once ``closed`` returns True, all supervision ends.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        closed: Callable[[], bool],
        redact_ours: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.published: Mapping[str, SupervisedQuery] = {}
        self._snapshot = snapshot
        self._closed = closed
        self._redact_ours = redact_ours
        self._clock = clock
        self._news = threading.Condition()
        self._known: dict[str, Supervision] = {}
        self._supervised: set[str] = set()
        """The names that a call of ``supervise`` is responsible for."""
        self._handles: dict[str, Any] = {}
        self._started_at: dict[str, float] = {}

    def wake(self) -> None:
        """Signal a new evaluation, or the end."""
        with self._news:
            self._news.notify_all()

    def forget(self, name: str) -> bool:
        """Drop a query that is not running; whether it was supervised or given up."""
        with self._news:
            known = [one for one in self._known.values() if name in (one.name, one.label)]
            for one in known:
                self._keep(restarting.forgotten(one))
                if one.name not in self._supervised:
                    del self._known[one.name]
            self._news.notify_all()
        return bool(known)

    def supervise(self, starts: Starts, terms: RestartTerms) -> None:
        """Start each query, and start it again after a failure, until none is left.

        Raises:
            ValueError: a query is supervised already.
            QueryFailure: a query was given up, and no other is left; or Spark has ended.

        """
        names = self._register(starts)
        try:
            while not self._is_over(names, terms):
                due = self._next_due(names)
                if due is not None:
                    self._start(due, starts[due], terms)
        finally:
            self._release(names)

    def _register(self, starts: Starts) -> list[str]:
        with self._news:
            twice = sorted(self._supervised.intersection(starts))
            if twice:
                raise ValueError(f"supervise: already supervised: {', '.join(twice)}")
            self._supervised.update(starts)
            for name in starts:
                self._keep(restarting.begin(name, base_label(name), self._clock()))
        return list(starts)

    def _release(self, names: Collection[str]) -> None:
        """Leave only what was given up, so that its alert stays until somebody fixes it."""
        with self._news:
            self._supervised.difference_update(names)
            for name in names:
                self._handles.pop(name, None)
                if self._known[name].end is not SupervisionEnd.GIVEN_UP:
                    del self._known[name]
            self._publish()

    def _is_over(self, names: Collection[str], terms: RestartTerms) -> bool:
        """Follow what the newest snapshot says; whether no query is left to supervise.

        Raises:
            QueryFailure: as ``supervise``.

        """
        lost = [name for name in names if self._is_lost(name)]
        with self._news:
            snapshot, now = self._snapshot(), self._clock()
            if self._closed() or snapshot.context.is_on_purpose:
                return True
            _require_spark(snapshot.context)
            for name in names:
                one = restarting.observed(self._known[name], snapshot, now, terms)
                if name in lost and not one.seen:
                    one = restarting.run_lost(one, now, terms)
                self._keep(one)
            mine = [self._known[name] for name in names]
        if any(one.end is None for one in mine):
            return False
        failed = next((one for one in mine if one.end is SupervisionEnd.GIVEN_UP), None)
        if failed is not None:
            raise QueryFailure(failed.label, failed.failure)
        return True

    def _next_due(self, names: Collection[str]) -> str | None:
        """The next query to start; waits for news, and returns None, while there is none."""
        with self._news:
            snapshot, now = self._snapshot(), self._clock()
            mine = [self._known[name] for name in names]
            due = [one for one in mine if restarting.may_start(one, snapshot, now)]
            if due:
                return min(due, key=lambda one: one.due_at or 0.0).name
            later = [one.due_at - now for one in mine if one.due_at and one.due_at > now]
            self._news.wait(min([ROUND_SECONDS, *later]))
        return None

    def _start(self, name: str, start: Callable[[], Any], terms: RestartTerms) -> None:
        """Call the start function, without the lock: it may take as long as it likes."""
        if name in self._handles and _is_active(self._handles[name]):
            self._change(name, lambda one: restarting.still_active(one, self._clock()))
            return
        try:
            query = start()
            run_id, called = str(query.runId), query.name
        except Exception as error:  # noqa: BLE001 - a start function may raise anything
            why = self._described(error)
            self._change(name, lambda one: restarting.start_failed(one, why, self._clock(), terms))
            return
        self._handles[name], self._started_at[name] = query, self._clock()
        self._change(name, lambda one: restarting.started(one, run_id))
        if called != name:
            why = f"its start function started a query named {called!r}"
            self._change(name, lambda one: restarting.given_up(one, why))

    def _change(self, name: str, change: Callable[[Supervision], Supervision]) -> None:
        with self._news:
            if self._known[name].end is None:
                self._keep(change(self._known[name]))

    def _keep(self, one: Supervision) -> None:
        before = self._known.get(one.name)
        self._known[one.name] = one
        if before is not None and one != before:
            _log(before, one, self._clock())
        self._publish()

    def _publish(self) -> None:
        shown = {SupervisionEnd.GIVEN_UP, None}
        self.published = {
            one.label: one.published for one in self._known.values() if one.end in shown
        }

    def _is_lost(self, name: str) -> bool:
        """Whether Spark says that a run which no signal has shown for a while is not active."""
        one, handle = self._known[name], self._handles.get(name)
        if handle is None or one.seen or one.due_at is not None or one.end is not None:
            return False
        late = self._clock() - self._started_at[name] > UNSEEN_SECONDS
        return late and not _is_active(handle)

    def _described(self, error: Exception) -> str:
        text = redact(f"{type(error).__name__}: {error}").strip()
        return self._redact_ours(text).partition("\n")[0][:MAX_ERROR_CHARACTERS]


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


def start_unwatched(starts: Starts) -> None:
    """Start each query once: nothing is watched, so nothing can be restarted."""
    for start in starts.values():
        start()


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


def _log(before: Supervision, now_: Supervision, now: float) -> None:
    if now_.end is SupervisionEnd.GIVEN_UP and before.end is None:
        log.error("querypulse: %s is not restarted any more: %s", now_.name, now_.failure)
    elif now_.due_at is not None and now_.failure and now_.failed_at != before.failed_at:
        pause = now_.due_at - now
        log.warning("querypulse: %s restarts in %.0f s: %s", now_.name, pause, now_.failure)
