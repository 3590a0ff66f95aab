"""Runs the probe in its own thread's steps and keeps its newest report."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .probing import ProbeReport


class Probe(Protocol):
    """Anything that can look at all queries at once."""

    def poll(self, clock: Callable[[], float]) -> ProbeReport:
        """Look; ``clock`` gives monotonic seconds."""
        ...


class Prober:
    """Looks every ``interval_seconds``, or at once when poked; the newest report wins.

    When the JVM does not answer, a step hangs, no report comes, and everybody who reads
    ``latest`` sees its age.
    """

    def __init__(
        self, probe: Probe, interval_seconds: float, on_report: Callable[[], None]
    ) -> None:
        self.latest: ProbeReport | None = None
        self.probe_durations: deque[float] = deque(maxlen=4096)
        self._probe = probe
        self._interval = interval_seconds
        self._on_report = on_report
        self._poked = threading.Event()
        self._polled = threading.Condition()

    def step(self) -> None:
        """Look once, then rest until the next look is due."""
        try:
            report = self._probe.poll(time.monotonic)
            self.latest = report
            self.probe_durations.append(report.at - report.began_at)
            with self._polled:
                self._polled.notify_all()
            self._on_report()
        finally:
            self._poked.wait(self._interval)
            self._poked.clear()

    def poke(self) -> None:
        """Look again as soon as possible."""
        self._poked.set()

    def poll_now(self, timeout: float) -> bool:
        """Wait for a look that begins from now on; False when none came in time."""
        asked_at = time.monotonic()
        with self._polled:
            return self._polled.wait_for(lambda: self._has_polled_since(asked_at), timeout)

    def _has_polled_since(self, asked_at: float) -> bool:
        if self.latest is not None and self.latest.began_at >= asked_at:
            return True
        self.poke()
        return False
