"""The whole demo: each scenario produces its page and no other."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import pytest
import requests
from support.demo import COMMAND, demo, unwrapped
from support.failing_receiver import PATIENCE_ASKED_FOR, FailingReceiver
from support.queries import until

pytestmark = pytest.mark.spark

ENDED_BY_FAILURE = 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--after", "5"],
            [
                "alertname    StreamingQueryFailed",
                "query        alert_resolution",
                "ConcurrentAppendException: Files were added",
                "7 of 8 queries healthy (alert_resolution failed)",
                "siblings     7 of 8 queries healthy",
                "death to webhook",
                "result             as expected",
            ],
        ),
        (
            ["--scenario", "upstream", "--after", "2"],
            [
                "alertname    StreamingQueryFailed",
                "query        bronze",
                "downstream   alert_resolution, battery_status, door_status, engine_status, "
                "position_status, tire_status, trip_status get no data from it",
                "starving           alert_resolution, battery_status, door_status",
                "Python waits in awaitTermination()",
                "result             as expected",
            ],
        ),
        (
            ["--scenario", "hang", "--after", "5"],
            [
                "alertname    StreamingQueryStalled",
                "query        alert_resolution",
                "(batch_hung)",
                "pipeline.py:",
                "7 of 8 queries healthy (alert_resolution stalled)",
                "result             as expected",
            ],
        ),
        (
            ["--scenario", "stop", "--after", "2", "--queries", "3"],
            [
                "alertname    StreamingQueryStopped",
                "query        alert_resolution",
                "result             as expected",
            ],
        ),
        (
            ["--scenario", "healthy", "--after", "2", "--duration", "25"],
            ["page               none", "result             as expected"],
        ),
    ],
    ids=["failure", "upstream", "hang", "stop", "healthy"],
)
def test_each_scenario_is_detected_and_reported(arguments, expected):
    result = demo(*arguments)

    assert result.returncode == 0, result.stdout + result.stderr
    printed = unwrapped(result.stdout)
    assert [text for text in expected if text not in printed] == [], result.stdout
    assert ("PAGE" in result.stdout) == ("healthy" not in arguments)
    assert "Traceback" not in result.stdout + result.stderr
    assert "Exception in thread" not in result.stderr


def test_supervised_failure_ends_the_job_and_the_next_start_resolves_the_page(pages, tmp_path):
    stays = ["--queries", "2", "--folder", tmp_path / "job", "--webhook-url", pages.url]
    first = demo("--supervised", "--after", "0", *stays)

    assert first.returncode == ENDED_BY_FAILURE, first.stdout + first.stderr
    assert pages.reported == [("firing", "StreamingQueryFailed", "alert_resolution")]
    assert "await_any_failure() raises QueryFailure" in first.stdout

    again = ["--supervised", "--scenario", "healthy", "--after", "0", "--duration", "20"]
    second = demo(*again, *stays, QUERYPULSE_RESOLVE_AFTER_SECONDS="1")

    assert second.returncode == 0, second.stdout + second.stderr
    assert pages.reported[1:] == [("resolved", "StreamingQueryFailed", "alert_resolution")]


def test_pages_go_to_the_users_own_webhook(pages):
    result = demo("--after", "1", "--queries", "2", "--webhook-url", pages.url)

    assert result.returncode == 0, result.stdout + result.stderr
    assert pages.reported == [("firing", "StreamingQueryFailed", "alert_resolution")]
    assert "death to webhook" in result.stdout


def test_exactly_one_page_arrives_through_a_receiver_outage():
    with FailingReceiver(outage=20) as receiver:
        result = demo("--after", "1", "--queries", "2", "--webhook-url", receiver.url)

    assert result.returncode == 0, result.stdout + result.stderr
    assert receiver.taken == [("firing", "StreamingQueryFailed", "alert_resolution")]
    assert receiver.refused > 1
    assert receiver.waited >= PATIENCE_ASKED_FOR


@pytest.fixture
def playing(tmp_path):
    """A demo of two queries that runs during the test; yields the address of its status page."""
    path = tmp_path / "output"
    with path.open("w+") as output:
        process = subprocess.Popen(
            [*COMMAND, "--queries", "2", "--after", "5"],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
        try:
            address = r"status page: (http://127\.0\.0\.1:\d+/)"
            yield until(lambda: re.search(address, path.read_text()), "its address is printed", 90)[
                1
            ]
            assert process.wait(120) == 0, path.read_text()
        finally:
            process.kill()
            process.wait()


def test_status_page_is_served_during_the_incident(playing):
    def failed():
        queries = requests.get(f"{playing}status", timeout=10).json()["queries"]
        return [query["name"] for query in queries if query["state"] == "failed"]

    assert "<!doctype html>" in requests.get(playing, timeout=10).text
    assert until(failed, "the incident", 90) == ["alert_resolution"]


@pytest.mark.browser
def test_browser_shows_the_incident_as_it_happens(playing, windows):
    page = windows.open(playing)
    page.wait_for_selector("text=All 2 queries are healthy.", timeout=90_000)
    page.wait_for_selector(
        "text=1 of 2 queries is healthy; alert_resolution has failed.", timeout=60_000
    )
    assert "ConcurrentAppendException" in page.inner_text(".query[data-state=failed] .reason")
    page.wait_for_selector("#alerts h3:has-text('StreamingQueryFailed of alert_resolution')")
    page.wait_for_selector("text=The monitor was shut down", timeout=60_000)


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
                90,
            )
            os.killpg(process.pid, signal.SIGINT)

            assert process.wait(30) == 130
        finally:
            process.kill()
        text = (tmp_path / "output").read_text()
        assert "interrupted" in text
        assert "Traceback" not in text
