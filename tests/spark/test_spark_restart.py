"""The commands of docs/restart.md that need Java, and those of the runbooks that need a checkpoint."""

from __future__ import annotations

import os
import subprocess

import pyspark
import pytest
from support.patience import PATIENCE_SECONDS
from support.repository import ROOT, fenced, runbooks

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_checkpoint_can_be_read_where_there_is_no_hadoop(tmp_path):
    """With the Hadoop client that every Spark brings, as the page says; it takes no Spark session."""
    checkpoint = tmp_path / "checkpoint"
    for place in ("offsets", "commits", "_spark_metadata"):
        (checkpoint / place).mkdir(parents=True)
        for batch in (809, 810, 811, 812):
            (checkpoint / place / str(batch)).write_text(f"v1\n{{}}\nbatch {batch}\n")
    (checkpoint / "commits" / "812").unlink()  # the poison batch
    (checkpoint / "metadata").write_text('{"id":"1-2-3"}')
    page = (ROOT / "docs/restart.md").read_text()
    (lines,) = [code for code in fenced(page, "sh") if "hadoop()" in code]
    define = lines.partition("\n\n")[0].replace("/tmp/fs", str(tmp_path / "fs"))
    blocks = [
        code for text in runbooks().values() for code in fenced(text, "sh") if "hadoop fs" in code
    ]
    environment = {
        **os.environ,
        "CHECKPOINT": str(checkpoint),
        "HADOOP_CONF_DIR": "",
        "N": "812",
        "SPARK_HOME": pyspark.__path__[0],
    }

    assert len(blocks) > 6
    for code in blocks:
        known = code.replace("OUTPUT", str(checkpoint)).replace("FOLDER", str(checkpoint / "offsets"))
        done = subprocess.run(
            ["bash", "-c", f"{define}\n{known.replace(' MOUNT ', ' / ')}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env=environment,
        )
        copies = "-cp" in code
        assert copies or "81" in done.stdout or "1-2-3" in done.stdout, (code, done.stderr)
        assert "Exception" not in done.stderr, code
    assert (checkpoint / "commits" / "812").read_text().endswith("batch 811\n")
