"""How events reach us, as the probe sees it: what it checks, extends and counts by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .job_counts import JobCounts
from .probing import ListenerHealth


class EventChannel(Protocol):
    """Our listener in Spark."""

    def check(self, now: float) -> ListenerHealth:
        """Whether Spark still knows our listener; ``now`` is monotonic seconds.

        Raises:
            Py4JError: Spark refuses to answer.

        """
        ...

    def cover(self, execution: Any) -> None:
        """Listen to the session of a run just met, a ``StreamExecution``.

        Raises:
            Py4JError: Spark refuses it.

        """
        ...

    def release(self) -> None:
        """Take our listener out of Spark.

        Raises:
            Py4JError, OSError: there may be no Spark any more.

        """
        ...

    def job_counts(self) -> Mapping[str, JobCounts] | None:
        """Jobs and tasks by query id, with one command; None where nothing counts them.

        Raises:
            Py4JError: Spark refuses to answer.

        """
        ...
