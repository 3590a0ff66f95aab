"""Requests run in a bounded number of threads, and no client takes all of them."""

from __future__ import annotations

import threading

import pytest
from support.patience import PATIENCE_SECONDS, until

from querypulse.core.guard import Guard
from querypulse.exporter.server import MAX_WAITING, RequestSlots, RequestTask

LIMIT = 4


class Requests:
    """Requests that run until ``finish``; ``running`` and ``done`` are their names, in order."""

    def __init__(self, limit=LIMIT):
        self.slots = RequestSlots(limit, Guard())
        self.running, self.done = [], []
        self._ends = {}

    def offer(self, name, client="a"):
        self._ends[name] = threading.Event()
        return self.slots.offer(RequestTask(lambda: self._run(name), client))

    def finish(self, *names):
        for name in names:
            self._ends[name].set()
            until(lambda name=name: name in self.done, f"{name} ends")

    def _run(self, name):
        self.running.append(name)
        self._ends[name].wait(PATIENCE_SECONDS)
        self.running.remove(name)
        self.done.append(name)


@pytest.fixture
def requests():
    one = Requests()
    yield one
    for end in one._ends.values():
        end.set()
    one.slots.finish(PATIENCE_SECONDS)


def test_request_over_the_limit_waits_for_a_free_slot(requests):
    assert all(requests.offer(number, f"client {number}") for number in range(LIMIT + 1))
    until(lambda: len(requests.running) == LIMIT, "all slots are taken")
    requests.finish(0)

    until(lambda: LIMIT in requests.running, "the next one runs")


def test_one_client_leaves_a_slot_to_the_others(requests):
    assert all(requests.offer(number) for number in range(2 * LIMIT))
    assert requests.offer("other", client="b")

    until(lambda: "other" in requests.running, "it runs at once")
    assert len(requests.running) == LIMIT


def test_requests_of_one_client_are_all_answered_in_order(requests):
    assert all(requests.offer(number) for number in range(2 * LIMIT))
    requests.finish(*range(2 * LIMIT))

    assert requests.done == list(range(2 * LIMIT))


def test_one_client_leaves_half_of_the_queue_to_the_others(requests):
    taken = [requests.offer(number) for number in range(2 * MAX_WAITING)]

    assert sum(taken) == LIMIT - 1 + MAX_WAITING
    assert requests.offer("other", client="b")
    assert requests.offer("another", client="c")


def test_next_slot_goes_to_the_client_with_the_fewest(requests):
    """Two slow ones do not delay a third until both of their queues are empty."""
    for number in range(2 * LIMIT):
        requests.offer(("a", number), client="a")
        requests.offer(("b", number), client="b")
    requests.offer("third", client="c")
    until(lambda: len(requests.running) == LIMIT, "all slots are taken")
    requests.finish(requests.running[0])

    until(lambda: "third" in requests.running, "the third one runs")


def test_a_single_slot_serves_everybody():
    requests = Requests(limit=1)
    assert requests.offer("one")
    assert requests.offer("two")
    requests.finish("one", "two")


def test_clients_are_forgotten(requests):
    for number in range(20):
        requests.offer(number, client=f"client {number}")
        requests.finish(number)

    until(lambda: not requests.slots._running, "nothing is kept")
