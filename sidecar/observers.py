"""The threads that read: Spark's events, the probe, commit logs, sources, and files that change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from ..core.files import FileLoop
from ..core.guard import Guard, Problem
from ..core.threads import Loop
from ..exporter.server import HttpServer
from ..listener.checkpoints import LogReader
from ..listener.commit_log import LogReport
from ..listener.connect.event_path import ConnectPath
from ..listener.connect.probe import ConnectProbe
from ..listener.event_reader import EventReader, OnEvent
from ..listener.foresight.host import Folders, HostReader
from ..listener.foresight.resources import Resources
from ..listener.mailbox import Inbox, Marker
from ..listener.prober import CALM_SECONDS, Prober
from ..listener.source_polls import SourceReport
from ..listener.sources.reader import SourceReader, SparkSources
from ..listener.spark.event_paths import EventPath
from ..listener.spark.jvm import NETWORK_ERRORS, OptionalCalls
from ..listener.spark.probe import SparkProbe
from ..listener.spark.storage import SparkStorage, local_dirs
from ..listener.state.snapshot import Snapshot
from ..settings.settings import Settings
from .assemble import Components, shortest_floor_seconds

log = logging.getLogger("querypulse")

CLOSER_AFTER_SECONDS = 5.0
"""The probe examines a busy query closely after this long, and long before any window ends."""
CONNECT_POLL_SECONDS = 2.0
"""The shortest pause of a Connect probe: each poll is two or three calls for each query."""
READ_SECONDS = 1.0
"""The pause between two reads of a file that may change."""


class Observers(msgspec.Struct, frozen=True, kw_only=True):
    """What reads Spark; each loop is a thread. Events go to the worker's inbox at once.

    Of the other reports the newest counts; each function returns None before the first.
    """

    reader: EventReader
    prober: Prober
    loops: list[Loop]
    latest_log: Callable[[], LogReport | None] = lambda: None
    latest_sources: Callable[[], SourceReport | None] = lambda: None
    latest_host: Callable[[], Resources | None] = lambda: None
    has_lost_jvm: Callable[[], bool] = lambda: False
    """Whether the JVM has died; asks no JVM."""

    def mark(self, marker: Marker) -> None:
        """Queue ``marker`` behind every event received so far, as soon as possible."""
        self.reader.mark(marker)
        self.prober.poke()


def observe_classic(
    components: Components,
    spark: Any,
    path: EventPath,
    arrived: Inbox,
    latest_snapshot: Callable[[], Snapshot],
    *,
    on_event: OnEvent,
) -> Observers:
    """Read the Spark of this process; nothing is started."""
    guard = components.guard
    settings = components.settings
    floor = shortest_floor_seconds(settings)
    probe = SparkProbe(spark, path, min(CLOSER_AFTER_SECONDS, floor / 4))

    def pass_on_report() -> None:
        arrived.wake()
        if prober.latest is not None:
            logs.poke_for(prober.latest)
        # Waking calls the JVM, which the probe's thread may wait for.
        with suppress(*NETWORK_ERRORS):
            reader.wake_if_marked()

    prober = Prober(
        probe,
        settings.probe_interval_seconds,
        pass_on_report,
        # On other paths only a poll shows that the JVM shuts down, for half a second.
        calm_seconds=CALM_SECONDS if path.shows_shutdown else 0.0,
    )
    storage = SparkStorage(spark, path.executions)
    logs = LogReader(storage.open, lambda: prober.latest, arrived.wake, stall_floor_seconds=floor)
    reads = SparkSources(spark, path.executions), latest_snapshot, arrived.wake
    sources = SourceReader(*reads, guard, interval_seconds=settings.source_interval_seconds)
    reader = EventReader(
        path.source,
        arrived,
        guard,
        context=probe.context,
        poke=prober.poke,
        jvm_ended=lambda: probe.ended,
        on_event=on_event,
        observed=settings.observed_metrics,
    )
    host = _host_reader(spark, settings, latest_snapshot, arrived)
    return Observers(
        reader=reader,
        prober=prober,
        loops=[
            Loop("reader", reader.step, guard),
            Loop("probe", prober.step, guard, last=probe.release, wake=prober.poke),
            Loop("commit-log", logs.step, guard, last=partial(_end, logs, storage), wake=logs.poke),
            *_source_loops(sources, settings.source_interval_seconds, guard),
            Loop("host", host.step, guard, last=host.close, wake=host.stop),
        ],
        latest_log=lambda: logs.latest,
        latest_sources=lambda: sources.latest,
        latest_host=lambda: host.latest,
        has_lost_jvm=probe.has_lost_jvm,
    )


def _end(logs: LogReader, storage: SparkStorage) -> None:
    logs.close()
    storage.release()


def _host_reader(
    spark: Any, settings: Settings, latest_snapshot: Callable[[], Snapshot], arrived: Inbox
) -> HostReader:
    """Read the disks with checkpoints, with Spark's working files, and with our own folders."""
    local = OptionalCalls().ask("spark.local.dir", lambda: local_dirs(spark), ())
    folders = dict.fromkeys(local, "spark.local.dir")
    for name in ("spool_dir", "incidents_dir"):
        place = getattr(settings, name)
        if place is not None:
            folders[place] = name
    return HostReader(lambda: folders | _checkpoints(latest_snapshot()), arrived.wake)


def _checkpoints(snapshot: Snapshot) -> Folders:
    """What is in the folders of the checkpoints of active queries."""
    return {
        query.run.facts.checkpoint: f"checkpoint of {query.label}"
        for query in snapshot.queries
        if query.run.alive and query.run.facts is not None
    }


def _source_loops(sources: SourceReader, interval: float, guard: Guard) -> list[Loop]:
    """The thread that asks the sources; none where the settings say so."""
    if not interval:
        return []
    return [Loop("sources", sources.step, guard, last=sources.close, wake=sources.stop)]


def observe_connect(
    components: Components, path: ConnectPath, arrived: Inbox, *, on_event: OnEvent
) -> Observers:
    """Read a Spark Connect session, which shows neither checkpoints nor sources."""
    guard = components.guard
    probe = ConnectProbe(path)

    interval = max(CONNECT_POLL_SECONDS, components.settings.probe_interval_seconds)
    prober = Prober(probe, interval, arrived.wake)
    reader = EventReader(
        path.source,
        arrived,
        guard,
        context=probe.context,
        poke=prober.poke,
        on_event=on_event,
        observed=components.settings.observed_metrics,
    )
    loops = [
        Loop("reader", reader.step, guard, wake=path.source.wake),
        Loop("probe", prober.step, guard, last=probe.release, wake=prober.poke),
    ]
    return Observers(reader=reader, prober=prober, loops=loops)


class FileReaders:
    """One thread per kind of file that is configured: on a hanging mount, a read hangs."""

    def __init__(self, components: Components, server: HttpServer | None) -> None:
        self._silencing = components.silencing
        self._redacting = components.redacting
        self._token = None if server is None else components.token
        self._server = server
        self._certificate = Problem("querypulse: the HTTP server keeps its certificate: %s")
        self._loops: dict[str, FileLoop] = {}
        guard = components.guard
        has_access = (components.token or components.tls) is not None
        if self._redacting.reads_files:
            read = self._redacting.refresh
            self._loops["secrets"] = FileLoop("secret-files", read, READ_SECONDS, guard)
        if server is not None and has_access:
            self._loops["http"] = FileLoop("http-files", self._renew_access, READ_SECONDS, guard)

    @property
    def problems(self) -> dict[str, str]:
        """By what the files hold: why what was read last may be old. Reads no file."""
        problems = {
            "silences": self._silencing.problem,
            "secrets": self._redacting.problem,
            "http": self._certificate.text or (self._token.problem if self._token else ""),
        }
        problems |= {kind: loop.problem for kind, loop in self._loops.items() if loop.problem}
        return {kind: problem for kind, problem in problems.items() if problem}

    def start(self) -> None:
        """Start reading; the silences are known when this returns."""
        self._silencing.start()
        for loop in self._loops.values():
            loop.start()

    def stop(self) -> None:
        """Stop reading."""
        self._silencing.stop()
        for loop in self._loops.values():
            loop.end()

    def _renew_access(self) -> None:
        """Read the token and the certificates that have changed.

        Where a file cannot be read, or does not match the others yet, the previous content holds:
        a rotation may be half done.
        """
        if self._token is not None:
            self._token.reveal()
        try:
            if self._server is not None and self._server.renew():
                log.info("querypulse: the HTTP server has a new certificate")
            self._certificate.note("")
        except OSError as error:
            self._certificate.note(str(error))
