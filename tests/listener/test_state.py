"""What a poll of the probe changes, and what a start event adds before the first poll."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.story import Story, run

from querypulse.listener.events import Started
from querypulse.listener.probe import Trigger
from querypulse.listener.state.query import Outcome


def query(story, at):
    return story.state.snapshot(at).queries[0]


def test_waiting_run_is_idle_at_each_poll():
    story = Story().probe(waiting := run(), at=1).probe(waiting, at=5)

    assert query(story, 6).last_idle_at == 5


def test_run_without_a_new_poll_stays_alive():
    story, waiting = Story(), run()
    for at in (1, 3, 5):
        story.report(waiting, at=at)

    assert query(story, 6).alive
    assert query(story, 6).last_idle_at == 1
    assert query(story, 6).probed_at == 1


def test_run_missing_from_a_report_has_vanished():
    story = Story()
    story.report(run(), at=1)
    story.report(at=5)

    assert not query(story, 6).alive


# -- events that Spark's queue has dropped --------------------------------------------------------


@pytest.mark.fault(
    "Spark and its listeners",
    "Spark's bus dropped events before `attach`",
    "They are not reported as lost afterwards",
)
def test_events_dropped_before_the_first_count_are_ignored():
    """A driver may have dropped events long before we attached to it."""
    for counts in ([37], [37, 37, 37], [None, None], [None, 37], [None, 37, 37], [0, None]):
        story = Story()
        for at, dropped in enumerate(counts, 1):
            story.probe(run(), at=at, dropped=dropped)

        assert story.state.snapshot(9).events_dropped_at is None
        assert story.evaluate(9).findings == ()


@pytest.mark.fault(
    "Spark and its listeners",
    "Spark's bus overflows and drops events",
    "The drops are counted and reported",
)
def test_events_dropped_since_the_last_poll_are_reported():
    story = Story().probe(run(), at=1, dropped=None).probe(run(), at=2, dropped=37)
    story.probe(run(), at=3, dropped=38).probe(run(), at=4, dropped=38)

    assert story.state.snapshot(9).events_dropped_at == 3
    assert [finding.alertname for finding in story.evaluate(9).findings] == [
        "QuerypulseEventsMissing"
    ]


# -- what only a start event contains -------------------------------------------------------------


def begun(*, session="s-1", trigger="ProcessingTimeTrigger(5000)", story=None, number=1):
    """A run that has started and that the probe has not seen yet."""
    story = story or Story()
    story.state.apply_event(Started("id-a", f"a-{number}", "a", session, trigger), number)
    return story


def probed(story, *, session="", trigger="Unknown", number=1):
    seen = run(number=number, trigger=trigger)
    return story.probe(replace(seen, facts=replace(seen.facts, session=session)), at=number)


def test_session_and_trigger_are_those_of_the_probe_else_of_the_start_of_the_run():
    every_5_s = Trigger("ProcessingTime", 5.0)
    cases = [
        ("the start", begun(), "s-1", every_5_s),
        ("neither start nor probe", begun(session="", trigger=""), "", None),
        ("a probe that cannot read them either", probed(begun(session="", trigger="")), "", None),
        ("a probe that cannot read them", probed(begun()), "s-1", every_5_s),
        ("the probe", probed(begun(), session="s-2", trigger="OneTimeTrigger"), "s-2", Trigger("Once")),
        ("the next start",
         begun(story=begun(), number=2, session="s-2", trigger="OneTimeTrigger"), "s-2", Trigger("Once")),
    ]  # fmt: skip
    known = [(what, story.query()) for what, story, *_ in cases]

    assert [(what, query.session, query.trigger) for what, query in known] == [
        (what, session, trigger) for what, _, session, trigger in cases
    ]


@pytest.mark.parametrize(
    ("trigger", "outcome"),
    [
        ("AvailableNowTrigger", Outcome.COMPLETED),
        ("OneTimeTrigger", Outcome.COMPLETED),
        ("ProcessingTimeTrigger(0)", Outcome.STOPPED),
        ("", Outcome.STOPPED),
    ],
)
def test_trigger_of_the_start_event_decides_the_outcome(trigger, outcome):
    story = begun(trigger=trigger).ended(at=2)

    assert story.query().ended.outcome is outcome
