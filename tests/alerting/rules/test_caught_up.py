"""Alerts about a query that is behind say when it has caught up."""

from __future__ import annotations

from math import inf

import pytest
from support.published_states import published, values
from support.story import MONDAY, Story

from querypulse.alerting.evidence import CatchingUp
from querypulse.alerting.incidents.lifecycle import Lifecycle, LifecycleSettings
from querypulse.alerting.kinds import QUERY_FAILED
from querypulse.alerting.words.evidence import caught_up_text
from querypulse.alerting.words.messages import Guidance, annotations_of, details, say
from querypulse.exporter.status import status
from querypulse.listener.foresight.catching_up import CaughtUp, Deletion

HOUR = 3600.0
SOON = CaughtUp(7800.0, 6600.0, 9660.0, "offset", 50.0, 100.0)
NEVER = CaughtUp(inf, inf, inf, "offset", 1.2e6 / HOUR, 9e5 / HOUR)
DELETES = Deletion(4800.0, 1.2e6, 100.0)


def with_deletion(answer):
    return CaughtUp(
        answer.seconds,
        answer.earliest,
        answer.latest,
        answer.unit,
        answer.arrival,
        answer.consumption,
        DELETES,
    )


TEXTS = {
    "the time in UTC, and between which": (
        (SOON, MONDAY + 1.5 * HOUR),
        "at 03:40 UTC (2 h 10 min, 110 min to 2 h 41 min)",
    ),
    "the day, if it is another one": (
        (SOON, MONDAY + 23 * HOUR),
        "at 2026-11-24 01:10 UTC (2 h 10 min, 110 min to 2 h 41 min)",
    ),
    "no time where the clock is unknown": (
        (SOON, None),
        "in 2 h 10 min (110 min to 2 h 41 min)",
    ),
    "no interval that is shorter than it is exact": (
        (CaughtUp(150.0, 130.0, 170.0), MONDAY),
        "at 00:02 UTC (2 min)",
    ),
    "never, and both rates": (
        (NEVER, MONDAY),
        "never at this rate: 1.2 M/h arrive, 900 k/h are read",
    ),
    "the unit of a table": (
        (CaughtUp(inf, inf, inf, "version", 20 / HOUR, 4.5 / HOUR), MONDAY),
        "never at this rate: 20 versions/h arrive, 4.5 versions/h are read",
    ),
    "seconds of a source that reports how late it is": (
        (CaughtUp(inf, inf, inf, "s", 1.0, 0.75), MONDAY),
        "never at this rate: it reads 0.75 s of data in a second",
    ),
    "what retention deletes before": (
        (with_deletion(SOON), MONDAY),
        "at 02:10 UTC (2 h 10 min, 110 min to 2 h 41 min); "
        "retention deletes unread data in 80 min, about 1.2 M before that",
    ),
    "what retention deletes for ever": (
        (with_deletion(NEVER), MONDAY),
        "never at this rate: 1.2 M/h arrive, 900 k/h are read; "
        "retention deletes unread data in 80 min, then 360 k/h",
    ),
}


@pytest.mark.parametrize("words", TEXTS)
def test_a_message_says(words):
    answered, text = TEXTS[words]
    assert caught_up_text(CatchingUp(*answered)) == text


def behind(reads, *, backlog=200_000):
    """100 offsets arrive in a second; the query reads so many."""
    story = Story().started(at=0)
    for at in range(30, 1200, 30):
        story.commit(batch=at // 30, at=at, seconds=30.0)
        story.ask(at=at + 5, committed=reads * at, latest=backlog + 100 * (at + 5))
    return story


def evidence(story, now):
    findings = story.evaluate(now).findings
    return {finding.alertname: say(finding).evidence.get("caught_up") for finding in findings}


def test_an_alert_about_lag_says_that_it_never_catches_up():
    text = "never at this rate: 360 k/h arrive, 72 k/h are read"

    assert evidence(behind(20), 1180) == {"StreamingQueryLagging": text}


def test_an_alert_says_nothing_where_that_is_unknown():
    assert evidence(behind(85, backlog=2000), 1180) == {"StreamingQueryLagging": None}


def test_other_alerts_do_not_say_it():
    story = behind(20).failed(at=1181)

    assert evidence(story, 1182) == {"StreamingQueryFailed": None}


@pytest.mark.parametrize(
    ("reads", "caught_up"),
    [
        (300, "at 00:49 UTC (7 min, 6 min to 8 min)"),
        (20, "never at this rate: 360 k/h arrive, 72 k/h are read"),
        (5000, None),
    ],
)
def test_the_end_of_an_alert_says_when_what_came_meanwhile_is_read(reads, caught_up):
    guidance = Guidance("https://runbooks.example/{alertname}.md")
    lifecycle = Lifecycle("shop", guidance, LifecycleSettings(resolve_after_seconds=120))
    story = behind(100, backlog=0).failed(at=1181)
    lifecycle.update(story.evaluate(1182), story.snapshot(1182), 1182, MONDAY + 1182)
    story.started(at=2400)
    read = 117_000
    ended = []
    for now in range(2401, 2700):
        if now % 30 == 0:
            read = min(read + 30 * reads, 100 * now)
            story.commit(batch=now // 30, at=now, seconds=30.0)
        if now % 30 == 5:
            story.ask(at=now, committed=read, latest=100 * now)
        incidents = lifecycle.update(story.evaluate(now), story.snapshot(now), now, MONDAY + now)
        alerts = [alert for incident in incidents for alert in incident.alerts]
        ended += [alert for alert in alerts if alert.name == QUERY_FAILED and alert.end is not None]

    assert details(ended[0]).get("caught_up") == caught_up
    assert annotations_of(ended[0]).get("caught_up") == caught_up


def test_status_and_metrics_show_it():
    catching_up = published(behind(200), now=1180)
    (query,) = status(catching_up).queries
    metric = "spark_streaming_query_caught_up_seconds"
    left = pytest.approx((200_000 - 100 * 1170) / 100, rel=0.1)

    assert values(catching_up, metric) == {("shop", "a"): left}
    assert (query.caught_up.seconds, query.caught_up.never) == (left, False)
    assert (
        query.caught_up.earliest_seconds < query.caught_up.seconds < query.caught_up.latest_seconds
    )
    never = published(behind(20), now=1180)
    (query,) = status(never).queries
    assert values(never, metric) == {("shop", "a"): inf}
    assert (query.caught_up.never, query.caught_up.seconds, query.caught_up.at) == (
        True,
        None,
        None,
    )
    assert query.caught_up.text == "never at this rate: 360 k/h arrive, 72 k/h are read"


def test_what_is_unknown_is_absent():
    unknown = published(behind(20).failed(at=1181), now=1182)
    (query,) = status(unknown).queries

    assert query.caught_up is None
    assert values(unknown, "spark_streaming_query_caught_up_seconds") == {}


@pytest.mark.parametrize("unit", ["version", "snapshot"])
def test_the_lag_of_a_table_is_in_its_unit(unit):
    story = Story().started(at=0).commit(batch=0, at=1)
    story.table(at=5, read=3, end=6, unit=unit).failed(at=8)
    (finding,) = story.evaluate(9).findings

    assert say(finding).evidence["lag"] == f"DeltaSource[/t]: 3 {unit}s, 4 s ago"
