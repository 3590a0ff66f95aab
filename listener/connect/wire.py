"""From Spark Connect's messages to what the rest of the listener reads. Pure."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from typing import Any

import msgspec

from ..events import EventKind
from ..probing import UNKNOWN_TRIGGER, RunFacts, Trigger, parse_trigger
from ..received import Received

KINDS = {1: EventKind.PROGRESS, 2: EventKind.TERMINATED, 3: EventKind.IDLE}
"""``StreamingQueryEventType``; a start is no part of the stream."""
MAX_RUNS = 1000
_UNITS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_QUANTITY = re.compile(r"(\d+) *(millisecond|second|minute|hour|day)s?")
_FINITE = {"available_now": "AvailableNowTrigger", "once": "OneTimeTrigger"}
_WITH_INTERVAL = {
    "processing_time_interval": "ProcessingTimeTrigger",
    "continuous_checkpoint_interval": "ContinuousTrigger",
    "real_time_batch_duration": "RealTimeTrigger",
}


class _WireBatch(msgspec.Struct, gc=False, rename="camel"):
    run_id: str
    batch_id: int


class _WireBatchEvent(msgspec.Struct, gc=False):
    progress: _WireBatch


class SeenBatches:
    """The newest batch of each run that was passed on, so that none is passed on twice.

    The stream's thread, the probe's and the job's own may ask.
    """

    def __init__(self) -> None:
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def is_new(self, text: str) -> bool:
        """Whether a progress event is newer than those before; it then counts as seen."""
        try:
            batch = msgspec.json.decode(text, type=_WireBatchEvent).progress
        except msgspec.MsgspecError:
            return True
        with self._lock:
            if batch.batch_id <= self._newest.get(batch.run_id, -1):
                return False
            self._newest[batch.run_id] = batch.batch_id
            self._newest.move_to_end(batch.run_id)
            if len(self._newest) > MAX_RUNS:
                self._newest.popitem(last=False)
        return True


def received_events(message: Any, at: float, session: str) -> list[Received]:
    """The events of one ``StreamingQueryListenerEventsResult``; unknown kinds are left out."""
    return [
        Received(KINDS[event.event_type], event.event_json, at, session)
        for event in message.events
        if event.event_type in KINDS
    ]


class StartedRun(msgspec.Struct, frozen=True):
    """A run that the job has started: its facts, and its start as an event."""

    facts: RunFacts
    event: Received


def started_run(start: Any, answer: Any, at: float, session: str) -> StartedRun:
    """A run, from ``WriteStreamOperationStart`` and its result."""
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
    return StartedRun(facts, Received(EventKind.STARTED, text, at, session, trigger))


def trigger_text(start: Any) -> str:
    """A trigger as ``StreamExecution.trigger()`` prints it; empty if it is not understood."""
    kind = start.WhichOneof("trigger")
    if kind is None:
        return "ProcessingTimeTrigger(0)"
    if kind in _FINITE:
        return _FINITE[kind]
    milliseconds = milliseconds_of(getattr(start, kind))
    known = kind in _WITH_INTERVAL and milliseconds is not None
    return f"{_WITH_INTERVAL[kind]}({milliseconds})" if known else ""


def milliseconds_of(interval: str) -> int | None:
    """The length of an interval such as ``1 minute 30 seconds``; None if not understood."""
    text = " ".join(interval.lower().removeprefix("interval ").split())
    parts = _QUANTITY.findall(text)
    if not parts or _QUANTITY.sub("", text).strip():
        return None
    return sum(int(count) * _UNITS[unit] for count, unit in parts)
