"""The silences in force: of the settings, ``Sidecar.silence``, HTTP and the silence file."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.rules import ALERT_NAMES
from ..alerting.silences import Silence
from ..core.files import FileLoop, write_whole
from ..core.guard import Guard
from .mistakes import suggest
from .settings import SilenceSettings

log = logging.getLogger("querypulse")


# -- silence file -----------------------------------------------------------------------------
# The file that ``querypulse silence`` writes and sidecars read: one JSON object per line.
#
# It is replaced as a whole, so that no reader sees half a line. Writers lock its folder, so that
# concurrent writers lose nothing.


FILE_MODE = 0o644
"""The driver may run as another user, and a silence is not a secret."""

Silences = tuple[SilenceSettings, ...]


def read_silences(path: Path) -> Silences:
    """All silences in the file, including ended ones; none if there is no file.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is not a silence, or names no app; the message names file and line.

    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(_parse(path, i, line) for i, line in enumerate(lines, 1) if line.strip())


def add_silence(path: Path, silence: SilenceSettings, now: datetime) -> None:
    """Add a silence, and remove those that ended before ``now``.

    Raises:
        OSError: the file cannot be written.
        ValueError: one of its lines is not a silence.

    """
    _change(path, lambda known: (*in_force(known, now), silence))


def end_silences(path: Path, queries: str, now: datetime, app: str | None = None) -> Silences:
    """End the silences of exactly this pattern, and of ``app`` if given; return them.

    Raises:
        OSError: the file cannot be written.
        ValueError: one of its lines is not a silence.

    """
    ended: list[SilenceSettings] = []

    def without(known: Silences) -> Silences:
        active = in_force(known, now)
        matching = [one for one in active if one.queries == queries and app in (None, one.app)]
        ended.extend(matching)
        return tuple(one for one in active if one not in matching)

    _change(path, without)
    return tuple(ended)


def in_force(silences: Iterable[SilenceSettings], now: datetime) -> Silences:
    """The silences that have not ended at ``now``."""
    return tuple(one for one in silences if one.until > now)


def _parse(path: Path, number: int, line: bytes) -> SilenceSettings:
    try:
        silence = msgspec.json.decode(line, type=SilenceSettings)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
    if not silence.app:
        raise ValueError(
            f"{path}, line {number}: the silence of {silence.queries!r} names no app; drivers of "
            'several apps may read this file: add "app": "NAME", or "*" for all apps'
        )
    return silence


def _change(path: Path, change: Callable[[Silences], Silences]) -> None:
    path = path.resolve()
    with _locked(path.parent):
        silences = change(read_silences(path))
        write_whole(path, b"".join(msgspec.json.encode(one) + b"\n" for one in silences), FILE_MODE)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# -- silencing --------------------------------------------------------------------------------


READ_EVERY_SECONDS = 2.0
FIRST_READ_SECONDS = 0.5
MAX_SILENCES = 1000
"""The most that settings, ``Sidecar.silence`` and HTTP together may have in force."""
Signature = tuple[int, int, int] | None


class Silencing:
    """Calling it returns the silences in force, without reading a file.

    A thread checks the file every two seconds and reads it when it has changed. An unreadable
    file is reported to the guard and tried again; its last silences hold until they end.
    """

    def __init__(
        self,
        silences: Sequence[SilenceSettings],
        path: str | None,
        guard: Guard,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        for one in silences:
            if one.until.timestamp() <= wall():
                # Not an error: a job must be able to restart after its silence has ended.
                log.warning("querypulse: the silence of %r ended at %s", one.queries, one.until)
        self._added = [silence_of(one) for one in silences]
        self._adding = threading.Lock()
        self._path = Path(path) if path is not None else None
        self._guard = guard
        self._wall = wall
        self._of_file: tuple[Silence, ...] = ()
        self._signature: Signature = None
        self._problem = ""
        self._was_read = threading.Event()
        self._loop = FileLoop("silence-file", self.refresh, READ_EVERY_SECONDS, guard)

    def add(self, silence: SilenceSettings) -> None:
        """Add a silence from now on; any thread may call it.

        It replaces a silence of the same patterns that ends no later.

        Raises:
            ValueError: it has ended already, or ``MAX_SILENCES`` are in force.

        """
        one = silence_of(silence)
        now = self._wall()
        if one.until <= now:
            raise ValueError(f"silence of {one.queries!r}: its end, {silence.until}, is past")
        with self._adding:
            kept = [known for known in self._added if known.until > now and not _covers(one, known)]
            if len(kept) >= MAX_SILENCES:
                raise ValueError(
                    f"silence of {one.queries!r}: {MAX_SILENCES} are in force, which is the most "
                    "allowed; one pattern may cover many queries"
                )
            self._added = [*kept, one]

    def start(self) -> None:
        """Start reading the file, if there is one; its silences are known when this returns.

        A first read that takes longer than ``FIRST_READ_SECONDS`` is not waited for.
        """
        if self._path is not None:
            self._loop.start()
            self._was_read.wait(FIRST_READ_SECONDS)

    def stop(self) -> None:
        """Stop reading."""
        self._loop.end()

    @property
    def problem(self) -> str:
        """Why the file's silences may be old; empty without a problem."""
        return self._loop.problem or self._problem

    def __call__(self) -> tuple[Silence, ...]:
        """All silences that have not ended."""
        wall = self._wall()
        return tuple(one for one in (*self._added, *self._of_file) if one.until > wall)

    def refresh(self) -> None:
        """Read the file if it has changed or the last read failed; for its own thread."""
        if self._path is None:
            return
        try:
            signature = _signature(self._path)
            if signature != self._signature:
                self._of_file = tuple(map(silence_of, read_silences(self._path)))
                # Set last, so that a failed read is tried again.
                self._signature = signature
            self._problem = ""
        except (OSError, ValueError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._guard.report("silence-file", error)
        self._was_read.set()


def silence_until(
    queries: str, minutes: float | None, until: datetime | None, **more: str | None
) -> SilenceSettings:
    """A silence of ``queries`` from now on; ``more`` are its other fields.

    Raises:
        ValueError: its end is not allowed, see ``until_of``, or a field is not text.

    """
    end = until_of(minutes, until, datetime.now(timezone.utc))
    return msgspec.convert({"queries": queries, "until": end, **more}, SilenceSettings)


def until_of(minutes: float | None, until: datetime | None, now: datetime) -> datetime:
    """The end of a silence, from a duration or a point in time.

    Raises:
        ValueError: neither or both are given; the time has no time zone, is past, or is later
            than the year 9999 in UTC.

    """
    if (minutes is None) == (until is None):
        raise ValueError("a silence must end: give 'minutes' or 'until', and not both")
    if until is None:
        until = _after(minutes or 0.0, now)
    if until.tzinfo is None:
        raise ValueError(f"'until' needs a time zone, given {until.isoformat()}")
    if until <= now:
        raise ValueError(f"a silence must end later than now, given {until.isoformat()}")
    try:
        return until.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError(
            f"'until' must be before the year 10000 in UTC, given {until.isoformat()}"
        ) from None


def _after(minutes: float, now: datetime) -> datetime:
    try:
        return now + timedelta(minutes=minutes)
    except (ValueError, OverflowError, TypeError):
        raise ValueError(f"'minutes' must be a number of minutes, given {minutes!r}") from None


def _covers(one: Silence, other: Silence) -> bool:
    """Whether ``one`` has the same patterns as ``other`` and ends no earlier."""
    return one.until >= other.until and (one.queries, one.alertname, one.app) == (
        other.queries,
        other.alertname,
        other.app,
    )


def silence_of(given: SilenceSettings) -> Silence:
    """The lifecycle's form of a silence."""
    return Silence(
        queries=given.queries,
        until=given.until.timestamp(),
        alertname=given.alertname,
        reason=given.reason,
        app=given.app if given.app is not None else "*",
    )


def _signature(path: Path) -> Signature:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def unmatched(silence: SilenceSettings, queries: Collection[str] | None) -> str:
    """Which patterns match nothing now, with suggestions; empty when all match.

    ``queries`` are the known names, or None where they are not known.
    """
    notes = [_note("alert", silence.alertname, ALERT_NAMES)]
    if queries is not None:
        notes.append(_note("query", silence.queries, [*queries, WHOLE_DRIVER]))
    return "; ".join(filter(None, notes))


def _note(kind: str, pattern: str, names: Collection[str]) -> str:
    if any(fnmatchcase(name, pattern) for name in names):
        return ""
    hint = suggest(pattern, names)
    return f"{kind} {pattern!r} matches nothing now" + (f"; {hint}" if hint else "")
