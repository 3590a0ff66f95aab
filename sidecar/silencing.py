"""What is silenced now, from wherever it was said: settings, ``Sidecar.silence``, the file."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from ..alerting.lifecycle.silences import Silence
from ..listener.guard import Guard
from .configuration.receiver_settings import SilenceSettings
from .silence_file import read_silences

log = logging.getLogger("querypulse")

LOOK_EVERY_SECONDS = 2.0
Signature = tuple[int, int, int] | None


class Silencing:
    """Called, it answers with the silences in force; the worker calls it in every round.

    The file is looked at every two seconds and read when it has changed. One that cannot be
    read is reported to the guard, and what it said last holds until its own end.
    """

    def __init__(
        self,
        silences: Sequence[SilenceSettings],
        path: str | None,
        guard: Guard,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        for one in silences:
            if one.until.timestamp() <= wall():
                # No mistake: a job must be able to start again on the day after.
                log.warning("querypulse: the silence of %r ended at %s", one.queries, one.until)
        self._said = [silence_of(one) for one in silences]
        self._saying = threading.Lock()
        self._path = Path(path) if path is not None else None
        self._guard = guard
        self._clock = clock
        self._wall = wall
        self._of_file: tuple[Silence, ...] = ()
        self._signature: Signature = None
        self._looked_at = float("-inf")

    def add(self, silence: SilenceSettings) -> None:
        """Silence from now on; any thread may call it.

        Raises:
            ValueError: it has ended already.

        """
        one = silence_of(silence)
        now = self._wall()
        if one.until <= now:
            raise ValueError(f"silence of {one.queries!r}: its end, {silence.until}, is past")
        with self._saying:
            self._said = [*(known for known in self._said if known.until > now), one]

    def __call__(self) -> tuple[Silence, ...]:
        """All silences that have not ended."""
        path, now = self._path, self._clock()
        if path is not None and now - self._looked_at >= LOOK_EVERY_SECONDS:
            self._looked_at = now
            self._guard.attempt("silence-file", lambda: self._look(path))
        wall = self._wall()
        return tuple(one for one in (*self._said, *self._of_file) if one.until > wall)

    def _look(self, path: Path) -> None:
        signature = _signature(path)
        if signature == self._signature:
            return
        # Noted first: a file that cannot be read is reported once, not every two seconds.
        self._signature = signature
        self._of_file = tuple(map(silence_of, read_silences(path)))


def until_of(minutes: float | None, until: datetime | None, now: datetime) -> datetime:
    """The end of a silence, given as a duration or as a moment.

    Raises:
        ValueError: neither or both are given, the moment has no time zone, or it is past.

    """
    if (minutes is None) == (until is None):
        raise ValueError("a silence must end: give 'minutes' or 'until', and not both")
    if until is None:
        until = _after(minutes or 0.0, now)
    if until.tzinfo is None:
        raise ValueError(f"'until' needs a time zone, given {until.isoformat()}")
    if until <= now:
        raise ValueError(f"a silence must end later than now, given {until.isoformat()}")
    return until.astimezone(timezone.utc)


def _after(minutes: float, now: datetime) -> datetime:
    try:
        return now + timedelta(minutes=minutes)
    except (ValueError, OverflowError, TypeError):
        raise ValueError(f"'minutes' must be a number of minutes, given {minutes!r}") from None


def silence_of(given: SilenceSettings) -> Silence:
    """As the lifecycle wants it."""
    return Silence(
        queries=given.queries,
        until=given.until.timestamp(),
        alertname=given.alertname,
        reason=given.reason,
    )


def _signature(path: Path) -> Signature:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
