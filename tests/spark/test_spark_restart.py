"""The commands of docs/restart.md that need Java, and those of the runbooks that need a checkpoint."""

from __future__ import annotations

import os
import re
import subprocess

import pyspark
import pytest
from support.patience import PATIENCE_SECONDS
from support.repository import ROOT, fenced, runbooks

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_checkpoint_can_be_read_where_there_is_no_hadoop(tmp_path):
    """With the Hadoop client that every Spark brings, as the page says; it takes no Spark session."""
    checkpoint = tmp_path / "checkpoint"
    for place in ("offsets", "commits"):
        (checkpoint / place).mkdir(parents=True)
        for batch in (809, 810, 811, 812):
            (checkpoint / place / str(batch)).write_text(f"v1\n{{}}\nbatch {batch}\n")
    (checkpoint / "commits" / "812").unlink()  # the poison batch
    page = (ROOT / "docs/restart.md").read_text()
    (lines,) = [code for code in fenced(page, "sh") if "hadoop()" in code]
    define = lines.partition("\n\n")[0].replace("/tmp/fs", str(tmp_path / "fs"))
    # -cat and -cp of the runbook of a poison batch, -ls of that of a query that hangs
    runs = runbooks()
    blocks = [
        code
        for name in ("StreamingQueryFlapping", "StreamingQueryStalled")
        for code in fenced(runs[name], "sh")
        if "hadoop fs" in code
    ]
    every = re.findall(r"hadoop fs (-\w+) \S", "".join(runs.values()))
    environment = {
        **os.environ,
        "CHECKPOINT": str(checkpoint),
        "HADOOP_CONF_DIR": "",
        "N": "812",
        "SPARK_HOME": pyspark.__path__[0],
    }

    assert set(every) == set(re.findall(r"hadoop fs (-\w+)", "".join(blocks)))
    for code in blocks:
        done = subprocess.run(
            ["bash", "-c", f"{define}\n{code}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        assert "81" in done.stdout or "-cp" in code, code
    assert (checkpoint / "commits" / "812").read_text().endswith("batch 811\n")
