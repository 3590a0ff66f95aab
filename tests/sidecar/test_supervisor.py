"""``supervise`` blocks, starts queries one after the other, and says why it ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from support.clock import Clock
from support.story import CONFLICT, Story

from querypulse.core.redaction import redact
from querypulse.listener.probing import Context
from querypulse.sidecar import QueryFailure
from querypulse.sidecar.restarting import RestartTerms
from querypulse.sidecar.supervisor import Supervisor, check_starts

NEVER_AGAIN = RestartTerms(restarts=0)


class Harness:
    """A supervisor on a fake clock; the story goes on when a query starts."""

    def __init__(self):
        self.clock, self.story, self.is_closed = Clock(0.0), Story(), False
        self.supervisor = Supervisor(
            lambda: self.story.snapshot(self.clock()),
            lambda: self.is_closed,
            redact,
            clock=self.clock,
        )

    def handle(self, number=1, name="a", *, active=False):
        return SimpleNamespace(runId=f"{name}-{number}", name=name, isActive=active)

    def failing(self):
        self.story.started(at=0).ended(at=1, exception=CONFLICT)
        return self.handle()

    def run(self, terms=NEVER_AGAIN, **starts):
        self.supervisor.supervise(starts, terms)


@pytest.fixture
def harness():
    return Harness()


def test_given_up_query_ends_the_wait_with_its_reason_and_stays_published(harness):
    with pytest.raises(QueryFailure, match="ConcurrentAppendException") as raised:
        harness.run(a=harness.failing)

    assert raised.value.query == "a"
    assert harness.supervisor.published["a"].given_up


def test_other_queries_go_on_after_one_is_given_up(harness):
    def works():
        assert harness.supervisor.published["a"].given_up
        harness.story.started("b", at=0)
        harness.story.expect_stop("b").ended("b", at=2)
        return harness.handle(name="b")

    def raises():
        harness.clock.now += 1
        raise ValueError("no")

    with pytest.raises(QueryFailure, match="ValueError: no"):
        harness.run(a=raises, b=works)
    assert set(harness.supervisor.published) == {"a"}


def test_secrets_in_the_error_of_a_start_function_are_redacted(harness):
    def raises():
        raise ValueError("password=hunter2")

    with pytest.raises(QueryFailure) as raised:
        harness.run(a=raises)

    assert "hunter2" not in str(raised.value)


def test_function_that_starts_another_query_is_given_up(harness):
    with pytest.raises(QueryFailure, match="started a query named 'b'"):
        harness.run(a=lambda: harness.handle(name="b", active=True))


def test_function_that_returns_no_query_has_failed(harness):
    with pytest.raises(QueryFailure, match="its start failed: AttributeError"):
        harness.run(a=lambda: None)


def test_close_ends_the_wait_and_nothing_is_supervised_any_more(harness):
    def start():
        harness.is_closed = True
        return harness.handle()

    harness.run(a=start)

    assert harness.supervisor.published == {}


def test_application_that_stops_spark_ends_the_wait(harness):
    harness.story.probe(at=0, context=Context.STOPPED_BY_APPLICATION)

    harness.run(a=lambda: pytest.fail("started"))


@pytest.mark.parametrize("context", [Context.JVM_GONE, Context.STOPPED])
def test_end_of_spark_raises_and_nothing_starts(harness, context):
    harness.story.probe(at=0, context=context)

    with pytest.raises(QueryFailure) as raised:
        harness.run(a=lambda: pytest.fail("started"))
    assert raised.value.query == "*"


def test_same_name_twice_is_an_error(harness):
    def start():
        with pytest.raises(ValueError, match="already supervised: a"):
            harness.run(a=harness.handle)
        harness.is_closed = True
        return harness.handle()

    harness.run(a=start)


def test_query_can_be_supervised_again_after_it_was_given_up(harness):
    for _ in range(2):
        with pytest.raises(QueryFailure):
            harness.run(a=lambda: None)


def test_forgetting_a_given_up_query_ends_its_alert(harness):
    with pytest.raises(QueryFailure):
        harness.run(a=lambda: None)

    assert harness.supervisor.forget("a")
    assert harness.supervisor.published == {}
    assert not harness.supervisor.forget("a")


def test_forgetting_the_last_query_ends_the_wait(harness):
    done = threading.Event()

    def wait():
        harness.run(RestartTerms(), a=lambda: None)
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    while not harness.supervisor.forget("a"):
        pass

    assert done.wait(20)


def test_run_that_spark_calls_active_is_not_started_again(harness):
    """It only disappeared from one poll."""
    handle = harness.handle(active=True)
    calls = []

    def start():
        calls.append(1)
        harness.story.started(at=0).probe(at=1).probe(at=2)
        harness.clock.now = 10.0
        return handle

    def end():
        while not calls or harness.supervisor.published["a"].due_at is None:
            pass
        harness.story.probe(at=20)
        harness.clock.now = 30.0
        while harness.supervisor.published["a"].due_at != 31.0:
            pass
        harness.is_closed = True
        harness.supervisor.wake()

    ender = threading.Thread(target=end, daemon=True)
    ender.start()
    harness.run(RestartTerms(), a=start)
    ender.join(20)

    assert calls == [1]


@pytest.mark.parametrize("starts", [{}, None, {"": print}, {"a": 1}, {1: print}])
def test_what_is_no_start_function_by_name_is_refused(starts):
    with pytest.raises(ValueError, match="supervise: "):
        check_starts(starts)
