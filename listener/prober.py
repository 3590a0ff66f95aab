"""Runs the probe in a thread of its own and keeps the newest report."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from .probing import Probe, ProbeReport

CALM_SECONDS = 1.0
"""The pause between polls while no batch takes long: no window of a batch is near its end."""


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
            self.latest, self._asking_since = report, None
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
        with self._polled:
            return self._polled.wait_for(lambda: self._has_polled_since(asked_at), timeout)

    def _has_polled_since(self, asked_at: float) -> bool:
        if self.latest is not None and self.latest.began_at >= asked_at:
            return True
        self.poke()
        return False
