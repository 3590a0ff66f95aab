"""The sidecar, as people hold it: snapshot, alerts, flush, close, await_any_failure."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from datetime import datetime
from functools import partial
from typing import Any

from ..alerting.alert import Alert
from ..exporter.status import Status, status
from ..listener.guard import Guard
from ..listener.health_listener import HealthListener
from ..listener.redacted_log import RedactedLog
from . import announcing
from .awaiting import FailureWait
from .configuration.components import outfit
from .configuration.settings import Settings, SettingsError
from .deadline import Deadline
from .registry import Registry
from .runtime import MAILBOX_CAPACITY, Runtime
from .session import NoSessionError, active_session, settings_of
from .silencing import silence_until
from .starting import start_parts

log = logging.getLogger("querypulse")

EXIT_SECONDS = 8.0


class Sidecar:
    """Watches the queries of one driver from the moment it is started.

    ``spark.streams.addListener(Sidecar(webhook_url=...).listener)`` starts it, and so does
    ``attach``. Settings come from the arguments, else the environment, else the Spark conf,
    else the TOML file; a ``Settings`` given is taken as it is.

    Raises:
        SettingsError: a setting is unknown or not allowed, or a limit, receiver, key or
            certificate cannot be used as set.

    """

    def __init__(
        self, settings: Settings | None = None, spark: Any = None, **arguments: object
    ) -> None:
        self._spark = spark
        if settings is not None and arguments:
            raise SettingsError(f"give Settings or arguments, not both: {', '.join(arguments)}")
        self.settings = settings if settings is not None else settings_of(spark, arguments)
        self._guard = Guard()
        self._outfit = outfit(self.settings, self._guard)
        self._redacted_log = RedactedLog(self._outfit.redacting.text)
        self._parts: Runtime | None = None
        self._wait = FailureWait(
            lambda: self._parts.evaluated if self._parts is not None else None, lambda: self._closed
        )
        self._closing = threading.Lock()
        self._closed = False
        self._ended = threading.Event()
        self._pid = os.getpid()
        starts = {"start": self._start_by_hand, "start_later": self._start_later}
        self.listener = HealthListener(self._guard, capacity=MAILBOX_CAPACITY, **starts)

    def __repr__(self) -> str:
        return announcing.shown(self._parts, closed=self._closed)

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
        return self._parts.evaluated.alerts if self._parts is not None else ()

    def flush(self, timeout: float = 5.0) -> bool:
        """Judge everything heard so far and attempt every delivery.

        Returns False when that took longer than ``timeout`` seconds, or a delivery failed.
        """
        if self._parts is None or os.getpid() != self._pid:
            return False
        return self._parts.flush(Deadline(timeout))

    def expect_stop(self, name: Any) -> None:
        """Announce a planned stop of the present run, before ``query.stop()``; failures still page.

        ``name`` is a query's name, or the ``StreamingQuery``.

        Raises:
            ValueError: no such query is known.

        """
        announcing.expect_stop(self._parts, self.flush, name)

    def forget(self, name: Any) -> None:
        """Drop a query that will not come back: its alerts resolve, its series end.

        It is no longer expected. ``"unnamed"`` drops every dead query without a name.

        Raises:
            ValueError: no query of this name is known, or it lives.

        """
        announcing.forget(self._parts, self.flush, name)

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
            ValueError: its end is missing, past or without time zone, or 1,000 are in force.

        """
        one = silence_until(queries, minutes, until, alertname=alertname, reason=reason)
        announcing.silence(self._parts, self._outfit.silencing, one)

    def start_or_stand_by(self, *, by_hand: bool = False) -> None:
        """Begin to watch; called again, does nothing.

        An error of ours must not end the job: it is logged, nothing is watched then, and
        ``await_any_failure`` waits in Spark's own way.

        Raises:
            NoSessionError: there is no SparkSession to watch.
            SettingsError: another sidecar watches it.

        """
        try:
            self._start(by_hand=by_hand)
        except (NoSessionError, SettingsError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the job that called goes on
            self._guard.report("attach", error)
            log.warning("querypulse: this job is not watched; it goes on without")
            self.close()
            self._wait.wait_in((self._spark or active_session()).streams)

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
        if self._parts is not None:
            self._guard.attempt("close", partial(self._parts.end, timeout))
        log.removeFilter(self._redacted_log)
        self.listener.closed = True
        SIDECARS.forget(self)
        self._ended.set()
        # Only now: an exit that comes in between must wait for the telling.
        atexit.unregister(self._at_exit)
        self._wait.wake()

    def await_any_failure(self, timeout: float | None = None, on_stall: bool = False) -> None:
        """Block until a query fails or vanishes; the replacement for ``awaitTermination``.

        Returns when ``timeout`` seconds have passed, the sidecar was closed, the application
        stopped its SparkContext, or every query has completed. Processes on one JVM wait for their
        own queries and ``expected_queries``. With ``on_stall`` a critical stall is a failure.

        Raises:
            QueryFailure: a query failed or vanished, or the JVM has ended (query ``*``).

        """
        self._wait.wait(timeout, on_stall=on_stall)

    def _start_by_hand(self) -> Any:
        """What PySpark adds or removes; PySpark asks for it in order to do so."""
        self.start_or_stand_by(by_hand=True)
        known = self._parts.path.java_listener if self._parts is not None else None
        # Without one nothing runs any more, or ever did: what Spark gets then does nothing.
        return known if known is not None else self.listener.proxy()[1]

    def _start_later(self) -> None:
        """Start away from the thread of Spark's that found us not started."""
        start = partial(self._guard.attempt, "start", self.start_or_stand_by)
        threading.Thread(target=start, name="querypulse-start", daemon=True).start()

    def _start(self, *, by_hand: bool) -> None:
        with SIDECARS.lock:
            if self._parts is not None or self._closed:
                return
            spark = self._spark or active_session()
            if SIDECARS.find(spark.sparkContext) is not None:
                raise SettingsError("another sidecar watches this SparkContext: use or close that")
            SIDECARS.close_stale()
            self._outfit.redacting.honour(lambda name: spark.conf.get(name, None))
            make = partial(
                Runtime,
                settings=self.settings,
                spark=spark,
                listener=self.listener,
                outfit=self._outfit,
                guard=self._guard,
                on_evaluated=self._on_evaluated,
            )
            self._parts = start_parts(spark, self.listener, self._guard, make, by_hand=by_hand)
            log.addFilter(self._redacted_log)
            SIDECARS.remember(spark.sparkContext, self)
            atexit.register(self._at_exit)

    def _on_evaluated(self) -> None:
        self._wait.wake()
        context = self._parts.evaluated.snapshot.context if self._parts is not None else None
        if context is not None and context.is_on_purpose and not self._closed:
            # The worker, which calls this, cannot wait for its own end.
            threading.Thread(target=self.close, name="querypulse-close", daemon=True).start()

    def _at_exit(self) -> None:
        self.close(EXIT_SECONDS)


SIDECARS: Registry[Sidecar] = Registry()
