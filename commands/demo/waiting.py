"""Where the job's main thread waits while its queries run: for one query, or for any failure."""

from __future__ import annotations

import threading
from typing import Protocol

from ...listener.python_frames import current_frames
from ...sidecar.failure import QueryFailure
from ...sidecar.sidecar import Sidecar
from .pipeline import BRONZE, Pipeline


class Waiting(Protocol):
    """What a main thread does until the job is over."""

    where: str
    """The call in which it blocks."""

    def wait(self) -> QueryFailure | None:
        """Block; returns the failure that ends the job, if any."""

    def let_go(self) -> None:
        """End the wait, from another thread."""


class Blocked:
    """The trap of the incident: a job that waits for one query does not see another fail."""

    where = "awaitTermination"

    def __init__(self, pipeline: Pipeline, query: str = BRONZE) -> None:
        self._pipeline = pipeline
        self._query = query

    def wait(self) -> QueryFailure | None:
        """Block until the query ends, whatever happens to the others."""
        self._pipeline.queries[self._query].awaitTermination()
        return None

    def let_go(self) -> None:
        """Stop the query."""
        self._pipeline.queries[self._query].stop()


class Supervised:
    """The solution: any failed query ends the job, and its scheduler starts it again."""

    where = "await_any_failure"

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar

    def wait(self) -> QueryFailure | None:
        """Block until any query fails or disappears."""
        try:
            self._sidecar.await_any_failure()
        except QueryFailure as failure:
            return failure
        return None

    def let_go(self) -> None:
        """Close the sidecar."""
        self._sidecar.close()


def main_thread_stuck_in(function: str) -> bool:
    """Whether the main thread is in a call of this function now."""
    ident = threading.main_thread().ident
    frame = current_frames().get(ident) if ident is not None else None
    while frame is not None:
        if frame.f_code.co_name == function:
            return True
        frame = frame.f_back
    return False
