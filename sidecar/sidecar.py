"""The public object ``Sidecar``: snapshot, alerts, flush, close, await_any_failure."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from contextlib import suppress
from functools import partial
from typing import Any

from ..alerting.alert import Alert
from ..alerting.evaluated import Evaluated
from ..core.deadline import Deadline
from ..core.guard import Guard
from ..core.redacted_log import RedactedLog
from ..exporter.status import Status, status
from ..listener.health_listener import HealthListener
from ..settings.components import make_components
from ..settings.settings import Settings, SettingsError
from .announcing import Announcements
from .awaiting import FailureWait
from .registry import Registry
from .restart_terms import RestartTerms
from .runtime import MAILBOX_CAPACITY, Runtime
from .session import NoSessionError, active_session, conf_reader, settings_of, watched_by
from .starting import idle_listener, in_background, report_unmonitored, start_runtime
from .supervisions import Starts
from .supervisor import Supervisor, check_starts
from .unwatched import run_unwatched
from .view import SidecarView

log = logging.getLogger("querypulse")

EXIT_SECONDS = 8.0


class Sidecar(SidecarView, Announcements):
    """Watches the queries of one driver from the moment it is started.

    ``spark.streams.addListener(Sidecar(webhook_url=...).listener)`` starts it, and so does
    ``attach``. Settings come from the arguments, else the environment, else the Spark conf,
    else the TOML file. A ``Settings`` object is used unchanged.

    Raises:
        SettingsError: a setting is unknown or not allowed, or a configured limit, receiver,
            key or certificate cannot be used.

    """

    def __init__(
        self, settings: Settings | None = None, spark: Any = None, **arguments: object
    ) -> None:
        self._spark = spark
        if settings is not None and arguments:
            raise SettingsError(f"give Settings or arguments, not both: {', '.join(arguments)}")
        self.settings = settings if settings is not None else settings_of(spark, arguments)
        self._guard = Guard()
        self._components = make_components(self.settings, self._guard)
        self._redacted_log = RedactedLog(self._components.redacting.text)
        self._runtime: Runtime | None = None
        self._wait = FailureWait(self._evaluated, lambda: self._closed)
        self._supervisor = Supervisor(
            lambda: self._require_runtime().evaluated.snapshot,
            closed=lambda: self._closed,
            redact_ours=self._components.redacting.text,
        )
        self._closing = threading.Lock()
        self._closed, self._ended = False, threading.Event()
        self._pid = os.getpid()
        later = partial(in_background, "start", self._guard, self.start_or_stand_by)
        starts: dict[str, Any] = {"start": self._start_by_hand, "start_later": later}
        starts["start_on"] = self.start_or_stand_by
        self.listener = HealthListener(self._guard, capacity=MAILBOX_CAPACITY, **starts)

    @property
    def url(self) -> str | None:
        """Where the HTTP server listens; None when it is off."""
        return self._runtime.url if self._runtime is not None else None

    @property
    def closed(self) -> bool:
        """Whether ``close`` has begun."""
        return self._closed

    def snapshot(self) -> Status:
        """A frozen view of all queries, the same as ``/status`` serves.

        Raises:
            RuntimeError: the listener has not been added to Spark yet.

        """
        return status(self._require_runtime().published)

    def alerts(self) -> tuple[Alert, ...]:
        """The alerts firing now."""
        return newest.alerts if (newest := self._evaluated()) else ()

    def flush(self, timeout: float = 5.0) -> bool:
        """Evaluate what was received, attempt all deliveries; False if that failed or was late."""
        if self._runtime is None or os.getpid() != self._pid:
            return False
        return self._runtime.flush(Deadline(timeout))

    def start_or_stand_by(self, spark: Any = None, *, by_hand: bool = False) -> None:
        """Start watching ``spark``, unless a session is given already; once.

        An internal error does not end the job: nothing is watched, and ``await_any_failure``
        falls back to Spark's ``awaitAnyTermination``.

        Raises:
            NoSessionError: there is no SparkSession to watch.
            SettingsError: another sidecar watches it.

        """
        self._spark = self._spark or spark
        try:
            self._start(by_hand=by_hand)
        except (NoSessionError, SettingsError):
            raise
        except Exception as error:  # noqa: BLE001 - the calling job continues after any error
            self.stand_by(error)

    def stand_by(self, error: Exception) -> None:
        """Watch nothing, because of an internal error."""
        report_unmonitored(self._guard, error)
        self._guard.attempt("attach", lambda: self._wait.wait_in(self._spark or active_session()))
        self.close()

    def close(self, timeout: float = 5.0) -> None:
        """Flush and stop everything within about ``timeout`` seconds; an interrupt ends the wait.

        A second call only waits for the first. Alerts stay open: a close fixes no query.
        """
        if os.getpid() != self._pid:
            return
        with self._closing:
            first, self._closed = not self._closed, True
        if not first:
            self._ended.wait(timeout)
            return
        try:
            if self._runtime is not None:
                self._guard.attempt("close", partial(self._runtime.end, timeout))
        finally:
            log.removeFilter(self._redacted_log)
            self.listener.closed, self._spark = True, None
            SIDECARS.forget(self)
            self._ended.set()
            # Last: an interpreter exit during ``close`` must wait for the deliveries.
            atexit.unregister(self._at_exit)
            self._wait.wake()
            self._supervisor.wake()

    def await_any_failure(self, timeout: float | None = None, on_stall: bool = False) -> None:
        """Block until a query fails or disappears; use it in place of ``awaitAnyTermination``.

        Returns when ``timeout`` seconds have passed, the sidecar was closed, the application
        stopped its SparkContext, or every query has completed. Processes on one JVM wait for their
        own queries and ``expected_queries``. With ``on_stall`` a critical stall is a failure.

        Raises:
            QueryFailure: a query failed or disappeared, or the JVM has ended (query ``*``).

        """
        self._wait.wait(timeout, on_stall=on_stall)

    def supervise(
        self,
        starts: Starts,
        *,
        restarts: int = 10,
        within_seconds: float = 3600.0,
        max_pause_seconds: float = 300.0,
        same_batch_failures: int = 5,
    ) -> None:
        """Start queries, and start each again after a failure; ``docs/supervise.md`` has the terms.

        ``starts`` has a function by query name that starts the query and returns it, called in this
        thread. Blocks until no query is left to restart: each has completed, was stopped on
        purpose, forgotten or given up; or the sidecar is closed, or the application stops Spark.

        Raises:
            QueryFailure: a query was given up and no other is left, or Spark has ended (``*``).
            ValueError: a name or a term is not allowed, or a query is supervised already.
            RuntimeError: the listener has not been added to Spark yet.

        """
        terms = RestartTerms(restarts, within_seconds, max_pause_seconds, same_batch_failures)
        check_starts(starts)
        if self._wait.is_in_spark:
            run_unwatched(starts, self._components.redacting.text)
        else:
            self._require_runtime()
            self._supervisor.supervise(starts, terms)

    def _start_by_hand(self) -> Any:
        """The Java listener, when PySpark adds or removes it; starts the sidecar."""
        spark = self._spark
        self.start_or_stand_by(by_hand=True)
        known = self._runtime.path.java_listener if self._runtime else None
        return known if known is not None else idle_listener(spark, self.listener)

    def _start(self, *, by_hand: bool) -> None:
        with SIDECARS.lock:
            if self._runtime is not None or self._closed:
                return
            spark = self._spark or active_session()
            SIDECARS.require_none(watched_by(spark))
            self._components.redacting.honour(conf_reader(spark))
            make = partial(Runtime, settings=self.settings, components=self._components)
            make = partial(make, guard=self._guard, on_evaluated=self._on_evaluated)
            make = partial(make, supervised=self._supervisor.publish)
            runtime = start_runtime(spark, self.listener, self._guard, make, by_hand=by_hand)
            if not self._keep(runtime, watched_by(spark)):
                runtime.stop(Deadline(EXIT_SECONDS))

    def _keep(self, runtime: Runtime, context: Any) -> bool:
        """Keep what was started, unless ``close`` came first."""
        with self._closing:
            if not self._closed:
                self._runtime = runtime
                log.addFilter(self._redacted_log)
                SIDECARS.remember(context, self)
                atexit.register(self._at_exit)
        return self._runtime is runtime

    def _require_runtime(self) -> Runtime:
        if self._runtime is None:
            raise RuntimeError("querypulse has not started: add sidecar.listener to Spark")
        return self._runtime

    def _evaluated(self) -> Evaluated | None:
        return self._runtime.evaluated if self._runtime else None

    def _on_evaluated(self) -> None:
        self._wait.wake()
        self._supervisor.wake()
        newest = None if self._closed else self._evaluated()
        if newest is not None and newest.snapshot.context.is_on_purpose:
            # The worker calls this and cannot wait for its own end.
            in_background("close", self._guard, self.close)

    def _at_exit(self) -> None:
        with suppress(KeyboardInterrupt):
            self.close(EXIT_SECONDS)


SIDECARS: Registry[Sidecar] = Registry()
