"""A query has recovered when it shows activity, not when its finding is merely gone."""

from __future__ import annotations

import pytest
from support.lifecycle_harness import STATES_WITHOUT_ALERT
from support.story import CONFLICT, Story, run

from querypulse.alerting.evaluate import Evaluation
from querypulse.alerting.finding import QueryHealth, Severity
from querypulse.alerting.incidents.recovery import DriverHealth, RecoveryWindow
from querypulse.core.states import QueryState
from querypulse.listener.probe_report import Context

AVAILABLE_NOW = "AvailableNowTrigger"
PROCESSING_TIME = "ProcessingTimeTrigger(0)"


def health(story, now, **settings) -> DriverHealth:
    return DriverHealth(story.evaluate(now, **settings), story.state.snapshot(now), now)


def recovery(story, now, before=None, **settings) -> RecoveryWindow | None:
    return health(story, now, **settings).recovery("a", "critical", before)


def is_recovering(story, now, **settings) -> bool:
    return recovery(story, now, **settings) is not None


def has_recovered(story, since, now, **settings) -> bool:
    """Whether a recovery since ``since`` is proven after 30 s."""
    before = recovery(story(since), since, **settings)
    assert before is not None
    return health(story(now), now, **settings).has_recovered("a", before, 30.0)


def started():
    return Story().started(at=0).probe(run(busy=True), at=0)


def unhealthy():
    return [
        ("failed", started().ended(at=5, exception=CONFLICT), 10),
        ("stopped", started().ended(at=5), 100),
        ("ended, within the grace period", started().ended(at=5), 10),
        ("vanished, within the grace period", started().probe(at=5), 10),
        ("the context stopped by itself", started().probe(run(), at=5, context=Context.STOPPED), 10),
        ("the context stopped by itself and cut off a run that ends by itself",
         Story().probe(run(trigger=AVAILABLE_NOW, busy=True), at=0).probe(run(trigger=AVAILABLE_NOW), at=5, context=Context.STOPPED), 10),
        ("stalled", started(), 200),
        ("just started", started(), 10),
        ("started after a failure", started().ended(at=5, exception=CONFLICT).started(run=2, at=6), 10),
    ]  # fmt: skip


def recovering():
    return [
        ("committed", started().commit(batch=0, at=5), 10),
        ("announced its end", started().expect_stop().ended(at=5), 10),
        ("the application stopped", started().probe(run(), at=5, context=Context.STOPPED_BY_APPLICATION), 10),
        ("completed", Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=5), 100),
        ("vanished, with a trigger that ends by itself", Story().probe(run(trigger=AVAILABLE_NOW), at=0).probe(at=5), 100),
        ("ended, with an unknown trigger", Story().started(at=0).ended(at=5), 100),
        ("unknown query", Story(), 100),
    ]  # fmt: skip


def test_query_is_recovering_or_not():
    assert [what for what, story, now in unhealthy() if is_recovering(story, now)] == []
    assert [what for what, story, now in recovering() if not is_recovering(story, now)] == []
    assert not is_recovering(Story(), 10, expected=["a"]), "expected, and never seen"


def test_ignored_query_recovers_in_any_state_after_some_time():
    story = started().ended(at=5, exception=CONFLICT)
    ignored = {"overrides": [("a", {"ignore": True})]}

    assert is_recovering(story, 10, **ignored)
    assert is_recovering(started(), 10, **ignored)
    assert has_recovered(lambda now: story, 10, 40, **ignored)


@pytest.mark.parametrize("state", sorted(set(QueryState) - set(STATES_WITHOUT_ALERT.values())))
def test_warning_stays_open_in_every_unhealthy_state_and_critical_in_grave_ones(state):
    snapshot = started().commit(batch=0, at=5).state.snapshot(10)
    seen = DriverHealth(Evaluation(health={"a": QueryHealth(state)}), snapshot, 10.0)
    grave = state in {
        QueryState.FAILED, QueryState.MISSING, QueryState.STOPPED_UNEXPECTEDLY, QueryState.STALLED,
    }  # fmt: skip

    if state is QueryState.WAITING:
        assert seen.recovery("a", "warning", None) is not None
    else:
        assert seen.recovery("a", "warning", None) is None
        assert (seen.recovery("a", "critical", None) is None) == grave


def commits(*at):
    def story(now):
        current = started()
        for batch, moment in enumerate(at):
            if moment <= now:
                current.commit(batch=batch, at=moment)
        return current

    return story


def test_recovery_needs_two_commits_and_time():
    assert has_recovered(commits(5, 15, 25), 10, 40)
    assert not has_recovered(commits(5, 15, 25), 10, 39)
    assert not has_recovered(commits(5, 15), 10, 40)
    assert not has_recovered(commits(5, 6, 7), 10, 40)


def test_later_idleness_proves_recovery():
    assert has_recovered(lambda now: Story().started(at=0).idle(at=min(now, 11)), 10, 40)
    assert not has_recovered(lambda now: Story().started(at=0).idle(at=10), 10, 40)


def test_recovery_does_not_begin_while_a_query_is_starting():
    """Otherwise a restarted query that had stalled would resolve with its second commit."""
    assert recovery(started(), 40) is None
    assert recovery(started().commit(batch=0, at=50), 50) == RecoveryWindow(50, 1, active=True)


def test_recovery_does_not_begin_while_the_first_batch_of_a_run_is_slow():
    """A warning does not keep a critical alert open, but it proves no recovery either."""
    evaluation = Evaluation(health={"a": QueryHealth(QueryState.SLOW, severity=Severity.WARNING)})
    begun = [
        DriverHealth(evaluation, story.state.snapshot(10), 10.0).recovery("a", "critical", None)
        for story in (started(), started().commit(batch=0, at=5))
    ]

    assert [one is not None for one in begun] == [False, True]


@pytest.mark.parametrize(
    ("trigger", "period", "commits", "ends", "announced"),
    [
        (AVAILABLE_NOW, 25, (5,), 6, False),
        (AVAILABLE_NOW, 25, (5,), 5, False),
        (AVAILABLE_NOW, 33, (5, 8), 9, False),
        (PROCESSING_TIME, 20, (5,), 19, True),
    ],
    ids=["availableNow, the end is seen after the commit", "availableNow, the end is seen with the commit",
         "availableNow, two batches a run", "announced restarts"],
)  # fmt: skip
def test_loop_of_short_runs_recovers(trigger, period, commits, ends, announced):
    """No single run shows enough; an evaluation may see a run between its commit and its end."""
    story = Story().probe(run(trigger=trigger), at=0).ended(at=5, exception=CONFLICT)
    found = window = None
    for start in range(20, 100, period):
        number = 2 + start // period
        story.started(run=number, at=start).probe(run(number=number, trigger=trigger), at=start)
        for second in range(start, start + period):
            if second - start in commits:
                story.commit(run=number, batch=second, at=second)
            if second - start == ends:
                story = story.expect_stop() if announced else story
                story.ended(run=number, at=second)
            now = health(story, second)
            window = now.recovery("a", "critical", window)
            if window is not None and now.has_recovered("a", window, 30.0):
                found = found or second
    assert found is not None
    assert found < 65


AGAIN = run(trigger=AVAILABLE_NOW, busy=True)


def restarted(story):
    return story.started(run=2, at=20)


@pytest.mark.parametrize(
    ("story", "then", "continues"),
    [
        (Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=5), restarted, True),
        (started().expect_stop().ended(at=5), restarted, False),
        (Story().probe(AGAIN, at=0).probe(at=5), lambda story: story.probe(AGAIN, at=20), False),
    ],
    ids=["it completed, as each run of a loop does", "a planned stop", "it had vanished"],
)  # fmt: skip
def test_recovery_of_an_ended_run_continues_while_the_next_one_starts_if_it_has_completed(
    story, then, continues
):
    """The new run may do what a stopped one did: only its activity shows that it recovers."""
    before = recovery(story, 10)

    assert before is not None
    assert (recovery(then(story), 21, before) == before) is continues


def test_another_query_with_the_same_name_restarts_the_recovery():
    before, after = RecoveryWindow(10, 7), RecoveryWindow(20, 1, active=True)

    assert recovery(commits(5)(20), 20, before) == after
