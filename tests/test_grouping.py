"""What begins together is one incident, and stays one until all of it is over."""

from __future__ import annotations

import pytest
from support.lifecycle_table import all_of
from support.ward import WALL, Ward

EIGHT = "abcdefgh"


def keys(ward):
    return [incident.key.removeprefix("querypulse/etl/") for incident in ward.incidents]


def members(ward):
    return ["".join(one.labels["query"] for one in inc.alerts) for inc in ward.incidents]


def sick(at, queries, name="QueryFailed"):
    return all_of(at, name, queries)


ALONE = [
    ("two at once", sick(10, "ab"), ["a", "b"]),
    ("three within more than the window", [*sick(10, "a"), *sick(15, "b"), *sick(21, "c")], ["a", "b", "c"]),
    ("two and two, a minute apart", [*sick(10, "ab"), *sick(70, "cd")], ["a", "b", "c", "d"]),
    ("three names of one query each", [*sick(10, "a"), *sick(10, "b", "QueryGone"), *sick(10, "c", "CommitStalled")], ["a", "b", "c"]),
    ("one query that is sick of two things", sick(10, "a", "QueryFailed+QueryFlapping"), ["a", "a"]),
    ("three ills of the whole driver", sick(10, "*", "MonitorBlind+ListenerDeaf+QueryGone"), ["*"]),
    ("the driver and two queries", [*sick(10, "ab", "BatchSlow"), *sick(10, "*", "BatchSlow")], ["a", "b", "*"]),
]  # fmt: skip
TOGETHER = [
    ("eight at once", sick(10, EIGHT), [EIGHT]),
    ("three at once", sick(10, "abc"), ["abc"]),
    ("one, and two more in the window", [*sick(10, "a"), *sick(20, "bc")], ["a", "bc"]),
    ("two, and one more in the window", [*sick(10, "ab"), *sick(20, "c")], ["a", "b", "c"]),
    ("a fourth joins the third", [*sick(10, "ab"), *sick(15, "c"), *sick(20, "d")], ["a", "b", "cd"]),
    ("three, and three more in the window", [*sick(10, "abc"), *sick(20, "def")], ["abcdef"]),
    ("three, and one more, and two more within the window of that", [*sick(10, "abc"), *sick(18, "d"), *sick(26, "ef")], ["abcdef"]),
    ("three, and three more after it", [*sick(10, "abc"), *sick(21, "def")], ["abc", "def"]),
    ("three stalls are told at the second look", sick(10, "abc", "CommitStalled"), ["abc"]),
]  # fmt: skip


def named(rows):
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


@pytest.mark.parametrize(("story", "incidents"), named(ALONE))
def test_what_begins_alone_is_told_alone(story, incidents):
    ward = Ward().play(story, 100)

    assert members(ward) == incidents
    assert all(incident.revision == 0 for incident in ward.incidents)


@pytest.mark.parametrize(("story", "incidents"), named(TOGETHER))
def test_what_begins_together_is_one(story, incidents):
    assert members(Ward().play(story, 100)) == incidents


def test_how_many_and_how_soon_are_settings():
    few = Ward(group_min_queries=2, group_window_seconds=60.0)

    assert members(few.play([*sick(10, "ab"), *sick(69, "c")], 100)) == ["abc"]


def test_the_key_is_that_of_the_first_and_stays():
    ward = Ward().play(sick(10, "cab"), 15)
    assert keys(ward) == ["c/QueryFailed"]
    ward.play([(18, "d", "QueryFailed"), (20, "c", "idle")], 90)

    assert keys(ward) == ["c/QueryFailed"]
    assert members(ward) == ["cabd"]


def test_who_is_well_stays_listed_with_an_end():
    ward = Ward().play([*sick(10, "abc"), (20, "b", "idle")], 100)
    (incident,) = ward.incidents

    assert [alert.ends_at for alert in incident.alerts] == [None, WALL + 50, None]
    assert (incident.ends_at, incident.revision) == (None, 0)


def test_who_falls_sick_again_rejoins_with_its_first_beginning():
    ward = Ward().play([*sick(10, "abc"), (20, "b", "idle"), (90, "b", "QueryFailed")], 100)
    (incident,) = ward.incidents

    assert [(one.starts_at, one.ends_at) for one in incident.alerts] == [(WALL + 10, None)] * 3
    assert incident.revision == 1


def test_each_that_joins_is_told_once_for_all_that_join_with_it():
    ward = Ward().play([*sick(10, "abc"), *sick(12, "de"), *sick(14, "f")], 60)

    assert ward.incidents[0].revision == 2


def test_it_is_over_when_the_last_is_well():
    story = [*sick(10, "abc"), (20, "a", "idle"), (40, "b", "idle"), (60, "c", "idle")]
    ward = Ward().play(story, 90)
    (incident,) = ward.incidents

    assert incident.ends_at == WALL + 90
    assert [one.ends_at for one in incident.alerts] == [WALL + 50, WALL + 70, WALL + 90]
    assert ward.tick() == ()


def test_one_that_falls_sick_in_the_moment_the_last_gets_well_keeps_it_open():
    ward = Ward().play([*sick(10, "abc"), *all_of(20, "idle", "ab"), (40, "c", "idle")], 69)
    ward.play([(70, "a", "QueryFailed")], 70)

    assert ward.told == ["10 + QueryFailed a,b,c", "70 ^ QueryFailed a,b,c"]


def test_a_member_that_dies_leaves_the_stalled_and_is_told_as_dead():
    ward = Ward().play([*sick(10, "abc", "CommitStalled"), *sick(30, "b")], 60)
    stalled, dead = ward.incidents

    assert [one.ends_at for one in stalled.alerts] == [None, WALL + 30, None]
    assert stalled.alerts[1].annotations["superseded_by"] == "QueryFailed"
    assert (keys(ward), dead.ends_at) == (["a/CommitStalled", "b/QueryFailed"], None)


def test_a_group_that_all_die_is_one_page_of_each_kind():
    ward = Ward().play([*sick(10, EIGHT, "CommitStalled"), *sick(30, EIGHT)], 60)

    assert ward.told == [
        "11 + CommitStalled a,b,c,d,e,f,g,h",
        "30 + QueryFailed a,b,c,d,e,f,g,h",
        "30 - CommitStalled a,b,c,d,e,f,g,h",
    ]


def test_a_reminder_speaks_of_the_whole_while_any_is_sick():
    ward = Ward(repeat_interval_seconds=100.0)
    ward.play([*sick(10, "abc"), *all_of(20, "idle", "ab")], 250)

    assert ward.told[1:] == ["110 ^ QueryFailed a,b,c", "210 ^ QueryFailed a,b,c"]
