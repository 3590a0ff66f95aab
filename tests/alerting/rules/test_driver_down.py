"""If the JVM of the driver has ended, one alert names the queries that ended with it."""

from __future__ import annotations

import pytest
from support.story import CONFLICT, Story, policy, run

from querypulse.alerting.finding import DRIVER_DOWN, WHOLE_DRIVER, Severity
from querypulse.alerting.rules.monitoring import MAX_NAMED, driver_down
from querypulse.core.states import QueryState
from querypulse.listener.probe import Context


def running(*queries):
    return Story().probe(*map(run, queries), at=100)


def finding(story, *, context=Context.JVM_GONE, now=102, **settings):
    """The finding after one more poll of the probe."""
    story.probe(at=101, context=context)
    return driver_down(story.state.snapshot(now), now, policy(**settings))


def test_alert_names_the_live_queries_and_is_critical_at_once():
    found = finding(running("c", "a", "b"), now=101)

    assert (found.alertname, found.query, found.severity, found.state) == (
        DRIVER_DOWN,
        WHOLE_DRIVER,
        Severity.CRITICAL,
        QueryState.MISSING,
    )
    assert found.reason == (
        "the JVM of the driver has ended, and 3 streaming queries with it: a, b, c"
    )
    assert found.summary == f"driver is down: {found.reason}"


MANY = [f"q{number:03}" for number in range(MAX_NAMED + 5)]


@pytest.mark.parametrize(
    ("story", "reason"),
    [
        (Story(), "; no query was running"),
        (running("a"), ", and 1 streaming query with it: a"),
        (running("a", "b", "scratch").ended("b", at=100.5, exception=CONFLICT), ", and 1 streaming query with it: a"),
        (running(*MANY), f", and 25 streaming queries with it: {', '.join(MANY[:20])} and 5 more"),
    ],
    ids=["no query", "one query", "an ended and an ignored query", "more than it names"],
)  # fmt: skip
def test_reason_names_the_queries_that_ran_and_are_not_ignored(story, reason):
    found = finding(story, overrides=[("scratch", {"ignore": True})])

    assert found.reason == f"the JVM of the driver has ended{reason}"


@pytest.mark.parametrize("context", [each for each in Context if each is not Context.JVM_GONE])
@pytest.mark.parametrize("now", [101, 100_000])
def test_alert_is_silent_while_the_jvm_exists(context, now):
    assert finding(running("a", "b", "c"), context=context, now=now) is None


def test_alert_is_silent_before_the_first_probe_report():
    assert driver_down(Story().state.snapshot(900), 900, policy()) is None


def test_states_of_the_queries_are_kept_when_the_jvm_ends():
    """A report without runs means that they vanished; a report that the JVM is gone does not."""
    story = running("a", "b").ended("b", at=100.5, exception=CONFLICT)
    finding(story)

    assert [query.alive for query in story.state.snapshot(102).queries] == [True, False]
    assert story.query("a").vanished_at is None
