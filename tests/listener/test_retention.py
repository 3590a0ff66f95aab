"""The retention edge is tracked poll by poll, and the backlog is measured against it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.story import poll

from querypulse.listener.state.retention import MAX_MOVES, MAX_POINTS, follow_edges

DAY = 86_400.0


def followed(*polls):
    """The only partition of the only source, after the polls."""
    known = {}
    for one in polls:
        known = follow_edges(known, {0: one})
    return known[0].edges.get("t/0")


def moving(*edges, every=10, committed=10_000, latest=20_000):
    return [
        poll(at=number * every, committed=committed, earliest=edge, latest=latest)
        for number, edge in enumerate(edges)
    ]


class Exposed:
    """The exposure of the only partition after the polls, at ``now``."""

    def __init__(self, *polls, now=None):
        known = {}
        for one in polls:
            known = follow_edges(known, {0: one})
        self.now = polls[-1].at if now is None else now
        self.known = known[0].exposures.get("t/0")

    @property
    def used(self):
        return self.known.used(self.now)

    @property
    def left(self):
        return self.known.left_seconds(self.now)


# -- the edge ---------------------------------------------------------------------------------


def test_constant_edge_has_no_moves():
    assert followed(*moving(5, 5, 5)).moves == ()


def test_each_move_is_kept_with_its_distance():
    assert [(m.at, m.earliest, m.leap) for m in followed(*moving(0, 100, 100, 250)).moves] == [
        (10, 100, 100),
        (30, 250, 150),
    ]


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


def test_points_are_kept_while_there_is_a_backlog():
    assert len(followed(*moving(0, 0, 0)).points) == 3
    caught_up = poll(at=30, committed=20_000, latest=20_000)
    assert followed(*moving(0, 0, 0), caught_up).points == ()
    assert [
        p.at for p in followed(caught_up, poll(at=40, committed=20_000, latest=20_001)).points
    ] == [40]


def test_only_the_newest_moves_are_kept():
    assert [move.earliest for move in followed(*moving(*range(50))).moves] == list(range(42, 50))


def test_unknown_edge_keeps_the_last_known_one():
    unknown = poll(at=30, committed=10_000, earliest=None)

    assert followed(*moving(0, 100), unknown) == followed(*moving(0, 100))
    assert followed(poll(at=1, committed=5, earliest=None)) is None


def test_partition_no_longer_read_is_forgotten():
    assert followed(*moving(0, 100), poll(at=30, committed={"t/1": 5}, earliest={"t/1": 0})) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), max_size=80))
def test_history_of_a_partition_is_bounded_and_ordered(steps):
    at, polls = 0, []
    for number, (committed, earliest, latest) in enumerate(steps):
        at += 1
        polls.append(poll(at=number, committed=committed, earliest=earliest, latest=latest))
    known = followed(*polls) if polls else None

    if known is not None:
        assert len(known.points) <= MAX_POINTS
        assert len(known.moves) <= MAX_MOVES
        assert [p.at for p in known.points] == sorted({p.at for p in known.points})
        assert all(move.leap > 0 for move in known.moves)
        assert (known.speed(at) or 0) >= 0


def test_thinning_keeps_the_first_poll_of_a_backlog():
    points = followed(*moving(*[0] * 500)).points

    assert points[0].at == 0
    assert points[-1].at == 4990


# -- the backlog ------------------------------------------------------------------------------


def test_record_age_grows_between_polls():
    polls = [poll(at=at, committed=500, since=0, keeps=7 * DAY) for at in (DAY, 2 * DAY)]

    assert Exposed(*polls).used == pytest.approx(2 / 7)
    assert Exposed(*polls).left == 5 * DAY
    assert Exposed(*polls, now=6 * DAY).left == DAY
    assert Exposed(*polls, now=9 * DAY).used == 1.0
    assert Exposed(*polls, now=9 * DAY).left == 0.0


def test_no_backlog_leaves_the_whole_retention():
    one = Exposed(poll(at=5, committed=1000, keeps=DAY))

    assert (one.used, one.left, one.known.lost) == (0.0, DAY, 0)


def test_unlimited_size_leaves_only_the_time_limit():
    sized = {"since": 19, "keeps": DAY}
    polls = moving(0, 100, 200)
    by_time = poll(at=20, committed=200, earliest=200, latest=1000, **sized)
    by_both = poll(at=20, committed=200, earliest=200, latest=1000, sized=True, **sized)

    assert Exposed(*polls[:2], by_time).known.used_by_offsets is None
    assert Exposed(*polls[:2], by_both).known.used_by_offsets == 1.0
    assert Exposed(*polls[:2], by_both).known.used_by_time(20) == pytest.approx(1 / DAY)
    assert Exposed(*polls[:2], by_both).left == 0.0


def test_used_by_offsets_is_the_backlog_share_of_retained_offsets():
    one = Exposed(*moving(0, 100, 200, committed=1200, latest=2200))

    assert one.known.used_by_offsets == 0.5
    assert one.left == pytest.approx(100)


def test_time_left_decreases_between_moves_of_the_edge():
    polls = moving(0, 100, 200, committed=1200, latest=2200)

    assert Exposed(*polls, now=25).left == pytest.approx(95)


@pytest.mark.parametrize(
    "polls",
    [
        moving(0, 0, 0),
        moving(0, 100, 200, committed=250, latest=300),
        [*moving(0, 100, 200, committed=1200, latest=2200),
         poll(at=30, committed=1200, earliest=None, latest=None)],
        [poll(at=5, committed=900, earliest=0, latest=10)],
    ],
    ids=["the edge has not moved", "one move covers all", "no answer", "a recreated topic"],
)  # fmt: skip
def test_exposure_is_unknown(polls):
    assert Exposed(*polls).known is None


def test_lost_records_are_counted():
    one = Exposed(poll(at=5, committed=100, earliest=130))

    assert (one.known.lost, one.used, one.left) == (30, 1.0, 0.0)


def test_unknown_record_time_falls_back_to_offsets():
    one = Exposed(*moving(0, 100, 200), poll(at=30, committed=600, earliest=200, keeps=DAY))

    assert (one.used, one.known.keeps_seconds) == (0.5, None)


def test_no_backlog_has_no_time_left():
    one = Exposed(*moving(0, 100, 200), poll(at=30, committed=900, earliest=300, latest=900))

    assert (one.used, one.left) == (0.0, None)


def test_record_times_are_unix_times():
    seen = replace(
        poll(at=5, committed=100, since=1_700_000_000.0, keeps=DAY), wall=1_700_000_600.0
    )

    assert Exposed(seen).left == DAY - 600


def test_record_in_the_future_has_no_age():
    one = Exposed(poll(at=5, committed=100, since=500, keeps=DAY))

    assert (one.used, one.left) == (0.0, DAY)
