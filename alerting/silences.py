"""Silences: what they cover, and which are in force, of ``Sidecar.silence``, HTTP, and the file
that ``querypulse silence`` writes.

The file has one JSON object per line. It is replaced as a whole, so that no reader sees half a
line. Writers lock its folder, so that concurrent writers lose nothing.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ..core.files import FileLoop, Signature, signature_of, write_whole
from ..core.guard import Guard
from ..core.text import suggest
from ..core.wall_time import Times, parse_window
from .alert import Alert
from .finding import WHOLE_DRIVER
from .kinds import ALERT_NAMES

log = logging.getLogger("querypulse")

FILE_MODE = 0o644
"""The driver may run as another user, and a silence is not a secret."""
READ_EVERY_SECONDS = 2.0
FIRST_READ_SECONDS = 0.5
MAX_SILENCES = 1000
"""The most that ``Sidecar.silence`` and HTTP together may have in force."""
MAX_PATTERN = 1000
"""The most characters of a pattern: matching a longer one takes seconds."""
END_OF_TIME = 253_402_300_799.0
"""The last second of the year 9999, the latest time that can be formatted."""
NO_END = math.inf
"""The end of a silence that recurs until somebody ends it."""


class Silence(msgspec.Struct, frozen=True):
    """Suppress alerts whose app, query and name match the patterns until Unix time ``until``.

    One that recurs does so only in the windows of ``every``. Alerts of the whole driver have the
    query ``*``, which only the pattern ``*`` matches.
    """

    queries: str
    until: float
    alertname: str = "*"
    reason: str = ""
    app: str = "*"
    every: Times | None = None

    def window(self, wall: float) -> tuple[float, float] | None:
        """When it holds, at Unix time ``wall`` or next; None once it has ended."""
        if wall >= self.until:
            return None
        if self.every is None:
            return wall, self.until
        window = self.every.window(wall)
        if window is None or window[0] >= self.until:
            return None
        return window[0], min(window[1], self.until)

    def covered_until(self, alert: Alert, wall: float) -> float | None:
        """When the time ends in which ``alert`` is silenced; None if it is not at ``wall``."""
        return self.meant_until(alert.labels["app"], alert.labels["query"], alert.name, wall)

    def meant_until(self, app: str, query: str, alertname: str, wall: float) -> float | None:
        """When the time ends in which such alerts are silenced; None if they are not."""
        is_meant = (
            wall < self.until
            and fnmatchcase(app, self.app)
            and fnmatchcase(query, self.queries)
            and fnmatchcase(alertname, self.alertname)
        )
        window = self.window(wall) if is_meant else None
        return None if window is None or window[0] > wall else window[1]

    def covers(self, alert: Alert, wall: float) -> bool:
        """Whether ``alert`` is silenced at Unix time ``wall``."""
        return self.covered_until(alert, wall) is not None

    def __str__(self) -> str:
        """A readable text: ``silenced until <ISO 8601>: <reason>``."""
        if self.every is None:
            return self.text(self.until)
        until = "" if self.until == NO_END else f" until {end_text(self.until)}"
        return f"silenced {self.every.text}{until}{self.reason and f': {self.reason}'}"

    def text(self, until: float) -> str:
        """What is said of an alert that it silences until then."""
        return f"silenced until {end_text(until)}{self.reason and f': {self.reason}'}"


def end_text(wall: float) -> str:
    """Unix seconds as RFC 3339 in UTC; times after the year 9999 become its last second."""
    until = datetime.fromtimestamp(min(wall, END_OF_TIME), timezone.utc)
    return until.isoformat(timespec="seconds").replace("+00:00", "Z")


def why_muted(alert: Alert, silences: Iterable[Silence], wall: float) -> str:
    """The silence that covers ``alert`` longest; empty if none covers it."""
    ends = [(silence.covered_until(alert, wall), silence) for silence in silences]
    covering = [(end, silence) for end, silence in ends if end is not None]
    if not covering:
        return ""
    end, silence = max(covering, key=itemgetter(0))
    return silence.text(end)


Silences = tuple[Silence, ...]


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A silence in the file, in a driver's answer, or in a request, which may have no ``until``.

    ``every`` are the windows of one that recurs, as ``wall_time.parse_window`` reads them.
    """

    queries: str
    minutes: float | None = None
    until: Annotated[datetime, Meta(tz=True)] | None = None
    alertname: str = "*"
    reason: str = ""
    app: str | None = None
    every: str | None = None

    def silence(self) -> Silence:
        """The silence until the end that is written; without one, it has ended, or recurs.

        Raises:
            ValueError: ``every`` cannot be read.

        """
        every = None if self.every is None else parse_window(self.every)
        until = 0.0 if every is None else NO_END
        if self.until is not None:
            until = self.until.timestamp()
        return Silence(self.queries, until, self.alertname, self.reason, self.app or "*", every)


UNREADABLE = (msgspec.MsgspecError, ValueError)
"""What is raised for texts that are none; msgspec's error is a ``ValueError`` from 0.21 on."""


# -- silences ---------------------------------------------------------------------------------


def make_silence(
    queries: str,
    minutes: float | None = None,
    until: datetime | None = None,
    *,
    every: str | None = None,
    now: float | None = None,
    **more: str,
) -> Silence:
    """A silence of ``queries`` from now on; ``more`` are its other fields.

    With ``every`` it recurs, and needs no other end than that of each window.

    Raises:
        ValueError: not exactly one end is given; it is no datetime, has no time zone, is past, or
            is later than the year 9999 in UTC; ``minutes`` is no number, a field is not text or
            too long, or ``every`` cannot be read.

    """
    fields = {"queries": queries, **more}
    if every is not None:
        fields["every"] = every
    wrong = [name for name, text in fields.items() if not isinstance(text, str)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} must be text, given {fields[wrong[0]]!r}")
    for name, text in fields.items():
        if name != "reason" and len(text) > MAX_PATTERN:
            raise ValueError(f"{name!r} has {len(text)} characters, of at most {MAX_PATTERN}")
    windows = None if every is None else parse_window(every)
    if windows is not None and minutes is None and until is None:
        return Silence(queries, NO_END, every=windows, **more)
    moment = datetime.fromtimestamp(time.time() if now is None else now, timezone.utc)
    end = _end(minutes, until, moment)
    if end <= moment:
        given = minutes if until is None else until.isoformat()
        raise ValueError(f"a silence must end later than now, given {given}")
    return Silence(queries, end.timestamp(), every=windows, **more)


def _end(minutes: float | None, until: datetime | None, moment: datetime) -> datetime:
    """The end of a silence that begins at ``moment``, in UTC."""
    if (minutes is None) == (until is None):
        raise ValueError(
            "a silence must end: give 'minutes' or 'until', and not both; or 'every' for one that "
            "recurs, such as 'sun 02:00-04:00 Europe/Berlin'"
        )
    if until is not None and not isinstance(until, datetime):
        raise ValueError(f"'until' must be a datetime with a time zone, given {until!r}")
    if until is not None and until.utcoffset() is None:
        raise ValueError(f"'until' needs a time zone, given {until.isoformat()}")
    if type(minutes) is bool:
        raise ValueError(f"'minutes' must be a number, given {minutes}")
    try:
        end = until or moment + timedelta(minutes=minutes or 0.0)
        return end.astimezone(timezone.utc)
    except (ValueError, OverflowError, TypeError):
        given = minutes if until is None else until.isoformat()
        raise ValueError(
            f"'minutes' must be a number, and a silence end before the year 10000, given {given!r}"
        ) from None


class Ending(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ends the silences of exactly the pattern ``end`` and exactly ``app``; ``*`` is all apps."""

    end: str
    app: str = "*"

    def ends(self, silence: Silence) -> bool:
        """Whether it ends ``silence``."""
        return silence.queries == self.end and self.app in ("*", silence.app)


def written(silence: Silence) -> dict[str, str]:
    """A silence as people, files and requests have it."""
    texts = {name: getattr(silence, name) for name in ("queries", "alertname", "reason", "app")}
    if silence.every is not None:
        texts["every"] = silence.every.text
    if silence.until != NO_END:
        texts["until"] = end_text(silence.until)
    return texts


def unmatched(silence: Silence, queries: Collection[str] | None) -> str:
    """Which patterns match nothing now, with suggestions; empty when all match.

    ``queries`` are the known names, or None where they are not known.
    """
    patterns: list[tuple[str, str, Collection[str]]] = [("alert", silence.alertname, ALERT_NAMES)]
    if queries is not None:
        patterns.append(("query", silence.queries, [*queries, WHOLE_DRIVER]))
    notes = [
        "; ".join(
            filter(None, (f"{kind} {pattern!r} matches nothing now", suggest(pattern, names)))
        )
        for kind, pattern, names in patterns
        if not any(fnmatchcase(name, pattern) for name in names)
    ]
    return "; ".join(notes)


# -- the file ---------------------------------------------------------------------------------


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


def change_silences(
    path: Path, now: float, *, add: Silence | None = None, end: Ending | None = None
) -> int:
    """Add a silence or end others; returns how many. Those that ended before ``now`` go.

    Raises:
        OSError: the file cannot be written.
        ValueError: one of its lines is not a silence.

    """
    path = path.resolve()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        active = in_force(read_silences(path), now)
        kept = [silence for silence in active if end is None or not end.ends(silence)]
        changed = kept if add is None else [*kept, add]
        lines = [msgspec.json.encode(written(silence)) + b"\n" for silence in changed]
        write_whole(path, b"".join(lines), FILE_MODE)
    finally:
        os.close(folder)
    return len(active) - len(kept)


def in_force(silences: Iterable[Silence], now: float) -> Silences:
    """The silences that have not ended at ``now``."""
    return tuple(silence for silence in silences if silence.until > now)


def _parse(path: Path, number: int, text: bytes) -> Silence:
    try:
        line = msgspec.json.decode(text, type=Written)
    except UNREADABLE as error:
        raise ValueError(f"{path}, line {number}: {error}") from None
    if (line.until is None and line.every is None) or line.minutes is not None:
        raise ValueError(
            f"{path}, line {number}: a silence in a file has 'until' or 'every', no 'minutes'"
        )
    if not line.app:
        raise ValueError(
            f"{path}, line {number}: the silence of {line.queries!r} names no app; drivers of "
            'several apps may read this file: add "app": "NAME", or "*" for all apps'
        )
    try:
        return line.silence()
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from None


# -- silencing --------------------------------------------------------------------------------


class SilenceStore:
    """Calling it returns the silences in force, without reading a file.

    A thread checks the file every two seconds and reads it when it has changed. An unreadable
    file is reported to the guard and tried again; its last silences hold until they end.
    """

    def __init__(
        self, path: str | None, guard: Guard, *, wall: Callable[[], float] = time.time
    ) -> None:
        self._added: Silences = ()
        self._adding = threading.Lock()
        self._path = Path(path) if path is not None else None
        self._guard = guard
        self._wall = wall
        self._of_file: Silences = ()
        self._signature: Signature | None = None
        self._problem = ""
        self._was_read = threading.Event()
        self._loop = FileLoop("silence-file", self.refresh, READ_EVERY_SECONDS, guard)

    def add(self, silence: Silence) -> None:
        """Add a silence from now on; any thread may call it.

        It replaces a silence of the same patterns that ends no later.

        Raises:
            ValueError: ``MAX_SILENCES`` are in force.

        """
        with self._adding:
            kept = [
                other
                for other in in_force(self._added, self._wall())
                if other.until > silence.until
                or replace(other, until=silence.until, reason=silence.reason) != silence
            ]
            if len(kept) >= MAX_SILENCES:
                raise ValueError(
                    f"silence of {silence.queries!r}: {MAX_SILENCES} are in force, which is the "
                    "most allowed; one pattern may cover many queries"
                )
            self._added = (*kept, silence)

    def end(self, ending: Ending) -> int:
        """End what was added and ``ending`` says, from any thread; returns how many."""
        with self._adding:
            active = in_force(self._added, self._wall())
            self._added = tuple(silence for silence in active if not ending.ends(silence))
            return len(active) - len(self._added)

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

    def __call__(self) -> Silences:
        """All silences that have not ended."""
        return in_force((*self._added, *self._of_file), self._wall())

    def refresh(self) -> None:
        """Read the file if it has changed or the last read failed; for its own thread."""
        if self._path is None:
            return
        try:
            signature = signature_of(self._path) if self._path.exists() else None
            if signature != self._signature:
                self._of_file = read_silences(self._path)
                # Set last, so that a failed read is tried again.
                self._signature = signature
            self._problem = ""
        except (OSError, ValueError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                self._guard.report("silence-file", error)
        self._was_read.set()


# -- over HTTP --------------------------------------------------------------------------------

OK, CREATED, BAD_REQUEST = 200, 201, 400


def post_silence(
    body: bytes, silencing: SilenceStore, queries: Collection[str]
) -> tuple[int, dict[str, object]]:
    """Add the silence of ``body`` to this process, or end those of a pattern.

    Returns an HTTP status and the JSON answer. ``queries`` are the known names; ``note`` in the
    answer says which pattern matches none.
    """
    with suppress(*UNREADABLE):
        ending = msgspec.json.decode(body, type=Ending)
        ended = silencing.end(ending)
        log.info("querypulse: %d silences of %r ended over HTTP", ended, ending.end)
        return OK, {"ended": ended}
    try:
        given = msgspec.json.decode(body, type=Written)
        silence = make_silence(
            given.queries,
            given.minutes,
            given.until,
            every=given.every,
            alertname=given.alertname,
            reason=given.reason,
            app=given.app or "*",
        )
        silencing.add(silence)
    except UNREADABLE as error:
        return BAD_REQUEST, {"error": str(error)}
    log.info("querypulse: %r over HTTP: %r", silence.queries, str(silence))
    return CREATED, {**written(silence), "note": unmatched(silence, queries)}
