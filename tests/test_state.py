"""What one look of the probe says of runs that it did not ask this time."""

from __future__ import annotations

from support.story import Story, run


def query(story, at):
    return story.state.snapshot(at).queries[0]


def test_a_run_that_is_asked_again_and_still_waits_is_idle_until_then():
    story = Story().probe(waiting := run(), at=1).probe(waiting, at=5)

    assert query(story, 6).last_idle_at == 5


def test_a_run_whose_turn_it_was_not_lives_and_tells_nothing_new():
    story, waiting = Story(), run()
    for at in (1, 3, 5):
        story.report(waiting, at=at)

    assert query(story, 6).alive
    assert query(story, 6).last_idle_at == 1
    assert query(story, 6).probed_at == 1


def test_a_run_that_is_reported_no_more_has_vanished():
    story = Story()
    story.report(run(), at=1)
    story.report(at=5)

    assert not query(story, 6).alive
