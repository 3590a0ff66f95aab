"""Many drivers, a real Prometheus and a real Alertmanager: one cause is one notification."""

from __future__ import annotations

import json
import re
import time

import pytest
import requests
import yaml
from msgspec.structs import replace
from support.alertmanager_doubles import KEY, Chats
from support.fleet import BUG, OUTAGE, Fleet
from support.observed import quick_rules, shown_to
from support.patience import PATIENCE_SECONDS, until
from support.prometheus import Notifications, RealAlertmanager, RealPrometheus, accepted
from support.receiver_incidents import alert
from support.repository import DASHBOARDS

from querypulse.alerting.receivers.alertmanager import api_alerts

pytestmark = [pytest.mark.prometheus, pytest.mark.alertmanager, pytest.mark.slow]

SHIPPED = DASHBOARDS / "alertmanager" / "alertmanager-fleet.yaml"
STARVED = "starved at app1/q0"


# -- the profile of Alertmanager ------------------------------------------------------------------


def test_amtool_accepts_the_profile_which_differs_only_in_what_shares_a_cause():
    assert "SUCCESS" in accepted("amtool", "check-config", SHIPPED)
    shipped, usual = (
        yaml.safe_load(path.read_text())
        for path in (SHIPPED, SHIPPED.with_name("alertmanager.yaml"))
    )
    watchdog, of_causes, critical = shipped["route"].pop("routes")

    assert [watchdog, critical] == usual["route"].pop("routes")
    assert shipped["route"] == usual["route"]
    assert of_causes["group_by"] == ["env", "cluster", "cause"]
    assert shipped["inhibit_rules"][:2] == usual["inhibit_rules"]
    receivers = {receiver["name"]: receiver for receiver in shipped["receivers"]}
    (pager,) = receivers["pager"]["pagerduty_configs"]
    (chat,) = receivers["chat"]["slack_configs"]
    usual = {receiver["name"]: receiver for receiver in usual["receivers"]}
    assert [pager] == usual["pager"]["pagerduty_configs"]
    assert [chat] == usual["chat"]["slack_configs"]


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("severity=critical", f"cause={OUTAGE}"), "fleet-pager"),
        (("severity=warning", f"cause={OUTAGE}"), "fleet-chat"),
        (("severity=critical", "cause=failed: ReadError at lake.orders"), "fleet-pager"),
        (("severity=warning", f"cause={STARVED}"), "fleet-chat"),
        (("severity=critical", f"cause={BUG}"), "pager"),
        (("severity=critical", "cause=batch_hung"), "pager"),
        (("severity=warning", "cause=lag_rises"), "chat"),
        (("severity=critical",), "pager"),
        (("severity=warning",), "chat"),
        (("alertname=QuerypulseWatchdog", "severity=none"), "watchdog"),
    ],
)
def test_only_what_names_a_place_is_routed_by_its_cause(labels, receiver):
    command = ("amtool", "config", "routes", "test", f"--config.file={SHIPPED}")

    assert accepted(*command, *labels) == receiver


def groups_of(notifications, status="firing"):
    """By receiver and the labels that a notification is grouped by: the queries in it."""
    groups = {}
    for body in list(notifications.bodies):
        if body["receiver"] == "watchdog":
            continue
        by = tuple(sorted(body["groupLabels"].items()))
        named = groups.setdefault((body["receiver"], by), set())
        named |= {
            (one["labels"]["app"], one["labels"]["query"])
            for one in body["alerts"]
            if one["status"] == status
        }
    return {key: named for key, named in groups.items() if named}


def of_cause(receiver, cause):
    return receiver, (("cause", cause),)


@pytest.fixture
def manager(tmp_path):
    with (
        Notifications() as receivers,
        RealAlertmanager(tmp_path, receivers, shown_to(receivers.url, SHIPPED)) as manager,
    ):
        yield manager


def test_drivers_that_notify_by_themselves_are_one_notification_if_they_share_a_cause(manager):
    bug = shared("app0", "q0", cause=BUG)
    for app in (f"app{number}" for number in range(1, 40)):
        manager.send([shared(app, "q1")])
    manager.send([bug, shared("app50", "q1", cause=BUG)])

    wanted = {
        of_cause("fleet-pager", OUTAGE): {(f"app{number}", "q1") for number in range(1, 40)},
        ("pager", (("app", "app0"), ("query", "q0"))): {("app0", "q0")},
        ("pager", (("app", "app50"), ("query", "q1"))): {("app50", "q1")},
    }
    until(lambda: groups_of(manager.reported) == wanted, "each cause is a group of its own")


@pytest.fixture
def messages(tmp_path):
    """What the receivers of a fleet get of one cause, in PagerDuty and Slack."""
    shipped = {
        receiver["name"]: receiver for receiver in yaml.safe_load(SHIPPED.read_text())["receivers"]
    }
    (pager,) = shipped["fleet-pager"]["pagerduty_configs"]
    (chat,) = shipped["fleet-chat"]["slack_configs"]
    del pager["routing_key_file"], chat["api_url_file"]
    with Chats() as chats:
        pager |= {"routing_key": KEY, "url": f"{chats.url}/PagerDuty"}
        chat |= {"api_url": f"{chats.url}/Slack"}
        config = {
            "templates": [str(path) for path in sorted(SHIPPED.parent.glob("*.tmpl"))],
            "route": {
                "receiver": "all",
                "group_by": ["cause"],
                "group_wait": "200ms",
                "group_interval": "200ms",
            },
            "receivers": [{"name": "all", "pagerduty_configs": [pager], "slack_configs": [chat]}],
        }
        with RealAlertmanager(tmp_path, chats, yaml.safe_dump(config)) as manager:

            def got_of(alerts, said):
                manager.send(alerts)
                newest = {}

                def is_said():
                    for way in ("PagerDuty", "Slack"):
                        fitting = [one for one in chats.got[way] if said in json.dumps(one)]
                        newest[way] = fitting[-1:]
                    return all(newest.values())

                until(is_said, f"both receivers say {said}")
                (page,), (chat,) = newest["PagerDuty"], newest["Slack"]
                return page, chat["attachments"][0]

            yield got_of


def shared(app, query, ends_at=None, cause=OUTAGE):
    one = alert(query=query, description="next_steps: 1. Read the error.", ends_at=ends_at)
    one = replace(one, labels={**one.labels, "app": app}, cause=cause)
    return api_alerts([one], time.time(), cause_label=True)[0]


def test_message_of_a_fleet_says_the_cause_and_lists_drivers_with_their_queries(messages):
    apps = [f"app{number:02}" for number in range(40)]
    alerts = [shared(app, query) for app in apps for query in ("bronze", "silver")]
    page, chat = messages(alerts, f"{OUTAGE}: 80 alerts")
    details = page["payload"]["custom_details"]

    assert page["payload"]["summary"] == f"{OUTAGE}: 80 alerts"
    assert page["payload"]["component"] == OUTAGE
    lines = [f"StreamingQueryFailed of {app}: bronze, silver" for app in apps]
    assert details["firing"].splitlines() == lines
    assert chat["title"] == f":rotating_light: critical: {OUTAGE}: 80 alerts"
    assert [f"• {line}" for line in lines[:25]] == chat["text"].splitlines()[:25]
    assert "and 30 more" in chat["text"]
    assert "1. Read the error." in chat["text"]
    assert "1. Read the error." in details["details"]


def test_message_of_a_fleet_says_how_many_have_ended_and_that_all_have(messages):
    messages([shared("shop", "bronze"), shared("bank", "gold")], f"{OUTAGE}: 2 alerts")
    ended = shared("bank", "gold", ends_at=time.time() - 1)
    page, _ = messages([ended], f'{OUTAGE}: 1 alert"')
    assert page["payload"]["custom_details"]["resolved"] == "1 of this cause have ended"

    _, chat = messages([shared("shop", "bronze", ends_at=time.time() - 1)], "esolve")
    assert chat["title"].startswith(f":white_check_mark: Resolved: {OUTAGE}: ")


@pytest.mark.parametrize("name", ["<!channel>", "a|b*c_d~e`f```g", '{{ template "x" }}'])
def test_no_name_makes_markup_in_a_message_of_a_fleet(name, messages):
    _, chat = messages([shared(name, name, cause=f"failed: X at {name}")], ': 1 alert"')

    for text in (chat["title"], chat["text"]):
        assert "<!" not in text
    assert chat["text"].count("```") == 2


# -- with Prometheus ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drivers", "queries", "interval"),
    [
        pytest.param(12, 3, 1, marks=pytest.mark.thorough),
        pytest.param(500, 10, 8, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)]),
    ],
)
def test_outage_of_a_broker_is_one_notification_and_another_failure_pages_by_itself(
    drivers, queries, interval, tmp_path, manager
):
    rules = quick_rules(tmp_path, 4 * interval, ("drivers.yaml", "queries.yaml", "fleet.yaml"))
    flags = [f"--query.lookback-delta={20 * interval}s"]
    with (
        Fleet(drivers, queries) as fleet,
        RealPrometheus(
            tmp_path,
            fleet.urls,
            rules=rules,
            alertmanagers=[manager.url],
            flags=flags,
            interval=f"{interval}s",
        ) as prometheus,
    ):
        every = "count(count by (app) (spark_streaming_query_dataset:last))"
        patience = PATIENCE_SECONDS * interval
        until(lambda: figure(prometheus, every) == drivers, "all drivers are scraped", patience)
        fleet.outage_at = time.time()
        began = time.monotonic()
        down = {
            (f"app{driver}", f"q{query}")
            for driver in range(1, drivers, 2)
            for query in range(queries)
        }
        fed = {
            (f"app{driver}", f"q{query}")
            for driver in range(2, drivers, 2)
            for query in range(1, queries)
        }
        wanted = {
            of_cause("fleet-pager", OUTAGE): down,
            of_cause("fleet-chat", STARVED): fed,
            ("pager", (("app", "app0"), ("query", "q0"))): {("app0", "q0")},
        }
        until(lambda: groups_of(manager.reported) == wanted, "each cause is a group", patience)
        print(f"after {time.monotonic() - began:.0f} s:", measured(prometheus, drivers, queries))
        fleet.outage_at = None
        until(
            lambda: groups_of(manager.reported, "resolved") == wanted, "each of them ends", patience
        )


def figure(prometheus, promql):
    return sum(float(series["value"][1]) for series in prometheus.query(promql))


def measured(prometheus, drivers, queries):
    """What it costs, in a line: for the report of ``make nightly``, not to be asserted."""
    own = requests.get(f"{prometheus.url}/metrics", timeout=PATIENCE_SECONDS).text
    memory = float(re.search(r"^process_resident_memory_bytes (\S+)$", own, re.MULTILINE)[1])
    series = float(re.search(r"^prometheus_tsdb_head_series (\S+)$", own, re.MULTILINE)[1])
    groups = prometheus.get("rules", {})["groups"]
    took = {group["name"]: f"{group['evaluationTime']:.3f} s" for group in groups}
    return f"{drivers} drivers, {drivers * queries} queries, {series:.0f} series: {memory / 1e6:.0f} MB, {took}"
