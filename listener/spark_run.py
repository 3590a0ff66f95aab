"""One active run of a query: its handle and its last poll."""

from __future__ import annotations

from msgspec.structs import replace

from .idle_progress import IdleProgress
from .living_runs import LivingRun, UnreadRun
from .optional_calls import OptionalCalls
from .probing import ProbedRun, RunFacts
from .spark_execution import SparkExecution
from .spark_work import PolledWork


class SparkRun:
    """Polls one run; ``last`` is the newest poll, kept when a poll fails."""

    def __init__(self, execution: SparkExecution, facts: RunFacts, details: OptionalCalls) -> None:
        self.facts = facts
        self.last = ProbedRun(facts, active=True)
        self._execution = execution
        self._ask = details.ask
        self._session: int | None = None
        self._busy_since: float | None = None
        self._polled_closely_at = 0.0
        self._idle_progress = IdleProgress()

    def is_over(self, reported: LivingRun | UnreadRun) -> bool:
        """Whether its query now reports another run, or this run has ended."""
        if reported.run_id:
            return reported.run_id != self.facts.run_id
        return self._ask("is_active", self._execution.is_over, False)

    def current(self, reported: LivingRun | UnreadRun | None) -> LivingRun | None:
        """The current status, from ``reported`` or from the run itself; None when it has ended.

        Raises:
            Exception: the run must be polled on its own, and Spark refuses to answer.

        """
        replaced = reported is None or (
            bool(reported.run_id) and reported.run_id != self.facts.run_id
        )
        if isinstance(reported, LivingRun) and not replaced:
            return reported if reported.active else None
        # Spark no longer lists the run, so a refused answer means that it has ended.
        if replaced and self._ask("is_active", self._execution.is_over, True):
            return None
        return self._execution.living_run(self.facts, self.last.batch_id)

    def poll(self, reported: LivingRun, now: float, closer_after: float, work: PolledWork) -> None:
        """Apply the status; also poll jobs and stacks once it is busy with one batch for long."""
        # For a continuous query the id is the epoch begun, which does not show commits.
        seen = ProbedRun(
            facts=self.facts,
            active=True,
            message=reported.status.message,
            trigger_active=reported.status.is_trigger_active,
            data_available=reported.status.is_data_available,
            batch_id=reported.batch_id,
            committed_offsets=reported.offsets or self.last.committed_offsets,
        )
        self._session = self._session if reported.session is None else reported.session
        idle_progress = self._idle_progress.poll(seen, reported.idle_progress)
        seen = replace(seen, idle_progress=idle_progress)
        self.last = self._poll_closer(seen, now, closer_after, work)

    def final_poll(self) -> ProbedRun:
        """The poll of a run that has ended: why, and in which batch."""
        exception, error_class = self._execution.death()
        batch_id, committed, available = self.last.batch_id, self.last.committed_offsets, ""
        if not self.facts.trigger.is_continuous:
            # The last poll may show an earlier batch than the one that failed.
            batch_id = self._execution.batch_id(batch_id)
            committed = self._execution.committed_offsets() or committed
            available = self._execution.available_offsets()
        return replace(
            self.last,
            active=False,
            batch_id=batch_id,
            committed_offsets=committed,
            available_offsets=available,
            trigger_active=False,
            idle_progress=None,
            exception=exception,
            error_class=error_class,
        )

    def _poll_closer(
        self, seen: ProbedRun, now: float, closer_after: float, work: PolledWork
    ) -> ProbedRun:
        busy = seen.planning or seen.processing
        if not busy or seen.batch_id != self.last.batch_id:
            self._busy_since = now if busy else None
            return seen
        if self._busy_since is None:
            self._busy_since = now
        closer, mark = self.last.work, self.last.last_progress_mark
        available = self.last.available_offsets
        overdue = now - self._busy_since >= closer_after
        if overdue and now - self._polled_closely_at >= closer_after / 2:
            self._polled_closely_at = now
            java = self._execution.java
            if self._session is None:
                self._session = work.session_of(java)
            closer = work.of(java, self.facts, self._session)
            mark = self._execution.last_progress_mark(mark)
            if not self.facts.trigger.is_continuous:
                available = self._execution.available_offsets()
        return replace(seen, work=closer, last_progress_mark=mark, available_offsets=available)
