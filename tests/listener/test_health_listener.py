"""On Spark's own threads the listener only stores the event, whichever way it is called."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pyspark
import pytest
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from support.recorded import recorded

from querypulse.core.guard import Guard
from querypulse.listener import HealthListener as PublicHealthListener
from querypulse.listener.events import EventKind, decode
from querypulse.listener.mailbox import Received
from querypulse.listener.spark.health_listener import (
    _INTERFACE,
    _WRAPPER,
    CALLBACKS,
    PROXY,
    HealthListener,
)

SPARK = pyspark.__version__
STOCK_WRAPPER = "PythonStreamingQueryListenerWrapper"
METHODS = {
    EventKind.STARTED: "onQueryStarted",
    EventKind.PROGRESS: "onQueryProgress",
    EventKind.IDLE: "onQueryIdle",
    EventKind.TERMINATED: "onQueryTerminated",
}
EVENTS = {
    EventKind.STARTED: QueryStartedEvent,
    EventKind.PROGRESS: QueryProgressEvent,
    EventKind.IDLE: QueryIdleEvent,
    EventKind.TERMINATED: QueryTerminatedEvent,
}


def own(kind):
    """The first recorded event of a kind, from the Spark version in use."""
    ((kind, text), *_) = recorded(kind, "json", spark=SPARK)
    return kind, EVENTS[kind].fromJson(json.loads(text))


class Gateway:
    """Py4J's connection to a JVM that must not be called."""

    address, port = "127.0.0.1", 0
    gateway_property = SimpleNamespace(auto_field=False, enable_memory_management=False)

    def send_command(self, command):
        raise AssertionError(f"the JVM was called on Spark's thread: {command!r}")


def handle():
    """A JVM event as Py4J passes it; every use of it would be a call to the JVM."""
    return JavaObject("o7", Gateway())


class Wrapper:
    """The JVM listener made around a Python proxy."""

    def __init__(self, proxy):
        self.proxy = proxy


class Listening:
    """A listener, and a count of what it starts."""

    def __init__(self, capacity=100, start=None):
        self.guard = Guard()
        self.java_listener = object()
        self.starts = self.late_starts = 0
        self.listener = HealthListener(
            self.guard,
            capacity=capacity,
            start=start or self.start,
            start_later=self.start_later,
            start_on=list,
        )

    def start(self):
        self.starts += 1
        return self.java_listener

    def start_later(self):
        self.late_starts += 1

    def raw(self):
        """The object that Py4J calls."""
        return self.listener.proxy()[1].proxy

    def callbacks(self):
        """The listener when the raw proxy is refused and PySpark's own callbacks deliver the
        events.
        """
        self.listener._takes_callbacks = True
        return self.listener

    @property
    def received(self):
        return self.listener.mailbox.take(0)


class Imports:
    """Py4J's connection, which records the imports of a JVM view."""

    def __init__(self):
        self.commands = []

    def send_command(self, command):
        self.commands.append(command)
        return "yv"


@pytest.fixture
def jvm(monkeypatch):
    """A JVM that has both wrapper classes, like every classic Spark."""
    names = {_WRAPPER: Wrapper, STOCK_WRAPPER: Wrapper}
    jvm = SimpleNamespace(**names, _gateway_client=Imports(), _id="rj")
    monkeypatch.setattr(SparkContext, "_jvm", jvm)
    return jvm


# -- the raw proxy ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(EventKind))
def test_raw_proxy_stores_the_handle_without_using_it(jvm, kind):
    listening, event = Listening(), handle()
    before = time.monotonic()
    getattr(listening.raw(), METHODS[kind])(event)
    (received,) = listening.received

    assert (received.kind, received.payload is event) == (kind, True)
    assert before <= received.at <= time.monotonic()


FORGERIES = [
    '{"id": "i", "runId": "r", "exception": "a.b.C: forged"}',
    b"{}",
    7,
    1.5,
    True,
    None,
    {"id": "i"},
    [],
    object(),
    SimpleNamespace(json=lambda: "{}"),
]


@pytest.mark.fault(
    "Events",
    "A local user forges an event at the callback port",
    "It is counted as forged and dropped",
)
@pytest.mark.parametrize("method", METHODS.values())
def test_object_that_is_no_jvm_handle_is_counted_as_forged_and_dropped(jvm, method):
    """Py4J's callback port requires no token."""
    listening = Listening()
    raw = listening.raw()
    for number, forged in enumerate(FORGERIES, 1):
        getattr(raw, method)(forged)
        assert listening.listener.refused == {"forged": number}

    assert (listening.received, listening.listener.mailbox.depth) == ([], 0)
    assert list(listening.listener.callback_durations) == []


def test_forged_events_take_no_room_from_real_ones(jvm):
    listening, event = Listening(capacity=1), handle()
    raw = listening.raw()
    for _ in range(1000):
        raw.onQueryProgress("{}")
    raw.onQueryProgress(event)

    assert [received.payload is event for received in listening.received] == [True]
    assert listening.listener.refused == {"forged": 1000}


def test_starts_and_ends_are_stored_when_progress_has_no_room(jvm):
    listening = Listening(capacity=0)
    raw = listening.raw()
    for method in METHODS.values():
        getattr(raw, method)(handle())

    assert [received.kind for received in listening.received] == [
        EventKind.STARTED,
        EventKind.TERMINATED,
    ]
    assert listening.listener.mailbox.drops["progress_mailbox_full"] == 2


def test_every_callback_is_timed_and_the_number_of_samples_is_limited(jvm):
    listening = Listening()
    raw = listening.raw()
    for _ in range(5):
        raw.onQueryProgress(handle())

    assert len(listening.listener.callback_durations) == 5
    assert min(listening.listener.callback_durations) >= 0
    assert listening.listener.callback_durations.maxlen is not None


def test_raw_proxy_names_the_java_interface_it_implements(jvm):
    name, wrapper = Listening().listener.proxy()

    assert name == PROXY
    assert wrapper.proxy.Java.implements == (_INTERFACE,)


@pytest.mark.contains_errors
def test_pysparks_callbacks_are_used_if_the_raw_proxy_is_refused(jvm):
    delattr(jvm, _WRAPPER)
    listening = Listening()
    name, wrapper = listening.listener.proxy()
    listening.listener.onQueryIdle(own("idle")[1])

    assert name == CALLBACKS
    assert wrapper.proxy.pylistener is listening.listener
    assert listening.guard.errors == {"python_proxy": 1}
    assert "org.apache.spark.sql.streaming.*" in "".join(jvm._gateway_client.commands)
    assert [received.kind for received in listening.received] == [EventKind.IDLE]


@pytest.mark.contains_errors
def test_driver_that_refuses_every_proxy_is_an_error(jvm):
    def refuse(proxy):
        raise Py4JError("not whitelisted")

    setattr(jvm, _WRAPPER, refuse)
    setattr(jvm, STOCK_WRAPPER, refuse)
    with pytest.raises(Py4JError, match="not whitelisted"):
        Listening().listener.proxy()


# -- registration with Spark ------------------------------------------------------------------


def test_nothing_starts_before_pyspark_requests_the_jvm_listener():
    listening = Listening()

    assert (listening.starts, listening.late_starts, listening.listener.wirings) == (0, 0, 0)


def test_pyspark_gets_the_result_of_start_each_time_it_adds_or_removes_the_listener():
    listening = Listening()

    assert listening.listener._jlistener is listening.java_listener
    assert listening.listener._jlistener is listening.java_listener
    assert (listening.listener.wirings, listening.starts) == (2, 2)


def test_error_of_start_is_raised_at_the_users_line():
    def refuse():
        raise RuntimeError("no active SparkSession")

    with pytest.raises(RuntimeError, match="no active SparkSession"):
        _ = Listening(start=refuse).listener._jlistener


def test_listener_is_a_streaming_query_listener():
    assert PublicHealthListener is HealthListener
    assert issubclass(HealthListener, StreamingQueryListener)


# -- PySpark's own callbacks ------------------------------------------------------------------


def test_pysparks_event_objects_decode_like_sparks_json():
    events = recorded(shape="json", spark=SPARK)
    listening = Listening()
    for kind, text in events:
        event = EVENTS[kind].fromJson(json.loads(text))
        getattr(listening.callbacks(), METHODS[kind])(event)
    received = listening.received

    assert events
    assert {type(event) for event in received} == {Received}
    assert [event.kind for event in received] == [kind for kind, _ in events]
    assert [decode(event.kind, event.payload) for event in received] == [
        decode(kind, text) for kind, text in events
    ]


def test_callbacks_store_starts_and_ends_when_progress_has_no_room():
    listening = Listening(capacity=0)
    for kind, event in (own("started"), own("progress"), own("terminated")):
        getattr(listening.callbacks(), METHODS[kind])(event)

    assert [received.kind for received in listening.received] == [
        EventKind.STARTED,
        EventKind.TERMINATED,
    ]
    assert listening.listener.mailbox.drops["progress_mailbox_full"] == 1


@pytest.mark.contains_errors
@pytest.mark.parametrize("method", METHODS.values())
def test_malformed_event_never_raises_into_spark(method):
    listening = Listening()
    getattr(listening.callbacks(), method)(object())

    assert listening.received == []
    assert listening.guard.errors == {CALLBACKS: 1}


def test_first_callback_starts_an_unstarted_listener_once_and_later():
    """Spark Connect, and a PySpark without ``_jlistener``, never request a JVM listener."""
    listening = Listening()
    for kind, event in map(own, ("started", "progress", "idle", "terminated")):
        getattr(listening.listener, METHODS[kind])(event)

    assert (listening.starts, listening.late_starts) == (0, 1)
    assert listening.received == []


def test_callback_starts_nothing_if_callbacks_deliver_the_events():
    listening = Listening()
    listening.callbacks().onQueryIdle(own("idle")[1])

    assert (listening.starts, listening.late_starts) == (0, 0)
