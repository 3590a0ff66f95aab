"""Batches and restarts: the age of a batch that no process commits, and what a restart repeats."""

from __future__ import annotations

import pytest
from support.rules.stalled import asynchronous
from support.rules.stories import hung_batch, steady, watched
from support.story import CONFLICT, Story, processing, run

from querypulse.alerting.words.evidence import MAX_OFFSET_CHARACTERS as MAX_CHARACTERS
from querypulse.alerting.words.evidence import OVER_RESTARTS
from querypulse.alerting.words.messages import say
from querypulse.listener.probe_report import JobCounts

FORTY_MINUTES = -2400.0
WEEKEND = -64 * 3600.0
NIGHTLY = "AvailableNowTrigger"
SOON = {"start_grace_seconds": 120.0}


def resumed(*, planned=FORTY_MINUTES, story=None, usual=None, committed=True):
    """The process starts at 0; its run at 1 s finds batch 41 planned and batch 40 committed."""
    done = (40, planned - 1.0) if committed else None
    story = story or Story().started(at=1)
    return story.began(at=1.5, unfinished=(41, planned), committed=done, usual=usual)


def hangs(story, *, until, **fields):
    return watched(story, (2, until, processing(batch=41, tasks=0, **fields)))


def advances(story, *, until):
    """The tasks finish, one after the other."""
    for number, at in enumerate(range(2, until + 1, 5)):
        story.probe(processing(batch=41, own=JobCounts(4, 1, number, 1)), at=at)
    return story


def fails(story):
    return hangs(story, until=20).ended(at=30, exception=CONFLICT)


PLANNED_40_MIN = "batch 41 was planned 40 min ago and never committed, over restarts"
PLANNED_42_MIN = "batch 41 was planned 42 min ago and never committed, over restarts"
DEAD = "ConcurrentAppendException: Files were added"


def says_so():
    return [
        ("fails once more", fails(resumed()), 31, "StreamingQueryFailed", f"{DEAD}; {PLANNED_40_MIN}"),
        ("fails before a poll shows it in its batch",
         resumed().probe(run(message="Initializing sources"), at=2).ended(at=3, exception=CONFLICT), 4, "StreamingQueryFailed", f"{DEAD}; {PLANNED_40_MIN}"),
        ("failed, and was started again by its supervisor in this process",
         fails(resumed()).started(run=2, at=40), 41,
         "StreamingQueryFailed", f"{DEAD}; {PLANNED_40_MIN}"),
        ("restarted, and polled before its start event was received",
         fails(resumed()).probe(processing(number=2, batch=41), at=40), 41,
         "StreamingQueryFailed", f"{DEAD}; {PLANNED_40_MIN}"),
        ("restarted, and its checkpoint was read again",
         fails(resumed()).started(run=2, at=40).began(run=2, at=41, unfinished=(41, FORTY_MINUTES)), 42,
         "StreamingQueryFailed", f"{DEAD}; {PLANNED_40_MIN}"),
        ("restarted, and its checkpoint was read again after the clock was set back",
         fails(resumed()).started(run=2, at=40).began(run=2, at=41, unfinished=(41, 2.0)), 42,
         "StreamingQueryFailed", f"{DEAD}; {PLANNED_40_MIN}"),
        ("fails, and the storage does not say when batch 40 was committed",
         fails(resumed(committed=False)), 31, "StreamingQueryFailed", f"{DEAD}; {PLANNED_40_MIN}"),
        ("fails again, and the storage did not answer for the run before",
         fails(Story().started(at=1)).started(run=2, at=40).began(run=2, at=41, unfinished=(41, FORTY_MINUTES), committed=(40, FORTY_MINUTES))
         .ended(run=2, at=45, exception=CONFLICT), 46, "StreamingQueryFailed", f"{DEAD}; {PLANNED_40_MIN}"),
        ("hangs for longer than the window of this run", hangs(resumed(), until=170), 170, "StreamingQueryStalled",
         f"batch_hung: batch 41 in flight for 2 min, no task of its own finished for 2 min; {PLANNED_42_MIN}"),
        ("its tasks finish, and each process is killed before the batch is done", advances(resumed(), until=170), 170, "StreamingBatchSlow",
         f"not_committed: batch 41 in flight for 2 min, its tasks still finish, {PLANNED_42_MIN}"),
        ("takes three times as long as its usual batches", advances(resumed(usual=100.0), until=320), 320, "StreamingBatchSlow",
         "not_committed: batch 41 in flight for 5 min, its tasks still finish, batch 41 was planned 45 min ago and never committed, over restarts"),
    ]  # fmt: skip


def test_batch_that_no_process_commits_is_critical_and_states_its_age():
    failures = {
        what: shown
        for what, story, now, name, reason in says_so()
        for shown in [age_shown(story.evaluate(now, **SOON).findings)]
        if shown != [(name, "a", "critical", reason, True)]
    }

    assert failures == {}


def age_shown(findings):
    return [
        (one.alertname, one.query, one.severity.value, say(one).reason, has_age(one))
        for one in findings
    ]


def has_age(finding):
    return say(finding).evidence.get(OVER_RESTARTS, "no age") in say(finding).reason


def quiet():
    return [
        ("a new checkpoint", hangs(Story().started(at=1).began(at=1.5), until=100), 100),
        ("a job that is started once a day, and the last run completed",
         Story().started(at=1).began(at=1.5, committed=(40, -86_400.0)).idle(at=20), 60),
        ("an availableNow job that is started once a day, and reads for a while",
         watched(Story().started(at=1).began(at=1.5, committed=(40, -86_400.0)), (2, 110, processing(batch=41, tasks=0, trigger=NIGHTLY))), 110),
        ("an availableNow job that goes on with a batch and completes",
         hangs(resumed(), until=60, trigger=NIGHTLY).commit(batch=41, at=62).ended(at=63), 200),
        ("a graceful stop within a batch, which the next run commits within its window",
         hangs(resumed(planned=-30.0), until=100).commit(batch=41, at=102), 150),
        ("a graceful stop within a batch, still within the window", hangs(resumed(planned=-30.0), until=115), 115),
        ("a restart after a long weekend, within the window", hangs(resumed(planned=WEEKEND), until=120), 120),
        ("a restart after a long weekend, committed", hangs(resumed(planned=WEEKEND), until=100).commit(batch=41, at=102), 140),
        ("a restart after a long weekend: batches of ten minutes, as its checkpoint shows",
         advances(resumed(planned=WEEKEND, usual=600.0), until=1190), 1190),
        ("a first batch that advances, planned a quarter of an hour ago", advances(resumed(planned=-900.0, committed=False), until=290), 290),
        ("planned 15 min ago, in flight for longer than the window, and its tasks finish",
         advances(resumed(planned=-900.0), until=200), 200),
        ("attached to an older run, which may have planned the batch itself",
         advances(resumed(story=Story().probe(run(batch=41), at=1)), until=300), 300),
        ("planned by this process", advances(resumed(planned=-1.0), until=300), 300),
        ("the storage's clock is some seconds behind", advances(resumed(planned=-4.0), until=300), 300),
        ("the storage does not say when it was planned", advances(resumed(planned=None, committed=False), until=300), 300),
        ("committed, and the next batch is in flight",
         watched(resumed().commit(batch=41, at=50), (52, 100, processing(batch=42, tasks=0))), 100),
        ("committed, seen by the poll only", watched(resumed(), (2, 40, processing(batch=41, tasks=0)), (45, 100, processing(batch=42, tasks=0))), 100),
        ("started again after it has committed, and its checkpoint not read again", hangs(resumed().commit(batch=41, at=20).started(run=2, at=30), until=20), 50),
        ("asks its source for offsets, and plans nothing", watched(resumed(), (2, 110, run(message="Getting offsets from K", busy=True))), 110),
        ("not polled for a while", hangs(resumed(), until=60), 110),
        ("a larger start grace", advances(resumed(), until=290), 290, {"start_grace_seconds": 300.0}),
        ("ignored by its name", fails(resumed()), 31, {"overrides": [("a", {"ignore": True})]}),
    ]  # fmt: skip


def test_checkpoint_age_alone_raises_no_alert():
    failures = {
        what: findings
        for what, story, now, *settings in quiet()
        if (findings := story.evaluate(now, **SOON | dict(*settings)).findings)
    }

    assert failures == {}


def without_age():
    return [
        ("fails in the process that planned the batch", fails(resumed(planned=2.0)), 400, "StreamingQueryFailed"),
        ("fails soon after a graceful stop", fails(resumed(planned=-60.0)), 31, "StreamingQueryFailed"),
        ("fails in a later batch", fails(resumed().commit(batch=41, at=5)), 31, "StreamingQueryFailed"),
        ("fails in a batch of its own: the last run completed",
         fails(Story().started(at=1).began(at=1.5, committed=(40, -86_400.0))), 31, "StreamingQueryFailed"),
        ("fails, and was running before the monitor started",
         fails(resumed(story=Story().probe(run(batch=41), at=1))), 31, "StreamingQueryFailed"),
        ("fails after a commit of this process, which the storage's clock puts after its plan",
         watched(Story().started(at=1).commit(batch=40, at=10), (12, 20, processing(batch=41, tasks=0))).ended(at=21, exception=CONFLICT)
         .started(run=2, at=25).began(run=2, at=26, unfinished=(41, FORTY_MINUTES)).ended(run=2, at=30, exception=CONFLICT), 31, "StreamingQueryFailed"),
        ("fails in a batch that this process planned before the clock was set ahead",
         fails(Story().started(at=1).began(at=1.5)).started(run=2, at=35).began(run=2, at=36, unfinished=(0, FORTY_MINUTES)).ended(run=2, at=40, exception=CONFLICT), 41, "StreamingQueryFailed"),
        ("fails in a batch whose plan was read before the clock was set ahead",
         fails(resumed(planned=1.2)).started(run=2, at=35).began(run=2, at=36, unfinished=(41, FORTY_MINUTES)).ended(run=2, at=40, exception=CONFLICT), 41, "StreamingQueryFailed"),
        ("hangs in the process that planned the batch", hangs(resumed(planned=2.0), until=170), 170, "StreamingQueryStalled"),
        ("fails in a later run", resumed().commit(batch=41, at=5).ended(at=6).started(run=2, at=7).ended(run=2, at=8, exception=CONFLICT), 9, "StreamingQueryFailed"),
        ("fails with a new checkpoint", fails(resumed()).started_again(at=40), 41, "StreamingQueryFailed"),
        ("hangs in the next batch", watched(resumed().commit(batch=41, at=5), (6, 170, processing(batch=42, tasks=0))), 170, "StreamingQueryStalled"),
        ("hangs, and the storage does not say when it was planned", hangs(resumed(planned=None, committed=False), until=170), 170, "StreamingQueryStalled"),
    ]  # fmt: skip


def test_alert_does_not_mention_restarts_if_none_happened():
    failures = {
        what: findings
        for what, story, now, name in without_age()
        for findings in [story.evaluate(now, **SOON).findings]
        if [finding.alertname for finding in findings] != [name]
        or "over restarts" in say(findings[0]).reason + say(findings[0]).summary
        or OVER_RESTARTS in say(findings[0]).evidence
    }

    assert failures == {}


def test_batch_that_hangs_over_restarts_states_its_age_before_it_is_old():
    """Its plan is older than the window, and younger than the age that is critical by itself."""
    (finding,) = hangs(resumed(planned=-300.0), until=170).evaluate(170, **SOON).findings

    assert say(finding).reason.startswith("batch_hung: batch 41 in flight for 2 min")
    assert say(finding).evidence[OVER_RESTARTS].startswith("batch 41 was planned 7 min ago")


def test_last_commit_has_an_age_before_this_run_commits():
    (finding,) = fails(resumed()).evaluate(31).findings

    assert say(finding).evidence["last_commit"] == "batch 40, 40 min ago, as its checkpoint says"


# -- what a restart repeats -----------------------------------------------------------------------

BEGIN = 'KafkaV2[Subscribe[t]]: {"t":{"0":410}}'
END = 'KafkaV2[Subscribe[t]]: {"t":{"0":420}}'
PLANNED = {"committed_offsets": BEGIN, "available_offsets": END}
IDLE = {"committed_offsets": BEGIN, "available_offsets": BEGIN}


def dead(batch=10, story=None, **fields):
    """A run that ended in a batch; the probe has its exception."""
    story = story or steady()
    return story.probe(run(batch=batch, active=False, exception=CONFLICT, **fields), at=101)


def said(story, now=170):
    """The evidence of the one expected alert."""
    (finding,) = story.evaluate(now).findings
    assert finding.alertname in {"StreamingQueryFailed", "StreamingQueryStalled"}
    return say(finding).evidence.get("on_restart")


def hung(batch=10, **fields):
    story = hung_batch(until=165, batch=batch)
    return story.probe(processing(batch=batch, **fields), at=170)


@pytest.mark.parametrize(
    ("story", "text"),
    [
        (dead(**PLANNED), f"batch 10 runs again, offsets {BEGIN} to {END}"),
        (hung(**PLANNED), f"batch 10 runs again, offsets {BEGIN} to {END}"),
        (hung(), "batch 10 runs again"),
        (
            hung_batch(until=100)
            .probe(processing(batch=10), at=100)
            .ended(at=101, exception=CONFLICT),
            "batch 10 runs again",
        ),
        (
            steady()
            .log(at=100, planned=10, committed=9)
            .probe(run(batch=10), at=100)
            .ended(at=101, exception=CONFLICT),
            "batch 10 runs again",
        ),
        (
            dead(batch=0, story=Story().started(at=90), **PLANNED),
            f"batch 0 runs again, offsets {BEGIN} to {END}",
        ),
        (dead(**IDLE), None),
        (dead(), None),
        (dead(batch=9, **PLANNED), None),
        (steady().ended(at=101, exception=CONFLICT), None),
        (Story().started(at=100).ended(at=101, exception=CONFLICT), None),
        (dead(trigger="ContinuousTrigger(1000)", **PLANNED), None),
        (dead(trigger="RealTimeTrigger(300000)", **PLANNED), None),
    ],
    ids=[
        "failed in a batch",
        "hung in a batch",
        "offsets refused",
        "failed, by the event alone",
        "failed, its log read before",
        "failed in its first batch",
        "failed between batches",
        "failed, and offsets refused",
        "its batch was committed",
        "no probe",
        "failed at once",
        "continuous",
        "real time",
    ],
)
def test_planned_batch_runs_again_with_its_offsets(story, text):
    assert said(story) == text


def test_source_that_hangs_before_a_batch_is_planned_repeats_nothing():
    asking = run(message="Getting offsets from Kafka", busy=True, batch=10, **IDLE)

    assert said(watched(steady(), (101, 170, asking))) is None


def up_to_date():
    story = asynchronous(until=102, log_until=102).log(at=103, committed=51)
    return story.ended(at=103, exception=CONFLICT)


@pytest.mark.parametrize(
    ("story", "now", "text", "missing"),
    [
        (
            asynchronous(until=400, log_until=300),
            400,
            "batches 150 to 200 run again: done, but not in the commit log",
            51,
        ),
        (up_to_date(), 104, None, 0),
        (hung(), 170, "batch 10 runs again", None),
    ],
    ids=["the log is behind", "the log is up to date", "an ordinary query"],
)
def test_async_progress_tracking_repeats_all_batches_missing_in_the_log(story, now, text, missing):
    assert said(story, now) == text
    assert story.query().batches_not_durable == missing


def test_long_offsets_are_cut():
    text = said(dead(committed_offsets="a" * 9000, available_offsets="b" * 9000))

    assert f"{'b' * MAX_CHARACTERS}..." in text
    assert len(text) < 3 * MAX_CHARACTERS
