"""The client of a Spark Connect job, our own client, and their messages, without a server."""

from __future__ import annotations

import json
from types import SimpleNamespace


class BusFields(SimpleNamespace):
    """As ``StreamingQueryListenerBusCommand``."""


class JobCommand:
    """As ``Command``: ``start`` is a ``WriteStreamOperationStart``, ``adds`` opens the stream."""

    def __init__(self, start=None, *, adds=False):
        self.write_stream_operation_start = start
        self.streaming_query_listener_bus_command = BusFields(add_listener_bus_listener=adds)

    def HasField(self, name):
        return getattr(self, name) is not None


class WrittenStream(SimpleNamespace):
    def WhichOneof(self, name):
        return "once"

    def HasField(self, name):
        return False


class JobClient:
    """The job's client: its methods are real methods, which the path wraps."""

    _session_id = "session"

    def __init__(self):
        self.answers = []

    def execute_command(self, command):
        query = SimpleNamespace(id="q", run_id="r")
        result = SimpleNamespace(query_id=query, name="orders", query_started_event_json="")
        return None, {"write_stream_operation_start_result": result}, None

    def execute_command_as_iterator(self, command):
        yield from self.answers


class OurClient:
    session_id = "session"
    spark = "4.3.0"

    def __init__(self, spark):
        self.closed = False
        self.pb2 = SimpleNamespace(StreamingQueryListenerBusCommand=object)

    def version(self):
        return self.spark

    def close(self):
        self.closed = True


def bus(*listeners):
    return SimpleNamespace(_sqlb=SimpleNamespace(_listener_bus=list(listeners)))


def batch(number):
    text = json.dumps({"progress": {"id": "q", "runId": "r", "batchId": number}})
    return SimpleNamespace(event_type=1, event_json=text)


def message(*events):
    return {"streaming_query_listener_events_result": SimpleNamespace(events=events)}
