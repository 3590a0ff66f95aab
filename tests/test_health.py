"""A query is well when it shows it, and not when its finding has merely gone."""

from __future__ import annotations

import pytest
from support.lifecycle_harness import STATES_WITHOUT_ALERT
from support.story import CONFLICT, Story, run

from querypulse.alerting.evaluate import Evaluation, QueryHealth
from querypulse.alerting.finding import QueryState
from querypulse.alerting.lifecycle.health import DriverHealth, RecoveryWindow
from querypulse.listener.probing import Context

AVAILABLE_NOW = "AvailableNowTrigger"


def health(story, now, **settings) -> DriverHealth:
    return DriverHealth(story.evaluate(now, **settings), story.state.snapshot(now), now)


def is_recovering(story, now, severity="critical", **settings) -> bool:
    return health(story, now, **settings).recovery("a", severity, None) is not None


def has_recovered(story, since, now, **settings) -> bool:
    """Whether calm since ``since`` proves anything after 30 s."""
    before = health(story(since), since, **settings).recovery("a", "critical", None)
    assert before is not None
    return health(story(now), now, **settings).has_recovered("a", before, 30.0)


def started():
    return Story().started(at=0).probe(run(busy=True), at=0)


NOT_CALM = [
    ("it failed", started().ended(at=5, exception=CONFLICT), 10),
    ("it is gone", started().ended(at=5), 100),
    ("it ended, and the grace runs", started().ended(at=5), 10),
    ("it vanished, and the grace runs", started().probe(at=5), 10),
    ("its context stopped by itself", started().probe(run(), at=5, context=Context.STOPPED), 10),
    ("it stalls", started(), 200),
    ("it has just started", started(), 10),
    ("a start after a failure", started().ended(at=5, exception=CONFLICT).started(run=2, at=6), 10),
]
CALM = [
    ("it committed", started().commit(batch=0, at=5), 10),
    ("its end was announced", started().expect_stop().ended(at=5), 10),
    ("the application stopped", started().probe(run(), at=5, context=Context.STOPPED_BY_APPLICATION), 10),
    ("it completed", Story().probe(run(trigger=AVAILABLE_NOW), at=0).ended(at=5), 100),
    ("it vanished, and was to end by itself", Story().probe(run(trigger=AVAILABLE_NOW), at=0).probe(at=5), 100),
    ("it ended, and nobody knows its trigger", Story().started(at=0).ended(at=5), 100),
    ("nobody knows it", Story(), 100),
]  # fmt: skip


@pytest.mark.parametrize(("story", "now"), [pytest.param(*row[1:], id=row[0]) for row in NOT_CALM])
def test_it_is_not_calm(story, now):
    assert not is_recovering(story, now)


@pytest.mark.parametrize(("story", "now"), [pytest.param(*row[1:], id=row[0]) for row in CALM])
def test_it_is_calm(story, now):
    assert is_recovering(story, now)


def test_a_query_of_the_roster_that_nobody_has_seen_is_not_calm():
    assert not is_recovering(Story(), 10, expected=["a"])


def test_an_ignored_query_is_calm_however_it_fares_and_needs_time_only():
    story = started().ended(at=5, exception=CONFLICT)
    ignored = {"overrides": [("a", {"ignore": True})]}

    assert is_recovering(story, 10, **ignored)
    assert has_recovered(lambda now: story, 10, 40, **ignored)


@pytest.mark.parametrize("state", sorted(set(QueryState) - set(STATES_WITHOUT_ALERT.values())))
def test_a_warning_is_open_in_every_failing_state_and_a_critical_alert_in_the_grave_ones(state):
    snapshot = started().state.snapshot(10)
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
        reported = started()
        for batch, moment in enumerate(at):
            if moment <= now:
                reported.commit(batch=batch, at=moment)
        return reported

    return story


def test_two_commits_prove_it_and_time_does_not_alone():
    assert has_recovered(commits(5, 15, 25), 10, 40)
    assert not has_recovered(commits(5, 15, 25), 10, 39)
    assert not has_recovered(commits(5, 15), 10, 40)
    assert not has_recovered(commits(5, 6, 7), 10, 40)


def test_idleness_proves_it_when_it_came_after():
    assert has_recovered(lambda now: Story().started(at=0).idle(at=min(now, 11)), 10, 40)
    assert not has_recovered(lambda now: Story().started(at=0).idle(at=10), 10, 40)


def test_a_calm_that_lasts_keeps_its_beginning_and_what_it_began_with():
    recovery = health(commits(5)(10), 10).recovery("a", "critical", None)

    assert recovery == RecoveryWindow(10, 1)
    assert health(commits(5, 15)(20), 20).recovery("a", "critical", recovery) == recovery


def test_no_calm_begins_while_a_query_is_starting():
    """N1 of the simulator: a stalled query that was started again resolved with its second commit."""
    assert health(started(), 40).recovery("a", "critical", None) is None
    assert health(started().commit(batch=0, at=50), 50).recovery(
        "a", "critical", None
    ) == RecoveryWindow(50, 1)


def test_a_calm_goes_on_while_the_next_run_is_starting():
    """Of an ``availableNow`` loop each run would begin it again."""
    assert health(started(), 40).recovery(
        "a", "critical", RecoveryWindow(2.0, 0)
    ) == RecoveryWindow(2.0, 0)


def test_another_query_of_the_same_name_begins_its_calm_again():
    assert health(commits(5)(20), 20).recovery(
        "a", "critical", RecoveryWindow(10, 7)
    ) == RecoveryWindow(20, 1)
