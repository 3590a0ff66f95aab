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
from ..probe import UNKNOWN_TRIGGER, ListenerHealth, RunFacts, Trigger, parse_trigger
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

    def __init__(self, spark: Any) -> None:
        self.source = Mailbox(CAPACITY)
        self.client = ConnectClient(spark)
        self._job: Any = spark.client
        self._starts: deque[RunFacts] = deque(maxlen=KEPT_STARTS)
        try:
            self.version = self.client.version()
            require_supported(self.version)
        except BaseException:
            self.client.close()
            raise
        self._original: Callable[..., Any] = self._job.execute_command
        self._wrapper = self._execute_command

    def listen(self, *, by_hand: bool) -> None:
        """Watch what the job starts."""
        del by_hand
        self._job.execute_command = self._wrapper

    def check(self, now: float) -> ListenerHealth:
        """No event arrives by itself; what is missing never changes."""
        del now
        return ListenerHealth(missing=MISSING, checkpoints_visible=False)

    def take_starts(self) -> list[RunFacts]:
        """The runs that the job has started since the last call."""
        return [self._starts.popleft() for _ in range(len(self._starts))]

    def pass_on_polled(self, text: str) -> None:
        """Take the progress of a batch that the probe has read."""
        self.source.put(Received(EventKind.PROGRESS, text, time.monotonic()), lifecycle=False)

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
                facts, event = started_run(
                    command.write_stream_operation_start,
                    answer[1]["write_stream_operation_start_result"],
                    time.monotonic(),
                    self.client.session_id,
                )
                self._starts.append(facts)
                self.source.put(event, lifecycle=True)
        return answer


_UNITS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_QUANTITY = re.compile(r"(\d+) *(millisecond|second|minute|hour|day)s?")
_FINITE = {"available_now": "AvailableNowTrigger", "once": "OneTimeTrigger"}
_WITH_INTERVAL = {
    "processing_time_interval": "ProcessingTimeTrigger",
    "continuous_checkpoint_interval": "ContinuousTrigger",
    "real_time_batch_duration": "RealTimeTrigger",
}


def started_run(start: Any, answer: Any, at: float, session: str) -> tuple[RunFacts, Received]:
    """A run's facts, and its start, from ``WriteStreamOperationStart`` and its result."""
    query_id, run_id = answer.query_id.id, answer.query_id.run_id
    name = answer.name or None
    trigger = trigger_text(start)
    # Spark 3.5 does not send the event.
    text = getattr(answer, "query_started_event_json", "") or json.dumps(
        {"id": query_id, "runId": run_id, "name": name}
    )
    facts = RunFacts(
        query_id=query_id,
        run_id=run_id,
        name=name,
        trigger=parse_trigger(trigger) if trigger else Trigger(UNKNOWN_TRIGGER),
        sink="foreachBatch" if start.HasField("foreach_batch") else start.format,
        checkpoint=dict(start.options).get("checkpointLocation", ""),
        session=session,
    )
    return facts, Received(EventKind.STARTED, text, at, session, trigger)


def trigger_text(start: Any) -> str:
    """A trigger as ``StreamExecution.trigger()`` prints it; empty if it is not understood."""
    kind = start.WhichOneof("trigger")
    if kind is None:
        return "ProcessingTimeTrigger(0)"
    if kind in _FINITE:
        return _FINITE[kind]
    milliseconds = milliseconds_of(getattr(start, kind))
    if kind not in _WITH_INTERVAL or milliseconds is None:
        return ""
    return f"{_WITH_INTERVAL[kind]}({milliseconds})"


def milliseconds_of(interval: str) -> int | None:
    """The length of an interval such as ``1 minute 30 seconds``; None if not understood."""
    text = " ".join(interval.lower().removeprefix("interval ").split())
    parts = _QUANTITY.findall(text)
    if not parts or _QUANTITY.sub("", text).strip():
        return None
    return sum(int(count) * _UNITS[unit] for count, unit in parts)
