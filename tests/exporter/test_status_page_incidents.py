"""The incidents of the status page, in a real browser."""

from __future__ import annotations

import re
import time

import pytest
from msgspec.structs import replace
from support.browser import AUDIT, status_page
from support.changing_states import HOSTILE, at_work
from support.timelines import hang, later

from querypulse.exporter import pages
from querypulse.recording.picture import SHAPES
from querypulse.recording.timeline import Timeline

pytestmark = pytest.mark.browser

DAY = 86_400.0
DESKTOP = {"width": 1280, "height": 900}
NARROW = {"width": 481, "height": 800}
PHONE = {"width": 375, "height": 800}


def past(count: int, **changes) -> dict[str, Timeline]:
    """Incidents by id, one each two days, the newest first; the newest is open."""
    now = time.time()
    made = {}
    for number in range(count):
        severity = "warning" if number % 3 else "critical"
        how = {} if number else {"until": None, "how": "open"}
        summary = {"id": f"incident-{number}", "severity": severity, **how, **changes}
        after = now - 1300 - number * 2 * DAY - hang().summary.since
        made[f"incident-{number}"] = later(hang(), after, **summary)
    return made


def recorded(timelines: dict[str, Timeline]) -> dict[str, object]:
    """What ``status_page`` serves of them."""
    summaries = [timeline.summary for timeline in timelines.values()]
    return {"incidents": lambda: summaries, "timeline": timelines.get}


def test_without_a_recorder_the_page_has_no_incidents(windows):
    with status_page(windows, at_work("a")) as (page, _):
        assert page.locator("#incidents-section").is_hidden()
        assert page.locator("#link-incidents").is_hidden()


def test_thirty_quiet_days_are_said(windows):
    with status_page(windows, at_work("a"), **recorded({})) as (page, _):
        page.wait_for_selector("#incidents-section:visible")
        assert page.inner_text("#incidents-count") == "No incident in the last thirty days."
        assert page.locator("#strip-box").is_hidden()
        assert page.locator("#incidents-box").is_hidden()


@pytest.mark.parametrize("viewport", [DESKTOP, NARROW, PHONE], ids=["desktop", "481", "phone"])
def test_incidents_push_no_query_down_and_fit_the_width(windows, viewport):
    names = [f"q{number}" for number in range(8)]
    with status_page(windows, at_work(*names), viewport=viewport) as (page, _):
        page.locator("#queries .query").nth(7).wait_for()
        before = page.locator("#queries .query").first.bounding_box()["y"]
    with status_page(windows, at_work(*names), viewport=viewport, **recorded(past(14))) as (
        page,
        _,
    ):
        page.wait_for_selector("#strip a")
        after = page.locator("#queries .query").first.bounding_box()["y"]
        assert after - before < 30, "a line at most"
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]


def test_strip_has_all_incidents_and_the_table_the_newest_ten(windows):
    with status_page(windows, at_work("a"), **recorded(past(14))) as (page, _):
        page.wait_for_selector("#strip a")
        assert page.inner_text("#incidents-count") == "14 incidents in the last thirty days."
        assert page.inner_text("#link-incidents") == "incidents"
        assert page.locator("#strip a").count() == 14
        rows = page.locator("#incidents tr")
        assert rows.count() == 10
        since, lasted, query, what, how = rows.first.locator("td").all_inner_texts()
        assert re.search(r"\d\d:\d\d:\d\d \S+$", since)
        assert re.fullmatch(r"\d+ min so far", lasted)
        assert (query, how) == ("orders", "open")
        assert what.split() == f"critical: {hang().summary.headline}".split()
        assert rows.nth(1).locator("td").nth(1).inner_text() == "20 min"
        link = rows.first.locator("a")
        assert link.get_attribute("href") == "/incidents/incident-0.html"
        positions = [mark.bounding_box()["x"] for mark in page.locator("#strip a").all()]
        assert positions == sorted(positions)


def test_link_opens_the_page_of_the_incident(windows):
    with status_page(windows, at_work("a"), **recorded(past(2))) as (page, _):
        with page.expect_popup() as opened:
            page.locator("#incidents a").first.click()
        assert opened.value.inner_text("h1") == hang().summary.headline
        assert opened.value.url.endswith("/incidents/incident-0.html")


def test_link_opens_the_page_of_the_incident_with_a_token_too(windows):
    with status_page(
        windows, at_work("a"), query="#token:visible", token="s3cret", **recorded(past(2))
    ) as (page, _):
        page.fill("#token", "s3cret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#incidents a")
        with page.expect_popup() as opened:
            page.locator("#incidents a").first.click()
        shown = opened.value
        assert shown.inner_text("h1") == hang().summary.headline
        ground = "getComputedStyle(document.querySelector('.badge')).backgroundColor"
        assert shown.evaluate(ground) == "rgb(213, 94, 0)", "its style applies"


def test_strip_is_one_stop_of_the_tab_key_and_arrows_move_along_it(windows):
    with status_page(windows, at_work("a"), **recorded(past(3))) as (page, _):
        page.wait_for_selector("#strip a")
        focused = "document.activeElement.getAttribute('href')"
        assert page.locator('#strip a[tabindex="0"]').count() == 1
        page.locator('#strip a[tabindex="0"]').focus()
        assert page.evaluate(focused) == "/incidents/incident-0.html"
        page.keyboard.press("ArrowLeft")
        assert page.evaluate(focused) == "/incidents/incident-1.html"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('#strip')") is None


def test_new_incident_is_shown_when_an_alert_opens(windows):
    shown = past(1)
    living = at_work("a", "b")
    summaries = [timeline.summary for timeline in shown.values()]
    with status_page(windows, living, incidents=lambda: summaries) as (page, _):
        page.wait_for_selector("#strip a")
        summaries.insert(0, replace(summaries[0], id="new", since=time.time()))
        living.story.ended("a", at=living.now, exception="java.lang.IllegalStateException: x")
        page.wait_for_selector('#strip a[href$="/new.html"]')


def test_store_that_refuses_is_said_in_words(windows):
    def refuse():
        raise OSError("no such bucket")

    with status_page(windows, at_work("a"), incidents=refuse) as (page, _):
        page.wait_for_selector("#incidents-trouble:has-text('no such bucket')")
        assert page.locator("#queries .query").count() == 1


def test_hostile_headline_is_text(windows):
    hostile = past(1, headline=HOSTILE, query=HOSTILE, how=HOSTILE, cause=HOSTILE)
    with status_page(windows, at_work("a"), **recorded(hostile)) as (page, _):
        page.wait_for_selector("#incidents a")
        assert page.locator("#incidents a").inner_text() == HOSTILE
        assert page.locator("img").count() == 0


def test_contrast_of_incidents_is_enough_in_both_schemes(windows):
    for scheme in ("light", "dark"):
        with status_page(windows, at_work("a"), color_scheme=scheme, **recorded(past(3))) as (
            page,
            _,
        ):
            page.wait_for_selector("#incidents a")
            assert page.evaluate(AUDIT, "false") == []


def test_marks_are_those_of_the_page_of_an_incident():
    script = pages.status_page().body.decode()
    marks = re.search(r"const MARKS = {(.*?)};", script, re.DOTALL)[1]
    drawn = dict(re.findall(r'(\w+): "([^"]+)"', marks))
    assert drawn == {severity: SHAPES[severity] for severity in ("critical", "warning")}
