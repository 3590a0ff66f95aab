"""Which query ``expect_stop`` and ``forget`` mean, given a name or a ``StreamingQuery``."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support.story import CONFLICT
from support.worker_harness import WorkerHarness

from querypulse.listener.events import Started, Terminated
from querypulse.sidecar import Settings, Sidecar


class Driver:
    """A worker behind a sidecar; what ``pending`` holds has not arrived before the next flush."""

    def __init__(self, *expected):
        self.harness = WorkerHarness()
        self.pending = []
        worker = self.harness.worker
        worker.policy = replace(worker.policy, expected=expected)
        worker.state.expected = frozenset(expected)
        self.sidecar = Sidecar(Settings(http_port=-1))
        self.sidecar._runtime = self

    @property
    def evaluated(self):
        return self.harness.worker.evaluated

    @property
    def published(self):
        return SimpleNamespace(expected=self.harness.worker.policy.expected)

    def sees(self, *events):
        for event in events:
            self.harness.receive(event)
        self.harness.step()
        return self

    def flush(self, _deadline):
        """A receiver that hangs makes it late, after everything has been evaluated."""
        self.sees(*self.pending)
        return False

    def ask_worker(self, request):
        self.harness.inbox.put(request, lifecycle=True)
        self.harness.step()

    def queries(self):
        return self.evaluated.snapshot.labels()

    def announced(self):
        """The labels of the queries whose stop was announced."""
        return [label for label, query in self.queries().items() if query.run.stop_expected]


def started(number, name="q", *, run=1):
    """A start in a session of its own."""
    return Started(str(number) * 8, f"run-{number}-{run}", name, session=f"session-{number}")


def ended(number, *, run=1):
    return Terminated(str(number) * 8, f"run-{number}-{run}", CONFLICT, None)


def handle(number, name="q", *, run=1):
    """What ``start()`` returns."""
    return SimpleNamespace(id=str(number) * 8, runId=f"run-{number}-{run}", name=name)


def two_sessions():
    driver = Driver()
    driver.sees(started(1), started(2))
    assert list(driver.queries()) == ["q", "q-22222222"]
    return driver


@pytest.mark.parametrize("name", [None, "q"])
def test_stop_of_a_query_that_started_just_now_can_be_announced(name):
    driver = Driver()
    driver.pending = [started(1, name)]
    driver.sidecar.expect_stop(handle(1, name))

    assert driver.announced() == [name or "11111111"]


def test_unnamed_query_that_ended_just_now_can_be_forgotten():
    driver = Driver()
    driver.pending = [started(1, None), ended(1)]
    driver.sidecar.forget(handle(1, None))

    assert driver.queries() == {}


@pytest.mark.parametrize(("number", "label"), [(1, "q"), (2, "q-22222222")])
def test_announced_stop_of_a_query_is_not_that_of_its_namesake(number, label):
    driver = two_sessions()
    driver.sidecar.expect_stop(handle(number))

    assert driver.announced() == [label]


def test_announced_stop_of_a_new_query_is_not_that_of_a_namesake_that_is_known_already():
    driver = Driver()
    driver.sees(started(1))
    driver.pending = [started(2)]
    driver.sidecar.expect_stop(handle(2))

    assert driver.announced() == ["q-22222222"]


@pytest.mark.parametrize("method", ["expect_stop", "forget"])
def test_query_that_stays_unknown_is_refused_although_a_namesake_is_known(method):
    driver = Driver("q")
    driver.sees(started(1), ended(1))
    with pytest.raises(ValueError, match="no query is named 'q'"):
        getattr(driver.sidecar, method)(handle(2))

    assert (list(driver.queries()), driver.announced()) == (["q"], [])


@pytest.mark.parametrize("given", ["q", handle(1, run=2)], ids=["name", "query"])
def test_announced_stop_of_a_run_that_started_just_now_is_not_that_of_the_run_before(given):
    driver = Driver()
    driver.sees(started(1), ended(1))
    driver.pending = [started(1, run=2)]
    driver.sidecar.expect_stop(given)

    assert driver.announced() == ["q"]


def test_query_that_was_started_again_just_now_is_not_forgotten():
    driver = Driver()
    driver.sees(started(1), ended(1))
    driver.pending = [started(1, run=2)]
    with pytest.raises(ValueError, match="'q' is still running"):
        driver.sidecar.forget(handle(1, run=2))


def test_only_the_given_one_of_two_ended_namesakes_is_forgotten_and_the_name_stays_expected():
    driver = Driver("q")
    driver.sees(started(1), started(2), ended(1), ended(2))
    driver.sidecar.forget(handle(1))
    assert (list(driver.queries()), driver.published.expected) == (["q-22222222"], ("q",))

    driver.sidecar.forget(handle(2))
    assert (list(driver.queries()), driver.published.expected) == ([], ())


def test_query_that_lost_its_checkpoint_to_another_is_not_meant_by_that():
    driver = Driver()
    driver.sees(started(1, "a"))
    with pytest.raises(ValueError, match="no query is named 'b'"):
        driver.sidecar.expect_stop(handle(1, "b", run=2))

    assert driver.announced() == []


def test_supervised_namesake_of_a_forgotten_query_stays_supervised():
    driver = two_sessions()
    driver.sees(ended(2))
    supervisor, forgotten = driver.sidecar._supervisor, []
    supervisor.forget = lambda name, **more: forgotten.append((name, more))
    driver.sidecar.forget(handle(2))

    assert forgotten == [("q-22222222", {"is_label": True})]
