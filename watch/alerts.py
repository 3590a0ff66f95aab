"""The target tracker and ``now`` -> incidents. Pure: no clock, no thread, no socket.

``now`` is monotonic seconds of the watcher, ``wall`` Unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from ..alerting.alert import Alert, Incident
from ..alerting.alert_text import Guidance, alert_of
from ..alerting.finding import WHOLE_DRIVER, Finding, Severity
from ..alerting.rules import driver_down, monitoring_degraded
from ..core.states import QueryState
from ..core.text import listed, rfc3339
from .client import Said
from .tracker import Key, TargetTracker, WatchedDriver

# -- reasons ----------------------------------------------------------------------------------
# The alert about a driver that is down.


MAX_UNHEALTHY = 10
ADDRESS = "address"
"""The annotation with the address at which the driver was polled."""

HOW = {
    Said.STUCK: "is stuck: its server answers, but its worker does not advance",
    Said.SILENT: "is frozen: it accepts connections and does not answer",
    Said.REFUSED: "was killed or has crashed: nothing listens at its address",
    Said.BROKEN: "drops every connection",
    Said.UNREACHABLE: "is unreachable, although the network works",
    Said.REPLACED: "was replaced: another driver is at its address",
}
TERMINATED = "was terminated by a signal and has not come back"
NEVER = "has never answered since the watcher started"


def gone(driver: WatchedDriver, name: str, now: float, wall: float, guidance: Guidance) -> Alert:
    """The firing alert of driver ``name``; ``now`` is monotonic, ``wall`` Unix seconds."""
    how = HOW.get(driver.last.said, "") if driver.last is not None else ""
    if driver.terminated:
        how = TERMINATED
    elif not driver.seen:
        how = NEVER
    detail = driver.last.detail if driver.last is not None else ""
    finding = replace(_down_finding(f"{how} ({detail})"), evidence=_evidence(driver, now, wall))
    since = now if driver.bad_since is None else driver.bad_since
    return alert_of(finding, name, guidance, wall - (now - since))


def closing(name: str, wall: float, guidance: Guidance) -> Alert:
    """The resolved alert of driver ``name``, which an earlier watcher may have left open."""
    alert = alert_of(_down_finding("answers"), name, guidance, wall)
    return alert.ended(wall, outcome="driver answers")


def _down_finding(how: str) -> Finding:
    """The finding about a driver, without evidence."""
    return Finding(
        alertname=driver_down.NAME,
        query=WHOLE_DRIVER,
        severity=Severity.CRITICAL,
        state=QueryState.MISSING,
        reason=f"driver {how}",
        summary=f"driver {how}",
        evidence={},
    )


def _evidence(driver: WatchedDriver, now: float, wall: float) -> dict[str, str]:
    """The newest connection result, and what was known when the driver was last seen."""
    last, seen = driver.last, driver.last_seen
    facts = {ADDRESS: driver.endpoint.shown, "connection": last.detail if last else ""}
    if seen is None:
        return facts | {"last_seen": "never by this watcher"}
    beat = seen.heartbeat
    return facts | {
        "last_seen": f"{rfc3339(wall - (now - seen.at))}, {now - seen.at:.0f} s ago",
        "last_heartbeat": "unknown" if beat is None else f"{rfc3339(beat)} by the driver's clock",
        "unhealthy_before": listed(seen.unhealthy, MAX_UNHEALTHY)
        or "none: every query was healthy",
    }


# -- blindness --------------------------------------------------------------------------------
# The alert about drivers that answer and refuse the watcher.
#
# ``now`` is monotonic seconds of the watcher, ``wall`` Unix seconds.


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
        alert = alert_of(_blind_finding(self._blind), APP, self._guidance, wall)
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


def _blind_finding(barred: Mapping[str, str]) -> Finding:
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


# -- driver alerts ----------------------------------------------------------------------------


FORGET_SECONDS = 24 * 3600.0
"""An alert expires after this time if only DNS named its driver, another driver took its place,
or an earlier watcher opened it and nothing is down at its address.
"""
EXPIRED = "driver was not seen for 24 hours"
BACK = "driver answers again"
STOPPED = "driver was shut down gracefully"
FRESH_SECONDS = 1.0
"""How long a poll proves that nothing is wrong: later, the driver may have raised an alert."""


class DriverIncidents(msgspec.Struct, frozen=True):
    """What to send and to log now.

    ``incidents`` are the open incidents and, once, those that have just ended. ``stale_resolves``
    are ended incidents that an earlier watcher may have left open: returned while a poll has just
    found the driver healthy. ``news`` are log lines.
    """

    incidents: tuple[Incident, ...]
    stale_resolves: tuple[Incident, ...]
    news: tuple[str, ...]


class _Open(msgspec.Struct, frozen=True):
    """A firing alert; ``fired_at`` and ``revision`` are those with which this watcher began.

    ``was_back``: its driver answered again and may have resolved it itself, as every driver does
    with what is left open of it. ``was_resent``: it was sent again.
    """

    alert: Alert
    fired_at: float
    revision: int = 0
    was_back: bool = False
    was_resent: bool = False


class DriverAlerts:
    """Opens an alert for each driver of ``tracker`` that is down; resolves it when it is back."""

    def __init__(
        self,
        tracker: TargetTracker,
        *,
        resolve_after_seconds: float,
        repeat_interval_seconds: float,
        guidance: Guidance,
    ) -> None:
        self.tracker = tracker
        self._resolve_after = resolve_after_seconds
        self._repeat_interval = repeat_interval_seconds
        self._guidance = guidance
        self._open: dict[Key, _Open] = {}
        self._restored: dict[str, _Open] = {}
        self._alerted: set[Key] = set()
        self._statuses: dict[Key, str] = {}
        self._blindness = Blindness(guidance, repeat_interval_seconds)

    def restore(self, incidents: Iterable[Incident], now: float) -> None:
        """Restore the open alerts of an earlier watcher; each resolves with a healthy driver."""
        for incident in incidents:
            if incident.ends_at is None and not self._blindness.restore(incident, now):
                self._restored[incident.key] = _Open(incident.alerts[0], now, incident.revision)

    def update(
        self, now: float, wall: float, muted: Callable[[Alert], str] = lambda _: ""
    ) -> DriverIncidents:
        """Evaluate every driver; ``muted`` returns why an alert is silenced now, or nothing."""
        self._claim_restored()
        over = [*self._end_open(now, wall), *self._end_restored(now, wall)]
        self._open = {key: self._renewed(key, one) for key, one in self._open.items()}
        names = self.tracker.names()
        for key, driver in self.tracker.drivers.items():
            if key not in self._open and self._is_gone(driver):
                alert = gone(driver, names[key], now, wall, self._guidance)
                self._open[key] = _Open(alert, now)
        incidents = {alert.key: Incident((alert,)) for alert in over}
        for one in (*self._open.values(), *self._restored.values()):
            reminders = int((now - one.fired_at) // self._repeat_interval)
            revision = one.revision + reminders
            incidents[one.alert.key] = Incident((one.alert,), revision, muted(one.alert))
        blind = self._blindness.update(self.tracker, now, wall, muted)
        return DriverIncidents(
            (*incidents.values(), *blind),
            tuple(self._stale_resolves(now, wall)),
            tuple(self._news(names)),
        )

    def _renewed(self, key: Key, one: _Open) -> _Open:
        """Send it again if its driver was back, may have resolved it itself, and is gone again."""
        driver = self.tracker.drivers[key]
        if one.was_back and self._is_gone(driver):
            return replace(one, revision=one.revision + 1, was_back=False, was_resent=True)
        # One that was only paused may send a resolve that waited: each process sends it once.
        late = driver.resumed and not driver.reports_gone and not one.was_resent
        return replace(one, was_back=one.was_back or late or self._is_almost_healthy(driver))

    def _is_almost_healthy(self, driver: WatchedDriver) -> bool:
        """Whether it may count as healthy for itself: its process counts from its own start.

        It may also run on after the last poll.
        """
        healthy, unseen = self._healthy_seconds(driver), 2 * self.tracker.interval_seconds
        return healthy is not None and healthy + unseen > self._resolve_after

    def _claim_restored(self) -> None:
        """Treat a restored alert of a listed URL as if this watcher had opened it."""
        for incident_key, one in list(self._restored.items()):
            key = self.tracker.expect(_address(one.alert), one.alert.labels["app"])
            if key is not None and key not in self._open:
                self._open[key] = self._restored.pop(incident_key)

    def _end_open(self, now: float, wall: float) -> list[Alert]:
        over = []
        for key, one in list(self._open.items()):
            driver = self.tracker.drivers.get(key)
            if driver is None:
                why = "driver is no longer watched, or is now named by its app"
            elif driver.stopped:
                why = STOPPED
            elif self._is_healthy(driver):
                why = BACK
            elif driver.may_expire and now - one.fired_at > FORGET_SECONDS:
                why = EXPIRED
                self.tracker.forget(key)
            else:
                continue
            over.append(self._open.pop(key).alert.ended(wall, outcome=why))
        return over

    def _end_restored(self, now: float, wall: float) -> list[Alert]:
        over = []
        for key, one in list(self._restored.items()):
            owners = self._owners(one.alert)
            if any(owner.stopped or self._is_healthy(owner) for owner in owners):
                why = BACK
            elif now - one.fired_at > FORGET_SECONDS and not self.tracker.is_down(
                _address(one.alert)
            ):
                why = EXPIRED
            else:
                continue
            over.append(self._restored.pop(key).alert.ended(wall, outcome=why))
        return over

    def _stale_resolves(self, now: float, wall: float) -> list[Incident]:
        """One for each healthy driver for which this watcher has never opened an alert."""
        self._alerted.update(self._open)
        found = []
        for key, driver in self.tracker.drivers.items():
            if key not in self._alerted and self._is_healthy(driver) and driver.last is not None:
                late = now - driver.last.at
                names = self._closed_names(driver) if late <= FRESH_SECONDS else ()
                found += [closing(name, wall - late, self._guidance) for name in names]
        stale_resolves = {alert.key: Incident((alert,)) for alert in found}
        still_open = {*self._restored, *(one.alert.key for one in self._open.values())}
        return [one for key, one in stale_resolves.items() if key not in still_open]

    def _closed_names(self, driver: WatchedDriver) -> tuple[str, ...]:
        """The names an earlier watcher may have used.

        The plain app name only counts while every driver of that app is healthy.
        """
        full = tuple(dict.fromkeys((driver.full_name, driver.address)))
        drivers = self.tracker.drivers.values()
        same = [one for one in drivers if one.app == driver.app and not one.stopped]
        return (driver.app, *full) if driver.app and all(map(self._is_healthy, same)) else full

    def _news(self, names: Mapping[Key, str]) -> list[str]:
        """The drivers whose status has changed, as log lines."""
        lines = {key: self._status_of(key, names[key]) for key in self.tracker.drivers}
        changed = [text for key, text in lines.items() if text != self._statuses.get(key, "")]
        self._statuses = lines
        return [text for text in changed if text]

    def _status_of(self, key: Key, name: str) -> str:
        driver = self.tracker.drivers[key]
        if key in self._open:
            return f"StreamingDriverDown: {self._open[key].alert.annotations.get('summary', name)}"
        if driver.stopped:
            return f"{name} shut down gracefully"
        if driver.terminated:
            return f"{name} was terminated by a signal and may come back"
        if self.tracker.is_gone(driver):
            return f"{name} is unreachable, and so is everything else: own network down?"
        if driver.last is not None and driver.last.said is Said.BARRED:
            return f"{name} refuses this watcher: {driver.last.detail}; {ADVICE}"
        return f"{name} is up: {driver.endpoint.shown}" if driver.seen else ""

    def _is_gone(self, driver: WatchedDriver) -> bool:
        if not self.tracker.is_gone(driver):
            return False
        return not driver.unsure or self.tracker.network_works(driver)

    def _is_healthy(self, driver: WatchedDriver) -> bool:
        """Whether it answers for long enough, or has itself resolved that it is down.

        Alertmanager shares one alert between both: sent again after that, it would fire again.
        """
        healthy = self._healthy_seconds(driver)
        if healthy is None:
            return False
        return driver.resolved_own or healthy >= self._resolve_after

    @staticmethod
    def _healthy_seconds(driver: WatchedDriver) -> float | None:
        """For how long it has been healthy; None if it is not."""
        if driver.healthy_since is None or driver.last is None:
            return None
        return driver.last.at - driver.healthy_since

    def _owners(self, alert: Alert) -> list[WatchedDriver]:
        """The drivers that a restored alert may be about; for a URL, only those at its address."""
        called, at = alert.labels["app"], _address(alert)
        return [
            one
            for one in self.tracker.drivers.values()
            if called in (one.name, one.full_name, one.address)
            and (one.endpoint.group or at in ("", one.endpoint.shown))
        ]


def _address(alert: Alert) -> str:
    """The address in the alert; empty if it has none."""
    return alert.annotations.get(ADDRESS, "")
