"""``querypulse incidents`` lists recordings, ``querypulse incident`` shows one in order."""

from __future__ import annotations

import json
import os
import re

import msgspec
import pytest
from support.http_double import HttpDouble, closed_port, reply
from support.recordings import (
    FAILED,
    Tape,
    all_stories,
    failed_and_restarted,
    hung_and_stopped,
    killed_and_continued,
)

from querypulse.commands import cli
from querypulse.commands.incidents import HEADINGS, MOST_MOMENTS, show_incident
from querypulse.core import CommandError
from querypulse.recording.page import page_of
from querypulse.recording.timeline import Summary, Timeline, summary_of, timeline_of

COULD_NOT_BEGIN = 2

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def run(capsys):
    """Run a command; returns exit code, output and errors."""

    def run(*arguments):
        code = cli.main([*map(str, arguments)])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def folder(tmp_path):
    """A folder with all stories."""
    for tape in (tape for tapes in all_stories() for tape in tapes):
        tape.write_to(tmp_path)
    return tmp_path


# -- the table ----------------------------------------------------------------------------------


def test_table_has_the_newest_incident_first(run, folder):
    code, output, errors = run("incidents", folder)

    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert re.split("  +", lines[0]) == list(HEADINGS)
    assert [line.split("  ")[0] for line in lines[1::2]] == [
        "2026-11-23 00:02:40",
        "2026-11-23 00:01:02",
        "2026-11-23 00:01:01",
        "2026-11-23 00:01:01",
    ]
    assert re.split("  +", lines[1])[1:] == [
        "13 min",
        "bronze",
        "task_running",
        "bronze commits again",
        "2 (webhook, pagerduty)",
        hung_and_stopped().id,
    ]
    assert lines[2].startswith("    [orders] bronze is stalled: ")


def test_table_as_json_is_what_a_driver_serves(run, folder):
    code, output, _ = run("incidents", folder, "--json")

    summaries = msgspec.json.decode(output, type=list[Summary])
    assert code == 0
    assert len(summaries) == len(all_stories())
    assert summary_of([hung_and_stopped().recording]) in summaries


def test_parts_of_a_recording_are_one_row(run, tmp_path):
    for tape in killed_and_continued():
        tape.write_to(tmp_path)

    (summary,) = json.loads(run("incidents", tmp_path, "--json")[1])
    assert len(summary["parts"]) == 2


def test_only_the_newest_of_many_recordings_are_read(run, folder):
    for number in range(1000):
        # A recording that is read would be refused.
        (folder / f"20200101T000000Z-orders-old-{number:06}.jsonl").touch()

    code, output, errors = run("incidents", folder, "--last", 4)
    assert (code, errors) == (0, "")
    assert output.splitlines()[-1] == "and 1000 older; --last 1004 shows all"


def test_files_that_are_no_recordings_are_named_and_left_out(run, folder):
    (folder / "events.jsonl").write_text('{"Event":"SparkListenerLogStart"}\n')
    (folder / "notes.jsonl").write_bytes(os.urandom(100))
    (folder / "notes.txt").touch()

    code, output, errors = run("incidents", folder)
    assert (code, len(output.splitlines())) == (0, 1 + 2 * len(all_stories()))
    assert errors.endswith("notes.jsonl: not a recording of an incident; 2 files are none\n")


@pytest.mark.parametrize(
    ("setting", "inside"), [("INCIDENTS_DIR", "."), ("SPOOL_DIR", "incidents")]
)
def test_default_folder_is_that_of_the_settings(run, tmp_path, monkeypatch, setting, inside):
    monkeypatch.setenv(f"QUERYPULSE_{setting}", str(tmp_path))
    (tmp_path / inside).mkdir(exist_ok=True)
    tape = failed_and_restarted()
    tape.write_to(tmp_path / inside)

    assert tape.id in run("incidents")[1]
    assert run("incident", tape.id)[1] == run("incident", f"{tape.id}.jsonl")[1]


def test_folder_without_recordings_says_so(run, tmp_path):
    assert run("incidents", tmp_path) == (0, "no incident has been recorded\n", "")


# -- one incident -------------------------------------------------------------------------------


def test_incident_begins_with_the_answers(run, folder):
    tape = failed_and_restarted()
    code, output, errors = run("incident", folder / f"{tape.id}.jsonl")

    assert (code, errors) == (0, "")
    lines = output.splitlines()
    assert lines[:2] == [
        "[orders] billing failed: ValueError: negative amount",
        f"recording {tape.id}",
    ]
    assert lines[3:5] == [
        "What happened first",
        "  2026-11-23 00:01:00 UTC: billing failed: ValueError: negative amount, raised at "
        "/job/billing.py:41 in write.",
    ]
    assert "2026-11-23 (UTC)" in lines
    assert "00:05:00  run           billing was started again" in lines
    assert lines[-2:] == [
        "billing: 7 batches, the longest took 8 s",
        "stacks and errors: 1, of 9 lines; --full prints them",
    ]


def test_parts_beside_a_file_are_read_with_it(run, folder):
    first, second = killed_and_continued()
    outputs = {run("incident", folder / f"{tape.id}.jsonl")[1] for tape in (first, second)}

    (output,) = outputs
    assert f"recording {first.id}, 2 files" in output


def test_part_that_cannot_be_read_is_named_and_left_out(run, folder):
    first, second = killed_and_continued()
    (folder / f"{second.id}.jsonl").write_bytes(b"")

    code, output, errors = run("incident", folder / f"{first.id}.jsonl")
    assert (code, errors.count("\n")) == (0, 1)
    assert f"{second.id}.jsonl: not a recording of an incident" in errors
    assert "it breaks off at 00:01:01 UTC" in output


def test_copy_of_one_part_is_read_alone(run, tmp_path):
    second = killed_and_continued()[1]
    path = tmp_path / "copy"
    path.write_bytes(second.content)

    code, output, _ = run("incident", path)
    assert code == 0
    assert "The next process goes on recording in the driver" in output


def test_full_output_has_the_stacks_and_no_counts(run, folder):
    output = run("incident", folder / f"{hung_and_stopped().id}.jsonl", "--full")[1]

    assert "          org.apache.spark.scheduler.JobWaiter.awaitResult\n" in output
    assert "--full" not in output


def test_middle_of_many_moments_is_counted(run, tmp_path):
    tape = Tape(at=0).alert("billing", FAILED, at=0)
    for at in range(1, 2 * MOST_MOMENTS):
        tape.notified(f"receiver-{at}", at=at)
    path = tape.write_to(tmp_path)

    output = run("incident", path)[1]
    full = run("incident", path, "--full")[1]
    more = len(timeline_of([tape.recording]).moments) - MOST_MOMENTS
    assert f"... {more} more; --full prints them" in output.splitlines()
    assert len(full.splitlines()) - len(output.splitlines()) == more - 1


def test_incident_as_json_is_its_timeline(run, folder):
    tape = failed_and_restarted()
    code, output, _ = run("incident", folder / f"{tape.id}.jsonl", "--json")

    assert code == 0
    assert msgspec.json.decode(output, type=Timeline) == timeline_of([tape.recording])


def test_page_is_written_of_one_incident_and_of_many(run, folder, tmp_path):
    tape = failed_and_restarted()
    one, many = tmp_path / "one.html", tmp_path / "many.html"

    assert run("incident", folder / f"{tape.id}.jsonl", "--html", one) == (0, "", "")
    tape.write_to(folder).rename(folder / "renamed.jsonl")
    assert run("incidents", folder, "--html", many) == (0, "", "")
    assert one.read_text() == page_of(
        [timeline_of([tape.recording])], "[orders] billing failed: ValueError: negative amount"
    )
    assert many.read_text().count("<section") > one.read_text().count("<section")


HOSTILE = "bronze\x1b[2J\x1b]0;title\x07\n\r\u202eevil"


def test_hostile_names_are_printed_as_escapes(run, tmp_path):
    tape = Tape(HOSTILE, at=61).alert(HOSTILE, FAILED, at=61, reason=HOSTILE, does=HOSTILE)
    tape.stack(HOSTILE, at=62, jvm=(HOSTILE,), python=HOSTILE)
    tape.notified(HOSTILE, at=63, error=HOSTILE, outcome="failed")
    tape.request(HOSTILE, HOSTILE, at=64)
    path = tape.write_to(tmp_path)

    output = run("incidents", tmp_path)[1] + run("incident", path, "--full")[1]
    assert r"bronze\x1b[2J" in output
    assert all(letter.isprintable() or letter == "\n" for letter in output)


# -- wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["incidents"], "name a folder, or a driver such as https://HOST:9719, or set "),
        (["incidents", "/nowhere"], "/nowhere: no such folder"),
        (["incidents", "{file}"], "{file}: a file, not a folder; querypulse incident {file} "),
        (["incidents", "s3a://bucket/x"], "s3a://bucket/x: only Spark can read it: "),
        (["incidents", "https://"], "incidents: URL "),
        (["incidents", "https://h", "--token-file", "/nowhere"], "incidents: --token-file"),
        (["incidents", "https://h", "--ca-file", "/nowhere"], "incidents: --ca-file"),
        (["incidents", "http://h", "--token-file", "{file}"], "incidents: http://h: the token of "),
        (["incident", "/nowhere"], "/nowhere: no such file"),
        (["incident", "nothing"], "nothing: no such file"),
        (["incident", "a\0b"], "no such file"),
        (["incident", "{folder}/" + "a" * 300], "File name too long"),
        (["incidents", "{folder}/" + "a" * 300], "File name too long"),
        (["incident", "{folder}"], "{folder}: a folder; querypulse incidents {folder} lists "),
        (["incident", "{file}"], "{file}: not a recording of an incident"),
        (["incident", "{empty}"], "{empty}: not a recording of an incident"),
        (["incident", "/dev/zero"], "/dev/zero: not a file"),
        (["incident", "{newer}"], "{newer}: written by querypulse 9.0, as version 99; this one "),
        (
            ["incidents", "{folder}/empty-folder", "--html", "{folder}/x"],
            "not written: no incident ",
        ),
        (["incident", "{recording}", "--html", "{folder}"], "{folder}: Is a directory"),
        (["incident", "{recording}", "--html", "/nowhere/x"], "/nowhere/x: No such file"),
        (["incident", "https://h/x"], "the URL of an incident ends in /incidents/ID; "),
    ],
)
def test_wrong_input_gets_a_clear_answer(run, tmp_path, arguments, answer):
    paths = {name: tmp_path / name for name in ("file", "empty", "newer")}
    paths["file"].write_bytes(b"\0\xff" * 100)
    paths["empty"].touch()
    content = Tape(at=1).content.replace(b'"version":1', b'"version":99')
    paths["newer"].write_bytes(content.replace(b"0.1.0", b"9.0"))
    (tmp_path / "empty-folder").mkdir()
    recording = failed_and_restarted().write_to(tmp_path)
    places = {**paths, "folder": tmp_path, "recording": recording}

    code, output, errors = run(*[argument.format(**places) for argument in arguments])
    assert (code, output, errors.count("\n")) == (COULD_NOT_BEGIN, "", 1)
    assert errors.startswith("querypulse: ")
    assert answer.format(**places) in errors


@pytest.mark.parametrize("count", ["0", "-1", "x", "1000001", "²"])
def test_wrong_count_is_refused(run, capsys, count):
    with pytest.raises(SystemExit):
        run("incidents", ".", f"--last={count}")
    assert f"a number, 1 or more, given '{count}'" in capsys.readouterr().err


@pytest.mark.slow
def test_each_cut_of_a_file_is_a_timeline_or_a_clear_error(run, tmp_path, capsys):
    tape = Tape(at=61).alert("billing", FAILED, at=61, does="failed", reason="ValueError")
    tape.notified(at=62).end(at=90)
    path = tmp_path / f"{tape.id}.jsonl"
    first = tape.content.index(b"\n")
    for end in range(len(tape.content)):
        path.write_bytes(tape.content[:end])
        if end < first:
            with pytest.raises(CommandError, match=f"{tape.id}.jsonl: not a recording"):
                show_incident({}, str(path))
        else:
            assert show_incident({}, str(path)) == 0
            assert "What ended it" in capsys.readouterr().out
    assert run("incidents", tmp_path)[0] == 0


# -- a driver -----------------------------------------------------------------------------------


@pytest.fixture
def driver():
    with HttpDouble() as double:
        yield double


def test_driver_lists_its_incidents_for_who_has_the_token(run, driver, tmp_path):
    (tmp_path / "token").write_text("secret-token\n")
    tape = failed_and_restarted()
    body = msgspec.json.encode([summary_of([tape.recording])])
    driver.otherwise = reply(200, body=body)

    code, output, errors = run("incidents", driver.url, "--token-file", tmp_path / "token")
    assert (code, errors) == (0, "")
    assert tape.id in output
    (request,) = driver.requests
    assert (request.path, request.headers["Authorization"]) == ("/incidents", "Bearer secret-token")


def test_driver_shows_one_incident(run, driver):
    timeline = timeline_of([failed_and_restarted().recording])
    driver.otherwise = reply(200, body=msgspec.json.encode(timeline))

    url = f"{driver.url}/incidents/{timeline.summary.id}"
    assert run("incident", url, "--json")[1] == (
        msgspec.json.format(msgspec.json.encode(timeline)).decode() + "\n"
    )
    assert driver.requests[0].path == f"/incidents/{timeline.summary.id}"
    assert "Authorization" not in driver.requests[0].headers
    # An address as a browser shows it.
    assert run("incident", f"{url}.html#i1-3", "--json")[0] == 0
    assert driver.requests[1].path == driver.requests[0].path


def test_page_of_a_driver_has_all_its_incidents(run, driver, tmp_path):
    timelines = [timeline_of([part.recording for part in parts]) for parts in all_stories()]
    bodies = [[timeline.summary for timeline in timelines], *timelines]
    driver.script.extend(reply(200, body=msgspec.json.encode(body)) for body in bodies)

    assert run("incidents", f"{driver.url}/incidents/", "--html", tmp_path / "page")[0] == 0
    assert len(driver.requests) == 1 + len(timelines)
    assert "bronze is stalled" in (tmp_path / "page").read_text()


@pytest.mark.parametrize("path", ["", "/incidents/x"])
def test_driver_that_refuses_is_named(run, driver, path):
    command = "incident" if path else "incidents"
    driver.otherwise = reply(401, body=b'{"error":"no token\\u001b[2J"}')

    code, output, errors = run(command, f"{driver.url}{path}")
    assert (code, output) == (COULD_NOT_BEGIN, "")
    assert errors == f"querypulse: {driver.url} answered 401: no token\\x1b[2J\n"


@pytest.mark.parametrize("strange", [b"<html>", b"[1]", b"{}", b"", b"[" * 9000, None])
def test_answer_of_another_kind_is_refused(run, driver, strange):
    summary = msgspec.to_builtins(summary_of([failed_and_restarted().recording]))
    beyond_calendar = msgspec.json.encode([{**summary, "since": 1e300}])
    driver.otherwise = reply(200, body=beyond_calendar if strange is None else strange)

    code, output, errors = run("incidents", driver.url)
    assert (code, output, errors.count("\n")) == (COULD_NOT_BEGIN, "", 1)
    assert errors.startswith(f"querypulse: {driver.url} is no Driver: ")


def test_driver_that_does_not_answer_is_named(run):
    with closed_port() as port:
        url = f"http://127.0.0.1:{port}"
        answer = f"querypulse: {url}: ConnectionError: no answer\n"
        assert run("incidents", url) == (COULD_NOT_BEGIN, "", answer)
