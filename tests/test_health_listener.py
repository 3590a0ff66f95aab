"""On Spark's own threads the listener appends and does nothing else, whichever way events come."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from support.recorded import recorded

from querypulse.listener import HealthListener as PublicHealthListener
from querypulse.listener.decode import decode
from querypulse.listener.events import EventKind
from querypulse.listener.guard import Guard
from querypulse.listener.health_listener import _INTERFACE, _WRAPPER, HealthListener, Heard
from querypulse.listener.mailbox import Mailbox

SPARK = pyspark.__version__
STOCK_WRAPPER = "PythonStreamingQueryListenerWrapper"
CALLBACKS = {
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
    """The first recorded event of a kind, of the Spark in use."""
    return recorded(kind, "json", spark=SPARK)[0]


class Untouchable:
    """A JVM event whose every use would be a Py4J command."""

    def __getattribute__(self, name):
        raise AssertionError(f"{name} was asked for on Spark's thread")


class Wrapper:
    """The JVM listener made around a Python proxy."""

    def __init__(self, proxy):
        self.proxy = proxy


class Ear:
    """A listener, its mailbox, and how often it was wired."""

    def __init__(self, capacity=100, on_wired=None):
        self.mailbox = Mailbox(capacity)
        self.guard = Guard()
        self.wired = []
        self.listener = HealthListener(self.mailbox, self.guard, on_wired or self.on_wired)

    def on_wired(self):
        self.wired.append((self.listener.wrapper, self.listener.path))

    @property
    def heard(self):
        return self.mailbox.take(0)


@pytest.fixture
def jvm(monkeypatch):
    """A JVM that has both wrapper classes, as every classic Spark."""
    jvm = SimpleNamespace(**{_WRAPPER: Wrapper, STOCK_WRAPPER: Wrapper})
    monkeypatch.setattr(SparkContext, "_jvm", jvm)
    return jvm


def raw(ear):
    return ear.listener._jlistener.proxy


# -- the raw path -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(EventKind))
def test_the_raw_proxy_appends_the_handle_and_touches_it_not(jvm, kind):
    ear, event = Ear(), Untouchable()
    before = time.monotonic()
    getattr(raw(ear), CALLBACKS[kind])(event)
    (heard,) = ear.heard

    assert (heard.kind, heard.payload is event) == (kind, True)
    assert before <= heard.at <= time.monotonic()


def test_births_and_deaths_are_kept_when_progress_no_longer_is(jvm):
    ear = Ear(capacity=0)
    for callback in CALLBACKS.values():
        getattr(raw(ear), callback)(Untouchable())

    assert [heard.kind for heard in ear.heard] == [EventKind.STARTED, EventKind.TERMINATED]
    assert ear.mailbox.dropped == 2


def test_every_callback_is_timed_and_the_samples_are_bounded(jvm):
    ear = Ear()
    for _ in range(5):
        raw(ear).onQueryProgress(Untouchable())

    assert len(ear.listener.callback_seconds) == 5
    assert all(0 <= seconds < 1 for seconds in ear.listener.callback_seconds)
    assert ear.listener.callback_seconds.maxlen is not None


def test_the_proxy_says_which_java_interface_it_is(jvm):
    assert raw(Ear()).Java.implements == (_INTERFACE,)


# -- wiring -----------------------------------------------------------------------------------


def test_until_it_is_wired_a_listener_has_no_path_and_wakes_nobody():
    ear = Ear()

    assert (ear.listener.path, ear.listener.wirings, ear.listener.wrapper) == ("not wired", 0, None)
    assert ear.wired == []


def test_spark_gets_the_same_object_to_add_and_to_remove(jvm):
    ear = Ear()

    assert ear.listener._jlistener is ear.listener._jlistener
    assert ear.listener.wirings == 2


def test_who_waits_for_the_wiring_is_told_each_time_once_the_wrapper_is_there(jvm):
    ear = Ear()
    wrapper = ear.listener._jlistener
    assert ear.wired == [(wrapper, "raw")]
    assert ear.listener._jlistener is wrapper

    assert len(ear.wired) == 2


def test_what_fails_at_attach_fails_on_the_users_own_line(jvm):
    def refuse():
        raise RuntimeError("no active SparkSession")

    with pytest.raises(RuntimeError, match="no active SparkSession"):
        _ = Ear(on_wired=refuse).listener._jlistener


@pytest.mark.contains_errors
def test_where_the_raw_way_is_closed_pysparks_own_is_taken(jvm):
    delattr(jvm, _WRAPPER)
    ear = Ear()
    wrapper = ear.listener._jlistener

    assert ear.wired == [(wrapper, "stock")]
    assert wrapper.proxy.pylistener is ear.listener
    assert ear.listener._jlistener is wrapper
    assert ear.guard.errors == {"raw_listener": 1}


# -- the stock path ---------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "text"), recorded(shape="json", spark=SPARK))
def test_pysparks_objects_tell_the_same_as_sparks_json(kind, text):
    ear = Ear()
    event = EVENTS[kind].fromJson(json.loads(text))
    getattr(ear.listener, CALLBACKS[kind])(event)
    (heard,) = ear.heard

    assert isinstance(heard, Heard)
    assert heard.kind is kind
    assert decode(kind, heard.payload) == decode(kind, text)


def test_on_the_stock_path_too_births_and_deaths_are_kept():
    ear = Ear(capacity=0)
    for kind, text in (own("started"), own("progress")):
        getattr(ear.listener, CALLBACKS[kind])(EVENTS[kind].fromJson(json.loads(text)))

    assert [heard.kind for heard in ear.heard] == [EventKind.STARTED]
    assert ear.mailbox.dropped == 1


def test_a_listener_nobody_wired_that_hears_is_on_the_stock_path():
    """Spark Connect never asks for a JVM listener."""
    ear = Ear()
    kind, text = own("idle")
    ear.listener.onQueryIdle(EVENTS[kind].fromJson(json.loads(text)))

    assert ear.listener.path == "stock"


@pytest.mark.contains_errors
@pytest.mark.parametrize("kind", list(EventKind))
def test_an_event_of_a_strange_shape_never_raises_into_spark(kind):
    ear = Ear()
    getattr(ear.listener, CALLBACKS[kind])(object())

    assert ear.heard == []
    assert ear.guard.errors == {"stock_listener": 1}


def test_it_is_a_listener_as_spark_knows_them():
    assert PublicHealthListener is HealthListener
    assert issubclass(HealthListener, StreamingQueryListener)
