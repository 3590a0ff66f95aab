"""Where the demo's main thread waits: in the trap of the incident, or outside it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from support.patience import PATIENCE_SECONDS

from querypulse.commands.demo.demo import Blocked, Supervised, _exit_code, main_thread_stuck_in
from querypulse.commands.demo.pipeline import BRONZE
from querypulse.sidecar import QueryFailure


class QueryAndSidecar:
    """A query and a sidecar in one; the demo waits for either."""

    def __init__(self, failure=None):
        self.failure = failure
        self.over = threading.Event()

    def awaitTermination(self):
        assert self.over.wait(PATIENCE_SECONDS)

    def await_any_failure(self):
        if self.failure is not None:
            raise self.failure
        assert self.over.wait(PATIENCE_SECONDS)

    def stop(self):
        self.over.set()

    close = stop


def blocked(job):
    return Blocked(SimpleNamespace(queries={BRONZE: job}))


@pytest.mark.parametrize("waiting", [blocked, Supervised])
def test_job_without_a_failure_waits_until_it_is_released(waiting):
    job = QueryAndSidecar()
    here = waiting(job)
    was_over = []

    def poll():
        while not main_thread_stuck_in(here.where):
            job.over.wait(0.01)
        was_over.append(job.over.is_set())
        here.let_go()

    poller = threading.Thread(target=poll)
    poller.start()

    assert here.wait() is None
    poller.join(PATIENCE_SECONDS)
    assert was_over == [False]
    assert not main_thread_stuck_in(here.where)


def test_failure_ends_the_wait_of_a_supervised_job():
    failure = QueryFailure("alerts", "boom")

    assert Supervised(QueryAndSidecar(failure)).wait() is failure


@pytest.mark.parametrize(
    ("as_expected", "failed", "code"),
    [(True, False, 0), (True, True, 3), (False, False, 1), (False, True, 1)],
)
def test_exit_code_shows_the_result_and_whether_the_job_failed(as_expected, failed, code):
    assert _exit_code(as_expected, failed=failed) == code
