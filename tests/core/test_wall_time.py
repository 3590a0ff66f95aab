"""Times of day as people write them: days, zones, midnight, and the changes of the clocks."""

from __future__ import annotations

import zoneinfo
from datetime import datetime, timezone

import pytest

from querypulse.core import wall_time
from querypulse.core.wall_time import parse_time, parse_window, zone_of

SUNDAY = "2026-11-29T12:00"


def unix(text):
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


def iso(wall):
    return datetime.fromtimestamp(wall, timezone.utc).strftime("%Y-%m-%dT%H:%M")


def window(text, at):
    begin, end = parse_window(text).window(unix(at))
    return iso(begin), iso(end)


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("02:00-04:00", SUNDAY, ("2026-11-30T02:00", "2026-11-30T04:00")),
        ("02:00-04:00", "2026-11-29T03:00", ("2026-11-29T02:00", "2026-11-29T04:00")),
        ("02:00-04:00", "2026-11-29T04:00", ("2026-11-30T02:00", "2026-11-30T04:00")),
        ("day 02:00-04:00 UTC", SUNDAY, ("2026-11-30T02:00", "2026-11-30T04:00")),
        ("sun 02:00-04:00", SUNDAY, ("2026-12-06T02:00", "2026-12-06T04:00")),
        ("sun 02:00-04:00", "2026-11-29T02:00", ("2026-11-29T02:00", "2026-11-29T04:00")),
        ("fri-mon 12:00-12:30", "2026-11-29T12:30", ("2026-11-30T12:00", "2026-11-30T12:30")),
        ("tue,thu 12:00-12:30", SUNDAY, ("2026-12-01T12:00", "2026-12-01T12:30")),
        # Over midnight: the day is that on which it begins.
        ("sat 22:00-02:00", "2026-11-29T01:00", ("2026-11-28T22:00", "2026-11-29T02:00")),
        ("sat 22:00-02:00", "2026-11-29T02:00", ("2026-12-05T22:00", "2026-12-06T02:00")),
        ("sun 00:00-24:00", SUNDAY, ("2026-11-29T00:00", "2026-11-30T00:00")),
        ("sat 22:00-24:00", SUNDAY, ("2026-12-05T22:00", "2026-12-06T00:00")),
        # In a zone.
        ("02:00-04:00 Europe/Berlin", SUNDAY, ("2026-11-30T01:00", "2026-11-30T03:00")),
        ("mon 02:00-04:00 Asia/Tokyo", SUNDAY, ("2026-11-29T17:00", "2026-11-29T19:00")),
        # In the night of 2026-03-29, 02:00 to 03:00 is skipped; on 2026-10-25 it comes twice.
        ("01:00-05:00 Europe/Berlin", "2026-03-29T00:00", ("2026-03-29T00:00", "2026-03-29T03:00")),
        ("02:00-04:00 Europe/Berlin", "2026-03-29T00:00", ("2026-03-29T01:00", "2026-03-29T02:00")),
        ("02:15-02:45 Europe/Berlin", "2026-03-29T00:00", ("2026-03-29T01:15", "2026-03-29T01:45")),
        ("02:30-03:00 Europe/Berlin", "2026-03-29T00:00", ("2026-03-29T01:30", "2026-03-29T02:00")),
        ("02:15-02:45 Europe/Berlin", "2026-10-25T00:00", ("2026-10-25T00:15", "2026-10-25T01:45")),
        ("01:00-05:00 Europe/Berlin", "2026-10-25T00:00", ("2026-10-24T23:00", "2026-10-25T04:00")),
    ],
)
def test_window_is_the_present_or_the_next_one(text, at, expected):
    assert window(text, at) == expected


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("06:00", SUNDAY, "2026-11-29T06:00"),
        ("06:00", "2026-11-29T05:59", "2026-11-28T06:00"),
        ("Mon-FRI 06:00", SUNDAY, "2026-11-27T06:00"),
        ("06:00", "2026-11-29T06:00", "2026-11-29T06:00"),
        ("mon-fri 06:00", SUNDAY, "2026-11-27T06:00"),
        ("sun 13:00", SUNDAY, "2026-11-22T13:00"),
        ("06:00 Europe/Berlin", "2026-11-29T05:00", "2026-11-29T05:00"),
        ("02:30 Europe/Berlin", "2026-03-29T12:00", "2026-03-29T01:30"),
        ("02:30 Europe/Berlin", "2026-10-25T12:00", "2026-10-25T01:30"),
        ("02:30 Europe/Berlin", "2026-10-25T01:00", "2026-10-24T00:30"),
    ],
)
def test_last_is_the_newest_time_that_has_come(text, at, expected):
    assert iso(parse_time(text).last(unix(at))) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not of the form [DAYS] HH:MM-HH:MM [ZONE]"),
        ("02:00", "has no end"),
        ("2:00-4:00", "is not of the form"),
        ("25:00-26:00", "is not of the form"),
        ("24:00-02:00", "24:00 only ends a window; a day begins at 00:00"),
        (
            "02:00-04:00 " + "E" * 200,
            "'02:00-04:00 EEEEEEEE'... has 212 characters, of at most 200",
        ),
        ("02:00-04:60", "is not of the form"),
        ("02:00-03:00-04:00", "is not of the form"),
        ("02:00-", "is not of the form"),
        ("02:00-04:00 Europe/Berlin extra", "is not of the form"),
        ("02:00-02:00", "a whole day is 00:00-24:00"),
        ("00:00-24:00", "is always"),
        ("mon-sun 00:00-24:00", "is always"),
        ("sunday 02:00-04:00", "'sunday' is no day; days are day, or mon, tue"),
        ("mon- 02:00-04:00", "'mon-' is no day"),
        (",mon 02:00-04:00", "'' is no day"),
        ("02:00-04:00 Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("02:00-04:00 ../../etc/passwd", "is unknown"),
        ("02:00-04:00 Europe", "is unknown"),
        ("02:00-04:00 \0", "is unknown"),
        ("02:00-04:00 \ud800", "is unknown"),
        ("\u06602:00-04:00", "is not of the form"),
    ],
)
def test_what_is_no_window_is_refused_with_what_is_allowed(text, words):
    with pytest.raises(ValueError) as refused:
        parse_window(text)

    assert words in str(refused.value)


def test_end_of_a_day_is_no_time_of_day():
    with pytest.raises(ValueError, match=r"^'24:00': 24:00 only ends a window"):
        parse_time("24:00")


def test_time_is_no_window():
    with pytest.raises(ValueError, match="is a window"):
        parse_time("02:00-04:00")


def test_machine_without_a_database_knows_utc_and_says_what_is_missing(monkeypatch):
    for cached in (zone_of, parse_window):
        cached.cache_clear()
    monkeypatch.setattr(wall_time, "ZoneInfo", _unknown)
    monkeypatch.setattr(wall_time, "available_timezones", set)

    assert parse_window("02:00-04:00").zone == "UTC"
    with pytest.raises(ValueError, match="no time zone database: install the package tzdata"):
        parse_window("02:00-04:00 Europe/Berlin")
    zone_of.cache_clear()


def _unknown(name):
    raise zoneinfo.ZoneInfoNotFoundError(name)


def test_at_the_end_of_the_calendar_nothing_comes():
    assert parse_window("02:00-04:00").window(unix("9999-12-31T12:00")) is None
    assert parse_time("02:00").last(1e300) is None


def test_what_a_day_needs_is_computed_once(monkeypatch):
    computed, local = [], wall_time._local
    monkeypatch.setattr(wall_time, "_local", lambda *given: computed.append(given) or local(*given))
    noon = datetime(2026, 11, 29, 12, tzinfo=timezone.utc).timestamp()
    times, windows = parse_time("06:07 Europe/Berlin"), parse_window("06:07-06:08 Europe/Berlin")

    for ask in (times.last, times.next, windows.window):
        ask(noon)
    first = len(computed)
    for ask in (times.last, times.next, windows.window):
        ask(noon + 3600)

    assert first > 0
    assert len(computed) == first
