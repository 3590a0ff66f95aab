"""The recording of an incident is evaluated again: as it was, or with other settings."""

from __future__ import annotations

import gzip
import json
from operator import itemgetter

import msgspec
import pytest
from support.event_log import BEGAN, CONFLICT, EventLog, after, changes, recordings_of
from support.recordings import Tape

from querypulse.commands import cli
from querypulse.recording.lines import How
from querypulse.recording.thinning import thinned

pytestmark = pytest.mark.usefixtures("clean_environment")

UNREADABLE = 2
FAILED = "StreamingQueryFailed"
STALLED = "StreamingQueryStalled"


def beside(name, until):
    """A log in which query ``name`` commits every two seconds until then."""
    return EventLog().started(name, at=1).commits(name, since=4, until=until)


def mixed(*logs):
    """One log of several, by the times of their events."""
    log = EventLog()
    timed = [(at, line) for other in logs for at, line in _timed(other.lines[2:])]
    log.lines += [line for _, line in sorted(timed, key=itemgetter(0))]
    return log


def _timed(lines):
    """When each line arrived: an end, which has no time, with the line before it."""
    newest = 0.0
    for line in lines:
        event = json.loads(line)
        progress = event.get("progress")
        if progress is not None:
            newest = after(progress["timestamp"]) + progress["batchDuration"] / 1000
        elif "timestamp" in event:
            newest = after(event["timestamp"])
        yield newest, line


def fails():
    """Query ``a`` fails after 21 s, and its next run commits from 110 s on; ``b`` always does."""
    log = EventLog().started("a", at=1).commits("a", since=3, until=21)
    log.ended("a", exception=CONFLICT).started("a", 2, at=100)
    log.commits("a", 2, since=110, until=300, batch=10)
    return mixed(log, beside("b", 300))


def stalls():
    """Query ``a`` needs four minutes for one batch; ``b`` commits meanwhile."""
    log = EventLog().started("a", at=1).commits("a", since=3, until=61)
    log.commit("a", batch=31, at=301, seconds=239).commits("a", since=303, until=400, batch=32)
    return mixed(log, beside("b", 400))


def keeps_failing():
    """Query ``a`` fails every five minutes, for three hours."""
    log = EventLog().started("a", at=1)
    for run in range(1, 37):
        at = 300 * run
        log.commits("a", run, since=at - 250, until=at - 200, batch=100 * run)
        log.ended("a", run, exception=CONFLICT).started("a", run + 1, at=at - 180)
    return log


def three_fail():
    """Three queries fail for one cause within seconds, and all recover."""
    logs = []
    for number, name in enumerate(("a", "b", "c")):
        log = EventLog().started(name, at=1).commits(name, since=3, until=21 + 2 * number)
        log.ended(name, exception=CONFLICT).started(name, 2, at=60)
        logs.append(log.commits(name, 2, since=62, until=140, batch=30))
    return mixed(*logs)


@pytest.fixture
def replay(capsys):
    """Run the command; returns exit code, changes and errors."""

    def run(*arguments):
        code = cli.main(["replay", "--json", *map(str, arguments)])
        output, errors = capsys.readouterr()
        return code, [json.loads(line) for line in output.splitlines()], errors

    return run


def recorded(log, tmp_path, **settings):
    return recordings_of(log.write(tmp_path / "log"), tmp_path / "incidents", **settings)


def named(found):
    return [(change["status"], change["alertname"], change["query"]) for change in found]


def rewritten(path, change):
    """Rewrite each line of a recording; one for which ``change`` returns None goes."""
    lines = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines if line))
    return path


# -- as it was --------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [fails, stalls, keeps_failing])
def test_recordings_of_a_log_give_the_alerts_of_the_log_again(tmp_path, replay, log):
    written = log().write(tmp_path / "log")
    recordings_of(written, tmp_path / "incidents")
    before = [(change.at, change.status, change.alertname) for change in changes(written)]

    code, found, errors = replay(tmp_path / "incidents")

    again = [(change["at"], change["status"], change["alertname"]) for change in found]
    assert sorted(again) == sorted(before)
    assert (code, "querypulse:" in errors) == (0, False)


def test_those_that_fail_for_one_cause_are_in_the_recordings_of_the_first_and_of_the_driver(
    tmp_path, replay
):
    of_first, of_driver = recorded(three_fail(), tmp_path)

    assert named(replay(of_first)[1]) == [("firing", FAILED, "a"), ("resolved", FAILED, "a")]
    assert sorted(named(replay(of_driver)[1])) == [
        (status, FAILED, query) for status in ("firing", "resolved") for query in ("b", "c")
    ]


def test_summary_counts_recordings_and_promises_no_rate(tmp_path, replay):
    (path,) = recorded(keeps_failing(), tmp_path)[:1]

    _, _, errors = replay(path)

    assert errors.startswith("1 recording, ")
    assert "a week" not in errors


def test_query_beside_the_incident_raises_no_alert(tmp_path, replay):
    """Query ``b`` is stalled when ``a`` fails; only the recording of its own incident says so."""
    log = EventLog().started("a", at=1).started("b", at=1).commit("b", batch=0, at=3)
    log.commits("a", since=3, until=201).ended("a", exception=CONFLICT).work(at=260)
    of_b, of_a = recorded(log, tmp_path)

    assert named(replay(of_a)[1]) == [("firing", FAILED, "a")]
    assert named(replay(of_b)[1]) == [("firing", STALLED, "b")]


def test_app_and_labels_are_those_of_the_recording(tmp_path, replay):
    (path,) = recorded(fails(), tmp_path)

    assert {change["app"] for change in replay(path)[1]} == {"etl"}
    assert {change["app"] for change in replay(path, "--set", "app_name='x'")[1]} == {"x"}


def test_silenced_incident_notifies_nobody(tmp_path, replay):
    (path,) = recorded(fails(), tmp_path)
    silences = [{"queries": "a", "until": BEGAN + 9999, "alertname": "*", "reason": "", "app": "*"}]
    begin, rest = path.read_text().split("\n", 1)
    line = {"kind": "silences", "at": BEGAN, "silences": silences}
    path.write_text(f"{begin}\n{json.dumps(line)}\n{rest}")

    code, found, errors = replay(path)

    assert named(found) == [("firing", FAILED, "a"), ("resolved", FAILED, "a")]
    assert (code, "notification" in errors) == (0, False)


def test_environment_does_not_change_what_a_recording_gives(tmp_path, replay, monkeypatch):
    (path,) = recorded(stalls(), tmp_path)
    before = replay(path)
    monkeypatch.setenv("QUERYPULSE_STALL_FLOOR_SECONDS", "3600")

    assert replay(path) == before


def test_incident_of_an_earlier_process_is_open_and_notifies_nobody_again(tmp_path, replay):
    (path,) = recorded(fails(), tmp_path)
    labels = {"app": "etl", "query": "a"}
    alert = {
        "labels": labels | {"alertname": FAILED, "severity": "critical"},
        "annotations": {"reason": "failed before"},
        "starts_at": BEGAN,
    }
    incident = {
        "key": "querypulse/etl/a",
        "labels": labels,
        "severity": "critical",
        "alerts": [alert],
    }
    rewritten(
        path,
        lambda line: line | {"restored": [incident]} if line["kind"] == "begin" else line,
    )

    _, found, errors = replay(path)

    assert named(found) == [("firing", FAILED, "a"), ("resolved", FAILED, "a")]
    assert "notification" not in errors


# -- with other settings ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "alerts"),
    [
        ("stall_floor_seconds=3600", 0),
        ('queries."a".stall_floor_seconds=3600', 0),
        ('queries."b".stall_floor_seconds=3600', 1),
        ('queries."a".ignore=true', 0),
        ("stall_floor_seconds=120", 1),
    ],
)
def test_set_option_overrides_a_setting_of_the_recording(tmp_path, replay, choice, alerts):
    (path,) = recorded(stalls(), tmp_path)

    code, found, _ = replay(path, "--set", choice)

    assert (code, len([change for change in found if change["status"] == "firing"])) == (0, alerts)


def test_higher_floor_opens_the_alert_later(tmp_path, replay):
    (path,) = recorded(stalls(), tmp_path)
    choices = ((), ("--set", "stall_floor_seconds=120"))
    opened = [replay(path, *choice)[1][0]["at"] for choice in choices]

    assert opened == sorted(set(opened))


def test_settings_of_the_recording_count_where_none_is_chosen(tmp_path, replay):
    (path,) = recorded(stalls(), tmp_path, stall_floor_seconds=100.0)

    assert len(replay(path)[1]) == 2
    assert len(replay(path, "--set", "resolve_after_seconds=900")[1]) == 1


def test_unknown_setting_is_refused(tmp_path, replay):
    (path,) = recorded(fails(), tmp_path)

    code, found, errors = replay(path, "--set", "stal_floor=1")

    assert (code, found) == (UNREADABLE, [])
    assert "stall_floor_seconds" in errors


# -- what cannot be read ----------------------------------------------------------------------


def test_recording_that_is_cut_anywhere_gives_a_part_of_the_alerts(tmp_path, replay):
    (path,) = recorded(fails(), tmp_path)
    content = path.read_bytes()
    _, whole, _ = replay(path)
    first = content.index(b"\n") + 1

    for end in [first, first + 1, *range(first + 2, len(content), 997)]:
        path.write_bytes(content[:end])
        code, found, errors = replay(path)

        has_state = b'"kind":"state"' in content[:end] and end > content.index(b'"kind":"alert"')
        assert found == whole[: len(found)]
        assert "Traceback" not in errors
        if has_state:
            assert code == 0


@pytest.mark.parametrize("end", [0, 1, 40])
def test_recording_without_its_first_line_is_neither_log_nor_recording(tmp_path, replay, end):
    (path,) = recorded(fails(), tmp_path)
    path.write_bytes(path.read_bytes()[:end])

    code, found, errors = replay(path)

    assert found == []
    assert "Traceback" not in errors
    assert code in (0, UNREADABLE)


def test_newer_version_is_refused_and_named(tmp_path, replay):
    (path,) = recorded(fails(), tmp_path)
    rewritten(path, lambda line: line | {"version": 99} if line["kind"] == "begin" else line)

    code, found, errors = replay(path)

    assert (code, found) == (UNREADABLE, [])
    assert "version 99" in errors


def test_unknown_settings_kinds_and_fields_are_left_out_and_named(tmp_path, replay):
    (path,) = recorded(fails(), tmp_path)
    _, before, _ = replay(path)
    later = {"kind": "dream", "at": BEGAN}

    def newer(line):
        if line["kind"] == "begin":
            given = {"dreams": 1, "expected_queries": [{}], "stall_floor_seconds": -1}
            return line | {"settings": line["settings"] | given}
        return later if line["kind"] == "notification" else line | {"new": [1]}

    rewritten(path, newer)
    code, found, errors = replay(path)

    assert (code, found) == (UNREADABLE, before)
    assert "left out: dreams, expected_queries, stall_floor_seconds" in errors
    assert "2 lines were not understood" in errors


@pytest.mark.parametrize(
    "broken",
    [
        {"driver": {"at": "soon"}},
        {"driver": {"pauses": [1]}},
        {"driver": {"$removed": [[]]}},
        {"queries": {"a": 1}},
        {"queries": {"a": {"run": None}}},
    ],
)
def test_state_that_is_not_understood_is_left_out_and_said(tmp_path, replay, broken):
    (path,) = recorded(fails(), tmp_path)
    states = []

    def damage(line):
        if line["kind"] == "state":
            states.append(line)
        return line | broken if line["kind"] == "state" and len(states) == 3 else line

    rewritten(path, damage)
    code, found, errors = replay(path)

    assert code == UNREADABLE
    assert "states were not understood" in errors
    assert found[:1] == [change for change in found if change["status"] == "firing"]


def test_recording_without_a_state_says_so(tmp_path, replay):
    path = Tape("billing", at=61).end(at=90, how=How.CLOSED).write_to(tmp_path)

    code, found, errors = replay(path)

    assert (code, found) == (UNREADABLE, [])
    assert "no states" in errors


def test_compressed_recording_is_read_as_far_as_it_goes(tmp_path, replay):
    (path,) = recorded(fails(), tmp_path)
    _, whole, _ = replay(path)
    packed = gzip.compress(path.read_bytes())
    place = tmp_path / "incident.jsonl.gz"
    place.write_bytes(packed)
    assert replay(place)[:2] == (0, whole)

    place.write_bytes(packed[: len(packed) * 9 // 10])
    code, found, errors = replay(place)

    assert (code, found) == (UNREADABLE, whole[: len(found)])
    assert "cut off" in errors


def test_thinned_recording_recovers_in_no_gap_and_names_it(tmp_path, replay):
    *_, path = recorded(keeps_failing(), tmp_path)
    _, whole, _ = replay(path)
    path.write_bytes(thinned(path.read_bytes(), 64 * 1024))

    code, found, errors = replay(path)

    assert (code, named(found)) == (0, named(whole))
    assert "lines from" in errors
    assert "left out" in errors
