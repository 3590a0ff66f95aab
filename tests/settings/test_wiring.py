"""Settings become components, and unusable settings are reported before anything runs."""

from __future__ import annotations

import pytest

from querypulse.alerting.policy import Limits
from querypulse.settings import wiring
from querypulse.settings.settings import QuerySettings
from querypulse.sidecar import Settings, SettingsError


def refused(call, **settings):
    with pytest.raises(SettingsError) as error:
        call(Settings(**settings))
    return str(error.value)


# -- policy -----------------------------------------------------------------------------------


def test_expected_queries_and_limits_come_from_the_settings():
    policy = wiring.policy(
        Settings(
            expected_queries=("bronze",),
            stall_floor_seconds=1,
            stall_critical_seconds=2,
            start_grace_seconds=3,
            gone_grace_seconds=4,
        )
    )

    assert policy.expected == ("bronze",)
    assert policy.limits("anything") == Limits(
        stall_floor_seconds=1, stall_critical_seconds=2, start_grace_seconds=3, gone_grace_seconds=4
    )


def overriding(**queries):
    own = {
        pattern.replace("_", "*"): QuerySettings(**changes) for pattern, changes in queries.items()
    }
    return wiring.policy(Settings(stall_critical_seconds=7, queries=own))


def test_an_override_changes_only_its_own_settings():
    policy = overriding(nightly_={"stall_floor_seconds": 3600, "gone_grace_seconds": 0})

    assert policy.limits("nightly_sales") == Limits(
        stall_floor_seconds=3600, stall_critical_seconds=7, gone_grace_seconds=0
    )
    assert policy.limits("hourly") == Limits(stall_critical_seconds=7)


def test_a_later_pattern_wins_where_both_match():
    policy = overriding(_={"ignore": True, "stall_critical_seconds": 1}, a_={"ignore": False})

    assert policy.limits("abc") == Limits(stall_critical_seconds=1, ignore=False)
    assert policy.limits("bcd") == Limits(stall_critical_seconds=1, ignore=True)


@pytest.mark.parametrize("interval", [0.05, 0.5, 60])
def test_a_report_is_not_stale_before_the_next_one_is_due(interval):
    policy = wiring.policy(Settings(probe_interval_seconds=interval))

    assert policy.probe_stale_seconds >= 2 * interval


def test_shortest_floor_is_that_of_any_query():
    floors = [
        (8, {}, 8),
        (60, {"a": QuerySettings(stall_floor_seconds=2)}, 2),
        (8, {"a": QuerySettings(stall_floor_seconds=3600)}, 8),
        (8, {"a": QuerySettings(ignore=True)}, 8),
    ]

    for floor, own, shortest in floors:
        settings = Settings(stall_floor_seconds=floor, queries=own)
        assert wiring.shortest_floor_seconds(settings) == shortest


# -- access ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, "", " \n", b"\xff\xfe\x00"])
def test_a_token_file_without_a_token_is_named(file, tmp_path, content):
    path = str(tmp_path / "missing") if content is None else file(content)
    message = refused(wiring.http_access, http_token_file=path)

    assert "'http_token_file'" in message
    assert path in message
