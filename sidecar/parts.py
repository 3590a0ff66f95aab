"""The running parts of a sidecar: threads, server, telling, around one SparkContext."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from ..alerting.alert import Incident
from ..alerting.lifecycle.lifecycle import Lifecycle
from ..exporter.board import Board
from ..exporter.server import HttpServer
from ..listener.guard import Guard
from ..listener.health_listener import HealthListener, Heard
from ..listener.log_reader import LogReader
from ..listener.loop import Loop
from ..listener.mailbox import Mailbox
from ..listener.prober import Prober
from ..listener.reader import EventReader, ExpectStop, Inbox, Marker
from ..listener.sources.reader import SourceReader
from ..listener.sources.spark_sources import SparkSources
from ..listener.spark_commit_log import SparkStorage
from ..listener.spark_probe import SparkProbe
from .configuration import wiring
from .configuration.outfit import Outfit
from .configuration.settings import Settings
from .deadline import Deadline
from .monitor import MonitorFacts
from .telling import Telling
from .worker import Judged, Worker

log = logging.getLogger("querypulse")

MAILBOX_CAPACITY = 2000
ALIVE_SECONDS = 5.0


class Parts:
    """Everything that runs, from ``start`` to ``stop``; data flows one way through it.

    listener -> ``heard`` -> reader -> ``arrived`` -> worker -> board and telling;
    probe, commit-log reader and source reader -> their newest report -> worker.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        spark: Any,
        listener: HealthListener,
        heard: Mailbox[Heard | Marker],
        outfit: Outfit,
        guard: Guard,
        on_judged: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._heard = heard
        self._arrived: Inbox = Mailbox(MAILBOX_CAPACITY)
        self._outfit = outfit
        self._guard = guard
        self._on_judged = on_judged
        probe = SparkProbe(spark, listener, wiring.closer_after_seconds(settings))
        self._prober = Prober(probe, settings.probe_interval_seconds, self._arrived.wake)
        self._log_reader = LogReader(
            SparkStorage(spark).open, lambda: self._prober.latest, self._arrived.wake
        )
        self._source_reader = self._make_source_reader(spark)
        reader = EventReader(
            heard, self._arrived, guard, context=probe.context, on_started=self._prober.poke
        )
        app = app_name(settings, spark)
        lifecycle = Lifecycle(app, settings.runbook_base_url, wiring.terms(settings))
        self._telling = self._make_telling(app, lifecycle)
        self._worker = self._make_worker(lifecycle)
        self._facts = MonitorFacts(
            app=app,
            spark_version=spark.version,
            expected=settings.expected_queries,
            lag_by_partition=settings.lag_by_partition,
            listener=listener,
            heard=heard,
            reader=reader,
            prober=self._prober,
            worker=self._worker,
            guard=guard,
            telling=self._telling,
        )
        self._loops = self._make_loops(reader, probe)
        self.judged: Judged = self._worker.judged
        self.board: Board = self._facts.board(self.judged)
        self._server = self._make_server(outfit.access)

    @property
    def url(self) -> str | None:
        """Where the HTTP server listens; None when it is off."""
        return self._server.url if self._server is not None else None

    def start(self) -> None:
        """Take the port, if there is one to take, and start every thread."""
        if self._server is not None and not self._listens(self._server):
            self._server = None
        self._telling.start()
        for loop in self._loops:
            loop.start()

    def expect_stop(self, name: str) -> None:
        """Let the worker know before it hears of the end itself."""
        self._arrived.put(ExpectStop(name), lifecycle=True)

    def flush(self, deadline: Deadline) -> bool:
        """Look, judge and deliver once more; False when something was not done in time.

        No step may use up the time of those after it: a JVM that does not answer, or a
        receiver that hangs, must not keep a page from the others.
        """
        marker = Marker()
        looked = self._prober.look_now(deadline.left / 4)
        self._heard.put(marker, lifecycle=True)
        judged = marker.passed.wait(deadline.left / 3)
        told = self._telling.flush(deadline)
        return looked and judged and told

    def stop(self, deadline: Deadline) -> None:
        """Stop every thread and give the port back."""
        for loop in self._loops:
            loop.stop()
        self._heard.wake()
        self._arrived.wake()
        self._prober.poke()
        self._log_reader.poke()
        self._source_reader.stop()
        self._telling.close(deadline)
        if self._server is not None:
            self._server.close(deadline.left)
        for loop in self._loops:
            loop.join(deadline.left)

    def _make_source_reader(self, spark: Any) -> SourceReader:
        return SourceReader(
            SparkSources(spark),
            lambda: self.judged.snapshot,
            self._arrived.wake,
            interval_seconds=self._settings.source_interval_seconds,
        )

    def _make_loops(self, reader: EventReader, probe: SparkProbe) -> list[Loop]:
        guard, sources = self._guard, self._source_reader
        loops = [
            Loop("reader", reader.step, guard),
            Loop("probe", self._prober.step, guard, last=probe.release),
            Loop("commit-log", self._log_reader.step, guard),
            Loop("worker", self._worker.step, guard),
        ]
        if self._settings.source_interval_seconds:
            loops.append(Loop("sources", sources.step, guard, last=sources.close))
        return loops

    def _make_telling(self, app: str, lifecycle: Lifecycle) -> Telling:
        def inherit(incidents: Iterable[Incident]) -> None:
            lifecycle.inherit(incidents, time.monotonic())

        telling = Telling(
            self._settings,
            app,
            self._guard,
            receivers=self._outfit.receivers,
            heartbeat=self._outfit.heartbeat,
            inherit=inherit,
        )
        inherit(telling.inherited)
        return telling

    def _make_worker(self, lifecycle: Lifecycle) -> Worker:
        return Worker(
            self._arrived,
            self._outfit.policy,
            lifecycle,
            self._telling,
            latest_report=lambda: self._prober.latest,
            latest_log=lambda: self._log_reader.latest,
            latest_sources=lambda: self._source_reader.latest,
            silences=self._outfit.silencing,
            redact=self._outfit.redacting,
            on_judged=self._publish,
        )

    def _make_server(self, access: wiring.HttpAccess) -> HttpServer | None:
        if self._settings.http_port < 0:
            return None
        return HttpServer(
            self._settings.http_host,
            self._settings.http_port,
            lambda: self.board,
            self._is_alive,
            self._guard,
            token=access.token,
            tls=access.tls,
        )

    def _listens(self, server: HttpServer) -> bool:
        try:
            server.start()
        except OSError as error:
            where = f"{self._settings.http_host}:{self._settings.http_port}"
            log.error("querypulse: no server on %s: %s", where, error)  # noqa: TRY400 - one line
            return False
        return True

    def _is_alive(self) -> bool:
        return time.monotonic() - self._worker.beat_at < ALIVE_SECONDS

    def _publish(self, judged: Judged) -> None:
        self.judged = judged
        self.board = self._facts.board(judged)
        self._on_judged()


def app_name(settings: Settings, spark: Any) -> str:
    """The label ``app``: as set, else as Spark's application is called."""
    name: str = settings.app_name or spark.sparkContext.appName
    # The environment may hold bytes that are no text; JSON and HTTP may not.
    return name.encode("utf-8", "replace").decode()
