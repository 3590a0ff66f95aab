"""How old the newest data of a query is, and which seconds kept the promise."""

from __future__ import annotations

from math import inf

import msgspec
import pytest
from support.story import Story, progress, run, source

from querypulse.listener.past_failures import mark_of
from querypulse.listener.state import freshness
from querypulse.listener.state.freshness import (
    BUDGET_SECONDS,
    DAY_SECONDS,
    Freshness,
    FreshnessCounts,
    Promise,
    pass_time,
)

WALL = 1_700_000_000.0
PROMISE = Promise(60.0, 0.99)


class Counting:
    """A story whose freshness is counted at each second that a test names."""

    def __init__(self, story=None, promise=PROMISE, left=None, wall=WALL):
        self.story = Story() if story is None else story
        self.counts = FreshnessCounts()
        self.promise = promise
        self.wall = wall
        self.counts.restore(left or {}, 0.0, wall)

    def at(self, now, planned=None, labels=("a",)) -> Freshness:
        snapshot = self.story.state.snapshot(now)
        promises = dict.fromkeys(labels, self.promise)
        until = {} if planned is None else {"a": planned}
        return self.counts.update(snapshot, promises, until, now + self.wall)[labels[0]]

    def age(self, now):
        return now - self.at(now).complete_until

    def kept(self):
        text = msgspec.json.encode(self.counts.kept(self.wall))
        return msgspec.json.decode(text, type=dict[str, Freshness])


def steady(*, every=10, until=100, **batch) -> Story:
    """A query commits a batch that took 2 s each ten seconds."""
    story = Story().started(at=0)
    for at in range(every, until + 1, every):
        story.commit(batch=at // every, at=at, seconds=2.0, **batch)
    return story


def sources(*pairs, **fields):
    return tuple(source(end, latest, **fields) for end, latest in pairs)


# -- how old the data is ------------------------------------------------------------------------


AGES = {
    "a batch reads what was there when it began": (steady(), 12.0),
    "an idle trigger shows that nothing is unread": (steady().idle(at=109), 1.0),
    "a query that has begun is complete until its start": (Story().started(at=70), 40.0),
    "a batch reads all that its source has": (steady(sources=sources((5, 5))), 12.0),
    "a source that does not say what it has counts as read": (
        steady(sources=sources((5, None))),
        12.0,
    ),
    "a batch that leaves data unread proves nothing": (
        Story().started(at=0).commit(batch=0, at=50, sources=sources((5, 9))),
        110.0,
    ),
    "one of two sources has more": (
        Story().started(at=0).commit(batch=0, at=50, sources=sources((5, 5), (5, 9))),
        110.0,
    ),
    "files that are left are unread": (
        Story().started(at=0).commit(batch=0, at=50, sources=sources((5, 5), backlog_files=3.0)),
        110.0,
    ),
    "a source that says how late it is": (
        Story().started(at=0).commit(
            batch=0, at=100, seconds=2.0, sources=sources((5, None), behind_seconds=30.0)
        ),
        42.0,
    ),
    "a poll shows that nothing is unread": (
        steady(sources=sources((5, 5))).ask(at=108, committed=5, latest=5),
        2.0,
    ),
    "a poll while the query is down proves nothing": (
        steady(sources=sources((5, 5))).failed(at=101).ask(at=108, committed=5, latest=5),
        12.0,
    ),
    "a query that hangs gets older": (steady(until=40), 72.0),
    "a query that failed gets older": (steady(until=40).failed(at=41), 72.0),
    "a query that was stopped gets older": (steady(until=40).ended(at=41), 72.0),
    "a run that has completed gets older": (
        Story().started(at=0).probe(run(trigger="AvailableNowTrigger"), at=1)
        .commit(batch=0, at=40, seconds=2.0).ended(at=41),
        72.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", AGES)
def test_age_where(words):
    story, age = AGES[words]

    assert Counting(story).age(110) == pytest.approx(age)


def test_a_later_batch_that_passes_what_an_earlier_one_saw_proves_the_time_between():
    counting = Counting(Story().started(at=0))
    for at, end, latest in ((20, 100, 900), (40, 500, 1200), (60, 900, 1500)):
        counting.story.commit(batch=at, at=at, seconds=2.0, sources=sources((end, latest)))
        counting.at(at + 1)

    assert counting.age(70) == pytest.approx(70 - 18)


def test_an_idle_trigger_that_holds_data_back_proves_nothing_also_once_a_batch_reads_it():
    held_back = progress(batch=1, committed=False, sources=(source(1, 5),))
    counting = Counting(Story().started(at=0).commit(batch=0, at=10, seconds=2.0))
    counting.at(11)
    counting.story.probe(run(batch=1, idle_progress=held_back), at=50)
    assert counting.age(51) == pytest.approx(43)
    counting.story.works(batch=1, at=60)

    assert counting.age(61) == pytest.approx(53)


def test_everything_that_an_earlier_poll_saw_is_read():
    counting = Counting(Story().started(at=0))
    counting.story.commit(batch=0, at=10, seconds=2.0, sources=sources((100, 100)))
    counting.story.ask(at=15, committed=100, latest=120)
    counting.story.commit(batch=1, at=20, seconds=2.0, sources=sources((120, 900)))
    counting.story.ask(at=30, committed=120, latest=900)

    assert counting.age(31) == pytest.approx(16)


def test_of_a_backlog_older_than_the_polls_the_timestamp_counts():
    story = Story().started(at=0)
    story.commit(batch=0, at=100, seconds=2.0, sources=sources((100, 900)))
    counting = Counting(story.ask(at=105, committed=100, latest=900, since=80.0))

    assert counting.age(110) == pytest.approx(30)


def test_a_commit_without_an_event_proves_the_time_until_the_commit_before():
    story = Story().started(at=0).commit(batch=0, at=10, seconds=2.0)
    counting = Counting(story)
    counting.at(11)
    story.works(batch=1, at=30)
    story.works(batch=2, at=50)

    assert counting.age(52) == pytest.approx(42)


@pytest.mark.parametrize("fails_in", [1, None])
def test_a_batch_that_repeats_the_plan_of_an_earlier_run_is_as_old_as_that(fails_in):
    story = Story().started(at=0).commit(batch=0, at=10, seconds=2.0)
    counting = Counting(story)
    counting.at(11)
    if fails_in is not None:
        story.works(batch=fails_in, at=12)
        story.failed(at=20).started(at=50)
    else:
        story.ended(at=20).started(at=50).began(at=50, committed=(0, 10.0), unfinished=(1, 12.0))
    story.commit(batch=1, at=55, seconds=2.0)
    assert counting.age(56) == pytest.approx(46)

    story.commit(batch=2, at=60, seconds=2.0)

    assert counting.age(61) == pytest.approx(3)


# -- which seconds count ------------------------------------------------------------------------


def figures(count):
    return count.good_seconds, count.bad_seconds, count.left_out_seconds


def test_seconds_are_bad_from_the_moment_on_at_which_the_data_is_too_old():
    counting = Counting(steady(until=40))
    counting.at(0)

    assert figures(counting.at(98)) == pytest.approx((98, 0, 0))
    assert figures(counting.at(108)) == pytest.approx((98, 10, 0))


def test_a_commit_counts_from_its_own_time_on_however_late_it_is_evaluated():
    counting = Counting(steady(until=10))
    counting.at(10)
    counting.story.commit(batch=2, at=100, seconds=2.0)

    assert figures(counting.at(130)) == pytest.approx((88, 32, 0))


def test_a_query_that_was_never_seen_gets_older_from_the_first_count_on():
    counting = Counting()
    counting.at(0)

    assert figures(counting.at(100)) == pytest.approx((60, 40, 0))


def test_planned_time_is_left_out_and_no_data_ages_in_it():
    counting = Counting(steady(until=40))
    counting.at(50, planned=70.0)

    assert figures(counting.at(60, planned=70.0)) == pytest.approx((0, 0, 10))
    # 20 s are planned: what was 12 s old at 50 is 60 s old at 118.
    assert figures(counting.at(130)) == pytest.approx((48, 12, 20))


def test_an_announced_stop_has_no_end_until_it_is_withdrawn():
    counting = Counting(steady(until=40))
    counting.at(41, planned=inf)
    counting.at(400, planned=inf)
    counting.story.started(at=500)

    # Its data was 3 s old when it was stopped.
    assert figures(counting.at(500)) == pytest.approx((0, 0, 459))
    assert figures(counting.at(600)) == pytest.approx((57, 43, 459))


def test_another_promise_counts_from_then_on():
    counting = Counting(steady(until=40))
    counting.at(38)
    counting.promise = Promise(10.0, 0.9)
    counting.at(68)

    assert figures(counting.at(78)) == pytest.approx((30, 10, 0))


# -- over processes -----------------------------------------------------------------------------


def test_the_next_process_adds_the_time_in_which_none_ran():
    first = Counting(steady(until=40))
    first.at(0)
    first.at(45)
    # The clock of the next process began 1,000 s later.
    second = Counting(Story().started(at=5), left=first.kept(), wall=WALL + 1000)

    count = second.at(10)

    assert count.total_seconds == pytest.approx(1010)
    assert count.bad_seconds == pytest.approx(1010 - 98)
    assert second.age(10) == pytest.approx(1010 - 38)


def test_what_was_left_is_added_once_however_late_it_arrives():
    first = Counting(steady(until=40))
    first.at(0)
    first.at(45)
    second = Counting(Story().started(at=5), wall=WALL + 1000)
    second.at(10)
    second.story.commit(batch=9, at=20, seconds=2.0)
    second.at(30)

    second.counts.restore(first.kept(), 30.0, WALL + 1000)
    count = second.at(40)

    assert count.total_seconds == pytest.approx(1040)
    assert count.bad_seconds == pytest.approx(1010 - 98)
    assert second.age(40) == pytest.approx(22)
    assert second.at(40) == count


def test_the_gap_after_a_planned_stop_is_left_out_and_that_after_a_silence_from_its_end_on_counts():
    for planned, left_out in ((inf, 965), (245.0, 200)):
        first = Counting(steady(until=40))
        first.at(0)
        first.at(45, planned=planned)
        second = Counting(Story().started(at=5), left=first.kept(), wall=WALL + 1000)

        count = second.at(10)

        assert count.left_out_seconds == pytest.approx(left_out)
        assert count.total_seconds == pytest.approx(1010 - left_out)


def test_a_query_that_is_not_started_again_is_kept_for_the_process_after():
    first = Counting(steady(until=40))
    first.at(0)
    first.at(45)
    second = Counting(Story().started("b", at=5), left=first.kept(), wall=WALL + 1000)
    second.at(10, labels=("b",))
    kept = second.kept()

    assert kept.keys() == {mark_of("a"), mark_of("b")}
    third = Counting(Story().started(at=5), left=kept, wall=WALL + 2000)
    assert third.at(10).total_seconds == pytest.approx(2010)


def test_what_is_in_the_future_counts_as_just_now_and_what_is_old_is_dropped():
    first = Counting(steady(until=40))
    first.at(0)
    first.at(45)
    before = Counting(Story().started(at=0), left=first.kept(), wall=WALL - 10_000)
    long_after = Counting(Story().started(at=0), left=first.kept(), wall=WALL + 31 * DAY_SECONDS)

    assert before.at(10).total_seconds == pytest.approx(55)
    assert long_after.at(10).total_seconds == 0


def test_counts_of_queries_that_do_not_come_back_are_bounded(monkeypatch):
    monkeypatch.setattr(freshness, "MAX_KEPT", 3)
    counting = Counting(Story())
    for number in range(10):
        counting.at(float(number), labels=(f"q{number}",))

    assert counting.counts.counts.keys() == {"q7", "q8", "q9"}
    assert len(counting.kept()) == 3
    counting.at(10.0, labels=("a", "b", "c", "d"))
    assert counting.counts.counts.keys() == {"a", "b", "c", "d"}


def test_a_query_that_is_forgotten_starts_from_zero():
    counting = Counting(steady(until=40))
    counting.at(0)
    counting.at(45)
    counting.counts.forget("a")

    assert counting.at(100).total_seconds == 0


def test_a_query_that_is_not_shown_for_a_while_counts_on():
    counting = Counting(steady(until=40))
    counting.at(0)
    counting.at(40)
    counting.at(500, labels=("b",))

    assert counting.at(600).total_seconds == pytest.approx(600)


# -- budget -------------------------------------------------------------------------------------


def counted(*, days, bad, promise=PROMISE):
    """So many seconds of each day are bad."""
    count = Freshness(promise=promise, counted_at=0.0, complete_until=0.0)
    for day in range(days):
        end = (day + 1) * DAY_SECONDS
        count = msgspec.structs.replace(count, complete_until=end - bad - promise.seconds)
        count = pass_time(count, end, 0.0)
    return count


def test_budget_is_that_of_thirty_days():
    assert Promise(60.0, 0.99).budget_seconds == pytest.approx(0.01 * BUDGET_SECONDS)
    assert counted(days=10, bad=720).budget_left_seconds(10 * DAY_SECONDS) == pytest.approx(18_720)
    assert counted(days=40, bad=1000).budget_left_seconds(40 * DAY_SECONDS) < 0
    assert counted(days=400, bad=10).bad_by_day.keys() == set(range(369, 400))


def test_without_a_budget_each_bad_second_is_too_many():
    count = counted(days=2, bad=5, promise=Promise(60.0, 1.0))

    assert count.budget_left_seconds(2 * DAY_SECONDS) == pytest.approx(-10)


def test_bad_seconds_belong_to_the_days_in_which_they_were():
    count = Freshness(promise=PROMISE, counted_at=0.0, complete_until=-60.0)

    count = pass_time(count, 2.5 * DAY_SECONDS, 0.0)

    assert count.bad_by_day == {0: DAY_SECONDS, 1: DAY_SECONDS, 2: DAY_SECONDS / 2}
    assert count.bad_seconds == 2.5 * DAY_SECONDS
