"""The rules table: stories on a fake clock, and the one verdict each must come to.

Default limits: floor 60 s, tolerance 1, start grace 120 s, gone grace 60 s. Traps that users of
other monitors reported are marked with where they come from.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.story import CONFLICT, Story, processing, run

from querypulse.listener.probing import Context

STOPPED = Context.STOPPED_BY_APPLICATION
ONCE = "OneTimeTrigger"
AVAILABLE_NOW = "AvailableNowTrigger"
HOURLY = "ProcessingTimeTrigger(3600000)"
SHUTDOWN = "org.apache.spark.SparkException: Job 1 cancelled because SparkContext was shut down"


def steady(story=None, *, until=100, every=10):
    """Query a commits every 10 s up to ``until``, seen by events."""
    story = story or Story().started(at=0)
    for number, at in enumerate(range(every, until + 1, every)):
        story.commit(batch=number, at=at)
    return story


def watched(story, *looks):
    """The probe looks again and again: (from, to, run) every 5 s."""
    for begin, end, seen in looks:
        for at in range(begin, end + 1, 5):
            story.probe(seen, at=at)
    return story


def hung_batch(*, until, tasks=None, batch=10):
    return watched(steady(), (101, until, processing(batch=batch, tasks=tasks)))


def busy_batch(*, until):
    """A batch whose tasks finish, five in each look."""
    story = steady()
    for number, at in enumerate(range(101, until + 1, 5)):
        story.probe(processing(batch=10, tasks=number * 5), at=at)
    return story


# what happened, the moment, settings -> alert and state
CASES = [
    # -- healthy and calm ---------------------------------------------------------------------
    ("just started", Story().started(at=0), 1, {}, None, "starting"),
    ("commits", steady(), 105, {}, None, "running"),
    ("commits up to the last second of its window", steady(), 160, {}, None, "running"),
    ("idle by events (Burrow #38: idle topic)", Story().started(at=0).commit(batch=0, at=1).idle(at=500), 520, {}, None, "idle"),
    ("idle by the probe, no event at all (listener lost)",
     watched(steady(), (101, 900, run(batch=10))), 900, {}, None, "idle"),
    ("first data after long idleness (Burrow #303)",
     watched(steady().idle(at=5000), (5001, 5041, processing(batch=10))), 5045, {}, None, "idle"),
    ("commits seen by the probe only, events late by minutes (clogged listener bus)",
     watched(steady(), (101, 150, processing(batch=11)), (155, 200, processing(batch=12)), (205, 250, processing(batch=14))), 260, {}, None, "running"),
    ("commits once an hour under an hourly trigger",
     Story().probe(run(trigger=HOURLY, data=True), at=0).commit(batch=0, at=10), 10 + 3 * 3600, {}, None, "running"),
    ("batches take long, always did (FLINK-34131)",
     Story().started(at=0).commit(batch=0, at=100, seconds=90), 100 + 269, {}, None, "running"),
    ("the monitor itself was frozen (SIGSTOP)", steady().paused(at=800, seconds=690), 805, {}, None, "running"),
    ("a minute of nothing and a larger floor", steady(), 300, {"stall_floor_seconds": 300}, None, "running"),
    ("ignored by pattern", Story().started(at=0).ended(at=1, exception=CONFLICT), 2,
     {"overrides": [("a*", {"ignore": True})]}, None, "failed"),
    ("planning under trigger 0, but Spark records idle progress",
     Story().probe(run(message="Getting offsets from Kafka", last_progress_mark="1"), at=0)
     .probe(run(message="Getting offsets from Kafka", last_progress_mark="2"), at=290), 300, {}, None, "idle"),
    # -- QueryFailed --------------------------------------------------------------------------
    ("dies, told by the event", steady().ended(at=101, exception=CONFLICT), 101, {}, "QueryFailed", "failed"),
    ("dies, told by the probe while the event is stuck in the bus",
     steady().probe(run(), at=100).probe(run(active=False, exception=CONFLICT), at=101), 101, {}, "QueryFailed", "failed"),
    ("dies before its first batch", Story().started(at=0).ended(at=1, exception=CONFLICT), 1, {}, "QueryFailed", "failed"),
    ("dead for a day", steady().ended(at=101, exception=CONFLICT), 86_000, {}, "QueryFailed", "failed"),
    ("started again, not well yet",
     steady().ended(at=101, exception=CONFLICT).started(run=2, at=103), 104, {}, "QueryFailed", "failed"),
    ("started again under a new id, not well yet (checkpoint deleted)",
     steady().ended(at=101, exception=CONFLICT).started_anew(at=103), 104, {}, "QueryFailed", "failed"),
    ("dies under availableNow", Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=1, exception=CONFLICT), 2, {}, "QueryFailed", "failed"),
    ("dies a moment before spark.stop()", steady().ended(at=101, exception=CONFLICT, context=STOPPED), 102, {}, "QueryFailed", "failed"),
    ("back and committing",
     steady().ended(at=101, exception=CONFLICT).started(run=2, at=103).commit(run=2, batch=10, at=110), 111, {}, None, "running"),
    ("back and idle",
     steady().ended(at=101, exception=CONFLICT).started(run=2, at=103).idle(run=2, at=113), 114, {}, None, "idle"),
    ("the old run's death arrives after the new run began (restart by user code)",
     steady().started(run=2, at=101).commit(run=2, batch=10, at=102).ended(run=1, at=103, exception=CONFLICT), 104, {}, None, "running"),
    ("killed by a planned spark.stop()", steady().ended(at=101, exception=SHUTDOWN, context=Context.STOPPED), 102, {}, None, "stopped"),
    ("a sibling dies", steady().started("b", at=0).commit("b", batch=0, at=99).ended("b", at=100, exception=CONFLICT), 101, {}, ("QueryFailed", "b"), "running"),
    # -- QueryGone ----------------------------------------------------------------------------
    ("stopped, not back after the grace", steady().probe(run(), at=100).ended(at=101), 162, {}, "QueryGone", "missing"),
    ("vanished without a word, not back", steady().probe(run(), at=100).probe(at=101), 162, {}, "QueryGone", "missing"),
    ("the SparkContext died under it", steady().probe(run(), at=100).ended(at=101, exception=SHUTDOWN, context=Context.STOPPED)
     .probe(at=102, context=Context.STOPPED), 170, {}, "QueryGone", "missing"),
    ("idle in a SparkContext that died by itself: Spark still calls it active",
     steady().probe(run(batch=10), at=100).probe(run(batch=10), at=102, context=Context.STOPPED), 170, {}, "QueryGone", "missing"),
    ("trigger unknown, but on the roster", steady().ended(at=101), 162, {"expected": ["a"]}, "QueryGone", "missing"),
    ("stopped, within the grace", steady().probe(run(), at=100).ended(at=101), 161, {}, None, "stopped"),
    ("stopped and back", steady().probe(run(), at=100).ended(at=101).started(run=2, at=110).commit(run=2, batch=9, at=112), 170, {}, None, "running"),
    ("trigger unknown, not on the roster", steady().ended(at=101), 500, {}, None, "stopped"),
    ("once, finished", Story().probe(run(trigger=ONCE), at=0).commit(batch=0, at=1).ended(at=2), 900, {}, None, "completed"),
    ("availableNow, finished", Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2), 900, {}, None, "completed"),
    ("availableNow on the roster, finished", Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2), 900, {"expected": ["a"]}, None, "completed"),
    ("a planned spark.stop()", steady().probe(run(), at=100).probe(at=101, context=STOPPED), 900, {}, None, "stopped"),
    ("stopped by hand, then a planned spark.stop()", steady().probe(run(), at=100).ended(at=101).probe(at=130, context=STOPPED), 900, {}, None, "stopped"),
    ("the SparkContext has just died: within the grace",
     steady().probe(run(batch=10), at=100).probe(run(batch=10), at=102, context=Context.STOPPED), 150, {}, None, "stopped"),
    ("availableNow, finished before its SparkContext died",
     Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=2).probe(at=3, context=Context.STOPPED), 900, {}, None, "completed"),
    ("frozen during the grace", steady().probe(run(), at=100).ended(at=101).paused(at=160, seconds=50), 200, {}, None, "stopped"),
    ("a longer grace by pattern", steady().probe(run(), at=100).ended(at=101), 900, {"overrides": [("*", {"gone_grace_seconds": 3600.0})]}, None, "stopped"),
    # -- QueryMissing -------------------------------------------------------------------------
    ("expected, never seen", Story(), 121, {"expected": ["a"]}, "QueryMissing", "missing"),
    ("expected, others are there", Story().started("b", at=0).commit("b", batch=0, at=119), 121, {"expected": ["a", "b"]}, "QueryMissing", "missing"),
    ("started, then silence from every witness", Story().started(at=0), 121, {}, "QueryMissing", "missing"),
    ("expected, within the start grace", Story(), 120, {"expected": ["a"]}, None, "starting"),
    ("expected and there", steady(), 121, {"expected": ["a"]}, None, "running"),
    ("expected, but ignored", Story(), 500, {"expected": ["a"], "overrides": [("a", {"ignore": True})]}, None, "starting"),
    ("expected, the application has stopped", Story().probe(at=50, context=STOPPED), 500, {"expected": ["a"]}, None, "starting"),
    ("expected, frozen since the start", Story().paused(at=500, seconds=450), 505, {"expected": ["a"]}, None, "starting"),
    ("nothing expected, nothing there", Story(), 9999, {}, None, None),
    # -- CommitStalled ------------------------------------------------------------------------
    ("a batch hangs", hung_batch(until=170), 170, {}, "CommitStalled", "stalled"),
    ("a batch hangs in Spark tasks that never finish", hung_batch(until=170, tasks=3), 170, {}, "CommitStalled", "stalled"),
    ("the first batch ever hangs", watched(Story(), (0, 125, processing(batch=0))), 126, {}, "CommitStalled", "stalled"),
    ("a source does not answer", watched(steady(), (101, 170, run(message="Getting offsets from Kafka", busy=True, batch=10))), 170, {}, "CommitStalled", "stalled"),
    ("initialising for ever", watched(Story(), (0, 125, run(message="Initializing sources"))), 126, {}, "CommitStalled", "stalled"),
    ("no trigger comes", watched(steady(), (101, 170, run(message="Waiting for next trigger", data=True, batch=10))), 170, {}, "CommitStalled", "stalled"),
    ("events stop and there is no probe", steady(), 161, {}, "CommitStalled", "stalled"),
    ("hung, and now the JVM pauses for some seconds too: no false recovery", hung_batch(until=170), 180, {}, "CommitStalled", "stalled"),
    ("the JVM does not answer", steady().probe(run(batch=10), at=100), 170, {}, "CommitStalled", "stalled"),
    ("hangs after a stall that recovered: the baseline did not learn it",
     watched(steady().commit(batch=10, at=1000, seconds=900), (1001, 1070, processing(batch=11))), 1070, {}, "CommitStalled", "stalled"),
    ("a batch in flight, window not over", hung_batch(until=160), 160, {}, None, "running"),
    ("a long batch whose tasks finish", busy_batch(until=900), 900, {}, None, "running"),
    ("a huge first batch whose tasks finish",
     Story().probe(processing(batch=0, tasks=0), at=0).probe(processing(batch=0, tasks=5), at=590), 600, {}, None, "starting"),
    ("a long batch whose tasks finish, while the JVM pauses for some seconds (GC)", busy_batch(until=900), 915, {}, None, "running"),
    ("the first batch within the start grace", watched(Story(), (0, 115, processing(batch=0))), 118, {}, None, "starting"),
    ("Continuous shows no batches", watched(Story(), (0, 900, run(trigger="ContinuousTrigger(1000)", message="Running", busy=True))), 900, {}, None, "starting"),
    ("RealTime commits once in a long batch",
     watched(Story().probe(run(trigger="RealTimeTrigger(300000)"), at=0).commit(batch=0, at=300, seconds=300),
             (301, 1190, processing(trigger="RealTimeTrigger(300000)", batch=1))), 1190, {}, None, "running"),
    ("the application has stopped its SparkContext", hung_batch(until=150).probe(processing(batch=10), at=151, context=STOPPED), 300, {}, None, "stopped"),
    ("a stalled query that comes back", hung_batch(until=170).commit(batch=10, at=171), 172, {}, None, "running"),
    ("frozen while the batch was in flight", hung_batch(until=130).paused(at=600, seconds=465).probe(processing(batch=10), at=601), 601, {}, None, "running"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("story", "now", "settings", "alert", "state"),
    [pytest.param(*case[1:], id=case[0]) for case in CASES],
)
def test_rules_table(story, now, settings, alert, state):
    judgement = story.judge(now, **settings)

    wanted = () if alert is None else ((alert, "a"),) if isinstance(alert, str) else (alert,)
    assert tuple((finding.alertname, finding.query) for finding in judgement.findings) == wanted
    assert (judgement.verdicts["a"].state.value if "a" in judgement.verdicts else None) == state


def test_the_table_holds_more_silence_than_noise():
    firing = [case for case in CASES if case[4] is not None]

    assert len(CASES) - len(firing) > len(firing)


REASONS = [
    (hung_batch(until=170), 170, "batch_hung: batch 10 in flight for 69 s, no task finished for 69 s"),
    (hung_batch(until=170, tasks=3), 170, "batch_hung: batch 10 in flight for 69 s, no task finished for 69 s"),
    (watched(steady(), (101, 170, run(message="Getting offsets from K", busy=True))), 170, "source_hung: 'Getting offsets from K' for 69 s"),
    (watched(steady(), (101, 170, run(message="Waiting for next trigger", data=True))), 170, "no_trigger: nothing in flight and no trigger for 70 s"),
    (steady(), 170, "silent: no sign of it for 70 s, from events or probe"),
    (steady().probe(run(), at=100), 170, "silent: no sign of it for 70 s, from events or probe"),
]  # fmt: skip


@pytest.mark.parametrize(("story", "now", "reason"), REASONS)
def test_a_stall_says_how(story, now, reason):
    (finding,) = story.judge(now).findings

    assert finding.reason == reason


def test_a_death_carries_its_evidence():
    story = steady().started("b", at=0).commit("b", batch=0, at=99)
    story.probe(processing(batch=10), run("b"), at=100).ended(at=101, exception=CONFLICT)

    (finding,) = story.judge(103).findings

    assert finding.reason == "ConcurrentAppendException: Files were added"
    assert finding.evidence["siblings"] == "1 of 2 queries healthy; not: a"
    assert finding.evidence["last_commit"] == "batch 9, 3 s ago"
    assert finding.evidence["error_class"] == "ConcurrentAppendException"
    assert finding.evidence["seen_by"] == "event"


def test_a_death_before_anybody_listened_is_told_under_the_short_id():
    (finding,) = Story().ended(at=5, exception=CONFLICT).judge(6).findings

    assert (finding.alertname, finding.query) == ("QueryFailed", "id-a")


def test_a_stall_prints_its_window_with_its_terms():
    (finding,) = hung_batch(until=170).judge(170).findings

    assert finding.evidence["window"] == (
        "60 s = max(60 s floor, max(0 s trigger, 1.0 s p99 of recent batches) x (1 + 2))"
    )
    assert finding.evidence["spark_says"] == "Processing new data"
    assert finding.evidence["batch_in_flight"] == "batch 10, for 69 s"


@pytest.mark.parametrize(
    ("trigger", "batch_seconds", "limits", "seconds"),
    [
        ("ProcessingTimeTrigger(0)", 1, {}, 60),
        ("ProcessingTimeTrigger(3600000)", 1, {}, 3 * 3600),
        ("ProcessingTimeTrigger(10000)", 40, {}, 120),
        ("ProcessingTimeTrigger(10000)", 40, {"stall_tolerance": 4.0}, 240),
        ("ProcessingTimeTrigger(0)", 1, {"stall_floor_seconds": 15.0}, 15),
    ],
)
def test_the_window_sizes_itself(trigger, batch_seconds, limits, seconds):
    story = Story().probe(run(trigger=trigger, data=True), at=0)
    story.commit(batch=0, at=1, seconds=batch_seconds)

    assert story.judge(2, **limits).verdicts["a"].window_seconds == seconds


def test_every_alert_has_its_runbook():
    runbooks = Path(__file__).parent.parent / "dashboards" / "runbooks"
    names = {
        finding.alertname
        for case in CASES
        for finding in case[1].judge(case[2], **case[3]).findings
    }

    assert names == {path.stem for path in runbooks.glob("*.md")}
