"""The target tracker and ``now`` -> incidents. Pure: no clock, no thread, no socket.

``now`` is monotonic seconds of the watcher, ``wall`` Unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from ..alerting.alert import (
    CRITICAL,
    WARNING,
    Alert,
    AlertOutcome,
    Incident,
    incident_key,
    incident_labels,
    recording_id,
)
from ..alerting.facts import Reported
from ..alerting.finding import WHOLE_DRIVER, Finding, Severity
from ..alerting.kinds import DRIVER_DOWN, MONITORING_DEGRADED, QUERY_MISSING
from ..alerting.words.messages import Guidance, alert_of
from ..alerting.words.next_steps import NEXT_STEPS
from ..core.states import QueryState
from ..core.text import duration, listed, utc
from ..exporter.pages import Notice
from .client import OpenAlerts, Said
from .fleet import DOWN, ENDED, REFUSES, STOPPED, UNANSWERED, UP, SeenDriver
from .tracker import TargetTracker, WatchedDriver

# -- findings ---------------------------------------------------------------------------------


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
MAY_COME_BACK: dict[Notice | None, str] = {
    Notice.TERMINATED: "was terminated by a signal",
    Notice.ENDED: "has ended with its main program while queries ran",
}
"""How a driver has ended, by the notice that it gave."""
STEPS_OF_NEVER = (
    "1. Check the address that the watcher polls: the host, the port, a firewall between them.\n"
    "2. Find out whether it runs, from the cluster manager or its log: if not, start its job.\n"
    "3. If it is not to come, remove its address from the watcher's targets."
)
STEPS_OF_FROZEN = (
    "1. Take stacks before a restart: a thread dump of its JVM, py-spy dump of its Python.\n"
    "2. Check memory, swapping, CPU and garbage collection of its host; may its queries go on?\n"
    "3. If it does not recover, end it for certain, then restart the job from the same checkpoints."
)
STEPS_OF_CUT_OFF = (
    "1. Find out whether it still runs: from the cluster manager, or on its host.\n"
    "2. If it does, repair the way to it: its network, a firewall, a proxy, file descriptors.\n"
    "3. Never start a second driver beside it; only once it has ended, with the same checkpoints."
)
STEPS_OF_REPLACED = (
    "1. The old driver has been replaced: another app answers at its address.\n"
    "2. Find out where its job runs now, and let the watcher poll it there.\n"
    "3. If the job is not needed any more, start the watcher once with --forget and its app."
)
STEPS = {
    Said.STUCK: STEPS_OF_FROZEN,
    Said.SILENT: STEPS_OF_FROZEN,
    Said.BROKEN: STEPS_OF_CUT_OFF,
    Said.UNREACHABLE: STEPS_OF_CUT_OFF,
    Said.REPLACED: STEPS_OF_REPLACED,
}
"""The next steps where those of the runbook, for a driver that is gone, do not fit."""
STEPS_OF_LATE = (
    "1. Check the scheduler that starts its runs, and the log of the last one.\n"
    "2. Start a run now: it goes on from the checkpoint.\n"
    "3. If it may take so long, set complete_by of the query later."
)
"""As for a run that its own driver reports, which then is not running."""
ADVICE = "check --token-file, the client certificate and the host of the URL"


def down_finding(driver: WatchedDriver, now: float, wall: float) -> Finding:
    """The finding about a driver that is down, with what was known when it was last seen."""
    last, seen = driver.last, driver.last_seen
    detail = last.detail if last is not None else ""
    evidence = {ADDRESS: driver.endpoint.shown, "connection": detail}
    if seen is None:
        evidence["last_seen"] = "never by this watcher"
    else:
        ago, beat = now - seen.at, seen.heartbeat
        evidence["last_seen"] = f"{utc(wall - ago)}, {duration(ago)} ago"
        evidence["last_heartbeat"] = (
            "unknown" if beat is None else f"{utc(beat)} by the driver's clock"
        )
        # By query: its state, or the alert that the driver has reported.
        unhealthy = {**seen.unhealthy, **dict(driver.reported)}
        names = [f"{name}: {what}" for name, what in unhealthy.items()]
        evidence["unhealthy_before"] = (
            listed(names, MAX_UNHEALTHY) or "none: every query was healthy"
        )
    evidence[NEXT_STEPS] = _steps(driver)
    reason = f"driver {_how(driver)} ({detail})"
    return Finding(
        alertname=DRIVER_DOWN,
        query=WHOLE_DRIVER,
        severity=Severity.WARNING if is_mild(driver) else Severity.CRITICAL,
        state=QueryState.MISSING,
        facts=Reported(reason=reason, summary=reason, evidence=evidence),
    )


def late_finding(driver: WatchedDriver, query: str, due: float) -> Finding:
    """The finding about a run that has not completed in time, while its driver is not there."""
    reason = (
        f"no run has completed for {utc(due)}, as far as its driver has said, and that has "
        "ended and has not come back"
    )
    return Finding(
        alertname=QUERY_MISSING,
        query=query,
        severity=Severity.CRITICAL,
        state=QueryState.MISSING,
        facts=Reported(
            reason=reason,
            summary=f"{query} has not completed in time: {reason}",
            evidence={ADDRESS: driver.endpoint.shown, NEXT_STEPS: STEPS_OF_LATE},
        ),
    )


def is_mild(driver: WatchedDriver) -> bool:
    """Whether its end may be meant: nobody announced it, and its receivers got a warning."""
    return driver.notice is Notice.ENDED


def _how(driver: WatchedDriver) -> str:
    if driver.may_restart:
        return f"{_has_ended(driver)} and has not come back"
    if not driver.seen or driver.last is None:
        return "has never answered since the watcher started"
    return HOW.get(driver.last.said, "")


def _steps(driver: WatchedDriver) -> str:
    """Its own next steps; empty where those of the runbook fit."""
    if driver.may_restart:
        return ""
    if not driver.seen or driver.last is None:
        return STEPS_OF_NEVER
    return STEPS.get(driver.last.said, "")


def _has_ended(driver: WatchedDriver) -> str:
    """How a driver that may come back has ended."""
    said = MAY_COME_BACK.get(driver.notice, "")
    if driver.reported and not said:
        return f"has ended after it reported {_named(driver.reported)}"
    if driver.end_expected and driver.notice is not Notice.ENDED:
        return "has ended as announced"
    return said or "has ended after it reported an alert"


def _named(alerts: OpenAlerts) -> str:
    """``StreamingQueryFailed of gold``; an alert of the whole driver by its name alone."""
    return listed(
        [name if query == WHOLE_DRIVER else f"{name} of {query}" for query, name in alerts]
    )


def blind_finding(refusals: dict[str, str]) -> Finding:
    """The finding about drivers that refuse the watcher: the answer of each."""
    names = sorted(refusals)
    reason = f"{listed(names)}: {refusals[names[0]]}; {ADVICE}"
    return Finding(
        alertname=MONITORING_DEGRADED,
        query=WHOLE_DRIVER,
        severity=Severity.WARNING,
        state=QueryState.RUNNING,
        facts=Reported(
            reason=reason,
            summary=f"querypulse watch cannot see: {reason}",
            evidence={"drivers": ", ".join(names)},
        ),
    )


# -- incidents --------------------------------------------------------------------------------


REFUSED_SECONDS = 15.0
"""During a token rotation, driver and watcher may differ briefly without an alert."""
APP = "querypulse-watch"
"""Label ``app`` of alerts about the watcher itself, and the name of its spool."""


class _Open(msgspec.Struct):
    """An open incident, as it was at monotonic ``since``; it has one alert.

    ``was_back``: its driver answered again and may have resolved it itself, as every driver does
    with what is left open of it. ``was_resent``: it was sent again. ``is_forgotten``: somebody has
    said that its driver will not come back.
    """

    incident: Incident
    since: float
    was_back: bool = False
    was_resent: bool = False
    is_forgotten: bool = False

    @property
    def alert(self) -> Alert:
        """Its only alert."""
        return self.incident.alerts[0]

    @property
    def is_of_driver(self) -> bool:
        """Whether it is about a driver, not about a run of a query that is late."""
        return self.query == WHOLE_DRIVER

    @property
    def query(self) -> str:
        """The query that it is about; ``*`` for a driver."""
        return self.alert.labels["query"]

    @property
    def address(self) -> str:
        """The address at which its driver was polled."""
        return self.alert.annotations.get(ADDRESS, "")

    @property
    def url(self) -> str:
        """That address without the IP address of a DNS name."""
        return self.address.partition(" ")[0]

    def is_about(self, driver: WatchedDriver) -> bool:
        """Whether it is about ``driver``; one without an app may be any at its URL."""
        if self.url != driver.endpoint.url:
            return False
        names = (driver.name, driver.full_name, driver.address)
        return not driver.app or self.alert.labels["app"] in names

    def ended(self, wall: float, outcome: AlertOutcome) -> Incident:
        """The incident, ended."""
        return replace(self.incident, alerts=(self.alert.ended(wall, outcome),))

    def at(self, now: float, repeat_seconds: float, muted: Callable[[Alert], str]) -> Incident:
        """The incident now, with its reminders, and why it is silenced."""
        why = muted(self.alert)
        return replace(
            self.incident,
            alerts=(replace(self.alert, muted=why),),
            revision=self.incident.revision + int((now - self.since) // repeat_seconds),
            muted=why,
        )


class DriverAlerts:
    """Opens an incident for each driver of ``tracker`` that is down; resolves it when it is back.

    One more, about the watcher itself, names all drivers that refuse it. ``forgotten`` are apps
    that will not come back: what an earlier watcher left open about them ends.
    """

    def __init__(
        self,
        tracker: TargetTracker,
        *,
        resolve_after_seconds: float,
        repeat_interval_seconds: float,
        guidance: Guidance,
        forgotten: Collection[str] = (),
    ) -> None:
        self.tracker = tracker
        self._forgotten = forgotten
        self._resolve_after = resolve_after_seconds
        self._repeat_interval = repeat_interval_seconds
        self._guidance = guidance
        self._open: dict[str, _Open] = {}
        self._known: set[str] = set()
        """The keys that have been open, or were resolved for an earlier watcher."""
        self._logged: set[str] = set()
        """The newest log line of each driver."""

    def restore(self, incidents: Iterable[Incident], now: float) -> None:
        """Continue what another watcher has opened; each resolves with a healthy driver."""
        for incident in incidents:
            if not incident.is_over and incident.key not in self._open:
                entry = self._begin(incident, now)
                entry.is_forgotten = incident.labels["app"] in self._forgotten

    def update(
        self, now: float, wall: float, muted: Callable[[Alert], str] = lambda _: ""
    ) -> tuple[Incident, ...]:
        """All open incidents, those that have just ended, and orphans.

        Orphans may have been left open by an earlier watcher. ``muted`` returns why an alert is
        silenced now.
        """
        refusals = self._refusals(now)
        outcomes = {key: self._outcome(entry, refusals, now) for key, entry in self._open.items()}
        over = [
            self._open.pop(key).ended(wall, outcome) for key, outcome in outcomes.items() if outcome
        ]
        for entry in self._open.values():
            if entry.is_of_driver:
                self._renew(entry)
        for driver, name in self.tracker.names():
            if self._is_gone(driver) and self._entry_of(driver) is None:
                self._begin(self._down(driver, name, now, wall), now)
            self._follow_runs(driver, name, now, wall)
        if refusals:
            self._follow_refusals(refusals, now, wall)
        still_open = (entry.at(now, self._repeat_interval, muted) for entry in self._open.values())
        shown = (
            replace(incident, alerts=self._guidance.recorded(incident.alerts, incident.recording))
            for incident in (*over, *still_open)
        )
        return (*shown, *self._orphans())

    def news(self) -> list[str]:
        """The drivers whose status has changed since the last call, as log lines."""
        lines = [self._status_of(driver, name) for driver, name in self.tracker.names()]
        changed = [line for line in lines if line and line not in self._logged]
        self._logged = set(lines)
        return changed

    def seen(self, now: float, wall: float) -> tuple[SeenDriver, ...]:
        """Each driver as it was seen last, for those who look at all of them."""
        return tuple(self._seen(driver, name, wall - now) for driver, name in self.tracker.names())

    def _seen(self, driver: WatchedDriver, name: str, clock: float) -> SeenDriver:
        """One driver; ``clock`` is the Unix time of the monotonic zero."""
        entry = self._entry_of(driver)
        since = None if driver.bad_since is None else clock + driver.bad_since
        return SeenDriver(
            name=name,
            url=driver.endpoint.url,
            state=self._state_of(driver),
            detail="" if driver.last is None or driver.is_healthy else driver.last.detail,
            since=since if entry is None else entry.incident.starts_at,
            labels=driver.labels,
            queries=driver.queries,
            alerts=driver.alerts,
        )

    def _state_of(self, driver: WatchedDriver) -> str:
        if self._entry_of(driver) is not None:
            return DOWN
        if driver.notice is not None:
            return STOPPED if driver.is_stopped else ENDED
        if driver.last is not None and driver.last.said is Said.BARRED:
            return REFUSES
        return UP if driver.is_healthy else UNANSWERED

    def _follow_runs(self, driver: WatchedDriver, name: str, now: float, wall: float) -> None:
        """Open an incident for each query whose run is late, once its driver has ended.

        While it runs, it reports that by itself.
        """
        if driver.notice is None and not self._is_gone(driver):
            return
        for query, due in driver.overdue(wall).items():
            if self._has_passed(driver, query, due):
                continue
            alert = alert_of(late_finding(driver, query, due), name, self._guidance, due)
            alert = replace(alert, labels={**alert.labels, **driver.labels})
            incident = _incident(alert, driver.labels)
            if incident.key not in self._open:
                self._begin(incident, now)

    def _has_passed(self, driver: WatchedDriver, query: str, due: float) -> bool:
        """Whether the job has completed that run elsewhere: another driver of it is due later."""
        return any(
            other.due.get(query, 0.0) > due
            for other in self.tracker.drivers
            if (other.app, other.labels) == (driver.app, driver.labels)
        )

    def _entry_of(self, driver: WatchedDriver) -> _Open | None:
        entries = (entry for entry in self._open.values() if entry.is_of_driver)
        return next((entry for entry in entries if entry.is_about(driver)), None)

    def _drivers_of(self, entry: _Open) -> list[WatchedDriver]:
        return [driver for driver in self.tracker.drivers if entry.is_about(driver)]

    def _begin(self, incident: Incident, now: float) -> _Open:
        entry = self._open[incident.key] = _Open(incident, now)
        self._known.add(incident.key)
        return entry

    def _down(self, driver: WatchedDriver, name: str, now: float, wall: float) -> Incident:
        since = now if driver.bad_since is None else driver.bad_since
        finding = down_finding(driver, now, wall)
        alert = alert_of(finding, name, self._guidance, wall - (now - since))
        return _incident(replace(alert, labels={**alert.labels, **driver.labels}), driver.labels)

    def _refusals(self, now: float) -> dict[str, str]:
        """The drivers that refuse the watcher for a while: the answer of each."""
        return {
            endpoint.shown: state.poll.detail
            for endpoint, state in self.tracker.endpoint_states.items()
            if state.poll is not None
            and state.refused_since is not None
            and now - state.refused_since >= REFUSED_SECONDS
        }

    def _follow_refusals(self, refusals: dict[str, str], now: float, wall: float) -> None:
        """Open the incident about the watcher itself, or bring its text up to date."""
        alert = alert_of(blind_finding(refusals), APP, self._guidance, wall)
        incident = _incident(alert, {})
        entry = self._open.get(incident.key)
        if entry is None:
            self._begin(incident, now)
        else:
            alert = replace(alert, starts_at=entry.alert.starts_at)
            entry.incident = replace(entry.incident, alerts=(alert,))

    def _outcome(self, entry: _Open, refusals: dict[str, str], now: float) -> AlertOutcome | None:
        """How an incident has ended; None while it is open."""
        if entry.incident.labels["app"] == APP:
            # An earlier watcher's stays open until this one may have been refused for long enough.
            is_open = refusals or now - entry.since < 2 * REFUSED_SECONDS
            return None if is_open else AlertOutcome.ACCEPTED
        drivers = self._drivers_of(entry)
        if not entry.is_of_driver:
            # A driver that is back reports by itself what is late from then on: in this incident,
            # which is then open until the driver has resolved it.
            is_open = any(entry.query in dict(driver.reported) for driver in drivers)
            is_past = any(
                self._has_passed(driver, entry.query, driver.due.get(entry.query, math.inf))
                for driver in drivers
            )
            if is_past or (any(map(self._is_healthy, drivers)) and not is_open):
                return AlertOutcome.ANSWERS
        elif outcome := self._outcome_of(drivers, is_critical=entry.alert.is_critical):
            return outcome
        if not self.tracker.is_watched(entry.url):
            return AlertOutcome.DRIVER_UNWATCHED
        return AlertOutcome.FORGOTTEN if entry.is_forgotten else None

    def _outcome_of(
        self, drivers: list[WatchedDriver], *, is_critical: bool
    ) -> AlertOutcome | None:
        """How an incident about these drivers has ended; None while it is open."""
        if any(driver.is_stopped for driver in drivers):
            return AlertOutcome.SHUT_DOWN
        if not is_critical and any(map(self._is_down, drivers)):
            return AlertOutcome.DOWN_AGAIN
        return AlertOutcome.ANSWERS if any(map(self._is_healthy, drivers)) else None

    def _renew(self, entry: _Open) -> None:
        """Send an incident again that its driver may have resolved before it was gone again."""
        drivers = self._drivers_of(entry)
        if entry.was_back and any(self._is_gone(driver) for driver in drivers):
            entry.incident = replace(entry.incident, revision=entry.incident.revision + 1)
            entry.was_back, entry.was_resent = False, True
        elif any(self._may_have_resolved(driver, entry) for driver in drivers):
            entry.was_back = True

    def _may_have_resolved(self, driver: WatchedDriver, entry: _Open) -> bool:
        """Whether the driver may have counted as healthy for itself.

        Its process counts from its own start, and may run on after the last poll. One that was
        only paused may send a resolve that waited: each process sends it once.
        """
        healthy, unseen = driver.healthy_seconds, 2 * self.tracker.interval_seconds
        is_almost = healthy is not None and healthy + unseen > self._resolve_after
        is_back = healthy is not None or driver.polls_awake > 1
        return is_almost or (is_back and not entry.was_resent)

    def _orphans(self) -> Iterator[Incident]:
        """What an earlier watcher may have left open of drivers that are healthy, once each.

        Only under names that no driver uses: under its own, a driver may have an incident open by
        the time the receiver takes this.
        """
        for driver in filter(self._is_healthy, self.tracker.drivers):
            for name in dict.fromkeys((driver.full_name, driver.address)):
                labels = incident_labels(name, WHOLE_DRIVER, driver.labels)
                for severity in (CRITICAL, WARNING):
                    key = incident_key(labels, severity)
                    if key not in self._known:
                        self._known.add(key)
                        yield Incident(key, labels, severity, ())

    def _status_of(self, driver: WatchedDriver, name: str) -> str:
        entry, status = self._entry_of(driver), ""
        if entry is not None:
            return f"{DRIVER_DOWN}: {entry.alert.annotations.get('summary', name)}"
        if driver.is_stopped:
            status = "shut down gracefully"
        elif driver.notice is not None:
            status = f"{_has_ended(driver)} and may come back"
        elif self.tracker.is_gone(driver):
            status = "is unreachable, and so is everything else: own network down?"
        elif driver.last is not None and driver.last.said is Said.BARRED:
            status = f"refuses this watcher: {driver.last.detail}; {ADVICE}"
        elif driver.seen:
            status = f"is up: {driver.endpoint.shown}"
        return status and f"{name} {status}"

    def _is_gone(self, driver: WatchedDriver) -> bool:
        """Whether it is down, and the network is not to blame."""
        works = not driver.is_unsure or self.tracker.network_works(driver)
        return works and self.tracker.is_gone(driver)

    def _is_down(self, driver: WatchedDriver) -> bool:
        """Whether it is down, and nothing says that this may be meant."""
        return self._is_gone(driver) and not is_mild(driver)

    def _is_healthy(self, driver: WatchedDriver) -> bool:
        """Whether it answers for long enough, or has itself resolved that it is down.

        Both share one incident: sent again after that, it would fire again.
        """
        healthy = driver.healthy_seconds
        return healthy is not None and (driver.has_resolved or healthy >= self._resolve_after)


def _incident(alert: Alert, labels: dict[str, str]) -> Incident:
    """The incident of one alert; ``labels`` are those of the settings."""
    severity = alert.labels["severity"]
    of = incident_labels(alert.labels["app"], alert.labels["query"], labels)
    recording = recording_id(of, alert.starts_at)
    return Incident(incident_key(of, severity), of, severity, (alert,), recording=recording)
