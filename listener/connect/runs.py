"""The runs of one Spark Connect session, as its public commands show them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from msgspec.structs import replace

from ..decode import DecodeError, decode
from ..events import EventKind, Progress
from ..idle_progress import IdleProgress
from ..optional_calls import OptionalCalls
from ..probing import UNKNOWN_TRIGGER, ProbedRun, RunFacts, Trigger
from ..spark_queries import EndedRuns
from .call_failure import CallFailure, ConnectCallError, ServerSilentError

_UNKNOWN_RUN = re.compile(r"Streaming query \S+ is not found|Run id mismatch for query id")
LOST = "the Spark Connect server no longer knows the query, as after the server was started again"
"""The error of such a query. Spark 3.5 lets the session go on after a restart of the server; from
4.0 on, the server refuses such a session."""
END_POLLS = 3
"""How often a run that has ended is asked how, before it counts as unknown."""


class SessionQueries(Protocol):
    """The calls of ``ConnectClient`` that are needed here."""

    session_id: str

    def active(self) -> list[Any]:
        """The active queries."""
        ...

    def query(self, run: tuple[str, str], **what: object) -> Any:
        """The answer to one command about one run."""
        ...


class ConnectRun:
    """One run and its last poll, which is kept when a poll fails."""

    def __init__(self, queries: SessionQueries, facts: RunFacts) -> None:
        self.last = ProbedRun(facts, active=True)
        self.end_polls = 0
        """How often it was asked how it ended."""
        self._queries = queries
        self._key = (facts.query_id, facts.run_id)
        self._progress_text = ""
        self._batch_id: int | None = None
        self._idle_progress = IdleProgress()

    def poll(self) -> str:
        """Poll; returns the newest progress of a batch as an event, empty if it is not new.

        The progress comes first: a batch that commits between the two calls is only seen later.
        """
        news, event = self._progress()
        status = self._queries.query(self._key, status=True).status
        seen = ProbedRun(
            facts=self.last.facts,
            active=True,
            message=status.status_message,
            trigger_active=status.is_trigger_active,
            data_available=status.is_data_available,
            batch_id=self._batch_id,
        )
        idle = self._idle_progress.poll(seen, news)
        self.last = replace(seen, idle_progress=idle)
        return event

    def poll_end(self) -> str:
        """The last poll of a run that has ended; returns as ``poll`` does.

        A server knows a query for an hour after its end: ``SparkConnectStreamingQueryCache``.
        """
        try:
            return self._poll_end()
        except ConnectCallError as error:
            if not _UNKNOWN_RUN.search(str(error)):
                raise
        self._ended_with(LOST, "")
        return ""

    def _poll_end(self) -> str:
        _, event = self._progress()
        answer = self._queries.query(self._key, exception=True).exception
        text: str | None = None
        if answer.HasField("exception_message"):
            text = "\n".join(filter(None, (answer.exception_message, answer.stack_trace)))
        self._ended_with(text, answer.error_class)
        return event

    def _ended_with(self, exception: str | None, error_class: str) -> None:
        self.last = replace(
            self.last,
            active=False,
            trigger_active=False,
            idle_progress=None,
            batch_id=self._batch_id,
            exception=exception,
            error_class=error_class or None,
        )

    def _progress(self) -> tuple[str, str]:
        """The newest progress if it is new: its text, and as an event if it is of a batch."""
        texts = self._queries.query(self._key, last_progress=True).recent_progress
        text = texts.recent_progress_json[-1] if texts.recent_progress_json else ""
        if not text or text == self._progress_text:
            return "", ""
        self._progress_text, event = text, f'{{"progress":{text}}}'
        try:
            progress = decode(EventKind.PROGRESS, event)
        except DecodeError:
            return "", ""
        if not isinstance(progress, Progress):
            return "", ""
        # A progress without a batch has the id of the next one.
        self._batch_id = progress.batch_id + progress.committed
        return text, event if progress.committed else ""


class ConnectRuns:
    """Polls all active runs; a run that cannot be polled does not affect the others.

    ``new_starts`` returns the facts of runs that the job has started since the last call,
    ``on_progress`` takes each new progress of a batch.
    """

    def __init__(
        self,
        queries: SessionQueries,
        new_starts: Callable[[], list[RunFacts]],
        on_progress: Callable[[str], object],
        details: OptionalCalls,
    ) -> None:
        self._queries = queries
        self._new_starts = new_starts
        self._on_progress = on_progress
        self._details = details
        self._living: dict[str, ConnectRun] = {}
        self._ended = EndedRuns()

    def poll(self) -> None:
        """Poll every run once.

        Raises:
            ServerSilentError: the server does not answer.

        """
        # Before the active queries: a run that starts now must not seem to have ended.
        for facts in self._new_starts():
            self._living[facts.run_id] = ConnectRun(self._queries, facts)
        active = {one.id.run_id: one for one in self._active()}
        for run_id, one in active.items():
            if run_id not in self._living:
                facts = self._unknown(one.id.id, run_id, one.name)
                self._living[run_id] = ConnectRun(self._queries, facts)
        for run_id, run in list(self._living.items()):
            if run_id in active:
                # One name for all runs: what is missing is remembered by name.
                self._on_event(self._details.ask("the status of a query", run.poll, ""))
            else:
                self._end(run_id, run)

    def report(self, now: float) -> tuple[ProbedRun, ...]:
        """All runs, active and recently ended; ``now`` is monotonic seconds."""
        return tuple(run.last for run in self._living.values()) + self._ended.report(now)

    def _active(self) -> list[Any]:
        try:
            return self._queries.active()
        except ConnectCallError as error:
            # Such as ``spark.interruptAll()``; without this answer nothing is known.
            raise ServerSilentError(CallFailure.UNREACHABLE, str(error)) from error

    def _end(self, run_id: str, run: ConnectRun) -> None:
        run.end_polls += 1
        self._on_event(self._details.ask("how a query ended", run.poll_end, ""))
        if run.last.active and run.end_polls < END_POLLS:
            return
        del self._living[run_id]
        if not run.last.active:
            self._ended.add(run.last)

    def _on_event(self, text: str) -> None:
        if text:
            self._on_progress(text)

    def _unknown(self, query_id: str, run_id: str, name: str) -> RunFacts:
        return RunFacts(
            query_id=query_id,
            run_id=run_id,
            name=name or None,
            trigger=Trigger(UNKNOWN_TRIGGER),
            sink="",
            checkpoint="",
            session=self._queries.session_id,
        )
