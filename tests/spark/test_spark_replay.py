"""A replay of real event logs, written by Spark, reports the same as the live run."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from datetime import timezone

import pytest
from support.pages import PageRecorder
from support.replays import replayed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

COMMAND = "import sys; from querypulse.commands.cli import main; sys.exit(main())"
# The demo's settings; expected_queries replaces the trigger, which no log contains.
SETTINGS = [
    "--set=stall_floor_seconds=15",
    "--set=gone_grace_seconds=10",
    '--set=expected_queries=["alert_resolution"]',
]
SCENARIOS = {"failure": "3", "hang": "3", "stop": "3", "healthy": "2"}


def querypulse(*arguments):
    return subprocess.run(
        [sys.executable, "-Ic", COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )


# -- the demo, live and replayed ------------------------------------------------------------------


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory):
    """Play each scenario once; returns the folder of event logs and the live alerts."""
    folder = tmp_path_factory.mktemp("scenarios")
    # One at a time: a log shows a batch that a busy machine delays as a stall.
    return folder, {scenario: played(scenario, folder / scenario) for scenario in SCENARIOS}


def played(scenario, event_log):
    """The alerts that fired while the demo played that scenario."""
    with PageRecorder() as pages:
        done = querypulse(
            *("demo", "--scenario", scenario, "--queries", "3", "--after", SCENARIOS[scenario]),
            *("--duration", "20", "--webhook-url", pages.url, "--event-log", event_log),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return {page.what for page in pages.pages if page.status == "firing"}


def findings(*arguments):
    done = querypulse("replay", "--json", *SETTINGS, *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_replay_reports_the_same_alerts_as_the_live_run(scenarios, scenario):
    folder, live = scenarios
    reported = [row for row in findings(folder / scenario) if row["status"] == "firing"]

    assert [(row["alertname"], row["query"]) for row in reported] == sorted(live[scenario])
    assert len(reported) == (scenario != "healthy")
    assert {row["app"] for row in reported} <= {"telemetry"}


def test_spark_job_reports_the_same_alerts_and_a_summary(scenarios, spark, tmp_path):
    folder, _ = scenarios
    out = tmp_path / "found.parquet"
    done = querypulse("replay", "--spark", *SETTINGS, "--out", out, folder)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row.asDict() for row in spark.read.parquet(str(out)).collect()]
    for row in rows:
        at = row["at"].astimezone(timezone.utc)
        row["at"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    expected = findings(folder)
    assert sorted(rows, key=str) == sorted(expected, key=str)
    assert len(rows) >= 3
    assert "4 applications, " in done.stdout
    assert ": 3 alerts; longest silent stall: " in done.stdout
    assert done.stdout.count("telemetry/alert_resolution  ") == len({r["at"][:10] for r in rows})

    again = querypulse("replay", "--spark", "--out", out, folder)
    assert (again.returncode, again.stdout) == (2, "")
    assert f"{out}: exists already" in again.stderr


# -- every codec ----------------------------------------------------------------------------------

WRITER = """
    import os, signal, sys, time
    from pyspark.sql import SparkSession
    folder, *codecs = sys.argv[1:]
    def run(name, **conf):
        os.makedirs(f"{folder}/{name}")
        builder = SparkSession.builder.master("local[2]").appName(name)
        for key, value in {
            "driver.bindAddress": "127.0.0.1", "driver.host": "127.0.0.1", "ui.enabled": "false",
            "ui.showConsoleProgress": "false", "sql.shuffle.partitions": "1",
            "eventLog.enabled": "true", "eventLog.dir": f"file://{folder}/{name}", **conf,
        }.items():
            builder = builder.config(f"spark.{key}", value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        query = rows.writeStream.queryName("steady").format("noop").start()
        while query.lastProgress is None or query.lastProgress["batchId"] < 2:
            time.sleep(0.05)
        return spark, query
    def finish(spark, query):
        query.stop()
        spark.stop()
    for codec in codecs:
        finish(*run(codec, **{"eventLog.compress": "true", "eventLog.compression.codec": codec}))
    finish(*run("default"))
    spark, query = run("rolled", **{
        "eventLog.compress": "false", "eventLog.rolling.enabled": "true",
        "eventLog.rolling.maxFileSize": "10m",
    })
    spark.sparkContext.setLocalProperty("padding", "x" * 500_000)
    for _ in range(25):
        spark.range(1).count()
    finish(spark, query)
    spark, query = run("killed")
    os.kill(spark._jvm.ProcessHandle.current().pid(), signal.SIGKILL)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The event logs of small applications, one for each way to write a log."""
    folder = tmp_path_factory.mktemp("logs")
    script = folder / "writer.py"
    script.write_text(textwrap.dedent(WRITER))
    done = subprocess.run(
        [sys.executable, "-I", str(script), str(folder), *CODECS, "lzf"],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return folder


CODECS = ["zstd", "lz4", "snappy"]


@pytest.mark.parametrize("name", [*CODECS, "default", "rolled"])
def test_log_is_read_completely_with_every_codec(logs, name):
    ((found, replay),) = replayed(logs / name)

    assert (replay.error, replay.unread, found) == (None, 0, [])
    assert replay.app == name
    assert replay.events >= 5
    assert replay.ended_at - replay.began_at > 1


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
