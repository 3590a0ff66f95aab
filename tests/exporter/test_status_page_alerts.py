"""What the status page shows of few and of many alerts, in a real browser."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from support.browser import AUDIT, row, status_page, texts
from support.changing_states import BEGAN, HOSTILE, ChangingState, at_work, fleet

from querypulse.alerting.alert import Alert

pytestmark = pytest.mark.browser

STEPS = (
    "1. Read the error.\n2. Restart the query from the same checkpoint.\n3. Watch the next batch."
)
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


def alert_of(query, *, severity="critical", name="StreamingQueryFailed", steps=STEPS, age=60.0):
    labels = {"alertname": name, "app": "telemetry", "query": query, "severity": severity}
    words = {
        "summary": f"[telemetry] {query} failed: SparkException: executors are gone",
        "reason": "driver_error",
        "next_steps": steps,
        "runbook_url": f"https://runbooks.example/{name}",
        "seen_by": "listener",
    }
    return Alert(labels, words, BEGAN - age)


def with_alerts(*alerts, queries=8):
    """A driver whose queries work, whatever its alerts are."""
    living = at_work(*(f"q{number:02}" for number in range(queries)))
    living.change = lambda shown: replace(
        shown,
        alerts=tuple(replace(one, starts_at=shown.wall - BEGAN + one.starts_at) for one in alerts),
    )
    return living


def forty():
    """Thirty warnings, and ten critical alerts that began later."""
    warnings = [
        alert_of(f"q{n:02}", severity="warning", name="StreamingQueryLagging", age=900 - n)
        for n in range(30)
    ]
    critical = [alert_of(f"q{n:02}", age=60 - n) for n in range(30, 40)]
    return with_alerts(*warnings, *critical, queries=100)


def top_of(page, selector):
    return page.locator(selector).first.evaluate("e => e.getBoundingClientRect().top")


def shown(page):
    """What the visible alerts are about, in their order."""
    return texts(page, ".alert:visible h3 .link")


# -- next steps -------------------------------------------------------------------------------


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_next_steps_of_an_incident_are_visible_without_a_click(windows, viewport):
    with status_page(windows, with_alerts(alert_of("q00")), viewport=viewport) as (page, _):
        steps = page.locator(".alert .next")

        assert steps.inner_text().split("\n")[-3:] == STEPS.split("\n")
        assert top_of(page, ".alert .next") < viewport["height"] - 100
        page.locator(".alert summary").click()
        assert "next steps" not in page.locator(".alert .facts dt").all_inner_texts()


def test_alert_without_next_steps_shows_none(windows):
    with status_page(windows, with_alerts(alert_of("q00", steps=""))) as (page, _):
        assert page.locator(".alert .next").is_hidden()


def test_three_alerts_are_shown_in_full(windows):
    alerts = [alert_of(f"q{number:02}") for number in range(3)]
    with status_page(windows, with_alerts(*alerts), viewport=DESKTOP) as (page, _):
        assert page.locator(".alert .next:visible").count() == 3
        assert page.locator("#more-alerts").is_hidden()
        assert page.locator(".alert .unfold:visible").count() == 0


# -- forty alerts -----------------------------------------------------------------------------


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_queries_are_on_the_first_screen_below_forty_alerts(windows, viewport):
    with status_page(windows, forty(), viewport=viewport) as (page, _):
        page.locator(".alert").first.wait_for()
        room = viewport["height"] - top_of(page, "#queries .query")

        assert room > (200 if viewport is DESKTOP else 40)
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]


def test_most_severe_alerts_come_first_and_the_rest_is_counted_by_kind(windows):
    with status_page(windows, forty(), viewport=DESKTOP) as (page, _):
        assert texts(page, "#alerts-title") == ["40 open alerts: 10 critical, 30 warning"]
        assert shown(page) == ["q30", "q31", "q32", "q33"]
        assert page.locator(".alert .next:visible").count() == 1
        more = page.locator("#more-alerts")
        assert more.inner_text() == (
            "Show 36 more: 6 StreamingQueryFailed, 30 StreamingQueryLagging"
        )
        assert more.get_attribute("aria-expanded") == "false"
        more.click()
        assert len(shown(page)) == 40
        assert more.inner_text() == "Show fewer"
        assert more.get_attribute("aria-expanded") == "true"


def test_keyboard_unfolds_an_alert_and_it_stays_so_while_others_come_and_go(windows):
    living = forty()
    with status_page(windows, living, viewport=DESKTOP) as (page, _):
        third = page.locator(".alert", has=page.get_by_role("button", name="q32"))
        button = third.get_by_role("button", name="More about StreamingQueryFailed of q32")
        button.focus()
        page.keyboard.press("Enter")
        assert third.locator(".next").is_visible()
        living.change = with_alerts(
            *(alert_of(f"q{n:02}", age=90 - n) for n in range(32, 40))
        ).change
        page.wait_for_selector("#alerts-title:has-text('8 open alerts')")
        assert third.locator(".next").is_visible()
        assert shown(page)[0] == "q32"


def test_contrast_of_many_alerts_is_enough_in_both_schemes(windows):
    for scheme in ("light", "dark"):
        with status_page(windows, forty(), color_scheme=scheme) as (page, _):
            assert page.evaluate(AUDIT, "false") == []


def test_hostile_steps_and_names_are_text(windows):
    living = with_alerts(*(alert_of(HOSTILE, name=f"A{n}", steps=HOSTILE) for n in range(6)))
    with status_page(windows, living) as (page, _):
        assert page.locator(".alert .next").first.inner_text().endswith(HOSTILE)
        assert page.locator("img").count() == 0
        assert page.title() != "owned"


# -- the tab, and times -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("living", "title", "sentence"),
    [
        (ChangingState(), "no queries · telemetry", "No query has started yet."),
        (ChangingState(expected=("gold",)), "starting: gold · 0/1 · telemetry", None),
        (with_alerts(queries=2), "all healthy · 2/2 · telemetry", "All 2 queries are healthy."),
        (
            with_alerts(alert_of("*", name="QuerypulseEventsMissing"), queries=2),
            "QuerypulseEventsMissing · 2/2 · telemetry",
            "All 2 queries are healthy, but there is 1 open alert.",
        ),
    ],
    ids=["no query", "an expected one", "all healthy", "an alert of the driver"],
)
def test_tab_says_healthy_only_of_queries_that_are_there_and_without_an_alert(
    windows, living, title, sentence
):
    if living.expected:
        living.health["gold"] = ("starting", "not seen yet")
    empty = not living.story.snapshot(BEGAN).queries and not living.expected
    wanted = "#empty:visible" if empty else "#queries .query"
    with status_page(windows, living, query=wanted) as (page, _):
        page.wait_for_function("document.title !== 'querypulse'")
        assert page.title() == title
        if sentence:
            assert page.inner_text("#sentence") == sentence


def test_ignored_queries_alone_are_not_all_healthy(windows):
    living = at_work("a")
    living.ignored = ("a",)
    with status_page(windows, living) as (page, _):
        assert page.title() == "no queries · telemetry"
        assert (
            page.inner_text("#sentence")
            == "No query is monitored: the settings ignore all of them."
        )


@pytest.mark.parametrize(
    ("zone", "words"),
    [("UTC", "UTC"), ("America/New_York", "GMT-[45]"), ("Asia/Kolkata", r"GMT\+5:30")],
)
def test_times_name_their_zone(windows, zone, words):
    with status_page(windows, with_alerts(alert_of("q00")), timezone_id=zone) as (page, _):
        when = page.locator(".alert .when").first
        assert re.fullmatch(
            rf"since ([\d-]+ )?\d\d:\d\d:\d\d {words}, for \d+ (s|min).*", when.inner_text()
        )
        assert re.fullmatch(r"[\d-]+T[\d:]+ UTC", when.get_attribute("title"))
        row(page, "q00").locator("summary").click()
        facts = row(page, "q00").locator(".facts")
        assert re.search(rf"\d\d:\d\d:\d\d {words}", facts.inner_text())


def test_fleet_without_an_alert_shows_no_section_of_alerts(windows):
    with status_page(windows, ChangingState(fleet("a"))) as (page, _):
        assert page.locator("#alerts-section").is_hidden()
