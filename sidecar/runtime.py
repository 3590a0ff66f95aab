"""The running components of a sidecar: threads, server, notifier, for one SparkContext."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from ..alerting.evaluated import Evaluated
from ..alerting.lifecycle.lifecycle import Lifecycle
from ..core.deadline import Deadline
from ..core.guard import Guard
from ..core.loop import Loop
from ..exporter.published_state import PublishedState
from ..exporter.server import Content, HttpServer
from ..listener.checkpoint_place import CheckpointWarnings
from ..listener.event_path import EventPath
from ..listener.health_listener import HealthListener
from ..listener.mailbox import Mailbox
from ..listener.python_frames import main_thread
from ..listener.reader import Ending, ExpectStop, Forget, Inbox, Marker
from ..listener.snapshot import Snapshot
from ..listener.supervised import SupervisedQuery
from ..settings import wiring
from ..settings.components import Components
from ..settings.links import external_url, runbook
from ..settings.settings import Settings
from .connect import observers_of, spark_version
from .file_readers import FileReaders
from .monitor import MonitorFacts, Origin
from .notifying import make_notifier
from .posted_silence import post_silence
from .process_end import ProcessEnd, end_of, uncaught_exception
from .publishing import make_publishers
from .serving import make_server, serves
from .session import app_name, spark_ui_url, warn_of_app_name
from .start_lines import log_start
from .worker import Inputs, Worker

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
        self._publishers = make_publishers(app, components.pushing, self._pushed, guard)
        self._facts = MonitorFacts(
            Origin(app, spark_version(spark, path), lag_by_partition=settings.lag_by_partition),
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
        self._publishers.start()
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
        self._publishers.stop(planned=end is not ProcessEnd.CRASHED)
        try:
            self._notifier.close(deadline)
        finally:
            # Even after an interrupt: without the notice, watchers report a crash.
            if self._server is not None:
                self._server.close(deadline.left, notice=end.notice)
        for loop in self._loops:
            loop.join(deadline.left)
        self._publishers.join(lambda: deadline.left)
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
