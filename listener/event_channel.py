"""The probe's interface to the event path: check it, extend it, read its job counts."""

from __future__ import annotations

from typing import Any, Protocol

from .job_counts import CountedJobs
from .probing import ListenerHealth


class EventChannel(Protocol):
    """Our listener inside Spark."""

    def check(self, now: float) -> ListenerHealth:
        """Whether our listener is still registered; ``now`` is monotonic seconds.

        Raises:
            Py4JError: Spark refuses to answer.

        """
        ...

    def cover(self, execution: Any) -> None:
        """Listen to the session of a newly found run, a ``StreamExecution``.

        Raises:
            Py4JError: Spark refuses the listener.

        """
        ...

    def release(self) -> None:
        """Remove our listener from Spark.

        Raises:
            Py4JError, OSError: Spark may be gone already.

        """
        ...

    def job_counts(self) -> CountedJobs | None:
        """Jobs and tasks by query id, in one Py4J command; None where nothing counts them.

        Raises:
            Py4JError: Spark refuses to answer.

        """
        ...
