"""The whole demo: each scenario produces its page and no other.

A replay of the event log that a scenario writes reports the same alerts.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from datetime import timezone
from functools import cache

import pytest
from support.demo import COMMAND, demo, querypulse, unwrapped
from support.queries import SPARK_PATIENCE_SECONDS, until

pytestmark = pytest.mark.spark

ENDED_BY_FAILURE = 3


SCENARIOS = {
    "failure": (
        "--after 5",
        [
            "alertname    StreamingQueryFailed",
            "query        alert_resolution",
            "ConcurrentAppendException: Files were added",
            "7 of 8 queries healthy (alert_resolution failed)",
            "all_queries  7 of 8 healthy",
            "death to webhook",
        ],
    ),
    "upstream": (
        "--after 2",
        [
            "alertname    StreamingQueryFailed",
            "query        bronze",
            "downstream   alert_resolution, battery_status, door_status, engine_status, position_status, "
            "tire_status, trip_status get no data from it",
            "starving           alert_resolution, battery_status, door_status",
            "Python waits in awaitTermination()",
        ],
    ),
    "hang": (
        "--after 5 --queries 2",
        [
            "alertname    StreamingQueryStalled",
            "query        alert_resolution",
            "(batch_hung)",
            "pipeline.py:",
            "1 of 2 queries healthy (alert_resolution stalled)",
        ],
    ),
    "stop": (
        "--after 2 --queries 2",
        ["alertname    StreamingQueryStopped", "query        alert_resolution"],
    ),
    "healthy": ("--after 2 --queries 2 --duration 20", ["page               none"]),
}
"""The arguments of each scenario, and what it prints."""
EACH = [
    "failure",
    pytest.param("hang", marks=pytest.mark.thorough),
    *(pytest.param(name, marks=pytest.mark.nightly) for name in ("upstream", "stop", "healthy")),
]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Plays a scenario, once for all tests; returns the ended process and its folder of event logs."""
    folder = tmp_path_factory.mktemp("scenarios")

    @cache
    def play(scenario):
        log, conf = folder / scenario, folder / f"{scenario}-conf"
        log.mkdir()
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text(
            f"spark.eventLog.enabled true\nspark.eventLog.dir {log.as_uri()}\n"
            "spark.eventLog.compress false\n"
        )
        arguments = SCENARIOS[scenario][0].split()
        return demo("--scenario", scenario, *arguments, SPARK_CONF_DIR=str(conf)), log

    return play


@pytest.mark.parametrize("scenario", EACH)
def test_each_scenario_is_detected_and_reported(played, scenario):
    result, _ = played(scenario)

    assert result.returncode == 0, result.stdout + result.stderr
    printed = unwrapped(result.stdout)
    expected = [*SCENARIOS[scenario][1], "result             as expected"]
    assert [text for text in expected if text not in printed] == [], result.stdout
    assert ("PAGE" in result.stdout) == (scenario != "healthy")
    assert "Traceback" not in result.stdout + result.stderr
    assert "Exception in thread" not in result.stderr


# The demo's settings; expected_queries replaces the trigger, which no log contains.
SETTINGS = [
    "--set=stall_floor_seconds=15",
    "--set=gone_grace_seconds=10",
    '--set=expected_queries=["alert_resolution"]',
]


def findings(*logs):
    done = querypulse("replay", "--json", *SETTINGS, *logs)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("scenario", EACH)
def test_replay_reports_the_same_alerts_as_the_live_run(played, scenario):
    live, log = played(scenario)
    printed = re.findall(r"alertname    (\w+)[^P]*?query        (\w+)", live.stdout)
    reported = [row for row in findings(log) if row["status"] == "firing"]

    assert [(row["alertname"], row["query"]) for row in reported] == printed
    assert len(reported) == (scenario != "healthy")
    assert {row["app"] for row in reported} <= {"telemetry"}


@pytest.mark.nightly
def test_replay_as_a_spark_job_reports_the_same_alerts_and_a_summary(played, spark, tmp_path):
    logs = [played(scenario)[1] for scenario in SCENARIOS]
    out = tmp_path / "found.parquet"
    done = querypulse("replay", "--spark", *SETTINGS, "--out", out, *logs)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row.asDict() for row in spark.read.parquet(str(out)).collect()]
    for row in rows:
        at = row["at"].astimezone(timezone.utc)
        row["at"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    expected = findings(*logs)
    assert sorted(rows, key=str) == sorted(expected, key=str)
    assert len(rows) >= 4
    assert "5 applications, " in done.stdout
    assert ": 4 alerts in " in done.stdout

    again = querypulse("replay", "--spark", "--out", out, *logs)
    assert (again.returncode, again.stdout) == (2, "")
    assert f"{out}: exists already" in again.stderr


@pytest.mark.thorough
def test_supervised_failure_ends_the_job(pages):
    ended = demo("--supervised", "--after", "0", "--queries", "2", "--webhook-url", pages.url)

    assert ended.returncode == ENDED_BY_FAILURE, ended.stdout + ended.stderr
    assert pages.reported == [("firing", "StreamingQueryFailed", "alert_resolution")]
    assert "await_any_failure() raises QueryFailure" in ended.stdout


@pytest.mark.nightly
def test_ctrl_c_ends_the_demo_cleanly(tmp_path):
    with (tmp_path / "output").open("w+") as output:
        process = subprocess.Popen(
            [*COMMAND, "--queries", "2", "--after", "100"],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            until(
                lambda: "2 of 2 queries healthy" in (tmp_path / "output").read_text(),
                "all are healthy",
            )
            os.killpg(process.pid, signal.SIGINT)

            assert process.wait(SPARK_PATIENCE_SECONDS) == 130
        finally:
            process.kill()
        text = (tmp_path / "output").read_text()
        assert "interrupted" in text
        assert "Traceback" not in text
