"""The public object ``Sidecar``, and ``attach(spark)``, the one line that users add to a job.

A ``Sidecar`` has settings; once it is started, its ``Runtime`` has everything that runs. The
application's threads come in here: none of them touches the state, which the worker owns. They
read its newest evaluation, or put a request into its inbox.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..alerting.alert import Alert
from ..alerting.incidents.lifecycle import Evaluated
from ..alerting.rules.query_ends import EXPLAINS_SECONDS
from ..alerting.silences import make_silence, unmatched
from ..alerting.words.messages import annotations_of
from ..core.guard import Guard
from ..core.redaction import RedactedLog
from ..core.threads import Deadline
from ..exporter.published_state import PublishedState
from ..exporter.status import Status, notebook_page, status
from ..listener.mailbox import ExpectStop, Forget, ProgramEnd
from ..listener.probe_report import Context
from ..listener.spark.event_paths import EventQueue
from ..listener.spark.health_listener import HealthListener
from ..listener.spark.jvm import THROWN, UnsupportedSparkError
from ..listener.state.query import Query
from ..listener.state.state import has_name
from ..settings.arguments import with_settings
from ..settings.loading import load_settings
from ..settings.settings import TYPES, Settings, SettingsError
from .assemble import Components
from .failure import QueryFailure, Returned, first_failure, first_stall, why_over
from .program import program_end
from .publishing import MetricsCollector, nothing_published
from .runtime import MAILBOX_CAPACITY, Runtime, open_event_path
from .session import (
    NoSessionError,
    Target,
    active_session,
    conf_reader,
    driver_session,
    is_connect,
    is_stopped,
    settings_in_force,
    target_of,
    warn_once,
    watched_by,
)
from .supervise import RestartTerms, Starts, Supervisor, check_starts
from .termination import TERMINATION, AtTermination
from .unwatched import run_unwatched, wait_in_spark

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..settings.arguments import SettingArguments

log = logging.getLogger("querypulse")

EXIT_SECONDS = 8.0
ROLLBACK_SECONDS = 2.0
STAND_BY_SECONDS = 5.0
NOTHING_IS_WATCHED = "nothing is watched, nobody is notified"
ADDED_AFTER_CLOSE = "this sidecar is closed, so its listener watches nothing: make another Sidecar"


class Sidecar:
    """Watches the queries of one driver from the moment it is started.

    ``spark.streams.addListener(Sidecar(webhook_url=...).listener)`` starts it, and so does
    ``attach``. Settings come from the keywords, else the environment, else the Spark conf, else
    the TOML file; or a ``Settings`` record has all of them. ``docs/settings.md`` says what each
    does. ``spark`` is the session to watch, by default the active one. Removing the listener
    closes it.

    Raises:
        SettingsError: a setting is unknown or not allowed, or a configured limit, receiver,
            key or certificate cannot be used.

    """

    def __init__(
        self,
        settings: Settings | None = None,
        spark: Any = None,
        **arguments: Unpack[SettingArguments],
    ) -> None:
        self._spark = spark
        self.settings = settings_in_force(settings, arguments, spark)
        self._guard = Guard()
        # A disabled one reads no secret and needs no receiver: a test may have neither.
        used = self.settings if self.settings.enabled else Settings()
        self._components = Components(used, self._guard)
        self._redacted_log = RedactedLog(self._components.redacting.text)
        self._runtime: Runtime | None = None
        self._news = threading.Condition()
        """Notified of each evaluation, and of the end."""
        self._unwatched: Any = None
        """The session to wait in, where nothing is watched."""
        self._released = threading.Event()
        """Set once the application has called ``close``."""
        self._is_awaited = False
        """Whether the application has waited for all its queries with us."""
        self._additions = 0
        """How often the listener was added and not removed."""
        self._is_by_hand = False
        """Whether adding the listener has started it, so that removing it closes it."""
        self._inert_listener: Any = None
        """The Java object for PySpark where nothing is watched; kept, so that it can be removed."""
        self._supervisor = Supervisor(
            lambda: self._require_runtime().evaluated.snapshot,
            closed=lambda: self.closed,
            redact_ours=self._components.redacting.text,
            news=self._news,
        )
        self._closing = threading.Lock()
        self.closed, self._ended = False, threading.Event()
        """Whether ``close`` has begun; and its end."""
        self._failure_raised_at: float | None = None
        """When the application was last informed of a failure, in monotonic seconds."""
        self._pid = os.getpid()
        self.collector = MetricsCollector(self._published, self._has_no_metrics)
        """The metrics, for a job's own registry: ``REGISTRY.register(sidecar.collector)``."""
        self.listener = HealthListener(
            capacity=MAILBOX_CAPACITY,
            start=self._add_by_hand,
            start_on=self._start_or_stand_by,
            remove=self._remove_by_hand,
        )

    def __repr__(self) -> str:
        if self._runtime is None or self.closed:
            return f"<Sidecar {self._idle_state}>"
        published = self._runtime.published
        count, alerts = len(published.snapshot.queries), len(self._runtime.evaluated.alerts)
        app, url = published.app, self._runtime.url
        return f"<Sidecar app={app!r} url={url!r} queries={count} alerts={alerts}>"

    def _repr_html_(self) -> str:
        """What a notebook shows for the last value of a cell."""
        if self._runtime is None or self.closed:
            return f"<div><p><b>querypulse</b> {self._idle_state}</p></div>"
        return notebook_page(status(self._runtime.published), self._runtime.url)

    @property
    def _idle_state(self) -> str:
        if not self.settings.enabled:
            return "off: 'enabled' is false"
        return "closed" if self.closed else "not started"

    @property
    def url(self) -> str | None:
        """Where the HTTP server listens; None when it is off, as after ``close``."""
        return self._runtime.url if self._runtime is not None and not self.closed else None

    def snapshot(self) -> Status:
        """A frozen view of all queries, as ``/status`` serves it; it has none where it is off.

        Raises:
            RuntimeError: the listener has not been added to Spark yet.

        """
        if self._watches_nothing:
            return status(nothing_published(self.settings))
        return status(self._require_runtime().published)

    def alerts(self) -> tuple[Alert, ...]:
        """The alerts firing now, with all that is said of them in their annotations."""
        newest = self._evaluated()
        alerts = () if newest is None else newest.alerts
        return tuple(replace(alert, annotations=annotations_of(alert)) for alert in alerts)

    def flush(self, timeout: float = 5.0) -> bool:
        """Evaluate what was received, attempt all deliveries; False if that failed or was late.

        Raises:
            ValueError: ``timeout`` is no number of seconds.

        """
        deadline = Deadline(timeout)
        if not self.settings.enabled:
            return True
        if self._runtime is None or os.getpid() != self._pid:
            return False
        return self._runtime.flush(deadline)

    def _start_or_stand_by(self, spark: Any = None, *, by_hand: bool = False) -> None:
        """Start watching ``spark``, unless a session is given already; once.

        An internal error does not end the job: nothing is watched, and ``await_any_failure``
        falls back to Spark's ``awaitAnyTermination``.

        Raises:
            NoSessionError: there is no SparkSession to watch.
            SettingsError: another sidecar watches it.

        """
        self._spark = self._spark or spark
        if not self.settings.enabled:
            origin = self.settings.origins.get("enabled", "the settings")
            warn_once(f"off, 'enabled' is false (from {origin}): {NOTHING_IS_WATCHED}")
            self._unwatched = self._spark
            return
        try:
            self._start(by_hand=by_hand)
        except (NoSessionError, SettingsError):
            raise
        except Exception as error:  # noqa: BLE001 - the calling job continues after any error
            self._stand_by(error)

    def _stand_by(self, error: Exception) -> None:
        """Watch nothing, because of an internal error."""
        if isinstance(error, UnsupportedSparkError):
            log.error("querypulse: %s", error)
        else:
            self._guard.report("attach", error)
        log.warning("querypulse: this job is not monitored; it continues without querypulse")
        self._unwatched = self._guard.attempt("attach", lambda: self._spark or active_session())
        self._close(STAND_BY_SECONDS)

    def close(self, timeout: float = 5.0) -> None:
        """Flush and stop everything within about ``timeout`` seconds; an interrupt ends the wait.

        A second call only waits for the first. Alerts stay open: a close fixes no query.

        Raises:
            ValueError: ``timeout`` is no number of seconds.

        """
        self._released.set()
        self._close(timeout)

    def _close(self, timeout: float, program: ProgramEnd | None = None) -> None:
        """Close; ``program`` is how the main program ended, if nobody had announced that."""
        deadline = Deadline(timeout)
        if os.getpid() != self._pid:
            return
        with self._closing:
            first, self.closed = not self.closed, True
        if not first:
            self._ended.wait(deadline.left)
            return
        try:
            if self._runtime is not None:
                self._guard.attempt("close", partial(self._runtime.end, timeout, program))
        finally:
            log.removeFilter(self._redacted_log)
            self.listener.closed, self._spark = True, None
            SIDECARS.forget(self)
            TERMINATION.remove(self)
            self._ended.set()
            # Last: an interpreter exit during ``close`` must wait for the deliveries.
            atexit.unregister(self._at_exit)
            self._wake()

    def await_any_failure(self, timeout: float | None = None, on_stall: bool = False) -> Returned:
        """Block until a query fails or disappears; use it in place of ``awaitAnyTermination``.

        Returns why nothing is left to wait for: every query has "completed", the application
        "stopped" Spark, the sidecar was "closed", or "timeout": so many seconds have passed.
        Processes on one JVM wait for their own queries and ``expected_queries``. With ``on_stall``
        a critical stall is a failure. Where it is off, it waits for the queries of its session.

        Raises:
            QueryFailure: a query failed or disappeared, as with its Spark Connect session, or the
                JVM has ended (query ``*``).
            ValueError: ``timeout`` is no number of seconds.

        """
        seconds = None if timeout is None else Deadline(timeout).left
        self._is_awaited = True
        if self._watches_nothing:
            spark = self._unwatched or active_session()
            redact = self._components.redacting.text
            return wait_in_spark(spark, timeout, redact, self._released)
        with self._news:
            outcome = self._news.wait_for(lambda: self._outcome(on_stall=on_stall), seconds)
        if isinstance(outcome, QueryFailure):
            self._failure_raised_at = time.monotonic()
            raise outcome
        return outcome or "timeout"

    def supervise(
        self,
        starts: Starts,
        *,
        restarts: int = 10,
        within_seconds: float = 3600.0,
        max_pause_seconds: float = 300.0,
        same_batch_failures: int = 5,
    ) -> None:
        """Start queries, and start each again after a failure; ``docs/in-a-job.md`` has the terms.

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
        self._is_awaited = True
        if self._watches_nothing:
            spark = self._unwatched or active_session()
            run_unwatched(spark, starts, self._components.redacting.text, self._released)
        else:
            self._require_runtime()
            self._supervisor.supervise(starts, terms)

    def expect_stop(self, name: Any) -> None:
        """Announce a planned stop of the current run, before ``query.stop()``; failures still page.

        ``name`` is a query's name, or the ``StreamingQuery``, which means that query alone.

        Raises:
            ValueError: no such query is known.

        """
        target = target_of("expect_stop", name)
        if self._watches_nothing:
            return
        if not any(query.run.alive for query in target.current(self._queries)):
            # The event of a run that started just now may not have arrived.
            self.flush()
        called = target.find(self._queries)
        if not called:
            raise self._unknown("expect_stop", target)
        name = called[0].label if target.is_one else target.text
        self._require_runtime().ask_worker(ExpectStop(name, is_label=target.is_one))

    def forget(self, name: Any) -> None:
        """Drop a query that will not come back: its alerts resolve, its series end.

        It is no longer expected or supervised. ``"unnamed"`` drops every query without a name
        that has ended. An alert that an earlier process left open resolves, too, although this one
        has never seen its query. A ``StreamingQuery`` in place of the name means that query alone.

        Raises:
            ValueError: no query of this name is known, or it is still running.

        """
        target = target_of("forget", name)
        if self._watches_nothing:
            return
        current = target.current(self._queries)
        is_expected = not target.is_one and not current and target.text in self._expected
        if not is_expected and all(query.run.alive for query in current):
            # The event of a query that started or stopped just now may not have arrived.
            self.flush()
        called = target.find(self._queries)
        if called:
            if all(query.run.alive for query in called):
                raise ValueError(f"forget: {target.text!r} is still running; stop it first")
            name = called[0].label if target.is_one else target.text
            self._forget(Forget(name, is_label=target.is_one))
        elif any(has_name(query, target.text) for query in self._queries):
            raise self._unknown("forget", target)
        elif target.text in self._expected or self._has_alert(target.text):
            self._forget(Forget(target.text))
        elif not self._supervisor.forget(target.text):
            raise self._unknown("forget", target)

    def _forget(self, request: Forget) -> None:
        self._supervisor.forget(request.name, is_label=request.is_label)
        self._require_runtime().ask_worker(request)

    def silence(
        self,
        queries: str,
        minutes: float | None = None,
        until: datetime | None = None,
        reason: str = "",
        alertname: str = "*",
        *,
        every: str | None = None,
    ) -> None:
        """Suppress alerts of queries that match a name pattern, for ``minutes`` or ``until``.

        With ``every`` it recurs in these windows: ``"sat,sun 22:00-02:00 Europe/Berlin"``; then it
        needs no other end. Alerts sent before stay open, and their resolution is sent. The silence
        ends with this process; those of ``querypulse silence`` outlive it.

        Raises:
            ValueError: the end is missing, past or without time zone, ``every`` cannot be read, or
                1,000 are in force.

        """
        silence = make_silence(
            queries, minutes, until, every=every, alertname=alertname, reason=reason
        )
        self._components.silencing.add(silence)
        note = unmatched(silence, self._names() if self._runtime is not None else None)
        if note:
            log.warning("querypulse: silence: %s", note)

    @property
    def _watches_nothing(self) -> bool:
        """Whether it never will: the settings say so, or an internal error came first."""
        return not self.settings.enabled or self._unwatched is not None

    def _add_by_hand(self) -> Any:
        """The Java listener, when PySpark adds it; starts the sidecar.

        Raises:
            Py4JError: this driver refuses Java classes and Python listeners.

        """
        if self.closed and not self._watches_nothing:
            log.warning("querypulse: %s", ADDED_AFTER_CLOSE)
        spark, was_running = self._spark, self._runtime is not None
        self._start_or_stand_by(by_hand=True)
        if self._runtime is not None and not was_running:
            self._is_by_hand = True
        self._additions += 1
        in_use = self._listener_in_use
        return self._make_inert_listener(spark) if in_use is None else in_use

    def _remove_by_hand(self) -> Any:
        """The same, when PySpark removes it; closes a sidecar that was started by adding it.

        It closes once the listener was removed as often as it was added. A removal without an
        addition removes nothing, also not what ``attach`` itself has added to Spark: Spark finds no
        listener that is null.
        """
        if not self._additions:
            return None
        self._additions -= 1
        listener = self._listener_in_use
        if self._is_by_hand and not self._additions and not self.closed:
            log.info("querypulse: the listener was removed: the sidecar closes")
            self._guard.attempt("close", self.close)
        return listener

    @property
    def _listener_in_use(self) -> Any:
        """The Java listener that PySpark was given, or may be given; None if it must be made."""
        in_use = self._runtime.path.java_listener if self._runtime else None
        return self._inert_listener if in_use is None else in_use

    def _make_inert_listener(self, spark: Any) -> Any:
        """Make a Java listener that does nothing, where nothing is watched.

        Raises:
            Py4JError: this driver refuses Java classes and Python listeners.

        """
        self.listener.closed = True
        try:
            queue = EventQueue(spark or active_session(), self.listener)
            self._inert_listener = queue.java_listener
        except (*THROWN, OSError, ValueError, AttributeError, NoSessionError):
            self._inert_listener = self.listener.proxy()
        return self._inert_listener

    def _start(self, *, by_hand: bool) -> None:
        with SIDECARS.lock:
            if self._runtime is not None or self.closed:
                return
            spark = driver_session(self._spark or active_session())
            SIDECARS.require_none(watched_by(spark))
            self._components.redacting.honour(conf_reader(spark))
            with ExitStack() as undo:
                path = open_event_path(spark, self.listener, self._guard, by_hand=by_hand)
                undo.callback(self._guard.attempt, "attach", path.release)
                runtime = Runtime(
                    self._components,
                    spark,
                    self.listener,
                    path,
                    on_evaluated=self._on_evaluated,
                    supervised=self._supervisor.publish,
                    is_awaited=lambda: self._is_awaited,
                )
                undo.callback(
                    self._guard.attempt, "attach", lambda: runtime.stop(Deadline(ROLLBACK_SECONDS))
                )
                runtime.start()
                with self._closing:
                    # A ``close`` that came first has nothing to stop.
                    if not self.closed:
                        undo.pop_all()
                        self._runtime, self._spark = runtime, spark
                        log.addFilter(self._redacted_log)
                        SIDECARS.remember(watched_by(spark), self)
                        atexit.register(self._at_exit)
                        TERMINATION.add(self, self._at_termination(runtime))

    def _unknown(self, method: str, target: Target) -> ValueError:
        return ValueError(f"{method}: no query is named {target.text!r}; known: {self._names()}")

    @property
    def _queries(self) -> tuple[Query, ...]:
        return self._runtime.evaluated.snapshot.queries if self._runtime is not None else ()

    def _has_alert(self, name: str) -> bool:
        return any(alert.query == name for alert in self.alerts())

    @property
    def _expected(self) -> tuple[str, ...]:
        return self._runtime.published.expected if self._runtime is not None else ()

    def _names(self) -> list[str]:
        return list(dict.fromkeys([*(query.label for query in self._queries), *self._expected]))

    def _require_runtime(self) -> Runtime:
        if self._runtime is None:
            raise RuntimeError("querypulse has not started: add sidecar.listener to Spark")
        return self._runtime

    def _session_has_ended(self) -> bool:
        """Whether the server has ended the Spark Connect session, without the job's wish."""
        evaluated = self._evaluated()
        return evaluated is not None and evaluated.snapshot.context is Context.SESSION_ENDED

    def _has_no_metrics(self) -> bool:
        return self.closed or not self.settings.enabled

    def _published(self) -> PublishedState | None:
        return self._runtime.read() if self._runtime is not None else None

    def _evaluated(self) -> Evaluated | None:
        return self._runtime.evaluated if self._runtime else None

    def _wake(self) -> None:
        """Signal a new evaluation, or the end, to the application's threads that wait."""
        with self._news:
            self._news.notify_all()

    def _outcome(self, *, on_stall: bool) -> QueryFailure | Returned | None:
        """A failure, or why nothing is left to wait for; None while there is."""
        closed: Returned | None = "closed" if self.closed else None
        evaluated = self._evaluated()
        if evaluated is None:
            return closed
        failure = first_failure(evaluated.snapshot, evaluated.evaluation)
        failure = failure or (first_stall(evaluated) if on_stall else None)
        return failure or why_over(evaluated.snapshot, evaluated.evaluation) or closed

    def _on_evaluated(self) -> None:
        self._wake()
        TERMINATION.note_handlers()
        newest = None if self.closed else self._evaluated()
        if newest is not None and newest.snapshot.context.is_on_purpose:
            # The worker calls this and cannot wait for its own end.
            close = partial(self._guard.attempt, "close", self.close)
            threading.Thread(target=close, name="querypulse-close", daemon=True).start()

    def _at_termination(self, runtime: Runtime) -> AtTermination:
        attempt = self._guard.attempt
        return AtTermination(
            has_lost_jvm=lambda: attempt("terminate", runtime.has_lost_jvm, False),
            announce=lambda: attempt("terminate", runtime.announce_termination),
            report_death=lambda: attempt("terminate", partial(self.close, EXIT_SECONDS)),
        )

    def _at_exit(self) -> None:
        with suppress(KeyboardInterrupt):
            self._close(EXIT_SECONDS, self._guard.attempt("close", self._program_end))

    def _program_end(self) -> ProgramEnd | None:
        """How the main program ended; None where that was announced."""
        spark, raised_at = self._spark, self._failure_raised_at
        if TERMINATION.was_signalled or (spark is not None and is_stopped(watched_by(spark))):
            return None
        TERMINATION.note_handlers()
        just_raised = raised_at is not None and time.monotonic() - raised_at <= EXPLAINS_SECONDS
        return program_end(handles_signals=TERMINATION.handles_signals, is_explained=just_raised)


# -- one sidecar for each SparkContext ----------------------------------------------------------


class Registry:
    """At most one open sidecar for each SparkContext, or Spark Connect session."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held from the search for a sidecar until a new one is recorded."""
        self.automatic: weakref.WeakSet[Sidecar] = weakref.WeakSet()
        """Those that make way for a sidecar that the application starts."""
        self._sidecars: weakref.WeakKeyDictionary[Any, Sidecar] = weakref.WeakKeyDictionary()

    def find(self, context: Any) -> Sidecar | None:
        """The open sidecar of a SparkContext."""
        sidecar = self._sidecars.get(context)
        return None if sidecar is None or sidecar.closed else sidecar

    def require_none(self, context: Any) -> None:
        """Require that no open sidecar watches this SparkContext; an automatic one is closed.

        Those of SparkContexts that the application has stopped are closed: they would do so
        themselves a moment later, but the new one may need their port now. So are those of Spark
        Connect sessions that have ended: the new one takes over their incidents.

        Raises:
            SettingsError: another one watches it.

        """
        sidecar = self.find(context)
        if sidecar is not None and sidecar not in self.automatic:
            raise SettingsError("another sidecar watches this SparkContext: use or close that")
        if sidecar is not None:
            sidecar.close()
        for watched, stale in list(self._sidecars.items()):
            has_ended = stale._session_has_ended()  # noqa: SLF001 - both are of this module
            if is_stopped(watched) or has_ended:
                stale.close(timeout=2.0)

    def remember(self, context: Any, sidecar: Sidecar) -> None:
        """Record the sidecar of a SparkContext."""
        self._sidecars[context] = sidecar

    def forget(self, sidecar: Sidecar) -> None:
        """Remove a sidecar, and with it the reference to its SparkContext."""
        for context, watching in list(self._sidecars.items()):
            if watching is sidecar:
                del self._sidecars[context]


SIDECARS = Registry()


def attach(
    spark: Any, *, settings: Settings | None = None, **arguments: Unpack[SettingArguments]
) -> Sidecar:
    """Watch all queries of ``spark``'s SparkContext, or Spark Connect session, from now on.

    If this process is the driver that serves the Connect session, it is watched as a whole.

    Settings come from the keywords, else the environment, else the Spark conf, else the TOML file;
    or ``settings`` has all of them. ``docs/settings.md`` says what each does. A second call for the
    same one returns the same sidecar. An internal error is logged and does not end the job: the
    sidecar then watches nothing. Nor does it with ``enabled=False``, for a job's own tests.

    Raises:
        SettingsError: a setting is unknown or not allowed, ``settings`` and keywords were given, or
            a second call has other settings than the first.
        TypeError: ``spark`` is not a SparkSession.

    """
    if not is_connect(spark) and not hasattr(spark, "sparkContext"):
        given = "None" if spark is None else type(spark).__name__
        raise TypeError(f"attach() needs a SparkSession, given {given}")
    with SIDECARS.lock:
        present = SIDECARS.find(watched_by(driver_session(spark)))
        if present is not None and not _must_make_way(present, settings, spark, arguments):
            SIDECARS.automatic.discard(present)
            return present
        if present is not None:
            present.close()
        return _started(settings, spark, arguments)


def attach_automatically(spark: Any) -> None:
    """``attach(spark)`` for an application that may attach itself later, with other settings.

    Its own sidecar then takes the place of this one.

    Raises:
        Exception: as ``attach``.

    """
    SIDECARS.automatic.add(attach(spark))


def _started(settings: Settings | None, spark: Any, arguments: SettingArguments) -> Sidecar:
    try:
        sidecar = Sidecar(settings, spark, **arguments)
    except SettingsError:
        raise
    except Exception as error:  # noqa: BLE001 - the calling job continues after any error
        sidecar = Sidecar(Settings(), spark=spark)
        sidecar._stand_by(error)  # noqa: SLF001 - both are of this module
    else:
        sidecar._start_or_stand_by()  # noqa: SLF001 - both are of this module
    return sidecar


def _must_make_way(
    present: Sidecar, settings: Settings | None, spark: Any, arguments: Mapping[str, object]
) -> bool:
    """Whether settings differ from those of an automatic sidecar.

    Raises:
        SettingsError: they differ from those of another sidecar.

    """
    if present in SIDECARS.automatic:
        # The conf of the session, too, may be another one by now.
        return settings_in_force(settings, arguments, spark) != present.settings
    if settings is None:
        wanted, given = load_settings(arguments, {}, {}).settings, list(arguments)
    else:
        wanted, given = settings_in_force(settings, arguments, spark), list(TYPES)
    other = [key for key in given if getattr(wanted, key) != getattr(present.settings, key)]
    if other:
        raise SettingsError(
            f"attach was called before with other settings for {', '.join(map(repr, other))}; "
            "close the first sidecar, or give all settings to the first call"
        )
    return False


# For ``help`` and IPython; a type checker reads ``SettingArguments``.
for _function in (attach, Sidecar.__init__):
    setattr(_function, "__signature__", with_settings(_function))  # noqa: B010 - typed as none
    # ``get_type_hints`` would look for ``Unpack``, which Python 3.10 does not have.
    _function.__annotations__["arguments"] = Any
