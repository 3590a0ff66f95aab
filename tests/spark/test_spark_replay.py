"""A replay reads the logs that Spark writes, with every codec."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.driver import START_SECONDS
from support.replays import replayed

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(900)]

WRITER = Path(__file__).parent / "scripts" / "event_logs.py"
CODECS = ["zstd", "lz4", "snappy"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The event logs of small applications, one for each way to write a log."""
    folder = tmp_path_factory.mktemp("logs")
    done = subprocess.run(
        [sys.executable, "-I", str(WRITER), str(folder), *CODECS, "lzf"],
        capture_output=True,
        text=True,
        timeout=3 * START_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_log_is_read_completely_with_every_codec(logs):
    names, unread = [*CODECS, "default", "rolled"], {}
    for name in names:
        ((found, replay),) = replayed(logs / name)
        is_whole = (replay.error, replay.unread, found, replay.app) == (None, 0, [], name)
        if not is_whole or replay.events < 5 or replay.ended_at <= replay.began_at:
            unread[name] = replay

    assert unread == {}


def test_logs_use_the_requested_codecs(logs):
    for name in CODECS:
        assert list((logs / name).rglob(f"*.{name}")), name
    assert len(list((logs / "rolled").rglob("events_*"))) > 1
    assert list((logs / "killed").rglob("*.inprogress"))


def test_log_of_a_killed_driver_is_read_to_its_end(logs):
    ((found, replay),) = replayed(logs / "killed")

    assert (replay.error, replay.unread, found) == (None, 0, [])


def test_lzf_is_refused(logs):
    ((_, replay),) = replayed(logs / "lzf")

    assert "lzf" in replay.error
