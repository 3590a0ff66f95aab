"""A new checkpoint under an old name is a note in the status and in the next alert."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.rules_table import steady
from support.story import CONFLICT, Story, progress, run

NOTE = (
    "batch ids went from 18,000 back to 0: its checkpoint is new or was restored; "
    "a sink that remembers ids skips batches up to 18,000"
)


def old_run():
    return Story().started(at=0).commit(batch=18_000, at=10).ended(at=20)


def commit_of_new_checkpoint(story, *batches, at=30):
    """The same name under a new id."""
    for number, batch in enumerate(batches):
        done = replace(progress("new-a", batch=batch), name="a", run_id="new-a")
        story.state.apply_event(done, at + number)
    return story


def reason_of(story, now=40):
    return story.evaluate(now).health["a"].reason


def test_new_checkpoint_under_an_old_name_is_a_note_until_the_old_batch_id_has_passed():
    story = commit_of_new_checkpoint(old_run().started_again(at=21), 0, 1)
    assert reason_of(story) == NOTE

    commit_of_new_checkpoint(story, 18_000, at=35)
    assert reason_of(story) == ""


def test_checkpoint_that_was_restored_is_a_note():
    story = old_run().started(run=2, at=21).commit(run=2, batch=17_000, at=30)

    assert reason_of(story).startswith("batch ids went from 18,000 back to 17,000")


def test_next_alert_has_the_note():
    story = commit_of_new_checkpoint(old_run().started_again(at=21), 0)
    (stalled,) = story.evaluate(300).findings

    assert stalled.evidence["batch_ids"] == NOTE


@pytest.mark.parametrize(
    "story",
    [
        steady(),
        old_run().started(run=2, at=21).commit(run=2, batch=18_001, at=30),
        old_run().started(run=2, at=21).commit(run=2, batch=18_000, at=30),
        old_run().started_again(at=21),
        Story().started(at=0).commit(batch=0, at=10),
        Story().started(at=0).ended(at=5, exception=CONFLICT).started(run=2, at=6).commit(run=2, batch=0, at=8),
        Story().probe(run(async_progress=True, batch=9), at=0).commit(batch=9, at=10).ended(at=20)
        .started(run=2, at=21).probe(run(number=2, async_progress=True), at=22).commit(run=2, batch=7, at=30),
    ],
    ids=["one run", "goes on", "repeats its last batch", "new, nothing committed yet", "first run",
         "first run had no commit", "async progress tracking repeats batches"],
)  # fmt: skip
def test_other_runs_have_no_note(story):
    assert "batch ids" not in reason_of(story, 32)
