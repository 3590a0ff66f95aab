"""From findings to incidents: what to send, what to suppress, and what has ended.

It is level-triggered: each update takes all findings and returns all open incidents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from ..listener.state.snapshot import Snapshot
from .active_alert import (
    ActiveAlert,
    FlapGuard,
    FlapHistory,
    as_news,
    begin,
    escalates,
    found_again,
    is_expired,
    is_news,
    is_over,
    not_found,
)
from .alert import ESCALATED, LASTING, Alert, Incident
from .alert_text import UNSEEN, Guidance, alert_of
from .evaluate import Evaluation
from .grouping import Grouping
from .inhibition import Inhibition, Suppressed, supersedes, urgency
from .reconciliation import Reconciliation
from .recovery import DriverHealth
from .rules import driver_down
from .silences import Silence, silence_of

# -- lifecycle --------------------------------------------------------------------------------


class LifecycleSettings(msgspec.Struct, frozen=True):
    """When an alert ends, when a reminder is sent, and which alerts share one page.

    A query must be healthy for ``resolve_after_seconds``. ``group_min_queries`` queries with the
    same alert within ``group_window_seconds`` are one incident.
    """

    resolve_after_seconds: float = 30.0
    repeat_interval_seconds: float = 4 * 3600.0
    group_min_queries: int = 3
    group_window_seconds: float = 10.0


class Lifecycle:
    """The lifecycle of all alerts of one driver: pending, firing, recovering, ended.

    After each update, ``alerts`` are all open alerts (silenced ones say so in ``muted``),
    ``suppressed`` those that another alert suppresses, and ``stale_resolves`` resolves what an
    earlier driver may have left open. It uses no clock, thread or socket: ``now`` is in
    monotonic, ``wall`` in Unix seconds.
    """

    def __init__(self, app: str, guidance: Guidance, terms: LifecycleSettings) -> None:
        self.alerts: tuple[Alert, ...] = ()
        self.suppressed: tuple[Suppressed, ...] = ()
        self.stale_resolves: tuple[Incident, ...] = ()
        self._app = app
        self._guidance = guidance
        self._terms = terms
        self._active: dict[str, ActiveAlert] = {}
        self._flaps = FlapGuard()
        self._lasting: dict[str, float] = {}
        """For how many whole minutes, in seconds, each finding has held without a break."""
        self._grouping = Grouping(terms.group_min_queries, terms.group_window_seconds)
        self._reconciliation = Reconciliation(app)

    def restore(self, incidents: Iterable[Incident], now: float) -> None:
        """Continue the incidents that an earlier driver left open; call before the first update.

        Several receivers may have stored the same alerts: the highest revision wins, and a group
        wins over its members, which receivers of single alerts have stored.
        """
        for incident in sorted(incidents, key=_weight, reverse=True):
            for alert in self._grouping.restore(incident, now):
                self._active[alert.key] = ActiveAlert(
                    alert,
                    polls=0,
                    begun=True,
                    found=False,
                    unseen_since=now,
                    held_seconds=self._flaps.held_seconds(alert.key),
                )

    @property
    def flaps(self) -> tuple[FlapHistory, ...]:
        """How often alerts have fired and how long they lasted, for the next process."""
        return tuple(
            replace(one, longest_seconds=max(one.longest_seconds, self._lasting.get(one.key, 0.0)))
            for one in self._flaps.histories
        )

    def restore_flaps(self, histories: Iterable[FlapHistory], now: float) -> None:
        """Add how often alerts fired in earlier processes; call before an update."""
        self._flaps.restore(histories, now)
        for key, active in self._active.items():
            if active.begun:
                held = max(active.held_seconds, self._flaps.held_seconds(key))
                self._active[key] = replace(active, held_seconds=held)

    def update(
        self,
        evaluation: Evaluation,
        snapshot: Snapshot,
        now: float,
        wall: float,
        silences: Sequence[Silence] = (),
    ) -> tuple[Incident, ...]:
        """All open incidents, and those that have ended since the last update."""
        health = DriverHealth(evaluation, snapshot, now)
        is_silenced = partial(self._is_silenced, silences=silences, wall=wall)
        wait = self._terms.resolve_after_seconds
        inhibition = Inhibition(self._active, health, wait, is_silenced)
        over = self._follow(evaluation, health, wall, inhibition)
        renewed = {one.key: self._suffix(one) for one in over if one.key in self._active}
        begun = self._begin(health, inhibition)
        over += self._supersede(begun, wall)
        self._grouping.end(over)
        new = [*(active.alert.key for active in begun), *renewed]
        self._grouping.begin([self._active[key].alert for key in new], now, renewed)
        incidents = self._grouping.update(
            {alert.key: alert for alert in self._open()},
            {key for key, active in self._active.items() if active.is_firing},
            silences,
            now=now,
            wall=wall,
            repeat_interval_seconds=self._terms.repeat_interval_seconds,
        )
        self._lasting = {
            key: health.watched_since(active.found_since) // 60.0 * 60.0
            for key, active in self._active.items()
            if active.found_since is not None
        }
        self.alerts = tuple(_with_silence(alert, silences, wall) for alert in self._open())
        self.stale_resolves = self._reconciliation.update(health, wall, wait)
        return incidents

    def _open(self) -> list[Alert]:
        return [active.alert for active in self._active.values() if active.begun]

    def _follow(
        self, evaluation: Evaluation, health: DriverHealth, wall: float, inhibition: Inhibition
    ) -> list[Alert]:
        """Update every alert; remove and return those that have ended by themselves.

        Also return each alert that continues under another key: a warning that has become
        critical, and a flapping alert that lasts.
        """
        alerts = [alert_of(one, self._app, self._guidance, wall) for one in evaluation.findings]
        found = {alert.key: alert for alert in alerts}
        over = []
        for key, alert in found.items():
            over += self._find(key, alert, health, wall, inhibition)
        for key in [key for key in self._active if key not in found]:
            over += self._miss(key, health, wall)
        return over

    def _find(
        self, key: str, alert: Alert, health: DriverHealth, wall: float, inhibition: Inhibition
    ) -> list[Alert]:
        known = self._active.get(key)
        if known is None:
            self._active[key] = ActiveAlert(alert, found_since=health.now)
            return []
        active, why = found_again(known, alert, health), ""
        if escalates(known, alert) and inhibition.suppressor(active) is not None:
            active = found_again(known, replace(alert, labels=known.alert.labels), health)
        elif escalates(known, alert):
            active, why = replace(active, is_relapse=False), f"{alert.name}, critical"
        elif is_news(active, health, self._flaps.news_seconds(key)):
            active, why = as_news(active), f"{alert.name}, which lasts"
        self._active[key] = active
        return [known.alert.ended(wall, superseded_by=why)] if why else []

    def _miss(self, key: str, health: DriverHealth, wall: float) -> list[Alert]:
        since = self._active[key].found_since
        if since is not None:
            self._flaps.lasted(key, health.watched_since(since))
        active = self._active[key] = not_found(self._active[key], health)
        if not active.begun:
            del self._active[key]
        elif is_expired(active, health.now):
            notes = {"expired": "its query was not seen for a day", "outcome": UNSEEN[0]}
            return [self._end(key, wall, **notes)]
        elif is_over(active, health, self._terms.resolve_after_seconds):
            outcome = health.outcome(active.query, active.alert.name, active.recovery)
            return [self._end(key, wall, outcome=outcome)]
        return []

    def _begin(self, health: DriverHealth, inhibition: Inhibition) -> list[ActiveAlert]:
        """Begin the alerts that may fire and are not suppressed, the most urgent first."""
        begun, suppressed = [], []
        for active in sorted((one for one in self._active.values() if one.is_ripe), key=urgency):
            by = inhibition.suppressor(active)
            if by is not None:
                suppressed.append(Suppressed(active.alert, by.alert))
                continue
            key = active.alert.key
            # The end of a driver is final: the next one is another incident, which ``querypulse
            # watch`` may report under the same key.
            is_final = active.alert.name == driver_down.NAME
            held = 0.0 if is_final else self._flaps.fires(key, health.now)
            begun.append(begin(active, held))
            self._active[key] = begun[-1]
        self.suppressed = tuple(suppressed)
        return begun

    def _is_silenced(self, active: ActiveAlert, silences: Sequence[Silence], wall: float) -> bool:
        """Whether nobody is notified of it: it is silenced, or recovers and was never sent."""
        if silence_of(active.alert, silences, wall) is not None:
            return True
        return not active.is_firing and not self._grouping.was_sent(active.alert.key)

    def _supersede(self, begun: Sequence[ActiveAlert], wall: float) -> list[Alert]:
        """End recovering alerts whose query has a new alert that is at least as severe."""
        return [
            self._end(key, wall, superseded_by=new.alert.name)
            for new in begun
            for key, old in list(self._active.items())
            if supersedes(new, old)
        ]

    def _suffix(self, ended: Alert) -> str:
        """How the key ends under which an alert continues that was open as ``ended``."""
        alert = self._active[ended.key].alert
        if alert.labels["severity"] != ended.labels["severity"]:
            return ESCALATED
        return LASTING if alert.is_lasting else ""

    def _end(self, key: str, wall: float, **notes: str) -> Alert:
        return self._active.pop(key).alert.ended(wall, **notes)


def _weight(incident: Incident) -> tuple[int, int]:
    return incident.revision, len(incident.alerts)


def _with_silence(alert: Alert, silences: Sequence[Silence], wall: float) -> Alert:
    silence = silence_of(alert, silences, wall)
    if silence is None:
        return alert
    return replace(alert, annotations={**alert.annotations, "muted": str(silence)})


# -- evaluated --------------------------------------------------------------------------------
# The result of one evaluation of all queries, as it is published.


class Evaluated(msgspec.Struct, frozen=True):
    """What was evaluated, what was found, and the alerts that fire."""

    snapshot: Snapshot
    evaluation: Evaluation
    alerts: tuple[Alert, ...]
    suppressed: tuple[Suppressed, ...] = ()
    passed: dict[str, float] = {}
    """By label: see ``end_to_end.py``; monotonic seconds."""
