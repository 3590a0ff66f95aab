"""What observes Spark: the event reader, the probe, the commit-log and source readers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..core.guard import Guard
from ..core.threads import Loop
from ..listener.checkpoints import LogReader
from ..listener.commit_log import LogReport
from ..listener.connect.event_stream import ConnectPath
from ..listener.connect.probe import ConnectProbe
from ..listener.event_reader import EventReader, Inbox, Marker
from ..listener.probe import CALM_SECONDS, Prober
from ..listener.snapshot import Snapshot
from ..listener.source_polls import SourceReport
from ..listener.sources.reader import SourceReader, SparkSources
from ..listener.spark import jvm
from ..listener.spark.event_paths import EventPath
from ..listener.spark.probe import SparkProbe
from ..listener.spark.storage import SparkStorage
from ..settings import wiring
from ..settings.settings import Settings

# -- observers --------------------------------------------------------------------------------


class Observers:
    """Each has its own thread. Events go to ``arrived``; of the others the newest report counts."""

    def __init__(
        self,
        settings: Settings,
        spark: Any,
        path: EventPath,
        arrived: Inbox,
        guard: Guard,
        *,
        latest_snapshot: Callable[[], Snapshot],
    ) -> None:
        self._guard = guard
        self._arrived = arrived
        self._interval = settings.source_interval_seconds
        self._probe = SparkProbe(spark, path, wiring.closer_after_seconds(settings))
        gateway = spark.sparkContext._gateway  # noqa: SLF001 - there is no public way to the JVM
        probe = jvm.ProbeOfLivingJvm(
            self._probe,
            gone=lambda: jvm.is_gone(gateway),
            context=self._probe.context,
            terminated=lambda: path.terminated,
        )
        self.prober = Prober(
            probe,
            settings.probe_interval_seconds,
            self._on_report,
            # On other paths only a poll shows that the JVM shuts down, for half a second.
            calm_seconds=CALM_SECONDS if path.shows_shutdown else 0.0,
        )
        self._storage = SparkStorage(spark)
        self.logs = LogReader(
            self._storage.open,
            lambda: self.prober.latest,
            arrived.wake,
            stall_floor_seconds=wiring.shortest_floor_seconds(settings),
        )
        self.sources = SourceReader(
            SparkSources(spark), latest_snapshot, arrived.wake, interval_seconds=self._interval
        )
        self.reader = EventReader(
            path.source,
            arrived,
            guard,
            context=self._probe.context,
            on_started=self.prober.poke,
            on_lost=self.prober.poke,
            jvm_ended=lambda: probe.ended,
        )

    def loops(self) -> list[Loop]:
        """Their threads, not started."""
        guard = self._guard
        loops = [
            Loop("reader", self.reader.step, guard),
            Loop("probe", self.prober.step, guard, last=self._probe.release),
            Loop("commit-log", self.logs.step, guard, last=self._storage.release),
        ]
        if self._interval:
            loops.append(Loop("sources", self.sources.step, guard, last=self.sources.close))
        return loops

    def mark(self, marker: Marker) -> None:
        """Queue ``marker`` behind every event received so far, as soon as possible."""
        self.reader.mark(marker)
        self.prober.poke()

    def hasten_end(self) -> None:
        """Wake all loops from their pauses, after they were asked to stop."""
        self.prober.poke()
        self.logs.poke()
        self.sources.stop()

    def _on_report(self) -> None:
        """Pass on a probe's result. Waking calls the JVM, which the probe's thread may wait for."""
        self._arrived.wake()
        if self.prober.latest is not None:
            self.logs.poke_for(self.prober.latest)
        with suppress(*jvm.NETWORK_ERRORS):
            self.reader.wake_if_marked()


# -- connect ----------------------------------------------------------------------------------
# What observes Spark over Spark Connect: the event stream, the event reader and the probe.


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
