"""The reader reads each event once, outside Spark's threads, and counts every loss."""

from __future__ import annotations

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
)
from querypulse.listener.events import EventKind, Idle, Progress, Started, Terminated
from querypulse.listener.mailbox import Mailbox, Marker, Received
from querypulse.listener.probe_report import Context
from querypulse.listener.spark.jvm import NETWORK_ERRORS
from querypulse.sidecar.publishing import sum_of

TEXTS = {
    EventKind.STARTED: '{"id": "i", "runId": "r", "name": "a"}',
    EventKind.PROGRESS: '{"progress": {"id": "i", "runId": "r", "batchId": 3}}',
    EventKind.IDLE: '{"id": "i", "runId": "r", "timestamp": "2026-01-01T00:00:00Z"}',
    EventKind.TERMINATED: '{"id": "i", "runId": "r", "exception": "a.b.C: boom"}',
}
STARTED, PROGRESS, IDLE, FAILED = TEXTS.items()
ENDED = EventKind.TERMINATED, '{"id": "i", "runId": "r", "exception": null}'
GARBLED = EventKind.PROGRESS, "{"
LOST = Py4JNetworkError("no answer")


def progress(batch):
    return EventKind.PROGRESS, PROGRESS[1].replace("3", str(batch))


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

    def __init__(self, batches):
        self.batches = list(batches)
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
        return [event if isinstance(event, Received) else Received(*event, 1.0) for event in batch]

    def wake(self):
        self.wakes += 1


class Reading:
    """A reader between a source, which returns a batch for each take, and the worker's mailbox."""

    def __init__(self, *batches, context=lambda: Context.RUNNING, room=2000, jvm_ended=False):
        self.source = ScriptedQueue(batches)
        self.arrived = Mailbox(room)
        self.guard = Guard()
        self.calls, self.pauses = [], []
        self.reader = EventReader(
            self.source,
            self.arrived,
            self.guard,
            context=lambda: self.calls.append("context") or context(),
            poke=lambda: self.calls.append("poke"),
            jvm_ended=lambda: jvm_ended,
            pause=self.pauses.append,
        )

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


def test_events_stay_in_the_order_of_the_queue():
    assert Reading([STARTED, PROGRESS, ENDED]).events == [Started, Progress, Terminated]


def test_json_of_a_handle_is_requested_once():
    handle = Handle(PROGRESS[1])
    (item,) = Reading([Received(EventKind.PROGRESS, handle, 7.5)]).read()

    assert (item.event.batch_id, item.at, item.context) == (3, 7.5, Context.RUNNING)
    assert handle.asked == 1


def test_start_has_what_the_run_says_and_triggers_a_poll():
    facts = {
        "session": "s-1",
        "trigger": "ProcessingTimeTrigger(1000)",
        "checkpoint": "file:/cp",
        "replaced": "run-0",
    }
    reading = Reading([Received(*STARTED, 1.0, **facts)])
    (item,) = reading.read()

    assert item.event == Started("i", "r", "a", **facts)
    assert reading.calls == ["poke"]


@pytest.mark.fault("Events", "Garbled events", "They are counted; the next one is read")
@pytest.mark.parametrize("kind", list(EventKind))
def test_undecodable_event_is_counted_and_dropped(kind):
    """The JVM returns "" for each event that cannot write its JSON; equal texts count each."""
    texts = ("{", '{"x": ' + "[" * 100_000, "", "")
    reading = Reading([*((kind, text) for text in texts), IDLE])

    assert reading.events == [Idle]
    assert reading.reader.dropped == {"undecodable": 4}
    assert reading.calls == []


def test_lost_part_of_an_event_is_counted():
    odd = '{"progress": {"id": "i", "runId": "r", "batchId": 3, "eventTime": 5, "sink": 6}}'
    reading = Reading([(EventKind.PROGRESS, odd)] * 2)

    assert reading.events == [Progress]
    assert reading.reader.dropped == {"undecodable_part": 2}


@pytest.mark.contains_errors
def test_failing_handle_loses_only_its_own_event_which_is_read_when_it_arrives_again():
    broken = Handle(None)
    event = EventKind.TERMINATED, broken
    reading = Reading([event, PROGRESS], [event])

    assert reading.events == [Progress]
    assert reading.guard.errors == {"reader": 1}
    broken.text = FAILED[1]
    assert reading.events == [Terminated]


# -- duplicate events ---------------------------------------------------------------------------


@pytest.mark.fault("Events", "Events that arrive twice", "Each counts once")
@pytest.mark.parametrize(("kind", "text"), TEXTS.items())
@pytest.mark.parametrize("payload", [str, Handle])
def test_duplicate_event_is_dropped(kind, text, payload):
    """A listener that was added to a session twice receives everything twice."""
    first, second, third = (Received(kind, payload(text), at) for at in (1.0, 1.1, 5.0))
    reading = Reading([first, second], [third])
    items = reading.read() + reading.read()

    assert [item.at for item in items] == [1.0]
    assert len(reading.calls) <= 1
    assert not any(reading.reader.drops.values())


def test_memory_of_seen_events_is_bounded():
    reading = Reading([progress(batch) for batch in range(REMEMBERED + 10)], [progress(0)])

    assert len(reading.read()) == REMEMBERED + 10
    assert reading.events == [Progress]


# -- the state of the SparkContext at a failure ---------------------------------------------------


@pytest.mark.parametrize("event", [STARTED, PROGRESS, IDLE, ENDED])
def test_context_is_read_only_at_a_failure(event):
    reading = Reading([event], context=lambda: Context.STOPPED)

    assert [item.context for item in reading.read()] == [Context.RUNNING]
    assert "context" not in reading.calls


@pytest.mark.parametrize("context", list(Context))
def test_failure_has_the_context_at_its_read(context):
    (item,) = Reading([FAILED], context=lambda: context).read()

    assert (item.event.exception, item.context) == ("a.b.C: boom", context)


@pytest.mark.contains_errors
def test_failure_is_passed_on_when_the_context_cannot_be_read():
    """Starts and ends are never dropped, even when the JVM goes away."""

    def gone():
        raise ConnectionError("the JVM is gone")

    assert Reading([FAILED], context=gone).events == [Terminated]


# -- a JVM that does not answer -------------------------------------------------------------------


@pytest.mark.fault(
    "Spark and its listeners",
    "Py4J's connection is cut",
    "Reading is tried again, and the probe polls at once",
)
@pytest.mark.parametrize("lost", NETWORK_ERRORS)
def test_lost_jvm_triggers_a_poll_and_is_retried_after_a_pause(lost):
    reading = Reading(lost("no answer"), [PROGRESS])

    assert reading.events == []
    assert (reading.calls, reading.pauses) == (["poke"], [RETRY_SECONDS])
    assert reading.events == [Progress]
    assert (reading.calls, reading.guard.errors) == (["poke"], {})


def test_ended_jvm_is_not_asked_and_delays_no_marker():
    reading = Reading(LOST, jvm_ended=True)
    first, second = reading.mark(), reading.mark()

    assert (reading.read(), reading.read()) == ([first, second], [])
    assert (len(reading.source.waits), reading.pauses) == (1, [RETRY_SECONDS] * 2)


def test_events_waiting_in_python_are_read_after_the_jvm_ended():
    reading = Reading([FAILED], jvm_ended=True)

    assert (reading.events, reading.pauses) == ([Terminated], [])


def test_py4j_error_is_not_a_lost_jvm():
    reading = Reading(Py4JError("refused"))
    with pytest.raises(Py4JError, match="refused"):
        reading.read()

    assert (reading.calls, reading.pauses) == ([], [])


# -- markers ------------------------------------------------------------------------------------


BEFORE_A_MARKER = {
    "several answers of the JVM": ([[progress(number)] for number in range(5)], [Progress] * 5, 5),
    "an event that arrives meanwhile": ([[], [], [FAILED]], [Terminated], 3),
    "broken events": ([[(EventKind.PROGRESS, Handle(None)), GARBLED]], [], 2),
    "a lost JVM": ([LOST], [], 1),
    "a JVM that is lost while it is drained": ([[FAILED], LOST], [Terminated], 2),
}


@pytest.mark.contains_errors
@pytest.mark.parametrize(
    ("batches", "events", "takes"), BEFORE_A_MARKER.values(), ids=BEFORE_A_MARKER
)
def test_marker_follows_every_event_received_before_it(batches, events, takes):
    reading = Reading(*batches)
    marker = reading.mark()
    *items, last = reading.read()

    assert [type(item.event) for item in items] == events
    assert last is marker
    assert not marker.is_set()
    assert reading.source.waits == [TAKE_SECONDS, *[0] * (takes - 1)]
    assert reading.read() == []


def test_queue_that_is_never_empty_does_not_delay_a_marker():
    reading = Reading()
    reading.source.left = 1
    marker = reading.mark()

    assert reading.read() == [marker]
    assert len(reading.source.waits) == 1 + MAX_ANSWERS


def test_markers_are_passed_on_in_order_and_only_they_wake_the_wait_for_events():
    reading, wakes = Reading(), []
    reading.reader.wake_if_marked()
    markers = [reading.mark(), reading.mark()]
    for _ in range(2):
        wakes.append(reading.source.wakes)
        reading.reader.wake_if_marked()
    assert reading.read() == markers
    reading.reader.wake_if_marked()

    assert [*wakes, reading.source.wakes] == [0, 1, 2]


class CountingMailbox(Mailbox):
    """Counts who makes a waiting ``take`` return."""

    wakes = 0

    def wake(self):
        self.wakes += 1
        super().wake()


def test_marker_wakes_the_wait_for_events_that_come_through_python():
    reading = Reading()
    reading.reader.source = CountingMailbox(10)
    marker = reading.mark()

    assert (reading.reader.source.wakes, reading.read()) == (1, [marker])


# -- losses -------------------------------------------------------------------------------------


def test_losses_are_shown_by_reason():
    reading = Reading([GARBLED, progress(1), progress(2)], room=1)
    reading.source.drops |= {"progress_queue_full": 5, "lifecycle_queue_full": 1}
    reading.read()

    assert shown(reading, forged=4) == {
        "progress_queue_full": 5,
        "lifecycle_queue_full": 1,
        "progress_mailbox_full": 1,
        "undecodable": 1,
        "forged": 4,
    }


def test_losses_of_two_mailboxes_add_up():
    """If Spark calls Python, events pass through two mailboxes, and either may be full."""
    mailbox = Mailbox(3)
    for batch in range(5):
        mailbox.put(Received(*progress(batch), 1.0), lifecycle=False)
    reading = Reading(mailbox.take(0), room=2)
    reading.read()
    reading.source.drops = mailbox.drops

    assert shown(reading) == {"progress_mailbox_full": 3}


def shown(reading, forged=0):
    """The counts of dropped events in the metrics, without zeros."""
    dropped = sum_of(reading.reader.drops, reading.source.drops, {"forged": forged})
    assert set(dropped) <= set(DROP_REASONS)
    return {reason: count for reason, count in dropped.items() if count}
