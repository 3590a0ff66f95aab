"""The shipped configuration of Alertmanager: its routes, groups and inhibition."""

from __future__ import annotations

from itertools import count

import pytest
import requests
import yaml
from support.observed import ALERTMANAGER, shown_to
from support.patience import PATIENCE_SECONDS, until
from support.prometheus import Notifications, RealAlertmanager, accepted

pytestmark = pytest.mark.alertmanager

MARKS = count()


def test_amtool_accepts_the_shipped_configuration_which_contains_no_secret():
    """Secrets come from mounted files; ``url_file`` of a webhook needs a newer Alertmanager."""
    assert "SUCCESS" in accepted("amtool", "check-config", ALERTMANAGER)
    for receiver in yaml.safe_load(ALERTMANAGER.read_text())["receivers"]:
        for configs in receiver.values():
            reported = configs[0] if isinstance(configs, list) else {}
            assert not {"routing_key", "service_key", "api_url"} & reported.keys()


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=StreamingQueryFailed severity=critical", "pager"),
        ("alertname=StreamingQueryFailed severity=warning", "chat"),
        ("alertname=StreamingDriverDown severity=critical env=prod", "pager"),
        ("alertname=QuerypulseWatchdog severity=none", "watchdog"),
        ("alertname=Other", "chat"),
    ],
)
def test_severity_routes_to_its_receiver(labels, receiver):
    command = ("amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}")

    assert accepted(*command, *labels.split()) == receiver


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alertmanager")
    with (
        Notifications() as receivers,
        RealAlertmanager(folder, receivers, shown_to(receivers.url)) as real,
    ):
        yield real


def alert(app, name, query="orders", severity="critical", **labels):
    own = {"app": app, "alertname": name, "query": query, "severity": severity}
    return own | {key: value for key, value in labels.items() if value}


def send(real, *alerts):
    post = [{"labels": labels} for labels in alerts]
    answer = requests.post(f"{real.url}/api/v2/alerts", json=post, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text


def identity(labels):
    return tuple(labels.get(name) for name in ("alertname", "query", "severity", "env"))


def arrived(real, app):
    """What identifies each alert of an app that arrived."""
    labels = [reported["labels"] for reported in real.reported.alerts]
    return [identity(alert) for alert in labels if alert.get("app", "") == app]


def wait_for(real, *alerts):
    for labels in alerts:
        until(
            lambda labels=labels: identity(labels) in arrived(real, labels.get("app", "")),
            f"{labels} arrives",
        )


def settle(real):
    """Wait until what was sent before has arrived, unless it is inhibited.

    Alertmanager waits before it sends a new group, and for less long before it sends what joins an
    open alert: two new groups, one after the other, arrive later than all.
    """
    for _ in range(2):
        mark = alert(f"mark-{next(MARKS)}", "StreamingOffsetsRewound", severity="warning")
        send(real, mark)
        wait_for(real, mark)


DOWN, STALLED = "StreamingDriverDown", "StreamingQueryStalled"
INHIBITED = [
    (alert("gone", DOWN, "*"), alert("gone", "StreamingQueryLagging", severity="warning")),
    (alert("gone_all", DOWN, "*"), alert("gone_all", STALLED)),
    (alert("prod", DOWN, "*", env="prod"), alert("prod", "StreamingQueryMissing", env="prod")),
    (alert("silent", STALLED, "*"), alert("silent", STALLED)),
    (alert("stopped", "StreamingQueryStopped", "*"), alert("stopped", "StreamingQueryStopped")),
]
INDEPENDENT = [
    (alert("fails", DOWN, "*"), alert("fails", "StreamingQueryFailed")),
    (alert("gives_up", DOWN, "*"), alert("gives_up", "StreamingQueryGivenUp")),
    (alert("one_app", DOWN, "*"), alert("another_app", STALLED)),
    (alert("envs", DOWN, "*", env="dev"), alert("envs", STALLED, env="prod")),
    (alert("clusters", DOWN, "*", cluster="a"), alert("clusters", STALLED, cluster="b")),
    (alert("warned", "QuerypulseMonitoringDegraded", "*", "warning"), alert("warned", STALLED)),
    (alert("monitor", DOWN, "*"), alert("monitor", "QuerypulseDeliveryFailing", "*", "warning")),
    (alert("memory", "StreamingDriverMemory", "*"), alert("memory", STALLED)),
    (alert("disk", "StreamingDiskFilling", "*"), alert("disk", "StreamingQueryLagging")),
    (alert("sisters", "StreamingQueryFailed"), alert("sisters", STALLED, "bills")),
    (alert("same", STALLED), alert("same", "StreamingDataLossRisk", severity="warning")),
    (alert("always", DOWN, "*"), alert("*", "QuerypulseWatchdog", "*", "none")),
    # Two labels that are both missing count as equal.
    (alert("", DOWN, "*"), alert("", "DiskFull")),
]


def test_critical_alert_of_a_driver_inhibits_what_was_inferred_about_its_queries(real):
    send(real, *(source for source, _ in INHIBITED))
    wait_for(real, *(source for source, _ in INHIBITED))
    send(real, *(target for _, target in INHIBITED))
    settle(real)

    assert [len(arrived(real, source["app"])) for source, _ in INHIBITED] == [1] * len(INHIBITED)


def test_failures_and_everything_else_are_not_inhibited(real):
    send(real, *(first for first, _ in INDEPENDENT))
    wait_for(real, *(first for first, _ in INDEPENDENT))
    send(real, *(second for _, second in INDEPENDENT))

    wait_for(real, *(second for _, second in INDEPENDENT))


@pytest.mark.parametrize(
    ("app", "first", "second", "groups"),
    [
        ("one_query", {"name": "StreamingQueryFailed"}, {"name": "StreamingQueryFlapping"}, 1),
        ("two_queries", {"name": STALLED}, {"name": STALLED, "query": "bills"}, 2),
        ("query_and_driver", {"name": "StreamingQueryFailed"}, {"name": DOWN, "query": "*"}, 2),
        ("two_envs", {"name": STALLED, "env": "dev"}, {"name": STALLED, "env": "prod"}, 2),
        ("two_routes", {"name": STALLED, "severity": "warning"}, {"name": STALLED}, 2),
    ],
)
def test_alerts_of_one_query_share_a_group(real, app, first, second, groups):
    """PagerDuty has one key for each group, and notifies nobody of a trigger on an open key."""
    for labels in (alert(app, **first), alert(app, **second)):
        send(real, labels)
        wait_for(real, labels)

    sent = {
        (reported["receiver"], *sorted(reported["group"].items()))
        for reported in real.reported.alerts
        if reported["labels"].get("app") == app
    }
    assert len(sent) == groups
