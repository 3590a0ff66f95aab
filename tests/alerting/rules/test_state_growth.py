"""What a message says of state that grows, and of a recovery that would be slow."""

from __future__ import annotations

import json

from support.rules.state_growth import DAY, HOUR, TEN_GB, leak, state
from support.story import CONFLICT, Story

from querypulse.alerting.words.messages import say
from querypulse.listener.foresight.operators import StateOperator


def reasons(story, **settings):
    return [finding.reason for finding in story.evaluate(story.ends_at, **settings).findings]


def test_reason_names_operator_growth_and_cause():
    assert reasons(state(80, leak)) == [
        "dedupe keeps 8.9 M rows (1.8 GB), 2.4 M rows (480 MB) more than 24 h ago; there is no "
        "watermark, so that nothing is ever removed"
    ]


def test_reason_says_when_the_limit_is_reached():
    (reason,) = reasons(state(24 * 4, lambda hour: 4.3e5 * hour, delay=10 * DAY), **TEN_GB)

    assert reason == (
        "the state is 8.2 GB, most of it in dedupe, 10 M rows (2.1 GB) more than 24 h ago; nothing has "
        "been removed since watching began; at this rate its limit of 10 GB (state_limit_bytes) is "
        "reached in 21 h 16 min"
    )
    (reached,) = reasons(state(30, 6e7, delay=600, removed=9), **TEN_GB)
    assert reached.endswith("; its limit of 10 GB (state_limit_bytes) is reached")


def with_snapshots(*versions, every=60, seconds=60.0):
    """Query a has committed 100 batches, and fails; the newest snapshots have these versions."""
    names = {f"SnapshotLastUploaded.partition_{n}_default": v for n, v in enumerate(versions)}
    operator = StateOperator("dedupe", rows=5, custom=json.dumps(names))
    story = Story().started(at=0)
    for batch in range(100):
        story.commit(batch=batch, at=every * (batch + 1), seconds=seconds, operators=(operator,))
    story.ended(at=story.ends_at + 1, exception=CONFLICT)
    (finding,) = story.evaluate(story.ends_at + 1).findings
    return say(finding).evidence.get("state_snapshots")


def test_a_message_says_that_a_recovery_of_state_would_be_slow():
    assert with_snapshots(90, 40) == (
        "the newest snapshot of partition 1 of dedupe lacks the last 60 batches (60 min); a restart "
        "applies their changes again, which may take long"
    )
    assert with_snapshots(90, -1) == (
        "no snapshot of partition 1 of dedupe was uploaded in the last 100 batches (100 min); a "
        "restart applies their changes again, which may take long"
    )


def test_recent_snapshots_and_short_batches_are_not_mentioned():
    assert with_snapshots() is None
    assert with_snapshots(90, 60) is None
    assert with_snapshots(90, 40, every=5, seconds=5.0) is None
    assert with_snapshots(90, 40, every=600, seconds=1.0) is None


def test_what_is_known_of_the_state_goes_on_with_the_checkpoint_only():
    story = state(30, leak)
    before = story.query().checkpoint.growth
    story.ended(at=31 * HOUR).started(at=31 * HOUR + 5)
    assert story.query().checkpoint.growth == before
    story.ended(at=31 * HOUR + 8).started_again(at=31 * HOUR + 9)
    assert story.query().checkpoint.growth == {}
