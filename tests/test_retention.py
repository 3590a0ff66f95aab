"""A retention edge is followed look by look, and what waits is measured against it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.story import poll

from querypulse.listener.sources.edge import MAX_MOVES, MAX_POINTS
from querypulse.listener.sources.retention import follow_edges

DAY = 86_400.0


def followed(*polls):
    """The only partition of the only source, after the looks."""
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
    """What can be said of the only partition after the looks, at ``now``."""

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


def test_an_edge_that_stuck_has_not_moved():
    assert followed(*moving(5, 5, 5)).moves == ()


def test_each_move_is_kept_with_its_leap():
    assert [(m.at, m.earliest, m.leap) for m in followed(*moving(0, 100, 100, 250)).moves] == [
        (10, 100, 100),
        (30, 250, 150),
    ]


@pytest.mark.parametrize(
    ("edges", "now", "speed"),
    [
        ((0, 100), 10, None),
        ((0, 100, 200), 20, 10),
        ((0, 100, 200, 300), 30, 10),
        ((0, 100, 200, 300), 39, 10),
        ((0, 100, 200, 300), 60, 5),
        ((0, 100, 200, 300), 4020, 0.05),
    ],
)
def test_an_edge_is_as_fast_as_its_leaps_and_slower_when_one_is_overdue(edges, now, speed):
    assert followed(*moving(*edges)).speed(now) == pytest.approx(speed)


def test_an_edge_that_goes_back_is_another_topic():
    assert followed(*moving(0, 100, 200, 5)).moves == ()
    assert len(followed(*moving(0, 100, 200, 5)).points) == 1


def test_another_source_under_the_same_index_begins_again():
    other = replace(poll(at=30, committed=5, earliest=300), description="o")

    assert followed(*moving(0, 100, 200), other).moves == ()


def test_a_poll_that_was_seen_says_nothing_more():
    (first, second) = moving(0, 100)

    assert followed(first, second, second, first) == followed(first, second)


def test_points_are_kept_while_something_waits():
    assert len(followed(*moving(0, 0, 0)).points) == 3
    caught_up = poll(at=30, committed=20_000, latest=20_000)
    assert followed(*moving(0, 0, 0), caught_up).points == ()
    assert [
        p.at for p in followed(caught_up, poll(at=40, committed=20_000, latest=20_001)).points
    ] == [40]


def test_a_checkpoint_copied_back_has_no_past():
    back = poll(at=30, committed=9_000, latest=20_000)

    assert [point.at for point in followed(*moving(0, 0, 0), back).points] == [30]


def test_only_the_last_moves_are_kept():
    assert [move.earliest for move in followed(*moving(*range(50))).moves] == list(range(42, 50))


def test_what_was_not_found_out_leaves_what_was_known():
    unknown = poll(at=30, committed=10_000, earliest=None)

    assert followed(*moving(0, 100), unknown) == followed(*moving(0, 100))
    assert followed(poll(at=1, committed=5, earliest=None)) is None


def test_a_partition_that_the_query_does_not_read_any_more_is_forgotten():
    assert followed(*moving(0, 100), poll(at=30, committed={"t/1": 5}, earliest={"t/1": 0})) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), max_size=80))
def test_what_is_kept_of_a_partition_is_bounded_and_in_order(steps):
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


def test_the_first_poll_at_what_waits_is_never_thinned_away():
    points = followed(*moving(*[0] * 500)).points

    assert points[0].at == 0
    assert points[-1].at == 4990


# -- what waits -------------------------------------------------------------------------------


def test_a_record_grows_old_and_goes_on_after_the_poll():
    polls = [poll(at=at, committed=500, since=0, keeps=7 * DAY) for at in (DAY, 2 * DAY)]

    assert Exposed(*polls).used == pytest.approx(2 / 7)
    assert Exposed(*polls).left == 5 * DAY
    assert Exposed(*polls, now=6 * DAY).left == DAY
    assert Exposed(*polls, now=9 * DAY).used == 1.0
    assert Exposed(*polls, now=9 * DAY).left == 0.0


def test_where_nothing_waits_all_of_the_retention_is_left():
    one = Exposed(poll(at=5, committed=1000, keeps=DAY))

    assert (one.used, one.left, one.known.lost) == (0.0, DAY, 0)


def test_time_alone_counts_where_size_has_no_bound():
    sized = {"since": 19, "keeps": DAY}
    polls = moving(0, 100, 200)
    by_time = poll(at=20, committed=200, earliest=200, latest=1000, **sized)
    by_both = poll(at=20, committed=200, earliest=200, latest=1000, sized=True, **sized)

    assert Exposed(*polls[:2], by_time).known.used_by_offsets is None
    assert Exposed(*polls[:2], by_both).known.used_by_offsets == 1.0
    assert Exposed(*polls[:2], by_both).known.used_by_time(20) == pytest.approx(1 / DAY)
    assert Exposed(*polls[:2], by_both).left == 0.0


def test_by_offsets_it_is_what_waits_of_what_is_kept():
    one = Exposed(*moving(0, 100, 200, committed=1200, latest=2200))

    assert one.known.used_by_offsets == 0.5
    assert one.left == pytest.approx(100)


def test_the_time_left_runs_down_between_the_leaps_of_the_edge():
    polls = moving(0, 100, 200, committed=1200, latest=2200)

    assert Exposed(*polls, now=25).left == pytest.approx(95)


def test_nothing_is_known_by_offsets_before_the_edge_has_moved():
    assert Exposed(*moving(0, 0, 0)).known is None


def test_nothing_is_known_by_offsets_where_all_that_is_kept_goes_at_once():
    assert Exposed(*moving(0, 100, 200, committed=250, latest=300)).known is None


def test_what_the_edge_has_passed_is_counted():
    one = Exposed(poll(at=5, committed=100, earliest=130))

    assert (one.known.lost, one.used, one.left) == (30, 1.0, 0.0)


def test_where_the_time_of_a_record_is_not_known_offsets_report():
    one = Exposed(*moving(0, 100, 200), poll(at=30, committed=600, earliest=200, keeps=DAY))

    assert (one.used, one.known.keeps_seconds) == (0.5, None)


def test_where_nothing_waits_no_edge_comes_near():
    one = Exposed(*moving(0, 100, 200), poll(at=30, committed=900, earliest=300, latest=900))

    assert (one.used, one.left) == (0.0, None)


def test_the_times_of_records_are_unix_times():
    seen = replace(
        poll(at=5, committed=100, since=1_700_000_000.0, keeps=DAY), wall=1_700_000_600.0
    )

    assert Exposed(seen).left == DAY - 600


def test_a_record_of_the_future_is_not_old():
    one = Exposed(poll(at=5, committed=100, since=500, keeps=DAY))

    assert (one.used, one.left) == (0.0, DAY)


def test_of_a_partition_that_did_not_answer_nothing_is_said():
    polls = moving(0, 100, 200, committed=1200, latest=2200)

    assert Exposed(*polls, poll(at=30, committed=1200, earliest=None, latest=None)).known is None


def test_a_topic_made_again_has_lost_nothing():
    assert Exposed(poll(at=5, committed=900, earliest=0, latest=10)).known is None
