"""The silence file: concurrent writers lose nothing, and readers see complete lines."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest
from support.patience import PATIENCE_SECONDS

from querypulse.settings.settings import SilenceSettings
from querypulse.settings.silencing import add_silence, end_silences, in_force, read_silences

NOW = datetime(2026, 11, 21, 18, tzinfo=timezone.utc)


def silence(queries, hours=1.0, app="etl", **more):
    return SilenceSettings(queries=queries, until=NOW + timedelta(hours=hours), app=app, **more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "silences"


def patterns(path):
    return [one.queries for one in read_silences(path)]


def test_missing_file_holds_no_silence(path):
    assert read_silences(path) == ()


def test_added_silences_are_read_in_order(path):
    one = silence("bronze*", alertname="StreamingQueryLagging", reason='backfill, "ours"\nuntil 7')
    add_silence(path, one, NOW)
    add_silence(path, silence("silver"), NOW)

    assert read_silences(path) == (one, silence("silver"))
    assert len(path.read_text().splitlines()) == 2


def test_file_is_readable_by_all_users(path):
    add_silence(path, silence("a"), NOW)

    assert path.stat().st_mode & 0o777 == 0o644


def test_adding_a_silence_removes_expired_ones(path):
    add_silence(path, silence("old", hours=1), NOW)
    add_silence(path, silence("new", hours=3), NOW + timedelta(hours=2))

    assert patterns(path) == ["new"]


@pytest.mark.parametrize(("hours", "alive"), [(-1, False), (0, False), (0.001, True)])
def test_silence_is_active_until_its_end(hours, alive):
    assert bool(in_force([silence("a", hours)], NOW)) is alive


def test_ending_removes_only_silences_of_the_same_pattern(path):
    for queries in ("bronze*", "bronze", "*", "bronze*"):
        add_silence(path, silence(queries), NOW)

    assert [one.queries for one in end_silences(path, "bronze*", NOW)] == ["bronze*", "bronze*"]
    assert patterns(path) == ["bronze", "*"]


def test_ending_with_an_app_removes_only_that_app(path):
    for app in ("etl", "shop"):
        add_silence(path, silence("bronze", app=app), NOW)

    assert [one.app for one in end_silences(path, "bronze", NOW, "shop")] == ["shop"]
    assert [one.app for one in read_silences(path)] == ["etl"]


def test_error_for_a_silence_without_an_app_shows_the_fix(path):
    path.write_text('{"queries": "bronze*", "until": "2026-11-21T20:00:00Z"}\n')
    with pytest.raises(ValueError) as refused:
        read_silences(path)

    assert str(refused.value) == (
        f"{path}, line 1: the silence of 'bronze*' names no app; drivers of several apps may read "
        'this file: add "app": "NAME", or "*" for all apps'
    )


def test_ending_an_unknown_silence_changes_nothing(path):
    add_silence(path, silence("a"), NOW)

    assert end_silences(path, "b", NOW) == ()
    assert patterns(path) == ["a"]


def test_blank_lines_are_ignored(path):
    path.write_text('\n{"queries": "a", "until": "2026-11-21T20:00:00Z", "app": "*"}\n\n')

    assert patterns(path) == ["a"]


def test_malformed_line_is_reported_with_file_and_line(path):
    lines = [
        ("bronze", "malformed"),
        ('{"queries": "a"}', "until"),
        ('{"queries": "a", "until": "2026-11-21T20:00:00Z"}', "names no app"),
        ('{"queries": "a", "until": "2026-11-21T20:00:00Z", "app": ""}', "names no app"),
        ('{"queries": "a", "until": "2026-11-21T20:00:00Z", "app": null}', "names no app"),
        ('{"queries": "a", "until": "tomorrow"}', "until"),
        ('{"queries": "a", "until": "2026-11-21T20:00:00"}', "timezone"),
        ('{"queries": "a", "until": "2026-11-21T20:00:00Z", "query": "b"}', "query"),
        ('{"until": "2026-11-21T20:00:00Z"}', "queries"),
        ("\udcff", "line 2"),
    ]
    good = '{"queries": "a", "until": "2026-11-21T20:00:00Z", "app": "*"}\n'

    for line, why in lines:
        path.write_bytes((good + line + "\n").encode(errors="surrogateescape"))
        with pytest.raises(ValueError, match=why) as refused:
            read_silences(path)
        assert f"{path}, line 2" in str(refused.value)


def test_malformed_file_is_not_overwritten(path):
    path.write_text("bronze\n")
    with pytest.raises(ValueError):
        add_silence(path, silence("a"), NOW)

    assert path.read_text() == "bronze\n"


def test_symbolic_link_is_kept(path, tmp_path):
    real = tmp_path / "real"
    path.symlink_to(real)
    add_silence(path, silence("a"), NOW)

    assert path.is_symlink()
    assert patterns(real) == ["a"]


def test_missing_folder_is_an_error(tmp_path):
    with pytest.raises(OSError):
        add_silence(tmp_path / "nowhere" / "silences", silence("a"), NOW)


def test_writes_leave_no_other_files(path):
    add_silence(path, silence("a"), NOW)
    end_silences(path, "a", NOW)

    assert [found.name for found in path.parent.iterdir()] == [path.name]


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
