"""Resolves the alerts that an earlier driver may have left open, once its queries are healthy.

It is for drivers without a spool: the last one ended with open alerts, and their keys are
stored nowhere. They can be derived from the names of the queries and of the alerts. With a generic
app name they may belong to another running driver: then nothing is resolved.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..listener.state.identity import RESERVED, UNNAMED
from .alert import DRIVER, ESCALATED, LASTING, Alert, Incident, alert_key
from .alert_text import recovered
from .finding import WHOLE_DRIVER, Severity
from .generic_apps import is_generic
from .recovery import DriverHealth, RecoveryWindow
from .rules import (
    batch_slow,
    data_loss_risk,
    driver_down,
    events_missing,
    monitoring_degraded,
    offsets_rewound,
    offsets_stalled,
    query_failed,
    query_flapping,
    query_given_up,
    query_lagging,
    query_missing,
    query_stalled,
    query_stopped,
    streaming_input_missing,
    watermark_stuck,
)

CRITICAL = (
    query_failed.NAME,
    query_stalled.NAME,
    query_stopped.NAME,
    query_missing.NAME,
    query_flapping.NAME,
    offsets_stalled.NAME,
    data_loss_risk.NAME,
    query_given_up.NAME,
)
"""Alerts that can be critical from the beginning, the most likely first."""
WARNINGS = (
    batch_slow.NAME,
    query_lagging.NAME,
    offsets_rewound.NAME,
    watermark_stuck.NAME,
    streaming_input_missing.NAME,
)
ESCALATING = (
    query_stalled.NAME,
    batch_slow.NAME,
    data_loss_risk.NAME,
    query_lagging.NAME,
    query_failed.NAME,
    query_flapping.NAME,
)
"""Alerts that can be a warning first and become critical."""
OF_DRIVER = (driver_down.NAME,)
OF_SIGNALS = (events_missing.NAME, monitoring_degraded.NAME)
SHARED = (query_stalled.NAME, query_stopped.NAME)
"""Alerts that both a group and the whole driver can have."""

MAX_REMEMBERED = 10_000
"""The most queries remembered as healthy; then the oldest one is forgotten."""
OFFERED_SECONDS = 3600.0
"""Receivers are offered the resolves for this long: one that is down can take them later."""
SECONDS_EACH = 4.0
"""The least time for each of them: PagerDuty gets one every two seconds."""


class Reconciliation:
    """Waits until each query has proven healthy once since this process began."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._is_generic = is_generic(app)
        self._recoveries: dict[str, RecoveryWindow] = {}
        self._healthy: dict[str, None] = {}
        self._batches: list[tuple[float, tuple[Incident, ...]]] = []
        """When alerts were resolved, and their incidents."""
        self._offered: tuple[Incident, ...] = ()

    def update(self, health: DriverHealth, wall: float, seconds: float) -> tuple[Incident, ...]:
        """The resolves of the last hour, for queries that were proven healthy for ``seconds``.

        Return the same tuple as before while nothing changes.
        """
        if self._is_generic:
            return ()
        self._recoveries = {
            label: recovery
            for label in health.queries
            if label not in self._healthy
            and (
                recovery := health.recovery(
                    label, Severity.WARNING.value, self._recoveries.get(label)
                )
            )
            is not None
        }
        proven = [
            label
            for label, recovery in self._recoveries.items()
            if health.has_recovered(label, recovery, seconds)
        ]
        new = [label for label in proven if not health.is_unnamed(label)]
        first = bool(proven) and not self._healthy
        for label in proven:
            self._remember(label)
        stale_resolves = (
            *(self._of_driver(wall) if first else ()),
            *self._of_queries(new, wall),
            *self._of_all(health, wall),
        )
        self._offer(stale_resolves, health.now)
        return self._offered

    def _offer(self, stale_resolves: tuple[Incident, ...], now: float) -> None:
        kept = [one for one in self._batches if now - one[0] < _offered_seconds(one[1])]
        if stale_resolves:
            kept.append((now, stale_resolves))
        if kept != self._batches:
            self._batches = kept
            self._offered = tuple(one for _, batch in kept for one in batch)

    def _of_queries(self, labels: list[str], wall: float) -> Iterator[Incident]:
        for name in CRITICAL:
            yield from (self._over(label, name, Severity.CRITICAL, wall) for label in labels)
        for name in ESCALATING:
            for label in labels:
                yield self._over(label, name, Severity.CRITICAL, wall, ESCALATED)
        for name in dict.fromkeys((*CRITICAL, *ESCALATING)):
            for label in labels:
                yield self._over(label, name, Severity.CRITICAL, wall, LASTING)
        for name in WARNINGS:
            yield from (self._over(label, name, Severity.WARNING, wall) for label in labels)

    def _of_driver(self, wall: float) -> Iterator[Incident]:
        """One healthy query proves that the driver runs.

        These are sent first: ``querypulse watch`` may open an incident under the same key later.
        """
        for name in OF_DRIVER:
            yield self._over(WHOLE_DRIVER, name, Severity.CRITICAL, wall)
        for name in OF_SIGNALS:
            yield self._over(WHOLE_DRIVER, name, Severity.WARNING, wall)

    def _of_all(self, health: DriverHealth, wall: float) -> Iterator[Incident]:
        """A group ends when all its queries are healthy."""
        unnamed = [label for label in health.queries if health.is_unnamed(label)]
        if self._are_newly_healthy(unnamed, UNNAMED):
            yield from self._of_queries([UNNAMED], wall)
        if self._are_newly_healthy(list(health.expected), WHOLE_DRIVER):
            yield from self._of_queries([WHOLE_DRIVER], wall)
            for name in SHARED:
                yield self._over(WHOLE_DRIVER, name, Severity.CRITICAL, wall, DRIVER)
                yield self._over(WHOLE_DRIVER, name, Severity.CRITICAL, wall, LASTING, DRIVER)

    def _are_newly_healthy(self, labels: list[str], shared: str) -> bool:
        """Whether all queries are healthy now, and were not at the last call."""
        if not labels or shared in self._healthy:
            return False
        if not all(label in self._healthy for label in labels):
            return False
        self._remember(shared)
        return True

    def _remember(self, label: str) -> None:
        self._healthy[label] = None
        if len(self._healthy) > MAX_REMEMBERED:
            del self._healthy[next(iter(self._healthy))]

    def _over(self, label: str, name: str, severity: Severity, wall: float, *more: str) -> Incident:
        labels = {
            "alertname": name,
            "app": self._app,
            "query": label,
            "severity": severity.value,
        }
        annotations = {
            "reason": "healthy since the driver was started",
            "outcome": recovered(name, of_one_query=label not in RESERVED),
        }
        key = alert_key(self._app, label, name, *more) if more else ""
        return Incident((Alert(labels, annotations, wall, wall),), opened_as=key)


def _offered_seconds(batch: tuple[Incident, ...]) -> float:
    return max(OFFERED_SECONDS, SECONDS_EACH * len(batch))
