"""The probe of a Spark Connect session: polls its queries over our own connection."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any

from ..optional_calls import OptionalCalls
from ..probing import Context, ProbeReport
from ..python_frames import is_running
from .call_failure import CallFailure, ServerSilentError
from .path import ConnectPath
from .runs import ConnectRuns
from .server_state import ServerState

log = logging.getLogger("querypulse")

RETRY_SECONDS = 0.5
CLOSED = "the Spark Connect session was closed (released, or expired); its queries ended with it"
LOST = "the Spark Connect server was started again, and the session and its queries are gone"


class ConnectProbe:
    """Polls one session; used by one thread, except ``context`` and ``stop``.

    While the server does not answer and may still live, ``poll`` does not return, as with a JVM
    that does not answer: no report is better than an empty one.
    """

    def __init__(self, spark: Any, path: ConnectPath) -> None:
        self.server = ServerState()
        self.details = OptionalCalls()
        self._client = spark.client
        self._stop_code = inspect.unwrap(type(spark).stop).__code__
        self._path = path
        self._runs = ConnectRuns(path.client, path.new_starts, path.pass_on_polled, self.details)
        self._stopping = threading.Event()
        self._last: ProbeReport | None = None

    def context(self) -> Context:
        """Whether the session lives, as far as is known without asking; for any thread."""
        return Context.STOPPED_BY_APPLICATION if self._closed_by_job() else self.server.context

    def poll(self, clock: Callable[[], float]) -> ProbeReport:
        """Poll every run once, when the server answers.

        Raises:
            ServerSilentError: the probe was stopped before the first answer.

        """
        while True:
            began_at = clock()
            silence = self._silence(clock)
            is_known = silence is None or self.server.context is not Context.RUNNING
            if is_known and not (self._stopping.is_set() and silence is not None):
                self._last = self._report(began_at, clock())
                return self._last
            if self._stopping.wait(RETRY_SECONDS):
                if self._last is None:
                    raise silence or ServerSilentError(CallFailure.UNREACHABLE)
                return self._last

    def stop(self) -> None:
        """End a poll that waits for the server."""
        self._stopping.set()

    def release(self) -> None:
        """Leave the job's client as it was."""
        self._path.release()

    def _silence(self, clock: Callable[[], float]) -> ServerSilentError | None:
        """Poll; returns why nothing was answered, None after an answer."""
        if self.server.is_final:
            return ServerSilentError(CallFailure.SESSION_CLOSED)
        self._path.pass_on_held()
        try:
            self._runs.poll()
        except ServerSilentError as error:
            self.server.failed(error.failure, clock(), closed_by_job=self._closed_by_job())
            if self.server.is_dead:
                self._path.stream.cut()
            self._explain(error.failure)
            return error
        self.server.answered()
        if self._closed_by_job():
            self.server.closed()
        return None

    def _report(self, began_at: float, at: float) -> ProbeReport:
        runs = self._runs.report(began_at) if self.server.context is Context.RUNNING else ()
        health = self._path.check(at)
        return ProbeReport(began_at, at, runs, self.server.context, health)

    def _closed_by_job(self) -> bool:
        return bool(self._client.is_closed)

    def _explain(self, failure: CallFailure) -> None:
        """Log once why a session ended that the job has not closed.

        PySpark's ``stop()`` releases the session first, and closes the client then.
        """
        if failure is CallFailure.SESSION_LOST:
            log.warning("querypulse: %s", LOST)
        elif failure is CallFailure.SESSION_CLOSED and not (
            self._closed_by_job() or is_running(self._stop_code)
        ):
            log.warning("querypulse: %s", CLOSED)
