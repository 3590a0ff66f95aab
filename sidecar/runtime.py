"""What runs in one driver: built, started and stopped here.

Each thread is named ``querypulse-...``:

* ``attach`` adds our listener to Spark, and ends.
* ``reader`` takes events to the worker's inbox, from Spark or, over Spark Connect, from the probe.
* ``probe``, ``commit-log``, ``sources`` and ``host`` read Spark, checkpoints, sources, and what the
  machine gives; of each the newest report counts.
* ``worker`` owns the state of all queries: it applies what arrived, evaluates, hands the alerts to
  ``deliver-...``, and then publishes.
* ``deliver-...``, ``heartbeat`` and ``push-...`` send, one thread for each receiver.
* ``silence-file``, ``secret-files``, ``http-files`` and ``spool`` use files that may hang.
* ``http`` and ``http-pages`` serve what the worker has published.
* ``close`` ends all of them once Spark is stopped.

At the end, ``Runtime.end`` polls and evaluates once more, reports what waited for a grace period,
sends, says how the process ends (``docs/watch.md``), and ends every thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from ..alerting.alert import Alert, Incident
from ..alerting.delivery.deliveries import Notifier
from ..alerting.finding import WHOLE_DRIVER, Severity
from ..alerting.incidents.lifecycle import Evaluated, Lifecycle, LifecycleSettings
from ..alerting.kinds import SharedCause
from ..alerting.policy import Policy
from ..alerting.rules.query_ends import endless
from ..alerting.silences import (
    BAD_REQUEST,
    CREATED,
    MAX_PATTERN,
    UNREADABLE,
    end_text,
    post_silence,
    written,
)
from ..alerting.words.messages import Guidance
from ..core.guard import Guard
from ..core.text import listed
from ..core.threads import Deadline, Loop
from ..exporter.pages import ALIVE_SECONDS, Content, Notice
from ..exporter.published_state import PublishedState
from ..exporter.push import Publisher, instance_of
from ..exporter.server import HttpServer
from ..listener.connect.event_path import ConnectPath
from ..listener.mailbox import (
    Ending,
    ExpectEnd,
    ExpectStop,
    Forget,
    Inbox,
    Mailbox,
    Marker,
    ProgramEnd,
)
from ..listener.probe_report import Context
from ..listener.python_frames import main_thread, waits_for_one_query
from ..listener.spark.event_paths import EventPath, open_path
from ..listener.spark.health_listener import HealthListener
from ..listener.spark.jvm import require_supported
from ..listener.spark.storage import SparkFolder
from ..listener.state.query import Query
from ..listener.state.snapshot import DriverAttempt, Snapshot, SupervisedQuery
from ..recording.lines import SeenFrom
from ..settings.links import external_url, runbook
from ..settings.receivers import log_start
from . import assemble
from .assemble import Components, Hadoop, refused_address
from .black_box import BlackBox, about_process
from .failure import QueryFailure
from .observers import FileReaders, Observers, observe_classic, observe_connect
from .preflight import Preflight, Surroundings
from .program import is_interactive, uncaught_exception
from .publishing import Publishing
from .session import (
    app_name,
    attempt_of,
    conf_reader,
    is_connect,
    place_of,
    restarted_by,
    scheduler_mode,
    spark_ui_url,
)
from .worker import Inputs, Worker

log = logging.getLogger("querypulse")

MAILBOX_CAPACITY = 2000
FLUSH_SHARE = 0.7
"""The share of the time to close that notifying may use; the rest is for stopping."""
INTERRUPTED_SECONDS = 0.5
"""The time to close after a second Ctrl-C."""
MINUTES_OF_DAY = 24 * 60
RECORDING_SECONDS = 0.2
"""The end of a process waits so long at least for recordings, which take a disk milliseconds; at
most half of the time that is left, because a store may hang and watchers wait for a notice."""
SILENT_SECONDS = 5.0
"""A JVM that has not answered for so long, as in endless garbage collection, has crashed."""


def end_of(
    context: Context,
    uncaught: type[BaseException] | None = None,
    silent_seconds: float = 0.0,
) -> Notice | None:
    """How a process ends, from its SparkContext's state and an uncaught Python exception.

    ``STOPPED`` by the application, ``TERMINATED`` by a signal, None by a crash.
    ``silent_seconds``: for how long the JVM has not answered; 0 if it answered the last poll.
    """
    if context in (Context.JVM_GONE, Context.SESSION_ENDED, Context.STOPPED):
        return None
    if context is Context.RUNNING and silent_seconds >= SILENT_SECONDS:
        return None
    if context is Context.TERMINATED or uncaught is KeyboardInterrupt:
        return Notice.TERMINATED
    return Notice.STOPPED if uncaught is None else None


def end_of_program(end: Notice | None, evaluated: Evaluated, policy: Policy) -> Notice | None:
    """How a process ends whose main program has ended, which nobody had announced.

    ``ENDED`` where that may be meant, None where it is as bad as a crash. It is as intended if no
    query ran that has no end.
    """
    is_announced = evaluated.snapshot.context is not Context.RUNNING
    if end is not Notice.STOPPED or policy.program is None or is_announced:
        return end
    if not endless(evaluated.snapshot, policy):
        return end
    found = (
        finding
        for finding in evaluated.evaluation.findings
        if finding.shared is SharedCause.PROGRAM_ENDED
    )
    is_mild = any(finding.severity is Severity.WARNING for finding in found)
    return Notice.ENDED if is_mild else None


def end_as_announced(
    snapshot: Snapshot, uncaught: type[BaseException] | None = None
) -> Notice | None:
    """How a process ends that has crashed: as announced if its JVM is gone and nothing else failed.

    ``await_any_failure`` raises ``QueryFailure`` because the JVM is gone.
    """
    is_meant = snapshot.end_expected and snapshot.context is Context.JVM_GONE
    follows = uncaught is None or issubclass(uncaught, QueryFailure)
    return Notice.TERMINATED if is_meant and follows else None


def notice_of(
    end: Notice | None, alerts: Iterable[Alert], pending: Collection[int]
) -> Notice | None:
    """The notice for watchers; None if the process has crashed and that is news.

    It is not if the receivers know of a critical alert; ``pending`` is what each has not taken.
    """
    if end is not None:
        return end
    is_known = bool(pending) and not any(pending)
    is_failed = any(alert.is_critical and not alert.muted for alert in alerts)
    return Notice.FAILED if is_known and is_failed else None


class ExpectedStop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /expect_stop``: which queries will be stopped; ``*`` is the whole driver.

    An announcement ends after ``minutes``: a stop that has not come by then was called off.
    """

    queries: Annotated[str, Meta(max_length=MAX_PATTERN)]
    minutes: Annotated[float, Meta(gt=0, le=MINUTES_OF_DAY)] = 60.0

    def labels(self, snapshot: Snapshot, policy: Policy) -> list[str]:
        """The queries that are meant: the active ones of the pattern, else those that just ended.

        Those are within their ``gone_grace_seconds``. A name is no pattern where a query has it.

        Raises:
            ValueError: there is none, and not the whole driver is meant.

        """
        names = [(query, (query.label, query.base_name)) for query in snapshot.queries]
        named = [query for query, own in names if self.queries in own] or [
            query for query, own in names if any(fnmatchcase(name, self.queries) for name in own)
        ]
        active = [query.label for query in named if query.run.alive]
        ended = [query.label for query in named if _just_ended(query, snapshot, policy)]
        if not active and not ended and self.queries != WHOLE_DRIVER:
            labels = listed([query.label for query in snapshot.queries])
            if named:
                raise ValueError(f"no query that matches {self.queries!r} runs, or has just ended")
            raise ValueError(f"no query matches {self.queries!r}; known: {labels}")
        return active or ended


def _just_ended(query: Query, snapshot: Snapshot, policy: Policy) -> bool:
    gone_at, grace = query.run.gone_at, policy.limits(query.base_name).gone_grace_seconds
    return gone_at is not None and snapshot.watched(gone_at, snapshot.at) <= grace


def guidance_here(components: Components, spark: Any) -> Guidance:
    """The guidance of the settings, without secrets, and what is known of this driver."""
    conf = conf_reader(spark)
    return replace(
        components.guidance.redacted(components.redacting.text),
        spark_ui_url=spark_ui_url(spark),
        place=place_of(spark, conf),
        restarted_by=restarted_by(conf),
    )


def make_black_box(
    components: Components, app: str, spark_version: str, hadoop: Hadoop | None
) -> BlackBox:
    """The unstarted black box of this driver.

    Raises:
        SettingsError: the folder of recordings is at a URI, and there is no JVM that opens it.

    """
    settings = components.settings
    folder = assemble.recordings_folder(settings, hadoop)
    return BlackBox(
        about_process(settings, app, spark_version, SeenFrom.DRIVER),
        components.guard,
        redact=components.redacting.text,
        folder=folder,
    )


class Runtime:
    """Everything that runs, from ``start`` to ``end``. Data flows one way:

    the event path's queue -> reader -> ``arrived`` -> worker -> notifier, then published state;
    probe, commit-log reader and source reader -> their newest report -> worker.
    """

    def __init__(
        self,
        components: Components,
        spark: Any,
        listener: HealthListener,
        path: EventPath,
        *,
        on_evaluated: Callable[[], None],
        supervised: Callable[[], Mapping[str, SupervisedQuery]],
        is_awaited: Callable[[], bool] = bool,
    ) -> None:
        self.path = path
        self._settings = settings = components.settings
        self._guard = guard = components.guard
        self._silencing = components.silencing
        self._on_evaluated = on_evaluated
        self._arrived: Inbox = Mailbox(MAILBOX_CAPACITY)
        self._is_read = False
        """Whether anybody has read the metrics or the status."""
        app = app_name(settings, spark)
        version = path.version if isinstance(path, ConnectPath) else str(spark.version)
        hadoop = None if is_connect(spark) else partial(SparkFolder, spark)
        self._black_box = make_black_box(components, app, version, hadoop)
        self._observers = self._observe(components, spark, path)
        guidance = replace(guidance_here(components, spark), recordings=self._black_box.place)
        terms = LifecycleSettings(settings.resolve_after_seconds, settings.repeat_interval_seconds)
        lifecycle = Lifecycle(app, guidance, terms, settings.labels)
        attempt = None if is_connect(spark) else attempt_of(spark, conf_reader(spark))
        self._notifier = self._make_notifier(components, app, lifecycle, hadoop, attempt)
        self._worker = self._make_worker(components, lifecycle, supervised)
        self._server = self._make_server(components)
        self._files = FileReaders(components, self._server)
        self._publishers = [Publisher(to, self._pushed, guard) for to in components.push_targets]
        self._publishing = Publishing(
            app,
            version,
            components,
            path=path,
            listener=listener,
            observers=self._observers,
            files=self._files,
            worker=self._worker,
            notifier=self._notifier,
            black_box=self._black_box,
            publishers=self._publishers,
            preflight=Preflight(settings, self._surroundings(spark, is_awaited)),
        )
        self._loops = [
            *self._observers.loops,
            Loop("worker", self._worker.step, guard, wake=self._arrived.wake),
        ]

    def _observe(self, components: Components, spark: Any, path: EventPath) -> Observers:
        on_event = self._black_box.ring.add
        if isinstance(path, ConnectPath):
            return observe_connect(components, path, self._arrived, on_event=on_event)
        return observe_classic(
            components,
            spark,
            path,
            self._arrived,
            lambda: self.evaluated.snapshot,
            on_event=on_event,
        )

    def _surroundings(self, spark: Any, is_awaited: Callable[[], bool]) -> Surroundings:
        return Surroundings(
            is_interactive=is_interactive(),
            is_connect=is_connect(spark),
            scheduler_mode=scheduler_mode(spark),
            waits_for_one=waits_for_one_query,
            is_awaited=is_awaited,
            is_read=lambda: self._is_read,
        )

    def read(self) -> PublishedState:
        """The published state, for somebody outside: a scraper, a watcher or a person."""
        self._is_read = True
        return self.published

    @property
    def published(self) -> PublishedState:
        """What readers see of the newest evaluation."""
        return self._publishing.newest

    @property
    def evaluated(self) -> Evaluated:
        """The worker's newest evaluation."""
        return self._worker.evaluated

    @property
    def url(self) -> str | None:
        """Where the HTTP server listens; None when it is off."""
        return self._server.url if self._server is not None else None

    def start(self) -> None:
        """Open the port, if there is a server, and start every thread."""
        if self._server is not None and not self._open_port(self._server):
            self._server = None
        self._files.start()
        self._black_box.start()
        self._notifier.start()
        for publisher in self._publishers:
            publisher.start()
        for loop in self._loops:
            loop.start()
        page = (external_url(self._settings) or self.url) if self.url else None
        log_start(self._settings, self.published.app, page)

    def ask_worker(self, request: ExpectStop | ExpectEnd | Forget) -> None:
        """Pass a request of the application to the worker, before what has not arrived yet."""
        self._arrived.put(request, lifecycle=True)

    def announce_termination(self) -> None:
        """Notify watchers and push gateways that a signal ends this process; takes a moment."""
        for publisher in self._publishers:
            publisher.stop(planned=True)
        if self._server is not None:
            self._server.close(0.0, notice=Notice.TERMINATED)

    def has_lost_jvm(self) -> bool:
        """Whether the JVM has died, which nobody wanted; asks no JVM."""
        return self._observers.has_lost_jvm()

    def flush(self, deadline: Deadline) -> bool:
        """Probe, evaluate and deliver once more; False when something was not done in time.

        No step may use up the time of the later ones: a JVM that does not answer, or a
        receiver that hangs, must not keep a page from the other receivers.
        """
        polled = self._observers.prober.poll_now(deadline.left / 4)
        evaluated = self._evaluate(deadline)
        reported = self._notifier.flush(deadline)
        return polled and evaluated and reported

    def end(self, timeout: float, program: ProgramEnd | None = None) -> None:
        """Flush and stop within about ``timeout`` seconds, or at once after an interrupt.

        ``program``: how the main program ended, if that was not announced.

        Raises:
            KeyboardInterrupt: the user does not want to wait; everything is stopped.

        """
        deadline = Deadline(timeout)
        try:
            last = Deadline(timeout * FLUSH_SHARE)
            self._guard.attempt("close", lambda: self._last_flush(last, program))
        except BaseException:
            deadline = Deadline(INTERRUPTED_SECONDS)
            raise
        finally:
            self.stop(deadline, self._end)

    @property
    def _end(self) -> Notice | None:
        end = self._unannounced_end
        return end or end_as_announced(self.evaluated.snapshot, uncaught_exception())

    @property
    def _unannounced_end(self) -> Notice | None:
        context, silent = self.evaluated.snapshot.context, self._observers.prober.silent_seconds
        end = end_of(context, uncaught_exception(), silent)
        return end_of_program(end, self.evaluated, self._worker.policy)

    def _last_flush(self, deadline: Deadline, program: ProgramEnd | None) -> None:
        """Report what still waits for a grace period: there is no later evaluation."""
        self._observers.prober.poll_now(deadline.left / 4)
        self._evaluate(deadline)
        has_crashed = self._unannounced_end is None
        self._arrived.put(Ending(has_crashed, program), lifecycle=True)
        # Some findings are reported only after two evaluations in a row. The reader has passed on
        # what there was, and may wait for a JVM that does not answer.
        for _ in range(2):
            marker = Marker()
            self._arrived.put(marker, lifecycle=True)
            marker.wait(deadline.left / 3)
        self._notifier.flush(deadline)

    def _evaluate(self, deadline: Deadline) -> bool:
        """Evaluate everything received so far; False when that took too long."""
        marker = Marker()
        self._observers.mark(marker)
        return marker.wait(deadline.left / 3)

    def stop(self, deadline: Deadline, end: Notice | None = Notice.STOPPED) -> None:
        """Stop every thread and close the port."""
        for loop in self._loops:
            loop.stop()
        for publisher in self._publishers:
            publisher.stop(planned=end in (Notice.STOPPED, Notice.TERMINATED))
        try:
            self._notifier.close(deadline)
            self._black_box.close(max(RECORDING_SECONDS, deadline.left / 2))
        finally:
            # Even after an interrupt: without the notice, watchers report a crash.
            if self._server is not None:
                pending = [delivery.pending for delivery in self._notifier.deliveries]
                notice = notice_of(end, self.published.alerts, pending)
                self._server.close(deadline.left, notice=notice)
        for loop in self._loops:
            loop.join(deadline.left)
        for publisher in self._publishers:
            publisher.join(deadline.left)
        self._files.stop()

    def _make_notifier(
        self,
        components: Components,
        app: str,
        lifecycle: Lifecycle,
        hadoop: Hadoop | None,
        attempt: DriverAttempt | None,
    ) -> Notifier:
        def restore(incidents: tuple[Incident, ...]) -> None:
            lifecycle.restore(incidents, time.monotonic())
            self._black_box.inherit(incidents)

        return assemble.make_notifier(
            self._settings,
            app,
            self._guard,
            components.receivers,
            restore=restore,
            heartbeat=components.heartbeat,
            query_heartbeats=components.query_heartbeats,
            redact=components.redacting.text,
            on_attempt=self._black_box.attempted,
            hadoop=hadoop,
            attempt=attempt,
        )

    def _make_worker(
        self,
        components: Components,
        lifecycle: Lifecycle,
        supervised: Callable[[], Mapping[str, SupervisedQuery]],
    ) -> Worker:
        inputs = Inputs(
            inbox=self._arrived,
            report=lambda: self._observers.prober.latest,
            log=self._observers.latest_log,
            sources=self._observers.latest_sources,
            host=self._observers.latest_host,
            ownership=lambda: self.path.ownership,
            silences=components.silencing,
            main_thread=main_thread,
            supervised=supervised,
        )
        return Worker(
            inputs,
            components.policy,
            lifecycle,
            self._notifier,
            failure_history=self._notifier.failure_history,
            redact=components.redacting,
            on_error=self._guard.report,
            on_evaluated=self._follow,
        )

    def _make_server(self, components: Components) -> HttpServer | None:
        """The HTTP server, not started; None if it is off or its address is refused."""
        settings, token = self._settings, components.token
        refused = refused_address(settings)
        if refused:
            log.error("querypulse: no HTTP server: %s", refused)
        if settings.http_port < 0 or refused:
            return None
        content = Content(
            published=self.read,
            alive=lambda: time.monotonic() - self._worker.beat_at < ALIVE_SECONDS,
            runbook=runbook,
            silence=self._silence,
            expect_stop=self._expect_stop,
            silences=lambda: [written(silence) for silence in self._silencing()],
            incidents=self._black_box.summaries,
            timeline=self._black_box.timeline,
        )
        return HttpServer(
            settings.http_host,
            settings.http_port,
            content,
            self._guard,
            token=lambda: token.known if token is not None else None,
            tls=components.tls,
            external_name=urlsplit(external_url(settings)).hostname,
        )

    def _open_port(self, server: HttpServer) -> bool:
        """Start the server; return whether it listens."""
        wanted = server.url
        try:
            server.start()
        except OSError as error:
            log.error("querypulse: no server at %s: %s", wanted, error)  # noqa: TRY400 - one line
            return False
        if self._settings.http_port and server.url != wanted:
            log.warning("querypulse: %s is taken: this driver serves %s", wanted, server.url)
        return True

    def _pushed(self) -> PublishedState | None:
        # Of several processes of one JVM, all of which see every query, one pushes.
        if not self.path.ownership.is_eldest:
            return None
        return replace(self.published, instance=instance_of(self.url))

    def _silence(self, body: bytes) -> tuple[int, dict[str, object]]:
        names = {*self.evaluated.snapshot.labels(), *self.published.expected}
        return post_silence(body, self._silencing, names)

    def _expect_stop(self, body: bytes) -> tuple[int, dict[str, object]]:
        """Announce the stops that the body of ``POST /expect_stop`` names."""
        try:
            given = msgspec.json.decode(body, type=ExpectedStop)
            labels = given.labels(self.evaluated.snapshot, self._worker.policy)
        except UNREADABLE as error:
            return BAD_REQUEST, {"error": str(error)}
        seconds = given.minutes * 60.0
        until = time.monotonic() + seconds
        for label in labels:
            self.ask_worker(ExpectStop(label, is_label=True, until=until))
        if given.queries == WHOLE_DRIVER:
            self.ask_worker(ExpectEnd(until))
        names = listed([repr(label) for label in labels])
        log.info("querypulse: stops announced over HTTP: %r: %s", given.queries, names)
        return CREATED, {"queries": labels, "until": end_text(time.time() + seconds)}

    def _follow(self, evaluated: Evaluated) -> None:
        """Do what follows an evaluation whose alerts are handed over."""
        heartbeats = self._notifier.query_heartbeats
        try:
            self._black_box.offer(evaluated)
            self._publishing.publish(evaluated)
            self._guard.attempt("heartbeats", lambda: heartbeats.update(evaluated))
        finally:
            self._on_evaluated()


def open_event_path(
    spark: Any, listener: HealthListener, guard: Guard, *, by_hand: bool
) -> EventPath:
    """Open the event path; an interrupt during the wait leaves no listener behind."""
    opening: Future[EventPath] = Future()

    def run() -> None:
        try:
            if is_connect(spark):
                opening.set_result(ConnectPath(spark))
            else:
                require_supported(str(spark.version))
                opening.set_result(open_path(spark, listener, by_hand=by_hand))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            opening.set_exception(error)

    try:
        # Py4J caches a class and its methods for as long as the calling thread lives.
        threading.Thread(target=run, name="querypulse-attach", daemon=True).start()
        return opening.result()
    except BaseException:
        opening.add_done_callback(partial(_release, guard))
        raise


def _release(guard: Guard, opening: Future[EventPath]) -> None:
    if opening.exception() is None:
        guard.attempt("attach", opening.result().release)
