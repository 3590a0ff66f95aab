"""Waiting for the first failure, in the application's own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..alerting.evaluated import Evaluated
from .failure import QueryFailure, first_failure, first_stall, nothing_left, wait_in_spark


class FailureWait:
    """Waits for a failure, with a timeout.

    ``evaluated`` returns the newest evaluation, None before the first. Once ``closed`` returns
    True, all waiting ends.
    """

    def __init__(
        self, evaluated: Callable[[], Evaluated | None], closed: Callable[[], bool]
    ) -> None:
        self._evaluated = evaluated
        self._closed = closed
        self._news = threading.Condition()
        self._streams: Any = None

    def wake(self) -> None:
        """Signal a new evaluation, or the end."""
        with self._news:
            self._news.notify_all()

    @property
    def is_in_spark(self) -> bool:
        """Whether it waits in Spark, because nothing is watched."""
        return self._streams is not None

    def wait_in(self, spark: Any) -> None:
        """Wait in this session's ``StreamingQueryManager`` from now on: nothing is watched.

        Raises:
            Py4JError: the JVM refuses to answer.

        """
        self._streams = spark.streams

    def wait(self, timeout: float | None, *, on_stall: bool = False) -> None:
        """Wait up to ``timeout`` seconds; with ``on_stall`` a critical stall is a failure, too.

        Raises:
            QueryFailure: a query failed or disappeared, or the JVM has ended.

        """
        if self._streams is not None:
            wait_in_spark(self._streams, timeout)
            return
        with self._news:
            self._news.wait_for(lambda: self._is_decided(on_stall=on_stall), timeout)
            failure = self._failure(on_stall=on_stall)
        if failure is not None:
            raise failure

    def _is_decided(self, *, on_stall: bool) -> bool:
        evaluated = self._evaluated()
        if self._closed() or evaluated is None:
            return self._closed()
        if self._failure(on_stall=on_stall) is not None:
            return True
        return nothing_left(evaluated.snapshot, evaluated.evaluation)

    def _failure(self, *, on_stall: bool) -> QueryFailure | None:
        evaluated = self._evaluated()
        if evaluated is None:
            return None
        failure = first_failure(evaluated.snapshot, evaluated.evaluation)
        return failure or (first_stall(evaluated) if on_stall else None)
