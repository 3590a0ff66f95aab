"""What is silenced now: by settings, by word of the driver, by the file; nothing beyond its end."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone

import pytest
from support.clock import Clock

from querypulse.listener.guard import Guard
from querypulse.sidecar import Settings, Sidecar, silencing
from querypulse.sidecar.configuration.silence_settings import SilenceSettings
from querypulse.sidecar.silence_file import add_silence, read_silences
from querypulse.sidecar.silencing import Silencing, until_of

NOW = datetime(2026, 11, 21, 18, tzinfo=timezone.utc)


def silence(queries, minutes=60.0, **more):
    return SilenceSettings(
        queries=queries, until=NOW + timedelta(minutes=minutes), **{"app": "etl"} | more
    )


class Room:
    """A ``Silencing`` whose clock is in the test's hand; it shows 0 at ``NOW``."""

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
        """As the thread of the file does."""
        self.silencing.refresh()
        return self

    @property
    def quiet(self):
        return [one.queries for one in self.silencing()]


def test_nothing_is_silenced_unless_somebody_said_so():
    assert Room().quiet == []


def test_a_silence_of_the_settings_holds_until_its_end():
    room = Room(silence("a", minutes=1), silence("b", minutes=2))

    assert room.quiet == ["a", "b"]
    assert room.after(60).quiet == ["b"]
    assert room.after(60).quiet == []


def test_a_silence_of_the_settings_that_is_long_over_keeps_no_job_from_starting(caplog):
    with caplog.at_level("WARNING", "querypulse"):
        room = Room(silence("a", minutes=-60))

    assert room.quiet == []
    assert "the silence of 'a' ended" in caplog.text


def test_a_silence_reports_what_it_was_given():
    (one,) = Room(silence("a*", alertname="StreamingQueryLagging", reason="backfill")).silencing()

    assert (one.queries, one.alertname, one.reason) == ("a*", "StreamingQueryLagging", "backfill")
    assert one.until == NOW.timestamp() + 3600


def test_a_driver_may_silence_while_it_runs():
    room = Room(silence("a"))
    room.silencing.add(silence("b", minutes=1))

    assert room.quiet == ["a", "b"]
    assert room.after(60).quiet == ["a"]


def test_a_silence_that_has_ended_cannot_be_added():
    with pytest.raises(ValueError, match=r"'a'.*past"):
        Room().silencing.add(silence("a", minutes=0))


def test_a_thousand_silences_are_in_force_at_most():
    room = Room()
    for number in range(1000):
        room.silencing.add(silence(f"q{number}", minutes=1 + number % 2))
    with pytest.raises(ValueError, match=r"silence of 'more': 1000 are in force"):
        room.silencing.add(silence("more"))
    room.after(60).silencing.add(silence("more"))

    assert len(room.quiet) == 501


def test_a_silence_said_again_for_longer_is_one():
    room = Room(silence("a", minutes=1))
    for minutes in (2, 3, 3):
        room.silencing.add(silence("a", minutes=minutes, reason=f"for {minutes}"))

    assert [one.reason for one in room.silencing()] == ["for 3"]


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
def test_a_silence_replaces_none_that_says_something_else(other):
    room = Room(silence("a", minutes=2))
    room.silencing.add(other)

    assert len(room.quiet) == 2


def test_a_file_that_is_written_later_is_in_force_with_the_next_read(tmp_path):
    room = Room(path=tmp_path / "file")
    assert room.read().quiet == []
    add_silence(tmp_path / "file", silence("a"), NOW)

    assert room.quiet == []
    assert room.read().quiet == ["a"]


def test_a_file_that_is_gone_silences_nothing(tmp_path):
    add_silence(tmp_path / "file", silence("a"), NOW)
    room = Room(path=tmp_path / "file")
    assert room.read().quiet == ["a"]
    (tmp_path / "file").unlink()

    assert room.read().quiet == []


def test_a_silence_of_the_file_ends_by_itself(tmp_path):
    add_silence(tmp_path / "file", silence("a", minutes=1), NOW)

    assert Room(path=tmp_path / "file").read().after(61).quiet == []


@pytest.mark.contains_errors
def test_a_file_that_cannot_be_understood_is_said_once_and_what_it_said_last_holds(tmp_path):
    add_silence(tmp_path / "file", silence("a"), NOW)
    room = Room(path=tmp_path / "file")
    assert room.read().quiet == ["a"]
    (tmp_path / "file").write_text("be quiet")

    assert room.read().quiet == ["a"]
    assert room.read().quiet == ["a"]
    assert room.guard.errors["silence-file"] == 1


@pytest.mark.contains_errors
def test_a_folder_in_the_files_place_silences_nothing(tmp_path):
    assert Room(path=tmp_path).read().quiet == []


@pytest.mark.contains_errors
def test_a_file_whose_read_fails_once_is_read_again(tmp_path, monkeypatch):
    add_silence(tmp_path / "file", silence("a"), NOW)
    room = Room(path=tmp_path / "file")
    failures = [OSError(5, "Input/output error")]

    def fail_once(path):
        if failures:
            raise failures.pop()
        return read_silences(path)

    monkeypatch.setattr(silencing, "read_silences", fail_once)

    assert room.read().quiet == []
    assert room.read().quiet == ["a"]
    assert room.guard.errors["silence-file"] == 1


@pytest.mark.contains_errors
def test_a_problem_of_a_file_is_reported_once_until_it_could_be_read_again(tmp_path):
    room = Room(path=tmp_path / "file")
    for _ in range(3):
        (tmp_path / "file").write_text("be quiet")
        room.read()
    assert room.guard.errors["silence-file"] == 1
    (tmp_path / "file").unlink()
    room.read()
    (tmp_path / "file").write_text("be quiet")

    assert room.read().guard.errors["silence-file"] == 2


def test_a_file_on_a_mount_that_hangs_holds_nobody_up(tmp_path):
    """A FIFO without a writer: opening it blocks, as a file on a dead NFS server does."""
    fifo = tmp_path / "file"
    os.mkfifo(fifo)
    reading = Room(silence("a"), path=fifo).silencing
    began = time.monotonic()
    reading.start()
    try:
        assert [one.queries for one in reading()] == ["a"]
        assert time.monotonic() - began < 2
    finally:
        reading.stop()
        os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))


def test_what_is_in_the_file_is_known_once_reading_has_begun(tmp_path):
    add_silence(tmp_path / "file", silence("a"), NOW)
    reading = Room(path=tmp_path / "file").silencing
    reading.start()
    try:
        assert [one.queries for one in reading()] == ["a"]
    finally:
        reading.stop()


# -- the end, which is mandatory ----------------------------------------------------------------

LATER = NOW + timedelta(hours=1)
END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("minutes", "until", "end"),
    [
        (60, None, LATER),
        (0.5, None, NOW + timedelta(seconds=30)),
        (None, LATER, LATER),
        (None, LATER.astimezone(timezone(timedelta(hours=5))), LATER),
        (None, END_OF_TIME, END_OF_TIME),
    ],
)
def test_a_silence_ends_after_minutes_or_at_a_moment(minutes, until, end):
    assert until_of(minutes, until, NOW) == end


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
        (None, LATER.replace(tzinfo=None), "time zone"),
        (None, NOW, "later than now"),
        (None, NOW - timedelta(days=1), "later than now"),
        (None, END_OF_TIME.replace(tzinfo=timezone(timedelta(hours=-12))), "year 10000"),
        (None, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12))), "later than now"),
    ],
)
def test_a_silence_without_a_sensible_end_is_refused(minutes, until, word):
    with pytest.raises(ValueError, match=word):
        until_of(minutes, until, NOW)


def test_a_sidecar_is_silenced_by_pattern_even_before_it_runs():
    sidecar = Sidecar(Settings(http_port=-1))
    sidecar.silence("bronze*", minutes=30, reason="backfill")

    (one,) = sidecar._components.silencing()
    assert (one.queries, one.alertname, one.reason) == ("bronze*", "*", "backfill")


@pytest.mark.parametrize("mistake", [{}, {"minutes": -1}, {"minutes": 1, "until": LATER}])
def test_a_sidecar_is_not_silenced_without_end(mistake):
    sidecar = Sidecar(Settings(http_port=-1))
    with pytest.raises(ValueError):
        sidecar.silence("bronze*", **mistake)

    assert sidecar._components.silencing() == ()


def test_a_pattern_that_is_no_text_is_refused_on_the_users_own_line():
    with pytest.raises(ValueError, match="queries"):
        Sidecar(Settings(http_port=-1)).silence(7, minutes=1)
