"""``querypulse replay``: its output, its errors and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.event_log import CONFLICT, EventLog, progress
from support.patience import PATIENCE_SECONDS

from querypulse.commands import cli
from querypulse.core import installed
from querypulse.replay import command
from querypulse.replay.engine import Replayed

UNREADABLE = 2


pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def log(tmp_path):
    """A query fails after 20 s, and its next run stalls for 76 s."""
    log = EventLog("etl").started("bronze", at=1).commits("bronze", since=3, until=21)
    log.ended("bronze", exception=CONFLICT).started("bronze", 2, at=22)
    log.commit("bronze", 2, batch=10, at=24).commit("bronze", 2, batch=11, at=100, seconds=70)
    log.commits("bronze", 2, batch=12, since=102, until=150).stopped(at=160)
    return log.write(tmp_path / "logs" / "log")


@pytest.fixture
def replay(capsys):
    """Run the command; returns exit code, output and errors."""

    def run(*arguments):
        code = cli.main(["replay", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def alerts(output):
    """(status, alertname) of each JSON line."""
    rows = [json.loads(line) for line in output.splitlines()]
    return [(row["status"], row["alertname"]) for row in rows]


FAILED = [("firing", "StreamingQueryFailed"), ("resolved", "StreamingQueryFailed")]
REPORTED = [
    ("firing", "StreamingQueryFailed"),
    ("firing", "StreamingQueryStalled"),
    ("resolved", "StreamingQueryFailed"),
    ("resolved", "StreamingQueryStalled"),
]


SUMMARY = (
    "1 application, 40 events over 2 min (2026-09-21 to 2026-09-21): 2 alerts in 1 notification\n"
)


def test_json_output_is_one_object_per_line_and_the_summary_goes_to_standard_error(replay, log):
    code, output, errors = replay(log, "--json")

    assert (code, alerts(output), errors) == (0, REPORTED, SUMMARY)
    assert json.loads(output.splitlines()[0]) == {
        "at": "2026-09-21T14:13:41.000Z",
        "status": "firing",
        "alertname": "StreamingQueryFailed",
        "query": "bronze",
        "severity": "critical",
        "reason": "ConcurrentAppendException: Files were added",
        "app": "etl",
    }


def test_default_output_has_aligned_columns(replay, log):
    rows = replay(log)[1].splitlines()

    assert len(rows) == 4
    assert " ".join(rows[0].split()) == (
        "2026-09-21 14:13:41.000Z firing critical StreamingQueryFailed etl/bronze "
        "ConcurrentAppendException: Files were added"
    )
    assert len({row.index("etl/bronze") for row in rows}) == 1


@pytest.mark.parametrize(
    ("seconds", "end"),
    [(3599, "2 notifications"), (7200, "2 notifications, at this rate 168 notifications a week")],
)
def test_summary_of_a_log_of_hours_says_how_many_notifications_a_week(seconds, end):
    replayed = Replayed("etl", "log", began_at=0.0, ended_at=float(seconds), opened=2)
    replayed.notifications = 2

    assert command.summary([replayed]).endswith(f"2 alerts in {end}")


def test_unreadable_lines_are_counted_and_not_fatal(replay, log):
    log.write_bytes(b"hello\n" + log.read_bytes() + b"hello\n")
    code, output, errors = replay(log, "--json")

    assert (code, alerts(output)) == (0, REPORTED)
    assert f"querypulse: {log}: 2 lines were not understood\n" in errors


def test_set_option_overrides_settings(replay, log):
    cases = [
        (["stall_floor_seconds=10", "stall_floor_seconds = 80"], FAILED),
        (['queries."bronze*".stall_floor_seconds=80'], FAILED),
        (["queries.a.ignore=true", "queries.bronze.ignore=true"], []),
        (["queries={bronze={ignore=true}}", "queries={a={ignore=true}}"], []),
        (["queries={bronze={ignore=true}}", "queries.a.ignore=true"], []),
        (['expected_queries=["bronze"]'], REPORTED),
        (['app_name="prod"', 'webhook_url="https://h/x"', "http_port=-1"], REPORTED),
    ]
    for choices, reported in cases:
        code, output, _ = replay(log, "--json", *(f"--set={choice}" for choice in choices))

        assert (code, alerts(output)) == (0, reported), choices


def test_set_option_builds_on_the_environments_settings(replay, log, monkeypatch, config):
    for key, value in config("stall_floor_seconds = 80\ngone_grace_seconds = 1").items():
        monkeypatch.setenv(key, value)

    assert alerts(replay(log, "--json")[1]) == FAILED
    assert alerts(replay(log, "--json", "--set", "stall_floor_seconds=60")[1]) == REPORTED


def test_invalid_set_option_gives_one_error_line(replay, log):
    choices = [
        ("colour=1", ["colour"]),
        ("stall_flor_seconds=1", ["stall_flor_seconds", "stall_floor_seconds"]),
        ("stall_floor_seconds=0", ["stall_floor_seconds", "above 0"]),
        ('stall_floor_seconds="x"', ["stall_floor_seconds"]),
        ("http_port=70000", ["http_port"]),
        ("app_name=prod", ["app_name=prod", 'app_name="prod"']),
        ("stall_floor_seconds", ["NAME=VALUE"]),
        ("=1", ["NAME=VALUE"]),
        ("[queries]", ["NAME=VALUE"]),
        ("expected_queries=[", ["expected_queries=["]),
        ("queries.a.colour=1", ["colour"]),
    ]
    for choice, words in choices:
        code, output, errors = replay(log, "--set", choice)

        assert (code, output) == (UNREADABLE, "")
        assert errors.startswith("querypulse: ")
        assert errors.count("\n") == 1
        assert [word for word in words if word not in errors] == []


def test_unreadable_file_does_not_stop_the_replay_of_others(replay, log):
    (log.parent / "a.lzf").write_bytes(b"ZV")
    readme = log.parent / "README.md"
    readme.write_text("# querypulse\n\nhello\n")
    code, output, errors = replay(log.parent, "--json")

    assert (code, alerts(output)) == (UNREADABLE, REPORTED)
    assert "a.lzf" in errors
    assert f"querypulse: {readme}: neither an event log nor recorded events\n" in errors


def test_missing_codec_package_stops_the_replay(replay, log, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (log.parent / "a.zstd").write_bytes(b"")
    code, output, errors = replay(log.parent)

    assert (code, output) == (UNREADABLE, "")
    assert "pip install zstandard" in errors
    assert errors.count("\n") == 1


def test_empty_log_is_not_an_error(replay, tmp_path):
    (tmp_path / "local-1.inprogress").write_bytes(b"")

    assert replay(tmp_path) == (0, "", "1 application, 0 events: 0 alerts\n")


@pytest.mark.parametrize(
    "arguments", [[], ["x", "--json", "--spark"], ["x", "--set"], ["x", "--why"]]
)
def test_wrong_arguments_exit_with_2(arguments):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["replay", *arguments])

    assert exit_.value.code == UNREADABLE


@pytest.mark.parametrize(("long_bytes", "is_terminal"), [(1, True), (10_000_000, True), (1, False)])
def test_only_a_long_replay_at_a_terminal_shows_its_progress(
    replay, log, monkeypatch, long_bytes, is_terminal
):
    is_shown = long_bytes == 1 and is_terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(command, "LONG_BYTES", long_bytes)
    _, output, errors = replay(log, "--json")

    assert errors.startswith("\r\x1b[K100%\r\x1b[K") == is_shown == ("%" in errors)
    assert errors.rpartition("\x1b[K")[2].startswith("1 application, ")
    assert alerts(output) == REPORTED


COMMAND = "import sys; from querypulse.commands.cli import main; sys.exit(main())"


@pytest.mark.slow
def test_plain_log_needs_neither_pyspark_nor_a_codec(log):
    blocked = "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'py4j', 'zstandard']))\n"
    done = subprocess.run(
        [sys.executable, "-Ic", blocked + COMMAND, "replay", "--json", str(log)],
        capture_output=True,
        text=True,
    )

    assert (done.returncode, alerts(done.stdout)) == (0, REPORTED)


@pytest.mark.slow
def test_closed_output_pipe_ends_it_without_a_traceback(tmp_path):
    log = EventLog()
    for number in range(1000):
        log.lines.append(json.dumps(progress(f"q{number}", 1, 0, number, 1.0)))
        log.ended(f"q{number}", exception=CONFLICT)
    log.write(tmp_path / "log")
    with subprocess.Popen(
        [sys.executable, "-Ic", COMMAND, "replay", str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert "StreamingQueryFailed" in process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()

        assert (process.wait(PATIENCE_SECONDS), errors) == (141, "")


def test_spark_connect_is_refused_before_a_session_starts(replay, log, monkeypatch):
    monkeypatch.setattr(installed.shutil, "which", lambda _: "/java")
    monkeypatch.setenv("SPARK_REMOTE", "sc://nowhere")

    assert replay("--spark", "--out", log.parent / "table", log) == (
        UNREADABLE,
        "",
        "querypulse: replay --spark needs a classic Spark session: unset SPARK_REMOTE\n",
    )


def test_spark_job_without_java_names_what_to_install(replay, log, monkeypatch):
    monkeypatch.setattr(installed.shutil, "which", lambda _: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code, output, errors = replay("--spark", log)

    assert (code, output) == (UNREADABLE, "")
    assert errors.startswith("querypulse: replay --spark needs Java")


def test_interrupted_replay_exits_silently(replay, log, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "find_applications", interrupted)

    assert replay(log) == (130, "", "")
