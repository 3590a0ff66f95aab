"""The batches that a restart repeats, in the evidence of failed and stalled queries."""

from __future__ import annotations

import pytest
from support.rules_table import asynchronous, hung_batch, steady, watched
from support.story import CONFLICT, Story, processing, run

from querypulse.alerting.evidence import MAX_CHARACTERS

BEGIN = 'KafkaV2[Subscribe[t]]: {"t":{"0":410}}'
END = 'KafkaV2[Subscribe[t]]: {"t":{"0":420}}'
PLANNED = {"committed_offsets": BEGIN, "available_offsets": END}
IDLE = {"committed_offsets": BEGIN, "available_offsets": BEGIN}


def dead(batch=10, story=None, **fields):
    """A run that ended in a batch; the probe has its exception."""
    story = story or steady()
    return story.probe(run(batch=batch, active=False, exception=CONFLICT, **fields), at=101)


def said(story, now=170, **settings):
    """The evidence of the one expected alert."""
    (finding,) = story.evaluate(now, **settings).findings
    assert finding.alertname in {"StreamingQueryFailed", "StreamingQueryStalled"}
    return finding.evidence.get("on_restart")


def hung(batch=10, **fields):
    story = hung_batch(until=165, batch=batch)
    return story.probe(processing(batch=batch, **fields), at=170)


@pytest.mark.parametrize(
    ("story", "text"),
    [
        (dead(**PLANNED), f"batch 10 runs again, offsets {BEGIN} to {END}"),
        (hung(**PLANNED), f"batch 10 runs again, offsets {BEGIN} to {END}"),
        (hung(), "batch 10 runs again"),
        (hung_batch(until=100).probe(processing(batch=10), at=100).ended(at=101, exception=CONFLICT), "batch 10 runs again"),
        (steady().log(at=100, planned=10, committed=9).probe(run(batch=10), at=100).ended(at=101, exception=CONFLICT), "batch 10 runs again"),
        (dead(batch=0, story=Story().started(at=90), **PLANNED), f"batch 0 runs again, offsets {BEGIN} to {END}"),
        (dead(**IDLE), None),
        (dead(), None),
        (dead(batch=9, **PLANNED), None),
        (steady().ended(at=101, exception=CONFLICT), None),
        (Story().started(at=100).ended(at=101, exception=CONFLICT), None),
        (dead(trigger="ContinuousTrigger(1000)", **PLANNED), None),
        (dead(trigger="RealTimeTrigger(300000)", **PLANNED), None),
    ],
    ids=["failed in a batch", "hung in a batch", "offsets refused", "failed, by the event alone",
         "failed, its log read before", "failed in its first batch", "failed between batches",
         "failed, and offsets refused", "its batch was committed", "no probe", "failed at once",
         "continuous", "real time"],
)  # fmt: skip
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
        (asynchronous(until=400, log_until=300), 400, "batches 150 to 200 run again: done, but not in the commit log", 51),
        (up_to_date(), 104, None, 0),
        (hung(), 170, "batch 10 runs again", None),
    ],
    ids=["the log is behind", "the log is up to date", "an ordinary query"],
)  # fmt: skip
def test_async_progress_tracking_repeats_all_batches_missing_in_the_log(story, now, text, missing):
    assert said(story, now) == text
    assert story.query().batches_not_durable == missing


def test_long_offsets_are_cut():
    text = said(dead(committed_offsets="a" * 9000, available_offsets="b" * 9000))

    assert f"{'b' * MAX_CHARACTERS}..." in text
    assert len(text) < 3 * MAX_CHARACTERS
