"""The running components of a sidecar: threads, server, notifier, for one SparkContext."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ..alerting.heartbeat import QueryHeartbeats
from ..alerting.lifecycle import Evaluated, Lifecycle
from ..alerting.notifier import Notifier
from ..core.guard import Guard
from ..core.threads import Deadline, Loop
from ..exporter.pages import Content, Notice
from ..exporter.published_state import PublishedState
from ..exporter.push import Publisher
from ..exporter.server import HttpServer
from ..listener.checkpoints import CheckpointWarnings
from ..listener.connect.event_stream import open_connect_path
from ..listener.event_reader import Ending, ExpectStop, Forget, Inbox, Marker
from ..listener.mailbox import Mailbox
from ..listener.probe import Context
from ..listener.python_frames import main_thread
from ..listener.snapshot import Snapshot, SupervisedQuery
from ..listener.spark.event_paths import EventPath, open_path
from ..listener.spark.event_queue import EventQueue
from ..listener.spark.health_listener import HealthListener
from ..listener.spark.jvm import THROWN, UnsupportedSparkError, require_supported
from ..settings import wiring
from ..settings.links import external_url, runbook
from ..settings.receivers import log_start
from ..settings.settings import Settings
from ..settings.silencing import Silencing, silence_until, unmatched
from ..settings.wiring import Components, HttpAccess, refused_address
from .file_readers import FileReaders
from .monitor import MonitorFacts
from .observers import observers_of, spark_version
from .session import (
    NoSessionError,
    active_session,
    app_name,
    is_connect,
    spark_ui_url,
    warn_of_app_name,
)
from .worker import Inputs, Worker

log = logging.getLogger("querypulse")


# -- serving ----------------------------------------------------------------------------------
# Makes and starts the HTTP server, or logs why not: the job continues without it.


def make_server(
    settings: Settings, access: HttpAccess, content: Content, guard: Guard
) -> HttpServer | None:
    """The HTTP server, not started; None if it is off or its address is refused."""
    refused = refused_address(settings)
    if refused:
        log.error("querypulse: no HTTP server: %s", refused)
    if settings.http_port < 0 or refused:
        return None
    token = access.token
    return HttpServer(
        settings.http_host,
        settings.http_port,
        content,
        guard,
        token=lambda: token.known if token is not None else None,
        tls=access.tls,
        external_name=urlsplit(external_url(settings)).hostname,
    )


def serves(server: HttpServer, where: str, *, is_alone: bool) -> bool:
    """Whether the server listens at ``where`` now.

    Unless ``is_alone``, another process of the same JVM may hold the port.
    """
    try:
        server.start()
    except OSError as error:
        if is_alone:
            log.error("querypulse: no server on %s: %s", where, error)  # noqa: TRY400 - one line
        else:
            log.info("querypulse: another process that monitors this JVM serves %s", where)
        return False
    return True


# -- notifying --------------------------------------------------------------------------------
# The notifier of a sidecar, from its settings and components.


def make_notifier(
    app: str, settings: Settings, components: Components, lifecycle: Lifecycle, guard: Guard
) -> Notifier:
    """The notifier; ``lifecycle`` continues the alerts that its spool holds."""
    receivers = components.receivers
    spool = wiring.spool(settings, app, guard)
    notifier = Notifier(
        wiring.deliveries(settings, receivers, guard, spool),
        spool,
        heartbeat=components.heartbeat,
        query_heartbeats=QueryHeartbeats(components.query_heartbeats),
        restore=lambda found: lifecycle.restore(found, time.monotonic()),
        redact=components.redacting.text,
    )
    lifecycle.restore(notifier.restored, time.monotonic())
    return notifier


# -- process end ------------------------------------------------------------------------------
# How the process ends: closed, terminated or crashed; ``docs/ends.md`` has the table.


SILENT_SECONDS = 5.0
"""A JVM that has not answered for so long, as in endless garbage collection, has crashed."""


class ProcessEnd(Enum):
    """Decides which notice ``querypulse watch`` receives, and whether grace periods apply."""

    CLOSED = "closed"
    """By the application: nobody expects it back."""
    TERMINATED = "terminated"
    """By a signal: the sender is likely to start it again."""
    CRASHED = "crashed"
    """Everything else: problems are reported at once, and no planned end is announced."""

    @property
    def notice(self) -> Notice | None:
        """The notice that ``querypulse watch`` receives; None for a crash."""
        return _NOTICES.get(self)


_NOTICES = {ProcessEnd.CLOSED: Notice.STOPPED, ProcessEnd.TERMINATED: Notice.TERMINATED}


def end_of(
    context: Context,
    uncaught: type[BaseException] | None = None,
    silent_seconds: float = 0.0,
) -> ProcessEnd:
    """How a process ends, from its SparkContext's state and an uncaught Python exception.

    ``silent_seconds``: for how long the JVM has not answered; 0 if it answered the last poll.
    """
    if context in (Context.JVM_GONE, Context.STOPPED):
        return ProcessEnd.CRASHED
    if context is Context.RUNNING and silent_seconds >= SILENT_SECONDS:
        return ProcessEnd.CRASHED
    if context is Context.TERMINATED or uncaught is KeyboardInterrupt:
        return ProcessEnd.TERMINATED
    return ProcessEnd.CLOSED if uncaught is None else ProcessEnd.CRASHED


def uncaught_exception() -> type[BaseException] | None:
    """The class of the exception that ends this process; for its exit handlers.

    The interpreter sets ``sys.last_type`` when it prints a traceback. A notebook does so for
    every failed cell, so there the value means nothing.
    """
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive) or "IPython" in sys.modules
    return None if interactive else getattr(sys, "last_type", None)


# -- posted silence ---------------------------------------------------------------------------
# ``POST /silences``: a silence for this driver, from any client that has its token.


CREATED = 201
BAD_REQUEST = 400


class PostedSilence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of the request: the arguments of ``Sidecar.silence``, and an app pattern."""

    queries: str
    minutes: float | None = None
    until: datetime | None = None
    alertname: str = "*"
    reason: str = ""
    app: str | None = None


def post_silence(
    body: bytes, silencing: Silencing, queries: Collection[str]
) -> tuple[int, dict[str, object]]:
    """Add the silence of ``body`` to this process; returns an HTTP status and the JSON answer.

    ``queries`` are the known names; ``note`` in the answer says which pattern matches none.
    """
    try:
        given = msgspec.json.decode(body, type=PostedSilence)
        more = {"alertname": given.alertname, "reason": given.reason, "app": given.app}
        silence = silence_until(given.queries, given.minutes, given.until, **more)
        silencing.add(silence)
    except (ValueError, msgspec.MsgspecError) as error:
        return BAD_REQUEST, {"error": str(error)}
    until = silence.until.isoformat(timespec="seconds")
    log.info("querypulse: silenced over HTTP: %r until %s", silence.queries, until)
    return CREATED, {**msgspec.structs.asdict(silence), "note": unmatched(silence, queries)}


# -- runtime ----------------------------------------------------------------------------------


MAILBOX_CAPACITY = 2000
ALIVE_SECONDS = 5.0
FLUSH_SHARE = 0.7
"""The share of the time to close that notifying may use; the rest is for stopping."""
INTERRUPTED_SECONDS = 0.5
"""The time to close after a second Ctrl-C."""


class Runtime:
    """Everything that runs, from ``start`` to ``stop``. Data flows one way:

    the event path's queue -> reader -> ``arrived`` -> worker -> published state and notifier;
    probe, commit-log reader and source reader -> their newest report -> worker.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        spark: Any,
        path: EventPath,
        listener: HealthListener,
        components: Components,
        guard: Guard,
        on_evaluated: Callable[[], None],
        supervised: Callable[[], Mapping[str, SupervisedQuery]] = dict,
    ) -> None:
        self._settings = settings
        self.path = path
        self._arrived: Inbox = Mailbox(MAILBOX_CAPACITY)
        self._components = components
        self._guard = guard
        self._on_evaluated = on_evaluated
        self._supervised = supervised
        self._checkpoint_warnings = CheckpointWarnings()
        self._observers = observers_of(
            settings, spark, path, self._arrived, guard, latest_snapshot=self._latest_snapshot
        )
        app = app_name(settings, spark)
        warn_of_app_name(app)
        lifecycle = self._make_lifecycle(app, spark)
        self._notifier = make_notifier(app, settings, components, lifecycle, guard)
        self._worker = self._make_worker(lifecycle)
        self._server = make_server(settings, components.access, self._content(), guard)
        self._files = FileReaders(components, self._server, guard)
        interval = settings.push_interval_seconds
        self._publishers = [
            Publisher(target, self._pushed, guard, interval_seconds=interval)
            for target in components.push_targets
        ]
        self._facts = MonitorFacts(
            app=app,
            spark_version=spark_version(spark, path),
            lag_by_partition=settings.lag_by_partition,
            path=path,
            listener=listener,
            reader=self._observers.reader,
            prober=self._observers.prober,
            worker=self._worker,
            guard=guard,
            notifier=self._notifier,
            files=self._files,
            publishers=self._publishers,
        )
        self._loops = [*self._observers.loops(), Loop("worker", self._worker.step, guard)]
        self.evaluated: Evaluated = self._worker.evaluated
        self.published: PublishedState = self._facts.published(self.evaluated)

    @property
    def url(self) -> str | None:
        """Where the HTTP server listens; None when it is off."""
        return self._server.url if self._server is not None else None

    def start(self) -> None:
        """Open the port, if there is a server, and start every thread."""
        if self._server is not None and not self._listens(self._server):
            self._server = None
        self._files.start()
        self._notifier.start()
        for publisher in self._publishers:
            publisher.start()
        for loop in self._loops:
            loop.start()
        page = (external_url(self._settings) or self.url) if self.url else None
        log_start(self.published.app, self._notifier.names, page)

    def expect_stop(self, name: str) -> None:
        """Announce a planned stop to the worker, before the stop itself arrives."""
        self._arrived.put(ExpectStop(name), lifecycle=True)

    def forget(self, name: str) -> None:
        """Let the worker drop a query that will not come back."""
        self._arrived.put(Forget(name), lifecycle=True)

    def flush(self, deadline: Deadline) -> bool:
        """Probe, evaluate and deliver once more; False when something was not done in time.

        No step may use up the time of the later ones: a JVM that does not answer, or a
        receiver that hangs, must not keep a page from the other receivers.
        """
        polled = self._observers.prober.poll_now(deadline.left / 4)
        evaluated = self._evaluate(deadline)
        reported = self._notifier.flush(deadline)
        return polled and evaluated and reported

    def end(self, timeout: float) -> None:
        """Flush and stop within about ``timeout`` seconds, or at once after an interrupt.

        Raises:
            KeyboardInterrupt: the user does not want to wait; everything is stopped.

        """
        deadline = Deadline(timeout)
        try:
            self._guard.attempt("close", lambda: self._last_flush(Deadline(timeout * FLUSH_SHARE)))
        except BaseException:
            deadline = Deadline(INTERRUPTED_SECONDS)
            raise
        finally:
            self.stop(deadline, self._end)

    @property
    def _end(self) -> ProcessEnd:
        context, silent = self.evaluated.snapshot.context, self._observers.prober.silent_seconds
        return end_of(context, uncaught_exception(), silent)

    def _last_flush(self, deadline: Deadline) -> None:
        """Report what still waits for a grace period: there is no later evaluation."""
        self._observers.prober.poll_now(deadline.left / 4)
        self._evaluate(deadline)
        self._arrived.put(Ending(self._end is ProcessEnd.CRASHED), lifecycle=True)
        # Some findings are reported only after two evaluations in a row.
        self._evaluate(deadline)
        self._evaluate(deadline)
        self._notifier.flush(deadline)

    def _evaluate(self, deadline: Deadline) -> bool:
        """Evaluate everything received so far; False when that took too long."""
        marker = Marker()
        self._observers.mark(marker)
        return marker.passed.wait(deadline.left / 3)

    def stop(self, deadline: Deadline, end: ProcessEnd = ProcessEnd.CLOSED) -> None:
        """Stop every thread and close the port."""
        for loop in self._loops:
            loop.stop()
        self._arrived.wake()
        self._observers.hasten_end()
        for publisher in self._publishers:
            publisher.stop(planned=end is not ProcessEnd.CRASHED)
        try:
            self._notifier.close(deadline)
        finally:
            # Even after an interrupt: without the notice, watchers report a crash.
            if self._server is not None:
                self._server.close(deadline.left, notice=end.notice)
        for loop in self._loops:
            loop.join(deadline.left)
        for publisher in self._publishers:
            publisher.join(deadline.left)
        self._files.stop()

    def _make_lifecycle(self, app: str, spark: Any) -> Lifecycle:
        guidance = replace(self._components.guidance, spark_ui_url=spark_ui_url(spark))
        return Lifecycle(app, guidance, wiring.terms(self._settings))

    def _make_worker(self, lifecycle: Lifecycle) -> Worker:
        inputs = Inputs(
            inbox=self._arrived,
            report=lambda: self._observers.prober.latest,
            log=lambda: self._observers.logs.latest,
            sources=lambda: self._observers.sources.latest,
            ownership=lambda: self.path.ownership,
            silences=self._components.silencing,
            main_thread=main_thread,
            supervised=self._supervised,
        )
        return Worker(
            inputs,
            self._components.policy,
            lifecycle,
            self._notifier,
            remembering=self._notifier.remembering,
            redact=self._components.redacting,
            on_error=self._guard.report,
            on_evaluated=self._publish,
        )

    def _content(self) -> Content:
        return Content(
            published=lambda: self.published,
            alive=lambda: time.monotonic() - self._worker.beat_at < ALIVE_SECONDS,
            runbook=runbook,
            silence=self._silence,
        )

    def _latest_snapshot(self) -> Snapshot:
        return self.evaluated.snapshot

    def _pushed(self) -> PublishedState | None:
        # Processes of one JVM would replace each other's figures.
        return self.published if self.path.ownership.is_eldest else None

    def _silence(self, body: bytes) -> tuple[int, dict[str, object]]:
        known = {*self.evaluated.snapshot.labels(), *self.published.expected}
        return post_silence(body, self._components.silencing, known)

    def _listens(self, server: HttpServer) -> bool:
        where = f"{self._settings.http_host}:{self._settings.http_port}"
        return serves(server, where, is_alone=self.path.ownership.is_alone)

    def _publish(self, evaluated: Evaluated) -> None:
        self.evaluated = evaluated
        self.published = self._facts.published(evaluated)
        self._checkpoint_warnings.poll(evaluated.snapshot)
        self._notifier.query_heartbeats.update(evaluated)
        self._on_evaluated()


# -- starting ---------------------------------------------------------------------------------
# Starting a sidecar as one transaction: everything runs, or nothing is left behind.


ROLLBACK_SECONDS = 2.0


def start_runtime(
    spark: Any,
    listener: HealthListener,
    guard: Guard,
    make: Callable[..., Runtime],
    *,
    by_hand: bool,
) -> Runtime:
    """Listen by the best available event path, then start the runtime that ``make`` returns.

    Raises:
        Exception: what failed; the listener is removed from Spark again and no thread runs.

    """
    path = _opened(spark, listener, guard, by_hand=by_hand)
    try:
        runtime = make(spark=spark, listener=listener, path=path)
        try:
            runtime.start()
        except BaseException:
            guard.attempt("attach", lambda: runtime.stop(Deadline(ROLLBACK_SECONDS)))
            raise
    except BaseException:
        guard.attempt("attach", path.release)
        raise
    return runtime


def report_unmonitored(guard: Guard, error: Exception) -> None:
    """Log why ``attach`` watches nothing, and what it means for the job."""
    if isinstance(error, UnsupportedSparkError):
        log.error("querypulse: %s", error)
    else:
        guard.report("attach", error)
    log.warning("querypulse: this job is not monitored; it continues without querypulse")


def in_background(what: str, guard: Guard, call: Callable[[], None]) -> None:
    """Run ``call`` in a thread of its own, and contain its errors."""
    run = partial(guard.attempt, what, call)
    threading.Thread(target=run, name=f"querypulse-{what}", daemon=True).start()


def idle_listener(spark: Any | None, listener: HealthListener) -> Any:
    """A Java listener that does nothing, for PySpark to add where nothing is watched.

    Raises:
        Py4JError: this driver refuses Java classes and Python listeners.

    """
    try:
        return EventQueue(spark or active_session()).java.sessionListener()
    except (*THROWN, OSError, ValueError, AttributeError, NoSessionError):
        return listener.proxy()


def _opened(spark: Any, listener: HealthListener, guard: Guard, *, by_hand: bool) -> EventPath:
    """Open the event path; an interrupt during the wait leaves no listener behind."""
    opening: Future[EventPath] = Future()

    def run() -> None:
        try:
            opening.set_result(_path(spark, listener, by_hand=by_hand))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            opening.set_exception(error)

    try:
        # Py4J caches a class and its methods for as long as the calling thread lives.
        threading.Thread(target=run, name="querypulse-attach", daemon=True).start()
        return opening.result()
    except BaseException:
        opening.add_done_callback(partial(_release, guard))
        raise


def _path(spark: Any, listener: HealthListener, *, by_hand: bool) -> EventPath:
    if is_connect(spark):
        return open_connect_path(spark)
    require_supported(str(spark.version))
    return open_path(spark, listener, by_hand=by_hand)


def _release(guard: Guard, opening: Future[EventPath]) -> None:
    if opening.exception() is None:
        guard.attempt("attach", opening.result().release)
