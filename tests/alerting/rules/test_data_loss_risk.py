"""The severity and the wording of a data loss alert."""

from __future__ import annotations

import pytest
from support.rules_table import BY_SIZE, BY_TIME, dead_at, near_the_edge

from querypulse.alerting.finding import Severity


def danger(story, now, **settings):
    return next(
        (
            one
            for one in story.evaluate(now, **settings).findings
            if one.alertname == "StreamingDataLossRisk"
        ),
        None,
    )


@pytest.mark.parametrize(
    ("now", "severity"),
    [(799, None), (801, "warning"), (999, "warning"), (1001, "critical"), (1201, "critical")],
)
def test_severity_grows_with_time(now, severity):
    """The first unread record was written at 100 s, and the retention is 1000 s."""
    found = danger(near_the_edge(now), now)

    assert (found.severity.value if found is not None else None) == severity


def test_ratio_can_be_set_per_query_and_two_thirds_of_the_rest_are_critical():
    allowed = {"data_loss_warning_ratio": 0.1}

    assert danger(dead_at(250), 250, overrides=[("a", allowed)]).severity is Severity.WARNING
    assert danger(dead_at(790), 790, overrides=[("a", allowed)]).severity is Severity.WARNING
    assert danger(dead_at(810), 810, overrides=[("a", allowed)]).severity is Severity.CRITICAL
    assert danger(dead_at(350), 350, overrides=[("b", allowed)]) is None


@pytest.mark.parametrize(
    ("story", "now", "effect", "reason"),
    [
        (dead_at(850), 850, "is about to lose data",
         "t/0: 75% of its retention time is used up, the oldest unread record is 12 min old, at least 4 min left"),
        (dead_at(850, kept=BY_SIZE), 850, "is about to lose data",
         "t/0: the unread backlog is 71% of what the topic retains, the retention edge is 3000 offsets behind, at least 4 min left"),
        (dead_at(1300), 1300, "has lost data",
         "t/0: 1000 offsets were deleted before they were read (committed 101000, retained from 102000)"),
    ],
    ids=["by time", "by size", "lost"],
)  # fmt: skip
def test_reason_states_what_is_lost_or_how_much_retention_is_left(story, now, effect, reason):
    found = danger(story, now)

    assert (found.reason, found.summary) == (reason, f"a {effect}: {reason}")


def test_worst_partition_is_reported_and_the_others_are_counted():
    both = {"t/0": 100, "t/1": 60}
    committed = {"t/0": 101_000, "t/1": 100_600}
    ends = {
        name: (lambda at, said=BY_TIME[name]: dict.fromkeys(both, said(at)))
        for name in ("latest", "earliest")
    }
    found = danger(dead_at(850, **ends, committed=committed, since=both), 850)

    assert found.reason.startswith("t/1: 79% of its retention time is used up")
    assert found.reason.endswith("; 2 partitions in total")
    assert [line.partition(":")[0] for line in found.evidence["retention"].splitlines()] == [
        "t/1",
        "t/0",
    ]
