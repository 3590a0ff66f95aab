"""The event path of Spark Connect: starts from the job's client, batches from the probe's polls.

One method of the job's client, ``execute_command``, is wrapped until the end: Spark Connect reports
a query's trigger, checkpoint and sink nowhere else, and only this shows a query that fails between
two polls. A session has one event stream, which stays the job's: a second reader would make its
``addListener`` wait for ever.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..events import EventKind
from ..mailbox import Mailbox, Received
from ..probe import UNKNOWN_TRIGGER, ListenerHealth, RunFacts, parse_trigger
from ..spark.event_paths import EventPath
from ..spark.jvm import require_supported
from .client import ConnectClient

CAPACITY = 2000
KEPT_STARTS = 1000
MISSING = (
    "batches beyond the newest 100 (numRecentProgressUpdates) between two polls",
    "jobs and tasks of a batch, and the stack of one that hangs",
    "checkpoints: commits of a continuous query, and of earlier processes",
    "the lag that sources report themselves (Kafka, Delta)",
    "queries of other sessions",
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
        self.starts: deque[RunFacts] = deque(maxlen=KEPT_STARTS)
        """The runs that the job has started, until the probe takes them."""
        try:
            self.version = self.client.version()
            require_supported(self.version)
        except BaseException:
            self.client.close()
            raise
        self._job: Any = spark.client
        self._original: Callable[..., Any] = self._job.execute_command
        self._wrapper = self._job.execute_command = self._execute_command

    def receive_progress(self, text: str) -> None:
        """Take the progress of a batch, which the probe has read."""
        event = Received(EventKind.PROGRESS, f'{{"progress":{text}}}', time.monotonic())
        self.source.put(event, lifecycle=False)

    def release(self) -> None:
        """Leave the job's client as it was, and close our connection.

        Somebody else may have wrapped the method, before us or since.
        """
        if vars(self._job).get("execute_command") == self._wrapper:
            del self._job.execute_command
            if self._original != self._job.execute_command:
                self._job.execute_command = self._original
        self.client.close()

    def _execute_command(self, command: Any, *args: Any, **kwargs: Any) -> Any:
        answer = self._original(command, *args, **kwargs)
        with suppress(Exception):
            if command.HasField("write_stream_operation_start"):
                result = answer[1]["write_stream_operation_start_result"]
                self._receive_start(command.write_stream_operation_start, result)
        return answer

    def _receive_start(self, start: Any, result: Any) -> None:
        """A run began: ``WriteStreamOperationStart`` and its result."""
        query, name, trigger = result.query_id, result.name or None, trigger_text(start)
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
    interval, name = getattr(start, kind), _TRIGGERS.get(kind)
    if name is None or interval is True:
        return name or ""
    text = " ".join(interval.lower().removeprefix("interval ").split())
    parts = _QUANTITY.findall(text)
    if not parts or _QUANTITY.sub("", text).strip():
        return ""
    return f"{name}({sum(int(count) * _UNITS[unit] for count, unit in parts)})"
