"""What one poll of the probe changes, and what a start says that no poll has seen yet."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.story import Story, run

from querypulse.listener.events import Started
from querypulse.listener.probing import Trigger, parse_trigger
from querypulse.listener.query import Outcome


def query(story, at):
    return story.state.snapshot(at).queries[0]


def test_a_run_that_is_asked_again_and_still_waits_is_idle_until_then():
    story = Story().probe(waiting := run(), at=1).probe(waiting, at=5)

    assert query(story, 6).last_idle_at == 5


def test_a_run_whose_turn_it_was_not_lives_and_reports_nothing_new():
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


# -- events that Spark's queue has dropped --------------------------------------------------------


@pytest.mark.parametrize(
    "counts",
    [[37], [37, 37, 37], [None, None], [None, 37], [None, 37, 37], [0, None]],
    ids=str,
)
def test_events_dropped_before_the_first_known_count_are_no_news(counts):
    """L14: a driver may have dropped events long before we attached to it."""
    story = Story()
    for at, dropped in enumerate(counts, 1):
        story.probe(run(), at=at, dropped=dropped)

    assert story.state.snapshot(9).events_dropped_at is None
    assert story.evaluate(9).findings == ()


def test_events_dropped_since_the_last_poll_are_news():
    story = Story().probe(run(), at=1, dropped=None).probe(run(), at=2, dropped=37)
    story.probe(run(), at=3, dropped=38).probe(run(), at=4, dropped=38)

    assert story.state.snapshot(9).events_dropped_at == 3
    assert [finding.alertname for finding in story.evaluate(9).findings] == [
        "QuerypulseEventsMissing"
    ]


# -- what only a start says -----------------------------------------------------------------------


def begun(*, session="s-1", trigger="ProcessingTimeTrigger(5000)", story=None, number=1):
    """A run that has started, and that the probe has not met yet."""
    story = story or Story()
    story.state.apply_event(Started("id-a", f"a-{number}", "a", session, trigger), number)
    return story


def probed(story, *, session="", trigger="Unknown", number=1):
    seen = run(number=number, trigger=trigger)
    return story.probe(replace(seen, facts=replace(seen.facts, session=session)), at=number)


def test_a_start_says_of_which_session_and_trigger_its_run_is():
    known = begun().query()

    assert (known.session, known.trigger) == ("s-1", Trigger("ProcessingTime", 5.0))


def test_what_neither_a_start_nor_the_probe_says_is_unknown():
    for known in (
        begun(session="", trigger="").query(),
        probed(begun(session="", trigger="")).query(),
    ):
        assert (known.session, known.trigger) == ("", None)


def test_what_spark_refuses_to_the_probe_is_known_from_the_start():
    known = probed(begun()).query()

    assert (known.session, known.trigger) == ("s-1", Trigger("ProcessingTime", 5.0))


def test_what_the_probe_says_counts_more_than_the_start():
    known = probed(begun(), session="s-2", trigger="OneTimeTrigger").query()

    assert (known.session, known.trigger) == ("s-2", parse_trigger("OneTimeTrigger"))


def test_the_next_run_is_of_its_own_session_and_trigger():
    story = begun(story=begun(), number=2, session="s-2", trigger="OneTimeTrigger")

    assert (story.query().session, str(story.query().trigger)) == ("s-2", "Once")


@pytest.mark.parametrize(
    ("trigger", "outcome"),
    [
        ("AvailableNowTrigger", Outcome.COMPLETED),
        ("OneTimeTrigger", Outcome.COMPLETED),
        ("ProcessingTimeTrigger(0)", Outcome.STOPPED),
        ("", Outcome.STOPPED),
    ],
)
def test_a_run_that_ends_before_the_probe_has_met_it_ends_as_its_trigger_says(trigger, outcome):
    """L18"""
    story = begun(trigger=trigger).ended(at=2)

    assert story.query().ended.outcome is outcome
