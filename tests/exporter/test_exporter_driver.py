"""The heartbeat of a driver, and whether outside monitors should expect it to be alive."""

from __future__ import annotations

from support.exporter_exposition import of_query, values
from support.published_states import WALL, published
from support.story import CONFLICT, Story, processing, run

from querypulse.listener.probe import Context

BEAT = {("shop",): WALL - 0.5}


def expected(story=None, **changes):
    return values(published(story, **changes), "querypulse_driver_expected_timestamp_seconds")


def committing() -> Story:
    return Story().started(at=0).commit(batch=1, at=90)


def test_driver_is_expected_while_a_query_should_run():
    stories = {
        "runs": committing(),
        "idles": committing().idle(at=95),
        "failed": committing().ended(at=95, exception=CONFLICT),
        "vanished": committing().probe(run(), at=94).probe(at=95).probe(at=96),
        "another ended": committing().started("b", at=90).ended("b", at=95).expect_stop("b"),
    }
    shown = {name: expected(story, now=200.0) for name, story in stories.items()}
    assert shown == dict.fromkeys(stories, BEAT)


def test_driver_is_expected_for_an_expected_query_that_was_never_seen():
    assert expected(expected=("bronze",)) == BEAT


def test_driver_is_not_expected_if_no_query_should_run():
    available_now = run(trigger="AvailableNowTrigger")
    once = run(trigger="OneTimeTrigger")
    stopped_by_application = {"at": 94, "context": Context.STOPPED_BY_APPLICATION}
    stories = {
        "no query": Story(),
        "available now": Story().started(at=0).probe(available_now, at=1),
        "once": Story().started(at=0).probe(once, at=1).ended(at=9),
        "to be stopped": committing().expect_stop(),
        "stopped": committing().expect_stop().ended(at=95),
        "Spark stopped": committing().probe(run(), **stopped_by_application),
    }
    assert {name: shown for name, story in stories.items() if (shown := expected(story))} == {}


def test_idleness_is_activity_without_a_commit():
    shown = published(committing().idle(at=95))

    assert of_query(shown, "a", "last_activity_timestamp_seconds") == {(): WALL - 5}
    assert of_query(shown, "a", "last_commit_timestamp_seconds") == {(): WALL - 10}


def test_batch_whose_tasks_finish_makes_progress():
    story = committing().probe(processing(batch=2, tasks=1), at=92)
    story.probe(processing(batch=2, tasks=2), at=97)
    shown = published(story)

    assert of_query(shown, "a", "no_progress_seconds") == {(): 3}
    assert of_query(shown, "a", "batch_in_flight_seconds") == {(): 8}


def test_waiting_or_ended_query_has_no_stuck_time():
    story = committing().probe(processing(batch=2), at=92)

    assert of_query(published(story.ended(at=95)), "a", "no_progress_seconds") == {}
    assert of_query(published(committing()), "a", "no_progress_seconds") == {}
