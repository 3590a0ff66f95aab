"""What the job does with its own client: the runs it starts, and its use of the event stream.

Two methods of the client object are wrapped, and unwrapped at the end. Spark Connect reports a
query's trigger, checkpoint and start nowhere else. A session has one event stream: as soon as the
job adds a listener of its own, the stream is the job's, and we read along.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ..received import Received
from .wire import StartedRun, received_events, started_run

KEPT_STARTS = 1000


class ClientTap:
    """Watches one session's client. ``make_way`` is called before the job opens the stream.

    ``pass_on`` takes events in the job's threads, so it must not wait.
    """

    def __init__(self, spark: Any, pass_on: Callable[[Received], object]) -> None:
        self._client = spark.client
        self._session_id: str = self._client._session_id  # noqa: SLF001 - public only from 4.0
        self._spark = spark
        self._pass_on = pass_on
        self._make_way: Callable[[], object] = lambda: None
        self._starts: deque[StartedRun] = deque(maxlen=KEPT_STARTS)
        self._originals: dict[str, Callable[..., Any]] = {}

    def wrap(self, make_way: Callable[[], object]) -> None:
        """Start watching."""
        self._make_way = make_way
        for name, wrapper in self._wrappers:
            # Spark 3.5 has no event stream, and not the method that opens it.
            original = getattr(self._client, name, None)
            if original is not None:
                self._originals[name] = original
                setattr(self._client, name, wrapper)

    def release(self) -> None:
        """Restore the client's methods, unless somebody else has wrapped ours meanwhile."""
        for name, wrapper in self._wrappers:
            if vars(self._client).get(name) == wrapper:
                delattr(self._client, name)
                # Somebody else may have wrapped it before us.
                if self._originals[name] != getattr(self._client, name):
                    setattr(self._client, name, self._originals[name])

    @property
    def _wrappers(self) -> tuple[tuple[str, Callable[..., Any]], ...]:
        return (
            ("execute_command", self._execute_command),
            ("execute_command_as_iterator", self._execute_command_as_iterator),
        )

    @property
    def job_listens(self) -> bool:
        """Whether the job has listeners of its own, and with them the session's event stream."""
        bus = getattr(getattr(self._spark, "_sqm", None), "_sqlb", None)
        return bool(getattr(bus, "_listener_bus", None))

    def take_starts(self) -> list[StartedRun]:
        """The runs that were started since the last call."""
        return [self._starts.popleft() for _ in range(len(self._starts))]

    def _execute_command(self, command: Any, *args: Any, **kwargs: Any) -> Any:
        answer = self._originals["execute_command"](command, *args, **kwargs)
        with suppress(Exception):
            self._note_start(command, answer[1])
        return answer

    def _execute_command_as_iterator(self, command: Any, *args: Any, **kwargs: Any) -> Any:
        opens_stream = False
        with suppress(Exception):
            bus = command.streaming_query_listener_bus_command
            opens_stream = bus.add_listener_bus_listener
            if opens_stream:
                self._make_way()
        answers = self._originals["execute_command_as_iterator"](command, *args, **kwargs)
        return self._read_along(answers) if opens_stream else answers

    def _note_start(self, command: Any, properties: Any) -> None:
        if not command.HasField("write_stream_operation_start"):
            return
        start = command.write_stream_operation_start
        answer = properties["write_stream_operation_start_result"]
        run = started_run(start, answer, time.monotonic(), self._session_id)
        self._starts.append(run)
        self._pass_on(run.event)

    def _read_along(self, answers: Iterator[Any]) -> Iterator[Any]:
        for answer in answers:
            with suppress(Exception):
                message = answer["streaming_query_listener_events_result"]
                for event in received_events(message, time.monotonic(), self._session_id):
                    self._pass_on(event)
            yield answer
