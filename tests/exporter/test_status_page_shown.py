"""What the status page shows, in a real browser."""

from __future__ import annotations

import re
import time
from math import inf

import pytest
from msgspec.structs import replace
from support.browser import AUDIT, row, states, status_page, texts
from support.changing_states import (
    BEGAN,
    HOSTILE,
    ChangingState,
    fleet,
    in_flight,
    working,
)
from support.published_states import FRESHNESS, MONITOR
from support.story import CONFLICT, Lake, Story, run

from querypulse.alerting.alert import Alert
from querypulse.core.states import STATES
from querypulse.listener.foresight.operators import StateOperator
from querypulse.listener.foresight.resources import Disk, Heap, Resources
from querypulse.listener.foresight.tasks import QueryTasks, TaskSums
from querypulse.listener.state.freshness import DAY_SECONDS, Promise

pytestmark = pytest.mark.browser

WHY = f"{CONFLICT} to table alerts by a concurrent update"


def incident():
    """Of four queries, ``alerts`` has failed; the expected query ``gold`` was never seen."""
    story = fleet("bronze", "doors", "alerts", "tyres")
    story.ended("alerts", at=BEGAN - 3, exception=WHY)
    return ChangingState(story, expected=("bronze", "alerts", "gold"))


def every_state():
    living = ChangingState(fleet(*(f"q-{state}" for state in STATES)))
    living.health = {f"q-{state}": (state, f"because it is {state}") for state in STATES}
    return living


@pytest.fixture
def page(windows):
    """The page of the incident."""
    with status_page(windows, incident()) as (page, _):
        yield page


def test_sentence_counts_healthy_queries_and_names_the_others(page):
    assert (
        page.inner_text("#sentence")
        == "3 of 5 queries are healthy; alerts has failed and gold is missing."
    )
    assert texts(page, "#counts li") == ["1 failed", "1 missing", "3 running"]
    assert texts(page, ".identity > *")[:2] == ["telemetry", "Spark 4.0.0"]


def test_queries_are_sorted_by_severity_with_ignored_ones_last(windows):
    living = every_state()
    living.ignored = ("q-failed",)
    living.health.pop("q-failed")
    with status_page(windows, living) as (page, _):
        shown = states(page)
        assert list(shown) == [*(f"q-{state}" for state in STATES[1:]), "q-failed"]
        assert list(shown.values())[:-1] == list(STATES[1:])
        assert row(page, "q-failed").locator(".marks").inner_text() == "ignored"
        assert "q-failed" not in page.inner_text("#sentence")
        assert page.title().startswith("missing: q-missing")


def test_query_shows_its_reason_and_figures(windows):
    living = ChangingState(in_flight(fleet("busy", "calm"), "busy", "calm", at=BEGAN - 1))
    with status_page(windows, living) as (page, _):
        busy = row(page, "busy")
        assert busy.locator(".badge").inner_text().strip() == "running"
        last_commit, flight, lag, rate, batches = busy.locator("dl.figures dd").all_inner_texts()
        assert re.fullmatch(r"\d+ s / 60 s", last_commit.strip())
        assert re.fullmatch(r"#12, \d+ s", flight)
        assert (lag, rate, batches.strip()) == ("60", "13 rows/s", "1.5 s")
        assert row(page, "calm").locator("dl.figures dd").nth(1).inner_text() == "\u2013"


def test_details_open_with_one_click(page):
    alerts = row(page, "alerts")
    assert not alerts.locator(".facts").is_visible()
    alerts.locator("summary").click()
    facts = dict(
        zip(
            alerts.locator(".facts dt").all_inner_texts(),
            alerts.locator(".facts dd").all_inner_texts(),
            strict=True,
        )
    )
    assert facts["error class"] == "ConcurrentAppendException"
    assert facts["trigger"] == "ProcessingTime(5 s)"
    assert facts["last committed batch"] == "#11"
    assert facts["run id"] == "alerts-1"


def test_details_say_when_a_query_has_caught_up(windows):
    story = Story().started(at=0)
    for at in range(30, int(BEGAN), 30):
        story.commit(batch=at // 30, at=at, seconds=30.0)
        story.ask(at=at + 5, committed=20 * at, latest=200_000 + 100 * (at + 5))
    with status_page(windows, ChangingState(story)) as (page, _):
        behind = row(page, "a")
        behind.locator("summary").click()
        assert "caught up" in behind.locator(".facts dt").all_inner_texts()
        text = "never at this rate: 360 k/h arrive, 72 k/h are read"
        assert text in behind.locator(".facts dd").all_inner_texts()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {},
            "newest data 32 s old, 10 min are promised in 99% of the time; 7 h 7 min of 7 h 12 min left"
            " in 30 days",
        ),
        (
            {"bad_by_day": {}, "promise": Promise(90.0, 0.9995), "planned_until": inf},
            "newest data 32 s old, 90 s are promised in 99.95% of the time; 21 min of 21 min left in "
            "30 days; planned time does not count",
        ),
        (
            {"promise": Promise(600.0, 1.0)},
            "newest data 32 s old, 10 min are promised in 100% of the time; overspent by 5 min in "
            "30 days",
        ),
    ],
)
def test_details_say_how_fresh_a_query_is_and_what_is_left(windows, change, words):
    living = ChangingState(fleet("a"))
    bad = {"bad_by_day": {int(time.time() // DAY_SECONDS): 300.0}}
    fresh = replace(FRESHNESS, **bad | change)
    living.change = lambda shown: replace(shown, freshness={"a": fresh})
    with status_page(windows, living) as (page, _):
        row(page, "a").locator("summary").click()
        assert words in row(page, "a").locator(".facts dd").all_inner_texts()


def test_monitor_says_how_full_the_driver_is(windows):
    disks = (
        Disk("/data", ("checkpoint of a", "spool_dir"), 0, 2_000_000_000_000),
        Disk("/", ("spark.local.dir",), 1_250_000_000, 8_000_000_000),
    )
    heap = Heap(1_900_000_000, 950_000, 2_000_000_000, 12.5)
    living = ChangingState(fleet("a"))
    living.change = lambda shown: replace(
        shown,
        snapshot=replace(shown.snapshot, resources=Resources(heap=heap, disks=disks)),
    )
    with status_page(windows, living) as (page, _):
        shown = page.inner_text("#monitor")

    assert "950 kB of 2 GB after collection" in shown
    assert "6.8 GB of 8 GB (spark.local.dir)" in shown


def test_details_say_what_a_query_has_cost_and_the_monitor_what_jobs_of_no_query_have(windows):
    sums = TaskSums(40, 90.0, 30.0, spilled_bytes=2_000_000)
    seen = run("a", finished=QueryTasks(sums))
    story = Story().probe(seen, at=BEGAN - 1, unowned=TaskSums(4, 9.0, 10.0))
    with status_page(windows, ChangingState(story)) as (page, _):
        costly = row(page, "a")
        costly.locator("summary").click()
        facts = costly.locator(".facts dd").all_inner_texts()
        assert "30 s of CPU, 75% of the driver's; its tasks ran for 90 s; 2 MB spilled" in facts
        assert "10 s of CPU, 25% of the driver's; its tasks ran for 9.0 s" in page.inner_text(
            "#monitor"
        )


def test_open_alerts_come_first_with_runbook_and_evidence(page):
    card = page.locator(".alert").first
    assert card.locator("h3").inner_text() == "StreamingQueryFailed of alerts"
    assert card.locator(".summary").inner_text() == (
        "[telemetry] alerts failed: ConcurrentAppendException: Files were added to table alerts "
        "by a concurrent update"
    )
    assert card.locator(".reason").is_hidden(), "the headline already contains the reason"
    assert re.fullmatch(r"since \d\d:\d\d:\d\d \S+, for \d+ s", card.locator(".when").inner_text())
    link = card.get_by_role("link", name="Runbook")
    assert link.get_attribute("href") == "https://runbooks.example/StreamingQueryFailed.md"
    assert link.get_attribute("rel") == "noopener noreferrer"
    card.locator("summary").click()
    assert "signals" in card.locator("dt").all_inner_texts()
    above = page.locator("#alerts").bounding_box()["y"]
    assert above < page.locator("#queries").bounding_box()["y"]


def test_monitor_shows_its_own_health(windows):
    living = ChangingState(fleet("a"), monitor=MONITOR)
    with status_page(windows, living) as (page, _):
        facts = dict(zip(texts(page, "#monitor dt"), texts(page, "#monitor dd"), strict=True))
        assert re.fullmatch(r"\d+ s ago", facts["heartbeat"])
        assert facts.items() >= {
            ("listener", "registered, by bus queue, registered again 1 times"),
            ("dropped", "7 (progress_queue_full 7)"),
            ("errors", "1 (worker 1)"),
            ("spool", "/spool: no space left on device"),
            ("recordings", "/incidents: no space left on device"),
            ("app name", "the app is called 'pyspark-shell'"),
            ("other listeners", *MONITOR.other_listeners),
        }
        assert texts(page, "#receivers tr:first-child > *") == [
            "webhook",
            "5",
            "2 (transient 2)",
            "1",
            "0",
            "open: paused after failures",
        ]
        assert texts(page, "#receivers tr:last-child > *")[4] == "1 (rejected 1)"


# -- hostile data -----------------------------------------------------------------------------


@pytest.mark.fault(
    "Names and texts", "Markup in names and errors, in a real browser", "It is shown as text"
)
def test_hostile_texts_are_shown_as_text(windows):
    story = working(Story(), HOSTILE).ended(
        HOSTILE, at=BEGAN - 1, exception=f"{HOSTILE}: {HOSTILE}"
    )
    living = ChangingState(story, expected=(f"{HOSTILE}2",))
    labels = {"env": "prod", "team": HOSTILE}
    living.change = lambda shown: replace(shown, app=HOSTILE, spark_version=HOSTILE, labels=labels)
    with status_page(windows, living) as (page, _):
        assert row(page, HOSTILE).locator("h3").inner_text() == HOSTILE
        assert page.inner_text("#app") == HOSTILE
        assert page.inner_text("#labels") == f"env = prod, team = {HOSTILE}"
        assert page.locator("img, body script:not([type=module])").count() == 0
        assert "onerror" in page.locator(".alert .reason").first.inner_text()
        assert page.title() != "owned"


def test_alert_links_to_dashboard_and_spark_ui(windows):
    labels = {"alertname": "X", "app": "a", "query": "*", "severity": "critical"}
    links = {
        "runbook_url": "https://runbooks.example/X",
        "dashboard_url": "https://grafana.example/d/q",
        "spark_ui_url": "http://driver-1:4040/",
    }
    alert = Alert(labels, {"summary": "s", **links}, BEGAN)
    living = ChangingState(fleet("a"))
    living.change = lambda shown: replace(shown, alerts=(alert,))
    with status_page(windows, living) as (page, _):
        result = page.locator(".alert .runbook a")
        assert result.all_inner_texts() == ["Runbook", "Dashboard", "Spark UI"]
        assert [entry.get_attribute("href") for entry in result.all()] == list(links.values())


# -- accessibility ----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("stale", ["false", "true"])
def test_every_text_has_enough_contrast_in_the_preferred_scheme(windows, scheme, stale):
    living = every_state()
    living.ignored = ("q-idle",)
    living.monitor = MONITOR
    with status_page(windows, living, color_scheme=scheme) as (page, _):
        page.locator("summary").first.click()
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) > 380) is (scheme == "light")
        assert page.evaluate(AUDIT, stale) == []


def test_phone_layout_does_not_scroll_sideways(windows):
    story = fleet("bronze", "a_very_long_name_" * 8)
    story.ended("a_very_long_name_" * 8, at=BEGAN - 3, exception=f"E: {'x' * 300}")
    living = ChangingState(story, monitor=MONITOR)
    with status_page(windows, living, viewport={"width": 360, "height": 700}) as (page, _):
        for summary in page.locator("summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.locator(".query dt").first.is_visible()


def test_graph_of_queries_is_a_nested_list_that_leads_to_the_queries(windows):
    story = Lake(**{"bronze": "landing", "silver": "bronze", HOSTILE: "silver"})
    living = ChangingState(story.batches(1, at=BEGAN - 2))
    with status_page(windows, living) as (page, _):
        page.locator("#flow").wait_for()
        names = page.locator("#flow .link")
        assert names.all_inner_texts() == ["bronze", "silver", HOSTILE]
        assert page.locator("#flow > li > ul > li > ul > li .link").inner_text() == HOSTILE
        names.nth(1).click()
        assert page.evaluate("document.activeElement.className") == "query"
        assert page.title() != "owned"


def test_graph_of_a_thousand_queries_is_bounded_and_a_circle_ends(windows):
    reads = {f"q{number:04}": f"q{(number // 2):04}" for number in range(1000)}
    living = ChangingState(Lake(**reads).batches(1, at=BEGAN - 2))
    with status_page(windows, living) as (page, _):
        page.locator("#flow").wait_for()
        assert page.locator("#flow .link").count() == 200
        assert page.inner_text("#flow-rest") == "and more: 200 are shown"


def test_details_say_what_a_query_keeps_as_state(windows):
    kept = StateOperator(
        "dedupe",
        rows=38_000_000,
        memory_bytes=7_600_000_000,
        custom='{"SnapshotLastUploaded.partition_3_default": 1}',
    )
    story = Story().started(at=0)
    story.commit(batch=60, at=BEGAN - 60, operators=(kept, StateOperator("stateStoreSave", rows=4)))
    with status_page(windows, ChangingState(story)) as (page, _):
        stateful = row(page, "a")
        stateful.locator("summary").click()
        text = (
            "dedupe: 38M rows, 7.6 GB, the snapshot of partition 3 lacks 60 batches; "
            "stateStoreSave: 4 rows"
        )
        assert text in stateful.locator(".facts dd").all_inner_texts()
