"""Alerts that start together form one incident; one that starts later gets its own."""

from __future__ import annotations

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
    ("three alert names with one query each", [*failing(10, "a"), *failing(10, "b", "StreamingQueryStopped"), *failing(10, "c", "StreamingQueryStalled")], ["a", "b", "c"]),
    ("one query with two alerts", failing(10, "a", "StreamingQueryFailed+StreamingQueryFlapping"), ["a", "a"]),
    ("three alerts of the whole driver", failing(10, "*", "QuerypulseMonitoringDegraded+QuerypulseEventsMissing+StreamingQueryStopped"), ["*"]),
    ("the driver and two queries", [*failing(10, "ab", "StreamingBatchSlow"), *failing(10, "*", "StreamingBatchSlow")], ["*", "a", "b"]),
    ("five in succession", [entry for n, query in enumerate("abcde") for entry in failing(10 + n, query)], ["a", "b", "c", "d", "e"]),
]  # fmt: skip
TOGETHER = [
    ("eight at once", failing(10, EIGHT), [EIGHT]),
    ("three at once", failing(10, "abc"), ["abc"]),
    ("one, then two more within the window", [*failing(10, "a"), *failing(20, "bc")], ["a", "bc"]),
    ("two, then one more within the window", [*failing(10, "ab"), *failing(20, "c")], ["a", "b", "c"]),
    ("a fourth after a group", [*failing(10, "abc"), *failing(15, "d")], ["abc", "d"]),
    ("three, then three more within the window: one open group per alert name", [*failing(10, "abc"), *failing(20, "def")], ["abc", "d", "e", "f"]),
    ("three, then three more after the window", [*failing(10, "abc"), *failing(21, "def")], ["abc", "d", "e", "f"]),
    ("three queries for each of two alert names", [*failing(10, "abc"), *failing(10, "def", "StreamingQueryStopped")], ["abc", "def"]),
    ("three stalls are reported at the second evaluation", failing(10, "abc", "StreamingQueryStalled"), ["abc"]),
]  # fmt: skip


def test_alert_that_starts_alone_is_reported_alone():
    failures = {
        what: harness.incidents
        for what, story, incidents in ALONE
        for harness in [LifecycleHarness().play(story, 100)]
        if members(harness) != incidents or any(one.revision for one in harness.incidents)
    }

    assert failures == {}


def test_alerts_that_start_together_are_grouped():
    failures = {
        what: found
        for what, story, incidents in TOGETHER
        if (found := members(LifecycleHarness().play(story, 100))) != incidents
    }

    assert failures == {}


def test_group_size_and_window_are_configurable():
    few = LifecycleHarness(group_min_queries=2, group_window_seconds=60.0)

    assert members(few.play([*failing(10, "a"), *failing(69, "bc")], 100)) == ["a", "bc"]


def test_group_key_leaves_the_members_keys_free():
    harness = LifecycleHarness().play([*failing(10, "cab"), *failing(18, "d")], 90)

    assert keys(harness) == ["*/StreamingQueryFailed", "d/StreamingQueryFailed"]
    assert [alert.key for alert in harness.incidents[0].alerts] == [
        f"querypulse/etl/{query}/StreamingQueryFailed" for query in "cab"
    ]


def test_group_of_escalated_warnings_has_its_own_key():
    harness = LifecycleHarness().play(failing(10, "abc", "StreamingBatchSlow"), 20)
    harness.warnings = frozenset()
    harness.play([], 21)

    assert keys(harness) == ["*/StreamingBatchSlow", "*/StreamingBatchSlow/critical"]
    assert [one.ends_at is None for one in harness.incidents] == [False, True]
    assert all(
        one.is_escalated == key.endswith("critical")
        for one, key in zip(harness.incidents, keys(harness), strict=True)
    )


def test_driver_alert_after_a_group_of_the_same_name_has_its_own_key():
    harness = LifecycleHarness().play(
        [*failing(10, "abc", "StreamingQueryStalled"), *failing(60, "*", "StreamingQueryStalled")],
        90,
    )

    assert keys(harness) == ["*/StreamingQueryStalled", "*/StreamingQueryStalled/driver"]


def test_queries_are_reported_alone_while_a_driver_alert_holds_the_group_key():
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


def test_group_member_that_becomes_critical_is_reported_alone():
    harness = LifecycleHarness().play(
        [*failing(10, "abc", "StreamingDataLossRisk"), (50, "b", "StreamingDataLossRisk!")], 60
    )

    assert harness.reported == ["11 + StreamingDataLossRisk a,b,c", "50 + StreamingDataLossRisk b"]
    assert keys(harness) == ["*/StreamingDataLossRisk", "b/StreamingDataLossRisk/critical"]


def test_key_of_a_resolved_group_can_be_used_again():
    story = [*failing(10, "abc"), *all_of(20, "idle", "abc"), *failing(90, "bcd")]
    harness = LifecycleHarness().play(story, 100)

    assert harness.reported == [
        "10 + StreamingQueryFailed a,b,c",
        "50 - StreamingQueryFailed a,b,c",
        "90 + StreamingQueryFailed b,c,d",
    ]
    assert keys(harness) == ["*/StreamingQueryFailed"]


def test_recovered_member_stays_listed_with_its_end():
    harness = LifecycleHarness().play([*failing(10, "abc"), (20, "b", "idle")], 100)
    (incident,) = harness.incidents

    assert [alert.ends_at for alert in incident.alerts] == [None, WALL + 50, None]
    assert (incident.ends_at, incident.revision) == (None, 0)


def test_member_that_fails_again_gets_its_own_incident():
    """The member leaves the group, because contradictory messages about a query confuse."""
    harness = LifecycleHarness().play(
        [*failing(10, "abc"), (20, "b", "idle"), (90, "b", "StreamingQueryFailed")], 100
    )
    group, own = harness.incidents

    assert keys(harness) == ["*/StreamingQueryFailed", "b/StreamingQueryFailed"]
    assert members(harness) == ["ac", "b"]
    assert (own.starts_at, own.ends_at) == (WALL + 90, None)
    assert (group.revision, own.revision) == (0, 0)


def test_second_recovery_of_a_member_ends_only_its_own_incident():
    cycle = [(20, "b", "idle"), (90, "b", "StreamingQueryFailed"), (100, "b", "idle")]
    harness = LifecycleHarness().play([*failing(10, "abc"), *cycle], 140)

    assert harness.reported == [
        "10 + StreamingQueryFailed a,b,c",
        "90 + StreamingQueryFailed b",
        "130 - StreamingQueryFailed b",
    ]
    assert members(harness) == ["ac"]


def test_group_ends_when_its_last_member_recovers():
    story = [*failing(10, "abc"), (20, "a", "idle"), (40, "b", "idle"), (60, "c", "idle")]
    harness = LifecycleHarness().play(story, 90)
    (incident,) = harness.incidents

    assert incident.ends_at == WALL + 90
    assert [one.ends_at for one in incident.alerts] == [WALL + 50, WALL + 70, WALL + 90]
    assert harness.tick() == ()


def test_member_that_fails_as_the_last_one_recovers_is_reported_alone():
    harness = LifecycleHarness().play(
        [*failing(10, "abc"), *all_of(20, "idle", "ab"), (40, "c", "idle")], 69
    )
    harness.play([(70, "a", "StreamingQueryFailed")], 70)

    assert harness.reported == [
        "10 + StreamingQueryFailed a,b,c",
        "70 + StreamingQueryFailed a",
        "70 - StreamingQueryFailed b,c",
    ]


def test_member_that_fails_leaves_the_stalled_group_and_is_reported_as_failed():
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


def test_stalled_group_that_fails_is_one_page_per_alert_name():
    harness = LifecycleHarness().play(
        [*failing(10, EIGHT, "StreamingQueryStalled"), *failing(30, EIGHT)], 60
    )

    assert harness.reported == [
        "11 + StreamingQueryStalled a,b,c,d,e,f,g,h",
        "30 + StreamingQueryFailed a,b,c,d,e,f,g,h",
        "30 - StreamingQueryStalled a,b,c,d,e,f,g,h",
    ]


def test_reminder_lists_the_whole_group_while_any_member_fails():
    harness = LifecycleHarness(repeat_interval_seconds=100.0)
    harness.play([*failing(10, "abc"), *all_of(20, "idle", "ab")], 250)

    assert harness.reported[1:] == [
        "110 ^ StreamingQueryFailed a,b,c",
        "210 ^ StreamingQueryFailed a,b,c",
    ]
