"""A file, disk or port that fails is shown as degraded, and hides no failure. Uses real Spark."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress

import pytest
import requests
from support.patience import PATIENCE_SECONDS
from support.queries import Trap, commits, rate, start, until

from querypulse.alerting.spool import SpoolFile
from querypulse.core import files

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.contains_errors]


class FaultyPlace:
    """A folder for files that hang; ``free`` ends what hangs."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.monkeypatch = monkeypatch
        self._free = threading.Event()
        self._fifos = []

    def fifo(self, name):
        """A file whose reading never returns, as on a dead network mount."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        self._fifos.append(path)
        return str(path)

    def hang(self, *_):
        self._free.wait()

    def free(self):
        self._free.set()
        self.monkeypatch.undo()
        for path in self._fifos:
            with suppress(OSError):
                os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


def silences_hang(place):
    return {"silence_file": place.fifo("silences")}, lambda: None


def silences_garbled(place):
    path = place.folder / "silences"
    path.write_text("[[[")
    return {"silence_file": str(path)}, lambda: None


def key_file(place):
    path = place.folder / "key"
    path.write_text("k" * 32)
    return {"pagerduty_routing_key_file": str(path), "pagerduty_url": "http://127.0.0.1:9/enqueue"}


def secrets_hang(place):
    return key_file(place), lambda: place.fifo("key")


def secrets_vanish(place):
    return key_file(place), (place.folder / "key").unlink


def spool_is_read_only(place):
    """Nobody can create a folder in sysfs, not even root."""
    return {"spool_dir": "/sys/querypulse"}, lambda: None


def spool_is_full(place):
    def full(*_):
        raise OSError(errno.ENOSPC, "the disk is full")

    place.monkeypatch.setattr(SpoolFile, "write", full)
    return {"spool_dir": str(place.folder)}, lambda: None


def spool_hangs(place):
    place.monkeypatch.setattr(SpoolFile, "write", place.hang)
    return {"spool_dir": str(place.folder)}, lambda: None


FAULTS = {
    silences_hang: ("silences", "no answer for "),
    silences_garbled: ("silences", "silences"),
    secrets_hang: ("secrets", "no answer for "),
    secrets_vanish: ("secrets", "No such file"),
    spool_is_read_only: ("spool", "querypulse"),
    spool_is_full: ("spool", "full"),
    spool_hangs: ("spool", "no answer for "),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "HANGS_SECONDS", 0.5)
    with monkeypatch.context() as patch:
        made = FaultyPlace(tmp_path, patch)
        yield made
        made.free()


@pytest.mark.fault(
    "Disk, port and mounts",
    "The silence file or a secret's file hangs, is garbled or vanishes; the spool's disk is read-only, full or hangs",
    "`/status` names the part and the reason; a failure is reported; the job goes on",
)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_failing_file_or_disk_is_shown_and_hides_no_failure(spark, watch, pages, place, fault):
    (what, reason), (settings, begin) = FAULTS[fault], fault(place)
    sidecar, trap = watch(**settings), Trap()
    begin()
    query = start(rate(spark), "doomed", trap)
    beside = start(rate(spark), "beside")
    commits(sidecar, "doomed")
    trap.die.set()
    pages.wait_for("StreamingQueryFailed", "doomed", timeout=PATIENCE_SECONDS)

    def shown():
        monitor = requests.get(f"{sidecar.url}/status", timeout=PATIENCE_SECONDS).json()["monitor"]
        problem = {**monitor["file_problems"], "spool": monitor["spool_problem"]}.get(what, "")
        return problem if reason in problem else ""

    until(shown, f"{reason!r} is shown")
    assert not query.isActive
    assert beside.isActive


def test_healthy_files_have_no_problem(watch, tmp_path):
    silences, token = tmp_path / "silences", tmp_path / "token"
    silences.write_text("")
    token.write_text("t" * 32)
    sidecar = watch(silence_file=str(silences), http_token_file=str(token), spool_dir=str(tmp_path))
    sidecar.flush()
    monitor = sidecar.snapshot().monitor

    assert (monitor.file_problems, monitor.spool_problem) == ({}, "")
