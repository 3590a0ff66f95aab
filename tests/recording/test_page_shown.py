"""The page of incidents in a real browser, from a file."""

from __future__ import annotations

import pytest
from support.browser import AUDIT
from support.timelines import hang, later

from querypulse.recording.page import page_of

pytestmark = pytest.mark.browser

WIDTHS = (375, 481, 1280)
LONG = "w" * 300


@pytest.fixture
def opened(windows, tmp_path):
    """Opens the page of some timelines."""

    def open_page(*timelines, **options):
        path = tmp_path / "incidents.html"
        path.write_text(page_of(timelines, "Incidents of telemetry"), encoding="utf-8")
        return windows.open(path.as_uri(), **options)

    return open_page


def several():
    return [
        later(hang(), number * 90_000.0, severity="warning" if number % 2 else "critical")
        for number in range(4)
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("timelines", [[hang()], several()], ids=["one", "several"])
def test_nothing_is_wider_than_the_window(opened, timelines, width):
    page = opened(*timelines, viewport={"width": width, "height": 800})
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_long_names_break_instead_of_widening_the_page(opened):
    timeline = later(hang(), 0.0, app=LONG, query=LONG, headline=LONG, cause=LONG, how=LONG)
    for page in (
        opened(timeline, viewport={"width": 375, "height": 800}),
        opened(timeline, timeline, viewport={"width": 375, "height": 800}),
    ):
        assert page.evaluate("document.documentElement.scrollWidth") == 375


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("timelines", [[hang()], several()], ids=["one", "several"])
def test_contrast_of_all_text_is_enough(opened, timelines, scheme):
    page = opened(*timelines, color_scheme=scheme)
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    assert page.evaluate(AUDIT, "false") == []


def test_a_mark_is_reached_with_the_keyboard_and_leads_to_its_moment(opened):
    page = opened(hang())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip the picture"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Tab")
    name = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert name == "09:14:30 UTC: StreamingQueryStalled opens"
    page.keyboard.press("Enter")
    assert page.locator(":target p").inner_text().endswith("StreamingQueryStalled opens")


def test_a_picture_of_many_marks_is_skipped_with_one_key(opened):
    page = opened(*several())
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "index-table"


def test_screen_reader_finds_the_lanes_the_plots_and_the_list(opened):
    page = opened(hang())
    assert page.get_by_role("heading", level=1).inner_text() == hang().summary.headline
    alerts = page.get_by_role("group", name="alerts", exact=True)
    assert alerts.get_by_role("link").count() == 4
    stalled = page.get_by_role("group", name="StreamingQueryStalled orders")
    bar = stalled.get_by_role("img").get_attribute("aria-label")
    assert bar == "critical StreamingQueryStalled: 09:14:30 to 09:28:35 UTC, 14 min"
    plot = page.get_by_role("img", name="batch duration: 196 batches, median 1.2 s")
    assert plot.get_attribute("aria-label").endswith("highest 95 s at 09:28:30 UTC")
    assert (
        page.get_by_role("list").filter(has_text="is silenced").get_by_role("listitem").count()
        == 14
    )


def test_bars_and_marks_lie_at_their_times_at_any_width(opened):
    for width in WIDTHS:
        page = opened(hang(), viewport={"width": width, "height": 800})
        bar = page.locator(".bar.alert.critical rect").first.bounding_box()
        marks = page.locator(".mark.critical, .mark.ended").all()
        opens, ends = (mark.bounding_box() for mark in marks[:2])
        assert abs(bar["x"] - (opens["x"] + opens["width"] / 2)) < 3
        assert abs(bar["x"] + bar["width"] - (ends["x"] + ends["width"] / 2)) < 3


def test_stacks_are_folded_on_screen_and_open_in_print(opened):
    page = opened(hang(), color_scheme="dark")
    stack = page.locator("pre").first
    assert stack.is_hidden()
    page.emulate_media(media="print", color_scheme="dark")
    assert stack.is_visible()
    assert "Step13.run" in stack.inner_text()
    assert page.locator(".group svg.plot").first.is_visible()
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


def test_index_leads_to_each_incident_and_back(opened):
    page = opened(*several())
    page.get_by_role("table", name="All incidents").get_by_role("link").nth(2).click()
    assert page.evaluate("document.querySelector(':target').id") == "i3"
    page.locator(":target").get_by_role("link", name="All incidents").click()
    assert page.evaluate("location.hash") == "#index"
    marks = page.locator(".strip svg a").all()
    places = [mark.bounding_box()["x"] for mark in marks]
    assert len(places) == 4
    assert places == sorted(places)
