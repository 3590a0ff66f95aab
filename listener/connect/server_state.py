"""Whether the Spark Connect server and the session live, from answers and failures. Pure."""

from __future__ import annotations

from ..probing import Context
from .call_failure import CallFailure

REFUSED_SECONDS = 5.0
"""A server that has refused connections for so long has ended; a proxy restarts faster."""
LATE_CALLS = 3
"""After so many late calls in a row the connection may be dead without an error."""


class ServerState:
    """One server and one session, as a row of answers and failures shows them.

    A server that seemed to have ended counts as running again when the session answers: a proxy had
    ended, or it is a new server of Spark 3.5, which lets the session go on without its queries.
    """

    def __init__(self) -> None:
        self.context = Context.RUNNING
        self.is_final = False
        """Whether the session has ended, so that no later call can be answered."""
        self._late = 0
        self._refused_since: float | None = None

    @property
    def is_dead(self) -> bool:
        """Whether calls have been late so often that the connection must be made again."""
        return self._late >= LATE_CALLS

    def answered(self) -> None:
        """A call was answered."""
        self._refused_since, self._late = None, 0
        if not self.is_final:
            self.context = Context.RUNNING

    def failed(self, failure: CallFailure, now: float, *, closed_by_job: bool) -> None:
        """A call was not answered; ``now`` is monotonic seconds.

        ``closed_by_job``: whether the job has closed its session, or is closing it.
        """
        self._late = self._late + 1 if failure is CallFailure.LATE else 0
        if failure is not CallFailure.REFUSED:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        if failure is CallFailure.SESSION_LOST:
            self._end(Context.JVM_GONE)
        elif failure is CallFailure.SESSION_CLOSED or closed_by_job:
            self._end(Context.STOPPED_BY_APPLICATION)
        elif self._refused_since is not None and now - self._refused_since >= REFUSED_SECONDS:
            self.context = Context.JVM_GONE

    def closed(self) -> None:
        """The job has closed its session."""
        self._end(Context.STOPPED_BY_APPLICATION)

    def _end(self, context: Context) -> None:
        if not self.is_final:
            self.is_final, self.context = True, context
