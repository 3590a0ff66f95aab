"""A row of a table of rules: what happened, on a fake clock, and its one correct result.

The tables beside this file alternate between the words of a row and its result. The function of a row
says what must come out: ``running``, ``idle`` and the other states mean no alert; ``query_stalled`` and
the other alerts mean that alert about query ``a``, and the state that usually goes with it; ``case``
names both. It takes

* the story, by the functions of ``stories.py``, which make it when its test runs;
* ``at``: when the rules are evaluated; by default when the story ends;
* ``besides``: the alerts whose rules also hold, but are not reported;
* and settings that differ from the defaults, by their names. The defaults: floor 60 s, start grace
  300 s, gone grace 60 s, stalls critical after 600 s, slow batches after 1800 s, trend window 300 s,
  restart budget 3 in 600 s.

A row of a false alarm that users of another monitor reported names its source. ``pytest -k`` selects a
row by its words, joined by hyphens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from support.story import Story, policy

from querypulse.alerting import rules
from querypulse.alerting.rules.context import rule_context
from querypulse.alerting.rules.monitoring import driver_down, events_missing, monitoring_degraded
from querypulse.alerting.rules.query_ends import program_ended

WARNINGS = frozenset(
    {
        "StreamingDataLossRisk",
        "StreamingOffsetsRewound",
        "StreamingBatchSlow",
        "StreamingQueryLagging",
        "StreamingQueryFallingBehind",
        "StreamingWatermarkStuck",
        "StreamingRowsDropped",
        "StreamingStateGrowing",
        "StreamingInputMissing",
        "QuerypulseEventsMissing",
        "QuerypulseMonitoringDegraded",
    }
)
"""Alerts that are usually warnings; the others are usually critical."""


@dataclass(frozen=True)
class Case:
    """A row; see the head of this file."""

    story: Story
    at: float | None
    alerts: tuple[tuple[str, str, str], ...]
    """Name, query and severity of each alert that is reported, in their order."""
    state: str | None
    """The state of query ``a``; None if it is not known."""
    besides: frozenset[str]
    settings: dict[str, Any]

    @property
    def moment(self) -> float:
        """When the rules are evaluated."""
        return self.story.ends_at if self.at is None else self.at


Alert = str | tuple[str, ...]
"""An alert of query ``a``; or alert, query, and the severity where it is unusual."""


def table(*parts: str | Case, at: float | None = None, **settings: Any) -> dict[str, Case]:
    """The rows by their words, which come before each; ``at`` and settings are those of all rows."""
    words = parts[::2]
    rows = [
        replace(row, at=at if row.at is None else row.at, settings={**settings, **row.settings})
        for row in parts[1::2]
    ]
    return joined(*({name: row} for name, row in zip(words, rows, strict=True)))


def joined(*tables: dict[str, Case]) -> dict[str, Case]:
    """One table of several."""
    rows = {words: row for rows in tables for words, row in rows.items()}
    assert len(rows) == sum(map(len, tables)), "two rows have the same words"
    return rows


def limits(query: str, **fields: Any) -> dict[str, Any]:
    """Settings of the queries with this name pattern."""
    return {"overrides": [(query, fields)]}


def case(
    story: Story,
    *,
    at: float | None = None,
    alerts: Alert | list[Alert] = (),
    state: str | None,
    besides: Sequence[str] = (),
    **settings: Any,
) -> Case:
    return Case(story, at, tuple(_alerts(alerts)), state, frozenset(besides), settings)


def _alerts(alerts):
    for entry in alerts if isinstance(alerts, list) else [alerts]:
        if entry:
            name, query, *severity = (entry, "a") if isinstance(entry, str) else entry
            usual = "warning" if name in WARNINGS else "critical"
            yield name, query, *(severity or [usual])


# No alert, and the state of query a.
running = partial(case, state="running")
idle = partial(case, state="idle")
waiting = partial(case, state="waiting")
starting = partial(case, state="starting")
stopped = partial(case, state="stopped")
completed = partial(case, state="completed")


def alert(*alerts: Alert, state: str, **besides: Any) -> Callable[..., Case]:
    """The row of these alerts, and of the state that goes with them."""
    return partial(case, alerts=list(alerts), state=state, **besides)


query_failed = alert("StreamingQueryFailed", state="failed")
query_failed_warning = alert(("StreamingQueryFailed", "a", "warning"), state="failed")
query_stopped = alert("StreamingQueryStopped", state="stopped_unexpectedly")
query_missing = alert("StreamingQueryMissing", state="missing")
query_stalled = alert("StreamingQueryStalled", state="stalled")
query_stalled_warning = alert(("StreamingQueryStalled", "a", "warning"), state="stalled")
offsets_stalled = alert("StreamingOffsetsStalled", state="stalled")
offsets_rewound = alert("StreamingOffsetsRewound", state="rewound")
batch_slow = alert("StreamingBatchSlow", state="slow")
batch_slow_critical = alert(("StreamingBatchSlow", "a", "critical"), state="slow")
data_loss_risk = alert("StreamingDataLossRisk", state="lagging")
data_loss_critical = alert(("StreamingDataLossRisk", "a", "critical"), state="lagging")
data_lost = alert(("StreamingDataLossRisk", "a", "critical"), state="idle")
query_lagging = alert("StreamingQueryLagging", state="lagging")
query_lagging_critical = alert(("StreamingQueryLagging", "a", "critical"), state="lagging")
falling_behind = alert("StreamingQueryFallingBehind", state="slow")
watermark_stuck = alert("StreamingWatermarkStuck", state="watermark_stuck")
rows_dropped = alert("StreamingRowsDropped", state="lagging")
state_growing = alert("StreamingStateGrowing", state="running")
input_missing = alert("StreamingInputMissing", state="idle")


def outcome(row: Case) -> dict[str, Any]:
    """What the rules find: the alerts, the state of query ``a``, and every rule that holds."""
    evaluation = row.story.evaluate(row.moment, **row.settings)
    alerts = tuple(
        (finding.alertname, finding.query, finding.severity.value)
        for finding in evaluation.findings
    )
    health = evaluation.health.get("a")
    state = None if health is None else health.state.value
    holds = holding(row.story, row.moment, row.settings)
    return {"alerts": alerts, "state of a": state, "rules that hold": holds}


def expected(row: Case) -> dict[str, Any]:
    """What they must find."""
    # While query a is unseen, only the rules of the driver are asked.
    is_seen = "a" in row.story.snapshot(0.0).labels()
    of_a = {name for name, query, _ in row.alerts if query in ("a", "*")} if is_seen else set()
    return {"alerts": row.alerts, "state of a": row.state, "rules that hold": of_a | row.besides}


def holding(story, now, settings):
    """Every rule that holds for query a and for the driver, whether reported or not."""
    snapshot = story.snapshot(now)
    allowed = policy(**settings)
    query = snapshot.labels().get("a")
    names = {
        found.alertname
        for rule in (driver_down, events_missing, monitoring_degraded)
        if (found := rule(snapshot, now, allowed)) is not None
    }
    if (ended := program_ended(snapshot, now, allowed, ())) is not None:
        names.add(ended.alertname)
    if query is None or allowed.limits("a").ignore:
        return names
    context = rule_context(query, snapshot, now, allowed)
    return names | {found.alertname for rule in rules.ORDER if (found := rule(context)) is not None}
