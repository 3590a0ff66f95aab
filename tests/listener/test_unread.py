"""The age of the first unread record is never overstated beyond the poll resolution."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from support.story import poll

from querypulse.listener.state.sources import MAX_MARKS, follow_source
from querypulse.listener.state.trends import MAX_POINTS, Trends, follow_polls

STEP = 15.0
POLLS_PER_MARK = 60 / MAX_MARKS * 2


class Followed:
    """One source, and the waits that its polls have shown."""

    def __init__(self, *polls):
        self.source, self.trends = None, Trends()
        for answer in polls:
            self.add(answer)

    def add(self, answer):
        before = {} if self.source is None else {0: self.source}
        self.source = follow_source(self.source, answer)
        self.trends = follow_polls(self.trends, before, {0: self.source})

    @property
    def waits(self):
        return self.trends.waits

    @property
    def backlogs(self):
        return self.source.backlogs


@settings(max_examples=50)
@given(
    appended=st.lists(st.integers(0, 20), min_size=2, max_size=60),
    reads=st.lists(st.integers(0, 25), min_size=60, max_size=60),
    written=st.lists(st.floats(-1e6, 1e6), min_size=60, max_size=60),
)
def test_wait_is_overstated_by_less_than_the_distance_of_marks(appended, reads, written):
    """Each poll finds new records, the query reads some of them, and record times are random."""
    unread, end, committed, came = Followed(), 0, 0, []
    for number, (new, read, record_time) in enumerate(zip(appended, reads, written, strict=False)):
        at = number * STEP
        came += [at - STEP + 1] * new
        end += new
        committed = min(end, committed + read)
        since = record_time if committed < end else None
        unread.add(poll(at=at, committed=committed, latest=end, since=since))
        wait = unread.waits[-1]
        if wait.at == at:
            true = at - came[committed] if committed < end else 0.0
            assert 0.0 <= wait.seconds <= true + POLLS_PER_MARK * STEP


def polls(*rows):
    """Polls, each of: when, committed, latest, and the time of the first unread record."""
    return [poll(at=at, committed=committed, latest=latest, since=since) for at, committed, latest, since in rows]  # fmt: skip


def test_wait_counts_from_the_earliest_moment_that_is_proven():
    """Of the first unread record at the last poll, and whether it may have waited longer."""
    cases = [
        ("after an empty backlog, from the first poll that shows the new one",
         polls((0, 10, 10, None), (15, 10, 20, 4), (30, 11, 20, 4)), (15, True)),
        ("behind a backlog, from its own time",
         polls((0, 5, 10, -100), (15, 6, 20, -90), (30, 15, 30, 9)), (21, False)),
        ("in a backlog before the first poll, from that poll",
         polls((100, 5, 10, -5000), (115, 6, 10, -5000)), (15, True)),
    ]  # fmt: skip
    waits = [(what, Followed(*seen).waits[-1]) for what, seen, _ in cases]

    assert [(what, (wait.seconds, wait.is_least)) for what, wait in waits] == [
        (what, wait) for what, _, wait in cases
    ]


def test_only_the_first_poll_after_a_commit_counts():
    unread = Followed(
        *(poll(at=at, committed=5, latest=10 + at, since=0) for at in range(0, 60, 15))
    )

    assert [wait.at for wait in unread.waits] == [0]


def test_fully_read_source_has_no_wait():
    unread = Followed(*polls((0, 5, 10, 0), (15, 10, 10, None)))

    assert (unread.waits[-1].seconds, unread.backlogs) == (0, {})


def test_rewound_query_and_a_recreated_topic_start_over():
    for second in ((15, 3, 10, 0), (15, 5, 7, 0)):
        unread = Followed(*polls((0, 5, 10, 0), second))

        assert unread.waits[-1].seconds == 0
        assert [mark.at for mark in unread.backlogs["t/0"].marks] == [15]


def test_long_backlog_is_stored_in_few_marks():
    unread = Followed(
        *(poll(at=at, committed=at, latest=2 * at + 10, since=0) for at in range(2000))
    )

    marks = unread.backlogs["t/0"].marks
    assert len(marks) <= MAX_MARKS
    assert len(unread.waits) <= MAX_POINTS
    # Half of the records are unread, and the marks cover them evenly.
    gaps = [after.at - before.at for before, after in itertools.pairwise(marks)]
    assert max(gaps) < 250
