"""The reader reads each event once, outside Spark's threads, and counts every loss."""

from __future__ import annotations

import json

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from querypulse.core.guard import Guard
from querypulse.exporter.metrics import DROP_REASONS
from querypulse.listener.event_reader import (
    MAX_ANSWERS,
    REMEMBERED,
    RETRY_SECONDS,
    TAKE_SECONDS,
    EventReader,
    Marker,
)
from querypulse.listener.events import EventKind, Idle, Progress, Started, Terminated
from querypulse.listener.mailbox import Mailbox, Received
from querypulse.listener.probe import Context
from querypulse.listener.spark.jvm import NETWORK_ERRORS
from querypulse.sidecar.runtime import sum_of

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


class ScriptedQueue:
    """Returns one batch of events per take, or raises the error given in its place."""

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
        self.source = ScriptedQueue()
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
        """The next take returns the events that follow."""
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


def test_json_of_a_handle_is_requested_once():
    handle = Handle(PROGRESS)
    (item,) = Reading().receive(EventKind.PROGRESS, handle, at=7.5).read()

    assert (item.event.batch_id, item.at, item.context) == (3, 7.5, Context.RUNNING)
    assert handle.asked == 1


def test_events_stay_in_the_order_of_the_queue():
    reading = Reading().receive(EventKind.STARTED, STARTED).receive(EventKind.PROGRESS, PROGRESS)
    reading.receive(EventKind.TERMINATED, ENDED)

    assert reading.events == [Started, Progress, Terminated]


def test_start_has_session_and_trigger():
    facts = {"session": "s-1", "trigger": "ProcessingTimeTrigger(1000)"}
    reading = Reading().receive(EventKind.STARTED, STARTED, **facts)
    (item,) = reading.read()

    assert item.event == Started("i", "r", "a", **facts)
    assert reading.starts == 1, "a start triggers a poll"


@pytest.mark.fault("Events", "Garbled events", "They are counted; the next one is read")
@pytest.mark.parametrize("kind", list(EventKind))
def test_undecodable_event_is_counted_and_dropped(kind):
    """The JVM returns "" for each event that cannot write its JSON; equal texts count each."""
    reading = Reading()
    for text in ("{", '{"x": ' + "[" * 100_000, "", ""):
        reading.receive(kind, text)
    reading.receive(EventKind.IDLE, '{"id": "i", "runId": "r"}')

    assert reading.events == [Idle]
    assert reading.reader.dropped == {"undecodable": 4}
    assert (reading.starts, reading.context_asked) == (0, 0)


def test_lost_part_of_an_event_is_counted():
    odd = '{"progress": {"id": "i", "runId": "r", "batchId": 3, "eventTime": 5, "sink": 6}}'
    reading = Reading().receive(EventKind.PROGRESS, odd).receive(EventKind.PROGRESS, odd)

    assert reading.events == [Progress]
    assert reading.reader.dropped == {"undecodable_part": 2}


@pytest.mark.contains_errors
def test_failing_handle_loses_only_its_own_event():
    reading = Reading().receive(EventKind.TERMINATED, Handle(None))
    reading.receive(EventKind.PROGRESS, PROGRESS)

    assert reading.events == [Progress]
    assert reading.guard.errors == {"reader": 1}


# -- duplicate events ---------------------------------------------------------------------------


@pytest.mark.fault("Events", "Events that arrive twice", "Each counts once")
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
def test_duplicate_event_is_dropped(kind, text, payload):
    """A listener that was added to a session twice receives everything twice."""
    reading = Reading().receive(kind, payload(text), at=1.0).receive(kind, payload(text), at=1.1)
    reading.then().receive(kind, payload(text), at=5.0)
    items = reading.read() + reading.read()

    assert [(item.at, type(item.event)) for item in items] == [(1.0, type(items[0].event))]
    assert reading.starts + reading.context_asked <= 1
    assert not any(reading.reader.drops.values())


@pytest.mark.contains_errors
def test_unreadable_event_is_read_when_it_arrives_again():
    broken = Handle(None)
    reading = Reading().receive(EventKind.PROGRESS, broken)
    assert reading.read() == []
    broken.text = PROGRESS
    reading.receive(EventKind.PROGRESS, broken)

    assert reading.events == [Progress]


def test_memory_of_seen_events_is_bounded():
    reading = Reading(room=10 * REMEMBERED)
    for batch in range(REMEMBERED + 10):
        reading.receive(EventKind.PROGRESS, progress(batch))
    reading.read()

    assert len(reading.reader._seen) == REMEMBERED


# -- the state of the SparkContext at a failure ---------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (EventKind.STARTED, STARTED),
        (EventKind.PROGRESS, PROGRESS),
        (EventKind.IDLE, ENDED),
        (EventKind.TERMINATED, ENDED),
    ],
)
def test_context_is_read_only_at_a_failure(kind, text):
    reading = Reading(context=lambda: Context.STOPPED).receive(kind, text)
    (item,) = reading.read()

    assert item.context is Context.RUNNING
    assert reading.context_asked == 0
    assert reading.starts == (kind is EventKind.STARTED)


def test_failure_has_the_context_at_its_read():
    for context in Context:
        reading = Reading(context=lambda context=context: context)
        (item,) = reading.receive(EventKind.TERMINATED, FAILED).read()

        assert (item.event.exception, item.context) == ("a.b.C: boom", context)
        assert reading.context_asked == 1


@pytest.mark.contains_errors
def test_failure_is_passed_on_when_the_context_cannot_be_read():
    """Starts and ends are never dropped, even when the JVM goes away."""

    def gone():
        raise ConnectionError("the JVM is gone")

    reading = Reading(context=gone).receive(EventKind.TERMINATED, FAILED)

    assert reading.events == [Terminated]


# -- a JVM that does not answer -------------------------------------------------------------------


@pytest.mark.fault(
    "Spark and its listeners",
    "Py4J's connection is cut",
    "Reading is tried again, and the probe polls at once",
)
@pytest.mark.parametrize("lost", NETWORK_ERRORS)
def test_lost_jvm_triggers_a_poll_and_is_retried_after_a_pause(lost):
    reading = Reading().receive(EventKind.PROGRESS, PROGRESS)
    reading.source.batches.insert(0, lost("no answer"))
    assert reading.events == []

    assert (reading.losses, reading.pauses) == (1, [RETRY_SECONDS])
    assert reading.events == [Progress]
    assert (reading.losses, reading.guard.errors) == (1, {})


def test_ended_jvm_is_not_asked_and_delays_no_marker():
    reading = Reading(jvm_ended=lambda: True)
    reading.source.batches.append(Py4JNetworkError("no answer"))
    first, second = reading.mark(), reading.mark()

    assert (reading.read(), reading.read()) == ([first, second], [])
    assert (len(reading.source.waits), reading.pauses) == (1, [RETRY_SECONDS] * 2)


def test_events_waiting_in_python_are_read_after_the_jvm_ended():
    reading = Reading(jvm_ended=lambda: True).receive(EventKind.TERMINATED, FAILED)

    assert (reading.events, reading.pauses) == ([Terminated], [])


def test_py4j_error_is_not_a_lost_jvm():
    reading = Reading()
    reading.source.batches.append(Py4JError("refused"))
    with pytest.raises(Py4JError, match="refused"):
        reading.read()

    assert (reading.losses, reading.pauses) == (0, [])


@pytest.mark.parametrize("received", [[], [FAILED]], ids=["at once", "while it is drained"])
def test_marker_passes_a_lost_jvm(received):
    """A flush must not wait for a JVM that is gone."""
    reading = Reading()
    for text in received:
        reading.receive(EventKind.TERMINATED, text)
    reading.source.batches.append(Py4JNetworkError("no answer"))
    marker = reading.mark()
    *events, last = reading.read()

    assert ([type(item.event) for item in events], last) == ([Terminated] * len(received), marker)
    assert reading.read() == []


# -- markers ------------------------------------------------------------------------------------


def test_marker_follows_every_event_received_before_it():
    """The marker waits for as many answers of the JVM as needed."""
    reading = Reading()
    for batch in range(5):
        reading.then().receive(EventKind.PROGRESS, progress(batch))
    marker = reading.mark()
    *events, last = reading.read()

    assert [item.event.batch_id for item in events] == [0, 1, 2, 3, 4]
    assert last is marker
    assert not marker.passed.is_set()
    assert reading.source.waits == [TAKE_SECONDS, 0, 0, 0, 0]


def test_marker_follows_events_that_arrive_during_its_step():
    """An empty first answer does not exclude events that arrived meanwhile."""
    reading = Reading().then().then().receive(EventKind.TERMINATED, FAILED)
    marker = reading.mark()
    first, last = reading.read()

    assert (type(first.event), last) == (Terminated, marker)


def test_queue_that_is_never_empty_does_not_delay_a_marker():
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
def test_marker_passes_broken_events():
    reading = Reading().receive(EventKind.PROGRESS, Handle(None)).receive(EventKind.PROGRESS, "{")
    marker = reading.mark()

    assert reading.read() == [marker]


def test_wait_for_events_is_woken_only_for_a_marker():
    reading = Reading()
    reading.reader.wake_if_marked()
    assert reading.source.wakes == 0
    reading.mark()
    reading.reader.wake_if_marked()
    assert reading.source.wakes == 1
    reading.read()
    reading.reader.wake_if_marked()

    assert reading.source.wakes == 1


# -- losses -------------------------------------------------------------------------------------


def test_losses_are_shown_by_reason():
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
    """If Spark calls Python, events pass through two mailboxes, and either may be full."""
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
    """The counts of dropped events in the metrics, without zeros."""
    dropped = sum_of(reading.reader.drops, reading.source.drops, {"forged": forged})
    assert set(dropped) <= set(DROP_REASONS)
    return {reason: count for reason, count in dropped.items() if count}
