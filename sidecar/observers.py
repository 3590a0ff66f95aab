"""What observes Spark: the event reader, the probe, the commit-log and source readers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..core.guard import Guard
from ..core.loop import Loop
from ..listener import jvm
from ..listener.event_path import EventPath
from ..listener.log_reader import LogReader
from ..listener.prober import CALM_SECONDS, Prober
from ..listener.reader import EventReader, Inbox, Marker
from ..listener.snapshot import Snapshot
from ..listener.sources.reader import SourceReader
from ..listener.sources.spark_sources import SparkSources
from ..listener.spark_commit_log import SparkStorage
from ..listener.spark_probe import SparkProbe
from ..settings import wiring
from ..settings.settings import Settings


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
