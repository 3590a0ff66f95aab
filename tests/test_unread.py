"""For how long the first unread record has waited: no longer than it truly has, within a look."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from support.story import poll

from querypulse.listener.sources.unread import MAX_MARKS, MAX_POINTS, Unread, follow_unread

STEP = 15.0
POLLS_PER_MARK = 60 / MAX_MARKS * 2


def follow(*polls):
    known = Unread()
    for one in polls:
        known = follow_unread(known, {0: one})
    return known


@given(
    appended=st.lists(st.integers(0, 20), min_size=2, max_size=60),
    reads=st.lists(st.integers(0, 25), min_size=60, max_size=60),
    written=st.lists(st.floats(-1e6, 1e6), min_size=60, max_size=60),
)
def test_a_wait_is_longer_than_it_was_by_less_than_marks_are_apart_whatever_the_records_say(
    appended, reads, written
):
    """Each look finds so many new records; the query reads some; times are whatever they are."""
    known, end, committed, came = Unread(), 0, 0, []
    for number, (new, read, said) in enumerate(zip(appended, reads, written, strict=False)):
        at = number * STEP
        came += [at - STEP + 1] * new
        end += new
        committed = min(end, committed + read)
        known = follow_unread(
            known,
            {
                0: poll(
                    at=at, committed=committed, latest=end, since=said if committed < end else None
                )
            },
        )
        wait = known.waits[-1]
        if wait.at == at:
            true = at - came[committed] if committed < end else 0.0
            assert 0.0 <= wait.seconds <= true + POLLS_PER_MARK * STEP


def test_what_came_after_nothing_waited_counts_from_the_poll_that_found_it():
    known = follow(
        poll(at=0, committed=10, latest=10),
        poll(at=15, committed=10, latest=20, since=4),
        poll(at=30, committed=11, latest=20, since=4),
    )

    assert (known.waits[-1].seconds, known.waits[-1].is_least) == (26 - 11, True)


def test_a_record_that_came_while_others_waited_is_known_by_its_own_time():
    known = follow(
        poll(at=0, committed=5, latest=10, since=-100),
        poll(at=15, committed=6, latest=20, since=-90),
        poll(at=30, committed=15, latest=30, since=9),
    )

    assert (known.waits[-1].seconds, known.waits[-1].is_least) == (21, False)


def test_what_had_waited_before_counts_from_the_first_poll():
    known = follow(
        poll(at=100, committed=5, latest=10, since=-5000),
        poll(at=115, committed=6, latest=10, since=-5000),
    )

    assert (known.waits[-1].seconds, known.waits[-1].is_least) == (15, True)


def test_only_the_first_poll_after_a_commit_counts():
    known = follow(*(poll(at=at, committed=5, latest=10 + at, since=0) for at in range(0, 60, 15)))

    assert [wait.at for wait in known.waits] == [0]


def test_nothing_waits_in_what_has_been_read():
    known = follow(
        poll(at=0, committed=5, latest=10, since=0), poll(at=15, committed=10, latest=10)
    )

    assert known.waits[-1].seconds == 0
    assert known.backlogs == {0: {}}


def test_a_query_that_was_set_back_begins_again():
    known = follow(
        poll(at=0, committed=5, latest=10, since=0), poll(at=15, committed=3, latest=10, since=0)
    )

    assert known.waits == ()
    assert known.backlogs[0]["t/0"].marks[0].at == 15


def test_a_topic_that_was_made_again_begins_again():
    known = follow(
        poll(at=0, committed=5, latest=100, since=0), poll(at=15, committed=5, latest=10, since=0)
    )

    assert [mark.end for mark in known.backlogs[0]["t/0"].marks] == [10]


def test_a_long_backlog_is_kept_in_few_marks():
    known = follow(*(poll(at=at, committed=at, latest=2 * at + 10, since=0) for at in range(2000)))

    marks = known.backlogs[0]["t/0"].marks
    assert len(marks) <= MAX_MARKS
    assert len(known.waits) <= MAX_POINTS
    # Half of the time is unread, and the marks cover it evenly.
    gaps = [after.at - before.at for before, after in itertools.pairwise(marks)]
    assert max(gaps) < 250
