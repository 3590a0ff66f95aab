"""``await_any_failure`` ends for a query that failed or vanished, and when nothing can fail any more."""

from __future__ import annotations

import threading
import time

import pytest
from support.story import CONFLICT, Story, processing, run

from querypulse.listener.probing import Context
from querypulse.sidecar import QueryFailure, Settings, Sidecar
from querypulse.sidecar.failure import first_failure, nothing_left

ONCE = "AvailableNowTrigger"
PATIENCE_SECONDS = 10.0


def failure(story, now, **policy):
    return first_failure(story.judge(now, **policy))


def is_over(story, now=100.0, **policy):
    return nothing_left(story.state.snapshot(now), story.judge(now, **policy))


# -- what ends it -----------------------------------------------------------------------------


def test_a_failed_query_ends_it_with_its_name_and_reason():
    error = failure(Story().started(at=0).ended(at=1, exception=CONFLICT), 1)

    assert isinstance(error, QueryFailure)
    assert (error.query, error.reason) == ("a", "ConcurrentAppendException: Files were added")
    assert str(error) == "streaming query a: ConcurrentAppendException: Files were added"


def test_a_query_that_is_gone_ends_it():
    error = failure(Story().probe(run(), at=0).ended(at=1), 100)

    assert error.query == "a"
    assert "stopped without an exception" in error.reason


def test_the_first_of_several_ends_it():
    story = Story().started("b", at=0).started("a", at=0)
    story.ended("a", at=1, exception=CONFLICT).ended("b", at=2, exception=CONFLICT)

    assert failure(story, 3).query == "b"


def test_a_failure_counts_behind_other_alerts():
    story = (
        Story().started("hung", at=0).started("dead", at=0).ended("dead", at=1, exception="a.B: c")
    )

    assert failure(story, 1000).query == "dead"


@pytest.mark.parametrize(
    ("story", "now", "policy"),
    [
        (Story(), 1000, {}),
        (Story().started(at=0).commit(batch=0, at=5), 10, {}),
        (Story().started(at=0).commit(batch=0, at=5).probe(processing(batch=1), at=6), 900, {}),
        (Story(), 1000, {"expected": ["bronze"]}),
        (Story().probe(run(), at=0).ended(at=1), 30, {}),
        (Story().probe(run(trigger=ONCE), at=0).ended(at=1), 1000, {}),
        (Story().started(at=0).ended(at=1, exception=CONFLICT), 2, {"overrides": [("*", {"ignore": True})]}),
        (Story().started(at=0).ended(at=1, exception=CONFLICT).started(run=2, at=2).commit(run=2, batch=0, at=3), 4, {}),
    ],
    ids=["nothing", "healthy", "hung", "missing", "stopped just now", "completed", "ignored", "cured"],
)  # fmt: skip
def test_nothing_else_ends_it(story, now, policy):
    assert failure(story, now, **policy) is None


# -- when nothing is left ---------------------------------------------------------------------


def completed(story=None, query="a", *, at=1):
    story = story or Story()
    return story.probe(run(query, trigger=ONCE), at=at - 1).ended(query, at=at)


def test_it_is_over_when_every_query_has_completed():
    story = Story().probe(run(trigger=ONCE), run("b", trigger=ONCE), at=0)
    assert not is_over(story.ended(at=1))

    assert is_over(story.ended("b", at=2))


def test_it_is_over_when_the_application_stopped_its_context():
    story = Story().started(at=0).probe(run(), at=1, context=Context.STOPPED_BY_APPLICATION)

    assert is_over(story)


@pytest.mark.parametrize(
    ("story", "policy"),
    [
        (Story(), {}),
        (Story(), {"expected": ["bronze"]}),
        (completed(), {"expected": ["a", "bronze"]}),
        (Story().started(at=0), {}),
        (Story().probe(run(), at=0).ended(at=1), {}),
        (Story().started(at=0).ended(at=1, exception=CONFLICT), {}),
        (Story().probe(run(), at=1, context=Context.STOPPED), {}),
        (completed().started("b", at=2), {}),
    ],
    ids=["nothing yet", "all missing", "one missing", "living", "stopped", "failed", "context died", "one living"],
)  # fmt: skip
def test_it_is_not_over_while_something_can_still_fail(story, policy):
    assert not is_over(story, **policy)


@pytest.mark.parametrize("end", [None, CONFLICT])
def test_an_ignored_query_keeps_nobody_waiting(end):
    """Nothing depends on it, says its verdict; once it is dead nothing could ever end the wait."""
    story = Story().probe(run(trigger=ONCE), run("scratch"), at=0).ended(at=1)
    story.ended("scratch", at=2, exception=end)

    assert is_over(story, overrides=[("scratch", {"ignore": True})])


# -- the wait itself --------------------------------------------------------------------------


def test_it_waits_no_longer_than_allowed():
    began = time.monotonic()
    Sidecar(Settings()).await_any_failure(timeout=0.05)

    assert 0.05 <= time.monotonic() - began < PATIENCE_SECONDS


def test_a_closed_sidecar_is_not_waited_for():
    sidecar = Sidecar(Settings())
    sidecar.close()
    sidecar.await_any_failure()


def test_closing_ends_the_wait_of_another_thread():
    sidecar = Sidecar(Settings())
    ended = threading.Event()
    waiting = threading.Thread(target=lambda: sidecar.await_any_failure() or ended.set())
    waiting.start()
    assert not ended.wait(0.05)
    sidecar.close()
    waiting.join(PATIENCE_SECONDS)

    assert ended.is_set()
