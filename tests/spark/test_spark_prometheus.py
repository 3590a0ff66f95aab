"""Problems of real queries reach the receivers through the shipped rules and the shipped
configuration of Alertmanager, and nothing else does; every panel shows them.
"""

from __future__ import annotations

import math
import re
import time
from contextlib import ExitStack

import pytest
import requests
from support.observed import (
    APP,
    BACK,
    DEAD,
    DOOMED,
    EVENTS_MISSING,
    HEALED,
    MUST_FIRE,
    ObservedPlay,
)
from support.panels import (
    DASHBOARDS,
    every_expression,
    every_panel,
    every_target,
    filled,
    variables,
)
from support.patience import PATIENCE_SECONDS, until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.prometheus,
    pytest.mark.alertmanager,
    # The first test waits for the whole scenario.
    pytest.mark.timeout(900),
]

OF_BROKERS_AND_TABLES = (
    "query: Lag by topic A",
    "query: Age of the oldest unread record A",
    "query: Age of the oldest unread record B",
    "query: Retention used by the unread backlog A",
    "query: Time until data is lost A",
    "query: Backlog by source, files A",
    "query: Backlog by source, bytes A",
)
OF_CHAINS = (
    "fleet: Who reads what another query writes A",
    "fleet: Who reads what another query writes B",
)
EXPECTED_EMPTY = {
    **dict.fromkeys(OF_CHAINS, "no series"),
    **dict.fromkeys(OF_BROKERS_AND_TABLES, "no series"),
    "fleet: Cost to the job: one event A": "no number",
    "query: Observed values A": "no series",
}
"""Targets without data here: no query reads from a broker, a table or another query, none observes
values, and no Python of ours runs on Spark's threads."""
MAY_BE_EMPTY = {
    "fleet: Queries that need attention E",
    "fleet: Memory and disks of the drivers B",
    "fleet: Time until it is full A",
    "fleet: Cost by query B",
    "fleet: Slots held by jobs of no query A",
}
"""The lag of unhealthy queries, of which most have no current one; the memory of a container, where
there is one; what fills up, if anything does; and jobs of no query."""
TIMESTAMPS = {"fleet: annotation Starts", "query: annotation Starts"}
"""Annotations whose values are timestamps."""


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """A real Prometheus and Alertmanager that have observed the failing queries of a real driver."""
    with ExitStack() as stack:
        yield ObservedPlay(tmp_path_factory.mktemp("observed"), stack)


def test_expected_alerts_and_no_others_arrive_with_our_labels_at_the_receiver_of_their_severity(
    observed,
):
    receivers = {"critical": "pager", "warning": "chat", "none": "watchdog"}
    assert observed.received("firing") - {("QuerypulseWatchdog", "*")} == MUST_FIRE
    for reported in observed.receivers.alerts:
        labels = reported["labels"].keys() - {"job", "cause"}
        assert labels == {"alertname", "app", "query", "severity"}
        is_failure = reported["labels"]["alertname"] == "StreamingQueryFailed"
        assert reported["labels"].get("cause", "").startswith("failed") or not is_failure
        assert reported["receiver"] == receivers[reported["labels"]["severity"]]
        assert reported["annotations"]["runbook_url"].endswith(
            f"/{reported['labels']['alertname']}.md"
        )


def test_recovered_queries_are_reported_as_resolved(observed):
    assert observed.received("resolved") >= BACK
    firing = [alert for alert in observed.prometheus.alerts() if alert["state"] == "firing"]
    held = {(alert["labels"]["alertname"], alert["labels"]["query"]) for alert in firing}
    assert not held & BACK


def test_unrecovered_queries_are_not_reported_as_resolved(observed):
    """Neither is what had failed when its driver was killed."""
    assert observed.received("resolved") - BACK == {HEALED, EVENTS_MISSING}


def test_killed_driver_is_reported_and_resolved_alerts_stay_resolved(observed):
    reported = [alert for alert in observed.receivers.alerts if alert["labels"]["app"] == DOOMED]
    (down,) = [alert for alert in reported if alert["labels"]["alertname"] == "StreamingDriverDown"]
    of_healed = [alert["status"] for alert in reported if alert["labels"]["query"] == HEALED[1]]

    assert down["status"] == "firing"
    assert down["annotations"]["reason"].startswith("last heartbeat at 20")
    assert of_healed == ["firing", "resolved"]


def test_failed_query_is_reported_with_its_error(observed):
    reported = next(
        alert for alert in observed.receivers.alerts if alert["labels"]["query"] == DEAD
    )

    assert reported["annotations"]["reason"] == "Boom"


def test_each_open_alert_is_a_series_in_prometheus(observed):
    labels = ("alertname", "app", "query", "severity")

    def agree():
        series = observed.prometheus.query(f'spark_streaming_query_alert{{app="{APP}"}} == 1')
        status = requests.get(f"{observed.url}/status", timeout=PATIENCE_SECONDS).json()
        of_prometheus = {tuple(shown["metric"][name] for name in labels) for shown in series}
        return of_prometheus == {
            tuple(alert["labels"][name] for name in labels) for alert in status["alerts"]
        }

    until(agree, "Prometheus and the driver have the same open alerts")


def test_alert_that_ended_is_a_series_of_0(observed):
    series = observed.prometheus.query(f'spark_streaming_query_alert{{app="{APP}"}} == 0')

    assert {(sample["metric"]["alertname"], sample["metric"]["query"]) for sample in series} >= BACK


# -- dashboards -------------------------------------------------------------------------------


def over_time(observed, expression):
    """All series of an expression over the whole scenario."""
    when = {"start": observed.began_at, "end": time.time(), "step": 2}
    asked = {"query": filled(expression), **when}
    return observed.prometheus.get("query_range", asked)["result"]


def complaints(observed, expression, legend):
    """The problem with the result of a query, or an empty string."""
    answers = over_time(observed, expression)
    if not answers:
        return "no series"
    values = [float(text) for series in answers for _, text in series["values"]]
    if not any(map(math.isfinite, values)):
        return "no number"
    # A quantile without batches is NaN and draws no line.
    if "histogram_quantile" not in expression and not all(map(math.isfinite, values)):
        return "values that are no numbers"
    used = set(re.findall(r"\{\{(\w+)\}\}", legend))
    bare = [series["metric"] for series in answers if not used <= set(series["metric"])]
    return f"series without the labels of {legend}: {bare}" if bare else ""


def test_every_query_of_a_panel_or_an_annotation_returns_data(observed):
    legends = {name: target["legendFormat"] for name, target in every_target().items()}
    answers = {
        name: complaints(observed, expression, legends.get(name, ""))
        for name, expression in every_expression().items()
    }

    wrong = {name: why for name, why in answers.items() if why and name not in MAY_BE_EMPTY}
    assert wrong == EXPECTED_EMPTY


def test_start_annotations_are_in_milliseconds(observed):
    for name in TIMESTAMPS:
        moments = [
            float(text) / 1000
            for series in over_time(observed, every_expression()[name])
            for _, text in series["values"]
        ]
        assert all(observed.began_at - 1 < moment < time.time() + 1 for moment in moments)


def test_every_variable_has_values(observed):
    without = []
    for name, dashboard in DASHBOARDS.items():
        for variable in variables(dashboard):
            asked = variable["query"]["query"]
            selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", asked).groups()
            asked = {"match[]": filled(selector), "start": str(observed.began_at)}
            if not observed.prometheus.get(f"label/{label}/values", asked):
                without.append((name, label))

    assert without == []


def test_query_variable_limits_the_series_to_one_query(observed):
    by_query = [target["expr"] for target in every_target().values() if "$query" in target["expr"]]
    for expression in by_query:
        chosen = filled(expression, query="hung")
        labels = [series["metric"] for series in over_time(observed, chosen)]
        assert {series.get("query", "hung") for series in labels} <= {"hung", "*"}


def test_state_panel_agrees_with_the_status_of_the_driver(observed):
    """The panel maps its numbers to words."""
    panel = every_panel()["fleet: State of the 20 queries with most trouble"]
    [mapping] = panel["fieldConfig"]["defaults"]["mappings"]
    words = {number: shown["text"] for number, shown in mapping["options"].items()}
    expression = filled(panel["targets"][0]["expr"], instance=re.escape(observed.url[7:]))

    def agree():
        rows = observed.prometheus.query(expression.replace("\\", "\\\\"))
        panel_says = {row["metric"]["query"]: words[row["value"][1]] for row in rows}
        status = requests.get(f"{observed.url}/status", timeout=PATIENCE_SECONDS).json()
        return panel_says == {query["name"]: query["state"] for query in status["queries"]}

    until(agree, "the panel and the driver agree")
