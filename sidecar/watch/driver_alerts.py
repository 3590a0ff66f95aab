"""The roll and ``now`` -> what is to be told. Pure: no clock, no thread, no socket.

``now`` is monotonic seconds of the watcher, ``wall`` Unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from ...alerting.alert import Alert, Incident
from ...alerting.lifecycle.guidance import Guidance
from . import reasons
from .blindness import ADVICE, Blindness
from .memory import WatchedDriver
from .poll import Said
from .target_tracker import Key, TargetTracker

FORGET_SECONDS = 24 * 3600.0
"""So long is waited for what only DNS has named, or an earlier watcher where none is down."""
EXPIRED = "driver was not seen for 24 hours"
BACK = "driver answers again"
STOPPED = "driver was shut down gracefully"
FRESH_SECONDS = 1.0
"""So long a look tells that nothing is wrong: what the driver reports itself comes after it."""


class DriverAlertSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How it is told; each as in ``Settings``."""

    resolve_after_seconds: float
    repeat_interval_seconds: float
    guidance: Guidance


class DriverIncidents(msgspec.Struct, frozen=True):
    """What is to be told now.

    ``incidents`` are those open, and once those that have just ended. ``stale_resolves`` are ended
    ones that a watcher before this one may have left open: given while a look has just shown that
    the driver is there. ``news`` are lines for the log.
    """

    incidents: tuple[Incident, ...]
    stale_resolves: tuple[Incident, ...]
    news: tuple[str, ...]


class _Open(msgspec.Struct, frozen=True):
    """An alert that fires; ``fired_at`` is since when, and with which revision, it does here."""

    alert: Alert
    fired_at: float
    revision: int = 0


class DriverAlerts:
    """Opens an alert for each driver of ``tracker`` that is gone, and ends it when it is back."""

    def __init__(self, tracker: TargetTracker, terms: DriverAlertSettings) -> None:
        self.tracker = tracker
        self._terms = terms
        self._open: dict[Key, _Open] = {}
        self._inherited: dict[str, _Open] = {}
        self._missed: set[Key] = set()
        self._stuck: dict[Key, str] = {}
        self._blindness = Blindness(terms.guidance, terms.repeat_interval_seconds)

    def restore(self, incidents: Iterable[Incident], now: float) -> None:
        """Take over what an earlier watcher left open; it ends when its driver is seen well."""
        for incident in incidents:
            if incident.ends_at is None and not self._blindness.restore(incident, now):
                self._inherited[incident.key] = _Open(incident.alerts[0], now, incident.revision)

    def update(
        self, now: float, wall: float, muted: Callable[[Alert], str] = lambda _: ""
    ) -> DriverIncidents:
        """Judge everyone on the roll; ``muted`` says why nobody is to be told of an alert now."""
        self._claim_inherited()
        over = [*self._end_open(now, wall), *self._end_inherited(now, wall)]
        names = self.tracker.names()
        for key, driver in self.tracker.drivers.items():
            if key not in self._open and self._is_gone(driver):
                alert = reasons.gone(driver, names[key], now, wall, self._terms.guidance)
                self._open[key] = _Open(alert, now)
        incidents = {alert.key: Incident((alert,)) for alert in over}
        for one in (*self._open.values(), *self._inherited.values()):
            reminders = int((now - one.fired_at) // self._terms.repeat_interval_seconds)
            revision = one.revision + reminders
            incidents[one.alert.key] = Incident((one.alert,), revision, muted(one.alert))
        blind = self._blindness.update(self.tracker, now, wall, muted)
        return DriverIncidents(
            (*incidents.values(), *blind),
            tuple(self._stale_resolves(now, wall)),
            tuple(self._news(names)),
        )

    def _claim_inherited(self) -> None:
        """What was left open of a listed URL is its driver's, as if it had been opened here."""
        for incident_key, one in list(self._inherited.items()):
            key = self.tracker.expect(_address(one.alert), one.alert.labels["app"])
            if key is not None and key not in self._open:
                self._open[key] = self._inherited.pop(incident_key)

    def _end_open(self, now: float, wall: float) -> list[Alert]:
        over = []
        for key, one in list(self._open.items()):
            driver = self.tracker.drivers.get(key)
            if driver is None:
                why = "driver is no longer watched, or known by its app now"
            elif driver.stopped:
                why = STOPPED
            elif self._is_healthy(driver):
                why = BACK
            elif _may_expire(driver) and now - one.fired_at > FORGET_SECONDS:
                why = EXPIRED
                self.tracker.forget(key)
            else:
                continue
            over.append(self._open.pop(key).alert.ended(wall, outcome=why))
        return over

    def _end_inherited(self, now: float, wall: float) -> list[Alert]:
        over = []
        for key, one in list(self._inherited.items()):
            owners = self._owners(one.alert)
            if any(owner.stopped or self._is_healthy(owner) for owner in owners):
                why = BACK
            elif now - one.fired_at > FORGET_SECONDS and not self.tracker.is_down(
                _address(one.alert)
            ):
                why = EXPIRED
            else:
                continue
            over.append(self._inherited.pop(key).alert.ended(wall, outcome=why))
        return over

    def _stale_resolves(self, now: float, wall: float) -> list[Incident]:
        """For each driver that is found well and was never missed here."""
        self._missed.update(self._open)
        found = []
        for key, driver in self.tracker.drivers.items():
            if key not in self._missed and self._is_healthy(driver) and driver.last is not None:
                late = now - driver.last.at
                names = self._closed_names(driver) if late <= FRESH_SECONDS else ()
                guidance = self._terms.guidance
                found += [reasons.closing(name, wall - late, guidance) for name in names]
        stale_resolves = {alert.key: Incident((alert,)) for alert in found}
        still_open = {*self._inherited, *(one.alert.key for one in self._open.values())}
        return [one for key, one in stale_resolves.items() if key not in still_open]

    def _closed_names(self, driver: WatchedDriver) -> tuple[str, ...]:
        """All that an earlier watcher may have called it; an app is well where all of it are."""
        full = tuple(dict.fromkeys((driver.full_name, driver.address)))
        drivers = self.tracker.drivers.values()
        same = [one for one in drivers if one.app == driver.app and not one.stopped]
        return (driver.app, *full) if driver.app and all(map(self._is_healthy, same)) else full

    def _news(self, names: Mapping[Key, str]) -> list[str]:
        """What has changed, for the log."""
        reported = {key: self._stuck_of(key, names[key]) for key in self.tracker.drivers}
        changed = [text for key, text in reported.items() if text != self._stuck.get(key, "")]
        self._stuck = reported
        return [text for text in changed if text]

    def _stuck_of(self, key: Key, name: str) -> str:
        driver = self.tracker.drivers[key]
        if key in self._open:
            return f"StreamingDriverDown: {self._open[key].alert.annotations.get('summary', name)}"
        if driver.stopped:
            return f"{name} has closed in good order"
        if driver.terminated:
            return f"{name} was ended by a signal and may come back"
        if self.tracker.is_gone(driver):
            return f"{name} cannot be reached, and nothing else either: own network?"
        if driver.last is not None and driver.last.said is Said.BARRED:
            return f"{name} does not let this watcher in: {driver.last.detail}; {ADVICE}"
        return f"{name} is there: {driver.endpoint.shown}" if driver.seen else ""

    def _is_gone(self, driver: WatchedDriver) -> bool:
        if not self.tracker.is_gone(driver):
            return False
        return not driver.unsure or self.tracker.network_works(driver)

    def _is_healthy(self, driver: WatchedDriver) -> bool:
        if driver.healthy_since is None or driver.last is None:
            return False
        return driver.last.at - driver.healthy_since >= self._terms.resolve_after_seconds

    def _owners(self, alert: Alert) -> list[WatchedDriver]:
        """Whom an alert of an earlier watcher may be about; at a URL, whom it found there."""
        called, at = alert.labels["app"], _address(alert)
        return [
            one
            for one in self.tracker.drivers.values()
            if called in (one.name, one.full_name, one.address)
            and (one.endpoint.group or at in ("", one.endpoint.shown))
        ]


def _address(alert: Alert) -> str:
    """Where it was found; empty where it does not say."""
    return alert.annotations.get(reasons.ADDRESS, "")


def _may_expire(driver: WatchedDriver) -> bool:
    """Whether it may never come back: only DNS has named it, or another driver has its place."""
    return bool(driver.endpoint.group) or driver.replaced
