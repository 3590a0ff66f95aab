"""On real Spark, in a real browser: a query dies, and the page shows it."""

from __future__ import annotations

import time

import pytest
from support.queries import Trap, commits, rate, shown, start, until
from support.status_window import row, texts

pytestmark = [pytest.mark.spark, pytest.mark.browser]


@pytest.fixture
def died(spark, watch, windows):
    """A page on two queries, of which ``hurt`` then dies; and when the sidecar knew."""
    sidecar = watch(expected_queries=["well", "hurt"])
    trap = Trap()
    start(rate(spark), "well")
    start(rate(spark), "hurt", trap)
    for name in ("well", "hurt"):
        commits(sidecar, name, batches=3)
    page = windows.open(sidecar.url)
    page.wait_for_selector("text=All 2 queries are well.")
    trap.die.set()
    until(lambda: shown(sidecar, "hurt").state == "failed", "the sidecar knows")
    return page, time.monotonic()


def test_a_death_is_shown_within_two_seconds_of_being_known(died):
    page, known_at = died
    page.wait_for_selector('.query[data-state="failed"]')
    took = time.monotonic() - known_at

    assert page.inner_text("#sentence") == "1 of 2 queries is well; hurt has failed."
    assert took < 2.0


def test_the_page_tells_the_story_of_a_death(died):
    page, _ = died
    page.wait_for_selector("#alerts h3:has-text('QueryFailed of hurt')")
    hurt, well = row(page, "hurt"), row(page, "well")

    assert texts(page, ".query h3") == ["hurt", "well"]
    assert hurt.locator(".reason").inner_text().startswith("Boom: ")
    assert "hunter2" not in page.content()
    assert well.get_by_role("meter").get_attribute("aria-valuemax") == "60"
    assert "batches: the last took" in well.get_by_role("img").get_attribute("aria-label")
    assert page.inner_text("#roster") == "Roster: 2 expected, every one has been seen."
    assert "registered, raw path" in texts(page, "#monitor dd")[1]
