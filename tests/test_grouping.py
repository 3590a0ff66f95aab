"""What begins together is one incident; what begins later has one of its own."""

from __future__ import annotations

import pytest
from support.lifecycle_harness import WALL, LifecycleHarness
from support.lifecycle_table import all_of

EIGHT = "abcdefgh"


def keys(harness):
    return [incident.key.removeprefix("querypulse/etl/") for incident in harness.incidents]


def members(harness):
    return ["".join(one.labels["query"] for one in inc.alerts) for inc in harness.incidents]


def failing(at, queries, name="StreamingQueryFailed"):
    return all_of(at, name, queries)


ALONE = [
    ("two at once", failing(10, "ab"), ["a", "b"]),
    ("three within more than the window", [*failing(10, "a"), *failing(15, "b"), *failing(21, "c")], ["a", "b", "c"]),
    ("two and two, a minute apart", [*failing(10, "ab"), *failing(70, "cd")], ["a", "b", "c", "d"]),
    ("three names of one query each", [*failing(10, "a"), *failing(10, "b", "StreamingQueryStopped"), *failing(10, "c", "StreamingQueryStalled")], ["a", "b", "c"]),
    ("one query that is sick of two things", failing(10, "a", "StreamingQueryFailed+StreamingQueryFlapping"), ["a", "a"]),
    ("three ills of the whole driver", failing(10, "*", "QuerypulseMonitoringDegraded+QuerypulseEventsMissing+StreamingQueryStopped"), ["*"]),
    ("the driver and two queries", [*failing(10, "ab", "StreamingBatchSlow"), *failing(10, "*", "StreamingBatchSlow")], ["*", "a", "b"]),
    ("five, one after the other", [entry for n, query in enumerate("abcde") for entry in failing(10 + n, query)], ["a", "b", "c", "d", "e"]),
]  # fmt: skip
TOGETHER = [
    ("eight at once", failing(10, EIGHT), [EIGHT]),
    ("three at once", failing(10, "abc"), ["abc"]),
    ("one, and two more in the window", [*failing(10, "a"), *failing(20, "bc")], ["a", "bc"]),
    ("two, and one more in the window", [*failing(10, "ab"), *failing(20, "c")], ["a", "b", "c"]),
    ("a fourth after a group", [*failing(10, "abc"), *failing(15, "d")], ["abc", "d"]),
    ("three, and three more in the window: one group of a name at a time", [*failing(10, "abc"), *failing(20, "def")], ["abc", "d", "e", "f"]),
    ("three, and three more after the window", [*failing(10, "abc"), *failing(21, "def")], ["abc", "d", "e", "f"]),
    ("three of each of two names", [*failing(10, "abc"), *failing(10, "def", "StreamingQueryStopped")], ["abc", "def"]),
    ("three stalls are told at the second look", failing(10, "abc", "StreamingQueryStalled"), ["abc"]),
]  # fmt: skip


def named(rows):
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


@pytest.mark.parametrize(("story", "incidents"), named(ALONE))
def test_what_begins_alone_is_reported_alone(story, incidents):
    harness = LifecycleHarness().play(story, 100)

    assert members(harness) == incidents
    assert all(incident.revision == 0 for incident in harness.incidents)


@pytest.mark.parametrize(("story", "incidents"), named(TOGETHER))
def test_what_begins_together_is_one(story, incidents):
    assert members(LifecycleHarness().play(story, 100)) == incidents


def test_how_many_and_how_soon_are_settings():
    few = LifecycleHarness(group_min_queries=2, group_window_seconds=60.0)

    assert members(few.play([*failing(10, "a"), *failing(69, "bc")], 100)) == ["a", "bc"]


def test_a_group_has_a_key_of_its_own_so_that_those_of_its_members_stay_free():
    harness = LifecycleHarness().play([*failing(10, "cab"), *failing(18, "d")], 90)

    assert keys(harness) == ["*/StreamingQueryFailed", "d/StreamingQueryFailed"]
    assert [alert.key for alert in harness.incidents[0].alerts] == [
        f"querypulse/etl/{query}/StreamingQueryFailed" for query in "cab"
    ]


def test_a_group_of_what_has_become_critical_has_a_key_of_its_own():
    harness = LifecycleHarness().play(failing(10, "abc", "StreamingBatchSlow"), 20)
    harness.warnings = frozenset()
    harness.play([], 21)

    assert keys(harness) == ["*/StreamingBatchSlow", "*/StreamingBatchSlow/critical"]
    assert [one.ends_at is None for one in harness.incidents] == [False, True]
    assert all(
        one.is_escalated == key.endswith("critical")
        for one, key in zip(harness.incidents, keys(harness), strict=True)
    )


def test_the_whole_driver_that_falls_failing_as_a_group_did_has_a_key_of_its_own():
    harness = LifecycleHarness().play(
        [*failing(10, "abc", "StreamingQueryStalled"), *failing(60, "*", "StreamingQueryStalled")],
        90,
    )

    assert keys(harness) == ["*/StreamingQueryStalled", "*/StreamingQueryStalled/driver"]


def test_while_the_whole_driver_has_the_key_of_a_group_each_is_reported_by_itself():
    story = [
        *failing(10, "*", "StreamingQueryStalled"),
        *failing(20, "*", "healthy"),
        *failing(20, "abc", "StreamingQueryStalled"),
    ]
    harness = LifecycleHarness().play(story, 60)

    assert keys(harness) == [
        "a/StreamingQueryStalled",
        "b/StreamingQueryStalled",
        "c/StreamingQueryStalled",
    ]


def test_one_of_a_group_of_warnings_that_becomes_critical_is_reported_by_itself():
    harness = LifecycleHarness().play(
        [*failing(10, "abc", "StreamingDataLossRisk"), (50, "b", "StreamingDataLossRisk!")], 60
    )

    assert harness.reported == ["11 + StreamingDataLossRisk a,b,c", "50 + StreamingDataLossRisk b"]
    assert keys(harness) == ["*/StreamingDataLossRisk", "b/StreamingDataLossRisk/critical"]


def test_after_a_group_is_over_its_key_is_free_again():
    story = [*failing(10, "abc"), *all_of(20, "idle", "abc"), *failing(90, "bcd")]
    harness = LifecycleHarness().play(story, 100)

    assert harness.reported == [
        "10 + StreamingQueryFailed a,b,c",
        "50 - StreamingQueryFailed a,b,c",
        "90 + StreamingQueryFailed b,c,d",
    ]
    assert keys(harness) == ["*/StreamingQueryFailed"]


def test_who_is_well_stays_listed_with_an_end():
    harness = LifecycleHarness().play([*failing(10, "abc"), (20, "b", "idle")], 100)
    (incident,) = harness.incidents

    assert [alert.ends_at for alert in incident.alerts] == [None, WALL + 50, None]
    assert (incident.ends_at, incident.revision) == (None, 0)


def test_who_fails_again_after_it_recovered_has_an_incident_of_its_own():
    """And leaves the group: two messages that say different things of one query help nobody."""
    harness = LifecycleHarness().play(
        [*failing(10, "abc"), (20, "b", "idle"), (90, "b", "StreamingQueryFailed")], 100
    )
    group, own = harness.incidents

    assert keys(harness) == ["*/StreamingQueryFailed", "b/StreamingQueryFailed"]
    assert members(harness) == ["ac", "b"]
    assert (own.starts_at, own.ends_at) == (WALL + 90, None)
    assert (group.revision, own.revision) == (0, 0)


def test_who_fails_again_and_recovers_again_ends_its_own_incident_only():
    cycle = [(20, "b", "idle"), (90, "b", "StreamingQueryFailed"), (100, "b", "idle")]
    harness = LifecycleHarness().play([*failing(10, "abc"), *cycle], 140)

    assert harness.reported == [
        "10 + StreamingQueryFailed a,b,c",
        "90 + StreamingQueryFailed b",
        "130 - StreamingQueryFailed b",
    ]
    assert members(harness) == ["ac"]


def test_it_is_over_when_the_last_is_well():
    story = [*failing(10, "abc"), (20, "a", "idle"), (40, "b", "idle"), (60, "c", "idle")]
    harness = LifecycleHarness().play(story, 90)
    (incident,) = harness.incidents

    assert incident.ends_at == WALL + 90
    assert [one.ends_at for one in incident.alerts] == [WALL + 50, WALL + 70, WALL + 90]
    assert harness.tick() == ()


def test_one_that_fails_in_the_moment_the_last_recovers_is_reported_by_itself():
    harness = LifecycleHarness().play(
        [*failing(10, "abc"), *all_of(20, "idle", "ab"), (40, "c", "idle")], 69
    )
    harness.play([(70, "a", "StreamingQueryFailed")], 70)

    assert harness.reported == [
        "10 + StreamingQueryFailed a,b,c",
        "70 + StreamingQueryFailed a",
        "70 - StreamingQueryFailed b,c",
    ]


def test_a_member_that_dies_leaves_the_stalled_and_is_reported_as_dead():
    harness = LifecycleHarness().play(
        [*failing(10, "abc", "StreamingQueryStalled"), *failing(30, "b")], 60
    )
    stalled, dead = harness.incidents

    assert [one.ends_at for one in stalled.alerts] == [None, WALL + 30, None]
    assert stalled.alerts[1].annotations["superseded_by"] == "StreamingQueryFailed"
    assert (keys(harness), dead.ends_at) == (
        ["*/StreamingQueryStalled", "b/StreamingQueryFailed"],
        None,
    )


def test_a_group_that_all_die_is_one_page_of_each_kind():
    harness = LifecycleHarness().play(
        [*failing(10, EIGHT, "StreamingQueryStalled"), *failing(30, EIGHT)], 60
    )

    assert harness.reported == [
        "11 + StreamingQueryStalled a,b,c,d,e,f,g,h",
        "30 + StreamingQueryFailed a,b,c,d,e,f,g,h",
        "30 - StreamingQueryStalled a,b,c,d,e,f,g,h",
    ]


def test_a_reminder_speaks_of_the_whole_while_any_is_failing():
    harness = LifecycleHarness(repeat_interval_seconds=100.0)
    harness.play([*failing(10, "abc"), *all_of(20, "idle", "ab")], 250)

    assert harness.reported[1:] == [
        "110 ^ StreamingQueryFailed a,b,c",
        "210 ^ StreamingQueryFailed a,b,c",
    ]
