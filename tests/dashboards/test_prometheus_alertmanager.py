"""The shipped configuration of Alertmanager: its routes, groups and inhibition rules."""

from __future__ import annotations

import subprocess
from functools import cache
from itertools import count

import pytest
import requests
import yaml
from support.alertmanager import RealAlertmanager
from support.observed import ALERTMANAGER, AlertReceivers, shown_to
from support.patience import PATIENCE_SECONDS, until
from support.rule_files import shipped

from querypulse.alerting.alert import LASTING, OCCURRENCE

pytestmark = pytest.mark.alertmanager

USUAL = {
    "StreamingDataLossRisk": "warning",
    "StreamingBatchSlow": "warning",
    "StreamingQueryLagging": "warning",
    "StreamingQueryStalled": "critical",
    "StreamingQueryFailed": "critical",
    "StreamingQueryFlapping": "critical",
}
"""These alerts have either severity; this is the usual one."""
RECEIVERS = {"critical": "pager", "warning": "chat", "none": "watchdog"}
MARKS = count()


@cache
def severities():
    """The severity of each alert."""
    return {alert: rule["labels"]["severity"] for alert, rule in shipped().items()} | USUAL


def amtool(*arguments):
    done = subprocess.run(["amtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_amtool_accepts_the_shipped_configuration():
    assert "SUCCESS" in amtool("check-config", str(ALERTMANAGER))


def receiver_of(*labels):
    return amtool("config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels)


def test_each_severity_routes_to_its_receiver():
    routed = {
        alert: receiver_of(f"alertname={alert}", "app=shop", "query=orders", f"severity={severity}")
        for alert, severity in severities().items()
    }

    assert routed == {alert: RECEIVERS[severity] for alert, severity in severities().items()}


def test_alert_without_a_severity_routes_to_chat():
    assert receiver_of("alertname=Other", "app=shop") == "chat"


def test_shipped_configuration_contains_no_secret():
    """Secrets come from mounted files; ``url_file`` of a webhook needs a newer Alertmanager."""
    for receiver in yaml.safe_load(ALERTMANAGER.read_text())["receivers"]:
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
    return {"alertname": name, "app": app, "query": query, "severity": severities()[name]}


def send(real, *labels, ends_at=None):
    """Post alerts; with ``ends_at``, they have ended."""
    ends = {"startsAt": "2023-12-31T00:00:00Z", "endsAt": ends_at} if ends_at else {}
    alerts = [{"labels": of_alert, **ends} for of_alert in labels]
    answer = requests.post(f"{real.url}/api/v2/alerts", json=alerts, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text


def reported_about(real, *apps):
    """The labels of the alerts of these apps that arrived."""
    labels = [alert["labels"] for alert in real.reported.reported]
    return [of_alert for of_alert in labels if of_alert.get("app", "") in apps]


def arrived(real, *apps):
    """Name and query of each alert of these apps that arrived."""
    return {(labels["alertname"], labels["query"]) for labels in reported_about(real, *apps)}


def wait_for(real, app, *alerts):
    until(lambda: arrived(real, app) >= set(alerts), f"{alerts} of {app} arrive")


def settle(real):
    """Wait until what was sent before has arrived, unless it is inhibited.

    Alertmanager waits before it sends a new group, and for less long before it sends what joins an
    open one: two new groups, one after the other, arrive later than all.
    """
    for _ in range(2):
        app = f"mark-{next(MARKS)}"
        send(real, alert("StreamingOffsetsRewound", app=app))
        wait_for(real, app, ("StreamingOffsetsRewound", "orders"))


INHIBITED = [
    ("gone", ("StreamingDriverDown", "*"), [("StreamingQueryFailed", "orders"), ("StreamingQueryLagging", "bills"), ("QuerypulseMonitoringDegraded", "*")]),
    ("all_stopped", ("StreamingQueryStopped", "*"), [("StreamingQueryStopped", "orders"), ("StreamingQueryStalled", "bills")]),
    ("silent", ("StreamingQueryStalled", "*"), [("StreamingQueryStalled", "orders"), ("StreamingQueryStalled", "bills"), ("QuerypulseMonitoringDegraded", "*")]),
    ("dead", ("StreamingQueryFailed", "orders"), [("StreamingQueryStalled", "orders"), ("StreamingQueryLagging", "orders")]),
    ("missing", ("StreamingQueryMissing", "orders"), [("StreamingQueryStalled", "orders"), ("StreamingOffsetsStalled", "orders")]),
    ("stalled", ("StreamingQueryStalled", "orders"), [("StreamingQueryLagging", "orders"), ("StreamingBatchSlow", "orders"), ("StreamingOffsetsRewound", "orders")]),
    ("flapping", ("StreamingQueryFlapping", "orders"), [("StreamingQueryLagging", "orders")]),
]  # fmt: skip


def test_most_severe_alert_inhibits_its_consequences(real):
    send(real, *(alert(*source, app=app) for app, source, _ in INHIBITED))
    for app, source, _ in INHIBITED:
        wait_for(real, app, source)
    send(real, *(alert(*target, app=app) for app, _, targets in INHIBITED for target in targets))
    settle(real)

    assert {app: arrived(real, app) for app, *_ in INHIBITED} == {
        app: {source} for app, source, _ in INHIBITED
    }


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


def test_independent_alert_is_not_inhibited(real):
    for app, first, other, second in INDEPENDENT:
        send(real, *(alert(*source, app=app) for source in first))
        wait_for(real, app, *first)
        send(real, *(alert(*target, app=other) for target in second))

    for _, _, other, second in INDEPENDENT:
        wait_for(real, other, *second)


def test_critical_data_loss_risk_inhibits_its_warning(real):
    acute = alert("StreamingDataLossRisk", app="acute") | {"severity": "critical"}
    send(real, acute)
    wait_for(real, "acute", ("StreamingDataLossRisk", "orders"))
    send(real, alert("StreamingDataLossRisk", app="acute"))
    settle(real)

    assert {labels["severity"] for labels in reported_about(real, "acute")} == {"critical"}


def test_foreign_alerts_without_our_labels_are_not_inhibited(real):
    """Two labels that are both missing count as equal."""
    send(real, {"alertname": "StreamingDriverDown", "severity": "critical", "query": "*"})
    send(real, {"alertname": "StreamingQueryFailed", "severity": "critical", "query": "*"})
    wait_for(real, "", ("StreamingDriverDown", "*"))
    send(real, {"alertname": "DiskFull", "severity": "warning", "query": "*"})

    wait_for(real, "", ("DiskFull", "*"))


def test_watchdog_is_never_inhibited(real):
    send(real, alert("StreamingDriverDown", "*", "w"))
    wait_for(real, "w", ("StreamingDriverDown", "*"))
    send(real, alert("QuerypulseWatchdog", "*", "*"))

    wait_for(real, "*", ("QuerypulseWatchdog", "*"))


def groups_of(real, app):
    """The query and the group labels of each notified alert of an app."""
    alerts = [alert for alert in real.reported.reported if alert["labels"].get("app") == app]
    return [(alert["labels"]["query"], alert["group"]) for alert in alerts]


def test_one_notification_groups_all_queries_with_the_same_warning(real):
    lagging = [("StreamingQueryLagging", query) for query in ("a", "b")]
    send(real, *(alert(*query, "group") for query in lagging))
    wait_for(real, "group", *lagging)

    group = {"app": "group", "alertname": "StreamingQueryLagging"}
    assert groups_of(real, "group") == [("a", group), ("b", group)]


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
    wait_for(real, app, first)
    send(real, alert(*second, app=app))
    wait_for(real, app, second)

    groups = groups_of(real, app)
    assert [query for query, _ in groups] == [first[1], second[1]]
    assert groups[0][1] != groups[1][1]


def test_critical_alert_that_lasts_joins_no_open_group(real):
    """It was held open, so PagerDuty's key of the group without the label is open."""
    held = alert("StreamingQueryFailed", app="lasts")
    send(real, held)
    wait_for(real, "lasts", ("StreamingQueryFailed", "orders"))
    send(real, held | {OCCURRENCE: LASTING})
    until(lambda: len(groups_of(real, "lasts")) == 2, "the alert that lasts arrives")

    (_, before), (_, lasting) = groups_of(real, "lasts")
    assert lasting == before | {OCCURRENCE: LASTING}


def test_driver_down_hides_that_prometheus_no_longer_sees_a_failure_in_it(real):
    """The query is still dead when the rules stop to keep its last scrape."""
    dead = alert("StreamingQueryFailed", app="still_dead")
    send(real, dead)
    wait_for(real, "still_dead", ("StreamingQueryFailed", "orders"))
    send(real, alert("StreamingDriverDown", "*", "still_dead"))
    wait_for(real, "still_dead", ("StreamingDriverDown", "*"))
    send(real, dead, ends_at="2024-01-01T00:00:00Z")
    settle(real)

    of_app = [
        alert for alert in real.reported.reported if alert["labels"].get("app") == "still_dead"
    ]
    assert {alert["status"] for alert in of_app} == {"firing"}


def test_later_driver_down_joins_no_open_group(real):
    for app in ("gone_first", "gone_later"):
        send(real, alert("StreamingDriverDown", "*", app))
        wait_for(real, app, ("StreamingDriverDown", "*"))

    assert groups_of(real, "gone_first")[0][1] != groups_of(real, "gone_later")[0][1]
