"""``supervise`` starts queries one after the other, restarts them, gives up, and says why it ends."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support.patience import Clock, until
from support.story import CONFLICT, Story, processing, run

from querypulse.core.redaction import redact
from querypulse.listener.probe_report import Context
from querypulse.listener.state.snapshot import Ownership
from querypulse.sidecar import QueryFailure, supervise
from querypulse.sidecar.supervise import (
    RestartTerms,
    Supervision,
    Supervisor,
    check_starts,
)

ONCE = "AvailableNowTrigger"
NEVER_AGAIN = RestartTerms(restarts=0)


# -- decisions, on a fake clock ------------------------------------------------------------------


def due(at=0.0, **terms):
    """A query whose first start is due."""
    return Supervision("a", "a", RestartTerms(**terms), due_at=at)


def started(query, number, at):
    query.start(None, f"a-{number}", "a", at)
    return query


def running(**terms):
    """A supervised query whose run has started at 0 s."""
    return started(due(**terms), 1, 0.0)


def follow(query, story, now):
    query.observe(story.snapshot(now), now)
    return query


def failing(times, **terms):
    """The supervision of a query that fails and is started again at each of these times."""
    story, query = Story(), due(**terms)
    for number, at in enumerate(times, 1):
        started(query, number, at - 1)
        story.started(run=number, at=at - 1).ended(run=number, at=at, exception=CONFLICT)
        follow(query, story, at)
    return query


def test_failed_run_is_started_again_after_a_pause():
    query = follow(running(), Story().started(at=0).ended(at=10, exception=CONFLICT), 10)

    assert 11.0 <= query.due_at <= 12.0
    assert query.failure == "ConcurrentAppendException: Files were added"
    assert started(query, 2, 12).restarts == 1


def test_pauses_double_up_to_the_limit_and_vary():
    terms = RestartTerms(max_pause_seconds=20)
    pauses = [terms.pause(failures) for failures in range(1, 8)]

    assert [int(pause) for pause in pauses[:4]] == [1, 2, 4, 8]
    assert all(20 <= pause <= 21 for pause in pauses[5:])
    assert len({terms.pause(3) for _ in range(20)}) > 1


def test_failures_beyond_the_restarts_of_a_period_are_the_end():
    assert not failing([10, 20, 30], restarts=3, same_batch_failures=16).is_over
    query = failing([10, 20, 30, 40], restarts=3, same_batch_failures=16)

    assert query.is_given_up
    assert query.failure.startswith("4 failures within 3600 s, the last: ConcurrentAppendException")
    assert query.publish().given_up == query.failure


def test_failures_of_earlier_periods_do_not_count_if_it_committed_since():
    story, query = Story(), due(restarts=2, within_seconds=150)
    for number in range(1, 10):
        at = number * 100.0
        started(query, number, at)
        story.started(run=number, at=at).commit(run=number, batch=number, at=at + 10)
        query = follow(query, story, at + 10)
        story.ended(run=number, at=at + 20, exception=CONFLICT)
        query = follow(query, story, at + 20)

    assert not query.is_over


def test_query_that_never_commits_is_given_up_however_long_its_pauses_are():
    query = failing([1000, 2000, 3000], restarts=2, within_seconds=500, same_batch_failures=16)

    assert query.failure.startswith("3 failures without a commit in between")


def test_same_batch_that_fails_again_and_again_is_given_up():
    story, query = Story(), due(same_batch_failures=3)
    for number in range(1, 4):
        assert not query.is_over
        started(query, number, number * 10)
        story.started(run=number, at=number * 10)
        story.probe(processing("a", number, batch=7), at=number * 10 + 1)
        story.ended(run=number, at=number * 10 + 2, exception=CONFLICT)
        query = follow(query, story, number * 10 + 2)

    assert query.failure == "batch 7 failed 3 times with ConcurrentAppendException"


def test_start_function_that_raises_counts_as_a_failure():
    query = due(restarts=2)
    for number in range(3):
        query.fail_start("ValueError: no", float(number))

    assert query.is_given_up
    assert query.failure.endswith("the last: its start failed: ValueError: no")
    assert query.restarts == 2


ON_PURPOSE = [
    Story().probe(run(), at=0).expect_stop().ended(at=10),
    Story().probe(run(), at=0).expect_stop().ended(at=10, exception=CONFLICT),
    Story().probe(run(trigger=ONCE), at=0).ended(at=10),
]


@pytest.mark.parametrize("story", ON_PURPOSE, ids=["stop", "failure after it", "completed"])
def test_end_on_purpose_is_no_failure(story):
    query = follow(running(), story, 10)

    assert (query.is_over, query.is_given_up, query.due_at) == (True, False, None)


def test_run_that_somebody_else_started_is_supervised_and_not_started_twice():
    story = Story().started(at=0).ended(at=10, exception=CONFLICT)
    query = follow(running(), story, 10)
    query = follow(query, story.started(run=2, at=11), 11)

    assert (query.due_at, query.run_id) == (None, "a-2")


def test_run_that_disappears_and_is_back_is_not_started_again():
    story = Story().probe(run(), at=0).probe(at=5)
    query = follow(running(), story, 5)
    assert query.due_at is not None

    assert follow(query, story.probe(run(), at=7), 7).due_at is None


def test_nothing_starts_until_the_probe_has_seen_spark_running_since_the_failure():
    """A query that ended with its SparkContext must not be started again."""
    story = Story().probe(run(), at=9).ended(at=10, exception=CONFLICT)
    query = follow(running(), story, 10)

    assert not query.may_start(story.snapshot(60), 60)
    assert query.may_start(story.probe(at=61).snapshot(61), 61)


def owned(snapshot, session):
    """The snapshot of a process that shares its JVM, and has claimed this session."""
    return replace(snapshot, ownership=Ownership(own=frozenset({session}), has_others=True))


@pytest.mark.parametrize(("session", "due_at"), [("theirs", 0.0), ("ours", None)])
def test_query_of_another_process_is_not_taken_for_ours(session, due_at):
    other = run()
    other = replace(other, facts=replace(other.facts, session=session))
    query = due()
    query.observe(owned(Story().probe(other, at=1).snapshot(2), "ours"), 2)

    assert query.due_at == due_at


def test_given_up_query_that_works_again_is_noticed():
    story = Story().started(at=0).ended(at=1, exception=CONFLICT)
    query = follow(running(restarts=0), story, 2)

    assert query.is_given_up
    assert not query.runs_again(story.snapshot(5))
    assert not query.runs_again(story.started(run=2, at=10).snapshot(11))
    assert query.runs_again(story.commit(run=2, batch=1, at=20).snapshot(21))
    assert not running().runs_again(story.snapshot(21))


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"restarts": -1}, "restarts must be 0 to 1000, given -1"),
        ({"within_seconds": 0}, "within_seconds must be 1 to inf"),
        ({"max_pause_seconds": 0.1}, "max_pause_seconds must be 1 to 86400"),
        ({"same_batch_failures": 17}, "same_batch_failures must be 2 to 16"),
        ({"restarts": "many"}, "restarts must be"),
    ],
)
def test_terms_that_are_not_allowed_raise(terms, message):
    with pytest.raises(ValueError, match=message):
        RestartTerms(**terms)


# -- the calling thread --------------------------------------------------------------------------


class Harness:
    """A supervisor on a fake clock; the story goes on when a query starts."""

    def __init__(self):
        self.clock, self.story, self.is_closed = Clock(0.0), Story(), False
        self.newest = lambda: self.story.snapshot(self.clock())
        self.news = threading.Condition()
        self.supervisor = Supervisor(
            self.snapshot,
            lambda: self.is_closed,
            lambda text: redact(text).replace("K3Y", "[redacted]"),
            self.news,
            clock=self.clock,
        )

    def wake(self):
        with self.news:
            self.news.notify_all()

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


def test_given_up_query_ends_the_wait_with_its_reason_and_stays_published_until_it_is_forgotten(
    harness,
):
    with pytest.raises(QueryFailure, match="ConcurrentAppendException") as raised:
        harness.run(a=harness.failing)

    assert raised.value.query == "a"
    assert harness.supervisor.publish()["a"].given_up
    assert harness.supervisor.forget("a")
    assert harness.supervisor.publish() == {}
    assert not harness.supervisor.forget("a")


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


def fails_to_start(harness):
    raise ValueError("posting K3Y, password=hunter2")


def fails_as_it_runs(harness):
    """The snapshot has the failure as Spark reported it, without the secrets of its shape."""
    harness.story.started(at=0).ended(at=1, exception="java.lang.RuntimeException: posting K3Y")
    return harness.handle()


@pytest.mark.parametrize("start", [fails_to_start, fails_as_it_runs])
def test_secrets_in_a_failure_are_redacted(harness, start):
    with pytest.raises(QueryFailure, match=r"posting \[redacted\]") as raised:
        harness.run(a=partial(start, harness))

    shown = raised.value.reason + repr(harness.supervisor.publish())
    assert "K3Y" not in shown
    assert "hunter2" not in shown


def test_queue_of_starts_that_advances_is_not_overdue(harness):
    overdue = []

    def start(name):
        harness.clock.now += 1.5
        harness.story.started(name, at=harness.clock.now)
        waiting = harness.supervisor.publish().values()
        overdue.extend(
            harness.clock.now - entry.due_at for entry in waiting if entry.due_at is not None
        )
        harness.is_closed = name == "q99"
        return harness.handle(name=name, active=True)

    harness.run(**{f"q{number}": partial(start, f"q{number}") for number in range(100)})

    assert harness.clock.now == 150
    assert max(overdue) == 1.5


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


@pytest.mark.parametrize("context", [Context.JVM_GONE, Context.STOPPED, Context.SESSION_ENDED])
def test_end_of_spark_ends_the_wait_and_raises_unless_it_is_planned(harness, context):
    harness.story.probe(at=0, context=context)
    with pytest.raises(QueryFailure) as raised:
        harness.run(a=lambda: pytest.fail("started"))

    assert raised.value.query == "*"
    harness.story.probe(at=1, context=Context.STOPPED_BY_APPLICATION)
    harness.run(a=lambda: pytest.fail("started"))


def test_news_that_wake_one_call_wake_every_call(monkeypatch, harness):
    monkeypatch.setattr(supervise, "ROUND_SECONDS", 3600.0)
    rounds = []

    def newest():
        rounds.append("b" in names)
        return snapshot

    def end_beside_another_call(text):
        """Between the snapshot that a call has read and its wait, another call is woken, too."""
        if any(rounds) and not harness.is_closed:
            harness.is_closed = True
            harness.wake()
            harness.supervisor.supervise({"a": harness.handle}, NEVER_AGAIN)
        return text

    def start():
        names.append("b")
        return harness.handle(name="b", active=True)

    names, snapshot = [], harness.snapshot()
    harness.newest = newest
    harness.supervisor = Supervisor(
        harness.snapshot, lambda: harness.is_closed, end_beside_another_call, harness.news
    )
    call = threading.Thread(target=harness.run, kwargs={"b": start}, daemon=True)
    call.start()
    until(lambda: not call.is_alive(), "the call has ended")


class News(threading.Condition):
    """While a call waits, what another thread does happens here; the call must need no more."""

    def __init__(self, meanwhile):
        super().__init__()
        self.meanwhile, self.waits, self.signals = meanwhile, 0, 0

    def wait(self, timeout=None):
        self.waits += 1
        assert self.waits == 1
        self.meanwhile()
        assert self.signals
        return True

    def notify_all(self):
        self.signals += 1


def forget(harness):
    harness.supervisor.forget("a")


def close(harness):
    harness.is_closed = True
    harness.wake()


def evaluate_its_stop(harness):
    harness.story.started(at=0).expect_stop().ended(at=1)
    snapshot = harness.story.snapshot(2)
    harness.newest = lambda: snapshot
    harness.wake()


@pytest.mark.parametrize("meanwhile", [forget, close, evaluate_its_stop])
def test_call_that_waits_goes_on_as_soon_as_there_is_news(harness, meanwhile):
    harness.news = harness.supervisor._news = News(partial(meanwhile, harness))
    harness.hold_snapshot()
    harness.run(a=lambda: harness.handle(active=True))

    assert harness.news.waits == 1


def test_same_name_twice_is_an_error(harness):
    def start():
        with pytest.raises(ValueError, match="already supervised: a"):
            harness.run(a=harness.handle)
        harness.is_closed = True
        return harness.handle()

    harness.run(a=start)


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
        return harness.story.probe(at=harness.clock.now).snapshot(harness.clock.now)

    harness.newest = next_snapshot
    harness.run(RestartTerms(), a=start)

    assert calls == [1]
    assert len(due) == 3
    assert len(set(due)) == 1


def test_start_function_that_returns_no_query_says_so(harness):
    for nothing in (None, "a"):
        with pytest.raises(
            QueryFailure, match="its start function returned no query, but"
        ) as raised:
            Harness().run(a=lambda nothing=nothing: nothing)
        assert raised.value.query == "a"


def test_what_is_no_start_function_by_name_is_refused():
    for starts in ({}, None, {"": print}, {"a": 1}, {1: print}):
        with pytest.raises(ValueError, match="supervise: "):
            check_starts(starts)
