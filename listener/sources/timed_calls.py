"""Limits how long the poll of a table may take: storage and catalogs have no time limit of ours.

Kafka's clients have one. A file system of Hadoop may retry for minutes, and then no other source
would be polled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue

from ..source_polls import SourcePoll, SourceSilentError
from .delta import DeltaSource
from .iceberg import IcebergSource

LIMIT_SECONDS = 4.0
Poll = Callable[[], SourcePoll]
Call = tuple[Poll, "Future[SourcePoll]"]


class TimedCalls:
    """Makes calls in a thread of its own, one after the other; used by one thread.

    A call that takes too long keeps its thread, and the next one gets another thread. A thread is
    kept as long as possible, because Py4J opens a connection for each.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Call | None] | None = None

    def begin(self, poll: Poll) -> Future[SourcePoll]:
        """Call ``poll``, and return its future answer."""
        if self._queue is None:
            self._queue = SimpleQueue()
            arguments = (self._queue,)
            name = "querypulse-tables"
            threading.Thread(target=_serve, args=arguments, name=name, daemon=True).start()
        answer: Future[SourcePoll] = Future()
        self._queue.put((poll, answer))
        return answer

    def close(self) -> None:
        """End the thread after its call, if it has one; the next call gets another thread."""
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None


def _serve(queue: SimpleQueue[Call | None]) -> None:
    while (call := queue.get()) is not None:
        _answer(*call)
        # A call holds its source, and so a run that may be released meanwhile.
        del call


def _answer(poll: Poll, answer: Future[SourcePoll]) -> None:
    try:
        answer.set_result(poll())
    except BaseException as error:  # noqa: BLE001 - raised where the answer is read
        answer.set_exception(error)


class TimedSource:
    """A table that is polled for at most ``limit_seconds``.

    One that takes longer is silent, and is not called again before its call has returned; that
    answer counts, too.
    """

    def __init__(
        self,
        source: DeltaSource | IcebergSource,
        calls: TimedCalls,
        *,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self.address = source.address
        self._source = source
        self._calls = calls
        self._limit = limit_seconds
        self._late: Future[SourcePoll] | None = None

    def poll(self) -> SourcePoll:
        """Poll the table.

        Raises:
            SourceError: it refused; ``SourceSilentError``: it did not answer in time.

        """
        answer = self._late
        if answer is None:
            answer = self._calls.begin(self._source.poll)
            if not wait((answer,), self._limit).done:
                self._calls.close()
        if not answer.done():
            self._late = answer
            raise SourceSilentError(f"{self.address} has not answered for {self._limit:.0f} s")
        self._late = None
        return answer.result()

    def close(self) -> None:
        """Release what the source holds."""
        self._source.close()
