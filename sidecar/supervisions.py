"""The supervised queries of one sidecar, for the threads that supervise, evaluate and forget."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from ..listener.labels import base_label
from ..listener.snapshot import Snapshot
from ..listener.supervised import SupervisedQuery
from . import restarting
from .restart_terms import RestartTerms
from .restarting import Indexed, Supervision, SupervisionEnd

log = logging.getLogger("querypulse")

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
