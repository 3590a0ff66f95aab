"""One odd answer costs the probe one detail; no run, no death and no other query."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from support.fake_spark import FIELD, FakeChannel, FakeSpark, fake_probe, poll, query_id

from querypulse.listener import driver_class
from querypulse.listener.ended_runs import KEEP_REPORTED
from querypulse.listener.probing import Context
from querypulse.listener.spark_living_runs import RETRY_SECONDS

BAD_UTF8 = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
ODD = [
    Py4JError("Method does not exist"),
    PySparkException("IllegalArgumentException"),
    BAD_UTF8,
    Py4JNetworkError("Error while receiving", BAD_UTF8),
    ValueError("not what was expected"),
]
of_odd_answers = pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
CANNOT_BE_DESCRIBED = "java.lang.IllegalStateException"


@pytest.fixture
def spark():
    one = FakeSpark()
    for number in (1, 2, 3):
        one.start(number)
    return one


def undescribed(spark, number, *, run=1):
    """Let that run throw in the answer for all."""
    key = query_id(number)
    spark.lines[key] = FIELD.join((key, f"run-{number}-{run}", CANNOT_BE_DESCRIBED))
    return spark.executions[key]


def test_all_living_runs_cost_one_command_for_a_poll(spark):
    probe = fake_probe(spark)
    poll(probe)
    spark.commands.clear()

    assert set(poll(probe)) == {"query 1", "query 2", "query 3"}
    assert spark.commands == ["ask"]


def test_the_session_that_started_a_query_is_known(spark):
    assert poll(fake_probe(spark))["query 1"].facts.session == "session-1"


@of_odd_answers
def test_a_run_that_cannot_be_described_stays_active_as_it_was_last_seen(spark, odd):
    probe = fake_probe(spark)
    before = poll(probe)
    undescribed(spark, 2).answers["isActive"] = odd
    after = poll(probe, at=1)

    assert after["query 2"] is before["query 2"]
    assert after["query 1"] is not before["query 1"]
    assert probe.details.missing == {"living_run", f"run of query {query_id(2)}"}


def test_a_run_that_throws_among_the_others_is_asked_by_itself(spark):
    probe = fake_probe(spark)
    before = poll(probe)
    undescribed(spark, 2)
    spark.commands.clear()
    after = poll(probe, at=1)

    assert after["query 2"] is not before["query 2"]
    assert after["query 2"].batch_id == 3
    assert (spark.commands.count("ask"), spark.commands.count("status")) == (1, 1)


def test_a_line_that_cannot_be_read_costs_that_run_only(spark):
    probe = fake_probe(spark)
    spark.lines[query_id(2)] = spark._line(query_id(2)).replace("false", "perhaps")
    runs = poll(probe)

    assert [run.active for run in runs.values()] == [True] * 3
    assert spark.commands.count("status") == 1


@of_odd_answers
def test_a_spark_that_refuses_the_one_question_is_asked_it_again_after_a_minute(spark, odd):
    probe = fake_probe(spark)
    spark.refuse_all = odd

    assert set(poll(probe, at=0)) == {"query 1", "query 2", "query 3"}
    spark.refuse_all = None
    spark.commands.clear()
    poll(probe, at=RETRY_SECONDS - 1)
    assert "ask" not in spark.commands
    poll(probe, at=RETRY_SECONDS)
    spark.commands.clear()
    poll(probe, at=RETRY_SECONDS + 1)
    assert spark.commands == ["ask"]


def test_a_java_source_that_is_missing_costs_the_one_question_only(spark, monkeypatch, tmp_path):
    monkeypatch.setattr(driver_class, "files", lambda _: tmp_path)

    assert set(poll(fake_probe(spark))) == {"query 1", "query 2", "query 3"}


@pytest.mark.parametrize(
    "dead", [Py4JNetworkError("no answer"), ConnectionResetError(), EOFError()]
)
def test_a_jvm_that_is_gone_is_no_odd_answer(spark, dead):
    probe = fake_probe(spark)
    spark.refuse_all = dead

    with pytest.raises(type(dead)):
        poll(probe)
    assert probe.details.missing == set()


@of_odd_answers
def test_a_run_of_which_nothing_can_be_read_is_introduced_all_the_same(spark, odd):
    execution = spark.executions[query_id(2)]
    execution.answers = {**dict.fromkeys(execution.answers, odd), "isActive": True}
    spark.lines[query_id(2)] = spark._line(query_id(1)).replace("1", "2")
    facts = poll(fake_probe(spark))[query_id(2)].facts

    assert (facts.query_id, facts.run_id, facts.name) == (query_id(2), "run-2-2", None)
    assert (facts.trigger.is_known, facts.session) == (False, "")


@of_odd_answers
def test_a_death_whose_exception_cannot_be_read_is_a_failure(spark, odd):
    probe = fake_probe(spark)
    poll(probe)
    spark.end(2).answers["exception"] = odd
    run = poll(probe, at=1)["query 2"]

    assert (run.active, run.exception) == (False, "UnknownError")


@of_odd_answers
def test_a_run_that_spark_lists_no_more_has_ended_whatever_it_answers(spark, odd):
    probe = fake_probe(spark)
    poll(probe)
    spark.end(2, exception="Boom").answers["isActive"] = odd
    run = poll(probe, at=1)["query 2"]

    assert (run.active, run.exception) == (False, "Boom")


def test_a_run_that_cannot_be_described_and_is_replaced_has_ended(spark):
    probe = fake_probe(spark)
    poll(probe)
    spark.end(2, exception="Boom")
    spark.start(2, run=2)
    undescribed(spark, 2, run=2)
    report = probe.poll(lambda: 1.0)

    ends = {run.facts.run_id: run.active for run in report.runs if run.facts.name == "query 2"}
    assert ends == {"run-2-1": False, "run-2-2": True}


def test_every_death_is_reported_however_many_come_at_once():
    spark = FakeSpark()
    many = KEEP_REPORTED + 50
    for number in range(many):
        spark.start(number)
    probe = fake_probe(spark)
    poll(probe)
    for number in range(many):
        spark.end(number, exception=f"Boom {number}")
    reasons = [run.exception for run in poll(probe, at=1).values()]

    assert reasons == [f"Boom {number}" for number in range(many)]
    assert len(poll(probe, at=2)) == KEEP_REPORTED


def test_a_death_that_no_report_held_is_in_the_next(spark):
    probe = fake_probe(spark)
    poll(probe)
    spark.end(2, exception="Boom")
    channel, probe._channel = probe._channel, None
    probe._channel = FakeChannel()
    probe._channel.check = lambda _: (_ for _ in ()).throw(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        poll(probe, at=1)
    probe._channel = channel

    assert poll(probe, at=2)["query 2"].exception == "Boom"


# -- the SparkContext -------------------------------------------------------------------------


def test_a_stop_of_the_application_that_takes_long_is_its_own(spark):
    """Spark calls the context stopped while it still drains its queues."""
    probe = fake_probe(spark)
    seen = []

    def drain():
        spark.stopped = True
        seen.append((probe.context(), probe.poll(lambda: 1.0).context))

    spark.sparkContext.while_stopping = drain
    before = probe.poll(lambda: 0.0).context
    spark.sparkContext.stop()

    assert before is Context.RUNNING
    assert seen == [(Context.STOPPED_BY_APPLICATION,) * 2]
    assert probe.context() is Context.STOPPED_BY_APPLICATION


def test_a_context_that_stops_by_itself_is_not_the_applications(spark):
    probe = fake_probe(spark)
    spark.stopped = True

    assert probe.context() is Context.STOPPED
    assert probe.poll(lambda: 0.0).context is Context.STOPPED


def test_a_context_that_a_signal_stops_is_terminated(spark):
    probe = fake_probe(spark)
    spark.shutting_down = True
    assert probe.context() is Context.RUNNING
    spark.stopped = True

    assert probe.context() is Context.TERMINATED


def test_an_application_that_stops_while_a_signal_ends_the_jvm_has_stopped_it(spark):
    probe = fake_probe(spark)
    seen = []

    def drain():
        spark.stopped = spark.shutting_down = True
        seen.append(probe.context())

    spark.sparkContext.while_stopping = drain
    spark.sparkContext.stop()

    assert seen == [Context.STOPPED_BY_APPLICATION]


def test_a_driver_that_does_not_say_whether_it_shuts_down_stopped_by_itself(spark):
    probe = fake_probe(spark)
    probe._context._hooks.answers["inShutdown"] = Py4JError("refused")
    spark.stopped = True

    assert probe.context() is Context.STOPPED


def test_the_context_is_asked_again_when_a_run_has_ended_since(spark):
    """It may have ended with its context, after the answer for all."""
    probe = fake_probe(spark)
    poll(probe)
    undescribed(spark, 2)
    execution = spark.executions[query_id(2)]

    def ends():
        spark.stopped = True
        execution.answers |= {"isActive": False, "exception": spark.java(isDefined=False)}
        return False

    execution.answers["isActive"] = ends

    assert probe.poll(lambda: 1.0).context is Context.STOPPED


@pytest.mark.parametrize("refuse", [None, Py4JError("gone"), OSError(), PySparkException("odd")])
def test_a_probe_that_is_released_holds_nothing_of_spark(spark, refuse):
    channel = FakeChannel()
    probe = fake_probe(spark, channel)
    poll(probe)
    channel.refuse = refuse
    probe.release()

    assert channel.released == 1
    assert probe._queries is None
    assert probe._context._java is None
    assert probe.context() is Context.RUNNING
    spark.stopped = True
    assert probe.context() is Context.STOPPED
    with pytest.raises(RuntimeError, match="released"):
        poll(probe)
