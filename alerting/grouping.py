"""Groups alerts into incidents: alerts that begin together are one page.

PagerDuty does not notify again for an open incident, so no alert joins one: a query that fails
later, or again after it recovered, gets its own incident. All keys can be derived without stored
state, so that every open incident can be resolved.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ..listener.state.identity import UNNAMED
from .alert import DRIVER, Alert, Incident, alert_key
from .finding import WHOLE_DRIVER
from .restarts import ANNOTATION
from .rules import query_failed, query_flapping
from .silences import Silence, why_muted

Kind = tuple[str, str]
"""The name of an alert, and how its key ends: empty, ``ESCALATED`` or ``LASTING``."""


class OpenIncident(msgspec.Struct, frozen=True):
    """One open incident; ``notified_at`` (monotonic seconds) is None until it is first sent.

    ``sent`` are the keys of its alerts that were sent with it: not silenced at that time.
    """

    incident: Incident
    notified_at: float | None = None
    sent: frozenset[str] = frozenset()


class Grouping:
    """The open incidents by their keys; each firing alert is in one of them."""

    def __init__(self, min_queries: int, window_seconds: float) -> None:
        self._min_queries = min_queries
        self._window_seconds = window_seconds
        self._pages: dict[str, OpenIncident] = {}
        self._homes: dict[str, str] = {}
        self._began: list[tuple[float, Kind]] = []

    def restore(self, incident: Incident, now: float) -> tuple[Alert, ...]:
        """Restore an open incident of an earlier driver; return the alerts that fire in it.

        An alert that already fires in another incident stays there.
        """
        alerts = tuple(one for one in incident.alerts if one.key not in self._homes)
        firing = tuple(alert for alert in alerts if alert.ends_at is None)
        if incident.key in self._pages or not firing:
            return ()
        for alert in firing:
            self._leave_others(alert)
        # One that a silence mutes may never have been sent: it is not, if it recovers meanwhile.
        self._put(replace(incident, alerts=alerts), None if incident.muted else now)
        return firing

    def end(self, alerts: Iterable[Alert]) -> None:
        """End these alerts: their incidents list them with their end."""
        for alert in alerts:
            home = self._homes.pop(alert.key, None)
            page = self._pages.get(home or "")
            if page is not None:
                self._pages[page.incident.key] = _with_members(page, {alert.key: alert})

    def begin(self, alerts: Sequence[Alert], now: float, suffixes: Mapping[str, str]) -> None:
        """Put each alert that begins to fire into its own incident or that of a group.

        ``suffixes`` has how the keys of these incidents end, for alerts that were open before.
        """
        self._began = [(at, kind) for at, kind in self._began if now - at <= self._window_seconds]
        kinds: dict[Kind, list[Alert]] = {}
        for alert in alerts:
            self._leave_others(alert)
            kind = (alert.name, suffixes.get(alert.key, ""))
            if alert.labels["query"] == WHOLE_DRIVER:
                self._open((alert,), self._key_of_driver(alert, *_suffix(kind)))
            elif alert.labels["query"] == UNNAMED:
                # This alert already is a group: it lists queries that fail later.
                self._open((alert,), alert.key_ending(*_suffix(kind)))
            else:
                kinds.setdefault(kind, []).append(alert)
        for kind, together in kinds.items():
            self._began += [(now, kind)] * len(together)
            self._place(kind, together)

    def update(
        self,
        alerts: Mapping[str, Alert],
        firing: Collection[str],
        silences: Sequence[Silence],
        *,
        now: float,
        wall: float,
        repeat_interval_seconds: float,
    ) -> tuple[Incident, ...]:
        """All incidents as they are now; a resolved one is returned once and then forgotten.

        ``alerts`` are all open alerts by key, with their newest annotations; ``firing`` are the
        keys of those that do not recover; ``now`` is in monotonic, ``wall`` in Unix seconds.
        """
        incidents = []
        for key, page in list(self._pages.items()):
            present = _muted(_with_members(page, alerts), silences, wall)
            present = _still_muted(present, page, firing)
            repeat_after = repeat_interval_seconds if _fires(present, firing) else math.inf
            present = _with_sent(_revised(present, now, repeat_after))
            incidents.append(present.incident)
            if present.incident.ends_at is None:
                self._pages[key] = present
            else:
                del self._pages[key]
        return tuple(incidents)

    def was_sent(self, alert_key: str) -> bool:
        """Whether this open alert was ever sent; a silence may have prevented it."""
        page = self._pages.get(self._homes.get(alert_key, ""))
        return page is not None and alert_key in page.sent

    def _place(self, kind: Kind, alerts: Sequence[Alert]) -> None:
        """Open one incident for all, if enough begin and no group of that name is open."""
        app, suffix = alerts[0].labels["app"], _suffix(kind)
        key = alert_key(app, WHOLE_DRIVER, kind[0], *suffix)
        enough = sum(began == kind for _, began in self._began) >= self._min_queries
        if enough and len(alerts) > 1 and key not in self._pages:
            self._open(tuple(alerts), key)
            return
        for alert in alerts:
            self._open((alert,), alert.key_ending(*suffix))

    def _key_of_driver(self, alert: Alert, *suffix: str) -> str:
        key = alert.key_ending(*suffix)
        return key if key not in self._pages else alert.key_ending(*suffix, DRIVER)

    def _open(self, alerts: tuple[Alert, ...], key: str) -> None:
        usual = len(alerts) == 1 and key == alerts[0].key
        self._put(Incident(alerts, opened_as="" if usual else key))

    def _put(self, incident: Incident, notified_at: float | None = None) -> None:
        self._pages[incident.key] = _with_sent(OpenIncident(incident, notified_at))
        for alert in incident.alerts:
            if alert.ends_at is None:
                self._homes[alert.key] = incident.key

    def _leave_others(self, alert: Alert) -> None:
        """Drop ended alerts with the same labels elsewhere: this query has not recovered."""
        for key, page in list(self._pages.items()):
            others = tuple(
                one
                for one in page.incident.alerts
                if one.ends_at is None or one.labels != alert.labels
            )
            if others and len(others) < len(page.incident.alerts):
                self._pages[key] = replace(page, incident=replace(page.incident, alerts=others))


def _suffix(kind: Kind) -> tuple[str, ...]:
    return (kind[1],) if kind[1] else ()


def _with_members(page: OpenIncident, alerts: Mapping[str, Alert]) -> OpenIncident:
    """The incident with the newest annotations of its open alerts."""
    members = tuple(
        alerts.get(one.key, one) if one.ends_at is None else one for one in page.incident.alerts
    )
    return replace(page, incident=replace(page.incident, alerts=members))


def _muted(page: OpenIncident, silences: Sequence[Silence], wall: float) -> OpenIncident:
    """Mute the incident if all its open alerts are silenced, or all alerts if none is open."""
    alerts = page.incident.alerts
    open_ones = [alert for alert in alerts if alert.ends_at is None]
    why = why_muted(open_ones or alerts, silences, wall)
    each = {alert.key: why_muted((alert,), silences, wall) for alert in alerts}
    silenced = {key: reason for key, reason in each.items() if reason and not why}
    return replace(page, incident=replace(page.incident, muted=why, silenced=silenced))


def _still_muted(page: OpenIncident, before: OpenIncident, firing: Collection[str]) -> OpenIncident:
    """The incident, in which nothing that recovers is sent only because its silence has ended."""
    incident, muted = page.incident, before.incident.muted
    if muted and before.notified_at is None and not _fires(page, firing):
        return replace(page, incident=replace(incident, muted=muted, silenced={}))
    if incident.muted:
        return page
    kept = {key: why for key, why in before.incident.silenced.items() if key not in firing}
    return replace(page, incident=replace(incident, silenced=kept | incident.silenced))


def _with_sent(page: OpenIncident) -> OpenIncident:
    """The incident, and which of its alerts people know of now."""
    if page.notified_at is None or page.incident.muted:
        return page
    received = (one.key for one in page.incident.alerts if one.key not in page.incident.silenced)
    return replace(page, sent=page.sent.union(received))


def _fires(page: OpenIncident, firing: Collection[str]) -> bool:
    return any(one.ends_at is None and one.key in firing for one in page.incident.alerts)


def _more(alerts: Iterable[Alert]) -> frozenset[str]:
    """Facts that may become known only after their incident was opened, with their alerts' keys.

    The batch also failed in earlier processes, or the same batch fails again and again.
    """
    facts = ((one.key, _later_fact(one)) for one in alerts if one.ends_at is None)
    return frozenset(f"{key} {fact}" for key, fact in facts if fact)


def _later_fact(alert: Alert) -> str:
    if alert.name == query_flapping.NAME:
        return query_flapping.batch_of(alert.annotations.get("reason", ""))
    failed_before = alert.name == query_failed.NAME and ANNOTATION in alert.annotations
    return ANNOTATION if failed_before else ""


def _revised(page: OpenIncident, now: float, repeat_after: float) -> OpenIncident:
    """Raise the revision when an alert has a new fact (once each) or a reminder is due.

    A silenced incident stays as it is.
    """
    if page.incident.muted:
        return page
    incident = page.incident
    known = incident.known | _more(incident.alerts)
    if page.notified_at is None:
        return replace(page, incident=replace(incident, known=known), notified_at=now)
    if known == incident.known and now - page.notified_at < repeat_after:
        return page
    newer = replace(incident, revision=incident.revision + 1, known=known)
    return replace(page, incident=newer, notified_at=now)
