"""The sidecar: all parts assembled around one SparkContext."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from typing import Any

from ..alerting.alert import Alert, Alerts
from ..alerting.delivery import Delivery
from ..exporter.board import Board
from ..exporter.server import HttpServer
from ..exporter.status import Status, status
from ..listener.guard import Guard
from ..listener.health_listener import HealthListener, Heard
from ..listener.loop import Loop
from ..listener.mailbox import Mailbox
from ..listener.prober import Prober
from ..listener.probing import Context
from ..listener.reader import Arrived, EventReader, Marker
from ..listener.spark_probe import SparkProbe
from . import registry, wiring
from .failure import first_failure, nothing_left
from .monitor import MonitorFacts
from .settings import Settings
from .worker import Judged, Worker

log = logging.getLogger("querypulse")

MAILBOX_CAPACITY = 2000
ALIVE_SECONDS = 5.0
EXIT_SECONDS = 8.0


class Sidecar:
    """Watches the queries of one driver from the moment its listener is added.

    ``spark.streams.addListener(Sidecar(settings).listener)`` is enough; ``attach`` does
    the same in one call. Until then nothing runs and no port is taken.

    Raises:
        SettingsError: a receiver or limit cannot be used as set.

    """

    def __init__(self, settings: Settings | None = None, spark: Any = None) -> None:
        self.settings = settings if settings is not None else Settings()
        self._policy = wiring.policy(self.settings)
        self._guard = Guard()
        self._deliveries = [
            Delivery(receiver, self._guard) for receiver in wiring.receivers(self.settings)
        ]
        self._http_access = wiring.http_access(self.settings)
        self._spark = spark
        self._heard: Mailbox[Heard | Marker] = Mailbox(MAILBOX_CAPACITY)
        self._inbox: Mailbox[Arrived | Marker] = Mailbox(MAILBOX_CAPACITY)
        self._loops: list[Loop] = []
        self._server: HttpServer | None = None
        self._board: Board | None = None
        self._judged: Judged | None = None
        self._judging = threading.Condition()
        self._closing = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self.listener = HealthListener(self._heard, self._guard, self._on_wired)

    @property
    def url(self) -> str | None:
        """Where the HTTP server listens; None when it is off."""
        return self._server.url if self._server is not None else None

    @property
    def closed(self) -> bool:
        """Whether ``close`` has begun."""
        return self._closed

    def snapshot(self) -> Status:
        """A frozen view of all queries, the same as ``/status`` serves.

        Raises:
            RuntimeError: the listener has not been added to Spark yet.

        """
        if self._board is None:
            raise RuntimeError("querypulse watches nothing yet: add sidecar.listener to Spark")
        return status(self._board)

    def alerts(self) -> tuple[Alert, ...]:
        """The alerts firing now."""
        return self._judged.alerts if self._judged is not None else ()

    def flush(self, timeout: float = 5.0) -> bool:
        """Judge everything heard so far and attempt every delivery.

        Returns False when that took longer than ``timeout`` seconds, or a delivery failed.
        """
        if not self._loops or os.getpid() != self._pid:
            return False
        deadline = time.monotonic() + timeout
        looked = self._prober.look_now(_left(deadline))
        marker = Marker()
        self._heard.put(marker, lifecycle=True)
        judged = marker.passed.wait(_left(deadline))
        delivered = [delivery.flush(_left(deadline)) for delivery in self._deliveries]
        return looked and judged and all(delivered)

    def close(self, timeout: float = 5.0) -> None:
        """Flush and stop everything within about ``timeout`` seconds; a second call does nothing.

        Alerts stay open at their receivers: a monitor that leaves has cured nobody.
        """
        with self._closing:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
        atexit.unregister(self._at_exit)
        deadline = time.monotonic() + timeout
        self._guard.attempt("close", lambda: self.flush(max(0.5, timeout * 0.7)))
        self._guard.attempt("close", lambda: self._stop(deadline))
        with self._judging:
            self._judging.notify_all()

    def await_any_failure(self, timeout: float | None = None) -> None:
        """Block until a query fails or vanishes; the replacement for ``awaitTermination``.

        Returns when ``timeout`` seconds have passed, the sidecar was closed, the application
        stopped its SparkContext, or every query has completed by itself.

        Raises:
            QueryFailure: a query failed or vanished.

        """
        with self._judging:
            self._judging.wait_for(self._is_decided, timeout)
            failure = first_failure(self.alerts())
        if failure is not None:
            raise failure

    def _is_decided(self) -> bool:
        judged = self._judged
        if self._closed:
            return True
        if judged is None:
            return False
        over = nothing_left(judged.snapshot, judged.judgement)
        return over or first_failure(judged.alerts) is not None

    def _on_wired(self) -> None:
        """Start once, when PySpark asks for the JVM listener to add it."""
        if self._loops or self._closed:
            return
        spark = self._spark if self._spark is not None else _active_session()
        registry.remember(spark.sparkContext, self)
        self._start(spark)

    def _start(self, spark: Any) -> None:
        app = _clean(self.settings.app_name or spark.sparkContext.appName)
        closer = wiring.closer_after_seconds(self.settings)
        self._probe = SparkProbe(spark, self.listener, closer)
        self._prober = Prober(self._probe, self.settings.probe_interval_seconds, self._inbox.wake)
        reader = EventReader(
            self._heard,
            self._inbox,
            self._guard,
            context=self._probe.context,
            on_started=self._prober.poke,
        )
        self._worker = Worker(
            self._inbox,
            self._policy,
            Alerts(app, self.settings.runbook_base_url),
            self._deliveries,
            latest_report=lambda: self._prober.latest,
            on_judged=self._publish,
        )
        self._facts = MonitorFacts(
            app=app,
            spark_version=spark.version,
            listener=self.listener,
            heard=self._heard,
            reader=reader,
            prober=self._prober,
            worker=self._worker,
            guard=self._guard,
            deliveries=self._deliveries,
            expected=self.settings.expected_queries,
        )
        self._board = self._facts.board(self._worker.judged)
        self._loops = [
            Loop("reader", reader.step, self._guard),
            Loop("probe", self._prober.step, self._guard),
            Loop("worker", self._worker.step, self._guard),
        ]
        self._serve()
        for delivery in self._deliveries:
            delivery.start()
        for loop in self._loops:
            loop.start()
        atexit.register(self._at_exit)

    def _serve(self) -> None:
        if self.settings.http_port < 0:
            return
        server = HttpServer(
            self.settings.http_host,
            self.settings.http_port,
            lambda: self._board,
            self._is_alive,
            self._guard,
            token=self._http_access.token,
            tls=self._http_access.tls,
        )
        try:
            server.start()
        except OSError as error:
            log.error(  # noqa: TRY400 - one line, no traceback: the job goes on
                "querypulse: no metrics server on %s:%s: %s",
                self.settings.http_host,
                self.settings.http_port,
                error,
            )
        else:
            self._server = server

    def _is_alive(self) -> bool:
        return time.monotonic() - self._worker.beat_at < ALIVE_SECONDS

    def _publish(self, judged: Judged) -> None:
        self._judged = judged
        self._board = self._facts.board(judged)
        with self._judging:
            self._judging.notify_all()
        if judged.snapshot.context is Context.STOPPED_BY_APPLICATION and not self._closed:
            threading.Thread(target=self.close, name="querypulse-close", daemon=True).start()

    def _at_exit(self) -> None:
        self.close(EXIT_SECONDS)

    def _stop(self, deadline: float) -> None:
        for loop in self._loops:
            loop.stop()
        self._heard.wake()
        self._inbox.wake()
        if self._loops:
            self._prober.poke()
        for delivery in self._deliveries:
            delivery.close(_left(deadline))
        if self._server is not None:
            self._server.close(_left(deadline))
        for loop in self._loops:
            loop.join(_left(deadline))


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _clean(text: str) -> str:
    # The environment may hold bytes that are no text; JSON and HTTP may not.
    return text.encode("utf-8", "replace").decode()


def _active_session() -> Any:
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise RuntimeError("querypulse: no active SparkSession; use attach(spark)")
    return spark
