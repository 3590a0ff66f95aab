"""The public object ``Sidecar``: snapshot, alerts, flush, close, await_any_failure."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from ..alerting.alert import Alert
from ..alerting.lifecycle import Evaluated
from ..core.guard import Guard
from ..core.redaction import RedactedLog
from ..core.threads import Deadline
from ..exporter.status import Status, status
from ..listener.query import Query
from ..listener.spark.health_listener import HealthListener
from ..listener.state import has_name
from ..settings.loading import check_arguments
from ..settings.settings import Settings, SettingsError, SilenceSettings
from ..settings.silencing import Silencing, silence_until, unmatched
from ..settings.wiring import Components, make_components
from .failure import FailureWait
from .notebook import SidecarView
from .restarting import RestartTerms
from .runtime import (
    MAILBOX_CAPACITY,
    Runtime,
    idle_listener,
    in_background,
    report_unmonitored,
    start_runtime,
)
from .session import (
    NoSessionError,
    Registry,
    active_session,
    conf_reader,
    is_connect,
    settings_of,
    watched_by,
)
from .supervise import Starts, Supervisor, check_starts, run_unwatched

log = logging.getLogger("querypulse")


# -- announcing -------------------------------------------------------------------------------
# What the application announces: planned stops, queries that will not come back, silences.


class Announcements(ABC):
    """The part of ``Sidecar`` through which the application announces."""

    _runtime: Runtime | None
    _components: Components
    _supervisor: Supervisor

    @abstractmethod
    def flush(self, timeout: float = 5.0) -> bool:
        """See ``Sidecar.flush``."""

    def expect_stop(self, name: Any) -> None:
        """Announce a planned stop of the current run, before ``query.stop()``; failures still page.

        ``name`` is a query's name, or the ``StreamingQuery``.

        Raises:
            ValueError: no such query is known.

        """
        expect_stop(self._runtime, self.flush, name)

    def forget(self, name: Any) -> None:
        """Drop a query that will not come back: its alerts resolve, its series end.

        It is no longer expected or supervised. ``"unnamed"`` drops every query without a name
        that has ended.

        Raises:
            ValueError: no query of this name is known, or it is still running.

        """
        forget(self._runtime, self.flush, name, self._supervisor.forget)

    def silence(
        self,
        queries: str,
        minutes: float | None = None,
        until: datetime | None = None,
        reason: str = "",
        alertname: str = "*",
    ) -> None:
        """Suppress alerts of queries that match a name pattern, for ``minutes`` or ``until``.

        Alerts sent before stay open, and their resolution is sent. The silence ends with this
        process; those of ``querypulse silence`` and of the setting ``silences`` outlive it.

        Raises:
            ValueError: the end is missing, past or without time zone, or 1,000 are in force.

        """
        one = silence_until(queries, minutes, until, alertname=alertname, reason=reason)
        silence(self._runtime, self._components.silencing, one)


def expect_stop(runtime: Runtime | None, flush: Callable[[], bool], query: Any) -> None:
    """See ``Sidecar.expect_stop``."""
    name = _name_of("expect_stop", runtime, query)
    if runtime is None or not (_called(runtime, name) or (flush() and _called(runtime, name))):
        raise ValueError(f"expect_stop: no query is named {name!r}; known: {_known(runtime)}")
    runtime.expect_stop(name)


def forget(
    runtime: Runtime | None,
    flush: Callable[[], bool],
    query: Any,
    end_supervision: Callable[[str], bool],
) -> None:
    """See ``Sidecar.forget``."""
    name = _name_of("forget", runtime, query)
    # The event of a query that stopped just now may not have arrived.
    if runtime is not None and not _can_be_forgotten(runtime, name):
        flush()
    absent = runtime is None or not (_called(runtime, name) or name in runtime.published.expected)
    if absent and end_supervision(name):
        return
    if runtime is None or absent:
        raise ValueError(f"forget: no query is named {name!r}; known: {_known(runtime)}")
    if not _can_be_forgotten(runtime, name):
        raise ValueError(f"forget: {name!r} is still running; stop it first")
    end_supervision(name)
    runtime.forget(name)


def silence(runtime: Runtime | None, silencing: Silencing, one: SilenceSettings) -> None:
    """See ``Sidecar.silence``; a pattern that matches nothing now is logged."""
    silencing.add(one)
    note = unmatched(one, _known(runtime) if runtime is not None else None)
    if note:
        log.warning("querypulse: silence: %s", note)


def _name_of(method: str, runtime: Runtime | None, query: Any) -> str:
    """The name we use for a query, given its name or the ``StreamingQuery`` itself."""
    if isinstance(query, str):
        return query
    if not hasattr(query, "id") or not hasattr(query, "name"):
        kind = type(query).__name__
        raise ValueError(f"{method}: give a query's name or a StreamingQuery, not {kind}")
    known = runtime.evaluated.snapshot.queries if runtime is not None else ()
    labels = [one.label for one in known if one.query_id == str(query.id)]
    return labels[0] if labels else str(query.name or query.id)


def _can_be_forgotten(runtime: Runtime, name: str) -> bool:
    called = _called(runtime, name)
    if not called:
        return name in runtime.published.expected
    return any(not query.alive for query in called)


def _called(runtime: Runtime, name: str) -> list[Query]:
    return [query for query in runtime.evaluated.snapshot.queries if has_name(query, name)]


def _known(runtime: Runtime | None) -> list[str]:
    if runtime is None:
        return []
    return list(dict.fromkeys((*runtime.evaluated.snapshot.labels(), *runtime.published.expected)))


# -- sidecar ----------------------------------------------------------------------------------


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
        self.listener = HealthListener(
            capacity=MAILBOX_CAPACITY,
            start=self._start_by_hand,
            start_on=self.start_or_stand_by,
        )

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


# -- attachment -------------------------------------------------------------------------------
# ``attach(spark)``: the one line that users add to a job.


def attach(spark: Any, **arguments: object) -> Sidecar:
    """Watch all queries of ``spark``'s SparkContext, or Spark Connect session, from now on.

    Settings come from the arguments, else the environment, else the Spark conf, else the
    TOML file. A second call for the same one returns the same sidecar. An internal
    error is logged and does not end the job: the sidecar then watches nothing.

    Raises:
        SettingsError: a setting is unknown or not allowed, or a second call has other settings
            than the first.
        TypeError: ``spark`` is not a SparkSession.

    """
    if not is_connect(spark) and not hasattr(spark, "sparkContext"):
        given = "None" if spark is None else type(spark).__name__
        raise TypeError(f"attach() needs a SparkSession, given {given}")
    with SIDECARS.lock:
        known = SIDECARS.find(watched_by(spark))
        if known is not None and not _is_replaced(known, arguments):
            SIDECARS.keep(known)
            return known
        return _started(spark, arguments)


def attach_automatically(spark: Any) -> None:
    """``attach(spark)`` for an application that may attach itself later, with other settings.

    Its own sidecar then takes the place of this one.

    Raises:
        Exception: as ``attach``.

    """
    SIDECARS.let_yield(attach(spark))


def _started(spark: Any, arguments: Mapping[str, object]) -> Sidecar:
    try:
        sidecar = Sidecar(settings_of(spark, arguments), spark=spark)
    except SettingsError:
        raise
    except Exception as error:  # noqa: BLE001 - the calling job continues after any error
        sidecar = Sidecar(Settings(), spark=spark)
        sidecar.stand_by(error)
    else:
        sidecar.start_or_stand_by()
    return sidecar


def _is_replaced(known: Sidecar, arguments: Mapping[str, object]) -> bool:
    """Whether settings differ from those of a sidecar that yields, which is closed.

    Raises:
        SettingsError: they differ from those of another sidecar.

    """
    wanted = check_arguments(arguments)
    other = [name for name, value in wanted.items() if value != getattr(known.settings, name)]
    if other and not SIDECARS.make_way(known):
        raise SettingsError(
            f"attach was called before with other settings for {', '.join(map(repr, other))}; "
            "close the first sidecar, or give all settings to the first call"
        )
    return bool(other)
