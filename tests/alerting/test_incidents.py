"""One cause is one incident, and every alert states its evidence."""

from __future__ import annotations

from support.rules_table import asynchronous, hung_batch, lagging, steady
from support.story import CONFLICT, Story, processing, run, source

from querypulse.alerting.evaluate import gather
from querypulse.alerting.finding import QUERY_FAILED, Finding, Severity
from querypulse.alerting.policy import Limits
from querypulse.alerting.rules.query_ends import is_flapping, poison_batch
from querypulse.core.states import QueryState
from querypulse.listener.probe import Context
from querypulse.listener.source_polls import SourceReport

WATCHED = {"probe_expected": True}


def two_queries():
    return steady().started("b", at=0).commit("b", batch=0, at=99)


def test_context_that_stopped_by_itself_is_one_incident_naming_its_queries():
    story = two_queries().probe(run(batch=10), run("b"), at=100)
    story.probe(run(batch=10), run("b"), at=102, context=Context.STOPPED)

    (finding,) = story.evaluate(170).findings

    assert finding.query == "*"
    assert finding.reason == "the SparkContext stopped by itself: a, b"
    assert finding.evidence["all_queries"] == "0 of 2 healthy; unhealthy: a, b"
    assert finding.evidence["queries"].splitlines()[0].startswith("a: ended with its SparkContext")


def test_an_alert_names_a_bounded_number_of_unhealthy_queries():
    names = [f"q{number:03}" for number in range(100)]
    found = [
        Finding(QUERY_FAILED, name, Severity.CRITICAL, QueryState.FAILED, "failed", "failed", {})
        for name in names
    ]

    gathered = gather(found, names)

    assert {finding.evidence["all_queries"] for finding in gathered} == {
        f"0 of 100 healthy; unhealthy: {', '.join(names[:20])} and 80 more"
    }


def test_query_stopped_before_its_context_keeps_its_own_incident():
    story = two_queries().probe(run(batch=10), run("b"), at=100).ended(at=110)
    story.probe(run("b"), at=200, context=Context.STOPPED)

    own, shared = sorted(story.evaluate(270).findings, key=lambda one: one.query, reverse=True)

    assert (own.query, shared.query) == ("a", "*")
    assert own.reason.startswith("stopped without an exception")
    assert shared.reason == "the SparkContext stopped by itself: b"


def test_unresponsive_jvm_is_one_incident_once_two_queries_stalled():
    story = two_queries().probe(run(batch=10), run("b"), at=100)
    settings = {"overrides": [("b", {"stall_floor_seconds": 300.0})], **WATCHED}

    (first,) = story.evaluate(170, **settings).findings
    (later,) = story.evaluate(500, **settings).findings

    assert (first.alertname, first.query) == ("StreamingQueryStalled", "a")
    assert (later.alertname, later.query) == ("StreamingQueryStalled", "*")
    assert later.reason == "the JVM does not answer: a, b"


def test_query_that_stalls_while_only_the_probe_is_silent_keeps_its_own_incident():
    story = two_queries().probe(run(batch=10), run("b"), at=100)
    for batch in range(1, 40):
        story.commit("b", batch=batch, at=100 + 2 * batch)

    names = {(one.alertname, one.query) for one in story.evaluate(178, **WATCHED).findings}

    assert names == {("StreamingQueryStalled", "a"), ("QuerypulseMonitoringDegraded", "*")}


def test_queries_that_stall_or_fail_alone_have_their_own_incidents():
    alone = steady().probe(run(batch=10), at=100).evaluate(170, **WATCHED)
    story = two_queries().ended(at=101, exception=CONFLICT).ended("b", at=101, exception=CONFLICT)

    assert [finding.query for finding in alone.findings] == ["a"]
    assert [finding.query for finding in story.evaluate(102).findings] == ["a", "b"]


# -- evidence ---------------------------------------------------------------------------------


def poisoned():
    """Three runs have failed in batch 7."""
    story = Story()
    for number, at in enumerate((100, 500, 1000), 1):
        story.started(run=number, at=at - 8).probe(processing(number=number, batch=7), at=at - 5)
        story.ended(run=number, at=at, exception=CONFLICT)
    return story


def failed_again():
    story = Story().started(at=0).commit(batch=12, at=90).ended(at=100, exception=CONFLICT)
    story.started(run=2, at=110).probe(processing(number=2, batch=13), at=111)
    return story.ended(run=2, at=120, exception=CONFLICT)


def unread():
    story = Story().started(at=0).commit(batch=0, at=10)
    story.state.apply_sources(SourceReport(20.0, unreadable={"a-1": "no answer"}))
    return story


def read():
    story = Story().started(at=0).commit(batch=0, at=10, sources=(source(5, 9),))
    return story.ask(at=20, committed=5, latest=45)


def evidence_of(story, now):
    (*_, finding) = story.evaluate(now).findings
    return {"reason": finding.reason, **finding.evidence}


def test_evidence_says_what_is_known():
    hung = hung_batch(until=170).log(at=170, planned=10, committed=9)
    begun = Story().started(at=0).probe(processing(batch=13), at=5)
    rows = [
        (hung, 171, "commit_log", "batch 10 planned, never committed; last committed: 9"),
        (hung, 171, "signals", "event 71.0 s ago, probe 5.0 s ago, commit log 1.0 s ago"),
        (asynchronous(until=180, log_until=100), 180, "reason", "commit_log_behind: the commit log has been at batch 49 for 78 s, while batches have reached 90"),
        (lagging(*(2000 + 100 * n for n in range(7))), 372, "reason", "lag rose from 2000 to 2600 offsets in 362 s (1000 allowed)"),
        (lagging(*(2000 + 100 * n for n in range(7))), 372, "lag", "Kafka: 2600 offsets, as Spark reported 2 s ago"),
        (failed_again(), 130, "last_commit", "batch 12, 40 s ago by an earlier run"),
        (begun.ended(at=9, exception=CONFLICT), 10, "last_commit", "batch 12, before this run's first poll"),
        (begun, 10, "tasks", None),
        (Story().probe(processing(batch=13), at=5).ended(at=9, exception=CONFLICT), 10, "last_commit", "batch 12, before watching began"),
        (read().ended(at=25, exception=CONFLICT), 27, "lag", "Kafka: 40 offsets, 7 s ago"),
        (read().ended(at=25, exception=CONFLICT), 27, "sources_unread", None),
        (unread().ended(at=25, exception=CONFLICT), 27, "sources_unread", "no answer"),
        (poisoned(), 1001, "reason", "poison_batch: batch 7 failed 3 times with ConcurrentAppendException"),
    ]  # fmt: skip

    assert [evidence_of(story, now).get(name) for story, now, name, _ in rows] == [
        text for *_, text in rows
    ]
    assert evidence_of(poisoned(), 1001)["deaths"].startswith(
        "1 s ago: batch 7, ConcurrentAppendException\n"
    )


def test_batch_that_finally_succeeds_is_no_poison():
    query = poisoned().started(run=4, at=2001).commit(run=4, batch=7, at=2005).query()

    assert poison_batch(query, Limits()) is None
    assert not is_flapping(query, Limits(), 2006)
