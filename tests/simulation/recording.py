"""P12: each incident has a recording, which replays to the same alerts at the same times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from querypulse.alerting.incidents.lifecycle import Evaluated
from querypulse.recording.lines import AlertChanged, Change, Recording, SeenFrom, decode
from querypulse.recording.recorder import About, Recorder
from querypulse.recording.ring import Ring
from querypulse.replay.engine import Replayed, iso
from querypulse.replay.log_files import Application
from querypulse.replay.recorded import replay_recording

from .driver import SimDriver
from .stage import Property, Violation, WorldView

STATUSES = {Change.OPENED: "firing", Change.ENDED: "resolved"}
CONTINUES_SECONDS = 3600.0
"""Later than any recording waits for answers."""


class Recorded(Property):
    """Records each driver as its black box does, and replays what is over."""

    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._recorders: dict[SimDriver, Recorder] = {}

    def evaluated(self, driver: SimDriver, evaluated: Evaluated) -> None:
        recorder = self._recorders.get(driver)
        if recorder is None:
            about = About(app=driver.app, seen_from=SeenFrom.DRIVER, settings=_settings(driver))
            recorder = self._recorders[driver] = Recorder(about, Ring())
            recorder.inherit(driver.inherited)
        recorder.update(evaluated)
        self._take(recorder, evaluated.wall)

    def end(self) -> None:
        """Replay what is open, also of drivers that were killed."""
        wall = self._stage.time.wall()
        for recorder in self._recorders.values():
            recorder.close(wall)
            self._take(recorder, wall + CONTINUES_SECONDS)

    def _take(self, recorder: Recorder, wall: float) -> None:
        for written in recorder.take(wall):
            if written.is_over:
                _check(written.id, written.whole)


def _settings(driver: SimDriver) -> dict[str, Any]:
    """The policy of a driver as settings."""
    policy = driver.worker.policy
    return {
        "slow_critical_seconds": policy.defaults.slow_critical_seconds,
        "failed_grace_seconds": policy.defaults.failed_grace_seconds,
        "expected_queries": list(policy.expected),
        "queries": {pattern: dict(own) for pattern, own in policy.overrides},
    }


def _check(name: str, content: bytes) -> None:
    recording = decode(content, name)
    recorded = _recorded(recording)
    # An alert that waits for others of its cause is open before its incident is.
    begins_at = iso(recording.begin.at)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.jsonl"
        path.write_bytes(content)
        replay = Replayed(name, name)
        application = Application(str(path), name, (str(path),))
        changes = [
            (change.status, change.alertname, change.query, max(begins_at, change.at))
            for change in replay_recording(application, {}, replay)
        ]
    if replay.error is not None or replay.unread:
        raise Violation("P12", f"{name}: {replay.error or replay.unread}")
    if Counter(changes) != Counter(recorded):
        raise Violation("P12", f"{name}: recorded {recorded}, replayed {changes}")


def _recorded(recording: Recording) -> list[tuple[str, str, str, str]]:
    return [
        (STATUSES[line.change], line.alertname, line.query, iso(line.at))
        for line in recording.lines
        if isinstance(line, AlertChanged) and line.change in STATUSES
    ]
