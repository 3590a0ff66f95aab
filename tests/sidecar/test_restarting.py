"""When a supervised query is started again, and when it is given up: decisions on a fake clock."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.story import CONFLICT, Story, processing, run

from querypulse.listener.snapshot import Ownership
from querypulse.sidecar.restarting import (
    Indexed,
    RestartTerms,
    SupervisionEnd,
    begin,
    may_start,
    observed,
    queued,
    run_lost,
    runs_again,
    start_failed,
    started,
    still_active,
)

ONCE = "AvailableNowTrigger"


def running(run_number=1):
    """A supervised query whose run has started at 0 s."""
    return started(begin("a", "a", 0.0), f"a-{run_number}", 0.0)


def follow(one, story, now, **terms):
    return observed(one, Indexed.of(story.snapshot(now)), now, RestartTerms(**terms))


def can_start(one, story, now):
    return may_start(one, Indexed.of(story.snapshot(now)), now)


def failing(times, **terms):
    """The supervision of a query that fails and is started again at each of these times."""
    story, one = Story(), begin("a", "a", 0.0)
    for number, at in enumerate(times, 1):
        one = started(one, f"a-{number}", at - 1)
        story.started(run=number, at=at - 1).ended(run=number, at=at, exception=CONFLICT)
        one = follow(one, story, at, **terms)
    return one


def test_first_start_is_due_at_once():
    one = begin("a", "a", 5.0)

    assert can_start(one, Story(), 5.0)
    assert one.published.restarts == 0


def test_failed_run_is_started_again_after_a_pause():
    one = follow(running(), Story().started(at=0).ended(at=10, exception=CONFLICT), 10)

    assert 11.0 <= one.due_at <= 12.0
    assert one.failure == "ConcurrentAppendException: Files were added"
    assert started(one, "a-2", 12).published.restarts == 1


def test_pauses_double_up_to_the_limit_and_vary():
    terms = RestartTerms(max_pause_seconds=20)
    pauses = [terms.pause(failures) for failures in range(1, 8)]

    assert [int(pause) for pause in pauses[:4]] == [1, 2, 4, 8]
    assert all(20 <= pause <= 21 for pause in pauses[5:])
    assert len({terms.pause(3) for _ in range(20)}) > 1


def test_failures_beyond_the_restarts_of_a_period_are_the_end():
    assert failing([10, 20, 30], restarts=3, same_batch_failures=16).end is None
    one = failing([10, 20, 30, 40], restarts=3, same_batch_failures=16)

    assert one.end is SupervisionEnd.GIVEN_UP
    assert one.failure.startswith("4 failures within 3600 s, the last: ConcurrentAppendException")
    assert one.published.given_up == one.failure


def test_failures_of_earlier_periods_do_not_count_if_it_committed_since():
    story, one = Story(), begin("a", "a", 0.0)
    for number in range(1, 10):
        at = number * 100.0
        one = started(one, f"a-{number}", at)
        story.started(run=number, at=at).commit(run=number, batch=number, at=at + 10)
        one = follow(one, story, at + 10, restarts=2, within_seconds=150)
        story.ended(run=number, at=at + 20, exception=CONFLICT)
        one = follow(one, story, at + 20, restarts=2, within_seconds=150)

    assert one.end is None


def test_query_that_never_commits_is_given_up_however_long_its_pauses_are():
    one = failing([1000, 2000, 3000], restarts=2, within_seconds=500, same_batch_failures=16)

    assert one.failure.startswith("3 failures without a commit in between")


def test_same_batch_that_fails_again_and_again_is_given_up():
    story, one = Story(), begin("a", "a", 0.0)
    for number in range(1, 4):
        assert one.end is None
        one = started(one, f"a-{number}", number * 10)
        story.started(run=number, at=number * 10)
        story.probe(processing("a", number, batch=7), at=number * 10 + 1)
        story.ended(run=number, at=number * 10 + 2, exception=CONFLICT)
        one = follow(one, story, number * 10 + 2, same_batch_failures=3)

    assert one.failure == "batch 7 failed 3 times with ConcurrentAppendException"


def test_start_function_that_raises_counts_as_a_failure():
    one = begin("a", "a", 0.0)
    for number in range(3):
        one = start_failed(one, "ValueError: no", float(number), RestartTerms(restarts=2))

    assert one.end is SupervisionEnd.GIVEN_UP
    assert one.failure.endswith("the last: its start failed: ValueError: no")
    assert one.published.restarts == 2


def test_end_on_purpose_is_no_failure():
    def announced():
        return Story().probe(run(), at=0).expect_stop()

    completes = Story().probe(run(trigger=ONCE), at=0).ended(at=10)
    ends = {
        "announced stop": follow(running(), announced().ended(at=10), 10),
        "failure after it": follow(running(), announced().ended(at=10, exception=CONFLICT), 10),
        "availableNow completes": follow(running(), completes, 10),
    }

    assert {name: (one.end, one.due_at) for name, one in ends.items()} == {
        "announced stop": (SupervisionEnd.STOPPED, None),
        "failure after it": (SupervisionEnd.STOPPED, None),
        "availableNow completes": (SupervisionEnd.COMPLETED, None),
    }


def test_stop_announced_while_a_restart_is_due_cancels_it():
    story = Story().started(at=0).ended(at=10, exception=CONFLICT)
    one = follow(running(), story, 10)
    one = follow(one, story.expect_stop(), 11)

    assert one.end is SupervisionEnd.STOPPED


def test_stop_that_nobody_announced_is_a_failure():
    one = follow(running(), Story().probe(run(), at=0).ended(at=10), 10)

    assert one.failure == "it stopped without an exception"
    assert one.due_at > 10


def test_run_that_no_snapshot_shows_yet_is_waited_for():
    story = Story().started(at=0).ended(at=10, exception=CONFLICT)
    one = started(follow(running(), story, 10), "a-2", 11)

    assert follow(one, story, 12) == one
    assert run_lost(one, 30, RestartTerms()).due_at > 30


def test_run_that_somebody_else_started_is_supervised_and_not_started_twice():
    story = Story().started(at=0).ended(at=10, exception=CONFLICT)
    one = follow(running(), story, 10)
    one = follow(one, story.started(run=2, at=11), 11)

    assert (one.due_at, one.run_id) == (None, "a-2")


def test_run_that_disappears_and_is_back_is_not_started_again():
    story = Story().probe(run(), at=0).probe(at=5)
    one = follow(running(), story, 5)
    one = still_active(one, 6.5)
    assert not can_start(one, story.probe(run(), at=7), 7)

    assert follow(one, story, 7).due_at is None


def test_nothing_starts_until_the_probe_has_seen_spark_running_since_the_failure():
    """A query that ended with its SparkContext must not be started again."""
    story = Story().probe(run(), at=9).ended(at=10, exception=CONFLICT)
    one = follow(running(), story, 10)

    assert not can_start(one, story, 60)
    assert can_start(one, story.probe(at=61), 61)


def test_query_that_a_snapshot_lacks_is_still_restarted():
    """Only ``Sidecar.forget`` ends its supervision; old queries are forgotten to save memory."""
    story = Story().probe(run(), at=5).ended(at=10, exception=CONFLICT)
    one = follow(running(), story, 10)
    story.state.forget_name("a")

    assert can_start(follow(one, story, 11), story.probe(at=15), 15)


def test_restart_is_overdue_although_spark_calls_the_last_run_active():
    one = follow(running(), Story().probe(run(), at=0).probe(at=5), 5)
    due_at = one.due_at
    for now in (7, 100, 1000):
        one = still_active(one, now)

    assert not can_start(one, Story(), 1000.5)
    assert queued(one, 999).published.due_at == due_at < 8
    assert started(one, "a-2", 1001).next_try_at is None


def test_start_that_waits_for_other_starts_is_due_since_the_last_of_them():
    one = begin("a", "a", 0.0)

    assert queued(one, 90).published.due_at == 90
    assert queued(started(one, "a-1", 91), 90).published.due_at is None


def owned(snapshot, session):
    """The snapshot of a process that shares its JVM, and has claimed this session."""
    return replace(snapshot, ownership=Ownership(own=frozenset({session}), has_others=True))


@pytest.mark.parametrize(("session", "due_at"), [("theirs", 0.0), ("ours", None)])
def test_query_of_another_process_is_not_taken_for_ours(session, due_at):
    other = run()
    other = replace(other, facts=replace(other.facts, session=session))
    seen = Indexed.of(owned(Story().probe(other, at=1).snapshot(2), "ours"))
    one = observed(begin("a", "a", 0.0), seen, 2, RestartTerms())

    assert one.due_at == due_at


def test_given_up_query_that_works_again_is_noticed():
    story = Story().started(at=0).ended(at=1, exception=CONFLICT)
    one = follow(running(), story, 2, restarts=0)

    assert one.end is SupervisionEnd.GIVEN_UP
    assert not runs_again(one, Indexed.of(story.snapshot(5)))
    assert not runs_again(one, Indexed.of(story.started(run=2, at=10).snapshot(11)))
    assert runs_again(one, Indexed.of(story.commit(run=2, batch=1, at=20).snapshot(21)))
    assert not runs_again(running(), Indexed.of(story.snapshot(21)))


def test_given_up_query_whose_later_run_ended_within_one_evaluation_is_noticed():
    story = Story().started(at=0).ended(at=1, exception=CONFLICT)
    one = follow(running(), story, 2, restarts=0)
    story.probe(run(number=2, trigger=ONCE), at=10).commit(run=2, batch=1, at=20).ended(
        run=2, at=20
    )

    assert runs_again(one, Indexed.of(story.snapshot(21)))


def test_earlier_run_of_a_given_up_query_is_no_recovery():
    story = Story().started(at=0).commit(batch=1, at=5).ended(at=10, exception=CONFLICT)
    one = started(follow(running(), story, 10, restarts=1), "a-2", 12)
    one = run_lost(one, 30, RestartTerms(restarts=1))

    assert one.end is SupervisionEnd.GIVEN_UP
    assert not runs_again(one, Indexed.of(story.snapshot(31)))


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"restarts": -1}, "restarts must be 0 to 1000, given -1"),
        ({"within_seconds": 0}, "within_seconds must be 1 to inf"),
        ({"max_pause_seconds": 0.1}, "max_pause_seconds must be 1 to 86400"),
        ({"same_batch_failures": 17}, "same_batch_failures must be 2 to 16"),
        ({"restarts": "many"}, "restarts must be"),
    ],
)
def test_terms_that_are_not_allowed_raise(terms, message):
    with pytest.raises(ValueError, match=message):
        RestartTerms(**terms)
