"""From findings to incidents: what people are notified of, when, and when it ends.

It is level-triggered: each update takes all findings, and returns all open incidents and those that
have just ended. ``now`` is in monotonic, ``wall`` in Unix seconds; there is no clock, thread or
socket.

An *alert* is one problem of one query. A rule that finds it at two evaluations in a row (a failure:
at one) opens it; it ends once its query has recovered. One that opens for the third time within a
day is held open until it has been absent for as long as those three took (15 min to 2 h).

An *incident* holds the open alerts of one subject: a query, or the driver (``*``). It opens with
the first and resolves with the last. It is critical while one of them is: when that changes, the
incident ends and one of the other severity opens. People are notified when an incident opens, when
a failure or another query joins it, and every ``repeat_interval_seconds``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ..core.text import duration
from ..listener.state.identity import RESERVED
from ..listener.state.snapshot import Snapshot
from .alert import (
    CRITICAL,
    INCIDENT,
    OF_CRITICAL,
    OF_WARNING,
    WARNING,
    Alert,
    Incident,
    Silence,
    incident_key,
    incident_labels,
    why_muted,
)
from .alert_text import UNSEEN, Guidance, alert_of
from .evaluate import Evaluation, Stages
from .finding import (
    DRIVER_DOWN,
    QUERY_FAILED,
    QUERY_GIVEN_UP,
    QUERY_STALLED,
    WHOLE_DRIVER,
    Finding,
    code_of,
)
from .recovery import DriverHealth, FirstHealth, RecoveryWindow

FACTS = frozenset({QUERY_FAILED, QUERY_GIVEN_UP, DRIVER_DOWN})
"""Alerts about what Spark itself has reported. They open at once, and nothing suppresses them."""
POLLS = 2
UNSEEN_SECONDS = 24 * 3600.0
"""An alert of an earlier process waits this long for its query to be seen."""
GROUP_SIZE = 3
GROUP_SECONDS = 10.0
FLAPS = 3
FLAP_WINDOW_SECONDS = 24 * 3600.0
SHORTEST_CALM_SECONDS, LONGEST_CALM_SECONDS = 15 * 60.0, 2 * 3600.0
MAX_REMEMBERED = 1000
RECOVERS = "it recovers"

Identity = tuple[str, str]
"""The name of an alert, and its query."""


class LifecycleSettings(msgspec.Struct, frozen=True):
    """How long a query must be healthy before its alerts end, and how often people are reminded."""

    resolve_after_seconds: float = 30.0
    repeat_interval_seconds: float = 4 * 3600.0


class Round(msgspec.Struct, frozen=True):
    """What one update knows: the health of the queries, Unix time, and the silences."""

    health: DriverHealth
    wall: float
    silences: Sequence[Silence]

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self.health.now


class Suppressed(msgspec.Struct, frozen=True):
    """An alert that does not open, and the one that suppresses it."""

    alert: Alert
    by: Alert


# -- alerts -----------------------------------------------------------------------------------


class Tracked(msgspec.Struct, frozen=True):
    """One alert: pending until ``opened_at``, then firing while ``is_found``, else recovering.

    ``subject`` is the query of its incident; empty while the alert waits for others that share its
    ``cause``. ``calm_seconds``: it keeps coming back, and ends after so much calm.
    ``unseen_since``: an earlier process left it open, and this one has not seen its query since.
    """

    alert: Alert
    cause: str = ""
    polls: int = 1
    opened_at: float | None = None
    subject: str = ""
    is_found: bool = True
    recovery: RecoveryWindow | None = None
    calm_seconds: float = 0.0
    unseen_since: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether people may be notified of it."""
        return self.opened_at is not None

    @property
    def is_ripe(self) -> bool:
        """Whether it was found often enough to open."""
        return not self.is_open and (self.polls >= POLLS or self.alert.name in FACTS)

    @property
    def is_firing(self) -> bool:
        """Whether its query is unhealthy, or has not been seen yet."""
        return self.is_open and (self.is_found or self.unseen_since is not None)

    def find(self, alert: Alert, health: DriverHealth) -> Tracked:
        """The alert with the newest texts and its old start."""
        return replace(
            self,
            alert=replace(alert, starts_at=self.alert.starts_at),
            polls=self.polls + 1,
            is_found=True,
            recovery=None,
            unseen_since=None if health.knows(alert.query) else self.unseen_since,
        )

    def miss(self, health: DriverHealth) -> Tracked:
        """The alert without its finding: it recovers unless its query is unhealthy otherwise."""
        query = self.alert.query
        if self.unseen_since is not None and not health.knows(query):
            return replace(self, is_found=False, recovery=None)
        return replace(
            self,
            is_found=False,
            recovery=health.recovery(query, self.alert.labels["severity"], self.recovery),
            unseen_since=None if health.has_seen(query) else self.unseen_since,
        )

    def shown(self, now: Round) -> Alert:
        """The alert with notes: its incident, why it is held open, why nobody is notified of it."""
        flapping = (
            f"it has fired {FLAPS} times within {duration(FLAP_WINDOW_SECONDS)}: "
            f"held open until {duration(self.calm_seconds)} of calm"
        )
        notes = {
            INCIDENT: "" if self.subject == self.alert.query else self.subject,
            "flapping": flapping if self.calm_seconds else "",
            "muted": why_muted(self.alert, now.silences, now.wall),
        }
        notes = {name: text for name, text in notes.items() if text}
        return replace(self.alert, annotations={**self.alert.annotations, **notes})


def cause_of(finding: Finding) -> str:
    """What findings of one name must share to be one incident: an error class, or a code."""
    return finding.cause or finding.evidence.get("error_class", "") or code_of(finding.reason)


# -- alerts that keep coming back ---------------------------------------------------------------


class Opened(msgspec.Struct, frozen=True):
    """When one alert opened lately: at most three times, within a day."""

    alertname: str
    query: str
    at: tuple[float, ...]


class OpenedTimes:
    """When each alert opened lately, also in earlier processes. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._times: dict[Identity, tuple[float, ...]] = {}

    def records(self) -> tuple[Opened, ...]:
        """What the next process needs."""
        return tuple(Opened(*identity, at) for identity, at in self._times.items())

    def restore(self, records: Iterable[Opened], now: float) -> None:
        """Add what earlier processes recorded; a time in the future counts as now."""
        for record in records:
            identity = (record.alertname, record.query)
            past = (min(at, now) for at in record.at)
            self._times[identity] = tuple(sorted((*past, *self._times.get(identity, ()))))[-FLAPS:]

    def add(self, identity: Identity, now: float) -> float:
        """Record that the alert opens; return ``calm_seconds``."""
        begin = now - FLAP_WINDOW_SECONDS
        times = (*(at for at in self._times.pop(identity, ()) if at >= begin), now)
        self._times = {other: at for other, at in self._times.items() if at[-1] >= begin}
        self._times[identity] = times[-FLAPS:]
        if len(self._times) > MAX_REMEMBERED:
            del self._times[next(iter(self._times))]
        return self.calm_seconds(identity)

    def calm_seconds(self, identity: Identity) -> float:
        """How long an alert that keeps coming back must be absent before it ends; 0 for others."""
        times = self._times.get(identity, ())
        if len(times) < FLAPS:
            return 0.0
        return min(LONGEST_CALM_SECONDS, max(SHORTEST_CALM_SECONDS, times[-1] - times[0]))


# -- incidents --------------------------------------------------------------------------------


class OpenIncident(msgspec.Struct, frozen=True):
    """What people know of an open incident; its open alerts are tracked apart.

    ``ended`` are alerts that have ended since it opened. ``notified_at`` (monotonic seconds) is
    None until people are notified, ``muted`` why they are not now; ``news`` is what they were
    notified of, see ``_news``.
    """

    severity: str
    ended: tuple[Alert, ...] = ()
    revision: int = 0
    notified_at: float | None = None
    muted: str = ""
    news: frozenset[Identity] = frozenset()

    @property
    def is_critical(self) -> bool:
        """Whether one of its alerts is critical."""
        return self.severity == CRITICAL


class Lifecycle:
    """All alerts and incidents of one driver.

    After each update, ``alerts`` are all open alerts, ``suppressed`` those that an alert of the
    whole driver suppresses, and ``errors`` what went wrong with single alerts. ``labels`` are those
    of the settings.
    """

    def __init__(
        self,
        app: str,
        guidance: Guidance,
        terms: LifecycleSettings,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.alerts: tuple[Alert, ...] = ()
        self.suppressed: tuple[Suppressed, ...] = ()
        self.errors: dict[str, Exception] = {}
        self._app = app
        self._labels = dict(labels or {})
        self._guidance = guidance
        self._terms = terms
        self._tracked: dict[Identity, Tracked] = {}
        self._incidents: dict[str, OpenIncident] = {}
        self._opened = OpenedTimes()
        self._first_health = FirstHealth(app)

    @property
    def opened(self) -> tuple[Opened, ...]:
        """When alerts opened lately, for the next process."""
        return self._opened.records()

    def restore_opened(self, records: Iterable[Opened], now: float) -> None:
        """Add when alerts opened in earlier processes."""
        self._opened.restore(records, now)
        for identity, tracked in self._tracked.items():
            if tracked.is_open:
                calm = max(tracked.calm_seconds, self._opened.calm_seconds(identity))
                self._tracked[identity] = replace(tracked, calm_seconds=calm)

    def restore(self, incidents: Iterable[Incident], now: float) -> None:
        """Continue the incidents that an earlier process left open.

        Several receivers may have stored the same: the critical one with the highest revision wins.
        """
        for incident in sorted(
            incidents, key=lambda incident: (incident.is_critical, incident.revision), reverse=True
        ):
            own = self._incidents.get(incident.query)
            if incident.is_over or (own is not None and own.is_critical >= incident.is_critical):
                continue
            alerts = {
                (alert.name, alert.query): alert
                for alert in incident.firing
                if (alert.name, alert.query) not in self._tracked
            }
            for identity, alert in alerts.items():
                self._tracked[identity] = Tracked(
                    alert,
                    polls=0,
                    opened_at=float("-inf"),
                    subject=incident.query,
                    is_found=False,
                    calm_seconds=self._opened.calm_seconds(identity),
                    unseen_since=now,
                )
            if own is not None or not alerts:
                continue
            self._incidents[incident.query] = OpenIncident(
                incident.severity,
                tuple(alert for alert in incident.alerts if alert.ends_at is not None),
                incident.revision,
                # One that is silenced may never have been sent.
                notified_at=None if incident.muted else now,
                muted=incident.muted,
                news=_news(alerts.values()),
            )

    def update(
        self,
        evaluation: Evaluation,
        snapshot: Snapshot,
        now: float,
        wall: float,
        silences: Sequence[Silence] = (),
        *,
        is_last: bool = False,
    ) -> tuple[Incident, ...]:
        """All open incidents, those that have just ended, and what earlier processes may have left.

        ``is_last``: the process ends, and no alert can wait for others of its cause.
        """
        update = Round(DriverHealth(evaluation, snapshot, now), wall, silences)
        self._follow(evaluation.findings, update)
        self._open(update)
        self._place(now, is_last=is_last)
        shown = {
            identity: tracked.shown(update)
            for identity, tracked in self._tracked.items()
            if tracked.is_open
        }
        self.alerts = tuple(shown.values())
        incidents = tuple(self._present(shown, update))
        return incidents + self._stale(update.health, {incident.key for incident in incidents})

    # Alerts

    def is_silenced(self, finding: Finding, silences: Sequence[Silence], wall: float) -> bool:
        """Whether nobody would be notified of the finding at Unix time ``wall``."""
        return bool(why_muted(self._alert_of(finding, wall), silences, wall))

    def _follow(self, findings: Iterable[Finding], update: Round) -> None:
        """Update each alert with its finding, or with the absence of it, and end what is over."""
        stages = Stages()
        present = {(finding.alertname, finding.query): finding for finding in findings}
        for identity, finding in present.items():
            stages.run(self._find, identity, finding, update)
        for identity in [identity for identity in self._tracked if identity not in present]:
            stages.run(self._miss, identity, update)
        self.errors = stages.errors

    def _alert_of(self, finding: Finding, wall: float) -> Alert:
        return alert_of(finding, self._app, self._guidance, wall, self._labels)

    def _find(self, identity: Identity, finding: Finding, update: Round) -> None:
        alert = self._alert_of(finding, update.wall)
        tracked = self._tracked.get(identity)
        if tracked is None:
            self._tracked[identity] = Tracked(alert, cause_of(finding))
            return
        before, newer = tracked.alert, tracked.find(alert, update.health)
        if tracked.is_open and alert.is_critical != before.is_critical:
            # An open alert never becomes less severe: a value that oscillates around its limit
            # would notify each time.
            if before.is_critical or self._suppressor(newer, update) is not None:
                newer = replace(newer, alert=replace(newer.alert, labels=before.labels))
            else:
                ended = before.ended(update.wall, superseded_by="the critical alert")
                self._add_ended(tracked, ended)
        self._tracked[identity] = newer

    def _miss(self, identity: Identity, update: Round) -> None:
        health = update.health
        tracked = self._tracked[identity] = self._tracked[identity].miss(health)
        if not tracked.is_open:
            del self._tracked[identity]
            return
        alert, recovery, unseen = tracked.alert, tracked.recovery, tracked.unseen_since
        calm = max(self._terms.resolve_after_seconds, tracked.calm_seconds)
        if unseen is not None and update.now - unseen >= UNSEEN_SECONDS:
            outcome = UNSEEN[0]
        elif recovery is not None and health.has_recovered(alert.query, recovery, calm):
            outcome = health.outcome(alert.query, alert.name, recovery)
        else:
            return
        del self._tracked[identity]
        self._add_ended(tracked, alert.ended(update.wall, outcome=outcome))

    def _add_ended(self, tracked: Tracked, ended: Alert) -> None:
        incident = self._incidents.get(tracked.subject)
        if incident is not None:
            others = tuple(alert for alert in incident.ended if alert.labels != ended.labels)
            self._incidents[tracked.subject] = replace(incident, ended=(*others, ended))

    def _open(self, update: Round) -> None:
        """Open the alerts that are ripe, those of the driver first, unless it suppresses them."""
        ripe = [tracked for tracked in self._tracked.values() if tracked.is_ripe]
        suppressed = []
        for tracked in sorted(ripe, key=lambda tracked: tracked.alert.query != WHOLE_DRIVER):
            alert = tracked.alert
            by = self._suppressor(tracked, update)
            if by is not None:
                suppressed.append(Suppressed(alert, by))
                continue
            identity = (alert.name, alert.query)
            # The end of a driver is final: the next one is another incident.
            is_final = alert.name == DRIVER_DOWN
            calm = 0.0 if is_final else self._opened.add(identity, update.now)
            self._tracked[identity] = replace(tracked, opened_at=update.now, calm_seconds=calm)
        self.suppressed = tuple(suppressed)

    def _suppressor(self, tracked: Tracked, update: Round) -> Alert | None:
        """The critical alert of the driver that explains this one, also just after it recovered.

        A failure is never explained away, and what nobody is notified of explains nothing.
        """
        is_drivers_own = tracked.alert.query == WHOLE_DRIVER and tracked.alert.is_critical
        if tracked.alert.name in FACTS or is_drivers_own:
            return None
        for other in self._tracked.values():
            alert, recovery = other.alert, other.recovery
            is_drivers = alert.query == WHOLE_DRIVER and alert.is_critical
            # One that only an earlier process found explains nothing.
            if not is_drivers or not other.is_open or not other.polls:
                continue
            recently = (
                recovery is not None
                and update.health.watched_since(recovery.since) < self._terms.resolve_after_seconds
            )
            is_silenced = why_muted(alert, update.silences, update.wall)
            if (other.is_found or recently) and not is_silenced:
                return alert
        return None

    # Incidents

    def _place(self, now: float, *, is_last: bool) -> None:
        """Give each open alert an incident: its query's, or the driver's for a shared cause."""
        for identity, tracked in self._tracked.items():
            if tracked.is_open and not tracked.subject:
                subject = self._subject_of(tracked, now)
                if subject or is_last or not tracked.is_found:
                    subject = subject or tracked.alert.query
                    self._tracked[identity] = replace(tracked, subject=subject)

    def _subject_of(self, tracked: Tracked, now: float) -> str:
        """Empty while others that share the cause may still come.

        The first of a cause is its query's own, at once: somebody must be notified. Those that
        follow within ``GROUP_SECONDS`` wait until they are enough for a group, or the time is over.
        """
        query = tracked.alert.query
        if query in RESERVED:
            return query
        others = self._tracked.values()
        homes = (other.subject for other in others if other.alert.query == query)
        home = next(filter(None, homes), "")
        incident = self._incidents.get(home)
        is_critical = incident is None or incident.is_critical
        if home and (is_critical or not tracked.alert.is_critical):
            return home
        alike = [
            other
            for other in others
            if other.opened_at is not None
            and now - other.opened_at <= GROUP_SECONDS
            and (other.alert.name, other.cause) == (tracked.alert.name, tracked.cause)
        ]
        if not self._is_free_for(alike):
            return query
        if len(alike) >= GROUP_SIZE:
            return WHOLE_DRIVER
        is_first = not any(
            other.subject or (other.opened_at or 0.0) < (tracked.opened_at or 0.0)
            for other in alike
        )
        return query if is_first else ""

    def _is_free_for(self, alike: Sequence[Tracked]) -> bool:
        """Whether the driver's incident is that of this group, or people would be notified of it.

        What joins an open critical incident notifies nobody at PagerDuty.
        """
        whole = [other for other in self._tracked.values() if other.subject == WHOLE_DRIVER]
        if any(other in whole for other in alike):
            return True
        incident = self._incidents.get(WHOLE_DRIVER)
        if incident is None and not whole:
            return True
        # What has just opened, such as another group, is not in the incident yet.
        is_critical = any(other.alert.is_critical for other in whole)
        is_critical |= incident is not None and incident.is_critical
        return not is_critical and any(other.alert.is_critical for other in alike)

    def _present(self, shown: Mapping[Identity, Alert], update: Round) -> Iterator[Incident]:
        """Each incident as it is now; one that has ended is shown once more, with its end."""
        members: dict[str, list[Tracked]] = {subject: [] for subject in self._incidents}
        for identity, alert in shown.items():
            tracked = self._tracked[identity]
            if tracked.subject:
                members.setdefault(tracked.subject, []).append(replace(tracked, alert=alert))
        for subject, alerts in members.items():
            incident = self._incidents.pop(subject, None)
            if not alerts:
                if incident is not None:
                    yield self._incident(subject, incident, incident.ended)
                continue
            severity = _severity(alerts, incident)
            if incident is not None and incident.severity != severity:
                yield self._hand_over(subject, incident, alerts, update.wall)
                incident = OpenIncident(severity, muted=incident.muted or RECOVERS)
            incident = incident or OpenIncident(severity)
            yield self._present_open(subject, incident, alerts, update)

    def _present_open(
        self, subject: str, incident: OpenIncident, members: Sequence[Tracked], update: Round
    ) -> Incident:
        """The incident with the newest texts; its revision grows when people must be notified."""
        alerts = [tracked.alert for tracked in sorted(members, key=_prominence)]
        # What is silenced beside what is not is sent to nobody.
        alerts = [alert for alert in alerts if not alert.muted] or alerts
        fires = any(tracked.is_firing for tracked in members)
        muted = min(alert.muted for alert in alerts)
        notified_at = incident.notified_at
        if not muted and not fires and notified_at is None:
            # What recovers is not sent only because its silence has ended.
            muted = incident.muted
        news, revision = _news(alerts), incident.revision
        if not muted:
            joined = not news <= incident.news
            repeat = self._terms.repeat_interval_seconds
            if notified_at is None:
                notified_at = update.now
            elif joined or (fires and update.now - notified_at >= repeat):
                revision, notified_at = revision + 1, update.now
        open_again = [alert.labels for alert in alerts]
        incident = self._incidents[subject] = replace(
            incident,
            ended=tuple(alert for alert in incident.ended if alert.labels not in open_again),
            revision=revision,
            notified_at=notified_at,
            muted=muted,
            news=incident.news if muted else news,
        )
        return self._incident(subject, incident, (*alerts, *incident.ended))

    def _hand_over(
        self, subject: str, incident: OpenIncident, members: Sequence[Tracked], wall: float
    ) -> Incident:
        """The end of an incident whose alerts go on in that of the other severity.

        Nobody is notified of one in which everything recovers already: there, they have ended.
        """
        successor = OF_WARNING if incident.is_critical else OF_CRITICAL
        fires = any(tracked.is_firing for tracked in members)
        notes = {"superseded_by": successor} if fires else {}
        moved = [tracked.alert.ended(wall, **notes) for tracked in members]
        alerts = (*incident.ended, *moved) if incident.is_critical else (*moved, *incident.ended)
        return self._incident(subject, incident, alerts)

    def _incident(self, subject: str, incident: OpenIncident, alerts: Iterable[Alert]) -> Incident:
        labels = incident_labels(self._app, subject, self._labels)
        severity, revision = incident.severity, incident.revision
        key = incident_key(labels, severity)
        return Incident(key, labels, severity, tuple(alerts), revision, incident.muted)

    def _stale(self, health: DriverHealth, shown: Collection[str]) -> tuple[Incident, ...]:
        """Ends of what earlier processes may have left open, critical ones first."""
        healthy = self._first_health.update(health, self._terms.resolve_after_seconds)
        incidents = (
            self._incident(query, OpenIncident(severity), ()) for severity, query in healthy
        )
        return tuple(incident for incident in incidents if incident.key not in shown)


def _news(alerts: Iterable[Alert]) -> frozenset[Identity]:
    """What people must be notified of in an open incident: each query, each fact, and a stall.

    A warning that joins a critical incident is no news; nor is a stall that joins one.
    """
    loud = [alert for alert in alerts if not alert.muted]
    severe = [alert for alert in loud if alert.is_critical] or loud
    named = {
        (alert.name, alert.query)
        for alert in severe
        if alert.name in FACTS or (alert.name == QUERY_STALLED and not alert.is_critical)
    }
    return frozenset({("", alert.query) for alert in severe} | named)


def _severity(members: Sequence[Tracked], incident: OpenIncident | None) -> str:
    """Critical while an alert is that somebody is notified of; a later silence ends nothing."""
    critical = [tracked.alert for tracked in members if tracked.alert.is_critical]
    is_silent = all(tracked.alert.muted for tracked in members)
    was_critical = (
        incident is not None and incident.is_critical and incident.notified_at is not None
    )
    if critical and (is_silent or was_critical or not all(alert.muted for alert in critical)):
        return CRITICAL
    return WARNING


def _prominence(tracked: Tracked) -> tuple[bool, bool, bool, bool, float]:
    """Sort key: firing, facts before inferences, critical before warnings, stalls, oldest first."""
    alert = tracked.alert
    is_fact, is_stall = alert.name in FACTS, alert.name == QUERY_STALLED
    return not tracked.is_firing, not is_fact, not alert.is_critical, not is_stall, alert.starts_at


# -- evaluated --------------------------------------------------------------------------------


class Evaluated(msgspec.Struct, frozen=True):
    """What was evaluated, what was found, and the alerts that are open."""

    snapshot: Snapshot
    evaluation: Evaluation
    alerts: tuple[Alert, ...]
    suppressed: tuple[Suppressed, ...] = ()
    passed: dict[str, float] = {}
    """By label: see ``end_to_end.py``; monotonic seconds."""
