"""``await_any_failure`` ends for a query that failed or vanished, and when nothing can fail any more."""

from __future__ import annotations

import threading
import time

import pytest
from msgspec import structs
from pyspark.errors import StreamingQueryException
from support.rules_table import hung_batch, live_locked, one_task, steady, watched
from support.story import CONFLICT, Story, processing, run

from querypulse.alerting.lifecycle.guidance import Guidance
from querypulse.alerting.lifecycle.lifecycle import Lifecycle, LifecycleSettings
from querypulse.alerting.lifecycle.wording import alert_of
from querypulse.listener.events import Started
from querypulse.listener.ownership import parse_watchers
from querypulse.listener.probing import Context
from querypulse.sidecar import QueryFailure, Settings, Sidecar
from querypulse.sidecar.failure import first_failure, first_stall, nothing_left, wait_in_spark
from querypulse.sidecar.worker import Evaluated

ONCE = "AvailableNowTrigger"
PATIENCE_SECONDS = 10.0


def failure(story, now, **policy):
    return first_failure(story.state.snapshot(now), story.evaluate(now, **policy))


def is_over(story, now=100.0, **policy):
    return nothing_left(story.state.snapshot(now), story.evaluate(now, **policy))


# -- what ends it -----------------------------------------------------------------------------


def test_a_failed_query_ends_it_with_its_name_and_reason():
    error = failure(Story().started(at=0).ended(at=1, exception=CONFLICT), 1)

    assert isinstance(error, QueryFailure)
    assert (error.query, error.reason) == ("a", "ConcurrentAppendException: Files were added")
    assert str(error) == "streaming query a: ConcurrentAppendException: Files were added"


def test_a_query_that_is_gone_ends_it():
    error = failure(Story().probe(run(), at=0).ended(at=1), 100)

    assert error.query == "a"
    assert "stopped without an exception" in error.reason


def test_the_end_of_the_jvm_ends_it():
    """L2"""
    story = Story().probe(run(), run("b"), at=0).probe(at=1, context=Context.JVM_GONE)
    error = failure(story, 1)

    assert (error.query, error.reason) == (
        "*",
        "the JVM of the driver has ended, and 2 streaming queries with it: a, b",
    )


def test_the_end_of_the_jvm_ends_it_where_no_query_was_known():
    assert failure(Story().probe(at=1, context=Context.JVM_GONE), 1).query == "*"


def test_a_query_that_failed_before_the_jvm_ended_is_the_one_that_ends_it():
    story = Story().started(at=0).ended(at=1, exception=CONFLICT)

    assert failure(story.probe(at=2, context=Context.JVM_GONE), 2).query == "a"


def test_the_first_of_several_ends_it():
    story = Story().started("b", at=0).started("a", at=0)
    story.ended("a", at=1, exception=CONFLICT).ended("b", at=2, exception=CONFLICT)

    assert failure(story, 3).query == "b"


def test_a_failure_counts_behind_other_alerts():
    story = (
        Story().started("hung", at=0).started("dead", at=0).ended("dead", at=1, exception="a.B: c")
    )

    assert failure(story, 1000).query == "dead"


@pytest.mark.parametrize(
    ("story", "now", "policy"),
    [
        (Story(), 1000, {}),
        (Story().started(at=0).commit(batch=0, at=5), 10, {}),
        (Story().started(at=0).commit(batch=0, at=5).probe(processing(batch=1), at=6), 900, {}),
        (Story(), 1000, {"expected": ["bronze"]}),
        (Story().probe(run(), at=0).ended(at=1), 30, {}),
        (Story().probe(run(trigger=ONCE), at=0).ended(at=1), 1000, {}),
        (Story().started(at=0).ended(at=1, exception=CONFLICT), 2, {"overrides": [("*", {"ignore": True})]}),
        (Story().started(at=0).ended(at=1, exception=CONFLICT).started(run=2, at=2).commit(run=2, batch=0, at=3), 4, {}),
    ],
    ids=["nothing", "healthy", "hung", "missing", "stopped just now", "completed", "ignored", "cured"],
)  # fmt: skip
def test_nothing_else_ends_it(story, now, policy):
    assert failure(story, now, **policy) is None


# -- several processes on one JVM -----------------------------------------------------------------

ELDER, YOUNGER = "1:mine 2:foreign", "2:mine 1:foreign"


def shared(watchers, **sessions):
    """Queries of this process and of another one, all started at 0 s; by name their sessions."""
    story = Story()
    for name, session in sessions.items():
        story.state.apply_event(Started(f"id-{name}", f"{name}-1", name, session=session), 0)
    story.state.own(parse_watchers(watchers))
    return story


@pytest.mark.parametrize("watchers", [ELDER, YOUNGER], ids=["first", "second"])
def test_a_failure_of_another_process_query_does_not_end_it(watchers):
    """S4"""
    story = shared(watchers, mine="mine", theirs="foreign")
    story.ended("theirs", at=1, exception=CONFLICT)

    assert failure(story, 2) is None
    assert failure(story.ended("mine", at=3, exception=CONFLICT), 4).query == "mine"


def test_a_query_of_another_process_that_vanished_does_not_end_it():
    story = shared(YOUNGER, theirs="foreign").probe(run("theirs"), at=1).probe(at=2)

    assert failure(story, 500) is None
    story.state.own(parse_watchers("2:foreign 1:mine"))
    assert failure(story, 500).query == "theirs"


def test_a_query_that_no_process_has_claimed_ends_the_wait_of_none():
    """It may be anybody's: a process must not end for a query that is not its own."""
    ended = [
        failure(shared(watchers, lost="").ended("lost", at=1, exception=CONFLICT), 2)
        for watchers in (ELDER, YOUNGER)
    ]

    assert ended == [None, None]


def test_the_end_of_the_jvm_ends_the_wait_of_every_process():
    for watchers in (ELDER, YOUNGER):
        story = shared(watchers, mine="mine", theirs="foreign")

        assert failure(story.probe(at=1, context=Context.JVM_GONE), 1).query == "*"


def test_it_is_over_when_the_own_queries_have_completed_though_another_process_goes_on():
    story = shared(ELDER, mine="mine", theirs="foreign").probe(run("mine", trigger=ONCE), at=1)
    assert not is_over(story)

    assert is_over(story.ended("mine", at=2))


def test_queries_of_another_process_that_have_completed_are_no_reason_to_stop_waiting():
    story = shared(ELDER, theirs="foreign").probe(run("theirs", trigger=ONCE), at=1)

    assert not is_over(story.ended("theirs", at=2))


def test_an_expected_query_of_another_process_ends_it():
    """S3: it waits for those that its settings name, wherever they run."""
    story = shared(YOUNGER, theirs="foreign").ended("theirs", at=1, exception=CONFLICT)
    story.state.expected = frozenset({"theirs"})

    assert failure(story, 2).query == "theirs"


def test_an_expected_query_of_another_process_that_is_gone_ends_it():
    story = shared(YOUNGER, theirs="foreign").probe(run("theirs"), at=1).probe(at=2)
    story.state.expected = frozenset({"theirs"})

    assert failure(story, 50) is None
    error = failure(story, 500)
    assert (error.query, "disappeared" in error.reason) == ("theirs", True)


# -- a stall --------------------------------------------------------------------------------------


def stall(story, now, *, watched_by=None, **policy):
    """What a critical stall ends it with, once the lifecycle has found it twice."""
    lifecycle = Lifecycle(
        "etl", Guidance("https://runbooks.example/{alertname}.md"), LifecycleSettings()
    )
    for at in (now - 1, now):
        evaluation, snapshot = story.evaluate(at, **policy), story.state.snapshot(at)
        lifecycle.update(evaluation, snapshot, at, 1e9 + at)
    return first_stall(Evaluated(snapshot, evaluation, lifecycle.alerts))


def test_a_critical_stall_ends_it_where_it_was_asked_for():
    """S3: a hang never ended the wait."""
    error = stall(hung_batch(until=175), 172)

    assert (error.query, error.reason.partition(":")[0]) == ("a", "batch_hung")
    assert failure(hung_batch(until=175), 172) is None


def test_a_silent_jvm_ends_it_for_the_whole_driver():
    story = steady().started("b", at=0).commit("b", batch=2, at=100)
    story.probe(processing(batch=10), processing("b", batch=3), at=101)

    assert stall(story, 400).query == "*"


@pytest.mark.parametrize(
    ("story", "now", "policy"),
    [
        (steady(), 105, {}),
        (hung_batch(until=150), 150, {}),
        (one_task(until=180), 180, {}),
        (live_locked(until=1700), 1700, {}),
        (hung_batch(until=175), 172, {"overrides": [("a", {"ignore": True})]}),
        (steady().ended(at=101, exception=CONFLICT), 400, {}),
    ],
    ids=["healthy", "within its window", "a warning", "critically slow, not stalled", "ignored", "failed"],
)  # fmt: skip
def test_no_other_trouble_is_a_stall(story, now, policy):
    assert stall(story, now, **policy) is None


def test_a_stall_that_was_found_once_may_be_a_glitch():
    story = hung_batch(until=175)
    evaluated = Evaluated(story.state.snapshot(172), story.evaluate(172), ())

    assert first_stall(evaluated) is None


def test_a_stall_that_recovers_ends_nothing():
    story = hung_batch(until=175)
    lifecycle = Lifecycle(
        "etl", Guidance("https://runbooks.example/{alertname}.md"), LifecycleSettings()
    )
    for at in (171, 172):
        lifecycle.update(story.evaluate(at), story.state.snapshot(at), at, 1e9 + at)
    story.commit(batch=10, at=176)
    lifecycle.update(story.evaluate(177), story.state.snapshot(177), 177, 1e9 + 177)

    assert lifecycle.alerts
    assert (
        first_stall(Evaluated(story.state.snapshot(177), story.evaluate(177), lifecycle.alerts))
        is None
    )


@pytest.mark.parametrize(
    ("expected", "session", "ends"),
    [((), "mine", True), ((), "foreign", False), ({"a"}, "foreign", True)],
    ids=["its own", "another's", "another's, and expected"],
)
def test_of_queries_of_other_processes_only_the_expected_ones_end_it(expected, session, ends):
    story = shared(ELDER, a=session)
    watched(story, (1, 300, processing(batch=1, tasks=0)))
    story.state.expected = frozenset(expected)

    assert (stall(story, 299) is not None) == ends


# -- when nothing is left ---------------------------------------------------------------------


def completed(story=None, query="a", *, at=1):
    story = story or Story()
    return story.probe(run(query, trigger=ONCE), at=at - 1).ended(query, at=at)


def test_it_is_over_when_every_query_has_completed():
    story = Story().probe(run(trigger=ONCE), run("b", trigger=ONCE), at=0)
    assert not is_over(story.ended(at=1))

    assert is_over(story.ended("b", at=2))


def test_it_is_over_when_the_application_stopped_its_context():
    story = Story().started(at=0).probe(run(), at=1, context=Context.STOPPED_BY_APPLICATION)

    assert is_over(story)


@pytest.mark.parametrize(
    ("story", "policy"),
    [
        (Story(), {}),
        (Story(), {"expected": ["bronze"]}),
        (completed(), {"expected": ["a", "bronze"]}),
        (Story().started(at=0), {}),
        (Story().probe(run(), at=0).ended(at=1), {}),
        (Story().started(at=0).ended(at=1, exception=CONFLICT), {}),
        (Story().probe(run(), at=1, context=Context.STOPPED), {}),
        (Story().probe(run(), at=0).probe(at=1, context=Context.JVM_GONE), {}),
        (completed().started("b", at=2), {}),
    ],
    ids=["nothing yet", "all missing", "one missing", "living", "stopped", "failed", "context died", "JVM gone", "one living"],
)  # fmt: skip
def test_it_is_not_over_while_something_can_still_fail(story, policy):
    assert not is_over(story, **policy)


@pytest.mark.parametrize("end", [None, CONFLICT])
def test_an_ignored_query_keeps_nobody_waiting(end):
    """Nothing depends on it, says its verdict; once it is dead nothing could ever end the wait."""
    story = Story().probe(run(trigger=ONCE), run("scratch"), at=0).ended(at=1)
    story.ended("scratch", at=2, exception=end)

    assert is_over(story, overrides=[("scratch", {"ignore": True})])


# -- the wait itself --------------------------------------------------------------------------


def test_it_waits_no_longer_than_allowed():
    began = time.monotonic()
    Sidecar(Settings()).await_any_failure(timeout=0.05)

    assert 0.05 <= time.monotonic() - began < PATIENCE_SECONDS


def test_a_closed_sidecar_is_not_waited_for():
    sidecar = Sidecar(Settings())
    sidecar.close()
    sidecar.await_any_failure()


def test_closing_ends_the_wait_of_another_thread():
    sidecar = Sidecar(Settings())
    ended = threading.Event()
    waiting = threading.Thread(target=lambda: sidecar.await_any_failure() or ended.set())
    waiting.start()
    assert not ended.wait(0.05)
    sidecar.close()
    waiting.join(PATIENCE_SECONDS)

    assert ended.is_set()


class Evaluating:
    """The running parts of a sidecar, as far as the wait looks at them."""

    def __init__(self, story, now):
        self.evaluated = Evaluated(story.state.snapshot(now), story.evaluate(now), ())

    def flush(self, deadline):
        return True

    stop = flush


def test_it_raises_as_soon_as_the_worker_has_seen_that_the_jvm_is_gone():
    sidecar = Sidecar(Settings())
    story = Story().probe(run(), at=0)
    sidecar._runtime = Evaluating(story, 1)
    raised = []

    def wait():
        try:
            sidecar.await_any_failure()
        except QueryFailure as failure:
            raised.append(failure)

    waiting = threading.Thread(target=wait)
    waiting.start()
    sidecar._on_evaluated()
    assert raised == []
    sidecar._runtime = Evaluating(story.probe(at=2, context=Context.JVM_GONE), 2)
    sidecar._on_evaluated()
    waiting.join(PATIENCE_SECONDS)

    assert [failure.query for failure in raised] == ["*"]
    assert not sidecar.closed


def test_it_goes_on_waiting_while_only_another_process_query_has_failed():
    sidecar = Sidecar(Settings())
    story = shared(ELDER, theirs="foreign").ended("theirs", at=1, exception=CONFLICT)
    sidecar._runtime = Evaluating(story, 2)

    sidecar.await_any_failure(timeout=0.05)


def test_it_goes_on_waiting_for_a_stalled_query_unless_it_was_asked_to_end():
    sidecar = Sidecar(Settings())
    sidecar._runtime = Evaluating(hung_batch(until=175), 172)
    (finding,) = sidecar._runtime.evaluated.evaluation.findings
    sidecar._runtime.evaluated = structs.replace(
        sidecar._runtime.evaluated,
        alerts=(
            alert_of(finding, "etl", Guidance("https://runbooks.example/{alertname}.md"), 1e9),
        ),
    )

    sidecar.await_any_failure(timeout=0.05)
    with pytest.raises(QueryFailure, match="batch_hung") as raised:
        sidecar.await_any_failure(timeout=PATIENCE_SECONDS, on_stall=True)

    assert raised.value.query == "a"


# -- where nothing is watched ---------------------------------------------------------------------


class Streams:
    """A session's ``StreamingQueryManager``."""

    def __init__(self, error=None):
        self.waits = []
        self.error = error

    def awaitAnyTermination(self, *timeout):
        self.waits.append(timeout)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(("timeout", "passed_on"), [(None, ()), (3.0, (3.0,))])
def test_where_nothing_is_watched_it_waits_in_sparks_own_way(timeout, passed_on):
    streams = Streams()
    wait_in_spark(streams, timeout)

    assert streams.waits == [passed_on]


def test_where_nothing_is_watched_a_failed_query_ends_it_without_its_secrets():
    error = StreamingQueryException("a failed: password=hunter2hunter")
    with pytest.raises(QueryFailure) as raised:
        wait_in_spark(Streams(error), None)

    assert raised.value.query == "*"
    assert "a failed" in raised.value.reason
    assert "hunter2hunter" not in str(raised.value)
