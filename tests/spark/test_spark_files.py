"""On real Spark: queries on folders of files, and which of their problems are reported."""

from __future__ import annotations

import json
import shutil

import pytest
from support.queries import idles, shown, start, until

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FLOOR = 10


@pytest.fixture
def folder(tmp_path):
    """A folder with a few files of one row each."""
    path = tmp_path / "in"
    path.mkdir()
    for number in range(6):
        put(path, number)
    return path


def put(folder, number):
    path = folder / f"{number}.json"
    path.with_suffix(".tmp").write_text(json.dumps({"a": number}))
    path.with_suffix(".tmp").rename(path)


def stream(spark, folder):
    reader = spark.readStream.schema("a long").option("maxFilesPerTrigger", 1)
    return reader.option("pathGlobFilter", "*.json").json(str(folder))


def test_catching_up_and_idling_raises_no_alert(spark, folder, watch, pages):
    """Nor does a deleted folder: Spark does not report it, so querypulse cannot either."""
    sidecar = watch(stall_floor_seconds=FLOOR)
    query = start(stream(spark, folder), "files")
    query.processAllAvailable()
    until(lambda: idles(sidecar, "files", 2 * FLOOR), "it idles for long")
    put(folder, 7)
    query.processAllAvailable()
    shutil.rmtree(folder)
    until(lambda: shown(sidecar, "files").state == "idle", "it is idle again")
    assert sidecar.flush()

    assert pages.reported == []
    assert query.isActive
