"""``await_any_failure`` ends when a query failed or vanished, or when nothing can fail any more."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from msgspec import structs
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException, UnknownException
from support.patience import PATIENCE_SECONDS, ended
from support.rules.failed import session_ended
from support.rules.slow import live_locked
from support.rules.stories import hung_batch, lost, one_task, steady, watched
from support.story import CONFLICT, Story, processing, run

from querypulse.alerting.incidents.lifecycle import Evaluated, Lifecycle, LifecycleSettings
from querypulse.alerting.words.messages import Guidance, alert_of
from querypulse.alerting.words.reasons import JVM_ENDED
from querypulse.core.redaction import Redactor
from querypulse.listener.events import Started
from querypulse.listener.probe_report import Context
from querypulse.listener.state.snapshot import parse_watchers
from querypulse.sidecar import QueryFailure, Settings, Sidecar, unwatched
from querypulse.sidecar.failure import first_failure, first_stall, why_over
from querypulse.sidecar.unwatched import wait_in_spark

ONCE = "AvailableNowTrigger"


def failure(story, now, **policy):
    return first_failure(story.state.snapshot(now), story.evaluate(now, **policy))


def over(story, now=100.0, **policy):
    return why_over(story.state.snapshot(now), story.evaluate(now, **policy))


# -- failures that end the wait ---------------------------------------------------------------


def committed():
    return Story().started(at=0).commit(batch=0, at=5)


def failed():
    return Story().started(at=0).ended(at=1, exception=CONFLICT)


def stopped():
    return Story().probe(run(), at=0).ended(at=1)


def completed(story=None, query="a", *, at=1):
    story = story or Story()
    return story.probe(run(query, trigger=ONCE), at=at - 1).ended(query, at=at)


FAILED = ("a", "ConcurrentAppendException: Files were added")
SESSION_ENDED = ("a", "CONNECT_SESSION_ENDED: the Spark Connect server has closed the session")
JVM_GONE = ("*", "the JVM of the driver has ended, and 2 streaming queries with it: a, b")
FAILURES = [
    ("failed", failed(), 1, {}, FAILED),
    ("failed, within its grace", failed(), 1, {"failed_grace_seconds": 60.0}, FAILED),
    ("stopped", stopped(), 100, {}, ("a", "stopped without an exception")),
    ("JVM gone", Story().probe(run(), run("b"), at=0).probe(at=1, context=Context.JVM_GONE), 1, {}, JVM_GONE),
    ("session ended", session_ended(committed(), lost()), 10, {}, SESSION_ENDED),
    ("session ended, within its grace", session_ended(committed(), lost()), 10, {"failed_grace_seconds": 60.0}, SESSION_ENDED),
    ("session of two ended", session_ended(committed(), lost(), lost("b")), 10, {}, SESSION_ENDED),
    ("session ended, and one has completed", session_ended(completed(query="b"), lost()), 10, {}, SESSION_ENDED),
    ("session ended before an expected query began", session_ended(committed(), lost()), 10,
     {"expected": ["bronze"], "overrides": [("a", {"ignore": True})]}, ("*", "the Spark Connect session has ended")),
    ("session ended, its stop was announced", session_ended(committed().expect_stop(), lost()), 10, {}, None),
    ("session ended, all have completed", session_ended(completed()), 10, {}, None),
    ("session ended, all were stopped as announced", session_ended(stopped().expect_stop()), 10, {}, None),
    ("session ended, nothing was started", session_ended(Story()), 10, {}, None),
    ("session ended, nothing to care about", session_ended(committed(), lost()), 10, {"overrides": [("*", {"ignore": True})]}, None),
    ("nothing", Story(), 1000, {}, None),
    ("healthy", committed(), 10, {}, None),
    ("hung", committed().probe(processing(batch=1), at=6), 900, {}, None),
    ("missing", Story(), 1000, {"expected": ["bronze"]}, None),
    ("stopped just now", stopped(), 30, {}, None),
    ("completed", Story().probe(run(trigger=ONCE), at=0).ended(at=1), 1000, {}, None),
    ("ignored", failed(), 2, {"overrides": [("*", {"ignore": True})]}, None),
    ("recovered", failed().started(run=2, at=2).commit(run=2, batch=0, at=3), 4, {}, None),
]  # fmt: skip


@pytest.mark.parametrize("row", [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
def test_failed_or_stopped_query_or_the_end_of_the_jvm_ends_the_wait_with_its_reason(row):
    story, now, policy, expected = row
    error = failure(story, now, **policy)

    if expected is None:
        assert error is None
    else:
        query, reason = expected
        assert error.query == query
        assert reason in error.reason
        assert str(error) == f"streaming query {query}: {error.reason}"


# -- several processes on one JVM -----------------------------------------------------------------

FIRST, SECOND = "1:mine 2:foreign", "2:mine 1:foreign"


def shared(watchers, **sessions):
    """Queries of this process and of another, all started at 0 s; the keywords map names to
    sessions.
    """
    story = Story()
    for name, session in sessions.items():
        story.state.apply_event(Started(f"id-{name}", f"{name}-1", name, session=session), 0)
    story.state.own(parse_watchers(watchers))
    return story


@pytest.mark.parametrize("watchers", [FIRST, SECOND], ids=["first", "second"])
def test_failure_of_another_process_does_not_end_the_wait(watchers):
    story = shared(watchers, mine="mine", theirs="foreign")
    story.ended("theirs", at=1, exception=CONFLICT)

    assert failure(story, 2) is None
    assert failure(story.ended("mine", at=3, exception=CONFLICT), 4).query == "mine"


@pytest.mark.parametrize("session", ["foreign", ""], ids=["another's", "nobody's"])
@pytest.mark.parametrize("exception", [CONFLICT, None], ids=["fails", "stops"])
@pytest.mark.parametrize("expected", [frozenset(), frozenset({"theirs"})])
def test_query_that_is_not_its_own_ends_the_wait_only_if_expected(session, exception, expected):
    """What no process claims may belong to any. The wait covers what the settings name."""
    story = shared(SECOND, theirs=session).ended("theirs", at=1, exception=exception)
    story.state.expected = expected

    assert (failure(story, 100, expected=expected) is not None) == bool(expected)


# -- stalls -------------------------------------------------------------------------------------


def stall(story, now, *, watched_by=None, **policy):
    """The error raised for a critical stall, once the lifecycle has found it twice."""
    lifecycle = Lifecycle(
        "etl", Guidance("https://runbooks.example/{alertname}.md"), LifecycleSettings()
    )
    for at in (now - 1, now):
        evaluation, snapshot = story.evaluate(at, **policy), story.state.snapshot(at)
        lifecycle.update(evaluation, snapshot, at, 1e9 + at)
    return first_stall(Evaluated(snapshot, evaluation, lifecycle.alerts))


def test_critical_stall_ends_the_wait_if_requested():
    """Without the request, a hang does not end the wait."""
    error = stall(hung_batch(until=175), 172)

    assert (error.query, error.reason.partition(":")[0]) == ("a", "batch_hung")
    assert failure(hung_batch(until=175), 172) is None


def test_silent_jvm_ends_the_wait_for_the_whole_driver():
    story = steady().started("b", at=0).commit("b", batch=2, at=100)
    story.probe(processing(batch=10), processing("b", batch=3), at=101)

    assert stall(story, 400).query == "*"


def test_no_other_problem_counts_as_a_stall():
    stories = {
        "healthy": (steady(), 105, {}),
        "within its window": (hung_batch(until=150), 150, {}),
        "a warning": (one_task(until=180), 180, {}),
        "critically slow, not stalled": (live_locked(until=1700), 1700, {}),
        "ignored": (hung_batch(until=175), 172, {"overrides": [("a", {"ignore": True})]}),
        "failed": (steady().ended(at=101, exception=CONFLICT), 400, {}),
    }
    stalls = {name: stall(story, now, **policy) for name, (story, now, policy) in stories.items()}

    assert stalls == dict.fromkeys(stories)


def test_stall_found_once_may_be_a_glitch():
    story = hung_batch(until=175)
    evaluated = Evaluated(story.state.snapshot(172), story.evaluate(172), ())

    assert first_stall(evaluated) is None


@pytest.mark.parametrize(
    ("expected", "session", "ends"),
    [((), "mine", True), ((), "foreign", False), ({"a"}, "foreign", True)],
    ids=["its own", "another's", "another's, and expected"],
)
def test_stall_of_another_process_ends_the_wait_only_if_expected(expected, session, ends):
    story = shared(FIRST, a=session)
    watched(story, (1, 400, processing(batch=1, tasks=0)))
    story.state.expected = frozenset(expected)

    assert (stall(story, 399) is not None) == ends


# -- nothing left to wait for -----------------------------------------------------------------


def test_wait_ends_when_every_query_completed_or_the_application_stopped_its_context():
    story = Story().probe(run(trigger=ONCE), run("b", trigger=ONCE), at=0)
    assert over(story.ended(at=1)) is None
    assert over(story.ended("b", at=2)) == "completed"
    for context in (Context.STOPPED_BY_APPLICATION, Context.TERMINATED):
        assert over(Story().started(at=0).probe(run(), at=1, context=context)) == "stopped"
    # The application stops Spark after its last query.
    story.probe(at=3, context=Context.STOPPED_BY_APPLICATION)
    assert over(story) == "completed"


def test_wait_ends_with_its_session_where_no_query_was_lost():
    stories = {
        "completed": (completed(), "completed"),
        "stopped as announced": (stopped().expect_stop(), "stopped"),
        "stopped": (stopped(), "stopped"),
        "nothing started": (Story(), "stopped"),
        "its stop was announced": (committed().expect_stop().probe(lost(), at=2), "stopped"),
    }

    for name, (story, why) in stories.items():
        assert over(session_ended(story, at=3), 4) == why, name
    assert over(session_ended(committed(), lost(), at=6), 7) is None


def test_wait_goes_on_while_something_can_still_fail():
    stories = {
        "nothing yet": (Story(), {}),
        "all missing": (Story(), {"expected": ["bronze"]}),
        "one missing": (completed(), {"expected": ["a", "bronze"]}),
        "living": (Story().started(at=0), {}),
        "stopped": (stopped(), {}),
        "failed": (failed(), {}),
        "context died": (Story().probe(run(), at=1, context=Context.STOPPED), {}),
        "JVM gone": (Story().probe(run(), at=0).probe(at=1, context=Context.JVM_GONE), {}),
        "one living": (completed().started("b", at=2), {}),
    }

    assert [name for name, (story, policy) in stories.items() if over(story, **policy)] == []


@pytest.mark.parametrize("end", [None, CONFLICT])
def test_ignored_query_does_not_prolong_the_wait(end):
    """Nothing depends on the ignored query; after its end, nothing could ever end the wait."""
    story = Story().probe(run(trigger=ONCE), run("scratch"), at=0).ended(at=1)
    story.ended("scratch", at=2, exception=end)

    assert over(story, overrides=[("scratch", {"ignore": True})]) == "completed"


# -- the wait itself --------------------------------------------------------------------------


class Evaluating:
    """The running parts of a sidecar that the wait uses."""

    def __init__(self, story, now):
        self.evaluated = Evaluated(story.state.snapshot(now), story.evaluate(now), ())

    def end(self, timeout, program):
        """Nothing runs here."""


@pytest.mark.parametrize("is_started", [False, True])
def test_closing_ends_the_wait_of_another_thread_and_later_waits(is_started):
    sidecar = Sidecar(Settings())
    if is_started:
        sidecar._runtime = Evaluating(committed(), 10)
    returned = []
    wait = lambda: returned.append(sidecar.await_any_failure())
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    sidecar.close()
    waiting.join(PATIENCE_SECONDS)

    assert returned == ["closed"]
    assert sidecar.await_any_failure(timeout=0) == "closed"


def test_wait_raises_as_soon_as_the_worker_sees_that_the_jvm_is_gone():
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


def test_wait_ends_for_a_stall_only_if_requested():
    sidecar = Sidecar(Settings())
    sidecar._runtime = Evaluating(hung_batch(until=175), 172)
    (finding,) = sidecar._runtime.evaluated.evaluation.findings
    sidecar._runtime.evaluated = structs.replace(
        sidecar._runtime.evaluated,
        alerts=(
            alert_of(finding, "etl", Guidance("https://runbooks.example/{alertname}.md"), 1e9),
        ),
    )

    assert sidecar.await_any_failure(timeout=0.05) == "timeout"
    with pytest.raises(QueryFailure, match="batch_hung") as raised:
        sidecar.await_any_failure(timeout=PATIENCE_SECONDS, on_stall=True)

    assert raised.value.query == "a"


# -- an unwatched driver --------------------------------------------------------------------------


class UnwatchedSpark:
    """A session whose ``StreamingQueryManager`` remembers that a query has ended, or its failure.

    ``ends`` has what each wait finds: False, True, or an error; the last one stays.
    """

    def __init__(self, *ends, active=()):
        self.ends = list(ends)
        self.active = list(active)
        self.waits = []
        self.streams = self
        self.sparkContext = SimpleNamespace(_jsc=object())
        self._jsc = SimpleNamespace(sc=lambda: self)
        self.is_stopping = False

    def awaitAnyTermination(self, timeout):
        assert timeout > 0, "Spark refuses it"
        self.waits.append(timeout)
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if isinstance(end, Exception):
            raise end
        if end == "the last one ends":
            self.active.clear()
            return True
        if end == "stop()":
            self.sparkContext._jsc = None
            return True
        if end == "stop() raises":
            self.sparkContext._jsc = None
            raise Py4JError("SparkContext was shut down")
        return end

    def isStopped(self):
        return self.is_stopping


def wait(spark, timeout=None, redact=str, is_closed=False):
    closed = threading.Event()
    if is_closed:
        closed.set()
    return ended(lambda: wait_in_spark(spark, timeout, redact, closed))


def test_unwatched_driver_waits_until_its_last_query_has_ended(monkeypatch):
    """Spark's ``awaitAnyTermination`` returns after the first one, and from then on at once."""
    monkeypatch.setattr(unwatched, "PAUSE_SECONDS", 0.0)
    spark = UnwatchedSpark(False, True, True, "the last one ends", active=["a"])

    assert wait(spark) == "completed"
    assert len(spark.waits) == 5, "the last one asks whether it has failed"


def test_unwatched_driver_says_why_its_wait_ends():
    assert wait(UnwatchedSpark(False), timeout=0) == "timeout"
    assert wait(UnwatchedSpark(False), is_closed=True) == "closed"
    assert wait(UnwatchedSpark("stop()", active=["a"])) == "stopped"
    # Before any query has started, there is nothing that could have completed.
    assert wait(UnwatchedSpark(False, active=[]), timeout=0.01) == "timeout"


def test_queries_that_fail_because_the_application_stops_spark_are_no_failure():
    spark = UnwatchedSpark(StreamingQueryException("SparkContext was shut down"))
    spark.is_stopping = True

    assert wait(spark) == "stopped"


def test_failure_in_an_unwatched_driver_is_raised_without_secrets(monkeypatch):
    monkeypatch.setattr(unwatched, "PAUSE_SECONDS", 0.0)
    error = StreamingQueryException("a failed: password=hunter2hunter of acct-4711")
    spark = UnwatchedSpark(True, error, active=["b"])
    with pytest.raises(QueryFailure) as raised:
        wait(spark, redact=Redactor(patterns=["acct-[0-9]+"]).text)

    assert raised.value.query == "*"
    assert "a failed" in raised.value.reason
    assert "hunter2hunter" not in str(raised.value)
    assert "4711" not in str(raised.value)


def test_jvm_that_is_gone_is_a_failure_in_an_unwatched_driver():
    for error in (Py4JNetworkError("no answer"), ConnectionRefusedError()):
        with pytest.raises(QueryFailure) as raised:
            wait(UnwatchedSpark(error))
        assert (raised.value.query, raised.value.reason) == ("*", JVM_ENDED)


@pytest.mark.parametrize(
    "error",
    [
        UnknownException(
            "(SparkSQLException) [INVALID_HANDLE.SESSION_CLOSED] The handle is invalid"
        ),
        PySparkException("[NO_ACTIVE_SESSION] No active Spark session found"),
    ],
)
def test_spark_connect_session_that_the_application_stops_ends_the_wait(error):
    assert wait(UnwatchedSpark(error, active=["a"])) == "stopped"


def test_spark_that_was_stopped_before_the_wait_is_not_asked():
    spark = UnwatchedSpark(AssertionError("asked"))
    spark.sparkContext._jsc = None

    assert wait(spark) == "stopped"
    assert wait(UnwatchedSpark("stop() raises", active=["a"])) == "stopped"


def test_stop_that_takes_a_moment_ends_the_wait(monkeypatch):
    """Spark Connect closes its channel, and a moment later its client says so."""
    monkeypatch.setattr(unwatched, "PAUSE_SECONDS", 0.0)
    spark = UnwatchedSpark(ValueError("Cannot invoke RPC: Channel closed!"), active=["a"])
    looks = [object(), object(), None]
    spark.sparkContext = type("Context", (), {"_jsc": property(lambda _: looks.pop(0))})()

    assert wait(spark) == "stopped"


def test_any_other_error_of_spark_is_a_failure_of_the_driver(monkeypatch):
    monkeypatch.setattr(unwatched, "PAUSE_SECONDS", 0.0)
    for error in (PySparkException("UNAVAILABLE password=hunter2"), Py4JError("refused")):
        with pytest.raises(QueryFailure) as raised:
            wait(UnwatchedSpark(error, active=["a"]))
        assert raised.value.query == "*"
        assert raised.value.reason.startswith(type(error).__name__)
        assert "hunter2" not in raised.value.reason
        assert raised.value.__cause__ is error


def test_failure_after_the_answer_that_another_query_has_ended_is_no_completion(monkeypatch):
    monkeypatch.setattr(unwatched, "PAUSE_SECONDS", 0.0)
    spark = UnwatchedSpark("the last one ends", StreamingQueryException("b failed"), active=["b"])
    with pytest.raises(QueryFailure, match="b failed"):
        wait(spark)


def test_attempt_that_died_before_this_one_ends_no_wait():
    """YARN has started this attempt in its place: a failure now would be a loop of restarts."""
    story = Story().started(at=0).lost_attempt()

    assert [found.code.value for found in story.evaluate(1).findings] == ["attempt_lost"]
    assert failure(story, 1) is None


def test_query_that_fails_after_another_attempt_died_ends_the_wait():
    assert failure(Story().started(at=0).lost_attempt().failed(at=1), 2).query == "a"
