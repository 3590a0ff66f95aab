"""What the polls of a source show: the retention edge, exposed backlogs, and how long data waits."""

from __future__ import annotations

import functools
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.story import poll

from querypulse.listener.source_polls import SourcePoll
from querypulse.listener.state.sources import (
    MAX_EDGE_POINTS,
    MAX_MARKS,
    MAX_MOVES,
    Shortfall,
    follow_source,
)
from querypulse.listener.state.trends import MAX_POINTS, POLLED, Trends, follow_polls

DAY = 86_400.0


def source_after(polls):
    return functools.reduce(follow_source, polls, None)


def followed(*polls):
    """The only partition of the only source, after the polls."""
    return source_after(polls).edges.get("t/0")


def moving(*edges, every=10, committed=10_000, latest=20_000):
    return [
        poll(at=number * every, committed=committed, earliest=edge, latest=latest)
        for number, edge in enumerate(edges)
    ]


def test_each_move_is_kept_with_its_distance():
    assert followed(*moving(5, 5, 5)).moves == ()
    moves = followed(*moving(0, 100, 100, 250)).moves
    assert [(m.at, m.earliest, m.leap) for m in moves] == [(10, 100, 100), (30, 250, 150)]
    assert [m.earliest for m in followed(*moving(*range(50))).moves] == list(range(42, 50))


def test_edge_speed_follows_its_moves_and_drops_when_one_is_overdue():
    assert followed(*moving(0, 100)).speed(10) is None
    assert followed(*moving(0, 100, 200)).speed(20) == pytest.approx(10)
    edge = followed(*moving(0, 100, 200, 300))
    assert [edge.speed(now) for now in (30, 39, 60, 4020)] == pytest.approx([10, 10, 5, 0.05])


@pytest.mark.parametrize(
    "last",
    [
        poll(at=30, committed=10_000, earliest=5, latest=20_000),
        replace(poll(at=30, committed=5, earliest=300), description="another source"),
        poll(at=30, committed=9_000, latest=20_000),
    ],
    ids=["the edge goes back", "another source has its index", "a restored checkpoint"],
)
def test_history_starts_over(last):
    edge = followed(*moving(0, 100, 200), last)

    assert (edge.moves, [point.at for point in edge.points]) == ((), [30])


def test_repeated_poll_changes_nothing():
    (first, second) = moving(0, 100)

    assert followed(first, second, second, first) == followed(first, second)


def test_shortfall_counts_each_poll_once_until_it_ends():
    polls = [
        SourcePoll("s", {"": 5}, {}, {"": latest}, at=at, wall=at)
        for at, latest in [(1, 2), (1, 2), (9, 3), (10, 5)]
    ]
    seen = [source_after(polls[:count]).shortfalls for count in (1, 2, 3, 4)]

    first, second = Shortfall(1, 1, 5, 2), Shortfall(1, 2, 5, 3)
    assert seen == [{"": first}, {"": first}, {"": second}, {}]


def test_points_are_kept_while_there_is_a_backlog():
    caught_up = poll(at=30, committed=20_000, latest=20_000)
    again = poll(at=40, committed=20_000, latest=20_001)
    kept = {
        "a backlog": (moving(0, 0, 0), [0, 10, 20]),
        "caught up": ([*moving(0, 0, 0), caught_up], []),
        "a new backlog": ([*moving(0, 0, 0), caught_up, again], [40]),
    }
    seen = {
        what: [point.at for point in followed(*polls).points] for what, (polls, _) in kept.items()
    }

    assert seen == {what: times for what, (_, times) in kept.items()}
    long = followed(*moving(*[0] * 500)).points
    assert (long[0].at, long[-1].at) == (0, 4990)


def test_unknown_edge_keeps_the_last_known_one_while_the_partition_is_read():
    unknown = poll(at=30, committed=10_000, earliest=None)
    other = poll(at=30, committed={"t/1": 5}, earliest={"t/1": 0})

    assert followed(*moving(0, 100), unknown) == followed(*moving(0, 100))
    assert followed(poll(at=1, committed=5, earliest=None)) is None
    assert followed(*moving(0, 100), other) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), max_size=80))
def test_history_of_a_partition_is_bounded_and_ordered(steps):
    at, polls = 0, []
    for number, (committed, earliest, latest) in enumerate(steps):
        at += 1
        polls.append(poll(at=number, committed=committed, earliest=earliest, latest=latest))
    edge = followed(*polls) if polls else None

    if edge is not None:
        assert len(edge.points) <= MAX_EDGE_POINTS
        assert len(edge.moves) <= MAX_MOVES
        assert [point.at for point in edge.points] == sorted({point.at for point in edge.points})
        assert all(move.leap > 0 for move in edge.moves)
        assert (edge.speed(at) or 0) >= 0


def test_exposure_is_measured_by_time_or_by_offsets():
    """The used share and the seconds left, at ``now`` after the polls; None where unknown."""
    old = [poll(at=at, committed=500, since=0, keeps=7 * DAY) for at in (DAY, 2 * DAY)]
    moved, half = moving(0, 100), moving(0, 100, 200, committed=1200, latest=2200)
    seen = {"at": 20, "committed": 200, "earliest": 200, "latest": 1000, "since": 19, "keeps": DAY}
    unix = poll(at=5, committed=100, since=1_700_000_000.0, keeps=DAY)
    rows = [
        ("the record's age at the poll", old, 2 * DAY, (2 / 7, 5 * DAY)),
        ("its age since", old, 6 * DAY, (6 / 7, DAY)),
        ("older than is kept", old, 9 * DAY, (1.0, 0.0)),
        (
            "no backlog leaves the whole retention",
            [poll(at=5, committed=1000, keeps=DAY)],
            5,
            (0.0, DAY),
        ),
        ("the size is unlimited", [*moved, poll(**seen)], 20, (1 / DAY, DAY - 1)),
        ("time and size are limited", [*moved, poll(**seen, sized=True)], 20, (1.0, 0.0)),
        ("the backlog's share of what is retained", half, 20, (0.5, 100)),
        ("between two moves of the edge", half, 25, (0.5, 95)),
        ("the edge has not moved", moving(0, 0, 0), 20, None),
        ("one move covers all", moving(0, 100, 200, committed=250, latest=300), 20, None),
        ("no answer", [*half, poll(at=30, committed=1200, earliest=None, latest=None)], 30, None),
        ("a recreated topic", [poll(at=5, committed=900, earliest=0, latest=10)], 5, None),
        ("records are lost", [poll(at=5, committed=100, earliest=130)], 5, (1.0, 0.0)),
        (
            "the record's time is unknown",
            [*moving(0, 100, 200), poll(at=30, committed=600, earliest=200, keeps=DAY)],
            30,
            (0.5, 30),
        ),
        (
            "no backlog, and the time is not limited",
            [*moving(0, 100, 200), poll(at=30, committed=900, earliest=300, latest=900)],
            30,
            (0.0, None),
        ),
        (
            "record times are Unix times",
            [replace(unix, wall=1_700_000_600.0)],
            5,
            (600 / DAY, DAY - 600),
        ),
        (
            "the record is from the future",
            [poll(at=5, committed=100, since=500, keeps=DAY)],
            5,
            (0.0, DAY),
        ),
    ]

    for what, polls, now, expected in rows:
        exposure = source_after(polls).exposures.get("t/0")
        measured = exposure and (exposure.used(now), exposure.left_seconds(now))
        assert (exposure is not None and exposure.lost) == (30 if what == "records are lost" else 0)
        assert measured == (expected and pytest.approx(expected)), what


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
    return [
        poll(at=at, committed=committed, latest=latest, since=since)
        for at, committed, latest, since in rows
    ]


WAITS = {
    "after an empty backlog, from the first poll that shows the new one": (
        polls((0, 10, 10, None), (15, 10, 20, 4), (30, 11, 20, 4)),
        [0, 30],
        (15, True),
    ),
    "behind a backlog, from its own time": (
        polls((0, 5, 10, -100), (15, 6, 20, -90), (30, 15, 30, 9)),
        [0, 15, 30],
        (21, False),
    ),
    "in a backlog before the first poll, from that poll": (
        polls((100, 5, 10, -5000), (115, 6, 10, -5000)),
        [100, 115],
        (15, True),
    ),
    "none where all is read": (polls((0, 5, 10, 0), (15, 10, 10, None)), [0, 15], (0, False)),
    "only at the first poll after a commit": (
        polls((0, 5, 10, 0), (15, 5, 25, 0), (30, 5, 40, 0)),
        [0],
        (0, True),
    ),
}


@pytest.mark.parametrize(("seen", "times", "last"), WAITS.values(), ids=WAITS)
def test_wait_counts_from_the_earliest_moment_that_is_proven(seen, times, last):
    """Of the first unread record at the last poll, and whether it may have waited longer."""
    waits = Followed(*seen).waits

    assert [wait.at for wait in waits] == times
    assert (waits[-1].seconds, waits[-1].is_least) == last


def test_fully_read_source_has_no_backlog():
    assert Followed(*polls((0, 5, 10, 0), (15, 10, 10, None))).backlogs == {}


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


@pytest.mark.parametrize(("latest", "noise"), [(30, 20.0), (4, 0.0)], ids=["grown", "recreated"])
def test_noise_of_a_lag_is_what_arrived_since_the_last_poll_and_never_negative(latest, noise):
    """A recreated topic ends earlier, and would else hide that the lag grows."""
    first = follow_source(None, SourcePoll("K", {"t/0": 5}, {}, {"t/0": 10}, at=0.0, wall=0.0))
    answer = SourcePoll("K", {"t/0": 6}, {}, {"t/0": latest}, at=15.0, wall=15.0)
    trends = follow_polls(Trends(), {0: first}, {0: follow_source(first, answer)})

    assert trends.rises[POLLED][-1].noise == noise
