"""Evaluations -> the lines of each open incident's recording. Pure: no clock, thread or file.

A recording begins with the ring's newest events and with the state at which the first finding
held, and follows every evaluation that changes something. ``docs/incidents.md`` describes it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ..alerting.alert import Alert, Incident
from ..alerting.finding import WHOLE_DRIVER, Finding
from ..alerting.incidents.lifecycle import Evaluated, Opened
from ..core.redaction import REDACTED, names_secret
from ..listener.events import EventKind
from ..listener.mailbox import ExpectEnd, ExpectStop, Forget
from ..listener.state.identity import UNNAMED
from ..listener.state.query import Query
from .lines import (
    REMOVED,
    VERSION,
    AlertChanged,
    Begin,
    Change,
    End,
    Event,
    How,
    Notification,
    Patch,
    Request,
    SeenFrom,
    Silenced,
    Stack,
    State,
    part_id,
    patch_between,
)
from .ring import Received, Ring
from .states import driver_state, held_state, plain, query_state
from .thinning import Lines

MOST_QUERIES = 30
"""Of an incident's driver with more queries, those that have alerts or findings are recorded."""
EVENTS_BEFORE = 40
"""The most events of one query from before its incident; of the driver's other queries, fewer."""
SHARED_BEFORE = 120
"""What the other queries share, so that a large driver fills no file with what came before."""
LEAST_BEFORE = 5
"""The events of one query from before, however many queries there are."""
STEPS_BEFORE, LEAST_STEPS = 30, 4
"""The evaluations that are remembered while a finding has opened no alert."""
QUERIES_BEFORE = 3000
"""In all of them; a query that has changed takes 3.4 kB."""
NEIGHBOURS_SECONDS = 10.0
"""How often states and events of queries that an incident is not about are recorded."""
NEWS_SECONDS = 60.0
"""A text that changes is recorded after so long; then after twice as long, and so on."""
NOTIFIED_SECONDS = 600.0
"""So long after its end a recording takes what receivers answer."""
MOST_EARLY = 100
MOST_REMEMBERED = 1000
FULL_BYTES = 1024 * 1024
ALL_BYTES = 8 * 1024 * 1024
"""What all open recordings may hold in memory."""
MOST_OPEN = 250
"""Of more incidents at once, the later ones are not recorded, but counted."""
INCIDENTS_WITH_NEIGHBOURS = 10
"""The more of these are open, the fewer other queries are recorded with each."""

Identity = tuple[str, str]


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What all recordings of one process begin with; see ``Begin``."""

    app: str
    seen_from: SeenFrom
    labels: dict[str, str] = {}
    process: str = ""
    querypulse_version: str = ""
    spark_version: str = ""
    settings: dict[str, Any] = {}


class Written(msgspec.Struct, frozen=True):
    """What is new in one recording: all of it, and what was added since it was taken last.

    Without ``added``, all of it may be new. ``is_urgent``: an alert or a notification is new.
    """

    id: str
    whole: bytes
    added: bytes
    is_urgent: bool
    is_over: bool


class Shown(msgspec.Struct):
    """What the last line about an alert says; texts are written again at ``next_at``."""

    essence: tuple[object, ...]
    reason: str
    next_at: float
    pause: float = NEWS_SECONDS


class OpenRecording:
    """One recording that goes on, as it was written last."""

    def __init__(self, begin: Begin) -> None:
        self.begin = begin
        self.lines = Lines(begin)
        self.ended_at: float | None = None
        self.labels: frozenset[str] = frozenset()
        """The queries that are recorded."""
        self.own: frozenset[str] = frozenset()
        """Those of them that it is about; the others are its neighbours."""
        self.event_at: dict[str, float] = {}
        """By query: the arrival of its last event that was recorded, in monotonic seconds."""
        self.queries: dict[str, Query] = {}
        """As they were last recorded."""
        self.driver_before: Patch = {}
        self.queries_before: Patch = {}
        self.recorded_at = 0.0
        """When the last state was recorded, in monotonic seconds."""
        self.essence: object = None
        """What was found and open then."""
        self.alerts: dict[Identity, Shown] = {}
        self.ended: set[tuple[Identity, float | None]] = set()
        self.silences: tuple[dict[str, Any], ...] = ()
        self.stacks: dict[str, tuple[tuple[str, ...], str]] = {}
        self.event = 0
        """The number of the last event that was recorded."""

    def is_over(self, at: float) -> bool:
        """Whether no receiver's answer is waited for any more at Unix time ``at``."""
        ended_at = self.ended_at
        return ended_at is not None and not 0.0 <= at - ended_at < NOTIFIED_SECONDS


class Shared(msgspec.Struct, frozen=True):
    """What all recordings use of one evaluation, made once."""

    labels: dict[str, Query]
    essence: object
    driver: Patch


class Recorder:
    """All open recordings of one process; used by one thread.

    ``redact`` hides secrets in one text; ``parts_of`` returns the number of a recording's last file
    of earlier processes.
    """

    def __init__(
        self,
        about: About,
        ring: Ring,
        redact: Callable[[str], str] = str,
        parts_of: Callable[[str], int] = lambda _: 0,
    ) -> None:
        self._about = about
        self._ring = ring
        self._redact = redact
        self._parts_of = parts_of
        self._open: dict[str, OpenRecording] = {}
        self.left_out = 0
        """How many incidents were not recorded, because too many were open."""
        self._too_many: dict[str, None] = {}
        self._shared: dict[int, Shared] = {}
        """By ``id``, of the newest evaluation, and of those that are remembered."""
        self._encoded: dict[str, tuple[Query, Patch]] = {}
        """By label: the states that were made last."""
        self._before: list[Evaluated] = []
        self._inherited: dict[str, Incident] = {}
        self._early: deque[tuple[str, Notification]] = deque(maxlen=MOST_EARLY)
        """Notifications of incidents whose recordings have not begun: the page goes first."""

    @property
    def is_recording(self) -> bool:
        """Whether any recording goes on, or may still take the answers of receivers."""
        return bool(self._open)

    @property
    def open_ids(self) -> set[str]:
        """The recordings of incidents that are open now; any thread may read it."""
        recordings = tuple(self._open.items())
        return {identity for identity, recording in recordings if recording.ended_at is None}

    def inherit(self, incidents: Iterable[Incident]) -> None:
        """Go on with the recordings of incidents that an earlier process has left open.

        Any thread may call it.
        """
        self._inherited |= {
            incident.recording: incident for incident in incidents if incident.recording
        }

    def update(self, evaluated: Evaluated) -> None:
        """Record what an evaluation changes."""
        self._shared.clear()
        incidents: dict[str, list[Incident]] = {}
        for incident in evaluated.incidents:
            if incident.recording and not incident.is_orphan:
                incidents.setdefault(incident.recording, []).append(incident)
        for identity, of_one in incidents.items():
            recording = self._open.get(identity)
            if recording is None:
                if not _is_worth(of_one) or not self._has_room(identity):
                    continue
                recording = self._begin(identity, of_one[0], evaluated)
            self._follow(recording, of_one, evaluated)
        for identity, recording in self._open.items():
            if identity not in incidents and recording.ended_at is None:
                self._end(recording, evaluated.wall, How.RESOLVED)
        self._remember(evaluated)
        self._forget_gone(evaluated)

    def _forget_gone(self, evaluated: Evaluated) -> None:
        """Forget the states of queries that are gone: unnamed ones get another name each time."""
        for label in self._encoded.keys() - evaluated.snapshot.labels().keys():
            del self._encoded[label]

    def _has_room(self, identity: str) -> bool:
        if len(self._open) < MOST_OPEN:
            return True
        if identity not in self._too_many:
            self._too_many[identity] = None
            self.left_out += 1
        if len(self._too_many) > MOST_REMEMBERED:
            del self._too_many[next(iter(self._too_many))]
        return False

    def notified(self, identity: str, notification: Notification) -> None:
        """Record an attempt to notify somebody of the incident of a recording."""
        notification = replace(notification, error=self._redact(notification.error))
        recording = self._open.get(identity)
        if recording is None:
            self._early.append((identity, notification))
        else:
            recording.lines.add(notification)

    def close(self, at: float) -> None:
        """End all recordings, because the process ends at Unix time ``at``."""
        for recording in self._open.values():
            if recording.ended_at is None:
                self._end(recording, at, How.CLOSED)

    def take(self, at: float) -> list[Written]:
        """What is new in each recording; those that ended long before ``at`` (Unix) are dropped."""
        most_bytes = min(FULL_BYTES, ALL_BYTES // max(1, len(self._open)))
        written = []
        for identity, recording in list(self._open.items()):
            is_over = recording.is_over(at)
            if is_over:
                del self._open[identity]
                self._encoded.clear()
            # What has ended is whole, however many incidents open after it.
            is_ended = recording.ended_at is not None
            changed = recording.lines.take(FULL_BYTES if is_ended else most_bytes)
            if changed is not None or is_over:
                added, is_urgent = changed or (b"", False)
                name = recording.begin.id
                written.append(Written(name, recording.lines.whole, added, is_urgent, is_over))
        return written

    # One recording

    def _begin(self, identity: str, incident: Incident, evaluated: Evaluated) -> OpenRecording:
        """Begin with what came before: events, and the evaluations since something was found."""
        about = self._about
        inherited = self._inherited.pop(identity, None)
        parts = max(self._parts_of(identity), 0 if inherited is None else 1)
        before = "" if not parts else part_id(identity, parts)
        steps = [*self._before, evaluated]
        first = steps[0]
        begin = Begin(
            at=evaluated.wall,
            version=VERSION,
            id=part_id(identity, parts + 1),
            app=incident.labels["app"],
            query=incident.query,
            seen_from=about.seen_from,
            labels=about.labels,
            process=about.process,
            querypulse_version=about.querypulse_version,
            spark_version=about.spark_version,
            continues=before,
            settings=about.settings,
            opened=_opened_before(first),
            restored=() if inherited is None else (self._redacted_incident(inherited),),
            held=self._redacted(held_state(first.before, incident.query)),
        )
        recording = OpenRecording(begin)
        if inherited is not None:
            recording.ended = {((one.name, one.query), one.ends_at) for one in inherited.alerts}
        self._open[identity] = recording
        self._choose(recording, [incident], evaluated)
        self._write_events(recording, first, is_before=True)
        for step in steps[:-1]:
            self._write_silences(recording, step)
            self._write_state(recording, step)
        return recording

    def _follow(
        self, recording: OpenRecording, incidents: list[Incident], evaluated: Evaluated
    ) -> None:
        if recording.ended_at is not None:
            return
        self._choose(recording, incidents, evaluated)
        self._write_events(recording, evaluated)
        for request in evaluated.requests:
            recording.lines.add(_request_line(request, evaluated))
        self._write_silences(recording, evaluated)
        self._write_state(recording, evaluated)
        self._write_stacks(recording, evaluated)
        self._write_alerts(recording, incidents, evaluated)
        for identity, notification in list(self._early):
            if self._open.get(identity) is recording:
                self._early.remove((identity, notification))
                recording.lines.add(notification)
        if all(incident.is_over for incident in incidents):
            self._end(recording, evaluated.wall, How.RESOLVED)

    def _end(self, recording: OpenRecording, at: float, how: How) -> None:
        recording.ended_at = at
        recording.lines.add(End(at=at, how=how))

    def _remember(self, evaluated: Evaluated) -> None:
        """Keep the evaluations since the first finding that has no incident yet.

        Of too many, those go that found the same as the one before.
        """
        opened = {(alert.name, alert.query) for alert in evaluated.alerts}
        findings = evaluated.evaluation.findings
        waiting = any((finding.alertname, finding.query) not in opened for finding in findings)
        if not waiting and not _waits(evaluated):
            self._before.clear()
            return
        self._before.append(evaluated)
        while len(self._before) > most_steps(evaluated):
            steps = self._before
            repeated = (
                number
                for number in range(1, len(steps) - 1)
                if _essence(steps[number]) == _essence(steps[number - 1])
            )
            del steps[next(repeated, 1)]

    def _choose(
        self, recording: OpenRecording, incidents: list[Incident], evaluated: Evaluated
    ) -> None:
        """Record all queries of the driver; of many, those that it is about, and their like."""
        labels = self._shared_of(evaluated).labels
        subject = recording.begin.query
        named = [alert.query for incident in incidents for alert in incident.alerts]
        findings = evaluated.evaluation.findings
        members = [
            label for finding in findings for label in finding.members if finding.query == subject
        ]
        own = {subject, *named, *members}
        if subject == UNNAMED:
            own |= {label for label, query in labels.items() if query.is_unnamed}
        recording.own = frozenset(own & labels.keys())
        recording.labels &= labels.keys()
        most = max(1, MOST_QUERIES // (1 + len(self._open) // INCIDENTS_WITH_NEIGHBOURS))
        room = max(0, most - len(recording.labels))
        if not room and recording.own <= recording.labels:
            return
        named += [finding.query for finding in findings]
        named += [finding.holder for finding in findings]
        named += [label for finding in findings for label in finding.members]
        wanted = dict.fromkeys(label for label in (*named, *labels) if label in labels)
        new = [label for label in wanted if label not in recording.labels]
        # What joins it later has a place, also among many neighbours.
        joined = [label for label in new if label in recording.own]
        room_to_join = max(0, MOST_QUERIES - len(recording.own & recording.labels))
        recording.labels |= {*new[:room], *joined[:room_to_join]}

    # Its lines

    def _write_events(
        self, recording: OpenRecording, evaluated: Evaluated, *, is_before: bool = False
    ) -> None:
        """Write the events of its queries since the last one: each start and end, and the newest.

        Of those from before, there are more of each query; later, fewer of a neighbour.
        """
        snapshot = evaluated.snapshot
        by_id = {
            query.query_id: query.label
            for query in snapshot.queries
            if query.label in recording.labels
        }
        events = self._ring.since(recording.event, frozenset(by_id))
        recording.event = max(recording.event, self._ring.newest)
        most = _most_before(recording, by_id) if is_before else dict.fromkeys(by_id, 1)
        for received in _newest_of_each(events, most):
            label = by_id[received.query_id]
            waited = received.at - recording.event_at.get(label, -math.inf)
            is_rare = label in recording.own or waited >= NEIGHBOURS_SECONDS
            if not (is_before or is_rare or _is_lifecycle(received)):
                continue
            recording.event_at[label] = received.at
            at = evaluated.wall - (snapshot.at - received.at)
            recording.lines.add(self._event_line(received, label, at))

    def _event_line(self, received: Received, label: str, at: float) -> Event:
        try:
            data = self._redacted_json(msgspec.json.decode(received.text))
            left_out = received.left_out
        except (msgspec.DecodeError, ValueError, RecursionError):
            # Of an event, only what is used was decoded before.
            data, left_out = {}, (*received.left_out, "*")
        return Event(at=at, query=label, event=received.event, data=data, left_out=left_out)

    def _write_silences(self, recording: OpenRecording, evaluated: Evaluated) -> None:
        silences = tuple(plain(silence) for silence in evaluated.silences)
        if silences != recording.silences:
            recording.silences = silences
            shown = self._redacted(list(silences))
            recording.lines.add(Silenced(at=evaluated.wall, silences=tuple(shown)))

    def _write_state(self, recording: OpenRecording, evaluated: Evaluated) -> None:
        """Write what has changed in the states, if that, or what was found, has changed."""
        snapshot = evaluated.snapshot
        shared = self._shared_of(evaluated)
        # In the order of the snapshot: the first one of a cause has an incident of its own.
        queries = {
            label: query for label, query in shared.labels.items() if label in recording.labels
        }
        own = recording.own & queries.keys()
        has_waited = snapshot.at - recording.recorded_at >= NEIGHBOURS_SECONDS
        is_new = any(queries[label] is not recording.queries.get(label) for label in own)
        if shared.essence == recording.essence and not is_new and not has_waited:
            return
        states = dict(recording.queries_before)
        for label in recording.queries.keys() - queries.keys():
            states.pop(label, None)
        for label, query in queries.items():
            if recording.queries.get(label) is not query:
                states[label] = self._query_state(query)
        changed = patch_between(recording.queries_before, states)
        line = State(
            at=evaluated.wall,
            now=snapshot.at,
            driver=self._redacted(patch_between(recording.driver_before, shared.driver)),
            queries={
                label: patch if label == REMOVED else self._redacted(patch)
                for label, patch in changed.items()
            },
        )
        recording.lines.add(line)
        recording.driver_before = shared.driver
        recording.queries_before = states
        recording.queries = queries
        recording.recorded_at = snapshot.at
        recording.essence = shared.essence

    def _shared_of(self, evaluated: Evaluated) -> Shared:
        shared = self._shared.get(id(evaluated))
        if shared is None:
            snapshot = evaluated.snapshot
            driver = driver_state(snapshot, evaluated.ending)
            shared = Shared(snapshot.labels(), _essence(evaluated), driver)
            self._shared[id(evaluated)] = shared
        return shared

    def _query_state(self, query: Query) -> Patch:
        encoded = self._encoded.get(query.label)
        if encoded is None or encoded[0] is not query:
            encoded = self._encoded[query.label] = query, query_state(query)
        return encoded[1]

    def _write_stacks(self, recording: OpenRecording, evaluated: Evaluated) -> None:
        for finding in evaluated.evaluation.findings:
            evidence = finding.evidence.query
            run = None if evidence is None else evidence.run
            activity = None if run is None else run.activity
            if activity is None or finding.query not in recording.labels:
                continue
            stack = activity.jvm_stack, activity.python_line
            if not any(stack) or recording.stacks.get(finding.query) == stack:
                continue
            recording.stacks[finding.query] = stack
            jvm = tuple(map(self._redact, activity.jvm_stack))
            python = self._redact(activity.python_line)
            line = Stack(at=evaluated.wall, query=finding.query, jvm=jvm, python=python)
            recording.lines.add(line)

    def _write_alerts(
        self, recording: OpenRecording, incidents: list[Incident], evaluated: Evaluated
    ) -> None:
        """Write the alerts that open, change or end."""
        findings = {
            (finding.alertname, finding.query): finding for finding in evaluated.evaluation.findings
        }
        now = evaluated.wall
        open_alerts = dict(_open_alerts(incidents, evaluated))
        for identity, (alert, key) in open_alerts.items():
            change = self._change_of(recording, identity, alert, key, now)
            if change is not None:
                line = self._alert_line(alert, key, change, findings.get(identity), now)
                recording.lines.add(line)
        for incident in incidents:
            for alert in incident.alerts:
                identity = alert.name, alert.query
                end = identity, alert.ends_at
                if alert.end is None or identity in open_alerts or end in recording.ended:
                    continue
                recording.ended.add(end)
                recording.alerts.pop(identity, None)
                line = self._alert_line(alert, incident.key, Change.ENDED, None, now)
                recording.lines.add(line)

    def _change_of(
        self, recording: OpenRecording, identity: Identity, alert: Alert, key: str, now: float
    ) -> Change | None:
        """What to write about an open alert; None if nothing is new."""
        essence = (key, alert.labels["severity"], alert.code, alert.muted)
        reason = alert.annotations.get("reason", "")
        shown = recording.alerts.get(identity)
        if shown is None:
            recording.alerts[identity] = Shown(essence, reason, now + NEWS_SECONDS)
            return Change.OPENED
        is_text = reason != shown.reason and now >= shown.next_at
        if essence == shown.essence and not is_text:
            return None
        shown.essence = essence
        shown.reason = reason
        shown.pause *= 2
        shown.next_at = now + shown.pause
        return Change.CHANGED

    def _alert_line(
        self, alert: Alert, key: str, change: Change, finding: Finding | None, at: float
    ) -> AlertChanged:
        facts: dict[str, Any] = {}
        if finding is not None:
            facts = {"type": type(finding.facts).__name__, **plain(finding.facts)}
        end = alert.end
        outcome = None if end is None else end.outcome
        goes_on = None if end is None else end.goes_on
        return AlertChanged(
            at=at,
            change=change,
            incident=key,
            alertname=alert.name,
            query=alert.query,
            severity=alert.labels["severity"],
            code=alert.code,
            starts_at=alert.starts_at,
            annotations=self._redacted(alert.annotations),
            facts=self._redacted(facts),
            cause=self._redact(alert.cause),
            muted=self._redact(alert.muted),
            outcome="" if outcome is None else outcome.value,
            goes_on="" if goes_on is None else goes_on.value,
        )

    def _redacted(self, value: Any) -> Any:
        """The value without secrets in its texts, and in the names of its members."""
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, dict):
            return {self._redact(name): self._redacted(part) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._redacted(part) for part in value]
        return value

    def _redacted_incident(self, incident: Incident) -> Incident:
        """An incident from the spool, which an older version may have written."""
        return msgspec.convert(self._redacted(msgspec.to_builtins(incident)), Incident)

    def _redacted_json(self, value: Any) -> Any:
        """The same for Spark's JSON, where a member's name may say that its text is secret."""
        if isinstance(value, dict):
            return {
                self._redact(name): REDACTED
                if isinstance(part, str) and names_secret(name)
                else self._redacted_json(part)
                for name, part in value.items()
            }
        if isinstance(value, list):
            return [self._redacted_json(part) for part in value]
        return self._redacted(value)


def is_quiet(evaluated: Evaluated) -> bool:
    """Whether an evaluation shows nothing, and ends nothing."""
    return not (evaluated.evaluation.findings or evaluated.incidents)


def most_steps(evaluated: Evaluated) -> int:
    """How many evaluations may be in memory, of as many queries as this one has."""
    steps = QUERIES_BEFORE // max(1, len(evaluated.snapshot.queries))
    return max(LEAST_STEPS, min(STEPS_BEFORE, steps))


def _is_worth(incidents: list[Incident]) -> bool:
    """Whether a recording should begin: not for one that is over before it is seen."""
    return any(not incident.is_over for incident in incidents)


def _waits(evaluated: Evaluated) -> bool:
    """Whether an open alert has no incident yet, because others of its cause may come."""
    inside = {
        (alert.name, alert.query) for incident in evaluated.incidents for alert in incident.alerts
    }
    return any((alert.name, alert.query) not in inside for alert in evaluated.alerts)


def _opened_before(evaluated: Evaluated) -> tuple[Opened, ...]:
    """When alerts had opened before an evaluation, which may have opened some itself."""
    now = evaluated.snapshot.at
    before = (
        replace(opened, at=tuple(at for at in opened.at if at < now)) for opened in evaluated.opened
    )
    return tuple(opened for opened in before if opened.at)


def _most_before(recording: OpenRecording, labels: Mapping[str, str]) -> dict[str, int]:
    """By id: how many events from before the incident are recorded of each query."""
    share = max(LEAST_BEFORE, min(EVENTS_BEFORE, SHARED_BEFORE // max(1, len(labels))))
    return {
        query_id: EVENTS_BEFORE if label == recording.begin.query else share
        for query_id, label in labels.items()
    }


def _newest_of_each(events: list[Received], most: Mapping[str, int]) -> list[Received]:
    """The newest events of each query, in order, and all of its starts and ends.

    ``most`` is by the query's id.
    """
    counts: dict[str, int] = {}
    newest = []
    for received in reversed(events):
        counts[received.query_id] = counts.get(received.query_id, 0) + 1
        if counts[received.query_id] <= most[received.query_id] or _is_lifecycle(received):
            newest.append(received)
    return newest[::-1]


def _is_lifecycle(received: Received) -> bool:
    return EventKind(received.event).is_lifecycle


def _open_alerts(
    incidents: Iterable[Incident], evaluated: Evaluated
) -> Iterator[tuple[Identity, tuple[Alert, str]]]:
    """The open alerts of a recording, and the keys of their incidents; also the silenced ones."""
    for incident in incidents:
        if incident.is_over:
            continue
        for alert in evaluated.alerts:
            if (alert.incident or alert.query) == incident.query:
                yield (alert.name, alert.query), (alert, incident.key)
        for alert in incident.firing:
            yield (alert.name, alert.query), (alert, incident.key)


def _essence(evaluated: Evaluated) -> tuple[object, ...]:
    """What was found, and what is open: what a replay must see at the same moment."""
    found = {
        (finding.alertname, finding.query, finding.severity, finding.code)
        for finding in evaluated.evaluation.findings
    }
    alerts = {
        (alert.name, alert.query, alert.labels["severity"], alert.muted, alert.incident)
        for alert in evaluated.alerts
    }
    incidents = {
        (incident.key, incident.is_over, incident.revision) for incident in evaluated.incidents
    }
    health = {
        (label, query.state, query.severity) for label, query in evaluated.evaluation.health.items()
    }
    # What a recovery begins with.
    runs = {
        (query.label, query.run.run_id, query.run.alive, query.run.activity_seen)
        for query in evaluated.snapshot.queries
    }
    context = evaluated.snapshot.context
    return found, alerts, incidents, health, runs, context, evaluated.ending


def _request_line(request: ExpectStop | ExpectEnd | Forget, evaluated: Evaluated) -> Request:
    until = getattr(request, "until", None)
    name = WHOLE_DRIVER if isinstance(request, ExpectEnd) else request.name
    kinds = {ExpectStop: "expect_stop", ExpectEnd: "expect_end", Forget: "forget"}
    wall = evaluated.wall
    ends_at = None if until is None else wall + until - evaluated.snapshot.at
    return Request(at=wall, request=kinds[type(request)], query=name, until=ends_at)
