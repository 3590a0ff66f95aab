"""The status page over time: polls, a driver that goes and returns, focus, tokens."""

from __future__ import annotations

import re

import pytest
from support.browser import notice, row, states, status_page, texts, until_live
from support.changing_states import BEGAN, ChangingState, at_work, fleet
from support.exporter_http import address, serving
from support.patience import until
from support.story import CONFLICT

pytestmark = pytest.mark.browser

WATCH = """() => {
  window.seen = { nodes: 0, sentence: 0, focus: 0 };
  const isElement = (node) => node.nodeType === 1;
  new MutationObserver((records) => {
    for (const { addedNodes, removedNodes } of records)
      window.seen.nodes += [...addedNodes, ...removedNodes].filter(isElement).length;
  }).observe(document.body, { childList: true, subtree: true });
  new MutationObserver((records) => { window.seen.sentence += records.length; })
    .observe(document.getElementById("sentence"), { childList: true, characterData: true, subtree: true });
}"""


def fail(living, name):
    living.health = {**living.health, name: ("failed", f"{name} died")}


# -- a driver goes and returns ----------------------------------------------------------------


def test_page_marks_the_data_of_a_dead_driver_as_stale_and_recovers_by_itself(windows):
    with status_page(windows, at_work("a")) as (page, server):
        host, port = address(server)
        until(lambda: server._shutdown_notice._waiting, "the page waits for the shutdown notice")
        # Only after a second does the page trust that a notice would have arrived.
        page.wait_for_timeout(1100)
        server.close(notice=None)
        notice(page, "The driver does not answer. It sent no shutdown notice")
        assert re.match(
            r"Last answer at \d\d:\d\d:\d\d \S+, \d+ s ago", page.inner_text("#notice-age")
        )
        assert page.get_attribute("body", "data-stale") == "true"
        assert page.title() == "silent · telemetry"
        assert list(states(page)) == ["a"]
        with serving(at_work("b"), host=host, port=port):
            until_live(page)
            page.wait_for_selector('h3:text-is("b")')
            assert list(states(page)) == ["b"]
            assert not page.is_visible("#notice")


def test_page_distinguishes_a_shutdown_from_a_dead_driver(windows):
    with status_page(windows, at_work("a")) as (page, server):
        until(lambda: server._shutdown_notice._waiting, "the page waits for the shutdown notice")
        server.close()
        notice(page, "The monitor was shut down")
        for _ in range(2):
            page.wait_for_event("requestfailed")
        assert "was shut down" in page.inner_text("#notice-text")
        assert page.title() == "closed · telemetry"


def test_page_shows_a_stuck_worker(windows):
    living = at_work("a")
    with status_page(windows, living) as (page, _):
        living.freeze()
        notice(page, "The monitor is stuck")
        living.frozen = None
        until_live(page)


def test_restarted_driver_hides_the_data_of_the_previous_one(windows):
    living = at_work("a")
    shown = [living]
    with status_page(windows, lambda: shown[0] and shown[0]()) as (page, _):
        shown[0] = None
        page.wait_for_selector('body[data-connection="early"]')
        assert not page.is_visible("#main")
        shown[0] = living
        page.wait_for_selector("#queries .query")


# -- updates do not disturb the reader --------------------------------------------------------


def test_poll_without_changes_updates_and_announces_nothing_and_a_change_is_shown(windows):
    living, polls = at_work("a", "b", "c"), []
    with status_page(windows, lambda: polls.append(1) or living()) as (page, _):
        page.evaluate(WATCH)
        before = len(polls)
        until(lambda: len(polls) >= before + 4, "the page polls again")
        assert page.evaluate("window.seen.nodes") == 0
        assert page.evaluate("window.seen.sentence") == 0
        fail(living, "b")
        page.wait_for_selector('.query[data-state="failed"] h3:text-is("b")')
        assert page.evaluate("window.seen.sentence") > 0


def test_focus_and_open_details_survive_reordering(windows):
    living = at_work("a", "b", "c")
    with status_page(windows, living) as (page, _):
        summary = row(page, "c").locator("summary")
        summary.focus()
        page.keyboard.press("Enter")
        fail(living, "c")
        page.wait_for_selector('[data-state="failed"]')
        assert list(states(page)) == ["c", "a", "b"]
        assert summary.evaluate("e => e === document.activeElement")
        assert row(page, "c").locator(".facts").is_visible()
        fail(living, "a")
        page.wait_for_selector('[data-state="failed"] h3:text-is("a")')
        assert list(states(page)) == ["a", "c", "b"]
        assert summary.evaluate("e => e === document.activeElement")


# -- keyboard and screen reader ---------------------------------------------------------------


def test_keyboard_reaches_every_control_with_visible_focus(windows):
    story = fleet("a", "b").ended("a", at=BEGAN - 1, exception=CONFLICT)
    with status_page(windows, ChangingState(story)) as (page, _):
        reached = []
        for _ in range(9):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate(
                    "(({ tagName, textContent, id }) => id || textContent.trim() || tagName)(document.activeElement)"
                )
            )
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert reached == [
            "Skip to the queries",
            "link-status",
            "link-metrics",
            "link-readyz",
            "a",
            "Runbook",
            "Evidence",
            "filter",
            "More about a",
        ]


def test_filter_matches_names_and_states(windows):
    living = at_work("bronze", "silver", "gold")
    living.health["gold"] = ("stalled", "no_trigger")
    with status_page(windows, living) as (page, _):
        page.fill("#filter", "  STALL ")
        assert texts(page, ".query:visible h3") == ["gold"]
        assert page.inner_text("#shown") == "1 of 3 shown"
        page.fill("#filter", "zinc")
        assert page.inner_text("#empty") == "No query matches “zinc”."
        page.fill("#filter", "")
        assert len(texts(page, ".query:visible h3")) == 3


SPOKEN = """
- banner:
- heading "telemetry" [level=1]
- status: 1 of 2 queries is healthy; doors has failed.
- list "Queries by state":
- main:
- region "1 open alert":
- heading "StreamingQueryFailed of doors" [level=3]
- region "Queries":
- searchbox "Filter"
- heading "bronze" [level=3]
- meter "age of the last commit"
- region "The monitor itself":
- contentinfo:
"""


def test_screen_reader_gets_landmarks_headings_and_states(windows):
    story = fleet("bronze", "doors").ended("doors", at=BEGAN - 1, exception=CONFLICT)
    with status_page(windows, ChangingState(story)) as (page, _):
        reported = page.locator("body").aria_snapshot()

    assert [line for line in SPOKEN.split("\n") if line not in reported] == []


# -- a token ----------------------------------------------------------------------------------


def test_page_asks_for_the_token_of_a_driver(windows):
    living = at_work("a")
    with status_page(windows, living, token="s3cret", query="#token") as (page, server):
        assert page.inner_text("#sentence") == "This driver requires a token."
        assert not page.is_visible("#main")
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#token-trouble:has-text('This token was refused.')")
        page.fill("#token", "s3cret")
        page.get_by_role("button", name="Show the status").click()
        page.wait_for_selector("#queries .query")
        assert not page.is_visible("#token-form")
        assert page.url == f"{server.url}/"
        page.reload()
        page.wait_for_selector("#queries .query")
        other = windows.open(server.url)
        other.wait_for_selector("#token", state="visible")
