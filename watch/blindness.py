"""The alert about drivers that answer and refuse the watcher. Pure.

``now`` is monotonic seconds of the watcher, ``wall`` Unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from ..alerting.alert import Alert, Incident
from ..alerting.finding import WHOLE_DRIVER, Finding, Severity
from ..alerting.lifecycle.guidance import Guidance
from ..alerting.lifecycle.wording import alert_of
from ..alerting.rules import monitoring_degraded
from ..core.listing import listed
from ..core.states import QueryState
from .poll import Said
from .target_tracker import TargetTracker

APP = "querypulse-watch"
"""Label ``app`` of alerts about the watcher itself, and the name of its spool."""
AFTER_SECONDS = 15.0
"""During a token rotation, driver and watcher may differ briefly without an alert."""
READABLE = "every driver that answers accepts the watcher"
BEFORE = "refused the previous watcher"
DRIVERS = "drivers"
"""The annotation that names all these drivers; the next watcher restores them from it."""
ADVICE = "check --token-file, the client certificate and the host of the URL"


class Blindness:
    """One ``QuerypulseMonitoringDegraded`` for all drivers that refuse the watcher for a while.

    It does not resolve when such a driver goes down: then its answer is unknown.
    """

    def __init__(self, guidance: Guidance, repeat_interval_seconds: float) -> None:
        self._guidance = guidance
        self._repeat = repeat_interval_seconds
        self._open: Incident | None = None
        self._opened_at = 0.0
        self._barred_since: dict[str, float] = {}
        self._blind: dict[str, str] = {}

    def restore(self, incident: Incident, now: float) -> bool:
        """Restore an earlier watcher's alert of this kind; False if it is another kind."""
        labels = incident.alerts[0].labels
        if (labels["app"], labels["alertname"]) != (APP, monitoring_degraded.NAME):
            return False
        self._open, self._opened_at = incident, now
        names = incident.alerts[0].annotations.get(DRIVERS, "")
        self._blind = dict.fromkeys(filter(None, names.split(", ")), BEFORE)
        return True

    def update(
        self,
        tracker: TargetTracker,
        now: float,
        wall: float,
        muted: Callable[[Alert], str],
    ) -> list[Incident]:
        """The open alert or, once, its end; nothing while every driver accepts the watcher."""
        barred = {
            endpoint.shown: endpoint_state.poll.detail
            for endpoint, endpoint_state in tracker.endpoint_states.items()
            if endpoint_state.poll is not None and endpoint_state.poll.said is Said.BARRED
        }
        self._barred_since = {name: self._barred_since.get(name, now) for name in barred}
        due = [name for name, since in self._barred_since.items() if now - since >= AFTER_SECONDS]
        if tracker.is_listed:
            unread = {
                endpoint.shown
                for endpoint, endpoint_state in tracker.endpoint_states.items()
                if not endpoint_state.readable
            }
            self._blind = {name: text for name, text in self._blind.items() if name in unread}
        self._blind |= {name: barred[name] for name in due}
        return [self._firing(now, wall, muted)] if self._blind else self._ended(wall)

    def _firing(self, now: float, wall: float, muted: Callable[[Alert], str]) -> Incident:
        alert = alert_of(_finding(self._blind), APP, self._guidance, wall)
        if self._open is None:
            self._open, self._opened_at = Incident((alert,)), now
        alert = replace(alert, starts_at=self._open.starts_at)
        revision = self._open.revision
        if now - self._opened_at >= self._repeat:
            revision, self._opened_at = revision + 1, now
        self._open = Incident((alert,), revision, muted(alert))
        return self._open

    def _ended(self, wall: float) -> list[Incident]:
        if self._open is None:
            return []
        over = self._open.alerts[0].ended(wall, outcome=READABLE)
        incident, self._open = replace(self._open, alerts=(over,)), None
        return [incident]


def _finding(barred: Mapping[str, str]) -> Finding:
    names = sorted(barred)
    reason = f"{listed(names)}: {barred[names[0]]}; {ADVICE}"
    return Finding(
        alertname=monitoring_degraded.NAME,
        query=WHOLE_DRIVER,
        severity=Severity.WARNING,
        state=QueryState.RUNNING,
        reason=reason,
        summary=f"querypulse watch cannot see: {reason}",
        evidence={DRIVERS: ", ".join(names)},
    )
