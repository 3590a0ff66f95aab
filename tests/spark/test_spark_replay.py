"""A replay reads the logs that Spark writes, and those that Spark has to unpack first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.driver import START_SECONDS
from support.event_log import replayed
from support.repository import ROOT, fenced

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(900)]

WRITER = Path(__file__).parent / "scripts" / "event_logs.py"


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The event logs of small applications, one for each way to write a log."""
    folder = tmp_path_factory.mktemp("logs")
    done = subprocess.run(
        [sys.executable, "-I", str(WRITER), str(folder), "zstd", "lz4"],
        capture_output=True,
        text=True,
        timeout=3 * START_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_log_is_read_completely_however_it_is_written(logs):
    unread = {}
    for name in ("zstd", "default", "rolled"):
        ((alerts, replay),) = replayed(logs / name)
        is_whole = (replay.error, replay.unread, alerts, replay.app) == (None, 0, [], name)
        if not is_whole or replay.events < 5 or replay.ended_at <= replay.began_at:
            unread[name] = replay

    assert unread == {}


def test_logs_are_written_in_different_ways(logs):
    for name in ("zstd", "lz4"):
        assert list((logs / name).rglob(f"*.{name}")), name
    assert len(list((logs / "rolled").rglob("events_*"))) > 1
    assert list((logs / "killed").rglob("*.inprogress"))


def test_log_of_a_killed_driver_is_read_to_its_end(logs):
    ((alerts, replay),) = replayed(logs / "killed")

    assert (replay.error, replay.unread, alerts) == (None, 0, [])


def test_codec_that_only_spark_reads_is_refused_until_spark_has_unpacked_the_log(
    spark, logs, tmp_path
):
    """With the lines that docs/replay.md shows."""
    ((_, refused),) = replayed(logs / "lz4")
    (packed,) = (logs / "lz4").rglob("*.lz4")
    lines = (ROOT / "docs" / "replay.md").read_text()
    (unpack,) = [code for code in fenced(lines, "python") if "CompressionCodec" in code]
    unpack = unpack.replace("app.lz4", str(packed)).replace("app.json", str(tmp_path / "app.json"))
    exec(unpack, {"spark": spark})
    ((_, replay),) = replayed(tmp_path / "app.json")

    assert "the codec lz4 is not supported" in refused.error
    assert (replay.error, replay.unread, replay.app) == (None, 0, "lz4")
