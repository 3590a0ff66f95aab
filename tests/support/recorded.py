"""A worker on a fake clock whose evaluations are recorded, as a driver's are."""

from __future__ import annotations

import json

from support.patience import WALL
from support.story import progress
from support.worker_harness import WorkerHarness

from querypulse.alerting.incidents.lifecycle import Evaluated
from querypulse.core.states import DeliveryOutcome
from querypulse.listener.events import Started
from querypulse.recording.lines import Notification, Recording, SeenFrom, State, decode, patched
from querypulse.recording.recorder import About, Recorder
from querypulse.recording.ring import Ring

RECEIVER = "pagerduty"


class RecordedWorker(WorkerHarness):
    """``files`` has the content of each recording, by id; ``parts`` what earlier processes left."""

    def __init__(self, redact=str, parts=None, **limits) -> None:
        super().__init__(**limits)
        self.ring = Ring()
        self.files: dict[str, bytes] = {}
        self.parts = parts or {}
        about = About(app="etl", seen_from=SeenFrom.DRIVER)
        self.recorder = Recorder(about, self.ring, redact, lambda name: self.parts.get(name, 0))

    def on_evaluated(self, evaluated: Evaluated) -> None:
        super().on_evaluated(evaluated)
        self.recorder.update(evaluated)
        self.take()

    def take(self, after=0.0):
        """Write what is new, ``after`` seconds later."""
        for written in self.recorder.take(self.wall + self.clock.now + after):
            self.files[written.id] = written.whole

    def arrived(self, data, query="a", kind="progress"):
        """An event of Spark arrives, as JSON."""
        text = data if isinstance(data, str) else json.dumps(data)
        self.ring.add(f"id-{query}", kind, text, self.clock.now)
        return self

    def fails(self, query="a", exception="java.io.IOException: gone"):
        """The query starts, and fails."""
        return self.started(query).step().ended(query, exception).step()

    def recovers(self, query="a", batches=20):
        """A new run commits batches, until nothing is left to report."""
        self.receive(Started(f"id-{query}", f"{query}-2", query)).step()
        for batch in range(batches):
            self.receive(progress(query, 2, batch=batch)).step(5.0)
        assert not self.published[-1].alerts
        return self

    def notified(self, recording=None, after=0.0, **fields):
        """A receiver answers."""
        notification = Notification(
            at=self.wall + self.clock.now + after,
            incident="querypulse/etl/a",
            receiver=RECEIVER,
            status="firing",
            outcome=DeliveryOutcome.DELIVERED.value,
            **fields,
        )
        self.recorder.notified(recording or self.recording_id, notification)
        self.take(after)

    @property
    def recording_id(self):
        """That of the only incident."""
        (incident,) = {
            incident.recording
            for incident in self.published[-1].incidents
            if not incident.is_orphan
        }
        return incident

    def recordings(self) -> dict[str, Recording]:
        return {name: decode(content, name) for name, content in self.files.items()}

    def recording(self) -> Recording:
        """The only one."""
        (recording,) = self.recordings().values()
        return recording

    def lines(self, kind):
        """The lines of this kind in the only recording."""
        return [line for line in self.recording().lines if isinstance(line, kind)]


def final_states(recording):
    """The states of the driver and of its queries after all lines."""
    driver, queries = {}, {}
    for line in recording.lines:
        if isinstance(line, State):
            driver = patched(driver, line.driver)
            queries = patched(queries, line.queries)
    return driver, queries


SECOND = WALL + 1000.0
"""The Unix time at which such a worker begins."""
