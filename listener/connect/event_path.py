"""The event path of Spark Connect: starts from the job's client, batches from the probe's polls.

Three methods of the job's client are wrapped until the end. ``execute_command``: Spark Connect
reports a query's trigger, checkpoint and sink nowhere else, and only this shows a query that fails
between two polls. ``release_session`` and ``close``: only these show that the job itself ends the
session; PySpark's ``is_closed`` is true as well once a call of the job found the session lost.

A session has one event stream, which stays the job's: a second reader would make its
``addListener`` wait for ever.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial, update_wrapper
from typing import Any

from ..events import EventKind
from ..mailbox import Mailbox, Received
from ..probe_report import UNKNOWN_TRIGGER, Context, ListenerHealth, RunFacts, parse_trigger
from ..spark.event_paths import EventPath
from ..spark.jvm import require_supported
from .client import CallFailure, ConnectClient, failure_of

CAPACITY = 2000
KEPT_RUNS = 1000
MISSING = (
    "batches beyond the newest 100 (numRecentProgressUpdates) between two polls",
    "jobs and tasks of a batch, and the stack of one that hangs",
    "checkpoints: commits of a continuous query, and of earlier processes",
    "the lag that sources report themselves (Kafka, Delta)",
    "queries of other sessions, and how the flows of a declarative pipeline end",
    "triggers of queries that another client, or this one before attach, has started",
)


class ConnectPath(EventPath):
    """Receives the starts of one Spark Connect session, and what its probe has polled.

    Raises:
        ServerSilentError: its server does not answer.
        ConnectCallError: its server refuses us.
        UnsupportedSparkError: its server's Spark is too old.

    """

    name = "connect_polling"
    source: Mailbox[Received]
    health = ListenerHealth(missing=MISSING, checkpoints_visible=False)

    def __init__(self, spark: Any) -> None:
        self.source = Mailbox(CAPACITY)
        self.client = ConnectClient(spark)
        self.starts: deque[RunFacts] = deque(maxlen=KEPT_RUNS)
        """The runs that the job has started, until the probe takes them."""
        self.stopped: deque[str] = deque(maxlen=KEPT_RUNS)
        """The ids of the runs that the job has stopped."""
        self.left: Context | None = None
        """What ended the session of a job that has released it, or closed its client."""
        self.lost: CallFailure | None = None
        """How a call of the job found that the session had ended."""
        try:
            self.version = self.client.version()
            require_supported(self.version)
        except BaseException:
            self.client.close()
            raise
        self._job: Any = spark.client
        self._wrapped: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
        """By name: the method of the job's client, and ours in its place."""
        self._wrap("execute_command", self._execute_command)
        self._wrap("release_session", self._leave)
        self._wrap("close", self._leave)

    def receive_progress(self, text: str) -> None:
        """Take the progress of a batch, which the probe has read."""
        event = Received(EventKind.PROGRESS, f'{{"progress":{text}}}', time.monotonic())
        self.source.put(event, lifecycle=False)

    def release(self) -> None:
        """Leave the job's client as it was, and close our connection.

        Somebody else may have wrapped the method, before us or since.
        """
        for name, (original, wrapper) in self._wrapped.items():
            if vars(self._job).get(name) == wrapper:
                delattr(self._job, name)
                if original != getattr(self._job, name):
                    setattr(self._job, name, original)
        self.client.close()

    def _wrap(self, name: str, call: Callable[..., Any]) -> None:
        """Put ``call`` in the place of a method, which is its first argument from then on."""
        original = getattr(self._job, name, None)
        # The client of Spark 3.5 does not release sessions.
        if original is not None:
            wrapper = update_wrapper(partial(call, original), original)
            self._wrapped[name] = original, wrapper
            setattr(self._job, name, wrapper)

    def _execute_command(
        self, original: Callable[..., Any], command: Any, *args: Any, **kwargs: Any
    ) -> Any:
        try:
            answer = original(command, *args, **kwargs)
        except Exception as error:
            failure = failure_of("", str(error))
            if failure.ends_session:
                self.lost = failure
            raise
        with suppress(Exception):
            if command.HasField("write_stream_operation_start"):
                result = answer[1]["write_stream_operation_start_result"]
                self._receive_start(command.write_stream_operation_start, result)
            elif command.HasField("streaming_query_command"):
                asked = command.streaming_query_command
                if asked.WhichOneof("command") == "stop":
                    self.stopped.append(asked.query_id.run_id)
        return answer

    def _leave(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Note, before the server can know it, that the job ends its session."""
        if self.left is None:
            is_lost = self.lost is not None or self._job.is_closed
            self.left = Context.SESSION_ENDED if is_lost else Context.STOPPED_BY_APPLICATION
        return original(*args, **kwargs)

    def _receive_start(self, start: Any, result: Any) -> None:
        """A run began: ``WriteStreamOperationStart`` and its result."""
        query = result.query_id
        name = result.name or None
        trigger = trigger_text(start)
        # Spark 3.5 does not send the event.
        text = getattr(result, "query_started_event_json", "") or json.dumps(
            {"id": query.id, "runId": query.run_id, "name": name}
        )
        self.starts.append(
            RunFacts(
                query_id=query.id,
                run_id=query.run_id,
                name=name,
                trigger=parse_trigger(trigger or UNKNOWN_TRIGGER),
                sink="foreachBatch" if start.HasField("foreach_batch") else start.format,
                checkpoint=dict(start.options).get("checkpointLocation", ""),
                session=self.client.session_id,
            )
        )
        event = Received(EventKind.STARTED, text, time.monotonic(), self.client.session_id, trigger)
        self.source.put(event, lifecycle=True)


_UNITS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_QUANTITY = re.compile(r"(\d+) *(millisecond|second|minute|hour|day)s?")
_TRIGGERS = {
    "available_now": "AvailableNowTrigger",
    "once": "OneTimeTrigger",
    "processing_time_interval": "ProcessingTimeTrigger",
    "continuous_checkpoint_interval": "ContinuousTrigger",
    "real_time_batch_duration": "RealTimeTrigger",
}


def trigger_text(start: Any) -> str:
    """A trigger as ``StreamExecution.trigger()`` prints it; empty if it is not understood.

    An interval is a text such as ``1 minute 30 seconds``.
    """
    kind = start.WhichOneof("trigger")
    if kind is None:
        return "ProcessingTimeTrigger(0)"
    interval = getattr(start, kind)
    name = _TRIGGERS.get(kind)
    if name is None or interval is True:
        return name or ""
    text = " ".join(interval.lower().removeprefix("interval ").split())
    parts = _QUANTITY.findall(text)
    if not parts or _QUANTITY.sub("", text).strip():
        return ""
    return f"{name}({sum(int(count) * _UNITS[unit] for count, unit in parts)})"
