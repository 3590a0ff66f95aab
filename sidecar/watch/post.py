"""A lookout at one place: one thread looks, another waits for the farewell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from ...exporter.farewell import Notice
from ...listener.guard import Guard
from ...listener.loop import Loop
from .client import Access, Client, NoAnswer
from .look import Look, Place, Said
from .looking import Heard, hear, look

RETRY_SECONDS = 0.5
"""How soon is looked again at what was not found."""
PATIENCE = 10
"""What has not been found for a time is looked at again after a tenth of it."""
REST_SECONDS = 1.0


class Looked(msgspec.Struct, frozen=True):
    """A look was taken."""

    place: Place
    look: Look


class Closing(msgspec.Struct, frozen=True):
    """The driver gave notice at ``at``, in monotonic seconds, that it closes, and why."""

    place: Place
    at: float
    notice: Notice


Sign = Looked | Closing


class Post:
    """Reports every look, and the farewell, to ``report``, from its own threads."""

    def __init__(
        self,
        place: Place,
        access: Access,
        interval_seconds: float,
        report: Callable[[Sign], None],
        guard: Guard,
    ) -> None:
        self._place = place
        self._interval = interval_seconds
        self._report = report
        self._asking, self._waiting = Client(place, access), Client(place, access)
        self._look_now = threading.Event()
        self._bad_since: float | None = None
        self._broken = False
        self._loops = [
            Loop("look", self._look, guard),
            Loop("await", self._await_farewell, guard),
        ]

    def start(self) -> None:
        """Begin to look."""
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """End soon; questions under way are cut."""
        for loop in self._loops:
            loop.stop()
        self._look_now.set()
        self._asking.cut()
        self._waiting.cut()

    def _look(self) -> None:
        seen = look(self._asking)
        self._report(Looked(self._place, seen))
        if seen.said in (Said.WELL, Said.BARRED):
            self._bad_since = None
        elif self._bad_since is None:
            self._bad_since = seen.began_at
        self._look_now.wait(pause(self._bad_since, seen.at, self._interval))
        if not self._loops[0].stopping.is_set():
            self._look_now.clear()

    def _await_farewell(self) -> None:
        began = time.monotonic()
        try:
            heard = hear(self._waiting)
        except NoAnswer:
            if not self._broken:
                # What held the connection is gone, and perhaps the driver with it.
                self._look_now.set()
            self._broken = True
            self._rest(REST_SECONDS)
            return
        self._broken = False
        if heard.notice is not None:
            self._report(Closing(self._place, time.monotonic(), heard.notice))
        if heard is not Heard.RUNNING or time.monotonic() - began < REST_SECONDS:
            self._rest(self._interval)

    def _rest(self, seconds: float) -> None:
        self._loops[1].stopping.wait(seconds)


def pause(bad_since: float | None, now: float, interval_seconds: float) -> float:
    """Seconds until the next look."""
    if bad_since is None:
        return interval_seconds
    return min(interval_seconds, max(RETRY_SECONDS, (now - bad_since) / PATIENCE))
