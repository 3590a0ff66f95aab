"""The shipped configuration of Alertmanager: its routes, groups and inhibition rules."""

from __future__ import annotations

import subprocess
import time

import pytest
import requests
import yaml
from support.alertmanager import RealAlertmanager
from support.observed import ALERTMANAGER, GROUP_INTERVAL_SECONDS, AlertReceivers, shown_to
from support.queries import until
from support.rule_files import shipped

from querypulse.alerting.alert import LASTING, OCCURRENCE

pytestmark = pytest.mark.alertmanager

CONFIG = yaml.safe_load(ALERTMANAGER.read_text())
SEVERITIES = {alert: rule["labels"]["severity"] for alert, rule in shipped().items()}
SEVERITIES |= {
    "StreamingDataLossRisk": "warning",
    "StreamingBatchSlow": "warning",
    "StreamingQueryStalled": "critical",
    "StreamingQueryFailed": "critical",
    "StreamingQueryFlapping": "critical",
}
SEVERITIES |= {"StreamingQueryLagging": "warning"}
"""These alerts have either severity; this is the usual one."""
RECEIVERS = {"critical": "pager", "warning": "chat", "none": "watchdog"}


def amtool(*arguments):
    done = subprocess.run(["amtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_amtool_accepts_the_shipped_configuration():
    assert "SUCCESS" in amtool("check-config", str(ALERTMANAGER))


@pytest.mark.parametrize("alert", SEVERITIES)
def test_each_severity_routes_to_its_receiver(alert):
    labels = [f"alertname={alert}", "app=shop", "query=orders", f"severity={SEVERITIES[alert]}"]
    reported = amtool("config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels)

    assert reported == RECEIVERS[SEVERITIES[alert]]


def test_alert_without_a_severity_routes_to_chat():
    labels = ["alertname=Other", "app=shop"]

    assert amtool("config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels) == "chat"


def test_shipped_configuration_contains_no_secret():
    """Secrets come from mounted files; ``url_file`` of a webhook needs a newer Alertmanager."""
    for receiver in CONFIG["receivers"]:
        for configs in receiver.values():
            reported = configs[0] if isinstance(configs, list) else {}
            assert not {"routing_key", "service_key", "api_url"} & reported.keys()


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with AlertReceivers() as harness:
        folder = tmp_path_factory.mktemp("alertmanager")
        real = RealAlertmanager(folder, harness, shown_to(harness.url))
        try:
            real.wait_until_ready()
            yield real
        finally:
            real.stop()


def alert(name, query="orders", app="shop"):
    return {"alertname": name, "app": app, "query": query, "severity": SEVERITIES.get(name, "page")}


def send(real, *labels, ends_at=None):
    """Post alerts; with ``ends_at``, they have ended."""
    ends = {"startsAt": "2023-12-31T00:00:00Z", "endsAt": ends_at} if ends_at else {}
    alerts = [{"labels": one, **ends} for one in labels]
    answer = requests.post(f"{real.url}/api/v2/alerts", json=alerts, timeout=10)
    assert answer.status_code == 200, answer.text


def has_received(real, name, app):
    reported = [one["labels"] for one in real.reported.reported]
    return any((one["alertname"], one.get("app")) == (name, app) for one in reported)


def reported_about(real, *apps):
    """The notifications for these apps, once all alerts sent before are processed."""
    mark = f"mark-{time.monotonic()}"
    send(real, alert("StreamingOffsetsRewound", app=mark))
    until(lambda: has_received(real, "StreamingOffsetsRewound", mark), "the alert arrives")
    # An alert that joins an existing group waits for the next flush of the group.
    flushed = time.monotonic() + 2 * GROUP_INTERVAL_SECONDS
    until(lambda: time.monotonic() > flushed, "two flushes more")
    reported = [one["labels"] for one in real.reported.reported]
    return {(one["alertname"], one["query"]) for one in reported if one.get("app", "") in apps}


INHIBITED = [
    ("gone", ("StreamingDriverDown", "*"), [("StreamingQueryFailed", "orders"), ("StreamingQueryLagging", "bills"), ("QuerypulseMonitoringDegraded", "*")]),
    ("all_stopped", ("StreamingQueryStopped", "*"), [("StreamingQueryStopped", "orders"), ("StreamingQueryStalled", "bills")]),
    ("silent", ("StreamingQueryStalled", "*"), [("StreamingQueryStalled", "orders"), ("StreamingQueryStalled", "bills"), ("QuerypulseMonitoringDegraded", "*")]),
    ("dead", ("StreamingQueryFailed", "orders"), [("StreamingQueryStalled", "orders"), ("StreamingQueryLagging", "orders")]),
    ("missing", ("StreamingQueryMissing", "orders"), [("StreamingQueryStalled", "orders"), ("StreamingOffsetsStalled", "orders")]),
    ("stalled", ("StreamingQueryStalled", "orders"), [("StreamingQueryLagging", "orders"), ("StreamingBatchSlow", "orders"), ("StreamingOffsetsRewound", "orders")]),
    ("flapping", ("StreamingQueryFlapping", "orders"), [("StreamingQueryLagging", "orders")]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("app", "source", "targets"), INHIBITED, ids=lambda value: str(value)[:9])
def test_most_severe_alert_inhibits_its_consequences(real, app, source, targets):
    send(real, alert(*source, app=app))
    until(lambda: has_received(real, source[0], app), "the inhibiting alert arrives")
    send(real, *(alert(*target, app=app) for target in targets))

    assert reported_about(real, app) == {source}


INDEPENDENT = [
    ("another_app", [("StreamingDriverDown", "*")], "yet_another", [("StreamingQueryFailed", "orders")]),
    ("sisters", [("StreamingQueryFailed", "orders")], "sisters", [("StreamingQueryStalled", "bills")]),
    ("warned", [("StreamingQueryFailed", "orders")], "warned", [("StreamingQueryLagging", "bills")]),
    ("flaps", [("StreamingQueryFailed", "orders")], "flaps", [("StreamingQueryFlapping", "orders")]),
    ("in_danger", [("StreamingQueryStalled", "orders")], "in_danger", [("StreamingDataLossRisk", "orders")]),
    ("warnings", [("StreamingBatchSlow", "orders")], "warnings", [("StreamingQueryLagging", "orders"), ("StreamingWatermarkStuck", "orders")]),
    ("one_query", [("StreamingQueryStalled", "orders")], "one_query", [("QuerypulseMonitoringDegraded", "*"), ("QuerypulseDeliveryFailing", "*")]),
    ("deaths", [("StreamingQueryStalled", "*")], "deaths", [("StreamingQueryFailed", "orders")]),
    ("two_gone", [("StreamingDriverDown", "*")], "gone_too", [("StreamingDriverDown", "*")]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("app", "first", "other", "second"), INDEPENDENT, ids=lambda value: str(value)[:9]
)
def test_independent_alert_is_not_inhibited(real, app, first, other, second):
    send(real, *(alert(*one, app=app) for one in first))
    until(lambda: has_received(real, first[0][0], app), "the first alert arrives")
    send(real, *(alert(*one, app=other) for one in second))

    assert reported_about(real, app, other) == {*first, *second}


@pytest.mark.slow
def test_critical_data_loss_risk_inhibits_its_warning(real):
    acute = alert("StreamingDataLossRisk", app="acute") | {"severity": "critical"}
    send(real, acute)
    until(lambda: has_received(real, "StreamingDataLossRisk", "acute"), "the alert arrives")
    send(real, alert("StreamingDataLossRisk", app="acute"))

    assert reported_about(real, "acute") == {("StreamingDataLossRisk", "orders")}
    reported = [
        one["labels"] for one in real.reported.reported if one["labels"].get("app") == "acute"
    ]
    assert {one["severity"] for one in reported} == {"critical"}


@pytest.mark.slow
def test_foreign_alerts_without_our_labels_are_not_inhibited(real):
    """Two labels that are both missing count as equal."""
    send(real, {"alertname": "StreamingDriverDown", "severity": "critical", "query": "*"})
    send(real, {"alertname": "StreamingQueryFailed", "severity": "critical", "query": "*"})
    foreign = {"alertname": "DiskFull", "severity": "warning", "query": "*"}
    send(real, foreign)

    assert ("DiskFull", "*") in reported_about(real, "")


@pytest.mark.slow
def test_watchdog_is_never_inhibited(real):
    send(real, alert("StreamingDriverDown", "*", "w"), alert("QuerypulseWatchdog", "*", "*"))

    assert ("QuerypulseWatchdog", "*") in reported_about(real, "*")


def groups_of(real, app):
    """The query and the group labels of each notified alert of an app."""
    reported = [one for one in real.reported.reported if one["labels"].get("app") == app]
    return [(one["labels"]["query"], one["group"]) for one in reported]


@pytest.mark.slow
def test_one_notification_groups_all_queries_with_the_same_warning(real):
    send(
        real,
        alert("StreamingQueryLagging", "a", "group"),
        alert("StreamingQueryLagging", "b", "group"),
    )
    reported_about(real, "group")

    group = {"app": "group", "alertname": "StreamingQueryLagging"}
    assert groups_of(real, "group") == [("a", group), ("b", group)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("app", "first", "second"),
    [
        ("fails_later", ("StreamingQueryFailed", "a"), ("StreamingQueryFailed", "b")),
        ("stalls_later", ("StreamingQueryStalled", "a"), ("StreamingQueryStalled", "b")),
        ("another_alert", ("StreamingQueryFailed", "a"), ("StreamingQueryFlapping", "a")),
    ],
)
def test_later_critical_alert_joins_no_open_group(real, app, first, second):
    """PagerDuty has one key for each group, and notifies nobody of a trigger on an open key."""
    send(real, alert(*first, app=app))
    until(lambda: has_received(real, first[0], app), "the first alert arrives")
    send(real, alert(*second, app=app))
    reported_about(real, app)

    groups = groups_of(real, app)
    assert [query for query, _ in groups] == [first[1], second[1]]
    assert groups[0][1] != groups[1][1]


@pytest.mark.slow
def test_critical_alert_that_lasts_joins_no_open_group(real):
    """It was held open, so PagerDuty's key of the group without the label is open."""
    held = alert("StreamingQueryFailed", app="lasts")
    send(real, held)
    until(lambda: has_received(real, "StreamingQueryFailed", "lasts"), "the first alert arrives")
    send(real, held | {OCCURRENCE: LASTING})
    reported_about(real, "lasts")

    (_, before), (_, lasting) = groups_of(real, "lasts")
    assert lasting == before | {OCCURRENCE: LASTING}


@pytest.mark.slow
def test_driver_down_hides_that_prometheus_no_longer_sees_a_failure_in_it(real):
    """The query is still dead when the rules stop to keep its last scrape."""
    dead = alert("StreamingQueryFailed", app="still_dead")
    send(real, dead)
    until(lambda: has_received(real, "StreamingQueryFailed", "still_dead"), "the failure arrives")
    send(real, alert("StreamingDriverDown", "*", "still_dead"))
    until(lambda: has_received(real, "StreamingDriverDown", "still_dead"), "the end arrives")
    send(real, dead, ends_at="2024-01-01T00:00:00Z")
    reported_about(real, "still_dead")

    of_app = [one for one in real.reported.reported if one["labels"].get("app") == "still_dead"]
    assert {one["status"] for one in of_app} == {"firing"}


@pytest.mark.slow
def test_later_driver_down_joins_no_open_group(real):
    send(real, alert("StreamingDriverDown", "*", "gone_first"))
    until(
        lambda: has_received(real, "StreamingDriverDown", "gone_first"), "the first alert arrives"
    )
    send(real, alert("StreamingDriverDown", "*", "gone_later"))
    reported_about(real, "gone_later")

    assert groups_of(real, "gone_first")[0][1] != groups_of(real, "gone_later")[0][1]
