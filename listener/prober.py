"""The thread that polls the probe, the second signal, and keeps its newest report."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from ..core.threads import Deadline
from .probe_report import ProbeReport

CALM_SECONDS = 1.0
"""The pause between polls while no batch takes long: no window of a batch is near its end."""


class Probe(Protocol):
    """Polls all queries at once."""

    def poll(self, clock: Callable[[], float]) -> ProbeReport | None:
        """Poll; ``clock`` gives monotonic seconds. None, or an error, if nothing answers."""
        ...


class Prober:
    """Polls every ``interval_seconds``, or at once when poked; keeps the newest report.

    While a report is calm, the next poll follows after ``calm_seconds`` if that is longer. When the
    JVM does not answer, a step hangs and no report arrives; ``latest`` shows its own age.
    """

    def __init__(
        self,
        probe: Probe,
        interval_seconds: float,
        on_report: Callable[[], None],
        *,
        calm_seconds: float = 0.0,
    ) -> None:
        self.latest: ProbeReport | None = None
        self.probe_durations: deque[float] = deque(maxlen=4096)
        self._probe = probe
        self._interval = interval_seconds
        self._calm = max(calm_seconds, interval_seconds)
        self._on_report = on_report
        self._poked = threading.Event()
        self._polled = threading.Condition()
        self._asking_since: float | None = None

    def step(self) -> None:
        """Poll once, then wait until the next poll is due."""
        self._asking_since = self._asking_since or time.monotonic()
        pause = self._interval
        try:
            report = self._probe.poll(time.monotonic)
            if report is not None:
                before = self.latest.at if self.latest is not None else None
                self.latest = replace(report, previous_at=before)
                self._asking_since = None
                self.probe_durations.append(report.at - report.began_at)
                pause = self._calm if report.is_calm else self._interval
                with self._polled:
                    self._polled.notify_all()
                self._on_report()
        finally:
            self._poked.wait(pause)
            self._poked.clear()

    @property
    def silent_seconds(self) -> float:
        """For how long polls have had no answer; 0 while none waits for one."""
        since = self._asking_since
        return 0.0 if since is None else time.monotonic() - since

    def poke(self) -> None:
        """Poll again as soon as possible."""
        self._poked.set()

    def poll_now(self, timeout: float) -> bool:
        """Wait for a poll that begins after this call; False on timeout."""
        asked_at = time.monotonic()
        deadline = Deadline(timeout)
        with self._polled:
            while not self._has_polled_since(asked_at):
                # Again after each poll: one that was under way took the last poke.
                self.poke()
                if not self._polled.wait(deadline.left):
                    return self._has_polled_since(asked_at)
            return True

    def _has_polled_since(self, asked_at: float) -> bool:
        return self.latest is not None and self.latest.began_at >= asked_at
