"""The probe of a Spark Connect session: polls its queries over our own connection."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..events import decode_progress
from ..failure import SESSION_ENDED
from ..probe_report import (
    UNKNOWN_TRIGGER,
    Context,
    ProbedRun,
    ProbeReport,
    RunFacts,
    Trigger,
    with_idle_progress,
)
from ..spark.jvm import OptionalCalls
from ..spark.probe import EndedRuns
from .client import CallFailure, ConnectCallError, ConnectClient, ServerSilentError
from .event_path import ConnectPath

log = logging.getLogger("querypulse")


_UNKNOWN_RUN = re.compile(r"Streaming query \S+ is not found|Run id mismatch for query id")
RUN_LOST = (
    "the Spark Connect server no longer knows the query, as after the server was started again, or "
    "has ended the session and made a new one"
)
"""The error of such a query. Spark 3.5 lets a session go on after both, without its queries; from
4.0 on, the server refuses such a session."""
END_POLLS = 3
"""How often a run that has ended is asked how, before it counts as unknown."""


class ConnectRun:
    """One run and its last poll, which is kept when a poll fails.

    ``on_progress`` takes the progress of each batch since the last poll; of a run that is not new,
    batches before the first poll are left out, except the newest.
    """

    def __init__(
        self,
        client: ConnectClient,
        facts: RunFacts,
        on_progress: Callable[[str], object],
        *,
        is_new: bool,
    ) -> None:
        self.last = ProbedRun(facts, active=True)
        self.end_polls = 0
        """How often it was asked how it ended."""
        self._client = client
        self._key = (facts.query_id, facts.run_id)
        self._progress_text = ""
        self._batch_id: int | None = None
        self._on_progress = on_progress
        self._next_batch = 0 if is_new else math.inf
        """Batches from this id on are yet to be passed on."""

    def poll(self) -> None:
        """Poll; progress comes first: a batch that commits between two calls is only seen later."""
        self._poll_progress()
        status = self._client.query(self._key, status=True).status
        seen = ProbedRun(
            facts=self.last.facts,
            active=True,
            message=status.status_message,
            trigger_active=status.is_trigger_active,
            data_available=status.is_data_available,
            batch_id=self._batch_id,
        )
        self.last = with_idle_progress(seen, self._progress_text, self.last)

    def poll_end(self) -> None:
        """The last poll of a run that has ended.

        A server knows a query for an hour after its end: ``SparkConnectStreamingQueryCache``.
        """
        try:
            self._poll_progress()
            exception, error_class = self._exception()
        except ConnectCallError as error:
            if not _UNKNOWN_RUN.search(str(error)):
                raise
            if self._client.has_server_session and not self.last.facts.trigger.is_known:
                # A server that had started again would have refused the session. It shows to no
                # client how a flow of a declarative pipeline ends; their triggers are these.
                facts = replace(self.last.facts, trigger=Trigger("AvailableNow"))
                self.last = replace(self.last, facts=facts)
                exception = error_class = None
            else:
                exception, error_class = RUN_LOST, SESSION_ENDED
        self.end(exception, error_class)

    def end(self, exception: str | None, error_class: str | None) -> None:
        """Record how the run has ended; without an exception it was stopped, or has completed."""
        self.last = replace(
            self.last,
            active=False,
            trigger_active=False,
            idle_progress=None,
            batch_id=self._batch_id,
            exception=exception,
            error_class=error_class,
        )

    def _exception(self) -> tuple[str | None, str | None]:
        answer = self._client.query(self._key, exception=True).exception
        if not answer.HasField("exception_message"):
            return None, None
        texts = filter(None, (answer.exception_message, answer.stack_trace))
        return "\n".join(texts), answer.error_class or None

    def _poll_progress(self) -> None:
        newest = self._progresses(last_progress=True)
        if not newest or newest[-1] == self._progress_text:
            return
        text, first = newest[-1], self._next_batch
        progress = decode_progress(text)
        if progress is not None:
            if first < progress.batch_id:
                # Other batches ended since the last poll: the server keeps a run's newest 100.
                newest = self._progresses(recent_progress=True)
            for event in newest:
                batch = decode_progress(event)
                if batch is None or not batch.committed:
                    continue
                if event == text or first <= batch.batch_id <= progress.batch_id:
                    self._on_progress(event)
            # A progress without a batch has the id of the next one.
            self._batch_id = self._next_batch = progress.batch_id + progress.committed
        self._progress_text = text

    def _progresses(self, **which: bool) -> list[str]:
        return list(self._client.query(self._key, **which).recent_progress.recent_progress_json)


class ConnectRuns:
    """Polls all active runs; a run that cannot be polled does not affect the others.

    ``path`` has the starts of runs by the job, and takes each new progress of a batch.
    """

    def __init__(self, path: ConnectPath, details: OptionalCalls) -> None:
        self._path = path
        self._client = path.client
        self._details = details
        self._living: dict[str, ConnectRun] = {}
        self._ended = EndedRuns()

    def poll(self, now: float) -> None:
        """Poll every run once; ``now`` is monotonic seconds.

        Raises:
            ServerSilentError: the server does not answer.

        """
        # Before the active queries: a run that starts now must not seem to have ended.
        self._add_started()
        try:
            active = {query.id.run_id: query for query in self._client.active()}
        except ConnectCallError as error:
            # Such as ``spark.interruptAll()``; without this answer nothing is known.
            raise ServerSilentError(CallFailure.UNREACHABLE, str(error)) from error
        for run_id, query in active.items():
            if run_id not in self._living:
                self._add(self._facts(query), is_new=False)
        for run_id, run in list(self._living.items()):
            if run_id in active:
                # One name for all runs: what is missing is remembered by name.
                self._details.ask("the status of a query", run.poll, None)
            else:
                self._end(run_id, run, now)

    def report(self, now: float) -> tuple[ProbedRun, ...]:
        """All runs, active and recently ended; ``now`` is monotonic seconds."""
        return tuple(run.last for run in self._living.values()) + self._ended.report(now)

    def end_all(self, exception: str, now: float) -> None:
        """End every run with its session; ``now`` is monotonic seconds.

        One that the job has stopped since the last poll has ended without an exception.
        """
        self._add_started()
        for run_id, run in self._living.items():
            was_stopped = run_id in self._path.stopped
            run.end(*((None, None) if was_stopped else (exception, SESSION_ENDED)))
            self._ended.add(run.last, now)
        self._living.clear()

    def _add_started(self) -> None:
        while self._path.starts:
            self._add(self._path.starts.popleft(), is_new=True)

    def _add(self, facts: RunFacts, *, is_new: bool) -> None:
        run = ConnectRun(self._client, facts, self._path.receive_progress, is_new=is_new)
        self._living[facts.run_id] = run

    def _end(self, run_id: str, run: ConnectRun, now: float) -> None:
        run.end_polls += 1
        self._details.ask("how a query ended", run.poll_end, None)
        if run.last.active and run.end_polls < END_POLLS:
            return
        del self._living[run_id]
        if not run.last.active:
            self._ended.add(run.last, now)

    def _facts(self, query: Any) -> RunFacts:
        """What is known of a run that the job's client has not started."""
        return RunFacts(
            query_id=query.id.id,
            run_id=query.id.run_id,
            name=query.name or None,
            trigger=Trigger(UNKNOWN_TRIGGER),
            sink="",
            checkpoint="",
            session=self._client.session_id,
        )


REFUSED_SECONDS = 5.0
"""A server that has refused connections for so long has ended; a proxy restarts faster."""
ENDS = {
    CallFailure.SESSION_CLOSED: ("closed", "it expired, or was released elsewhere"),
    CallFailure.SESSION_LOST: ("lost", "it was started again, or another server answers"),
}
"""What the server has done with a session that has ended, and why."""


class ConnectProbe:
    """Polls one session; used by one thread, except ``context``.

    A server that seemed to have ended counts as running again when the session answers: a proxy had
    ended, or it is a new server of Spark 3.5, which lets the session go on without its queries.
    """

    def __init__(self, path: ConnectPath) -> None:
        self.details = OptionalCalls()
        self._path = path
        self._runs = ConnectRuns(path, self.details)
        self._seen = Context.RUNNING
        self._is_final = False
        """Whether the session has ended, so that no later call can be answered."""
        self._answered_at: float | None = None
        self._refused_since: float | None = None

    def context(self) -> Context:
        """Whether the session lives, as far as is known without asking; for any thread."""
        return self._path.left or self._seen if self._seen is Context.RUNNING else self._seen

    def poll(self, clock: Callable[[], float]) -> ProbeReport | None:
        """Poll every run once; None while the server does not answer and may still live."""
        began_at, failure = clock(), None
        if not self._is_final:
            try:
                self._runs.poll(began_at)
            except ServerSilentError as error:
                failure = error.failure
            self._note(failure, clock())
        if failure is not None and self._seen is Context.RUNNING:
            return None
        is_known = self._seen in (Context.RUNNING, Context.SESSION_ENDED)
        runs = self._runs.report(began_at) if is_known else ()
        return ProbeReport(began_at, clock(), runs, self._seen, self._path.health)

    def release(self) -> None:
        """Leave the job's client as it was."""
        self._path.release()

    def _note(self, failure: CallFailure | None, now: float) -> None:
        """What an answer, or why there is none, shows of the server and of the session."""
        if failure is not CallFailure.REFUSED:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        left = self._path.left if self._seen is Context.RUNNING else None
        # The job's wish first: the server closes a session that the job releases.
        if left is Context.STOPPED_BY_APPLICATION:
            self._is_final, self._seen = True, left
        elif left is Context.SESSION_ENDED:
            self._end_session(self._path.lost or CallFailure.SESSION_LOST, now)
        elif failure is not None and failure.ends_session:
            self._end_session(failure, now)
        elif failure is None:
            self._seen, self._answered_at = Context.RUNNING, now
        elif self._refused_since is not None and now - self._refused_since >= REFUSED_SECONDS:
            self._seen = Context.JVM_GONE

    def _end_session(self, failure: CallFailure, now: float) -> None:
        """End the session without the job's wish.

        If its server has refused connections before, a new one shows that the server had ended.
        """
        did, how = ENDS[failure]
        if self._answered_at is not None:
            how += f"; last answer {now - self._answered_at:.0f} s before"
        why = f"the Spark Connect server has {did} the session ({how})"
        log.warning("querypulse: %s, and its queries have ended", why)
        self._is_final = True
        if failure is CallFailure.SESSION_LOST and self._seen is Context.JVM_GONE:
            return
        self._seen = Context.SESSION_ENDED
        self._runs.end_all(why, now)
