"""Times of day as people write them, such as ``mon-fri 22:00-02:00 Europe/Berlin``.

Where the clocks change, a time that is skipped counts an hour later, and of a time that comes twice
a window begins at the first and ends at the second.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from .text import suggest

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = frozenset(range(len(DAYS)))
MINUTES_OF_DAY = 24 * 60
MAX_CHARACTERS = 200
DAYS_AROUND = 9
"""More than a week, so that each day of the week has come, in any zone."""
DAY_SECONDS = 86_400
EPOCH = date(1970, 1, 1)
CACHED = 2048
"""The times around so many days are kept: an evaluation asks for those of each query."""
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00", re.ASCII)
_PARTS = re.compile(
    r"(?:(?P<days>[A-Za-z,-]+) +)?(?P<times>[0-9:-]+)(?: +(?P<zone>\S+))?", re.ASCII
)
UTC = "UTC"


class Times(msgspec.Struct, frozen=True):
    """Times of day on some days of the week (0 is Monday), in a zone; minutes after midnight.

    ``end`` is the end of a window, on the next day where it is not later than ``begin``.
    """

    text: str
    days: frozenset[int]
    begin: int
    end: int | None
    zone: str

    def last(self, wall: float) -> float | None:
        """The newest time of ``begin`` that has come at Unix time ``wall``; None if out of range.

        Of a time that comes twice, the second.
        """
        return max((at for at in _times(self, wall // DAY_SECONDS) if at <= wall), default=None)

    def next(self, wall: float) -> float | None:
        """The next time of ``begin`` after Unix time ``wall``; None if out of range."""
        return min((at for at in _times(self, wall // DAY_SECONDS) if at > wall), default=None)

    def window(self, wall: float) -> tuple[float, float] | None:
        """The window that holds Unix time ``wall``, else the next; None if out of range."""
        windows = _windows(self, wall // DAY_SECONDS)
        return min((window for window in windows if window[1] > wall), default=None)


@lru_cache(maxsize=CACHED)
def _times(times: Times, day_number: float) -> list[float]:
    return [_latest(day, times.begin, times.zone) for day in _dates(times, day_number)]


@lru_cache(maxsize=CACHED)
def _windows(times: Times, day_number: float) -> list[tuple[float, float]]:
    end = times.begin if times.end is None else times.end
    later = end if end > times.begin else end + MINUTES_OF_DAY
    windows = []
    for day in _dates(times, day_number):
        begins, ends = _earliest(day, times.begin, times.zone), _latest(day, later, times.zone)
        # Where the clocks skip its beginning, a window would end before it begins.
        windows.append((begins, ends if ends > begins else begins + 60.0 * (later - times.begin)))
    return windows


def _dates(times: Times, day_number: float) -> list[date]:
    """The days of ``times`` around a day since 1970; none at the ends of the calendar."""
    try:
        today = EPOCH + timedelta(day_number)
        around = [today + timedelta(n) for n in range(-DAYS_AROUND, DAYS_AROUND + 1)]
    except (ValueError, OverflowError):
        return []
    return [day for day in around if day.weekday() in times.days]


def _earliest(day: date, minutes: int, zone: str) -> float:
    return _local(day, minutes, zone).timestamp()


def _latest(day: date, minutes: int, zone: str) -> float:
    local = _local(day, minutes, zone)
    # Of a time that is skipped, the second reading is before the clocks change.
    return max(local.timestamp(), local.replace(fold=1).timestamp())


def _local(day: date, minutes: int, zone: str) -> datetime:
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone_of(zone))
    return midnight + timedelta(minutes=minutes)  # of the same zone: wall time


# -- parsing ----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def parse_window(text: str) -> Times:
    """``[DAYS] HH:MM-HH:MM [ZONE]``: a window of each day, or of these days.

    Raises:
        ValueError: it has another form, or an unknown day or zone, or is never over.

    """
    times = _parse(text, "[DAYS] HH:MM-HH:MM [ZONE], such as 'sat,sun 22:00-02:00 Europe/Berlin'")
    if times.end is None:
        raise ValueError(f"{text!r} has no end: write a window, such as 02:00-04:00")
    if times.begin == times.end:
        raise ValueError(f"{text!r} begins and ends at the same time; a whole day is 00:00-24:00")
    if times.days == EVERY_DAY and times.end - times.begin == MINUTES_OF_DAY:
        raise ValueError(f"{text!r} is always: a window must be over at some time of the week")
    return times


@lru_cache(maxsize=1024)
def parse_time(text: str) -> Times:
    """``[DAYS] HH:MM [ZONE]``: a time of each day, or of these days.

    Raises:
        ValueError: it has another form, or an unknown day or zone.

    """
    times = _parse(text, "[DAYS] HH:MM [ZONE], such as 'mon-fri 06:00 Europe/Berlin'")
    if times.end is not None:
        raise ValueError(f"{text!r} is a window: write one time, such as 06:00")
    return times


def _parse(text: str, form: str) -> Times:
    if len(text) > MAX_CHARACTERS:
        size = f"{len(text)} characters, of at most {MAX_CHARACTERS}"
        raise ValueError(f"{text[:20]!r}... has {size}; the form is {form}")
    parts = _PARTS.fullmatch(text.strip())
    begin, dash, end = parts["times"].partition("-") if parts else ("", "", "")
    given = [_TIME.fullmatch(time) for time in ([begin, end] if dash else [begin])]
    if begin == "24:00":
        raise ValueError(f"{text!r}: 24:00 only ends a window; a day begins at 00:00")
    if parts is None or None in given:
        raise ValueError(f"{text!r} is not of the form {form}")
    zone = parts["zone"] or UTC
    zone_of(zone)
    days = EVERY_DAY if parts["days"] is None else _days(parts["days"].lower(), text)
    written = text.strip() if parts["zone"] else f"{text.strip()} {UTC}"
    return Times(written, days, _minutes(begin), _minutes(end) if dash else None, zone)


def _minutes(time: str) -> int:
    return 60 * int(time[:2]) + int(time[3:])


def _days(text: str, whole: str) -> frozenset[int]:
    """``day``, or days and ranges of days: ``mon-fri``, ``sat,sun``, ``fri-mon``."""
    if text == "day":
        return EVERY_DAY
    days = set[int]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last or first) not in DAYS or part.endswith("-"):
            allowed = "day, or mon, tue, wed, thu, fri, sat, sun, as in mon-fri or sat,sun"
            raise ValueError(f"{whole!r}: {part!r} is no day; days are {allowed}")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        days.update(n % len(DAYS) for n in range(begin, end + 1 + (7 if end < begin else 0)))
    return frozenset(days)


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """A time zone of the database of this machine; UTC needs none.

    Raises:
        ValueError: there is no such zone, or no database.

    """
    if name == UTC:
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        zones = available_timezones()
    if not zones:
        raise ValueError(
            f"time zone {name!r}: this machine has no time zone database: install the package "
            f"tzdata (of the system, or of Python), or write the time in {UTC}"
        )
    hint = suggest(name, sorted(zones)) or "a zone is named as in Europe/Berlin, or UTC"
    raise ValueError(f"time zone {name!r} is unknown; {hint}")
