"""The fleet's dashboard, asked of a real Prometheus that has scraped forty jobs of ten queries."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace
from support.panels import DASHBOARDS, filled, panels
from support.prometheus import RealPrometheus, accepted
from support.published_states import published, text
from support.story import CONFLICT, Story

from querypulse.alerting.finding import QueryHealth
from querypulse.core.states import QueryState
from querypulse.exporter.published_state import alerts_last_open

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

JOBS, QUERIES, SCRAPES, INTERVAL = 40, 10, 8, 15
UNHEALTHY = {
    ("job-07", "q3"): "failed",
    ("job-21", "q0"): "stalled",
    ("job-33", "q9"): "lagging",
}
EPISODE_SECONDS = 90
ROWS = 40
"""As many as there are jobs; a panel with more is not readable."""


def job(number: int, wall: float, began: float):
    """The published state of a job; those in ``UNHEALTHY`` have an unhealthy query and its alert."""
    app = f"job-{number:02}"
    story = Story()
    for query in range(QUERIES):
        story.started(f"q{query}", at=0).commit(f"q{query}", batch=1, at=90)
    if app == "job-07":
        story.ended("q3", at=95, exception=CONFLICT)
    shown = published(story, app=app)
    states = {query: state for (owner, query), state in UNHEALTHY.items() if owner == app}
    health = {name: QueryHealth(QueryState(state)) for name, state in states.items()}
    alerts = tuple(replace(alert, starts_at=began) for alert in shown.alerts)
    return replace(
        shown,
        wall=wall,
        health={**shown.health, **health},
        monitor=replace(shown.monitor, heartbeat_timestamp=wall - 0.5),
        alerts=alerts,
        alerts_last_open=alerts_last_open({}, alerts, 0),
    )


def scraped(number: int, wall: float, began: float) -> list[str]:
    """The job's samples as Prometheus has them after a scrape: with job, instance and a time."""
    labels = f'instance="driver-{number:02}:9719",job="spark",'
    samples = [line for line in text(job(number, wall, began)).splitlines() if line[0] != "#"]
    return [f"{line.replace('{', '{' + labels, 1)} {wall:.3f}" for line in samples]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """It has two minutes of history, read as blocks: no process for each job."""
    folder = tmp_path_factory.mktemp("fleet")
    now = time.time()
    walls = [now - INTERVAL * number for number in reversed(range(SCRAPES))]
    lines = [
        line
        for wall in walls
        for number in range(JOBS)
        for line in scraped(number, wall, now - EPISODE_SECONDS)
    ]
    history = folder / "history.txt"
    history.write_text("\n".join((*lines, "# EOF\n")))
    accepted("promtool", "tsdb", "create-blocks-from", "openmetrics", history, folder / "data")
    with RealPrometheus(folder, []) as real:
        yield real


def fleet_panels():
    return {panel["title"]: panel for panel in panels(DASHBOARDS["fleet"])}


def column(prometheus, title, letter):
    """The values of a table's column, by the labels of its rows."""
    (target,) = [t for t in fleet_panels()[title]["targets"] if t["refId"] == letter]
    return {
        tuple(entry["metric"].get(name, "") for name in ("app", "query")): float(entry["value"][1])
        for entry in prometheus.query(filled(target["expr"]))
    }


def series_of(prometheus, expr):
    now = time.time()
    asked = {"query": filled(expr), "start": now - 600, "end": now, "step": 15}
    return prometheus.get("query_range", asked)["result"]


def test_every_panel_that_is_open_at_first_answers_with_rows_that_a_reader_can_take_in(prometheus):
    counts = {}
    for panel in DASHBOARDS["fleet"]["panels"]:
        for target in panel.get("targets", ()):
            name = f"{panel['title']} {target['refId']}"
            if target["instant"]:
                counts[name] = len(prometheus.query(filled(target["expr"])))
            else:
                counts[name] = len(series_of(prometheus, target["expr"]))

    assert [name for name, count in counts.items() if count > ROWS] == []
    assert counts["Applications A"] == JOBS
    assert counts["State of the 20 queries with most trouble A"] == 20


def test_lines_of_the_rows_that_are_closed_are_at_most_twenty(prometheus):
    lines = {
        title: len(series_of(prometheus, target["expr"]))
        for title, panel in fleet_panels().items()
        if panel["type"] == "timeseries"
        for target in panel["targets"]
    }

    assert lines["Lag"] == 0, "no query of this fleet reports a lag"
    assert (lines["Commits"], max(lines.values())) == (20, 20)


def test_worst_application_and_all_that_need_attention_are_found(prometheus):
    states = column(prometheus, "Applications", "A")
    queries = column(prometheus, "Applications", "E")
    worst = sorted(states, key=states.__getitem__, reverse=True)[:3]

    assert [app for app, _ in worst] == ["job-07", "job-21", "job-33"]
    assert set(queries.values()) == {QUERIES}
    assert set(column(prometheus, "Queries that need attention", "A")) == set(UNHEALTHY)
    assert set(column(prometheus, "Queries that need attention", "C")) <= set(UNHEALTHY)
    timeline = fleet_panels()["State of the 20 queries with most trouble"]["targets"][0]["expr"]
    drawn = {(s["metric"]["app"], s["metric"]["query"]) for s in series_of(prometheus, timeline)}
    assert drawn >= set(UNHEALTHY)


def test_alert_is_open_since_its_present_episode(prometheus):
    ages = column(prometheus, "Open alerts", "A")

    assert list(ages) == [("job-07", "q3")]
    assert EPISODE_SECONDS <= ages["job-07", "q3"] < 10 * EPISODE_SECONDS
    critical, warnings = (column(prometheus, "Alerts open now", letter) for letter in "AB")
    assert (list(critical.values()), list(warnings.values())) == ([1.0], [0.0])
