"""What people read through Alertmanager, with the shipped templates: a real one, doubles of receivers."""

from __future__ import annotations

import json
import re
import time
from itertools import count
from pathlib import Path

import pytest
import yaml
from support.alertmanager_doubles import everywhere
from support.messages import page, through_alertmanager
from support.repository import ROOT

pytestmark = [pytest.mark.alertmanager, pytest.mark.slow]

GOLDEN = ROOT / "tests" / "fixtures" / "messages.txt"
RULES = [
    ROOT / "dashboards" / "prometheus" / name
    for name in ("drivers.yaml", "queries.yaml", "fleet.yaml")
]
APPS = (f"app{number}" for number in count())


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alertmanager")
    with everywhere(folder) as manager:
        yield manager
    assert "level=error" not in Path(folder, "alertmanager.log").read_text()


def alert(app, query="orders", name="StreamingQueryFailed", severity="critical", **changes):
    labels = {"alertname": name, "app": app, "query": query, "severity": severity}
    labels |= changes.pop("labels", {})
    return {"labels": labels, "annotations": {}, "startsAt": "2026-11-21T09:02:08Z"} | changes


def texts(message):
    """All that one message shows, in each of its parts."""
    if isinstance(message, dict):
        return json.dumps(message, ensure_ascii=False)
    parts = [part.get_content() for part in message.walk() if not part.is_multipart()]
    return "\n".join([message["Subject"], *parts])


def titles(got):
    """The headline of each way."""
    return {
        "PagerDuty": got["PagerDuty"]["payload"]["summary"],
        "Slack": got["Slack"]["attachments"][0]["title"],
        "Teams": re.sub(r"\\(.)", r"\1", got["Teams"]["attachments"][0]["title"]),
        "E-mail": " ".join(got["E-mail"]["Subject"].split()),
    }


def test_every_way_through_alertmanager_shows_the_expected_messages(manager):
    assert page(through_alertmanager(manager)) == GOLDEN.read_text()


def test_headline_is_that_of_the_most_prominent_alert_whatever_comes_first(manager):
    app = next(APPS)
    names = ["StreamingDataLossRisk", "StreamingBatchSlow", "StreamingQueryFailed", "AnotherAlert"]
    severities = ["critical", "warning", "critical", "critical"]
    got = manager.notified_of(
        alert(app, name=name, severity=severity, annotations={"summary": f"{name} is up"})
        for name, severity in zip(names, severities, strict=True)
    )

    assert all("StreamingQueryFailed is up (and 3 more)" in title for title in titles(got).values())
    assert got["PagerDuty"]["payload"]["class"] == "StreamingQueryFailed"
    assert got["PagerDuty"]["payload"]["severity"] == "critical"
    assert got["Slack"]["attachments"][0]["color"] == "danger"


@pytest.mark.parametrize(
    ("severity", "shown"),
    [("critical", "critical"), ("warning", "warning"), ("none", "info"), ("", "info")],
)
def test_severity_of_pagerduty_is_one_that_it_knows(manager, severity, shown):
    got = manager.notified_of([alert(next(APPS), severity=severity)])

    assert got["PagerDuty"]["payload"]["severity"] == shown


def test_alert_without_annotations_is_still_a_message(manager):
    """Of an older sender, or of somebody else's rule."""
    app = next(APPS)
    got = manager.notified_of([alert(app)])

    assert all(f"[{app}] orders: StreamingQueryFailed" in title for title in titles(got).values())
    assert "links" not in got["PagerDuty"]
    assert got["PagerDuty"]["client_url"].startswith("http://")
    over = manager.notified_of([alert(app, endsAt="2026-11-21T09:12:08Z")])
    assert all(
        f"Resolved: [{app}] orders" in title
        for way, title in titles(over).items()
        if way != "PagerDuty"
    )


FORTY = 40


def test_forty_queries_in_one_group_stay_within_the_limits_of_each_receiver(manager):
    long = "x" * 3000
    got = manager.notified_of(
        alert(
            "forty",
            f"query{number:02}",
            annotations={
                "summary": f"[forty] query{number:02} failed: {long}",
                "reason": long,
                "description": long * 9,
            },
        )
        for number in range(FORTY)
    )

    assert "(and 39 more)" in titles(got)["E-mail"]
    assert len(titles(got)["PagerDuty"]) <= 1024
    assert "(and 39 more)" in titles(got)["PagerDuty"]
    assert len(json.dumps(got["PagerDuty"])) < 512_000
    assert "custom_details" in got["PagerDuty"]["payload"]
    assert "error" not in got["PagerDuty"]["payload"]["custom_details"]
    assert "and 20 more" in texts(got["Slack"])
    assert len(got["Slack"]["attachments"][0]["text"]) < 12_000
    assert len(json.dumps(got["Teams"]).encode()) < 27 * 1024


HOSTILE = [
    '{{ template "x" }}',
    "{{ .Labels }}",
    "<script>alert(1)</script>",
    "<!channel> <@U1> <https://evil.example|click>",
    "[click](https://evil.example)",
    "a|b*c_d~e`f```g",
    "two\nlines\r\n.\r\nBcc: evil@example.com",
    "\"quotes' and \\ backslash $1 ${2}",
    "☃ 🚀 ZWJ \u200d \u202ertl",
    "%s %d %!s(MISSING)",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_or_text_makes_markup_in_any_way(manager, name):
    app = next(APPS)
    summary = f"[{app}] {name} failed: {name}"
    annotations = {
        "summary": summary,
        "reason": name,
        "next_steps": "1. x",
        "runbook_url": "https://r.example/x",
        "description": f"error_message: {name}\nnext_steps: 1. x",
        "dashboard_url": f"https://g.example/{name}",
    }
    got = manager.notified_of([alert(app, name, annotations=annotations, labels={"team": name})])
    slack, teams = (got[way]["attachments"][0] for way in ("Slack", "Teams"))
    html = next(part for part in got["E-mail"].walk() if part.get_content_type() == "text/html")

    assert got["PagerDuty"]["payload"]["summary"] == " ".join(summary.split())
    assert set(re.findall(r"<([^|>]*)\|[^>]*>", slack["text"])) <= {
        "https://r.example/x",
        "https://g.example/" + re.sub(r"[<>|`\s]", "", name),
    }
    for mark in ("<!", "<@", "<script"):
        assert mark not in slack["text"] + slack["title"]
    assert slack["text"].count("```") == 2
    assert not re.search(r"(?<!\\)\]\(https://evil", teams["title"] + teams["text"])
    assert "<script>alert" not in html.get_content()
    assert "evil@example.com" not in str(got["E-mail"].get("Bcc", ""))
    assert "\n" not in titles(got)["E-mail"]


def rules():
    """Each alert of the shipped rules as Prometheus sends it, its templates filled in roughly."""
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            for rule in group["rules"]:
                if "alert" in rule:
                    yield (
                        rule["alert"],
                        {
                            name: re.sub(r"\{\{.*?\}\}", "VALUE", text, flags=re.DOTALL)
                            for name, text in rule["annotations"].items()
                        },
                    )


@pytest.mark.parametrize(("name", "annotations"), list(rules()), ids=[name for name, _ in rules()])
def test_alerts_of_prometheus_are_shown_with_their_own_words(manager, name, annotations):
    app = next(APPS)
    sent = alert(
        app, name=name, annotations=annotations, generatorURL="http://prometheus:9090/graph?g0=1"
    )
    got = manager.notified_of([sent])
    summary = annotations["summary"]

    assert all(summary in title for title in titles(got).values())
    for message in got.values():
        shown = texts(message).replace("\\", "")  # Teams escapes marks
        assert annotations["runbook_url"] in shown
        assert shown.count(annotations.get("reason", summary)) >= 1
        for step in annotations.get("next_steps", summary).splitlines():
            assert step in shown
    assert "|Prometheus>" in got["Slack"]["attachments"][0]["text"]
    over = manager.notified_of([sent | {"endsAt": "2026-11-21T09:12:08Z"}])
    assert titles(over)["Slack"] == f":white_check_mark: Resolved: {summary}"


def test_of_equal_alerts_the_message_is_about_the_one_with_its_own_next_steps(manager):
    """The watcher's, not that of Prometheus about the same driver, whichever comes first."""
    for first in (True, False):
        sent = {
            "job": {
                "summary": "by Prometheus",
                "reason": "no heartbeat",
                "next_steps": "1. Of the rule.",
            },
            "key": {"summary": "by the watcher", "description": "next_steps: 1. Of the watcher."},
        }
        app = next(APPS)
        got = manager.notified_of(
            alert(
                app,
                "*",
                "StreamingDriverDown",
                annotations=words,
                labels={name: f"{first == (name == 'job')}"},
            )
            for name, words in sent.items()
        )

        assert all("by the watcher (and 1 more)" in title for title in titles(got).values())
        for message in got.values():
            assert "Of the watcher" in texts(message)
            assert "Of the rule" not in texts(message)


def test_spark_ui_is_linked_in_pagerduty_only_where_the_alert_has_one(manager):
    def links(**annotations):
        (app, query) = (next(APPS), "orders")
        got = manager.notified_of([alert(app, query, annotations=annotations)])["PagerDuty"]
        return {link["text"]: link["href"] for link in got.get("links", ())}

    assert links(spark_ui_url="http://driver:4040")["Spark UI"] == "http://driver:4040"
    assert "Spark UI" not in links()


def test_part_of_a_group_that_has_ended_is_listed_while_the_rest_fires(manager):
    app = next(APPS)
    both = [alert(app, query, annotations={"summary": f"{query} failed"}) for query in ("a", "b")]
    manager.notified_of(both)
    counts = manager.counts()
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    manager.send(
        [both[0] | {"endsAt": now, "annotations": {"summary": "Resolved: a commits again"}}]
    )
    got = manager.next_after(counts)

    assert titles(got)["Slack"] == ":rotating_light: critical: b failed"
    assert (
        got["PagerDuty"]["payload"]["custom_details"]["resolved"] == "Resolved: a commits again\n"
    )
    for way in ("Slack", "E-mail"):
        assert "Resolved: a commits again" in texts(got[way])
