"""The demo and its status page, as people see them who have only the wheel."""

from __future__ import annotations

import re
import subprocess

import pytest
import requests
from support.demo import unwrapped
from support.patience import PATIENCE_SECONDS, until
from support.queries import SPARK_PATIENCE_SECONDS
from support.wheel import build_wheel, install_alone

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

FAILURE = ["--scenario", "failure", "--after", "5", "--queries", "2"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The programs of an environment that has only the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    return install_alone(build_wheel(folder), folder / "venv")


@pytest.fixture(scope="module")
def demo(programs, tmp_path_factory):
    """A running demo of two queries; yields its process and a function that reads its output."""
    path = tmp_path_factory.mktemp("demo") / "output"
    with path.open("w") as output:
        process = subprocess.Popen(
            [programs / "querypulse", "demo", *FAILURE],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            yield process, path.read_text
        finally:
            process.kill()
            process.wait()


@pytest.mark.nightly
@pytest.mark.browser
def test_browser_shows_the_incident_as_it_happens(demo, windows):
    _, printed = demo
    address = r"status page: (http://127\.0\.0\.1:\d+/)"
    url = until(
        lambda: re.search(address, printed()), "its address is printed", SPARK_PATIENCE_SECONDS
    )[1]

    page = windows.open(url)
    page.wait_for_selector("text=All 2 queries are healthy.", timeout=1000 * SPARK_PATIENCE_SECONDS)
    page.wait_for_selector(
        "text=1 of 2 queries is healthy; alert_resolution has failed.",
        timeout=1000 * SPARK_PATIENCE_SECONDS,
    )
    assert "ConcurrentAppendException" in page.inner_text(".query[data-state=failed] .reason")
    page.wait_for_selector("#alerts h3:has-text('StreamingQueryFailed of alert_resolution')")
    assert "<!doctype html>" in requests.get(url, timeout=PATIENCE_SECONDS).text
    states = requests.get(f"{url}status", timeout=PATIENCE_SECONDS).json()["queries"]
    failed = [query["name"] for query in states if query["state"] == "failed"]
    assert failed == ["alert_resolution"]
    page.wait_for_selector("text=The monitor was shut down", timeout=1000 * SPARK_PATIENCE_SECONDS)


def test_demo_of_an_installed_wheel_shows_its_page_without_the_checkout(programs, demo):
    where = subprocess.run(
        [programs / "python", "-Ic", "import querypulse; print(querypulse.__file__)"],
        capture_output=True,
        text=True,
    )
    process, printed = demo

    assert process.wait(SPARK_PATIENCE_SECONDS) == 0, printed()
    assert where.stdout.startswith(str(programs.parent)), where.stderr
    assert "alertname    StreamingQueryFailed" in unwrapped(printed())
    assert "result             as expected" in printed()
