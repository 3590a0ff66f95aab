"""Alerts as incidents: what begins together is one page. Pure.

Who belongs to an incident stays until all of it is over, so that nobody is told twice of one
misfortune, and what was told is closed by the key it was told with.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ..alert import Alert, Incident
from ..finding import WHOLE_DRIVER, Severity
from .silences import Silence, why_muted


class Page(msgspec.Struct, frozen=True):
    """One open incident. Times are monotonic seconds.

    ``told_at`` is None while nobody was told, ``news`` that those who were should hear again.
    """

    incident: Incident
    joined_at: float
    grouped: bool = False
    told_at: float | None = None
    news: bool = False


class Grouping:
    """Keeps the open incidents, by their keys."""

    def __init__(self, min_queries: int, window_seconds: float) -> None:
        self._min_queries = min_queries
        self._window_seconds = window_seconds
        self._pages: dict[str, Page] = {}
        self._homes: dict[str, str] = {}
        self._began: list[tuple[float, str]] = []

    def inherit(self, incident: Incident, now: float) -> Incident:
        """Take over an open incident of an earlier driver, without those in another already."""
        alerts = tuple(one for one in incident.alerts if one.key not in self._homes)
        incident = replace(incident, alerts=alerts)
        if any(alert.ends_at is None for alert in alerts):
            page = Page(incident, -math.inf, grouped=len(alerts) > 1, told_at=now)
            self._put(page)
        return incident

    def starts_at(self, key: str) -> float | None:
        """When an alert that fires again began, if its incident is still open."""
        members = self._members(self._homes[key]) if key in self._homes else ()
        return next((alert.starts_at for alert in members if alert.key == key), None)

    def begin(self, alerts: Sequence[Alert], now: float) -> None:
        """Give each alert that begins to fire its place: the old one, a group, or its own."""
        self._began = [(at, name) for at, name in self._began if now - at <= self._window_seconds]
        alone = []
        for alert in alerts:
            if alert.key in self._homes:
                self._join(self._homes[alert.key], (alert,), now)
            else:
                alone.append(alert)
        self._began += [(now, alert.name) for alert in alerts if _may_be_grouped(alert)]
        for name in dict.fromkeys(alert.name for alert in alone if _may_be_grouped(alert)):
            together = [one for one in alone if one.name == name and _may_be_grouped(one)]
            self._place(name, together, now)
        for alert in alone:
            if not _may_be_grouped(alert):
                self._put(Page(Incident((alert,)), now))

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
        """All incidents as they are now; those that are over are given once and forgotten.

        ``alerts`` are the newest words by alert key, ``firing`` the keys of those that do not
        recover; ``now`` is in monotonic, ``wall`` in Unix seconds.
        """
        told = []
        for key, page in list(self._pages.items()):
            present = _muted(_refreshed(page, alerts), silences, wall)
            reminding = any(alert.key in firing for alert in present.incident.alerts)
            present = _told(present, now, repeat_interval_seconds if reminding else math.inf)
            told.append(present.incident)
            if present.incident.ends_at is None:
                self._pages[key] = present
            else:
                self._forget(key)
        return tuple(told)

    def _place(self, name: str, alerts: Sequence[Alert], now: float) -> None:
        if sum(began == name for _, began in self._began) < self._min_queries:
            for alert in alerts:
                self._put(Page(Incident((alert,)), now))
            return
        group = self._recent_group(name, now)
        if group is None:
            self._put(Page(Incident(tuple(alerts)), now, grouped=True))
        else:
            self._join(group, alerts, now)

    def _recent_group(self, name: str, now: float) -> str | None:
        return next(
            (
                key
                for key, page in self._pages.items()
                if page.grouped
                and page.incident.name == name
                and now - page.joined_at <= self._window_seconds
            ),
            None,
        )

    def _join(self, key: str, alerts: Sequence[Alert], now: float) -> None:
        page = self._pages[key]
        members = {alert.key: alert for alert in (*page.incident.alerts, *alerts)}
        incident = replace(page.incident, alerts=tuple(members.values()))
        self._put(replace(page, incident=incident, joined_at=now, news=True))

    def _put(self, page: Page) -> None:
        self._pages[page.incident.key] = page
        self._homes.update({alert.key: page.incident.key for alert in page.incident.alerts})

    def _members(self, key: str) -> tuple[Alert, ...]:
        return self._pages[key].incident.alerts

    def _forget(self, key: str) -> None:
        del self._pages[key]
        self._homes = {alert: home for alert, home in self._homes.items() if home != key}


def _may_be_grouped(alert: Alert) -> bool:
    return alert.labels["query"] != WHOLE_DRIVER


def _refreshed(page: Page, alerts: Mapping[str, Alert]) -> Page:
    """With the newest words; one that got worse is news."""
    members = tuple(alerts.get(alert.key, alert) for alert in page.incident.alerts)
    severity = replace(page.incident, alerts=members).severity
    worse = severity == Severity.CRITICAL.value != page.incident.severity
    return replace(page, incident=replace(page.incident, alerts=members), news=page.news or worse)


def _muted(page: Page, silences: Sequence[Silence], wall: float) -> Page:
    """Muted when all that fires is silenced; an incident that is over, when all of it is."""
    alerts = page.incident.alerts
    open_ones = [alert for alert in alerts if alert.ends_at is None]
    why = why_muted(open_ones or alerts, silences, wall)
    return replace(page, incident=replace(page.incident, muted=why))


def _told(page: Page, now: float, repeat_after: float) -> Page:
    """A greater revision when there is a reason to tell again, and nobody asked for silence."""
    if page.incident.muted:
        return page
    if page.told_at is None:
        return replace(page, told_at=now, news=False)
    if not page.news and now - page.told_at < repeat_after:
        return page
    incident = replace(page.incident, revision=page.incident.revision + 1)
    return replace(page, incident=incident, told_at=now, news=False)
