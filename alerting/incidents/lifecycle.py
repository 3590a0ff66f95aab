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
a failure or another query joins it, when a query fails again in a later batch, and every
``repeat_interval_seconds``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from math import inf

import msgspec
from msgspec.structs import replace

from ...listener.mailbox import Ending, ExpectEnd, ExpectStop, Forget
from ...listener.state.freshness import Freshness
from ...listener.state.history import UNKNOWN_BATCH, History, Totals
from ...listener.state.identity import RESERVED
from ...listener.state.snapshot import Snapshot
from ..alert import (
    CRITICAL,
    FLAP_WINDOW_SECONDS,
    FLAPS,
    WARNING,
    Alert,
    GoesOn,
    Incident,
    incident_key,
    incident_labels,
    recording_id,
)
from ..evaluate import Evaluation, Stages
from ..finding import WHOLE_DRIVER, Finding
from ..kinds import (
    DISK_FILLING,
    DRIVER_DOWN,
    DRIVER_MEMORY,
    FRESHNESS_BUDGET_BURNING,
    KINDS,
    QUERY_FAILED,
    QUERY_FLAPPING,
    QUERY_STALLED,
    QUERY_STOPPED,
    Code,
)
from ..silences import Silence, why_muted
from ..words.messages import Guidance, alert_of, labels_of
from .recovery import DriverHealth, FirstHealth, RecoveryWindow

FACTS = frozenset(name for name, kind in KINDS.items() if kind.is_fact)
"""Alerts about what Spark itself has reported. They open at once, and nothing suppresses them."""
FORESEEN = frozenset({DRIVER_MEMORY, DISK_FILLING})
"""Alerts about what will happen. They explain nothing that happens before."""
LOUD_WARNINGS = frozenset({QUERY_STALLED, QUERY_STOPPED})
"""Warnings that are news of an incident of warnings: nothing is committed any more."""
POLLS = 2
GROUP_SIZE = 3
GROUP_SECONDS = 10.0
"""So soon after each other, failures of one error class have one cause."""
OUTAGE_SECONDS = 600.0
"""So long after its last failure, an outage is the cause of another one at the same place."""
NEWS_SECONDS = 300.0
"""Failures of later batches are news of an open incident at most so often."""
SHORTEST_CALM_SECONDS, LONGEST_CALM_SECONDS = 15 * 60.0, 2 * 3600.0
HELD_PAUSE_SECONDS = 10.0
MAX_REMEMBERED = 1000
RECOVERS = "it recovers"

Identity = tuple[str, str]
"""The name of an alert, and its query."""


class LifecycleSettings(msgspec.Struct, frozen=True):
    """How long a query must be healthy before its alerts end, and how often people are reminded."""

    resolve_after_seconds: float = 30.0
    repeat_interval_seconds: float = 4 * 3600.0


class Inhibited(msgspec.Struct, frozen=True):
    """An alert that does not open, and the one that suppresses it."""

    alert: Alert
    by: Alert


class Opened(msgspec.Struct, frozen=True):
    """When one alert opened lately, in monotonic seconds: at most three times, within a day."""

    alertname: str
    query: str
    at: tuple[float, ...] = ()

    @property
    def calm_seconds(self) -> float:
        """How long an alert that keeps coming back must be absent before it ends; 0 for others."""
        if len(self.at) < FLAPS:
            return 0.0
        return min(LONGEST_CALM_SECONDS, max(SHORTEST_CALM_SECONDS, self.at[-1] - self.at[0]))


class Tracked(msgspec.Struct, eq=False):
    """One alert: pending until ``opened_at``, then firing while ``is_found``, else recovering.

    ``alert`` has the newest texts and the first start; ``muted`` says why nobody is notified of it
    now. ``subject`` is the query of its incident; empty while the alert waits for others that share
    its ``cause``. ``calm_seconds``: it keeps coming back, and ends after so much calm.
    ``is_unseen``: an earlier process left it open, and this one has not seen its query yet.
    ``totals`` are the query's when the alert was last found, ``failed_at`` is when it last failed
    in this process (monotonic seconds). ``has_news``: it has failed again in a later batch, and
    nobody was notified of that.
    """

    alert: Alert
    muted: str = ""
    cause: str = ""
    polls: int = 1
    opened_at: float | None = None
    subject: str = ""
    is_found: bool = True
    recovery: RecoveryWindow | None = None
    calm_seconds: float = 0.0
    is_unseen: bool = False
    totals: Totals = Totals()
    failed_at: float = -inf
    has_news: bool = False

    @property
    def is_firing(self) -> bool:
        """Whether its query is unhealthy, or has not been seen yet."""
        return self.is_found or self.is_unseen

    @property
    def shown(self) -> Alert:
        """The alert with its incident, how long it is held open, why nobody is notified of it."""
        is_own = self.subject == self.alert.query
        return replace(
            self.alert,
            incident="" if is_own else self.subject,
            calm_seconds=self.calm_seconds,
            muted=self.muted,
        )


class OpenIncident(msgspec.Struct):
    """What people know of an open incident; its open alerts are tracked apart.

    ``ended`` are alerts that have ended since it opened. ``notified_at`` (monotonic seconds) is
    None until people are notified, ``muted`` why they are not now; ``news`` is what they were
    notified of, see ``_news``. ``recording`` is the id of its recording.
    """

    severity: str
    ended: tuple[Alert, ...] = ()
    revision: int = 0
    notified_at: float | None = None
    muted: str = ""
    news: frozenset[Identity] = frozenset()
    recording: str = ""

    @property
    def is_critical(self) -> bool:
        """Whether one of its alerts is critical."""
        return self.severity == CRITICAL


class Held(msgspec.Struct, frozen=True):
    """What a lifecycle goes on from: all alerts that it tracks, and by query the open incidents."""

    tracked: tuple[Tracked, ...] = ()
    incidents: dict[str, OpenIncident] = {}


class Lifecycle:
    """All alerts and incidents of one driver.

    After each update, ``alerts`` are all open alerts, ``inhibited`` those that an alert of the
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
        self.inhibited: tuple[Inhibited, ...] = ()
        self.errors: dict[str, Exception] = {}
        self._app = app
        self._labels = dict(labels or {})
        self._guidance = guidance
        self._terms = terms
        self._tracked: dict[Identity, Tracked] = {}
        self._incidents: dict[str, OpenIncident] = {}
        self._opened: dict[Identity, Opened] = {}
        self._first_health = FirstHealth(app)

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
        health = DriverHealth(evaluation, snapshot, now)
        found = {(finding.alertname, finding.query): finding for finding in evaluation.findings}
        stages = Stages()
        for identity, tracked in self._tracked.items():
            # What an earlier process left silenced stays so until this one finds it.
            left = "" if identity in found else tracked.alert.muted
            tracked.muted = why_muted(tracked.alert, silences, wall) or left
        for finding in found.values():
            stages.run(self._find, finding, health, wall, silences)
        for identity in [identity for identity in self._tracked if identity not in found]:
            stages.run(self._miss, identity, health, wall)
        self.errors = stages.errors
        self._open(health)
        opened = [tracked for tracked in self._tracked.values() if tracked.opened_at is not None]
        for tracked in opened:
            if not tracked.subject:
                waits = tracked.is_found and not is_last
                tracked.subject = self._subject_of(tracked, now) or (
                    "" if waits else tracked.alert.query
                )
        self.alerts = tuple(tracked.shown for tracked in opened)
        incidents = tuple(self._present(now, wall))
        return incidents + self._orphans(health, [incident.key for incident in incidents])

    @property
    def longest_pause_seconds(self) -> float:
        """How long the next update may wait, and miss nothing; infinite without a new finding.

        An alert that opens, joins an incident or recovers may do so in each second. One that is
        held open recovers for minutes.
        """
        pauses = (
            1.0 if not tracked.calm_seconds else HELD_PAUSE_SECONDS
            for tracked in self._tracked.values()
            if tracked.opened_at is None or not tracked.subject or not tracked.is_found
        )
        return min(pauses, default=inf)

    # To evaluate again

    @property
    def held(self) -> Held:
        """What the next update goes on from; a copy."""
        incidents = {query: copy(incident) for query, incident in self._incidents.items()}
        return Held(tuple(map(copy, self._tracked.values())), incidents)

    def resume(self, held: Held) -> None:
        """Go on from what another lifecycle of the same process has held, which becomes its own."""
        for tracked in held.tracked:
            self._tracked[tracked.alert.name, tracked.alert.query] = tracked
        self._incidents |= held.incidents

    # What an earlier process has left

    @property
    def opened(self) -> tuple[Opened, ...]:
        """When alerts opened lately, for the next process."""
        return tuple(self._opened.values())

    def restore_opened(self, records: Iterable[Opened], now: float) -> None:
        """Add when alerts opened in earlier processes; a time in the future counts as now."""
        for record in records:
            identity = (record.alertname, record.query)
            times = [min(at, now) for at in record.at]
            times += self._opened[identity].at if identity in self._opened else ()
            opened = self._opened[identity] = replace(record, at=tuple(sorted(times)[-FLAPS:]))
            tracked = self._tracked.get(identity)
            if tracked is not None and tracked.opened_at is not None:
                tracked.calm_seconds = max(tracked.calm_seconds, opened.calm_seconds)

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
                    opened_at=-inf,
                    subject=incident.query,
                    is_found=False,
                    calm_seconds=self._opened.get(identity, Opened(*identity)).calm_seconds,
                    is_unseen=True,
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
                recording=incident.recording or recording_id(incident.labels, incident.starts_at),
            )

    def forget(self, query: str) -> None:
        """Let the alerts of a query that will not come back end, also if it was never seen here."""
        for tracked in self._tracked.values():
            if tracked.alert.query == query:
                tracked.is_unseen = False

    # Alerts

    def is_silenced(self, finding: Finding, silences: Sequence[Silence], wall: float) -> bool:
        """Whether nobody would be notified of the finding at Unix time ``wall``."""
        labels = labels_of(finding, self._app, self._labels)
        return bool(why_muted(Alert(labels, {}, wall), silences, wall))

    def planned_until(self, query: str, silences: Sequence[Silence], wall: float) -> float | None:
        """Until when silences make the time of a query planned; None if they do not."""
        name = FRESHNESS_BUDGET_BURNING
        ends = [silence.meant_until(self._app, query, name, wall) for silence in silences]
        return max((end for end in ends if end is not None), default=None)

    def _alert_of(self, finding: Finding, wall: float) -> Alert:
        return alert_of(finding, self._app, self._guidance, wall, labels=self._labels)

    def _find(
        self, finding: Finding, health: DriverHealth, wall: float, silences: Sequence[Silence]
    ) -> None:
        """Update the alert of a finding: the newest texts, and its old start."""
        identity, alert = (finding.alertname, finding.query), self._alert_of(finding, wall)
        tracked, query = self._tracked.get(identity), health.queries.get(alert.query)
        if tracked is None:
            muted = why_muted(alert, silences, wall)
            totals = Totals() if query is None else query.history.totals
            self._tracked[identity] = Tracked(
                alert, muted, finding.group, totals=totals, failed_at=health.now
            )
            return
        before = tracked.alert
        if query is not None:
            _note_failure(tracked, query.history, health.now)
        if tracked.opened_at is not None and alert.is_critical != before.is_critical:
            # An open alert never becomes less severe: a value that oscillates around its limit
            # would notify each time.
            if before.is_critical or self._inhibitor(alert, health) is not None:
                alert = replace(alert, labels=before.labels)
            else:
                ended = before.ended(wall, goes_on=GoesOn.CRITICAL_ALERT)
                self._add_ended(tracked.subject, ended)
        tracked.alert = replace(
            alert, starts_at=before.starts_at, cause=before.cause, outage=before.outage
        )
        tracked.polls += 1
        tracked.is_found, tracked.recovery = True, None
        if health.knows(alert.query):
            tracked.is_unseen = False

    def _miss(self, identity: Identity, health: DriverHealth, wall: float) -> None:
        """Without its finding, an alert recovers unless its query is unhealthy otherwise."""
        tracked = self._tracked[identity]
        if tracked.opened_at is None:
            del self._tracked[identity]
            return
        tracked.is_found, alert = False, tracked.alert
        calm = max(self._terms.resolve_after_seconds, tracked.calm_seconds)
        recovery = None
        if not tracked.is_unseen or health.knows(alert.query):
            recovery = health.recovery(alert.query, alert.labels["severity"], tracked.recovery)
            if health.has_seen(alert.query):
                tracked.is_unseen = False
        tracked.recovery = recovery
        # A warning that comes back soon is quieter as one incident.
        commits = tracked.totals.commits if alert.is_critical else None
        if recovery is not None and health.has_recovered(alert.query, recovery, calm, commits):
            del self._tracked[identity]
            outcome = health.outcome(alert.query, alert.name, recovery)
            caught_up = health.caught_up(alert.query, wall)
            self._add_ended(tracked.subject, alert.ended(wall, outcome, caught_up=caught_up))

    def _add_ended(self, subject: str, ended: Alert) -> None:
        incident = self._incidents.get(subject)
        if incident is not None:
            others = (alert for alert in incident.ended if alert.labels != ended.labels)
            incident.ended = (*others, ended)

    def _open(self, health: DriverHealth) -> None:
        """Open what was found often enough, the driver's first, unless the driver suppresses it."""
        ripe = [
            tracked
            for tracked in self._tracked.values()
            if tracked.opened_at is None and (tracked.polls >= POLLS or tracked.alert.name in FACTS)
        ]
        inhibited = []
        for tracked in sorted(ripe, key=lambda tracked: tracked.alert.query != WHOLE_DRIVER):
            by = self._inhibitor(tracked.alert, health)
            if by is not None:
                inhibited.append(Inhibited(tracked.alert, by))
                continue
            tracked.opened_at = health.now
            # The end of a driver is final: the next one is another incident.
            if tracked.alert.name != DRIVER_DOWN:
                tracked.calm_seconds = self._note_opened(tracked.alert, health.now)
        self.inhibited = tuple(inhibited)

    def _note_opened(self, alert: Alert, now: float) -> float:
        """Record that the alert opens; return how long it must be absent before it ends."""
        begin, identity = now - FLAP_WINDOW_SECONDS, (alert.name, alert.query)
        before = self._opened.pop(identity, Opened(*identity))
        times = (*(at for at in before.at if at >= begin), now)
        lately = {other: opened for other, opened in self._opened.items() if opened.at[-1] >= begin}
        self._opened = lately | {identity: Opened(*identity, times[-FLAPS:])}
        if len(self._opened) > MAX_REMEMBERED:
            del self._opened[next(iter(self._opened))]
        return self._opened[identity].calm_seconds

    def _inhibitor(self, alert: Alert, health: DriverHealth) -> Alert | None:
        """The critical alert of the driver that explains this one, also just after it recovered.

        A failure is never explained away, and what nobody is notified of explains nothing; nor does
        what only an earlier process has found.
        """
        if alert.name in FACTS or (alert.query == WHOLE_DRIVER and alert.is_critical):
            return None
        for other in self._tracked.values():
            is_of_driver = other.alert.query == WHOLE_DRIVER and other.alert.is_critical
            if not is_of_driver or _explains_nothing(other.alert):
                continue
            recovery = other.recovery
            holds = other.is_found or (
                recovery is not None
                and health.watched_since(recovery.since) < self._terms.resolve_after_seconds
            )
            is_open = other.opened_at is not None and other.polls > 0
            if is_open and holds and not other.muted:
                return other.alert
        return None

    # Incidents

    def _subject_of(self, tracked: Tracked, now: float) -> str:
        """Its query, or the driver for a shared cause; empty while others of the cause may come.

        The first of a cause is its query's own, at once: somebody must be notified. Those that
        follow within ``GROUP_SECONDS`` wait until they are enough for a group, or the time is over.
        In an outage, the third one within ``OUTAGE_SECONDS`` is a group, and so are those that
        follow it.
        """
        query = tracked.alert.query
        if query in RESERVED:
            return query
        others = [other for other in self._tracked.values() if other.opened_at is not None]
        homes = (other.subject for other in others if other.alert.query == query)
        home = next(filter(None, homes), "")
        incident = self._incidents.get(home)
        if home and (incident is None or incident.is_critical or not tracked.alert.is_critical):
            return home
        alike = [other for other in others if self._share_cause(other, tracked, now)]
        is_joining = any(other.subject == WHOLE_DRIVER for other in alike)
        whole = [other for other in others if other.subject == WHOLE_DRIVER]
        driver = self._incidents.get(WHOLE_DRIVER)
        # What joins an open incident notifies nobody at PagerDuty, unless it makes it critical. One
        # that has just opened, such as that of another group, is not there yet.
        is_taken = driver is not None or bool(whole)
        was_critical = any(other.alert.is_critical for other in whole)
        was_critical |= driver is not None and driver.is_critical
        is_news = not was_critical and any(other.alert.is_critical for other in alike)
        if is_taken and not is_news and not is_joining:
            return query
        if is_joining or len(alike) >= GROUP_SIZE:
            return WHOLE_DRIVER
        is_first = not any(
            other.subject or (other.opened_at or 0.0) < (tracked.opened_at or 0.0)
            for other in alike
            if _opened_within(GROUP_SECONDS, other, now)
        )
        return query if is_first else ""

    def _share_cause(self, other: Tracked, tracked: Tracked, now: float) -> bool:
        """Whether both fail for one cause: within seconds, or in an outage of one place.

        An outage lasts while ``other`` has not recovered, and what is silenced explains nothing in
        it that is not. Within seconds, one store may have several places, such as its tables.
        """
        alert = other.alert
        if alert.name != tracked.alert.name:
            return False
        if _opened_within(GROUP_SECONDS, other, now) and other.cause == tracked.cause:
            return True
        has_ended = other.recovery is not None
        is_hidden = bool(other.muted) and not tracked.muted
        if not alert.outage or alert.outage != tracked.alert.outage or has_ended or is_hidden:
            return False
        # An earlier process may have seen it fail last.
        opened = self._opened.get((alert.name, alert.query))
        times = () if opened is None else opened.at[-1:]
        return now - max((other.failed_at, *times)) <= OUTAGE_SECONDS

    def _present(self, now: float, wall: float) -> Iterator[Incident]:
        """Each incident as it is now; one that has ended is shown once more, with its end."""
        members: dict[str, list[Tracked]] = {subject: [] for subject in self._incidents}
        for tracked in self._tracked.values():
            if tracked.subject:
                members.setdefault(tracked.subject, []).append(tracked)
        for subject, alerts in members.items():
            incident = self._incidents.pop(subject, None)
            if incident is not None and not alerts:
                yield self._incident(subject, incident, incident.ended)
                continue
            severity = _severity(alerts, incident)
            if incident is not None and incident.severity != severity:
                yield self._hand_over(subject, incident, alerts, wall)
                # Its revisions go on: back at its first severity, it is another message.
                revision = incident.revision + 1
                muted = incident.muted or RECOVERS
                recording = incident.recording
                incident = OpenIncident(
                    severity, revision=revision, muted=muted, recording=recording
                )
            if incident is None:
                labels = incident_labels(self._app, subject, self._labels)
                incident = OpenIncident(severity, recording=recording_id(labels, wall))
            self._incidents[subject] = incident
            yield self._present_open(subject, incident, alerts, now)

    def _present_open(
        self, subject: str, incident: OpenIncident, members: Sequence[Tracked], now: float
    ) -> Incident:
        """The incident with the newest texts; its revision grows when people must be notified."""
        shown = [tracked.shown for tracked in sorted(members, key=_prominence)]
        # What is silenced beside what is not is sent to nobody.
        alerts = [alert for alert in shown if not alert.muted] or shown
        fires, news = any(tracked.is_firing for tracked in members), _news(alerts)
        muted, notified_at = min(alert.muted for alert in alerts), incident.notified_at
        # What has ended is news if it comes again, also during a silence.
        incident.news &= _identities(shown)
        if muted or fires or notified_at is not None:
            # Else it stays muted: what recovers is not sent only because its silence has ended.
            incident.muted = muted
        if not incident.muted:
            self._note_notified(incident, members, now, is_news=not news <= incident.news)
            if incident.notified_at == now:
                for tracked in members:
                    tracked.has_news = tracked.has_news and bool(tracked.muted)
            # What is silenced meanwhile stays known: it is no news when its silence ends.
            silenced = _identities(alert for alert in shown if alert.muted)
            incident.news = news | (incident.news & silenced)
        open_again = [alert.labels for alert in alerts]
        incident.ended = tuple(alert for alert in incident.ended if alert.labels not in open_again)
        return self._incident(subject, incident, (*alerts, *incident.ended))

    def _note_notified(
        self, incident: OpenIncident, members: Sequence[Tracked], now: float, *, is_news: bool
    ) -> None:
        """Note that people are notified now, if they are, and that what is news opens again."""
        if incident.notified_at is None:
            incident.notified_at = now
            return
        fires = any(tracked.is_firing for tracked in members)
        waited = now - incident.notified_at
        is_due = is_news or (fires and waited >= self._terms.repeat_interval_seconds)
        later = [] if is_due else self._failed_later(members, incident, waited)
        for tracked in later:
            tracked.calm_seconds = self._note_opened(tracked.alert, now)
        if is_due or later:
            incident.revision += 1
            incident.notified_at = now

    def _failed_later(
        self, members: Sequence[Tracked], incident: OpenIncident, waited: float
    ) -> list[Tracked]:
        """Those that have failed again in a later batch, of which people should know.

        Not soon after other news, and not of a query that is known to fail again and again.
        """
        if waited < NEWS_SECONDS:
            return []
        return [
            tracked
            for tracked in members
            if tracked.has_news
            and tracked.is_found
            and not tracked.muted
            and tracked.alert.labels["severity"] == incident.severity
            and not tracked.calm_seconds
            and (QUERY_FLAPPING, tracked.alert.query) not in self._tracked
        ]

    def _hand_over(
        self, subject: str, incident: OpenIncident, members: Sequence[Tracked], wall: float
    ) -> Incident:
        """The end of an incident whose alerts go on in that of the other severity.

        Nobody is notified of one in which everything recovers already: there, they have ended.
        """
        successor = GoesOn.WARNING if incident.is_critical else GoesOn.CRITICAL_INCIDENT
        fires = any(tracked.is_firing for tracked in members)
        goes_on = successor if fires else None
        moved = [tracked.shown.ended(wall, goes_on=goes_on) for tracked in members]
        if incident.is_critical:
            return self._incident(subject, incident, (*incident.ended, *moved))
        # What has just become critical was never in this incident.
        was_here = [alert for alert in moved if not alert.is_critical]
        return self._incident(subject, incident, (*was_here, *incident.ended))

    def _incident(self, subject: str, incident: OpenIncident, alerts: Iterable[Alert]) -> Incident:
        labels = incident_labels(self._app, subject, self._labels)
        severity, revision = incident.severity, incident.revision
        key = incident_key(labels, severity)
        recording = incident.recording
        shown = self._guidance.recorded(alerts, recording) if recording else tuple(alerts)
        return Incident(key, labels, severity, shown, revision, incident.muted, recording)

    def _orphans(self, health: DriverHealth, shown: Sequence[str]) -> tuple[Incident, ...]:
        """Ends of what earlier processes may have left open, critical ones first."""
        healthy = self._first_health.update(health, self._terms.resolve_after_seconds)
        incidents = (
            self._incident(query, OpenIncident(severity), ()) for severity, query in healthy
        )
        return tuple(incident for incident in incidents if incident.key not in shown)


def _explains_nothing(alert: Alert) -> bool:
    """Whether an alert of the driver says nothing about now: it is foreseen, or of an attempt."""
    return alert.name in FORESEEN or alert.code == Code.ATTEMPT_LOST


def _opened_within(seconds: float, tracked: Tracked, now: float) -> bool:
    return tracked.opened_at is not None and now - tracked.opened_at <= seconds


def _note_failure(tracked: Tracked, history: History, now: float) -> None:
    """Note the query's totals, and if it failed again: when, and whether in a later batch.

    Commits in between prove a later one, unless the next run goes back (async progress tracking).
    """
    before, totals = tracked.totals, history.totals
    tracked.totals = totals
    if tracked.alert.name != QUERY_FAILED or totals.failed <= before.failed:
        return
    tracked.failed_at = now
    batches = [failure.batch_id for failure in history.failures[-2:]]
    is_same = len(set(batches)) < len(batches) and UNKNOWN_BATCH not in batches
    tracked.has_news |= totals.commits > before.commits and not is_same


def _news(alerts: Iterable[Alert]) -> frozenset[Identity]:
    """What people must be notified of in an open incident: each query, each fact, loud warnings.

    A warning that joins a critical incident is no news; nor is a stall that joins one, unless that
    was only foreseen.
    """
    loud = [alert for alert in alerts if not alert.muted]
    return _identities([alert for alert in loud if alert.is_critical] or loud)


def _identities(alerts: Iterable[Alert]) -> frozenset[Identity]:
    identities = set()
    for alert in alerts:
        identities.add((alert.name if alert.name in FORESEEN else "", alert.query))
        if alert.name in FACTS or (alert.name in LOUD_WARNINGS and not alert.is_critical):
            identities.add((alert.name, alert.query))
    return frozenset(identities)


def _severity(members: Sequence[Tracked], incident: OpenIncident | None) -> str:
    """Critical while an alert is that somebody is notified of; a later silence ends nothing."""
    critical = [tracked for tracked in members if tracked.alert.is_critical]
    is_silent = all(tracked.muted for tracked in members)
    was_critical = (
        incident is not None and incident.is_critical and incident.notified_at is not None
    )
    if critical and (is_silent or was_critical or not all(tracked.muted for tracked in critical)):
        return CRITICAL
    return WARNING


def _prominence(tracked: Tracked) -> tuple[float, ...]:
    """Sort key: firing, facts before inferences, critical before warnings, stalls, oldest first.

    What is only foreseen comes after what has happened.
    """
    alert = tracked.alert
    is_stall, has_happened = alert.name == QUERY_STALLED, alert.name not in FORESEEN
    order = (tracked.is_firing, alert.name in FACTS, alert.is_critical, is_stall, has_happened)
    return (*(not is_first for is_first in order), alert.starts_at)


# -- evaluated --------------------------------------------------------------------------------


class Evaluated(msgspec.Struct, frozen=True):
    """What was evaluated, what was found, and the alerts that are open."""

    snapshot: Snapshot
    evaluation: Evaluation
    alerts: tuple[Alert, ...]
    inhibited: tuple[Inhibited, ...] = ()
    passed: dict[str, float] = {}
    """By label: see ``end_to_end.py``; monotonic seconds."""
    wall: float = 0.0
    """The Unix time of ``snapshot.at``."""
    incidents: tuple[Incident, ...] = ()
    """Those that are open, those that have just ended, and orphans."""
    silences: tuple[Silence, ...] = ()
    """All that are known, also past and future ones."""
    opened: tuple[Opened, ...] = ()
    """When alerts opened lately, in monotonic seconds."""
    requests: tuple[ExpectStop | ExpectEnd | Forget, ...] = ()
    """What was announced since the evaluation before."""
    ending: Ending | None = None
    """How the process ends, if it does."""
    before: Held = Held()
    """What was open and pending before it."""
    freshness: Mapping[str, Freshness] = {}
    """By label: of the queries with ``freshness_seconds``."""
