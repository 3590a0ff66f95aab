"""An odd answer loses one detail, but no run, no failure and no other query."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from support.fake_spark import FIELD, FakeChannel, FakeSpark, fake_probe, poll, query_id

from querypulse.listener.probe_report import Context, ListenerHealth, ProbeReport
from querypulse.listener.spark.jvm import NETWORK_ERRORS
from querypulse.listener.spark.probe import KEEP_REPORTED, KEEP_SECONDS

ODD = [
    Py4JError("Method does not exist"),
    PySparkException("IllegalArgumentException"),
    ValueError("not what was expected"),
]
of_odd_answers = pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
CANNOT_BE_DESCRIBED = "java.lang.IllegalStateException"


@pytest.fixture
def spark():
    driver = FakeSpark()
    for number in (1, 2, 3):
        driver.start(number)
    return driver


def undescribed(spark, number, *, run=1):
    """Make that run throw in the answer for all runs."""
    key = query_id(number)
    spark.lines[key] = FIELD.join((key, f"run-{number}-{run}", CANNOT_BE_DESCRIBED))
    return spark.executions[key]


def test_poll_of_all_runs_is_one_command(spark):
    probe = fake_probe(spark)
    poll(probe)
    spark.commands.clear()

    runs = poll(probe)
    assert set(runs) == {"query 1", "query 2", "query 3"}
    assert runs["query 1"].facts.session == "session-1"
    assert spark.commands == ["livingRuns"]


@of_odd_answers
@pytest.mark.parametrize("refused", ["of one run", "of all"])
def test_unreadable_run_keeps_its_last_known_state(spark, odd, refused):
    probe = fake_probe(spark)
    if refused == "of all":
        spark.refuse_all = Py4JError("refused")
    before = poll(probe)
    undescribed(spark, 2).answers["isActive"] = odd
    after = poll(probe, at=1)

    assert after["query 2"] is before["query 2"]
    assert after["query 1"] is not before["query 1"]
    assert "a query" in probe.details.missing


@of_odd_answers
@pytest.mark.parametrize(
    ("answers", "stopping", "batch_id"),
    [
        ({}, False, 3),
        ({"getLatestExecutionContext": Py4JError("no such method"), "currentBatchId": 3}, False, 3),
        ({"isActive": False, "queryExecutionThread": {"isAlive": True}}, True, 3),
        ({"getClass": {"getSimpleName": "ContinuousExecution"}}, False, None),
    ],
    ids=["active", "Spark 3.5", "stopped, and its thread works", "continuous, without batches"],
)
def test_run_is_read_on_its_own_where_our_java_is_refused(spark, odd, answers, stopping, batch_id):
    execution = spark.executions[query_id(2)]
    for name, answer in answers.items():
        execution.answers[name] = spark.java(**answer) if isinstance(answer, dict) else answer
    spark.refuse_all = odd
    runs = poll(fake_probe(spark))
    run = runs["query 2"]

    assert len(runs) == 3
    assert (run.active, run.stopping, run.batch_id) == (True, stopping, batch_id)
    assert (run.message, run.committed_offsets) == ("Waiting for data to arrive", "{}")


@pytest.mark.parametrize(
    "refused",
    ["getClass", "getLatestExecutionContext", "sparkSessionForStream", "committedOffsets",
     "lastProgress"],
)  # fmt: skip
def test_refused_detail_of_a_run_that_is_read_on_its_own_is_only_missing(spark, refused):
    execution = spark.start(2, message="Processing new data", busy=True)
    execution.answers[refused] = PySparkException("refused")
    spark.refuse_all = Py4JError("refused")
    run = poll(fake_probe(spark))["query 2"]

    assert (run.active, run.message, run.processing) == (True, "Processing new data", True)


@pytest.mark.parametrize(
    ("name", "is_async", "seconds"),
    [
        ("AsyncProgressTrackingMicroBatchExecution", True, 12),
        ("MicroBatchExecution", False, 0),
        ("ContinuousExecution", False, 0),
    ],
)
def test_execution_class_shows_async_progress_tracking(spark, name, is_async, seconds):
    spark.executions[query_id(2)].answers |= {
        "getClass": spark.text(name),
        "asyncProgressTrackingCheckpointingIntervalMs": 12_000,
    }
    facts = poll(fake_probe(spark))["query 2"].facts

    assert (facts.async_progress, facts.log_interval_seconds) == (is_async, seconds)


@pytest.mark.parametrize(
    ("written", "instead"),
    [(f"{FIELD}3{FIELD}", f"{FIELD}three{FIELD}"), ("Waiting", f"Waiting{FIELD}")],
)
def test_run_whose_line_is_unreadable_is_read_on_its_own(spark, written, instead):
    probe = fake_probe(spark)
    before = poll(probe)
    spark.lines[query_id(2)] = spark._line(query_id(2)).replace(written, instead)
    after = poll(probe, at=1)

    assert [name for name in after if after[name] is before[name]] == []
    assert (after["query 2"].batch_id, after["query 2"].message) == (3, before["query 2"].message)


@pytest.mark.parametrize("run_id", ["", "run-2-1"])
def test_run_that_our_java_cannot_describe_is_read_on_its_own(spark, run_id):
    probe = fake_probe(spark)
    before = poll(probe)["query 2"]
    spark.lines[query_id(2)] = FIELD.join((query_id(2), run_id, "its progress throws"))
    run = poll(probe, at=1)["query 2"]

    assert run is not before
    assert (run.active, run.facts, run.batch_id) == (True, before.facts, before.batch_id)


@of_odd_answers
def test_run_without_readable_details_is_still_reported(spark, odd):
    execution = spark.executions[query_id(2)]
    execution.answers = {**dict.fromkeys(execution.answers, odd), "isActive": True}
    spark.lines[query_id(2)] = spark._line(query_id(1)).replace("1", "2")
    facts = poll(fake_probe(spark))[query_id(2)].facts

    assert (facts.query_id, facts.run_id, facts.name) == (query_id(2), "run-2-2", None)
    assert (facts.trigger.is_known, facts.session) == (False, "")


@of_odd_answers
@pytest.mark.parametrize(
    ("unreadable", "error"), [("exception", "UnknownError"), ("isActive", "Boom")]
)
def test_run_that_spark_no_longer_lists_has_ended_whatever_is_unreadable(
    spark, odd, unreadable, error
):
    """In a later batch than the last poll has seen."""
    probe = fake_probe(spark)
    assert poll(probe)["query 2"].batch_id == 3
    ended = spark.end(2, exception="Boom")
    ended.answers |= {"getLatestExecutionContext": spark.java(batchId=4), unreadable: odd}
    run = poll(probe, at=1)["query 2"]

    assert (run.active, run.exception, run.batch_id) == (False, error, 4)


def test_replaced_unreadable_run_has_ended(spark):
    probe = fake_probe(spark)
    poll(probe)
    spark.end(2, exception="Boom")
    spark.start(2, run=2)
    undescribed(spark, 2, run=2)
    report = probe.poll(lambda: 1.0)

    ends = {run.facts.run_id: run.active for run in report.runs if run.facts.name == "query 2"}
    assert ends == {"run-2-1": False, "run-2-2": True}


def test_every_failure_is_in_several_reports_when_many_come_at_once():
    spark = FakeSpark()
    many = KEEP_REPORTED + 50
    for number in range(many):
        spark.start(number)
    probe = fake_probe(spark)
    poll(probe)
    for number in range(many):
        spark.end(number, exception=f"Boom {number}")
    reports = [poll(probe, at=at) for at in (1, 2, KEEP_SECONDS + 1)]
    reasons = [f"Boom {number}" for number in range(many)]

    assert [[run.exception for run in report.values()] for report in reports] == [reasons] * 3
    assert len(poll(probe, at=KEEP_SECONDS + 2)) == KEEP_REPORTED


def test_failure_missing_from_a_report_is_in_the_next_one(spark):
    probe = fake_probe(spark)
    poll(probe)
    spark.end(2, exception="Boom")
    path, probe._path = probe._path, FakeChannel()
    probe._path.check = lambda _: (_ for _ in ()).throw(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        poll(probe, at=1)
    probe._path = path

    assert poll(probe, at=2)["query 2"].exception == "Boom"


# -- the end of the JVM -----------------------------------------------------------------------


def lose_jvm(spark, error, *, ended):
    """From now on no command is answered."""
    spark.refuse_all, spark.ended = error, ended
    spark.sparkContext._jsc.answers["sc"] = error


@pytest.mark.parametrize("lost", NETWORK_ERRORS)
def test_end_of_the_jvm_is_a_report_and_silence_is_none(spark, lost):
    probe = fake_probe(spark)
    lose_jvm(spark, lost("no answer"), ended=False)
    with pytest.raises(lost, match="no answer"):
        poll(probe)
    assert (probe.ended, probe.details.missing) == (False, set())
    spark.ended = True
    report = ProbeReport(7.0, 7.0, runs=(), context=Context.JVM_GONE)
    assert probe.poll(lambda: 7.0) == report

    spark.commands.clear()
    assert probe.poll(lambda: 7.0) == report
    assert (probe.ended, spark.commands) == (True, [])


@pytest.mark.parametrize(
    ("seen", "dropped", "announced", "end"),
    [
        (False, True, False, Context.STOPPED_BY_APPLICATION),
        (False, False, True, Context.TERMINATED),
        (True, False, False, Context.TERMINATED),
        (True, True, True, Context.STOPPED_BY_APPLICATION),
        (False, False, False, Context.JVM_GONE),
    ],
    ids=["stopped", "a signal was announced", "a poll saw a signal", "both", "neither"],
)
def test_end_of_the_jvm_is_what_was_seen_of_it_before(spark, seen, dropped, announced, end):
    channel = FakeChannel()
    channel.terminated = announced
    probe = fake_probe(spark, channel)
    spark.stopped = spark.shutting_down = seen
    poll(probe)
    lose_jvm(spark, Py4JNetworkError(), ended=True)
    if dropped:
        spark.sparkContext._jsc = None

    assert probe.poll(lambda: 1.0).context is end


# -- the SparkContext -------------------------------------------------------------------------


@pytest.mark.parametrize("signalled", [False, True])
def test_slow_stop_counts_as_a_stop_by_the_application(spark, signalled):
    """Spark marks the context as stopped while it still drains its queues."""
    probe = fake_probe(spark)
    seen = []

    def drain():
        spark.stopped, spark.shutting_down = True, signalled
        seen.append((probe.context(), probe.poll(lambda: 1.0).context))

    spark.sparkContext.while_stopping = drain
    before = probe.poll(lambda: 0.0).context
    spark.sparkContext.stop()

    assert before is Context.RUNNING
    assert seen == [(Context.STOPPED_BY_APPLICATION,) * 2]
    assert probe.context() is Context.STOPPED_BY_APPLICATION


@pytest.mark.parametrize(
    ("stopped", "shutting_down", "context"),
    [
        (False, True, Context.RUNNING),
        (True, False, Context.STOPPED),
        (True, True, Context.TERMINATED),
        (True, Py4JError("refused"), Context.STOPPED),
    ],
    ids=["a signal alone", "stopped by itself", "stopped by a signal", "stopped, cause unknown"],
)
def test_stopped_context_says_what_stopped_it(spark, stopped, shutting_down, context):
    probe = fake_probe(spark)
    spark.stopped = stopped
    spark.hooks.answers["inShutdown"] = shutting_down

    assert probe.context() is probe.poll(lambda: 0.0).context is context


def test_context_is_read_again_when_a_run_ends_during_a_poll(spark):
    """The run may end with its context after the answer for all runs."""
    probe = fake_probe(spark)
    poll(probe)
    context = spark.sparkContext._jsc.answers["sc"].answers
    spark.end(2)
    context["isStopped"] = True

    assert not spark.stopped
    assert probe.poll(lambda: 1.0).context is Context.STOPPED


@of_odd_answers
def test_listener_that_cannot_be_checked_is_as_it_was(spark, odd):
    def check(now):
        raise odd

    channel = FakeChannel()
    channel.check = check
    report = fake_probe(spark, channel).poll(lambda: 0.0)

    assert report.listener == channel.health == ListenerHealth(registered=True)


def test_listener_of_a_stopped_context_is_not_checked(spark):
    """Spark's bus has removed it, like all others."""
    channel = FakeChannel()
    checks = []
    channel.check = lambda now: checks.append(now) or channel.health
    probe = fake_probe(spark, channel)
    probe.poll(lambda: 1.0)
    spark.stopped = True
    assert probe.poll(lambda: 2.0).listener == channel.health
    assert checks == [1.0]


@pytest.mark.parametrize("stops", [True, False])
def test_listener_that_is_gone_because_its_context_stops_meanwhile_is_no_mystery(spark, stops):
    channel = FakeChannel()

    def check(now):
        spark.sparkContext._jsc.answers["sc"].answers["isStopped"] = stops
        return ListenerHealth(registered=False)

    channel.check = check
    report = fake_probe(spark, channel).poll(lambda: 1.0)
    assert not report.listener.registered
    assert report.context is (Context.STOPPED if stops else Context.RUNNING)


@pytest.mark.parametrize("refuse", [None, Py4JError("gone"), OSError(), PySparkException("odd")])
def test_released_probe_holds_no_spark_objects(spark, refuse):
    channel = FakeChannel()
    probe = fake_probe(spark, channel)
    poll(probe)
    channel.refuse = refuse
    probe.release()

    assert channel.released == 1
    assert (probe._active, probe._tracked, probe._living) == (None, None, {})
    assert probe.context() is Context.RUNNING
    spark.stopped = True
    assert probe.context() is Context.STOPPED
    with pytest.raises(RuntimeError, match="released"):
        poll(probe)
