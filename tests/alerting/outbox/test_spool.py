"""Unsent and open alerts survive the driver: on a real disk, with processes that are killed."""

import errno
import fcntl
import logging
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from support import spooling
from support.deliveries import WALL, Recorder, incident
from support.patience import NEVER, PATIENCE_SECONDS, ended, until
from support.spooling import entry

from querypulse.alerting.alert import AlertOutcome, GoesOn
from querypulse.alerting.delivery.deliveries import Delivery, Notifier
from querypulse.alerting.delivery.outbox import Known
from querypulse.alerting.delivery.spool import (
    WRITE_AHEAD_SECONDS,
    Spool,
    SpoolFile,
    try_folder,
)
from querypulse.core.guard import Guard

TESTS = Path(spooling.__file__).parents[1]


@pytest.fixture
def child(folder):
    """Start child processes that spool, and kill them after the test."""
    children = []

    def start(mode, *, awaited=True):
        command = [sys.executable, "-m", "support.spooling", str(folder), mode]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        one = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        children.append(one)
        if awaited:
            assert one.stdout.readline() == "ready\n"
        return one

    yield start
    for one in children:
        one.kill()
        one.wait()
        one.stdout.close()


def killed(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def written(spool, **entries):
    """A spool with these entries on the disk."""
    spool.load(PATIENCE_SECONDS)
    for receiver, held in entries.items():
        spool.offer_rows(receiver, held)
    assert spool.flush(PATIENCE_SECONDS)
    return spool


def document(folder):
    (path,) = folder.glob("outbox-*.json")
    return path


def mode(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


def states(entries):
    return {name: [one.known.value for one in held] for name, held in entries.items()}


def test_changed_annotations_alone_cause_no_write(spool, folder):
    """Annotations change four times per second; writing each change would only load the disk."""
    kept = written(spool(), pager=(entry(1, size=10),))
    before = document(folder).stat().st_ino
    written(kept, pager=(entry(1, size=20),))
    assert document(folder).stat().st_ino == before
    written(kept, pager=(entry(1, Known.FIRING, size=20),))

    assert document(folder).stat().st_ino != before


def test_each_application_has_its_own_file(spool, folder):
    written(spool("etl"), pager=(entry(1),))
    written(spool("../../etl \0 nightly"), pager=(entry(2),))

    assert len(list(folder.glob("outbox-*.json"))) == 2
    assert {path.parent for path in folder.rglob("*")} == {folder}


def test_spool_is_readable_only_by_its_owner(spool, folder):
    umask = os.umask(0)
    try:
        written(spool(), pager=(entry(1),))
        modes = {path.suffix: mode(path) for path in folder.iterdir()}
    finally:
        os.umask(umask)

    assert mode(folder) == "0o700"
    assert modes == {".json": "0o600", ".lock": "0o600"}


# -- killed processes -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.fault(
    "Ends and kills",
    "SIGKILL while the spool is written",
    "The spool holds all of the write or nothing",
)
def test_process_killed_during_a_write_leaves_all_or_nothing(child, spool, folder):
    """At any moment, the file holds one complete offer for each receiver."""
    seen = set()
    for seed in range(3):
        process = child("busy writer")
        # Not to wait for anything, but to kill at another moment each time.
        time.sleep(random.Random(seed).uniform(0.05, 0.4))
        killed(process)
        one = spool()
        entries = getattr(one.load(PATIENCE_SECONDS), "rows", {})
        one.close(PATIENCE_SECONDS)
        assert one.problem == ""
        assert {path.suffix for path in folder.iterdir()} == {".json", ".lock"}
        for held in states(entries).values():
            assert len(held) == 20
            assert len(set(held)) == 1
            seen.update(held)
    assert seen


def test_next_driver_delivers_the_rest_and_nothing_twice(child, spool):
    """One page was sent and is open, the other was never sent; both have ended since."""
    killed(child("holds"))
    kept, recorder = spool(), Recorder("pager")
    delivery = Delivery(recorder, Guard(), spool=kept)
    restored = []
    notifier = Notifier((delivery,), kept, restore=restored.extend)
    delivery.start()
    notifier.offer(tuple(restored))
    assert delivery.flush(PATIENCE_SECONDS)
    assert recorder.sent == [("q1", "firing")]

    notifier.offer(())
    assert delivery.flush(PATIENCE_SECONDS)
    delivery.close(PATIENCE_SECONDS)
    kept.close(PATIENCE_SECONDS)
    assert sorted(recorder.sent[1:]) == [("q1", "resolved"), ("q2", "resolved")]
    assert spool().load(PATIENCE_SECONDS).rows == {}


# -- faults -----------------------------------------------------------------------------------


DAMAGES = {
    "overwritten": lambda _: b"This is not a document at all. " * 100,
    "garbled": lambda content: content[:4096] + random.Random(1).randbytes(len(content) - 4096),
    "cut off": lambda content: content[:5000],
    "empty": lambda _: b"",
    "nested": lambda _: b'{"x":' + b"[" * 100_000,
    "newer": lambda content: content.replace(b'"version":3', b'"version":4'),
    "huge times, of the version before": lambda _: (
        b'{"version": 2, "opened": [{"alertname": "a", "query": "b", "at": [1.5, 2, %s]}]}'
        % (b"9" * 400)
    ),
    "foreign, of the version before": lambda _: b'{"version": 2, "rows": {"pager": [{}]}}',
    "foreign": lambda _: b'{"version": 3, "rows": {"pager": [{"cake": "flour"}]}}',
    "a failure": lambda _: b'{"version": 3, "failures": [{"query_id": "i", "deaths": [{}]}]}',
    "opened never": lambda _: (
        b'{"version": 3, "opened": [{"alertname": "a", "query": "b", "at": []}]}'
    ),
    "opened": lambda _: b'{"version": 3, "opened": [{"alertname": "a", "query": "b"}]}',
    "failures without times": lambda _: (
        b'{"version": 3, "failures": [{"query_id": "i", "mark": "m", "unrecovered_deaths": 1}]}'
    ),
    "fewer failures than none": lambda _: (
        b'{"version": 3, "failures": [{"query_id": "i", "mark": "m", "unrecovered_deaths": -1}]}'
    ),
    "an incident's labels": lambda content: content.replace(b'"query":', b'"other":', 1),
    "an alert's labels": lambda content: content.replace(b'"alertname":', b'"other":', 1),
}


@pytest.mark.fault(
    "Disk, port and mounts", "The spool file is damaged", "It is moved aside and replaced"
)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_unreadable_file_is_moved_aside_and_replaced(spool, folder, caplog, damage):
    """The log reports it; the file is kept for inspection."""
    written(spool(), pager=tuple(entry(number) for number in range(50))).close(PATIENCE_SECONDS)
    document(folder).write_bytes(damage(document(folder).read_bytes()))
    one = spool()
    assert not one.load(PATIENCE_SECONDS)
    written(one, pager=(entry(7),)).close(PATIENCE_SECONDS)

    aside = folder / f"{document(folder).name}.corrupt-1700000000"
    assert aside.exists()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(aside) in caplog.text
    assert spool().load(PATIENCE_SECONDS).rows == {"pager": (entry(7),)}


def test_file_of_the_version_before_is_read_with_the_state_of_its_alerts(spool, folder):
    """There, the state of an alert was in its annotations."""
    empty = spool()
    written(empty, pager=(entry(1),)).close(PATIENCE_SECONDS)
    document(folder).write_bytes((TESTS / "fixtures" / "spool-version-2.json").read_bytes())
    successor = spool()
    kept = successor.load(PATIENCE_SECONDS)
    assert successor.flush(PATIENCE_SECONDS)
    firing, ended, moved = (row.incident.alerts for row in kept.rows["pager"])
    a, b = firing

    assert (a.end, a.incident, a.muted[:8], a.code) == (None, "*", "silenced", "batch_hung")
    assert (a.calm_seconds, b.calm_seconds) == (2900, 0)
    assert {alert.end.at for alert in (*ended, *moved)} == {WALL - 5}
    assert {alert.end.outcome for alert in ended} == {*AlertOutcome} - {AlertOutcome.TEST_OVER}
    assert [alert.end.goes_on for alert in moved] == list(GoesOn)
    assert {name for alert in (a, *ended, *moved) for name in alert.annotations} == {
        "summary",
        "reason",
        "runbook_url",
    }
    assert [failed.query_id for failed in kept.failures] == ["id-a"]
    assert msgspec.json.decode(document(folder).read_bytes())["version"] == 3


@pytest.mark.contains_errors
def test_file_of_the_version_before_is_read_from_a_disk_that_is_full(spool, folder, monkeypatch):
    written(spool(), pager=(entry(1),)).close(PATIENCE_SECONDS)
    document(folder).write_bytes((TESTS / "fixtures" / "spool-version-2.json").read_bytes())
    monkeypatch.setattr(SpoolFile, "write", Mock(side_effect=OSError(errno.ENOSPC, "full")))

    assert len(spool().load(PATIENCE_SECONDS).rows["pager"]) == 3


def test_second_process_waits_for_the_lock_and_then_takes_over(child, spool, folder, monkeypatch):
    """The file has one owner, even if two drivers share a name or one ends slowly."""
    monkeypatch.setattr("querypulse.alerting.delivery.spool.RETRY_SECONDS", 0.05)
    process = child("holds")
    one = spool()
    assert one.load(PATIENCE_SECONDS) is None
    assert one.problem.endswith("in use by another process")
    one.offer_rows("pager", (entry(3),))
    assert one.flush(0.2) is False
    killed(process)
    late = until(lambda: one.load(0.0), "the lock is free").rows
    assert states(late) == {"pager": ["nothing", "firing"]}

    assert one.flush(PATIENCE_SECONDS)
    kept = msgspec.json.decode(document(folder).read_bytes())["rows"]["pager"]
    assert len(kept) == 2, "an offer made before the lock was free must not replace them"
    one.offer_rows("pager", (*late["pager"], entry(3)))
    assert one.flush(PATIENCE_SECONDS)
    until(lambda: one.problem == "", "the problem is cleared")
    one.close(PATIENCE_SECONDS)
    assert len(spool().load(PATIENCE_SECONDS).rows["pager"]) == 3


AT_DISK = partial(pytest.mark.fault, "Disk, port and mounts")
READ_ONLY = AT_DISK("`spool_dir` is read-only", "It is reported; delivery goes on")
FULL = AT_DISK("The disk under `spool_dir` is full", "It is reported; closing is not delayed")
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.mark.parametrize(
    ("child_mode", "reported"),
    [
        pytest.param("nobody", "Permission denied", marks=[READ_ONLY, AS_ROOT]),
        pytest.param("full", "File too large", marks=FULL),
    ],
)
def test_disk_that_refuses_is_reported_and_does_not_delay_close(
    folder, child, child_mode, reported
):
    folder.mkdir(mode=0o755)
    folder.parent.chmod(0o755)
    (output, _) = child(child_mode, awaited=False).communicate(timeout=3 * PATIENCE_SECONDS)

    assert output.startswith("False ")
    assert reported in output
    assert "{'spool': 1}" in output


@pytest.mark.contains_errors
def test_folder_that_cannot_be_created_does_not_stop_delivery(spool, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    one = spool(where=tmp_path / "file" / "spool")
    recorder = Recorder()
    delivery = Delivery(recorder, Guard(), spool=one)
    delivery.start()
    assert one.load(PATIENCE_SECONDS) is None
    delivery.offer((incident(),))
    assert delivery.flush(PATIENCE_SECONDS)
    delivery.close(PATIENCE_SECONDS)

    assert recorder.sent == [("a", "firing")]
    assert "Not a directory" in one.problem
    assert one._guard.errors["spool"] == 1


@pytest.mark.contains_errors
def test_folder_that_was_removed_gets_entries_that_were_written_there_before(
    spool, folder, monkeypatch
):
    monkeypatch.setattr("querypulse.alerting.delivery.spool.RETRY_SECONDS", 0.5)
    kept = written(spool(), pager=(entry(1),))
    shutil.rmtree(folder)
    kept.offer_rows("pager", (entry(1), entry(2)))
    until(lambda: kept.problem, "the problem is reported")
    kept.offer_rows("pager", (entry(1),))
    assert kept.flush(PATIENCE_SECONDS)
    kept.close(PATIENCE_SECONDS)

    assert spool().load(PATIENCE_SECONDS).rows == {"pager": (entry(1),)}


@pytest.mark.contains_errors
@pytest.mark.parametrize("is_broken", [True, False], ids=["disk is back", "folder was removed"])
def test_folder_that_is_back_or_was_removed_gets_all_entries(spool, folder, monkeypatch, is_broken):
    """Its lock is taken again with it."""
    monkeypatch.setattr("querypulse.alerting.delivery.spool.RETRY_SECONDS", 0.05)
    kept = written(spool(), pager=(entry(1),))
    shutil.rmtree(folder)
    if is_broken:
        folder.write_text("not a folder")
    kept.offer_rows("pager", (entry(1), entry(2)))
    if is_broken:
        until(lambda: "Not a directory" in kept.problem, "the problem is reported")
        folder.unlink()
    assert kept.flush(PATIENCE_SECONDS)
    other = spool()
    assert other.load(PATIENCE_SECONDS) is None
    # It would take the lock as soon as that is free.
    other.close(PATIENCE_SECONDS)
    until(lambda: kept.problem == "", "the problem is cleared")
    assert {path.suffix for path in folder.iterdir()} == {".json", ".lock"}
    kept.close(PATIENCE_SECONDS)

    assert len(spool().load(PATIENCE_SECONDS).rows["pager"]) == 2


@pytest.mark.contains_errors
def test_file_that_cannot_be_read_for_a_while_is_read_later(spool, folder, monkeypatch):
    """Meanwhile the lock is held by this spool itself, which is not another process."""
    monkeypatch.setattr("querypulse.alerting.delivery.spool.RETRY_SECONDS", 0.05)
    written(spool(), pager=(entry(1),)).close(PATIENCE_SECONDS)
    path = document(folder)
    hidden = path.rename(folder / "hidden")
    path.symlink_to(hidden)
    later = spool()
    assert later.load(PATIENCE_SECONDS) is None
    guard = later._guard
    until(lambda: guard.errors["spool"] > 1, "it is tried again")
    assert not later.is_taken
    hidden.rename(path)

    assert until(lambda: later.load(0.0), "it is read").rows["pager"] == (entry(1),)


@pytest.fixture
def hanging_disk(monkeypatch):
    """Let the writes of a spool hang until the event that is returned is set."""

    def hang(one):
        answer, write = threading.Event(), one._file.write

        def write_later(kept):
            assert answer.wait(PATIENCE_SECONDS), "nobody lets the disk answer"
            return write(kept)

        monkeypatch.setattr(one._file, "write", write_later)
        return answer

    return hang


@pytest.mark.fault(
    "Disk, port and mounts", "The disk under `spool_dir` hangs", "The worker does not wait"
)
def test_offer_does_not_wait_for_the_disk(spool, hanging_disk):
    one = written(spool())
    answer = hanging_disk(one)
    for number in range(100):
        one.offer_rows("pager", (entry(number),))
    assert one.flush(0.0) is False
    answer.set()

    assert one.flush(PATIENCE_SECONDS)


@pytest.mark.contains_errors
def test_offer_does_not_wait_for_the_log(spool, tmp_path):
    """A full pipe holds the thread that logs the problem, and no other."""

    class Hanging(logging.Handler):
        begun, answer = threading.Event(), threading.Event()

        def emit(self, record):
            if "the alerts' spool" in record.getMessage():
                self.begun.set()
                self.answer.wait(NEVER)

    (tmp_path / "file").write_text("not a folder")
    handler = Hanging(logging.WARNING)
    logging.getLogger("querypulse").addHandler(handler)
    try:
        kept = spool(where=tmp_path / "file" / "spool")
        kept.load(0.0)
        assert handler.begun.wait(PATIENCE_SECONDS)
        ended(lambda: kept.offer_rows("pager", (entry(1),)))
        assert not handler.answer.is_set()
    finally:
        handler.answer.set()
        logging.getLogger("querypulse").removeHandler(handler)


def test_write_ahead_does_not_wait_for_a_spool_that_is_not_open(spool, monkeypatch):
    monkeypatch.setattr("querypulse.alerting.delivery.spool.WRITE_AHEAD_SECONDS", NEVER)
    unopened = spool()
    unopened.offer_rows("pager", (entry("a"),))
    ended(unopened.write_ahead)


def test_write_ahead_waits_shortly_and_once_for_a_disk_that_hangs(spool, hanging_disk, monkeypatch):
    one, waits = written(spool()), []
    answer = hanging_disk(one)
    one.offer_rows("pager", (entry("a"),))
    flush = one.flush
    monkeypatch.setattr(one, "flush", lambda timeout: waits.append(timeout) or flush(timeout))
    for _ in range(20):
        one.write_ahead()
    answer.set()

    assert waits == [WRITE_AHEAD_SECONDS]
    assert flush(PATIENCE_SECONDS)


def test_orphaned_child_does_not_hold_the_lock(folder):
    """A fork copies every descriptor; the lock must end with the process that took it."""
    folder.mkdir()
    reading, writing = os.pipe()
    driver = os.fork()
    if driver == 0:
        SpoolFile(folder, "etl").take()
        orphan = os.fork()
        if orphan == 0:
            time.sleep(PATIENCE_SECONDS)
        else:
            os.write(writing, str(orphan).encode())
        os._exit(0)
    os.waitpid(driver, 0)
    orphan = int(os.read(reading, 20))
    try:
        file = SpoolFile(folder, "etl")
        assert file.take()
        file.close()
    finally:
        os.kill(orphan, signal.SIGKILL)


@pytest.mark.contains_errors
def test_lock_does_not_follow_a_symbolic_link(spool, folder):
    """Other users may write into a shared folder."""
    written(spool(), pager=(entry(1),)).close(PATIENCE_SECONDS)
    lock = document(folder).with_suffix(".lock")
    lock.unlink()
    lock.symlink_to(folder / "elsewhere")
    one = spool()
    one.load(PATIENCE_SECONDS)

    assert "symbolic link" in one.problem


def test_closing_an_unstarted_spool_waits_for_nothing(folder):
    """Nobody would ever write what was offered to it."""
    unstarted = Spool(folder, "etl", Guard())
    unstarted.offer_rows("pager", (entry(1),))
    ended(lambda: unstarted.close(NEVER))

    assert not folder.exists()


def refuse_locks(monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", refuse)


@pytest.mark.contains_errors
@pytest.mark.parametrize(
    "number", [errno.ENOLCK, errno.EIO, errno.ENOSYS, errno.EACCES, errno.EAGAIN]
)
def test_lock_that_cannot_be_taken_is_reported_with_its_reason(spool, monkeypatch, number):
    is_held = number in {errno.EACCES, errno.EAGAIN}
    reason = (
        "in use by another process" if is_held else f"it cannot be locked: {os.strerror(number)}"
    )
    refuse_locks(monkeypatch, number)
    one = spool()
    one.load(PATIENCE_SECONDS)

    assert until(lambda: one.problem, "the problem is reported").endswith(reason)


# -- trying a folder --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "new", "new/deeper/still"])
def test_trying_a_folder_leaves_nothing_behind(tmp_path, name):
    (tmp_path / "known").mkdir()
    try_folder(tmp_path / "known" / name)

    assert list((tmp_path / "known").rglob("*")) == []
    assert (tmp_path / "known").is_dir()


def test_trying_a_folder_without_locks_fails_and_leaves_nothing(tmp_path, monkeypatch):
    refuse_locks(monkeypatch, errno.ENOLCK)
    with pytest.raises(OSError, match="cannot be locked"):
        try_folder(tmp_path / "new")

    assert list(tmp_path.iterdir()) == []
