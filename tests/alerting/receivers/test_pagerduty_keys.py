"""PagerDuty ignores a trigger on an open key, so every new problem opens its own key."""

from collections.abc import Iterator

import pytest
from support.lifecycle_harness import LifecycleHarness
from support.lifecycle_table import all_of
from support.pagerduty_double import PagerDutyDouble
from support.patience import PATIENCE_SECONDS
from support.receivers import pagerduty

from querypulse.alerting.delivery import Delivery
from querypulse.core.guard import Guard


class Pager:
    """A lifecycle harness whose incidents reach PagerDuty's double over HTTP, evaluated each
    second.
    """

    def __init__(self, double: PagerDutyDouble) -> None:
        self.double = double
        self.harness = LifecycleHarness()
        self.delivery = Delivery(pagerduty(double), Guard())
        self.delivery.start()

    def play(self, story, until: int) -> "Pager":
        for second in range(int(self.harness.now), until + 1):
            self.harness.play([one for one in story if one[0] == second], second)
            self.delivery.offer(self.harness.incidents)
            assert self.delivery.flush(PATIENCE_SECONDS)
        return self

    @property
    def keys(self) -> list[str]:
        """The keys that are open at PagerDuty."""
        return sorted(key.removeprefix("querypulse/etl/") for key in self.double.open)


@pytest.fixture
def pager() -> Iterator[Pager]:
    with PagerDutyDouble() as double:
        pager = Pager(double)
        yield pager
        pager.delivery.close(PATIENCE_SECONDS)


def test_group_member_that_fails_again_is_paged(pager):
    pager.play(
        [
            *all_of(1, "StreamingQueryFailed", "abc"),
            (2, "a", "idle"),
            (60, "a", "StreamingQueryFailed"),
        ],
        61,
    )

    assert pager.double.notified == [
        "[etl] 3 queries failed: as found (a, b, c)",
        "[etl] a is unhealthy",
    ]
    assert pager.keys == ["*/StreamingQueryFailed", "a/StreamingQueryFailed"]


def test_query_that_fails_after_a_group_is_paged(pager):
    pager.play([*all_of(1, "StreamingQueryFailed", "abc"), (4, "d", "StreamingQueryFailed")], 5)

    assert pager.double.notified == [
        "[etl] 3 queries failed: as found (a, b, c)",
        "[etl] d is unhealthy",
    ]


def test_warning_that_becomes_critical_is_paged_and_the_warning_resolved(pager):
    pager.play([(0, "a", "commits"), (1, "a", "StreamingDataLossRisk")], 5)
    assert pager.keys == ["a/StreamingDataLossRisk"]
    pager.play([(6, "a", "StreamingDataLossRisk!")], 7)

    assert len(pager.double.notified) == 2
    assert pager.keys == ["a/StreamingDataLossRisk/critical"]


def test_driver_that_stalls_after_a_group_of_stalls_is_paged(pager):
    pager.play([*all_of(1, "StreamingQueryStalled", "abc"), (9, "*", "StreamingQueryStalled")], 11)

    assert pager.keys == ["*/StreamingQueryStalled", "*/StreamingQueryStalled/driver"]
    assert len(pager.double.notified) == 2


def test_recovery_leaves_nothing_open_and_sends_no_futile_resolve(pager):
    story = [
        *all_of(1, "StreamingQueryFailed", "abc"),
        (2, "a", "idle"),
        (60, "a", "StreamingQueryFailed"),
    ]
    pager.play([*story, *all_of(70, "idle", "abc")], 101)

    assert pager.keys == []
    assert pager.double.dropped_resolves == []


def test_failure_that_returns_before_its_resolve_was_accepted_is_paged(pager):
    """It ends and returns during an outage: the resolve is sent first, then the trigger."""
    pager.play([(1, "a", "StreamingQueryFailed"), (2, "a", "idle")], 31)
    taken = pager.double.otherwise
    pager.double.otherwise = lambda handler: handler.send_error(503)
    pager.harness.play([], 32)
    pager.delivery.offer(pager.harness.incidents)
    assert not pager.delivery.flush(PATIENCE_SECONDS)
    pager.harness.play([(40, "a", "StreamingQueryFailed")], 40)
    pager.delivery.offer(pager.harness.incidents)
    pager.double.otherwise = taken
    assert pager.delivery.flush(PATIENCE_SECONDS)

    assert pager.double.notified == ["[etl] a is unhealthy", "[etl] a is unhealthy"]


def test_process_without_a_spool_resolves_everything_that_the_last_one_left_open(pager):
    pager.play(
        [
            *all_of(0, "commits", "abcde"),
            *all_of(1, "StreamingQueryFailed", "abc"),
            (2, "a", "idle"),
            (10, "d", "StreamingDataLossRisk"),
            (20, "d", "StreamingDataLossRisk!"),
            (30, "e", "StreamingQueryLagging"),
            (60, "a", "StreamingQueryFailed"),
        ],
        61,
    )
    assert pager.keys == [
        "*/StreamingQueryFailed",
        "a/StreamingQueryFailed",
        "d/StreamingDataLossRisk/critical",
        "e/StreamingQueryLagging",
    ]

    # It sends them one by one, for minutes; see test_stale_resolves.py.
    restarted = LifecycleHarness()
    restarted.play(all_of(0, "commits", "abcde"), 60)
    assert pager.double.open <= {one.key for one in restarted.lifecycle.stale_resolves}
