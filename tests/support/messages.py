"""What receivers show in the usual cases: stories of the job ``orders`` and their messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace
from support.alertmanager_doubles import Everywhere, everywhere
from support.receiver_incidents import holding
from support.story import Story, policy, processing, run, source

from querypulse.alerting.alert import Alert, Incident, recovered
from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.facts import (
    DisksFull,
    FullDisk,
    HeapFull,
    Reported,
    StateGrowing,
)
from querypulse.alerting.finding import Finding, Severity, finding_about
from querypulse.alerting.receivers.alertmanager import api_alerts
from querypulse.alerting.receivers.email import email_message
from querypulse.alerting.receivers.pagerduty import trigger_event
from querypulse.alerting.receivers.slack import slack_message
from querypulse.alerting.receivers.teams import teams_message
from querypulse.alerting.words.messages import Guidance, alert_of
from querypulse.core.states import QueryState
from querypulse.listener.foresight.filling import Full
from querypulse.listener.foresight.resources import Container, Disk, Heap, MemoryUse
from querypulse.listener.foresight.state_growth import Cause as WhyKept
from querypulse.listener.mailbox import ProgramEnd
from querypulse.listener.probe_report import Context, JobActivity, JobCounts, SessionEnd
from querypulse.listener.python_frames import MainThread
from querypulse.settings.links import next_steps

APP = "orders"
BEGAN = 1795251728.119
LASTED = 242.0
HOME = "https://orders.example"
THROUGH = "--- Alertmanager -> "
"""Before what a receiver shows by way of Alertmanager."""
GUIDANCE = Guidance(
    HOME + "/runbooks/{alertname}",
    dashboard_url="https://grafana.example/d/q?var-app={app}&var-query={query}",
    spark_ui_url="http://driver-1:4040",
    next_steps=next_steps(),
    restart_hints=(("*", "kubectl -n streaming rollout restart deployment/orders"),),
    place="pod orders-driver, namespace streaming, process 17, application spark-7f3a",
    restarted_by="Kubernetes or the Spark operator, if the restart policy of the job says so",
)

NO_ROUTE = "java.net.ConnectException: no route to host"
IN_PYTHON = (
    "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: "
    "Traceback (most recent call last):\n"
    '  File "/opt/spark/python/lib/pyspark.zip/pyspark/sql/utils.py", line 163, in call\n'
    "    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)\n"
    '  File "/jobs/billing.py", line 41, in write\n'
    "    charge(row)\n"
    '  File "/jobs/billing.py", line 17, in charge\n'
    '    raise ValueError("negative amount")\n'
    "ValueError: negative amount\n\n"
    "\tat py4j.Protocol.getReturnValue(Protocol.java:476)\n"
)


def failed() -> Incident:
    story = Story().started("billing", at=0).probe(run("billing", batch=10), at=5)
    kafka = source({"t": {"0": 5}}, {"t": {"0": 5}}, description="KafkaV2[Subscribe[orders]]")
    story.commit("billing", batch=10, at=30, sources=(kafka,))
    story.ended("billing", at=100, exception=IN_PYTHON)
    return incident(story, 102)


def failed_in_a_driver_that_ends() -> Incident:
    """The job waits in ``await_any_failure``."""
    story = Story().started("billing", at=0).probe(run("billing", batch=10), at=5)
    story.commit("billing", batch=10, at=30).ended("billing", at=100, exception=NO_ROUTE)
    waits = "waits in Sidecar.await_any_failure(), job line /jobs/billing.py:60 in main"
    thread = MainThread(waits, awaits_failure=True)
    found = evaluate(story.snapshot(102), 102, policy(), main_thread=lambda: thread).findings
    return holding(*(alert_of(finding, APP, GUIDANCE, BEGAN) for finding in found))


def several_failed() -> Incident:
    story = Story()
    for query in ("bronze", "silver", "gold"):
        story.started(query, at=0).commit(query, batch=1, at=90)
        story.ended(query, at=100, exception=NO_ROUTE)
    return incident(story, 101)


def stalled() -> Incident:
    story = Story().started("billing", at=0)
    kafka = source({"t": {"0": 5}}, {"t": {"0": 5}}, description="KafkaV2[Subscribe[orders]]")
    story.commit("billing", batch=9, at=100, sources=(kafka,))
    work = JobActivity(
        own=JobCounts(4, 0, 40, 0),
        unowned=JobCounts(),
        counted=True,
        python_line="/jobs/billing.py:75 in wait_for_lock",
        jvm_stack=("java.net.SocketInputStream.read", "py4j.CallbackClient.sendCommand"),
    )
    for at in range(101, 171, 5):
        story.probe(replace(processing("billing", batch=10), work=work), at=at)
    return incident(story, 168)


def slow() -> Incident:
    story = Story().started("billing", at=0).commit("billing", batch=9, at=100)
    for number, at in enumerate(range(101, 171, 5)):
        own = JobCounts(4, 1, 40 + number, 2)
        story.probe(processing("billing", batch=10, own=own), at=at)
    return incident(story, 168)


def slow_and_failed() -> Incident:
    """A query that was slow, fell behind, and then failed."""
    return holding(*failed().alerts, *slow().alerts, *lagging().alerts)


def lagging() -> Incident:
    story = Story().started("billing", at=0)
    for number in range(7):
        lag = 2000 + 1000 * number
        end = {"t": {"0": 1000 * number}}
        latest = {"t": {"0": 1000 * number + lag}}
        kafka = source(end, latest, description="KafkaV2[Subscribe[orders]]")
        story.commit("billing", batch=number, at=10 + 60 * number, sources=(kafka,))
    return incident(story, 372)


def late() -> Incident:
    story = Story().started("billing", at=0)
    for number in range(7):
        at = 10 + 60 * number
        times = {"watermark_timestamp": BEGAN + at, "event_time_max": BEGAN + at - 900}
        story.commit("billing", batch=number, at=at, late_rows=9, **times)
    return incident(story, 372)


def growing() -> Incident:
    story, at = Story().started("billing", at=0), 0
    for number, seconds in enumerate(range(30, 280, 10)):
        minutely = run("billing", trigger="ProcessingTimeTrigger(60000)", batch=number)
        phases = {"latestOffset": seconds - 5, "addBatch": 4}
        story.probe(minutely, at=at).commit(
            "billing", batch=number, at=at + seconds, seconds=seconds, phase_seconds=phases
        )
        at += max(60, seconds)
    return incident(story, at + 5)


def keeping_state() -> Incident:
    found = StateGrowing(
        operator="dedupe",
        rows=38e6,
        size_bytes=7.6e9,
        seconds=86_400,
        grown_rows=2.4e6,
        grown_bytes=480e6,
        cause=WhyKept.NO_WATERMARK,
    )
    finding = finding_about("billing", "StreamingStateGrowing", Severity.WARNING, found)
    return holding(alert_of(finding, APP, GUIDANCE, BEGAN))


def filling_its_heap() -> Incident:
    memory = MemoryUse(
        heap=Heap(1_930_000_000, 1_880_000_000, 2_000_000_000, 42.0),
        heap_full=Full(540.0, 420.0, 700.0),
        gc_share=0.3,
        container=Container(2_900_000_000, 4_000_000_000),
    )
    finding = finding_about(
        "*", "StreamingDriverMemory", Severity.CRITICAL, HeapFull(memory=memory)
    )
    return holding(alert_of(finding, APP, GUIDANCE, BEGAN))


def filling_a_disk() -> Incident:
    disk = Disk("/data", ("checkpoint of billing", "spool_dir"), 3_000_000_000, 100_000_000_000)
    found = DisksFull(disks=(FullDisk(disk, Full(5400.0, 4500.0, 6500.0)),))
    finding = finding_about("*", "StreamingDiskFilling", Severity.WARNING, found)
    return holding(alert_of(finding, APP, GUIDANCE, BEGAN))


def stopped() -> Incident:
    story = Story().started("billing", at=0).probe(run("billing", batch=10), at=5)
    story.commit("billing", batch=9, at=100).ended("billing", at=110)
    return incident(story, 180)


def flapping() -> Incident:
    story = Story()
    for number, at in enumerate((100, 300, 500), 1):
        story.started("billing", number, at=at - 8)
        story.probe(processing("billing", number, batch=7), at=at - 5)
        story.ended("billing", number, at=at, exception=IN_PYTHON)
    return holding(*alerts(story, 501)[-1:])


def missing() -> Incident:
    story = Story().started("billing", at=0)
    return incident(story, 310)


def all_stalled() -> Incident:
    story = Story()
    for query in ("bronze", "silver"):
        story.started(query, at=0).commit(query, batch=1, at=95)
    story.probe(run("bronze", batch=2), run("silver", batch=2), at=100)
    return holding(*alerts(story, 170)[:1])


def driver_down() -> Incident:
    story = Story()
    for query in ("bronze", "silver"):
        story.started(query, at=0).commit(query, batch=1, at=95)
        story.probe(run("bronze", batch=2), run("silver", batch=2), at=100)
    story.probe(at=101, context=Context.JVM_GONE)
    return holding(*alerts(story, 102)[-1:])


def program_ended() -> Incident:
    how = "the main program ended with ValueError: negative amount"
    program = ProgramEnd(how, has_failed=True)
    story = Story()
    for query in ("bronze", "silver"):
        story.started(query, at=0).commit(query, batch=1, at=95)
    story.probe(run("bronze", batch=2), run("silver", batch=2), at=100)
    (finding,) = story.evaluate(102, program=program).findings
    return holding(alert_of(finding, APP, GUIDANCE, BEGAN))


def attempt_lost() -> Incident:
    """YARN has killed the container of the driver, and has started the next attempt."""
    return incident(Story().started("orders", at=1).lost_attempt(), 30)


def session_expired() -> Incident:
    """The driver serves Spark Connect, and a client has died."""
    story = Story().started("orders", at=0).commit("orders", batch=1, at=95)
    story.probe(run("orders", session="s1", batch=2), at=100, session_ends={})
    ended = SessionEnd(101.0, "c-1", "ada", 3601.0, 3600.0)
    story.ended("orders", at=101).probe(at=102, session_ends={"s1": ended})
    return incident(story, 162)


def driver_killed() -> Incident:
    """As ``querypulse watch`` reports it from outside."""
    how = "was killed or has crashed: nothing listens at its address (connection refused)"
    finding = Finding(
        alertname="StreamingDriverDown",
        query="*",
        severity=Severity.CRITICAL,
        state=QueryState.MISSING,
        facts=Reported(
            reason=f"driver {how}",
            summary=f"driver {how}",
            evidence={
                "address": "driver-1:9719",
                "last_seen": "2026-11-21T09:01:58.119Z, 10 s ago",
            },
        ),
    )
    return holding(alert_of(finding, APP, GUIDANCE, BEGAN))


def starred() -> Incident:
    """An error that contains Slack's formatting characters."""
    story = Story().started("billing", at=0).commit("billing", batch=9, at=100)
    story.ended("billing", at=101, exception="java.sql.SQLException: SELECT * FROM `a` <b> ~c~")
    return incident(story, 102)


CASES: dict[str, Callable[[], Incident]] = {
    "A query failed in Python": failed,
    "A query failed, and the driver ends": failed_in_a_driver_that_ends,
    "Three queries failed together": several_failed,
    "A slow query that falls behind failed": slow_and_failed,
    "A query is stalled": stalled,
    "A batch is slow": slow,
    "A query falls behind": lagging,
    "Late rows are dropped": late,
    "Batches take longer and longer": growing,
    "State is never cleared": keeping_state,
    "A heap fills up": filling_its_heap,
    "A disk fills up": filling_a_disk,
    "A query stopped": stopped,
    "A query keeps failing": flapping,
    "A query never showed life": missing,
    "The JVM does not answer": all_stalled,
    "The JVM has ended": driver_down,
    "The main program ended": program_ended,
    "The driver was killed": driver_killed,
    "YARN has started the driver again": attempt_lost,
    "A session of Spark Connect expired": session_expired,
    "The error holds Slack's marks": starred,
}


def alerts(story: Story, now: float) -> list[Alert]:
    findings = story.evaluate(now).findings
    return [alert_of(finding, APP, GUIDANCE, BEGAN) for finding in findings]


def incident(story: Story, now: float) -> Incident:
    """One incident with all alerts."""
    every = alerts(story, now)
    assert len({alert.name for alert in every}) == 1
    return holding(*every)


def resolved(incident: Incident) -> Incident:
    """The incident four minutes later, when its queries have recovered."""
    ended = (
        alert.ended(BEGAN + LASTED, recovered(alert.name, of_one_query=alert.query != "*"))
        for alert in incident.alerts
    )
    return replace(incident, alerts=tuple(ended))


def page(through: Mapping[str, Sequence[str]] = MappingProxyType({})) -> str:
    """All cases as receivers show them; ``through``: what they show by way of Alertmanager."""
    lines: list[str] = []
    for title, make in CASES.items():
        lines += [*_case(title, make()), *through.get(title, ()), ""]
    return "\n".join(lines)


def without_alertmanager(text: str) -> str:
    """A page without what is shown by way of Alertmanager."""
    cases = text.split("\n=== ")
    return "\n=== ".join(case.partition(f"\n{THROUGH}")[0].rstrip("\n") + "\n" for case in cases)


def through_alertmanager(manager: Everywhere) -> dict[str, list[str]]:
    """What each receiver shows of each case by way of Alertmanager, while it fires and at its end."""
    shown = {}
    for title, make in CASES.items():
        incident, now = make(), time.time()
        fired = manager.notified_of(api_alerts(incident.alerts, now, HOME))
        ended = manager.notified_of(api_alerts(resolved(incident).alerts, now, HOME))
        lines = [line for way, message in fired.items() for line in _by_way(way, message)]
        for way in ("Slack", "E-mail"):
            lines += _by_way(f"{way}, resolved", ended[way])
        shown[title] = lines
    return shown


def _by_way(way: str, message: Any) -> Iterator[str]:
    if way == "PagerDuty":
        event = message["payload"]
        yield f"{THROUGH}PagerDuty: {event['summary']}"
        yield from _flat(
            {name: event[name] for name in ("severity", "class", "component", "group")}
        )
        yield from _flat({name: text for name, text in event["custom_details"].items() if text})
        yield from (f"{link['text']}: {link['href']}" for link in message["links"])
        yield f"client_url: {message['client_url']}"
    elif way.startswith("E-mail"):
        yield f"{THROUGH}{way}: {' '.join(message['Subject'].split())}"
        (text,) = (part for part in message.walk() if part.get_content_type() == "text/plain")
        yield from text.get_content().rstrip().splitlines()
    else:
        (attachment,) = message["attachments"]
        yield f"{THROUGH}{way}"
        yield attachment["title"]
        yield from attachment["text"].splitlines()


def _case(title: str, incident: Incident) -> Iterator[str]:
    event = trigger_event(incident, "0" * 32, "driver-1", HOME)
    yield f"=== {title} ==="
    yield f"--- PagerDuty: {event['payload']['summary']}"
    yield from _flat(event["payload"]["custom_details"])
    yield from (f"{link['text']}: {link['href']}" for link in event["links"])
    yield f"client_url: {event['client_url']}"
    yield "--- Slack"
    yield from _slack(incident)
    yield from _teams(incident)
    yield from _email(incident)
    yield "--- Alertmanager"
    for alert in api_alerts(incident.alerts, BEGAN, HOME)[:1]:
        yield from _flat(alert["annotations"])
        yield f"generatorURL: {alert['generatorURL']}"
    over = resolved(incident)
    yield "--- Slack, resolved"
    yield from _slack(over)
    yield "--- Alertmanager, resolved"
    for alert in api_alerts(over.alerts, BEGAN, HOME)[:1]:
        yield from _flat({name: alert["annotations"][name] for name in ("summary", "description")})


def _teams(incident: Incident) -> Iterator[str]:
    card = teams_message(incident, HOME)["attachments"][0]["content"]
    yield "--- Teams"
    yield from (run["text"] for block in card["body"] for run in block["inlines"])
    yield from (f"[{action['title']}] {action['url']}" for action in card["actions"])


def _email(incident: Incident) -> Iterator[str]:
    message = email_message(incident, "querypulse@example.com", ["oncall@example.com"], BEGAN)
    yield f"--- E-mail: {message['Subject']}"
    yield from message.get_content().splitlines()


def _slack(incident: Incident) -> Iterator[str]:
    for block in slack_message(incident, HOME)["blocks"]:
        text = block["text"] if "text" in block else block["elements"][0]
        yield from text["text"].splitlines()


def _flat(facts: dict, indent: str = "") -> Iterator[str]:
    for name, text in facts.items():
        if isinstance(text, dict):
            yield f"{indent}{name}:"
            yield from _flat(text, indent + "  ")
        else:
            first, *more = str(text).splitlines() or [""]
            yield f"{indent}{name}: {first}"
            yield from (f"{indent}  {line}" for line in more)


def write() -> None:
    """Write the fixture; it needs an installed Alertmanager."""
    with TemporaryDirectory() as folder, everywhere(Path(folder)) as manager:
        text = page(through_alertmanager(manager))
    (Path(__file__).parent.parent / "fixtures" / "messages.txt").write_text(text)


if __name__ == "__main__":
    write()
