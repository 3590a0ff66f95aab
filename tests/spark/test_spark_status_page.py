"""On real Spark, in a real browser: the page shows when a query or a driver dies."""

from __future__ import annotations

import signal

import pytest
from support.driver import Driver
from support.queries import Trap, commits, rate, start, until
from support.status_window import notice, row, states, texts, until_live

pytestmark = [pytest.mark.spark, pytest.mark.browser]

NAMES = ("anna", "bert", "carl")
SERVED = """
sidecar = attach(spark, http_port=0, expected_queries=["served"])
start("served")
until_commits(sidecar, "served")
say(sidecar.url)
time.sleep(600)
"""


@pytest.fixture
def traps(spark, watch):
    """The sidecar, and for each running query the trap that makes it fail."""
    sidecar = watch(expected_queries=[*NAMES, "delta"])
    traps = {name: Trap() for name in NAMES}
    start(rate(spark), "delta")
    for name, trap in traps.items():
        start(rate(spark), name, trap)
    for name in (*NAMES, "delta"):
        commits(sidecar, name, batches=2)
    return sidecar, traps


def test_page_shows_failures_as_they_happen_and_their_details(traps, windows):
    sidecar, traps = traps
    page = windows.open(sidecar.url)
    page.wait_for_selector("text=All 4 queries are healthy.")
    traps["bert"].die.set()
    page.wait_for_selector("#alerts h3:has-text('StreamingQueryFailed of bert')")
    page.wait_for_selector("text=3 of 4 queries are healthy; bert has failed.")

    assert texts(page, ".query h3")[0] == "bert"
    assert row(page, "bert").locator(".reason").inner_text().startswith("Boom: ")
    assert "hunter2" not in page.content()
    healthy = row(page, "delta")
    assert healthy.get_by_role("meter").get_attribute("aria-valuemax") == "60"
    assert "batches: the last took" in healthy.get_by_role("img").get_attribute("aria-label")
    assert page.inner_text("#expected") == "Expected queries: 4, all seen."
    assert "registered, by bus queue" in texts(page, "#monitor dd")[1]

    for name in ("anna", "carl"):
        traps[name].die.set()
        page.wait_for_selector(f'.query[data-state="failed"] h3:text-is("{name}")')
    page.wait_for_selector(
        "text=1 of 4 queries is healthy; anna has failed, bert has failed and carl has failed."
    )


def test_page_shows_a_frozen_a_resumed_and_a_killed_driver(windows, tmp_path):
    with Driver(SERVED, tmp_path) as driver:
        url = until(lambda: driver.lines, "the driver serves the page")[0]
        page = windows.open(url)
        page.wait_for_selector("text=The query is healthy.")

        driver.signal_all(signal.SIGSTOP)
        notice(page, "The driver does not answer. It sent no shutdown notice")
        driver.signal_all(signal.SIGCONT)
        until_live(page)

        driver.signal_all(signal.SIGKILL)
        notice(page, "The driver does not answer. It sent no shutdown notice")
        assert states(page) == {"served": "running"}
