"""What observes Spark over Spark Connect: the event stream, the event reader and the probe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.guard import Guard
from ..core.loop import Loop
from ..listener.commit_log import LogReport
from ..listener.connect.path import ConnectPath
from ..listener.connect.probe import ConnectProbe
from ..listener.prober import Prober
from ..listener.reader import EventReader, Inbox, Marker
from ..listener.snapshot import Snapshot
from ..listener.sources.report import SourceReport
from ..settings.settings import Settings
from .observers import Observers

POLL_SECONDS = 2.0
"""The shortest interval of the probe: each poll is two calls to the server for each query."""


class NoLogs:
    """Spark Connect shows no checkpoints."""

    latest: LogReport | None = None


class NoSources:
    """Spark Connect shows no sources."""

    latest: SourceReport | None = None


class ConnectObservers:
    """As ``Observers``, for a Spark Connect session; checkpoints and sources are not read."""

    def __init__(
        self, settings: Settings, spark: Any, path: ConnectPath, arrived: Inbox, guard: Guard
    ) -> None:
        self._guard = guard
        self._arrived = arrived
        self._stream = path.stream
        self._has_stream = path.has_stream
        self._probe = ConnectProbe(spark, path)
        interval = max(POLL_SECONDS, settings.probe_interval_seconds)
        self.prober = Prober(self._probe, interval, self._on_report)
        self.logs, self.sources = NoLogs(), NoSources()
        self.reader = EventReader(
            path.source,
            arrived,
            guard,
            context=self._probe.context,
            on_started=self.prober.poke,
        )

    def loops(self) -> list[Loop]:
        """Their threads, not started."""
        loops = [
            Loop("reader", self.reader.step, self._guard),
            Loop("probe", self.prober.step, self._guard, last=self._probe.release),
        ]
        if self._has_stream:
            stream = self._stream
            loops.append(Loop("events", stream.step, self._guard, last=stream.close))
        return loops

    def mark(self, marker: Marker) -> None:
        """Queue ``marker`` behind every event received so far, as soon as possible."""
        self.reader.mark(marker)
        self.reader.wake_if_marked()
        self.prober.poke()

    def hasten_end(self) -> None:
        """Wake all loops from their pauses, after they were asked to stop."""
        self._probe.stop()
        self._stream.hasten_end()
        self.prober.poke()
        self.reader.source.wake()

    def _on_report(self) -> None:
        self._arrived.wake()
        self.reader.wake_if_marked()


def observers_of(
    settings: Settings,
    spark: Any,
    path: Any,
    arrived: Inbox,
    guard: Guard,
    *,
    latest_snapshot: Callable[[], Snapshot],
) -> Observers | ConnectObservers:
    """The observers for an event path."""
    if isinstance(path, ConnectPath):
        return ConnectObservers(settings, spark, path, arrived, guard)
    return Observers(settings, spark, path, arrived, guard, latest_snapshot=latest_snapshot)


def spark_version(spark: Any, path: Any) -> str:
    """The version of Spark that runs the queries; a server was asked when its path was opened."""
    return path.version if isinstance(path, ConnectPath) else str(spark.version)
