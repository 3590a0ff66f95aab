"""The sidecar, as people hold it: snapshot, alerts, flush, close, await_any_failure."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from datetime import datetime, timezone
from typing import Any

import msgspec

from ..alerting.alert import Alert
from ..exporter.status import Status, status
from ..listener.guard import Guard
from ..listener.health_listener import HealthListener, Heard
from ..listener.mailbox import Mailbox
from ..listener.probing import Context
from ..listener.reader import Marker
from ..listener.redacted_log import RedactedLog
from .configuration.outfit import outfit
from .configuration.receiver_settings import SilenceSettings
from .configuration.settings import Settings
from .deadline import Deadline
from .failure import first_failure, nothing_left
from .parts import MAILBOX_CAPACITY, Parts
from .registry import Registry
from .silencing import until_of

log = logging.getLogger("querypulse")

EXIT_SECONDS = 8.0
FLUSH_SHARE = 0.7
"""How much of the time to close may go into telling; the rest is for stopping."""


class Sidecar:
    """Watches the queries of one driver from the moment its listener is added.

    ``spark.streams.addListener(Sidecar(settings).listener)`` is enough; ``attach`` does
    the same in one call. Until then nothing runs and no port is taken.

    Raises:
        SettingsError: a limit, receiver, key or certificate cannot be used as set.

    """

    def __init__(self, settings: Settings | None = None, spark: Any = None) -> None:
        self.settings = settings if settings is not None else Settings()
        self._guard = Guard()
        self._outfit = outfit(self.settings, self._guard)
        self._redacted_log = RedactedLog(self._outfit.redacting.text)
        self._spark = spark
        self._heard: Mailbox[Heard | Marker] = Mailbox(MAILBOX_CAPACITY)
        self._parts: Parts | None = None
        self._news = threading.Condition()
        self._closing = threading.Lock()
        self._closed = False
        self._ended = threading.Event()
        self._pid = os.getpid()
        self.listener = HealthListener(self._heard, self._guard, self._on_wired)

    @property
    def url(self) -> str | None:
        """Where the HTTP server listens; None when it is off."""
        return self._parts.url if self._parts is not None else None

    @property
    def closed(self) -> bool:
        """Whether ``close`` has begun."""
        return self._closed

    def snapshot(self) -> Status:
        """A frozen view of all queries, the same as ``/status`` serves.

        Raises:
            RuntimeError: the listener has not been added to Spark yet.

        """
        if self._parts is None:
            raise RuntimeError("querypulse watches nothing yet: add sidecar.listener to Spark")
        return status(self._parts.board)

    def alerts(self) -> tuple[Alert, ...]:
        """The alerts firing now."""
        return self._parts.judged.alerts if self._parts is not None else ()

    def flush(self, timeout: float = 5.0) -> bool:
        """Judge everything heard so far and attempt every delivery.

        Returns False when that took longer than ``timeout`` seconds, or a delivery failed.
        """
        if self._parts is None or os.getpid() != self._pid:
            return False
        return self._parts.flush(Deadline(timeout))

    def expect_stop(self, name: str) -> None:
        """Announce that the present run of a query is going to be stopped: nobody is told.

        Call it before ``query.stop()``. It holds for that run only; its failure is still told.

        Raises:
            ValueError: no query of this name is known.

        """
        if not self._knows(name) and not (self.flush() and self._knows(name)):
            known = [query.name for query in self.snapshot().queries] if self._parts else []
            raise ValueError(f"expect_stop: no query is called {name!r}; known: {known}")
        if self._parts is not None:
            self._parts.expect_stop(name)

    def silence(
        self,
        queries: str,
        minutes: float | None = None,
        until: datetime | None = None,
        reason: str = "",
        alertname: str = "*",
    ) -> None:
        """Tell nobody of what befalls queries of this name pattern, for ``minutes`` or ``until``.

        What was told before stays open, and its end is told. It holds in this process;
        ``querypulse silence`` and the setting ``silences`` outlive it.

        Raises:
            ValueError: it has no end, or ends in the past, or ``until`` has no time zone.

        """
        end = until_of(minutes, until, datetime.now(timezone.utc))
        given = {"queries": queries, "until": end, "alertname": alertname, "reason": reason}
        self._outfit.silencing.add(msgspec.convert(given, SilenceSettings))

    def close(self, timeout: float = 5.0) -> None:
        """Flush and stop everything within about ``timeout`` seconds.

        A second call waits for the first and does nothing more.
        Alerts stay open at their receivers: a monitor that leaves has cured nobody.
        """
        if os.getpid() != self._pid:
            return
        with self._closing:
            first, self._closed = not self._closed, True
        if not first:
            self._ended.wait(timeout)
            return
        self._close(timeout)
        self._ended.set()
        # Only now: an exit that comes in between must wait for the telling.
        atexit.unregister(self._at_exit)
        with self._news:
            self._news.notify_all()

    def await_any_failure(self, timeout: float | None = None) -> None:
        """Block until a query fails or vanishes; the replacement for ``awaitTermination``.

        Returns when ``timeout`` seconds have passed, the sidecar was closed, the application
        stopped its SparkContext, or every query has completed by itself.

        Raises:
            QueryFailure: a query failed or vanished.

        """
        with self._news:
            self._news.wait_for(self._is_decided, timeout)
            parts = self._parts
            failure = first_failure(parts.judged.judgement) if parts is not None else None
        if failure is not None:
            raise failure

    def _close(self, timeout: float) -> None:
        parts, deadline = self._parts, Deadline(timeout)
        if parts is not None:
            self._guard.attempt("close", lambda: parts.flush(Deadline(timeout * FLUSH_SHARE)))
            self._guard.attempt("close", lambda: parts.stop(deadline))
        log.removeFilter(self._redacted_log)

    def _knows(self, name: str) -> bool:
        if self._parts is None:
            return False
        return any(query.name == name for query in self._parts.judged.snapshot.queries)

    def _is_decided(self) -> bool:
        if self._closed or self._parts is None:
            return self._closed
        judged = self._parts.judged
        over = nothing_left(judged.snapshot, judged.judgement)
        return over or first_failure(judged.judgement) is not None

    def _on_wired(self) -> None:
        """Start once, when PySpark asks for the JVM listener in order to add it."""
        if self._parts is not None or self._closed:
            return
        spark = self._spark if self._spark is not None else _active_session()
        SIDECARS.close_stale()
        self._outfit.redacting.honour(lambda name: spark.conf.get(name, None))
        log.addFilter(self._redacted_log)
        parts = Parts(
            settings=self.settings,
            spark=spark,
            listener=self.listener,
            heard=self._heard,
            outfit=self._outfit,
            guard=self._guard,
            on_judged=self._on_judged,
        )
        parts.start()
        self._parts = parts
        SIDECARS.remember(spark.sparkContext, self)
        atexit.register(self._at_exit)

    def _on_judged(self) -> None:
        with self._news:
            self._news.notify_all()
        stopped = self._parts is not None and (
            self._parts.judged.snapshot.context is Context.STOPPED_BY_APPLICATION
        )
        if stopped and not self._closed:
            # The worker, which calls this, cannot wait for its own end.
            threading.Thread(target=self.close, name="querypulse-close", daemon=True).start()

    def _at_exit(self) -> None:
        self.close(EXIT_SECONDS)


SIDECARS: Registry[Sidecar] = Registry()


def _active_session() -> Any:
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise RuntimeError("querypulse: no active SparkSession; use attach(spark)")
    return spark
