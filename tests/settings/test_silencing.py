"""Active silences: from the settings, from ``Sidecar.silence`` and from the file."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

import pytest
from support.clock import Clock

from querypulse.core.guard import Guard
from querypulse.settings import silencing
from querypulse.settings.settings import SilenceSettings
from querypulse.settings.silencing import Silencing, add_silence, read_silences, until_of
from querypulse.sidecar import Settings, Sidecar

NOW = datetime(2026, 11, 21, 18, tzinfo=timezone.utc)


def silence(queries, minutes=60.0, **more):
    return SilenceSettings(
        queries=queries, until=NOW + timedelta(minutes=minutes), **{"app": "etl"} | more
    )


class SilencingHarness:
    """A ``Silencing`` with a clock that the test sets; the clock is 0 at ``NOW``."""

    def __init__(self, *silences, path=None):
        self.clock = Clock(0.0)
        self.guard = Guard()
        self.silencing = Silencing(
            silences,
            str(path) if path else None,
            self.guard,
            wall=lambda: NOW.timestamp() + self.clock.now,
        )

    def after(self, seconds):
        self.clock.now += seconds
        return self

    def read(self):
        """Read the file, as the reading thread does."""
        self.silencing.refresh()
        return self

    @property
    def quiet(self):
        return [one.queries for one in self.silencing()]


def test_nothing_is_silenced_by_default():
    assert SilencingHarness().quiet == []


def test_silence_of_the_settings_is_active_until_its_end():
    harness = SilencingHarness(silence("a", minutes=1), silence("b", minutes=2))

    assert harness.quiet == ["a", "b"]
    assert harness.after(60).quiet == ["b"]
    assert harness.after(60).quiet == []


def test_expired_silence_of_the_settings_only_logs_a_warning(caplog):
    with caplog.at_level("WARNING", "querypulse"):
        harness = SilencingHarness(silence("a", minutes=-60))

    assert harness.quiet == []
    assert "the silence of 'a' ended" in caplog.text


def test_silence_keeps_its_fields():
    (one,) = SilencingHarness(
        silence("a*", alertname="StreamingQueryLagging", reason="backfill")
    ).silencing()

    assert (one.queries, one.alertname, one.reason) == ("a*", "StreamingQueryLagging", "backfill")
    assert one.until == NOW.timestamp() + 3600


def test_silence_may_be_added_at_run_time():
    harness = SilencingHarness(silence("a"))
    harness.silencing.add(silence("b", minutes=1))

    assert harness.quiet == ["a", "b"]
    assert harness.after(60).quiet == ["a"]


def test_expired_silence_cannot_be_added():
    with pytest.raises(ValueError, match=r"'a'.*past"):
        SilencingHarness().silencing.add(silence("a", minutes=0))


def test_at_most_a_thousand_silences_are_active():
    harness = SilencingHarness()
    for number in range(1000):
        harness.silencing.add(silence(f"q{number}", minutes=1 + number % 2))
    with pytest.raises(ValueError, match=r"silence of 'more': 1000 are in force"):
        harness.silencing.add(silence("more"))
    harness.after(60).silencing.add(silence("more"))

    assert len(harness.quiet) == 501


def test_extended_silence_replaces_the_earlier_one():
    harness = SilencingHarness(silence("a", minutes=1))
    for minutes in (2, 3, 3):
        harness.silencing.add(silence("a", minutes=minutes, reason=f"for {minutes}"))

    assert [one.reason for one in harness.silencing()] == ["for 3"]


@pytest.mark.parametrize(
    "other",
    [
        silence("a", minutes=1),
        silence("b", minutes=3),
        silence("a", minutes=3, alertname="Query*"),
        silence("a", minutes=3, app="other"),
    ],
    ids=["ends earlier", "other query", "other alert", "other app"],
)
def test_different_silence_replaces_nothing(other):
    harness = SilencingHarness(silence("a", minutes=2))
    harness.silencing.add(other)

    assert len(harness.quiet) == 2


def test_file_takes_effect_with_the_next_read(tmp_path):
    harness = SilencingHarness(path=tmp_path / "file")
    assert harness.read().quiet == []
    add_silence(tmp_path / "file", silence("a"), NOW)

    assert harness.quiet == []
    assert harness.read().quiet == ["a"]


def test_deleted_file_silences_nothing(tmp_path):
    add_silence(tmp_path / "file", silence("a"), NOW)
    harness = SilencingHarness(path=tmp_path / "file")
    assert harness.read().quiet == ["a"]
    (tmp_path / "file").unlink()

    assert harness.read().quiet == []


def test_silence_of_the_file_expires(tmp_path):
    add_silence(tmp_path / "file", silence("a", minutes=1), NOW)

    assert SilencingHarness(path=tmp_path / "file").read().after(61).quiet == []


@pytest.mark.contains_errors
def test_malformed_file_is_reported_once_and_keeps_the_last_silences(tmp_path):
    add_silence(tmp_path / "file", silence("a"), NOW)
    harness = SilencingHarness(path=tmp_path / "file")
    assert harness.read().quiet == ["a"]
    (tmp_path / "file").write_text("be quiet")

    assert harness.read().quiet == ["a"]
    assert harness.read().quiet == ["a"]
    assert harness.guard.errors["silence-file"] == 1


@pytest.mark.contains_errors
def test_folder_instead_of_a_file_silences_nothing(tmp_path):
    assert SilencingHarness(path=tmp_path).read().quiet == []


@pytest.mark.contains_errors
def test_failed_read_is_retried(tmp_path, monkeypatch):
    add_silence(tmp_path / "file", silence("a"), NOW)
    harness = SilencingHarness(path=tmp_path / "file")
    failures = [OSError(5, "Input/output error")]

    def fail_once(path):
        if failures:
            raise failures.pop()
        return read_silences(path)

    monkeypatch.setattr(silencing, "read_silences", fail_once)

    assert harness.read().quiet == []
    assert harness.read().quiet == ["a"]
    assert harness.guard.errors["silence-file"] == 1


@pytest.mark.contains_errors
def test_file_problem_is_reported_again_after_a_successful_read(tmp_path):
    harness = SilencingHarness(path=tmp_path / "file")
    for _ in range(3):
        (tmp_path / "file").write_text("be quiet")
        harness.read()
    assert harness.guard.errors["silence-file"] == 1
    (tmp_path / "file").unlink()
    harness.read()
    (tmp_path / "file").write_text("be quiet")

    assert harness.read().guard.errors["silence-file"] == 2


def test_hanging_mount_blocks_nothing(tmp_path):
    """A FIFO without a writer: opening it blocks, as a file on a dead NFS server does."""
    fifo = tmp_path / "file"
    os.mkfifo(fifo)
    reading = SilencingHarness(silence("a"), path=fifo).silencing
    reading.start()
    try:
        assert [one.queries for one in reading()] == ["a"]
    finally:
        reading.stop()
        os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))


def test_start_reads_the_file_before_it_returns(tmp_path):
    add_silence(tmp_path / "file", silence("a"), NOW)
    reading = SilencingHarness(path=tmp_path / "file").silencing
    reading.start()
    try:
        assert [one.queries for one in reading()] == ["a"]
    finally:
        reading.stop()


# -- the end of a silence is mandatory ----------------------------------------------------------

LATER = NOW + timedelta(hours=1)
END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)


def test_silence_ends_after_minutes_or_at_a_time():
    ends = [
        (60, None, LATER),
        (0.5, None, NOW + timedelta(seconds=30)),
        (None, LATER, LATER),
        (None, LATER.astimezone(timezone(timedelta(hours=5))), LATER),
        (None, END_OF_TIME, END_OF_TIME),
    ]

    for minutes, until, end in ends:
        assert until_of(minutes, until, NOW) == end


def test_silence_with_an_invalid_end_is_refused():
    ends = [
        (None, None, "must end"),
        (60, LATER, "not both"),
        (0, None, "later than now"),
        (-1, None, "later than now"),
        (float("nan"), None, "minutes"),
        (float("inf"), None, "minutes"),
        (1e300, None, "minutes"),
        ("60", None, "minutes"),
        (None, LATER.replace(tzinfo=None), "time zone"),
        (None, NOW, "later than now"),
        (None, NOW - timedelta(days=1), "later than now"),
        (None, END_OF_TIME.replace(tzinfo=timezone(timedelta(hours=-12))), "year 10000"),
        (None, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12))), "later than now"),
    ]

    for minutes, until, word in ends:
        with pytest.raises(ValueError, match=word):
            until_of(minutes, until, NOW)


def test_sidecar_can_be_silenced_before_it_runs():
    sidecar = Sidecar(Settings(http_port=-1))
    sidecar.silence("bronze*", minutes=30, reason="backfill")

    (one,) = sidecar._components.silencing()
    assert (one.queries, one.alertname, one.reason) == ("bronze*", "*", "backfill")


@pytest.mark.parametrize("mistake", [{}, {"minutes": -1}, {"minutes": 1, "until": LATER}])
def test_sidecar_refuses_a_silence_without_a_valid_end(mistake):
    sidecar = Sidecar(Settings(http_port=-1))
    with pytest.raises(ValueError):
        sidecar.silence("bronze*", **mistake)

    assert sidecar._components.silencing() == ()


def test_pattern_must_be_a_string():
    with pytest.raises(ValueError, match="queries"):
        Sidecar(Settings(http_port=-1)).silence(7, minutes=1)
