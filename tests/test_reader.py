"""Events are read away from Spark's threads, each once, and none is lost without being counted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError, Py4JNetworkError
from support.worker_harness import WorkerHarness

from querypulse.exporter.published_state import DROP_REASONS
from querypulse.listener.events import EventKind, Idle, Progress, Started, Terminated
from querypulse.listener.guard import Guard
from querypulse.listener.health_listener import HealthListener
from querypulse.listener.jvm import NETWORK_ERRORS
from querypulse.listener.mailbox import Mailbox
from querypulse.listener.prober import Prober
from querypulse.listener.probing import Context
from querypulse.listener.reader import (
    MAX_ANSWERS,
    REMEMBERED,
    RETRY_SECONDS,
    TAKE_SECONDS,
    Arrived,
    EventReader,
    Marker,
)
from querypulse.listener.received import Received
from querypulse.sidecar.configuration.settings import Settings
from querypulse.sidecar.monitor import MonitorFacts
from querypulse.sidecar.notifier import Notifier

STARTED = '{"id": "i", "runId": "r", "name": "a"}'
PROGRESS = '{"progress": {"id": "i", "runId": "r", "batchId": 3}}'
ENDED = '{"id": "i", "runId": "r", "exception": null}'
FAILED = '{"id": "i", "runId": "r", "exception": "a.b.C: boom"}'


def progress(batch):
    return PROGRESS.replace("3", str(batch))


def idle(timestamp):
    return json.dumps({"id": "i", "runId": "r", "timestamp": timestamp})


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


class Source:
    """Gives one batch of events at each take, or raises the error given instead of one."""

    def __init__(self):
        self.batches = []
        self.waits = []
        self.wakes = 0
        self.drops = {"progress_queue_full": 0, "lifecycle_queue_full": 0}
        self.left = None

    @property
    def depth(self):
        return len(self.batches) if self.left is None else self.left

    def take(self, timeout):
        self.waits.append(timeout)
        batch = self.batches.pop(0) if self.batches else []
        if isinstance(batch, Exception):
            raise batch
        return batch

    def wake(self):
        self.wakes += 1


class Reading:
    """A reader between a source and the worker's mailbox."""

    def __init__(self, *, context=lambda: Context.RUNNING, room=100, jvm_ended=lambda: False):
        self.source = Source()
        self.arrived = Mailbox(room)
        self.guard = Guard()
        self.context_asked = self.starts = self.losses = 0
        self.pauses = []
        self._context = context
        self.reader = EventReader(
            self.source,
            self.arrived,
            self.guard,
            context=self.ask_context,
            on_started=self.on_started,
            on_lost=self.on_lost,
            jvm_ended=jvm_ended,
            pause=self.pauses.append,
        )

    def ask_context(self):
        self.context_asked += 1
        return self._context()

    def on_started(self):
        self.starts += 1

    def on_lost(self):
        self.losses += 1

    def receive(self, kind, payload, at=1.0, **facts):
        """One more event of the same take."""
        if not self.source.batches:
            self.source.batches.append([])
        self.source.batches[-1].append(Received(kind, payload, at, **facts))
        return self

    def then(self):
        """What follows is given by the next take."""
        self.source.batches.append([])
        return self

    def mark(self):
        marker = Marker()
        self.reader.mark(marker)
        return marker

    def read(self):
        self.reader.step()
        return self.arrived.take(0)

    @property
    def events(self):
        return [type(item.event) for item in self.read()]


# -- reading ----------------------------------------------------------------------------------


def test_a_handle_is_asked_for_its_json_once():
    handle = Handle(PROGRESS)
    (item,) = Reading().receive(EventKind.PROGRESS, handle, at=7.5).read()

    assert (item.event.batch_id, item.at, item.context) == (3, 7.5, Context.RUNNING)
    assert handle.asked == 1


def test_text_is_an_event_already():
    (item,) = Reading().receive(EventKind.IDLE, '{"id": "i", "runId": "r"}').read()

    assert item == Arrived(Idle("i", "r"), 1.0)


def test_events_stay_in_the_order_of_the_queue():
    reading = Reading().receive(EventKind.STARTED, STARTED).receive(EventKind.PROGRESS, PROGRESS)
    reading.receive(EventKind.TERMINATED, ENDED)

    assert reading.events == [Started, Progress, Terminated]


def test_a_start_carries_what_no_event_of_sparks_says():
    facts = {"session": "s-1", "trigger": "ProcessingTimeTrigger(1000)"}
    (item,) = Reading().receive(EventKind.STARTED, STARTED, **facts).read()

    assert item.event == Started("i", "r", "a", **facts)


@pytest.mark.parametrize("kind", list(EventKind))
def test_what_is_no_event_is_counted_and_goes_no_further(kind):
    reading = Reading().receive(kind, "{").receive(EventKind.IDLE, '{"id": "i", "runId": "r"}')

    assert reading.events == [Idle]
    assert reading.reader.dropped == {"undecodable": 1}
    assert (reading.starts, reading.context_asked) == (0, 0)


def test_every_event_without_json_is_counted():
    """The JVM gives "" for each event that cannot write its JSON: all are alike, none is known."""
    reading = Reading()
    for _ in range(3):
        reading.receive(EventKind.PROGRESS, "")

    assert reading.events == []
    assert reading.reader.dropped == {"undecodable": 3}


@pytest.mark.contains_errors
def test_a_handle_that_does_not_answer_costs_only_its_own_event():
    reading = Reading().receive(EventKind.TERMINATED, Handle(None))
    reading.receive(EventKind.PROGRESS, PROGRESS)

    assert reading.events == [Progress]
    assert reading.guard.errors == {"reader": 1}


# -- an event that comes twice ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (EventKind.STARTED, STARTED),
        (EventKind.PROGRESS, PROGRESS),
        (EventKind.IDLE, idle("2026-01-01T00:00:00Z")),
        (EventKind.TERMINATED, FAILED),
    ],
)
@pytest.mark.parametrize("payload", [str, Handle])
def test_the_same_event_is_counted_once(kind, text, payload):
    """L17: a listener that was added to a session twice receives everything twice."""
    reading = Reading().receive(kind, payload(text), at=1.0).receive(kind, payload(text), at=1.1)
    reading.then().receive(kind, payload(text), at=5.0)
    items = reading.read() + reading.read()

    assert [(item.at, type(item.event)) for item in items] == [(1.0, type(items[0].event))]
    assert reading.starts + reading.context_asked <= 1
    assert not any(reading.reader.drops.values())


def test_the_same_idleness_at_two_times_is_two_events():
    reading = Reading()
    for second in (10, 20):
        reading.receive(EventKind.IDLE, idle(f"2026-01-01T00:00:{second}Z"))

    assert reading.events == [Idle, Idle]


def test_a_batch_of_another_run_is_another_event():
    reading = Reading().receive(EventKind.PROGRESS, PROGRESS)
    reading.receive(EventKind.PROGRESS, PROGRESS.replace('"r"', '"r2"'))
    reading.receive(EventKind.PROGRESS, progress(4))

    assert reading.events == [Progress, Progress, Progress]


@pytest.mark.contains_errors
def test_an_event_that_could_not_be_read_is_read_when_it_comes_again():
    broken = Handle(None)
    reading = Reading().receive(EventKind.PROGRESS, broken)
    assert reading.read() == []
    broken.text = PROGRESS
    reading.receive(EventKind.PROGRESS, broken)

    assert reading.events == [Progress]


@given(st.lists(st.integers(min_value=0, max_value=8), max_size=60))
def test_each_event_goes_on_once_however_often_it_comes(batches):
    reading = Reading()
    for batch in batches:
        reading.receive(EventKind.PROGRESS, progress(batch))

    assert [item.event.batch_id for item in reading.read()] == list(dict.fromkeys(batches))


def test_what_is_remembered_of_events_is_bounded():
    reading = Reading(room=10 * REMEMBERED)
    for batch in range(REMEMBERED + 10):
        reading.receive(EventKind.PROGRESS, progress(batch))
    reading.read()

    assert len(reading.reader._seen) == REMEMBERED


# -- the SparkContext at a failure ----------------------------------------------------------------


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
    reading = Reading(context=lambda: Context.STOPPED).receive(kind, text)
    (item,) = reading.read()

    assert item.context is Context.RUNNING
    assert reading.context_asked == 0


@pytest.mark.parametrize("context", list(Context))
def test_a_failure_carries_the_context_it_was_read_under(context):
    reading = Reading(context=lambda: context).receive(EventKind.TERMINATED, FAILED)
    (item,) = reading.read()

    assert (item.event.exception, item.context) == ("a.b.C: boom", context)
    assert reading.context_asked == 1


@pytest.mark.contains_errors
def test_a_failure_goes_on_even_when_the_context_cannot_be_asked():
    """Starts and ends are never dropped, least of all when the JVM goes away."""

    def gone():
        raise ConnectionError("the JVM is gone")

    reading = Reading(context=gone).receive(EventKind.TERMINATED, FAILED)

    assert reading.events == [Terminated]


def test_only_a_start_makes_the_probe_poll():
    reading = Reading().receive(EventKind.PROGRESS, PROGRESS).receive(EventKind.TERMINATED, FAILED)
    reading.receive(EventKind.IDLE, ENDED).read()
    assert reading.starts == 0
    reading.receive(EventKind.STARTED, STARTED).read()

    assert reading.starts == 1


# -- a JVM that does not answer -------------------------------------------------------------------


@pytest.mark.parametrize("lost", NETWORK_ERRORS)
def test_a_lost_jvm_makes_the_probe_poll_and_is_asked_again_after_a_pause(lost):
    reading = Reading().receive(EventKind.PROGRESS, PROGRESS)
    reading.source.batches.insert(0, lost("no answer"))
    assert reading.events == []

    assert (reading.losses, reading.pauses) == (1, [RETRY_SECONDS])
    assert reading.events == [Progress]
    assert (reading.losses, reading.guard.errors) == (1, {})


def test_a_jvm_that_has_ended_is_asked_no_more_and_holds_no_marker():
    reading = Reading(jvm_ended=lambda: True)
    reading.source.batches.append(Py4JNetworkError("no answer"))
    first, second = reading.mark(), reading.mark()

    assert (reading.read(), reading.read()) == ([first, second], [])
    assert (len(reading.source.waits), reading.pauses) == (1, [RETRY_SECONDS] * 2)


def test_events_that_wait_in_python_are_read_though_the_jvm_has_ended():
    reading = Reading(jvm_ended=lambda: True).receive(EventKind.TERMINATED, FAILED)

    assert (reading.events, reading.pauses) == ([Terminated], [])


def test_a_refusal_of_the_jvm_is_no_lost_jvm():
    reading = Reading()
    reading.source.batches.append(Py4JError("refused"))
    with pytest.raises(Py4JError, match="refused"):
        reading.read()

    assert (reading.losses, reading.pauses) == (0, [])


def test_a_marker_gets_past_a_lost_jvm():
    """Who flushes must not wait for a JVM that is gone."""
    reading = Reading()
    reading.source.batches.append(Py4JNetworkError("no answer"))
    marker = reading.mark()

    assert reading.read() == [marker]
    assert reading.read() == []


def test_a_marker_gets_past_a_jvm_that_is_lost_while_it_is_drained():
    reading = Reading().receive(EventKind.TERMINATED, FAILED)
    reading.source.batches.append(Py4JNetworkError("no answer"))
    marker = reading.mark()
    first, last = reading.read()

    assert (type(first.event), last) == (Terminated, marker)


# -- markers ------------------------------------------------------------------------------------


def test_a_step_without_a_marker_takes_once_and_waits_for_events():
    reading = Reading().receive(EventKind.PROGRESS, PROGRESS).then()
    reading.read()

    assert reading.source.waits == [TAKE_SECONDS]


def test_a_marker_is_passed_on_behind_everything_received_before_it():
    """However many answers of the JVM that takes."""
    reading = Reading()
    for batch in range(5):
        reading.then().receive(EventKind.PROGRESS, progress(batch))
    marker = reading.mark()
    *events, last = reading.read()

    assert [item.event.batch_id for item in events] == [0, 1, 2, 3, 4]
    assert last is marker
    assert not marker.passed.is_set()
    assert reading.source.waits == [TAKE_SECONDS, 0, 0, 0, 0]


def test_a_marker_follows_what_arrived_while_its_step_began():
    """An empty first answer says nothing of what came while it was under way."""
    reading = Reading().then().then().receive(EventKind.TERMINATED, FAILED)
    marker = reading.mark()
    first, last = reading.read()

    assert (type(first.event), last) == (Terminated, marker)


def test_a_queue_that_is_never_empty_does_not_hold_a_marker():
    reading = Reading()
    reading.source.left = 1
    marker = reading.mark()

    assert reading.read() == [marker]
    assert len(reading.source.waits) == 1 + MAX_ANSWERS


def test_markers_are_passed_on_in_order_and_once():
    reading = Reading()
    markers = [reading.mark(), reading.mark()]

    assert reading.read() == markers
    assert reading.read() == []


@pytest.mark.contains_errors
def test_a_marker_gets_past_broken_events():
    reading = Reading().receive(EventKind.PROGRESS, Handle(None)).receive(EventKind.PROGRESS, "{")
    marker = reading.mark()

    assert reading.read() == [marker]


def test_the_wait_for_events_is_ended_only_where_a_marker_waits():
    reading = Reading()
    reading.reader.wake_if_marked()
    assert reading.source.wakes == 0
    reading.mark()
    reading.reader.wake_if_marked()
    assert reading.source.wakes == 1
    reading.read()
    reading.reader.wake_if_marked()

    assert reading.source.wakes == 1


# -- what was lost ------------------------------------------------------------------------------


def test_an_event_the_worker_has_no_room_for_is_counted():
    reading = Reading(room=2)
    for batch in range(5):
        reading.receive(EventKind.PROGRESS, progress(batch))
    reading.receive(EventKind.TERMINATED, FAILED)

    assert reading.events == [Progress, Progress, Terminated]
    assert shown(reading) == {"progress_mailbox_full": 3}


def test_losses_of_every_place_are_shown_by_reason():
    reading = Reading(room=1)
    reading.source.drops |= {"progress_queue_full": 5, "lifecycle_queue_full": 1}
    reading.receive(EventKind.PROGRESS, "{").receive(EventKind.PROGRESS, progress(1))
    reading.receive(EventKind.PROGRESS, progress(2)).read()

    assert shown(reading, forged=4) == {
        "progress_queue_full": 5,
        "lifecycle_queue_full": 1,
        "progress_mailbox_full": 1,
        "undecodable": 1,
        "forged": 4,
    }


def test_losses_of_two_mailboxes_add_up():
    """Where Spark calls Python, events pass through two mailboxes, and either may be full."""
    reading = Reading(room=2)
    mailbox = Mailbox(3)
    for batch in range(5):
        received = Received(EventKind.PROGRESS, progress(batch), 1.0)
        mailbox.put(received, lifecycle=False)
    reading.source.batches.append(mailbox.take(0))
    reading.read()
    reading.source.drops = mailbox.drops

    assert shown(reading) == {"progress_mailbox_full": 3}


def shown(reading, forged=0):
    """What readers of the metrics learn of it, without the zeros."""
    listener = HealthListener(reading.guard, capacity=1, start=object, start_later=list)
    listener.refused["forged"] += forged
    worker = WorkerHarness().step().worker
    facts = MonitorFacts(
        app="etl",
        spark_version="4.0.0",
        lag_by_partition=False,
        path=Path(reading.source),
        listener=listener,
        reader=reading.reader,
        prober=Prober(None, 1.0, lambda: None),
        worker=worker,
        guard=reading.guard,
        notifier=Notifier(Settings(), "etl", reading.guard, receivers=[], heartbeat=None),
    )
    dropped = facts.board(worker.evaluated).monitor.events_dropped
    assert set(dropped) <= set(DROP_REASONS)
    return {reason: count for reason, count in dropped.items() if count}


class Path:
    """The way by which events come."""

    name = "bus_queue"

    def __init__(self, source):
        self.source = source
