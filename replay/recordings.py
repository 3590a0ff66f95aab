"""Records what a replay finds, as a driver records its incidents, for a page."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from ..alerting.alert import Incident
from ..alerting.delivery.deliveries import Attempt
from ..alerting.incidents.lifecycle import Evaluated
from ..core.installed import VERSION
from ..core.states import DeliveryOutcome
from ..listener.events import KIND_OF, Event
from ..recording.lines import SUFFIX, Recording, SeenFrom, decode
from ..recording.recorder import NOTIFIED_SECONDS, About, Recorder, is_quiet
from ..recording.ring import Ring
from ..settings.settings import Settings
from ..sidecar.assemble import make_redactor
from ..sidecar.black_box import evaluation_settings, notification_of

RECEIVER = "replay"
MOST_KEPT = 1000
"""Incidents, the newest ones; at most 1 MB each, on disk."""
MOST_WAITING = 10_000
"""Events that no evaluation has reached."""
STEPS = 200
"""Evaluations between two looks at what has ended."""


class Recordings:
    """The recordings of all applications of a replay, as files in ``folder``."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.dropped = 0
        """How many incidents were too many."""
        self._folder = folder
        self._settings = settings
        self._redact = make_redactor(settings).text
        self._kept: set[str] = set()

    def begin(self, app: str) -> AppRecordings:
        """Begin with one application."""
        about = About(
            app=app,
            seen_from=SeenFrom.REPLAY,
            labels=self._settings.labels,
            querypulse_version=VERSION,
            settings=evaluation_settings(self._settings),
        )
        return AppRecordings(about, self._redact, self._keep)

    def read(self) -> Iterable[Recording]:
        """Read what was recorded, the oldest first."""
        for name in sorted(self._kept):
            yield decode((self._folder / name).read_bytes(), name)

    def _keep(self, recording_id: str, content: bytes) -> None:
        name = f"{recording_id}{SUFFIX}"
        (self._folder / name).write_bytes(content)
        self._kept.add(name)
        if len(self._kept) > MOST_KEPT:
            # A name begins with its time.
            oldest = min(self._kept)
            self._kept.remove(oldest)
            (self._folder / oldest).unlink()
            self.dropped += 1


class AppRecordings:
    """Records the incidents of one application; ``keep`` gets the id and content of each."""

    def __init__(
        self, about: About, redact: Callable[[str], str], keep: Callable[[str, bytes], object]
    ) -> None:
        self._ring = Ring()
        self._recorder = Recorder(about, self._ring, redact)
        self._keep = keep
        self._waiting: deque[tuple[float, Event, str | bytes]] = deque()
        self._was_quiet = True
        self._steps = 0

    def receive(self, event: Event, text: str | bytes, at: float) -> None:
        """Record an event, and its JSON, once an evaluation reaches its time."""
        self._waiting.append((at, event, text))
        if len(self._waiting) > MOST_WAITING:
            self._add_event()

    def _add_event(self) -> None:
        at, event, text = self._waiting.popleft()
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        self._ring.add(event.query_id, KIND_OF[type(event)].value, text, at)

    def update(self, evaluated: Evaluated, sent: Iterable[Incident]) -> None:
        """Record an evaluation, and of which incidents people are notified then."""
        while self._waiting and self._waiting[0][0] <= evaluated.wall:
            self._add_event()
        was_quiet = self._was_quiet
        self._was_quiet = is_quiet(evaluated)
        if self._was_quiet and was_quiet and not self._recorder.is_recording:
            return
        self._recorder.update(evaluated)
        for incident in sent:
            sending = Attempt(evaluated.wall, RECEIVER, incident, DeliveryOutcome.DELIVERED.value)
            self._recorder.notified(incident.recording, notification_of(sending))
        self._steps += 1
        if self._steps % STEPS == 0:
            self._take(evaluated.wall)

    def close(self, at: float) -> None:
        """End what is open: the log ends at Unix time ``at``."""
        self._recorder.close(at)
        self._take(at + NOTIFIED_SECONDS)

    def _take(self, at: float) -> None:
        for written in self._recorder.take(at):
            if written.is_over:
                self._keep(written.id, written.whole)
