"""The mailbox never waits, never loses a birth or a death, and counts what it drops."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from querypulse.listener.mailbox import Mailbox


def test_births_and_deaths_come_first_and_in_order():
    mailbox = Mailbox(10)
    for item, lifecycle in [("p1", False), ("s1", True), ("p2", False), ("t1", True)]:
        mailbox.put(item, lifecycle=lifecycle)

    assert mailbox.take(0) == ["s1", "t1", "p1", "p2"]


def test_a_full_mailbox_drops_progress_and_counts_it():
    mailbox = Mailbox(2)

    assert [mailbox.put(i, lifecycle=False) for i in range(4)] == [True, True, False, False]
    assert mailbox.dropped == 2


def test_take_returns_at_once_when_something_waits():
    mailbox = Mailbox(1)
    mailbox.put("x", lifecycle=True)

    assert mailbox.take(timeout=60) == ["x"]


def test_wake_ends_the_wait_of_another_thread():
    mailbox = Mailbox(1)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(mailbox.take(timeout=60)))
    thread.start()
    mailbox.wake()
    thread.join(10)

    assert taken == [[]]


@given(st.lists(st.booleans() | st.none(), max_size=60))
def test_no_lifecycle_item_is_ever_lost_and_progress_never_exceeds_its_bound(script):
    """True puts a lifecycle item, False a progress item, None takes everything."""
    mailbox = Mailbox(3)
    put = {True: [], False: []}
    got = []
    for number, lifecycle in enumerate(script):
        if lifecycle is None:
            got += mailbox.take(0)
        elif mailbox.put((lifecycle, number), lifecycle=lifecycle):
            put[lifecycle].append((lifecycle, number))
        assert mailbox.depth <= 3 + len(put[True])
    got += mailbox.take(0)

    assert [item for item in got if item[0]] == put[True]
    assert [item for item in got if not item[0]] == put[False]
    assert len(put[True]) == script.count(True)
    assert len(put[False]) + mailbox.dropped == script.count(False)
