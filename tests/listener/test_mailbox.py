"""The mailbox keeps the order, respects its limits, and counts what it drops."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.patience import PATIENCE_SECONDS

from querypulse.listener.mailbox import LIFECYCLE_CAPACITY, Mailbox


def fill(mailbox, *items):
    """Put items; a capital first letter marks a start or an end."""
    return [mailbox.put(item, lifecycle=item[0].isupper()) for item in items]


def test_items_put_during_a_take_wait_for_the_next_take():
    """A producer as fast as the consumer must not block it, nor reorder its items across lanes."""
    mailbox = Mailbox(10)
    fill(mailbox, "p1", "S1")
    progress, lifecycle = mailbox._lanes

    class Lane(type(progress)):
        def popleft(self):
            fill(mailbox, "S2", "p2") if len(self) == 1 else None
            return super().popleft()

    mailbox._lanes = Lane(progress), lifecycle

    assert mailbox.take(0) == ["p1", "S1"]
    assert mailbox.take(0) == ["S2", "p2"]


def test_items_of_each_producer_keep_their_order():
    mailbox, rounds = Mailbox(10**6), 3000
    barrier = threading.Barrier(3)

    def produce(name):
        barrier.wait()
        for number in range(rounds):
            mailbox.put((name, number), lifecycle=number % 3 == 0)

    producers = [threading.Thread(target=produce, args=(name,)) for name in "ab"]
    for producer in producers:
        producer.start()
    barrier.wait()
    taken = []
    while any(producer.is_alive() for producer in producers):
        taken += mailbox.take(0)
    taken += mailbox.take(0)

    for name in "ab":
        assert [number for who, number in taken if who == name] == list(range(rounds))


def test_starts_and_ends_have_far_more_room_than_progress_by_default():
    mailbox = Mailbox(0)

    assert all(fill(mailbox, *["S"] * LIFECYCLE_CAPACITY))
    assert fill(mailbox, "S", "p") == [False, False]


@pytest.mark.fault(
    "Events",
    "More events than there is room for",
    "Memory is bounded; progress is dropped first, every loss is counted",
)
@given(st.lists(st.booleans() | st.none(), max_size=60))
def test_every_loss_is_counted_and_neither_lane_exceeds_its_limit(script):
    """True puts a lifecycle item, False a progress item, None takes everything."""
    mailbox = Mailbox(3, lifecycle_capacity=5)
    accepted, got = [], []
    for number, lifecycle in enumerate(script):
        if lifecycle is None:
            got += mailbox.take(0)
            assert mailbox.depth == 0
        elif mailbox.put((lifecycle, number), lifecycle=lifecycle):
            accepted.append((lifecycle, number))
        assert mailbox.depth <= 3 + 5
    got += mailbox.take(0)

    assert got == accepted
    assert mailbox.drops == {
        "progress_mailbox_full": script.count(False) - sum(not item[0] for item in got),
        "lifecycle_mailbox_full": script.count(True) - sum(item[0] for item in got),
    }


class RecordedWakes:
    """In the place of a mailbox's queue of wakes: a wait for the first one ends at once."""

    def __init__(self):
        self.waited = []
        self._wakes = SimpleQueue()
        self.put = self._wakes.put
        self.get_nowait = self._wakes.get_nowait

    def get(self, timeout):
        try:
            return self.get_nowait()
        except Empty:
            self.waited.append(timeout)
            raise


@pytest.mark.parametrize(
    ("put", "waits"),
    [
        (lambda box: fill(box, "S1"), []),
        (Mailbox.wake, []),
        (lambda box: fill(box, "p1"), [60]),
        (lambda box: fill(box, "p1", "p2"), []),
    ],
    ids=["a start", "a wake", "progress", "progress that fills half of its room"],
)
def test_take_waits_unless_it_was_woken(put, waits):
    mailbox = Mailbox(4)
    mailbox._wake = RecordedWakes()
    put(mailbox)
    mailbox.take(timeout=60)

    assert mailbox._wake.waited == waits


def test_take_waits_no_longer_than_allowed():
    assert Mailbox(1).take(timeout=0.01) == []


def test_wake_ends_the_wait_of_another_thread():
    mailbox = Mailbox(1)
    taken = []
    waiting = 10 * PATIENCE_SECONDS
    thread = threading.Thread(
        target=lambda: taken.append(mailbox.take(timeout=waiting)), daemon=True
    )
    thread.start()
    mailbox.wake()
    thread.join(PATIENCE_SECONDS)

    assert taken == [[]]
