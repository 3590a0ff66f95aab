"""The event stream of a Spark Connect session: one listener, opened again, left to the job."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace

import pytest
from support.patience import PATIENCE_SECONDS, until

from querypulse.core.guard import Guard
from querypulse.core.threads import Loop
from querypulse.listener.connect import event_stream
from querypulse.listener.connect.client import CallFailure, ServerSilentError
from querypulse.listener.connect.event_stream import EventStream
from querypulse.listener.events import EventKind

CUT = ServerSilentError(CallFailure.UNREACHABLE)


def answer(*events, added=False):
    result = SimpleNamespace(
        listener_bus_listener_added=added,
        events=[SimpleNamespace(event_type=1, event_json=text) for text in events],
    )
    return SimpleNamespace(streaming_query_listener_events_result=result)


class OneListenerServer:
    """As a Connect server: it holds one listener, and a second one waits for ever."""

    session_id = "session"

    def __init__(self):
        self.pb2 = SimpleNamespace(
            Command=lambda: SimpleNamespace(streaming_query_listener_bus_command=SimpleNamespace())
        )
        self.listener = None
        self.log = []
        self.refuses = None
        self.confirms = threading.Event()
        self.confirms.set()
        self.closed = False

    def execute(self, command, timeout):
        self.log.append("remove")
        if self.refuses:
            raise self.refuses
        if self.listener is not None:
            self.listener.put(None)
        self.listener = None

    def open_stream(self, command):
        self.log.append("add")
        assert self.listener is None, "a second listener would wait for ever"
        self.listener = queue.Queue()
        return OpenCall(self, self.listener)

    def close(self):
        self.closed = True


class OpenCall:
    def __init__(self, server, listener):
        self.server = server
        self.listener = listener
        self.is_added = False
        self.cancelled = threading.Event()

    def next(self):
        if not self.is_added:
            confirms, cancelled = self.server.confirms, self.cancelled
            until(lambda: confirms.is_set() or cancelled.is_set(), "an answer, or a cancellation")
            if cancelled.is_set():
                raise CUT
            self.is_added = True
            return answer(added=True)
        item = self.listener.get(timeout=PATIENCE_SECONDS)
        if isinstance(item, Exception):
            raise item
        return item

    def cancel(self):
        # The server keeps the listener of a call that was cancelled.
        self.cancelled.set()
        self.listener.put(CUT)


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(event_stream, "FIRST_PAUSE_SECONDS", 0.01)
    server, received = OneListenerServer(), []
    state = SimpleNamespace(job_listens=False)
    stream = EventStream(server, lambda: state.job_listens, received.append)
    loop = Loop("events", stream.step, Guard(), last=stream.close)
    state.server, state.received, state.stream, state.loop = server, received, stream, loop
    yield state
    server.confirms.set()
    loop.stop()
    stream.hasten_end()
    assert loop.join(PATIENCE_SECONDS)
    assert server.closed


def opened(world, times=1):
    until(lambda: world.stream.opened >= times and world.stream.is_open, "the stream is open")


def test_events_are_passed_on(world):
    world.loop.start()
    opened(world)
    world.server.listener.put(answer("one", "two"))
    world.server.listener.put(answer())
    world.server.listener.put(answer("three"))

    until(lambda: len(world.received) == 3, "all events are received")
    assert [(one.kind, one.payload) for one in world.received] == [
        (EventKind.PROGRESS, "one"),
        (EventKind.PROGRESS, "two"),
        (EventKind.PROGRESS, "three"),
    ]


@pytest.mark.parametrize("end", [CUT, None])
def test_stream_that_ends_is_opened_again_after_its_listener_was_removed(world, end):
    world.loop.start()
    opened(world)
    world.server.listener.put(end)

    opened(world, 2)
    assert world.server.log == ["remove", "add", "remove", "add"]
    assert world.stream.lost == (end is CUT)


def test_server_that_does_not_answer_is_tried_again(world):
    world.server.refuses = CUT
    world.loop.start()
    until(lambda: len(world.server.log) > 2, "it is tried again")
    assert not world.stream.is_open

    world.server.refuses = None
    opened(world)


def test_session_that_has_ended_is_not_tried_again(world):
    world.server.refuses = ServerSilentError(CallFailure.SESSION_CLOSED)
    for _ in range(3):
        world.stream.step()

    assert world.server.log == ["remove"]
    world.loop.start()


def test_stream_of_the_job_is_left_alone(world):
    world.job_listens = True
    world.loop.start()
    until(lambda: world.stream.has_begun, "the thread has begun")
    world.loop.stop()
    world.stream.hasten_end()
    assert world.loop.join(PATIENCE_SECONDS)

    assert world.server.log == []


def test_job_gets_the_stream_when_it_wants_it_and_returns_it(world):
    world.loop.start()
    opened(world)

    world.job_listens = True
    world.stream.make_way()
    assert world.server.listener is None
    until(lambda: not world.stream.is_open, "the stream has ended")

    world.job_listens = False
    opened(world, 2)
    assert world.stream.lost == 0


def test_close_while_the_stream_opens_leaves_no_listener(world):
    world.server.confirms.clear()
    world.loop.start()
    until(lambda: world.server.listener is not None, "the listener is on the server")

    world.loop.stop()
    world.stream.hasten_end()
    world.server.confirms.set()
    assert world.loop.join(PATIENCE_SECONDS)

    assert world.server.listener is None


def test_job_waits_for_an_opening_so_that_no_listener_is_added_behind_its_back(world, monkeypatch):
    monkeypatch.setattr(event_stream, "REMOVE_SECONDS", 0.01)
    world.server.confirms.clear()
    world.loop.start()
    until(lambda: world.server.listener is not None, "the stream is being opened")
    opening, asked = world.stream._opening, threading.Event()
    assert opening.locked()
    world.stream._opening = SimpleNamespace(
        acquire=lambda timeout: asked.set() or opening.acquire(timeout=timeout),
        release=opening.release,
    )

    world.job_listens = True
    job = threading.Thread(target=world.stream.make_way)
    job.start()
    assert asked.wait(PATIENCE_SECONDS)
    world.server.log.append("confirmed")
    world.server.confirms.set()
    job.join(PATIENCE_SECONDS)

    assert not job.is_alive()
    assert world.server.log == ["remove", "add", "confirmed", "remove"]


def test_opening_that_is_not_confirmed_is_cut_and_tried_again(world, monkeypatch):
    monkeypatch.setattr(event_stream, "OPEN_SECONDS", 0.05)
    world.server.confirms.clear()
    world.loop.start()
    until(lambda: world.server.log.count("add") > 1, "it is tried again")

    assert world.server.log[:4] == ["remove", "add", "remove", "add"]
    assert world.stream.lost == 0


def test_close_does_not_wait_for_an_opening_that_is_not_confirmed(world, monkeypatch):
    monkeypatch.setattr(event_stream, "END_SECONDS", 0.05)
    world.server.confirms.clear()
    world.loop.start()
    until(lambda: world.server.listener is not None, "the stream is being opened")

    world.loop.stop()
    world.stream.hasten_end()
    assert world.loop.join(PATIENCE_SECONDS)

    assert world.server.listener is None
    assert world.server.closed


def test_close_removes_the_listener(world):
    world.loop.start()
    opened(world)
    world.loop.stop()
    world.stream.hasten_end()
    assert world.loop.join(PATIENCE_SECONDS)

    assert world.server.listener is None
