"""What a driver before this one may have left open, closed once its query is seen to be well.

Pure. It is for drivers without a spool: the last one died with its alerts told, and nobody
else knows their keys.
"""

from __future__ import annotations

from ...listener.identity import UNNAMED
from ..alert import Alert, Incident
from ..finding import WHOLE_DRIVER, Severity
from ..rules import (
    commit_stalled,
    data_loss_risk,
    driver_gone,
    offset_stalled,
    query_failed,
    query_flapping,
    query_gone,
    query_missing,
)
from .health import Calm, Health

LEFT_OPEN = (
    query_failed.NAME,
    query_gone.NAME,
    query_missing.NAME,
    commit_stalled.NAME,
    offset_stalled.NAME,
    query_flapping.NAME,
    data_loss_risk.NAME,
)
LEFT_OPEN_BY_DRIVER = (query_gone.NAME, commit_stalled.NAME, driver_gone.NAME)
"""What the queries of a driver share, when they are told as one."""
MAX_REMEMBERED = 10_000
"""So many queries are remembered as settled; one more and the oldest is settled anew."""


class Reconciliation:
    """Watches the queries that have had no alert since this process began."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._calms: dict[str, Calm] = {}
        self._settled: dict[str, None] = {}

    def settle(self, label: str) -> None:
        """Nothing is to be closed for this query (any more)."""
        self._settled[label] = None
        if len(self._settled) > MAX_REMEMBERED:
            del self._settled[next(iter(self._settled))]

    def update(self, health: Health, wall: float, seconds: float) -> tuple[Incident, ...]:
        """Ended incidents of the queries now proven well for ``seconds``, each query once."""
        calms = {
            label: calm
            for label in health.queries
            if label not in self._settled
            and (calm := health.calm(label, Severity.WARNING.value, self._calms.get(label)))
            is not None
        }
        well = [label for label, calm in calms.items() if health.is_proven(label, calm, seconds)]
        if well and WHOLE_DRIVER not in self._settled:
            # Where one of its queries is well the driver is.
            well.append(WHOLE_DRIVER)
        for label in well:
            self.settle(label)
        well = [label for label in well if not health.is_unnamed(label)]
        if self._are_unnamed_settled(health):
            well.append(UNNAMED)
            self.settle(UNNAMED)
        self._calms = calms
        return tuple(
            _over(self._app, label, name, wall)
            for label in well
            for name in (LEFT_OPEN_BY_DRIVER if label == WHOLE_DRIVER else LEFT_OPEN)
        )

    def _are_unnamed_settled(self, health: Health) -> bool:
        """Whether all queries without a name are: their alerts go by one label."""
        unnamed = [label for label in health.queries if health.is_unnamed(label)]
        settled = all(label in self._settled for label in unnamed)
        return bool(unnamed) and settled and UNNAMED not in self._settled


def _called(label: str) -> str:
    return "The driver" if label == WHOLE_DRIVER else f"Streaming query {label}"


def _over(app: str, label: str, name: str, wall: float) -> Incident:
    alert = Alert(
        labels={
            "alertname": name,
            "app": app,
            "query": label,
            "severity": Severity.CRITICAL.value,
        },
        annotations={
            "summary": f"{_called(label)} is well",
            "reason": "well since the driver was started",
        },
        starts_at=wall,
        ends_at=wall,
    )
    return Incident((alert,))
