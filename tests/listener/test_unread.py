"""The age of the first unread record is never overstated beyond the poll resolution."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from support.story import poll

from querypulse.listener.source_polls import MAX_MARKS, MAX_POINTS, Unread, follow_unread

STEP = 15.0
POLLS_PER_MARK = 60 / MAX_MARKS * 2


def follow(*polls):
    known = Unread()
    for one in polls:
        known = follow_unread(known, {0: one})
    return known


@settings(max_examples=50)
@given(
    appended=st.lists(st.integers(0, 20), min_size=2, max_size=60),
    reads=st.lists(st.integers(0, 25), min_size=60, max_size=60),
    written=st.lists(st.floats(-1e6, 1e6), min_size=60, max_size=60),
)
def test_wait_is_overstated_by_less_than_the_distance_of_marks(appended, reads, written):
    """Each poll finds new records, the query reads some of them, and record times are random."""
    known, end, committed, came = Unread(), 0, 0, []
    for number, (new, read, record_time) in enumerate(zip(appended, reads, written, strict=False)):
        at = number * STEP
        came += [at - STEP + 1] * new
        end += new
        committed = min(end, committed + read)
        known = follow_unread(
            known,
            {
                0: poll(
                    at=at,
                    committed=committed,
                    latest=end,
                    since=record_time if committed < end else None,
                )
            },
        )
        wait = known.waits[-1]
        if wait.at == at:
            true = at - came[committed] if committed < end else 0.0
            assert 0.0 <= wait.seconds <= true + POLLS_PER_MARK * STEP


def test_backlog_after_an_empty_one_counts_from_its_first_poll():
    known = follow(
        poll(at=0, committed=10, latest=10),
        poll(at=15, committed=10, latest=20, since=4),
        poll(at=30, committed=11, latest=20, since=4),
    )

    assert (known.waits[-1].seconds, known.waits[-1].is_least) == (26 - 11, True)


def test_record_behind_a_backlog_counts_from_its_own_time():
    known = follow(
        poll(at=0, committed=5, latest=10, since=-100),
        poll(at=15, committed=6, latest=20, since=-90),
        poll(at=30, committed=15, latest=30, since=9),
    )

    assert (known.waits[-1].seconds, known.waits[-1].is_least) == (21, False)


def test_backlog_before_the_first_poll_counts_from_that_poll():
    known = follow(
        poll(at=100, committed=5, latest=10, since=-5000),
        poll(at=115, committed=6, latest=10, since=-5000),
    )

    assert (known.waits[-1].seconds, known.waits[-1].is_least) == (15, True)


def test_only_the_first_poll_after_a_commit_counts():
    known = follow(*(poll(at=at, committed=5, latest=10 + at, since=0) for at in range(0, 60, 15)))

    assert [wait.at for wait in known.waits] == [0]


def test_fully_read_source_has_no_wait():
    known = follow(
        poll(at=0, committed=5, latest=10, since=0), poll(at=15, committed=10, latest=10)
    )

    assert known.waits[-1].seconds == 0
    assert known.backlogs == {0: {}}


def test_rewound_query_starts_over():
    known = follow(
        poll(at=0, committed=5, latest=10, since=0), poll(at=15, committed=3, latest=10, since=0)
    )

    assert known.waits == ()
    assert known.backlogs[0]["t/0"].marks[0].at == 15


def test_recreated_topic_starts_over():
    known = follow(
        poll(at=0, committed=5, latest=100, since=0), poll(at=15, committed=5, latest=10, since=0)
    )

    assert [mark.end for mark in known.backlogs[0]["t/0"].marks] == [10]


def test_long_backlog_is_stored_in_few_marks():
    known = follow(*(poll(at=at, committed=at, latest=2 * at + 10, since=0) for at in range(2000)))

    marks = known.backlogs[0]["t/0"].marks
    assert len(marks) <= MAX_MARKS
    assert len(known.waits) <= MAX_POINTS
    # Half of the records are unread, and the marks cover them evenly.
    gaps = [after.at - before.at for before, after in itertools.pairwise(marks)]
    assert max(gaps) < 250
