"""Polls one endpoint: one thread polls, another waits for the shutdown notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from ..core.guard import Guard
from ..core.loop import Loop
from ..exporter.shutdown_notice import RETURN_SECONDS, WAIT_SECONDS, Notice
from .client import Access, Client, NoAnswer
from .poll import Endpoint, Poll, Said
from .polling import WatchAnswer, await_notice, poll

RETRY_SECONDS = 0.5
"""How soon a driver that was not found is polled again."""
PATIENCE = 10
"""A driver that has been down for a time is polled again after a tenth of that time."""
REST_SECONDS = 1.0
DISPLACED_SECONDS = RETURN_SECONDS / 2
"""How soon to ask again after another watcher took this one's place."""


class Polled(msgspec.Struct, frozen=True):
    """The result of a poll."""

    endpoint: Endpoint
    poll: Poll


class ShuttingDown(msgspec.Struct, frozen=True):
    """The driver sent its shutdown notice at ``at``, in monotonic seconds."""

    endpoint: Endpoint
    at: float
    notice: Notice


Observation = Polled | ShuttingDown


class DriverPoller:
    """Passes every poll and the shutdown notice to ``report``, from its own threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        access: Access,
        interval_seconds: float,
        report: Callable[[Observation], None],
        guard: Guard,
    ) -> None:
        self._endpoint = endpoint
        self._interval = interval_seconds
        self._report = report
        self._polling, self._waiting = Client(endpoint, access), Client(endpoint, access)
        self._poll_now = threading.Event()
        self._bad_since: float | None = None
        self._broken = False
        self._loops = [
            Loop("poll", self._poll, guard),
            Loop("await", self._await_shutdown_notice, guard),
        ]

    def start(self) -> None:
        """Start polling."""
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """End soon; running requests are cut."""
        for loop in self._loops:
            loop.stop()
        self._poll_now.set()
        self._polling.cut()
        self._waiting.cut()

    def _poll(self) -> None:
        seen = poll(self._polling)
        self._report(Polled(self._endpoint, seen))
        if seen.said in (Said.HEALTHY, Said.BARRED):
            self._bad_since = None
        elif self._bad_since is None:
            self._bad_since = seen.began_at
        self._poll_now.wait(pause(self._bad_since, seen.at, self._interval))
        if not self._loops[0].stopping.is_set():
            self._poll_now.clear()

    def _await_shutdown_notice(self) -> None:
        began = time.monotonic()
        try:
            received = await_notice(self._waiting)
        except NoAnswer:
            if not self._broken:
                # The connection broke: the driver may have been killed.
                self._poll_now.set()
            self._broken = True
            self._rest(REST_SECONDS)
            return
        self._broken = False
        if received.notice is not None:
            self._report(ShuttingDown(self._endpoint, time.monotonic(), received.notice))
        if received is not WatchAnswer.RUNNING:
            self._rest(self._interval)
        elif time.monotonic() - began < WAIT_SECONDS / 2:
            self._rest(DISPLACED_SECONDS)

    def _rest(self, seconds: float) -> None:
        self._loops[1].stopping.wait(seconds)


def pause(bad_since: float | None, now: float, interval_seconds: float) -> float:
    """Seconds until the next poll."""
    if bad_since is None:
        return interval_seconds
    return min(interval_seconds, max(RETRY_SECONDS, (now - bad_since) / PATIENCE))
