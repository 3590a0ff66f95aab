"""One cause is one incident, and every alert states its evidence."""

from __future__ import annotations

from support.rules_table import asynchronous, hung_batch, lagging, steady
from support.story import CONFLICT, Story, processing, run, source

from querypulse.alerting.evaluate import gather
from querypulse.alerting.finding import Finding, Severity
from querypulse.alerting.policy import Limits
from querypulse.alerting.rules.query_failed import NAME
from querypulse.alerting.rules.query_flapping import is_flapping, poison_batch
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
    assert finding.evidence["siblings"] == "0 of 2 queries healthy; unhealthy: a, b"
    assert finding.evidence["queries"].splitlines()[0].startswith("a: ended with its SparkContext")


def test_an_alert_names_a_bounded_number_of_unhealthy_queries():
    names = [f"q{number:03}" for number in range(100)]
    found = [
        Finding(NAME, name, Severity.CRITICAL, QueryState.FAILED, "failed", "failed", {})
        for name in names
    ]

    gathered = gather(found, names)

    assert {finding.evidence["siblings"] for finding in gathered} == {
        f"0 of 100 queries healthy; unhealthy: {', '.join(names[:20])} and 80 more"
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


def test_unresponsive_driver_with_one_query_names_the_query():
    story = steady().probe(run(batch=10), at=100)

    (finding,) = story.evaluate(170, **WATCHED).findings

    assert (finding.alertname, finding.query) == ("StreamingQueryStalled", "a")


def test_queries_that_fail_independently_are_reported_separately():
    story = two_queries().ended(at=101, exception=CONFLICT).ended("b", at=101, exception=CONFLICT)

    findings = story.evaluate(102).findings

    assert [finding.query for finding in findings] == ["a", "b"]


def test_stall_evidence_includes_the_checkpoint():
    story = hung_batch(until=170).log(at=170, planned=10, committed=9)

    (finding,) = story.evaluate(171).findings

    assert finding.evidence["commit_log"] == "batch 10 planned, never committed; last committed: 9"
    assert finding.evidence["signals"] == (
        "event 71.0 s ago, probe 5.0 s ago, commit log 1.0 s ago"
    )


def test_commit_log_that_lags_is_reported_with_both_batches():
    (finding,) = asynchronous(until=180, log_until=100).evaluate(180).findings

    assert finding.reason == (
        "commit_log_behind: the commit log has been at batch 49 for 78 s, while batches have reached 90"
    )


def test_lag_is_reported_with_its_rise():
    (finding,) = lagging(*(2000 + 100 * n for n in range(7))).evaluate(372).findings

    assert finding.reason == (
        "lag rose from 2000 to 2600 offsets in 362 s and never fell (1000 allowed)"
    )
    assert finding.evidence["lag"] == "Kafka: 2600 offsets, as Spark reported 2 s ago"


def last_commit(story, now):
    (*_, finding) = story.evaluate(now).findings
    return finding.evidence["last_commit"]


def test_commit_of_an_earlier_run_has_its_age():
    story = Story().started(at=0).commit(batch=12, at=90).ended(at=100, exception=CONFLICT)
    story.started(run=2, at=110).probe(processing(number=2, batch=13), at=111)
    story.ended(run=2, at=120, exception=CONFLICT)

    assert last_commit(story, 130) == "batch 12, 40 s ago by an earlier run"


def test_commit_of_a_run_seen_starting_is_not_from_before_watching():
    story = Story().started(at=0).probe(processing(batch=13), at=5).ended(at=9, exception=CONFLICT)

    assert last_commit(story, 10) == "batch 12, before this run's first poll"


def test_commit_from_before_watching_is_marked():
    story = Story().probe(processing(batch=13), at=5).ended(at=9, exception=CONFLICT)

    assert last_commit(story, 10) == "batch 12, before watching began"


def test_tasks_of_a_finished_batch_are_no_evidence():
    story = Story().started(at=0).probe(processing(batch=1, tasks=3), at=5)
    (finding,) = story.ended(at=9, exception=CONFLICT).evaluate(10).findings

    assert "tasks" not in finding.evidence


def test_broker_lag_is_reported_with_the_age_of_the_poll():
    story = Story().started(at=0).commit(batch=0, at=10, sources=(source(5, 9),))
    story.ask(at=20, committed=5, latest=45).ended(at=25, exception=CONFLICT)
    (finding,) = story.evaluate(27).findings

    assert finding.evidence["lag"] == "Kafka: 40 offsets, 7 s ago"
    assert "sources_unread" not in finding.evidence


def test_unresponsive_broker_is_reported_with_its_reason():
    story = Story().started(at=0).commit(batch=0, at=10)
    story.state.apply_sources(SourceReport(20.0, unreadable={"a-1": "no answer"}))
    (finding,) = story.ended(at=25, exception=CONFLICT).evaluate(27).findings

    assert finding.evidence["sources_unread"] == "no answer"


def test_poison_batch_is_named_with_its_error():
    story = Story()
    for number, at in enumerate((100, 500, 1000), 1):
        story.started(run=number, at=at - 8).probe(processing(number=number, batch=7), at=at - 5)
        story.ended(run=number, at=at, exception=CONFLICT)

    failed, flapping = story.evaluate(1001).findings

    assert failed.alertname == "StreamingQueryFailed"
    assert flapping.reason == (
        "poison_batch: batch 7 failed 3 times with ConcurrentAppendException"
    )
    assert flapping.evidence["deaths"].splitlines()[0] == (
        "1 s ago: batch 7, ConcurrentAppendException"
    )


def test_batch_that_finally_succeeds_is_no_poison():
    story = Story()
    for number, at in enumerate((100, 1000, 2000), 1):
        story.started(run=number, at=at - 8).probe(processing(number=number, batch=7), at=at - 5)
        story.ended(run=number, at=at, exception=CONFLICT)
    story.started(run=4, at=2001).commit(run=4, batch=7, at=2005)

    query = story.query()
    assert poison_batch(query, Limits()) is None
    assert not is_flapping(query, Limits(), 2006)
