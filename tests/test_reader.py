"""What was heard is read away from Spark's threads, and nothing is lost without being counted."""

from __future__ import annotations

import pytest
from support.desk import Desk as WorkersDesk

from querypulse.listener.events import EventKind, Idle, Progress, Started, Terminated
from querypulse.listener.guard import Guard
from querypulse.listener.health_listener import HealthListener, Heard
from querypulse.listener.mailbox import Mailbox
from querypulse.listener.prober import Prober
from querypulse.listener.probing import Context
from querypulse.listener.reader import Arrived, EventReader, Marker
from querypulse.sidecar.configuration.settings import Settings
from querypulse.sidecar.monitor import MonitorFacts
from querypulse.sidecar.telling import Telling

STARTED = '{"id": "i", "runId": "r", "name": "a"}'
PROGRESS = '{"progress": {"id": "i", "runId": "r", "batchId": 3}}'
ENDED = '{"id": "i", "runId": "r", "exception": null}'
FAILED = '{"id": "i", "runId": "r", "exception": "a.b.C: boom"}'


class Handle:
    """A JVM event: answers ``json()``, or fails."""

    def __init__(self, text):
        self.text = text
        self.asked = 0

    def json(self):
        self.asked += 1
        if self.text is None:
            raise ConnectionError("the JVM is gone")
        return self.text


class Desk:
    """A reader between two mailboxes."""

    def __init__(self, *, context=lambda: Context.RUNNING, room=100):
        self.heard = Mailbox(100)
        self.arrived = Mailbox(room)
        self.guard = Guard()
        self.context_asked = 0
        self.births = 0
        self._context = context
        self.reader = EventReader(
            self.heard,
            self.arrived,
            self.guard,
            context=self.ask_context,
            on_started=self.on_started,
        )

    def ask_context(self):
        self.context_asked += 1
        return self._context()

    def on_started(self):
        self.births += 1

    def hear(self, kind, payload, at=1.0):
        self.heard.put(Heard(kind, payload, at), lifecycle=kind.is_lifecycle)
        return self

    def mark(self):
        marker = Marker()
        self.heard.put(marker, lifecycle=True)
        return marker

    def read(self):
        self.reader.step()
        return self.arrived.take(0)

    @property
    def events(self):
        return [type(item.event) for item in self.read()]


def test_a_handle_is_asked_for_its_json_once():
    handle = Handle(PROGRESS)
    (item,) = Desk().hear(EventKind.PROGRESS, handle, at=7.5).read()

    assert (item.event.batch_id, item.at, item.context) == (3, 7.5, Context.RUNNING)
    assert handle.asked == 1


def test_text_is_an_event_already():
    (item,) = Desk().hear(EventKind.IDLE, '{"id": "i", "runId": "r"}').read()

    assert item == Arrived(Idle("i", "r"), 1.0)


def test_births_and_deaths_go_first():
    desk = Desk().hear(EventKind.PROGRESS, PROGRESS).hear(EventKind.TERMINATED, ENDED)
    desk.hear(EventKind.STARTED, STARTED)

    assert desk.events == [Terminated, Started, Progress]


@pytest.mark.parametrize("kind", list(EventKind))
def test_what_is_no_event_is_counted_and_goes_no_further(kind):
    desk = Desk().hear(kind, "{").hear(EventKind.IDLE, '{"id": "i", "runId": "r"}')

    assert desk.events == [Idle]
    assert desk.reader.dropped == {"undecodable": 1}
    assert (desk.births, desk.context_asked) == (0, 0)


@pytest.mark.contains_errors
def test_a_handle_that_does_not_answer_costs_only_its_own_event():
    desk = Desk().hear(EventKind.TERMINATED, Handle(None)).hear(EventKind.PROGRESS, PROGRESS)

    assert desk.events == [Progress]
    assert desk.guard.errors == {"reader": 1}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (EventKind.STARTED, STARTED),
        (EventKind.PROGRESS, PROGRESS),
        (EventKind.IDLE, ENDED),
        (EventKind.TERMINATED, ENDED),
    ],
)
def test_the_context_is_not_asked_for_without_a_failure(kind, text):
    desk = Desk(context=lambda: Context.STOPPED).hear(kind, text)
    (item,) = desk.read()

    assert item.context is Context.RUNNING
    assert desk.context_asked == 0


@pytest.mark.parametrize("context", list(Context))
def test_a_failure_carries_the_context_it_was_read_under(context):
    desk = Desk(context=lambda: context).hear(EventKind.TERMINATED, FAILED)
    (item,) = desk.read()

    assert (item.event.exception, item.context) == ("a.b.C: boom", context)
    assert desk.context_asked == 1


@pytest.mark.contains_errors
def test_a_death_is_told_even_when_the_context_cannot_be_asked():
    """Births and deaths are never dropped, least of all when the JVM goes away."""

    def gone():
        raise ConnectionError("the JVM is gone")

    desk = Desk(context=gone).hear(EventKind.TERMINATED, FAILED)

    assert desk.events == [Terminated]


def test_only_a_birth_makes_the_probe_look():
    desk = Desk().hear(EventKind.PROGRESS, PROGRESS).hear(EventKind.TERMINATED, FAILED)
    desk.hear(EventKind.IDLE, ENDED).read()
    assert desk.births == 0
    desk.hear(EventKind.STARTED, STARTED).read()

    assert desk.births == 1


def test_a_marker_is_passed_on_behind_everything_that_came_with_it():
    """Though it travels in the fast lane, as births and deaths do."""
    desk, order = Desk(), []
    desk.arrived.put = lambda item, *, lifecycle: order.append((item, lifecycle)) or True
    desk.hear(EventKind.PROGRESS, PROGRESS)
    marker = desk.mark()
    desk.hear(EventKind.TERMINATED, FAILED)
    desk.reader.step()

    assert [type(item) for item, _ in order] == [Arrived, Arrived, Marker]
    assert order[-1] == (marker, True)
    assert not marker.passed.is_set()


@pytest.mark.contains_errors
def test_a_marker_gets_past_broken_events():
    desk = Desk().hear(EventKind.PROGRESS, Handle(None)).hear(EventKind.PROGRESS, "{")
    marker = desk.mark()

    assert desk.read() == [marker]


def test_an_event_the_worker_has_no_room_for_is_counted():
    """A drop is counted by reason, whichever mailbox was full."""
    desk = Desk(room=2)
    for _ in range(5):
        desk.hear(EventKind.PROGRESS, PROGRESS)
    desk.hear(EventKind.TERMINATED, FAILED)

    assert desk.events == [Terminated, Progress, Progress]
    assert dropped_as_shown(desk) == {"mailbox_full": 3}


def test_an_event_the_reader_has_no_room_for_is_counted():
    desk = Desk()
    for _ in range(104):
        desk.hear(EventKind.PROGRESS, PROGRESS)

    assert dropped_as_shown(desk) == {"mailbox_full": 4}


def dropped_as_shown(desk):
    """What readers of the metrics learn of it."""
    worker = WorkersDesk().step().worker
    facts = MonitorFacts(
        app="etl",
        spark_version="4.0.0",
        expected=(),
        lag_by_partition=False,
        listener=HealthListener(desk.heard, desk.guard, lambda: None),
        heard=desk.heard,
        reader=desk.reader,
        prober=Prober(None, 1.0, lambda: None),
        worker=worker,
        guard=desk.guard,
        telling=Telling(Settings(), "etl", desk.guard, receivers=[], heartbeat=None),
    )
    return dict(facts.board(worker.judged).monitor.events_dropped)
