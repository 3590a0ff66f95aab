"""The recordings of simulated drivers: how they are written, and what must hold for each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from querypulse.alerting.alert import Alert
from querypulse.alerting.delivery.deliveries import Attempt
from querypulse.alerting.incidents.lifecycle import Evaluated
from querypulse.core.guard import Guard
from querypulse.recording.lines import (
    AlertChanged,
    AnyLine,
    Begin,
    Change,
    End,
    How,
    Notification,
    Recording,
    RecordingError,
    SeenFrom,
    Thinned,
    decode,
)
from querypulse.recording.recorder import NOTIFIED_SECONDS
from querypulse.replay.engine import Replayed
from querypulse.replay.recorded import RecordedEngine
from querypulse.replay.terms import recorded_terms
from querypulse.settings.settings import Settings
from querypulse.sidecar.black_box import BlackBox, about_process

from .clock import Time

if TYPE_CHECKING:
    from .world import World

Identity = tuple[str, str, float]
"""The name of an alert, its query, and when it began."""


class Shown(msgspec.Struct, frozen=True):
    """What became of an alert."""

    severity: str
    code: str
    ended_at: float | None = None
    outcome: str = ""


Alerts = dict[Identity, Shown]

# -- how they are written ------------------------------------------------------------------------


class RecordingFolder:
    """What the processes of one driver have recorded; it outlives them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.processes: list[SimBlackBox] = []
        self.problems: list[str] = []
        """What was wrong with single writes."""

    def open(self, settings: Settings, app: str, guard: Guard, time: Time) -> SimBlackBox:
        """Begin with another process."""
        self.processes.append(SimBlackBox(settings, app, guard, time, self))
        return self.processes[-1]

    def write(self, name: str, content: bytes, *, is_new: bool) -> None:
        """Replace the content of a file, as one step."""
        before = self.files.get(name)
        if is_new and before is not None:
            self.problems.append(f"{name}: written again by another process")
        if not content.endswith(b"\n"):
            self.problems.append(f"{name}: its last line is not whole")
        self.files[name] = content


class SimBlackBox(BlackBox):
    """The black box of one process. Its thread runs at once, and never after a kill or its end.

    ``attempts`` and ``alerts``, by id of a recording, are what it should have recorded.
    """

    def __init__(
        self, settings: Settings, app: str, guard: Guard, time: Time, folder: RecordingFolder
    ) -> None:
        about = about_process(settings, app, "4.1.0", SeenFrom.DRIVER)
        super().__init__(about, guard, wall=time.wall)
        self._loop = cast("Any", SimpleNamespace(stop=lambda: None, join=lambda _: self._end()))
        self._folder = folder
        self.attempts: list[Attempt] = []
        self.alerts: dict[str, Alerts] = {}
        self.over: set[str] = set()
        """The recordings whose incidents have ended."""
        self.written: set[str] = set()
        self.is_closed = False
        self._is_killed = False

    def kill(self) -> None:
        """End the process: nothing more is written."""
        self._is_killed = True

    @property
    def _has_ended(self) -> bool:
        return self._is_killed or self.is_closed

    def offer(self, evaluated: Evaluated) -> None:
        if self._has_ended:
            return
        for incident in evaluated.incidents:
            if incident.is_orphan:
                continue
            alerts = self.alerts.setdefault(incident.recording, {})
            alerts |= alerts_of(evaluated, incident.query)
        self._note_over(evaluated)
        super().offer(evaluated)
        self._record()

    def _note_over(self, evaluated: Evaluated) -> None:
        """Note which incidents have ended, with no successor of another severity."""
        shown = [incident for incident in evaluated.incidents if not incident.is_orphan]
        is_open = {incident.recording for incident in shown if not incident.is_over}
        self.over |= {incident.recording for incident in shown} - is_open
        self.over -= is_open

    def attempted(self, attempt: Attempt) -> None:
        if not self._has_ended:
            self.attempts.append(attempt)
            super().attempted(attempt)
            self._record()

    def close(self, timeout: float) -> None:
        if not self._has_ended:
            super().close(timeout)
            self.is_closed = True

    def _keep(self, name: str, whole: bytes) -> None:
        self._folder.write(name, whole, is_new=name not in self.written)
        self.written.add(name)

    def _parts_of(self, identity: str) -> int:
        return sum(name.partition(".")[0] == identity for name in self._folder.files)


def alerts_of(evaluated: Evaluated, subject: str) -> Alerts:
    """The alerts of the incident of a query or of the driver, also the silenced ones."""
    incidents = [incident for incident in evaluated.incidents if incident.query == subject]
    alerts = [alert for incident in incidents for alert in incident.alerts]
    if not all(incident.is_over for incident in incidents):
        alerts += [
            alert for alert in evaluated.alerts if (alert.incident or alert.query) == subject
        ]
    return dict(map(_shown, filter(_is_here, alerts)))


def _is_here(alert: Alert) -> bool:
    """Whether it does not go on elsewhere."""
    return alert.end is None or alert.end.goes_on is None


def _shown(alert: Alert) -> tuple[Identity, Shown]:
    end = alert.end
    outcome = "" if end is None or end.outcome is None else end.outcome.value
    shown = Shown(alert.labels["severity"], alert.code, alert.ends_at, outcome)
    return (alert.name, alert.query, alert.starts_at), shown


# -- what must hold ------------------------------------------------------------------------------


def problems_of(world: World) -> list[str]:
    """What is wrong with the recordings of a history, in words."""
    problems = []
    for name, folder in world.recordings.items():
        wrong = [*folder.problems, *_problems_in(folder)]
        problems += [f"{name}: {problem}" for problem in wrong]
    return problems


def _problems_in(folder: RecordingFolder) -> Iterator[str]:
    recordings = {}
    for name, content in folder.files.items():
        try:
            recordings[name] = decode(content, name)
        except RecordingError as error:
            yield str(error)
    for name, recording in recordings.items():
        yield from _problems_of_file(name, recording, folder.files)
    for process in folder.processes:
        mine = {
            name.partition(".")[0]: recordings[name]
            for name in process.written
            if name in recordings
        }
        for identity in process.alerts.keys() - mine.keys():
            yield f"{identity}: the incident was not recorded"
        for identity, recording in mine.items():
            yield from _problems_of(recording, process, identity)
        yield from _unrecorded(process, mine)


def _problems_of_file(name: str, recording: Recording, files: Container[str]) -> Iterator[str]:
    if recording.unread:
        yield f"{name}: {recording.unread} lines cannot be read"
    if recording.begin.id != name:
        yield f"{name}: it says that it is {recording.begin.id}"
    before = recording.begin.continues
    if before != _part_before(name) or (before and before not in files):
        yield f"{name}: it continues {before!r}"


def _part_before(name: str) -> str:
    identity, _, part = name.partition(".")
    number = int(part or 1)
    return {1: "", 2: identity}.get(number, f"{identity}.{number - 1}")


def _problems_of(recording: Recording, process: SimBlackBox, identity: str) -> Iterator[str]:
    name = recording.begin.id
    shown = process.alerts.get(identity)
    if shown is None:
        yield f"{name}: there was no such incident"
        return
    # What had ended before is in the recording of that process.
    before = {
        (alert.name, alert.query, alert.starts_at)
        for incident in recording.begin.restored
        for alert in incident.alerts
        if alert.end is not None
    }
    shown = {identity: shown for identity, shown in shown.items() if identity not in before}
    yield from _differences(f"{name}: in its lines", shown, _alerts_in(recording.lines))
    if not any(isinstance(line, Thinned) for line in recording.lines):
        again = replayed(recording).items()
        # What was open when it began, and has ended since, is of the incident before it.
        others = before | (_held(recording.begin) - shown.keys())
        again = {identity: shown for identity, shown in again if identity not in others}
        yield from _differences(f"{name}: replayed", shown, again)
    ends = [line.how for line in recording.lines if isinstance(line, End)]
    if identity in process.over:
        wanted = [How.RESOLVED]
    elif process.is_closed:
        wanted = [How.CLOSED]
    else:
        wanted = []
    if ends != wanted:
        yield f"{name}: it ends {ends}, not {wanted}"


def _held(begin: Begin) -> set[tuple[str, str, float]]:
    """The alerts that were open or pending when a recording began."""
    alerts = [tracked["alert"] for tracked in begin.held.get("tracked", ())]
    return {
        (alert["labels"]["alertname"], alert["labels"]["query"], alert["starts_at"])
        for alert in alerts
    }


def _differences(where: str, wanted: Alerts, got: Alerts) -> Iterator[str]:
    for identity in wanted.keys() | got.keys():
        if wanted.get(identity) != got.get(identity):
            yield f"{where}: {identity} is {got.get(identity)}, not {wanted.get(identity)}"


def _alerts_in(lines: Iterable[AnyLine]) -> Alerts:
    alerts: Alerts = {}
    for line in lines:
        if not isinstance(line, AlertChanged) or line.goes_on:
            continue
        is_over = line.change is Change.ENDED
        ended_at = max(line.at, line.starts_at) if is_over else None
        shown = Shown(line.severity, line.code, ended_at, line.outcome)
        alerts[line.alertname, line.query, line.starts_at] = shown
    return alerts


def replayed(recording: Recording) -> Alerts:
    """The alerts of a recording that is evaluated again."""
    begin = recording.begin
    alerts: Alerts = {}
    sink = SimpleNamespace(
        update=lambda evaluated, _: alerts.update(alerts_of(evaluated, begin.query))
    )
    terms, _ = recorded_terms(begin, {})
    engine = RecordedEngine(recording, terms, Replayed(begin.app, ""))
    engine._reporter._recordings = cast("Any", sink)
    for line in recording.lines:
        engine.apply(line)
    return alerts


def _unrecorded(process: SimBlackBox, mine: dict[str, Recording]) -> Iterator[str]:
    """Whom it has notified, if the recording of that incident lacks it.

    What it sends long after the end need not be there, nor what it repeats of an earlier process.
    """
    recorded = Counter(
        (identity, line.at, line.incident, line.receiver, line.outcome)
        for identity, recording in mine.items()
        for line in recording.lines
        if isinstance(line, Notification)
    )
    ended = {
        identity: line.at
        for identity, recording in mine.items()
        for line in recording.lines
        if isinstance(line, End)
    }
    for attempt in process.attempts:
        incident = attempt.incident
        identity = incident.recording
        # A page that was missed is sent as if its alerts fired.
        has_ended = incident.is_over or all(alert.later_end for alert in incident.alerts)
        only_repeats = has_ended and identity not in process.alerts
        if incident.is_orphan or only_repeats:
            continue
        is_late = identity in ended and not 0.0 <= attempt.at - ended[identity] < NOTIFIED_SECONDS
        wanted = identity, attempt.at, incident.key, attempt.receiver, attempt.outcome
        if recorded[wanted] != 1 and not is_late:
            yield f"{recorded[wanted]} times in a recording: {wanted}"
