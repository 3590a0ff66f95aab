"""When the heartbeat pings its monitor, and with which text: pure."""

import pytest
from msgspec.structs import replace
from support.receiver_incidents import ENDED_ONE, ONE, SEVERAL, incident

from querypulse.alerting.heartbeat import LEAST_SECONDS, START, Ping, due_at, ping_of, ping_url

HEALTHY = Ping("", "healthy")
FAIL = Ping("/fail", "bronze failed")
WARNING = incident(name="StreamingQueryLagging", severity="warning")
NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("incidents", "path", "text"),
    [
        ([], "", "healthy"),
        ([ENDED_ONE], "", "healthy"),
        ([WARNING], "", "healthy; 1 not critical or silenced"),
        ([replace(ONE, muted="silenced until noon")], "", "healthy; 1 not critical or silenced"),
        ([WARNING, ONE], "/fail", "bronze failed"),
        (
            [ONE, SEVERAL],
            "/fail",
            "bronze failed\n[etl] 5 queries failed: ConcurrentAppendException "
            "(bronze, silver, gold, alerts, audit)",
        ),
    ],
)
def test_only_an_unmuted_critical_incident_is_a_failure(incidents, path, text):
    assert ping_of(incidents) == Ping(path, text)


def test_long_text_is_cut():
    assert len(ping_of([incident(summary="x" * 90_000)]).text) == 2000


@pytest.mark.parametrize(
    ("ping", "last", "seconds"),
    [
        (HEALTHY, HEALTHY, 60),
        (FAIL, FAIL, 60),
        (FAIL, HEALTHY, LEAST_SECONDS),
        (HEALTHY, FAIL, LEAST_SECONDS),
        (HEALTHY, START, LEAST_SECONDS),
        (HEALTHY, None, LEAST_SECONDS),
    ],
)
def test_change_does_not_wait_for_the_interval(ping, last, seconds):
    """A check still accepts only five pings a minute."""
    assert due_at(ping, last, 1000.0, 60.0) == 1000 + seconds


def test_interval_below_the_minimum_is_kept():
    assert due_at(FAIL, HEALTHY, 1000.0, 1.0) == 1001


def test_signal_is_added_before_the_query_of_the_url():
    assert ping_url("https://h/p/uuid/?create=1", "/fail", "r-1") == (
        "https://h/p/uuid/fail?create=1&rid=r-1"
    )
    assert ping_url("https://h/p/uuid", "", "r-1") == "https://h/p/uuid?rid=r-1"
