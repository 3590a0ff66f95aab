"""``supervise`` blocks, starts queries one after the other, and says why it ends."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace

import pytest
from support.clock import Clock
from support.patience import PATIENCE_SECONDS, until
from support.story import CONFLICT, Story

from querypulse.core.redaction import redact
from querypulse.listener.probe import Context
from querypulse.sidecar import QueryFailure
from querypulse.sidecar.restarting import Indexed, RestartTerms
from querypulse.sidecar.supervise import Supervisor, check_starts, run_unwatched

NEVER_AGAIN = RestartTerms(restarts=0)


class Harness:
    """A supervisor on a fake clock; the story goes on when a query starts."""

    def __init__(self):
        self.clock, self.story, self.is_closed = Clock(0.0), Story(), False
        self.newest = lambda: self.story.snapshot(self.clock())
        self.supervisor = Supervisor(
            self.snapshot,
            lambda: self.is_closed,
            lambda text: redact(text).replace("K3Y", "[redacted]"),
            clock=self.clock,
        )

    def handle(self, number=1, name="a", *, active=False):
        return SimpleNamespace(runId=f"{name}-{number}", name=name, isActive=active)

    def failing(self):
        self.story.started(at=0).ended(at=1, exception=CONFLICT)
        return self.handle()

    def snapshot(self):
        return self.newest()

    def hold_snapshot(self):
        """No evaluation follows."""
        snapshot = self.snapshot()
        self.newest = lambda: snapshot

    def run(self, terms=NEVER_AGAIN, **starts):
        self.supervisor.supervise(starts, terms)


@pytest.fixture
def harness():
    return Harness()


def test_given_up_query_ends_the_wait_with_its_reason_and_stays_published(harness):
    with pytest.raises(QueryFailure, match="ConcurrentAppendException") as raised:
        harness.run(a=harness.failing)

    assert raised.value.query == "a"
    assert harness.supervisor.publish()["a"].given_up


def test_other_queries_go_on_after_one_is_given_up(harness):
    def works():
        assert harness.supervisor.publish()["a"].given_up
        harness.story.started("b", at=0)
        harness.story.expect_stop("b").ended("b", at=2)
        return harness.handle(name="b")

    def raises():
        harness.clock.now += 1
        raise ValueError("no")

    with pytest.raises(QueryFailure, match="ValueError: no"):
        harness.run(a=raises, b=works)
    assert set(harness.supervisor.publish()) == {"a"}


def test_secrets_in_the_error_of_a_start_function_are_redacted(harness):
    def raises():
        raise ValueError("password=hunter2")

    with pytest.raises(QueryFailure) as raised:
        harness.run(a=raises)

    assert "hunter2" not in str(raised.value)


def test_our_own_secrets_in_the_failure_of_a_run_are_redacted(harness):
    """The snapshot has the failure as Spark reported it."""

    def start():
        harness.story.started(at=0).ended(at=1, exception="java.lang.RuntimeException: posting K3Y")
        return harness.handle()

    with pytest.raises(QueryFailure) as raised:
        harness.run(a=start)

    assert "posting [redacted]" in raised.value.reason
    assert "K3Y" not in repr(harness.supervisor.publish())


def test_queue_of_starts_that_advances_is_not_overdue(harness):
    overdue = []

    def start(name):
        harness.clock.now += 1.5
        harness.story.started(name, at=harness.clock.now)
        waiting = harness.supervisor.publish().values()
        overdue.extend(harness.clock.now - one.due_at for one in waiting if one.due_at is not None)
        harness.is_closed = name == "q99"
        return harness.handle(name=name, active=True)

    harness.run(**{f"q{number}": partial(start, f"q{number}") for number in range(100)})

    assert harness.clock.now == 150
    assert max(overdue) == 1.5


def test_start_that_hangs_makes_all_that_wait_overdue(harness):
    def start():
        harness.clock.now += 200
        waiting = harness.supervisor.publish()
        assert [harness.clock.now - one.due_at for one in waiting.values()] == [200, 200]
        harness.is_closed = True
        return harness.handle(active=True)

    harness.run(a=start, b=start)


def test_many_queries_are_followed_once_per_snapshot(harness, monkeypatch):
    indexed = []
    index = Indexed.of
    monkeypatch.setattr(Indexed, "of", lambda snapshot: indexed.append(1) or index(snapshot))
    harness.hold_snapshot()

    def start(name):
        harness.is_closed = name == "q199"
        return harness.handle(name=name, active=True)

    harness.run(**{f"q{number}": partial(start, f"q{number}") for number in range(200)})

    assert len(indexed) == 1


def test_query_that_is_forgotten_while_others_start_is_not_started(harness):
    harness.hold_snapshot()

    def start():
        assert harness.supervisor.forget("b")
        assert harness.supervisor.forget("a")
        return harness.handle(active=True)

    harness.run(a=start, b=lambda: pytest.fail("started"))


def test_given_up_query_that_runs_again_by_hand_can_be_supervised_again(harness):
    def works():
        harness.story.started(run=2, at=2).commit(run=2, batch=1, at=3)
        assert set(harness.supervisor.publish()) == {"b"}
        harness.story.ended(run=2, at=86_000, exception=CONFLICT)
        assert set(harness.supervisor.publish()) == {"b"}
        with pytest.raises(QueryFailure, match="its start failed"):
            harness.run(a=lambda: None)
        harness.is_closed = True
        return harness.handle(name="b", active=True)

    harness.run(a=harness.failing, b=works)


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

    assert harness.supervisor.publish() == {}


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
    assert harness.supervisor.publish() == {}
    assert not harness.supervisor.forget("a")


def test_forgetting_the_last_query_ends_the_wait(harness):
    done = threading.Event()

    def wait():
        harness.run(RestartTerms(), a=lambda: None)
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    until(lambda: harness.supervisor.forget("a"), "it is supervised")

    assert done.wait(PATIENCE_SECONDS)


def test_run_that_spark_calls_active_is_not_started_again(harness):
    """It only disappeared from one poll; its restart stays due, so an alert follows."""
    calls, due = [], []

    class ActiveHandle(SimpleNamespace):
        @property
        def isActive(self):
            due.append(harness.supervisor.publish()["a"].due_at)
            harness.is_closed = len(due) == 3
            return True

    def start():
        calls.append(1)
        harness.story.started(at=0).probe(at=1)
        return ActiveHandle(runId="a-1", name="a")

    def next_snapshot():
        harness.clock.now += 5.0
        assert harness.clock.now < 1000
        harness.supervisor.wake()
        return harness.story.probe(at=harness.clock.now).snapshot(harness.clock.now)

    harness.newest = next_snapshot
    harness.run(RestartTerms(), a=start)

    assert calls == [1]
    assert len(due) == 3
    assert len(set(due)) == 1


def test_where_nothing_is_watched_all_others_run_to_their_end_and_the_first_failure_is_raised():
    """An internal error of querypulse must not end a job."""
    ended = []

    def query(name, error=None):
        def wait():
            ended.append(name)
            if error is not None:
                raise error

        return lambda: SimpleNamespace(awaitTermination=wait)

    def broken():
        raise RuntimeError("password=hunter2")

    failing = query("failing", ValueError("later"))
    starts = {"broken": broken, "failing": failing, "finite": query("finite"), "endless": query("endless")}  # fmt: skip
    with pytest.raises(QueryFailure, match="RuntimeError") as raised:
        run_unwatched(starts, redact)

    assert ended == ["failing", "finite", "endless"]
    assert raised.value.query == "broken"
    assert "hunter2" not in str(raised.value)
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_where_nothing_is_watched_the_wait_ends_with_the_last_query():
    run_unwatched({"a": lambda: SimpleNamespace(awaitTermination=lambda: None)}, redact)


def test_what_is_no_start_function_by_name_is_refused():
    for starts in ({}, None, {"": print}, {"a": 1}, {1: print}):
        with pytest.raises(ValueError, match="supervise: "):
            check_starts(starts)
