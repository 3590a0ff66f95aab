"""Silences: what a person may write, the silence file, and what is in force."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import datetime, timedelta, timezone, tzinfo

import pytest
from support.patience import PATIENCE_SECONDS, Clock

from querypulse.alerting.kinds import ALERT_NAMES
from querypulse.alerting.silences import (
    NO_END,
    Ending,
    Silence,
    SilenceStore,
    change_silences,
    make_silence,
    read_silences,
    unmatched,
)
from querypulse.core.guard import Guard
from querypulse.sidecar import Settings, Sidecar

MOMENT = datetime(2026, 11, 21, 18, tzinfo=timezone.utc)
NOW = MOMENT.timestamp()
LATER = MOMENT + timedelta(hours=1)


class Nowhere(tzinfo):
    """A time zone that knows no offset, so that its times are naive."""

    def utcoffset(self, _):
        return None


END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)


def silence(queries, minutes=60.0, **more):
    return Silence(queries, NOW + 60 * minutes, **{"app": "etl"} | more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "silences"


def patterns(path):
    return [silence.queries for silence in read_silences(path)]


# -- what a person may write --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("minutes", "until", "end"),
    [
        (60, None, LATER),
        (0.5, None, MOMENT + timedelta(seconds=30)),
        (None, LATER, LATER),
        (None, LATER.astimezone(timezone(timedelta(hours=5))), LATER),
        (None, END_OF_TIME, END_OF_TIME),
    ],
)
def test_silence_ends_after_minutes_or_at_a_time(minutes, until, end):
    assert make_silence("a", minutes, until, now=NOW).until == end.timestamp()


@pytest.mark.parametrize(
    ("minutes", "until", "word"),
    [
        (None, None, "must end"),
        (60, LATER, "not both"),
        (0, None, "later than now"),
        (-1, None, "later than now"),
        (float("nan"), None, "minutes"),
        (float("inf"), None, "minutes"),
        (1e300, None, "minutes"),
        ("60", None, "minutes"),
        (True, None, "minutes"),
        (None, LATER.replace(tzinfo=None), "time zone"),
        (None, LATER.replace(tzinfo=Nowhere()), "time zone"),
        (None, "2026-12-01", "datetime with a time zone, given '2026-12-01'"),
        (None, LATER.date(), "datetime with a time zone"),
        (None, 1796083200, "datetime with a time zone"),
        (None, MOMENT, "later than now"),
        (None, MOMENT - timedelta(days=1), "later than now"),
        (None, END_OF_TIME.replace(tzinfo=timezone(timedelta(hours=-12))), "year 10000"),
        (None, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12))), "year 10000"),
    ],
)
def test_silence_with_an_invalid_end_is_refused(minutes, until, word):
    with pytest.raises(ValueError, match=word):
        make_silence("a", minutes, until, now=NOW)


@pytest.mark.parametrize(
    ("given", "end"),
    [({}, NO_END), ({"minutes": 60}, LATER.timestamp()), ({"until": LATER}, LATER.timestamp())],
)
def test_silence_that_recurs_needs_no_other_end(given, end):
    silence = make_silence("a", every="sat 17:00-19:00", now=NOW, **given)

    assert (silence.until, silence.every.text) == (end, "sat 17:00-19:00 UTC")


@pytest.mark.parametrize(
    ("every", "more", "word"),
    [
        ("sometimes", {}, "is not of the form"),
        ("day 00:00-24:00", {}, "is always"),
        ("02:00-04:00 Mars", {}, "'Mars' is unknown"),
        (7, {}, "'every' must be text, given 7"),
        ("02:00-04:00", {"minutes": 1, "until": LATER}, "not both"),
        ("02:00-04:00", {"minutes": -1}, "later than now"),
    ],
)
def test_silence_with_invalid_windows_is_refused(every, more, word):
    with pytest.raises(ValueError, match=re.escape(word)):
        make_silence("a", every=every, now=NOW, **more)


@pytest.mark.parametrize("field", ["queries", "alertname", "reason", "app"])
@pytest.mark.parametrize("text", [None, b"a", ["a"], 1])
def test_silence_with_a_field_that_is_not_text_is_refused(field, text):
    with pytest.raises(
        ValueError, match=f"^'{field}' must be text, given {re.escape(repr(text))}$"
    ):
        make_silence(**{"queries": "a", "minutes": 60, field: text})


@pytest.mark.parametrize("field", ["queries", "alertname", "app", "every"])
def test_silence_with_a_pattern_that_takes_long_to_match_is_refused(field):
    with pytest.raises(ValueError, match=f"^'{field}' has 1001 characters, of at most 1000$"):
        make_silence(**{"queries": "a", "minutes": 60, field: "[" * 1001})


def test_sidecar_can_be_silenced_before_it_runs():
    sidecar = Sidecar(Settings(http_port=-1))
    sidecar.silence("bronze*", minutes=30, reason="backfill")
    with pytest.raises(ValueError, match="queries"):
        sidecar.silence(7, minutes=1)

    (silence,) = sidecar._components.silencing()
    assert (silence.queries, silence.alertname, silence.reason) == ("bronze*", "*", "backfill")


@pytest.mark.parametrize(
    ("queries", "alertname", "names", "hint"),
    [
        *((text, "*", True, "") for text in ("billing", "bronze*", "*", "b?lling", "*-us")),
        ("*", "*", (), ""),
        ("a", "*", (), "query 'a' matches nothing now"),
        ("billing", ALERT_NAMES[0], True, ""),
        ("billing", "Query*", True, ""),
        ("bilingg", "*", True, "query 'bilingg' matches nothing now; did you mean 'billing'?"),
        ("bilingg", "*", None, ""),
        (
            "*",
            "StreamingQueryFaild",
            True,
            "alert 'StreamingQueryFaild' matches nothing now; did you mean 'StreamingQueryFailed'?",
        ),
        (
            "nowhere",
            "Nothing",
            True,
            "alert 'Nothing' matches nothing now; query 'nowhere' matches nothing now",
        ),
        ("nowhere", "Nothing", None, "alert 'Nothing' matches nothing now"),
    ],
)
def test_pattern_that_matches_nothing_gives_a_hint(queries, alertname, names, hint):
    existing = ("billing", "bronze-eu", "bronze-us") if names is True else names
    assert unmatched(silence(queries, alertname=alertname), existing) == hint


# -- the silence file ---------------------------------------------------------------------------


def test_added_silences_are_read_in_order(path):
    first = silence(
        "bronze*", alertname="StreamingQueryLagging", reason='backfill, "ours"\nuntil 7'
    )
    assert read_silences(path) == ()
    change_silences(path, NOW, add=first)
    change_silences(path, NOW, add=silence("silver"))

    assert read_silences(path) == (first, silence("silver"))
    assert len(path.read_text().splitlines()) == 2
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_silence_that_recurs_outlives_its_windows_in_the_file(path):
    every = make_silence("a", every="sat 17:00-19:00", app="etl", now=NOW)
    ends = make_silence("b", every="day 17:00-19:00", minutes=60, app="etl", now=NOW)
    for added in (every, ends):
        change_silences(path, NOW, add=added)
    assert read_silences(path) == (every, ends)
    change_silences(path, NOW + 8 * 86_400, add=silence("c", minutes=20_000))

    assert patterns(path) == ["a", "c"]
    assert change_silences(path, NOW, end=Ending("a")) == 1


def test_number_of_ended_silences_is_returned(path):
    for app in ("etl", "shop"):
        change_silences(path, NOW, add=silence("a", app=app))

    assert [change_silences(path, NOW, end=end) for end in (Ending("b"), Ending("a"))] == [0, 2]


def test_adding_a_silence_removes_those_that_have_ended(path):
    change_silences(path, NOW, add=silence("old"))
    change_silences(path, NOW + 7200, add=silence("new", minutes=180))

    assert patterns(path) == ["new"]


def test_error_for_a_silence_without_an_app_shows_the_fix(path):
    path.write_text('\n{"queries": "bronze*", "until": "2026-11-21T20:00:00Z"}\n')
    with pytest.raises(ValueError) as refused:
        read_silences(path)

    assert str(refused.value) == (
        f"{path}, line 2: the silence of 'bronze*' names no app; drivers of several apps may read "
        'this file: add "app": "NAME", or "*" for all apps'
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("bronze", "malformed"),
        ('{"queries": "a", "app": "*"}', "until"),
        ('{"queries": "a", "minutes": 5, "app": "*"}', "until"),
        ('{"queries": "a", "until": "2026-11-21T20:00:00Z", "app": ""}', "names no app"),
        ('{"queries": "a", "until": "tomorrow"}', "until"),
        ('{"queries": "a", "every": "02:00-04:00"}', "names no app"),
        ('{"queries": "a", "every": "02:00", "app": "*"}', "has no end"),
        ('{"queries": "a", "every": "02:00-04:00 Mars", "app": "*"}', "'Mars' is unknown"),
        ('{"queries": "a", "every": "02:00-04:00", "minutes": 5, "app": "*"}', "minutes"),
        ('{"queries": "a", "until": "2026-11-21T20:00:00"}', "timezone"),
        ('{"queries": "a", "until": "2026-11-21T20:00:00Z", "query": "b"}', "query"),
        ('{"until": "2026-11-21T20:00:00Z"}', "queries"),
        ("\udcff", "line 2"),
    ],
)
def test_malformed_line_is_reported_with_file_and_line_and_kept(path, line, why):
    good = '{"queries": "a", "until": "2026-11-21T20:00:00Z", "app": "*"}\n'
    content = (good + line + "\n").encode(errors="surrogateescape")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=why) as refused:
        read_silences(path)
    assert f"{path}, line 2" in str(refused.value)
    with pytest.raises(ValueError):
        change_silences(path, NOW, add=silence("a"))
    assert path.read_bytes() == content


def test_symbolic_link_is_kept(path, tmp_path):
    real = tmp_path / "real"
    path.symlink_to(real)
    change_silences(path, NOW, add=silence("a"))

    assert path.is_symlink()
    assert patterns(real) == ["a"]


@pytest.mark.slow
def test_concurrent_writers_lose_no_silence(path):
    script = (
        "import sys; from querypulse.commands.cli import main\n"
        "for i in range(5): main(['silence', f'{sys.argv[1]}-{i}', '--for', '1h', '--app', 'etl', '--file', sys.argv[2]])"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-Ic", script, str(n), str(path)], stdout=subprocess.DEVNULL
        )
        for n in range(3)
    ]

    assert [writer.wait(PATIENCE_SECONDS) for writer in writers] == [0, 0, 0]
    assert sorted(patterns(path)) == sorted(f"{n}-{i}" for n in range(3) for i in range(5))


# -- what is in force ---------------------------------------------------------------------------


class SilencingHarness:
    """A ``SilenceStore`` with a clock that the test sets; the clock is 0 at ``NOW``."""

    def __init__(self, *silences, path=None):
        self.clock = Clock(0.0)
        self.guard = Guard()
        self.silencing = SilenceStore(
            str(path) if path else None, self.guard, wall=lambda: NOW + self.clock.now
        )
        for silence in silences:
            self.silencing.add(silence)

    def after(self, seconds):
        self.clock.now += seconds
        return self

    def read(self):
        """Read the file, as the reading thread does."""
        self.silencing.refresh()
        return self

    @property
    def quiet(self):
        return [silence.queries for silence in self.silencing()]


def test_silence_is_in_force_until_its_end():
    harness = SilencingHarness(silence("a", minutes=1), silence("b", minutes=2))

    assert SilencingHarness().quiet == []
    assert harness.quiet == ["a", "b"]
    assert harness.after(60).quiet == ["b"]
    assert harness.after(60).quiet == []


def test_at_most_a_thousand_silences_are_in_force():
    harness = SilencingHarness(*(silence(f"q{n}", minutes=1 + n % 2) for n in range(1000)))
    with pytest.raises(ValueError, match=r"silence of 'more': 1000 are in force"):
        harness.silencing.add(silence("more"))
    harness.silencing.add(silence("q0", minutes=9))
    harness.after(60).silencing.add(silence("more"))

    assert len(harness.quiet) == 502


@pytest.mark.parametrize(
    ("other", "in_force"),
    [
        (silence("a", minutes=3, reason="longer"), 1),
        (silence("a", minutes=2, reason="as long"), 1),
        (silence("a", minutes=1), 2),
        (silence("b", minutes=3), 2),
        (silence("a", minutes=3, alertname="Query*"), 2),
        (silence("a", minutes=3, app="other"), 2),
    ],
)
def test_silence_replaces_one_of_the_same_patterns_that_ends_no_later(other, in_force):
    harness = SilencingHarness(silence("a", minutes=2), other)

    assert len(harness.quiet) == in_force
    assert other in harness.silencing()


def test_file_takes_effect_with_the_next_read(path):
    harness = SilencingHarness(path=path)
    assert harness.read().quiet == []
    change_silences(path, NOW, add=silence("a", minutes=1))
    assert harness.quiet == []
    assert harness.read().quiet == ["a"]
    assert harness.after(61).quiet == []
    change_silences(path, NOW, add=silence("b"))
    assert harness.read().quiet == ["b"]
    path.unlink()
    assert harness.read().quiet == []


@pytest.mark.contains_errors
def test_malformed_file_is_reported_once_and_keeps_the_last_silences(path):
    change_silences(path, NOW, add=silence("a"))
    harness = SilencingHarness(path=path)
    assert harness.read().quiet == ["a"]
    for _ in range(3):
        path.write_text("be quiet")
        assert harness.read().quiet == ["a"]
    assert harness.guard.errors["silence-file"] == 1
    path.unlink()
    assert harness.read().quiet == []
    path.write_text("be quiet")
    assert harness.read().guard.errors["silence-file"] == 2


@pytest.mark.contains_errors
def test_failed_read_is_retried(path, monkeypatch):
    change_silences(path, NOW, add=silence("a"))
    harness = SilencingHarness(path=path)
    with monkeypatch.context() as failing:
        failing.setattr(type(path), "read_bytes", lambda path: path.parent.read_text())
        assert harness.read().quiet == []

    assert harness.read().quiet == ["a"]
    assert harness.guard.errors["silence-file"] == 1


def test_start_reads_the_file_before_it_returns(path):
    change_silences(path, NOW, add=silence("a"))
    harness = SilencingHarness(path=path)
    harness.silencing.start()
    try:
        assert harness.quiet == ["a"]
    finally:
        harness.silencing.stop()
