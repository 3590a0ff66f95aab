"""The state of all live runs is read in one call, or run by run; errors never blind the probe."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError, Py4JNetworkError

from querypulse.listener.spark.execution import (
    RETRY_SECONDS,
    LivingRun,
    LivingRuns,
    RunStatus,
    SparkLivingRuns,
    UnreadRun,
    parse_living_runs,
)
from querypulse.listener.spark.jvm import FIELD, RECORD, OptionalCalls

MESSAGE = "Waiting for data to arrive"
STATUS = RunStatus(MESSAGE, is_data_available=False, is_trigger_active=True)


def line(*, query="id", run="run", active="true", flag="false", batch="7", session="", offsets="", idle="", cpu="", stopping="false"):  # fmt: skip
    return (
        FIELD.join(
            (
                query,
                run,
                active,
                stopping,
                cpu,
                MESSAGE,
                flag,
                "true",
                batch,
                session,
                offsets,
                idle,
            )
        )
        + RECORD
    )


def answer(*lines, stopped="false"):
    return "".join(lines) + stopped + RECORD


def parsed(*lines):
    return parse_living_runs(answer(*lines)).runs


def test_each_run_is_keyed_by_its_query_id():
    one = line(
        query="a", run="1", offsets="{x: 5}", session="88", cpu="1500000000", stopping="true"
    )
    other = line(query="b", active="false", idle="{}")

    assert parsed(one, other) == {
        "a": LivingRun("1", True, STATUS, 7, 88, "{x: 5}", "", 1.5, True),
        "b": LivingRun("run", False, STATUS, 7, None, "", "{}"),
    }


def test_answer_without_queries_is_empty():
    assert parse_living_runs(answer()) == LivingRuns({}, False)


def test_continuous_run_has_no_batch():
    assert parsed(line(batch=""))["id"].batch_id is None


@pytest.mark.parametrize("stopped", [True, False])
def test_answer_says_whether_the_context_is_stopped(stopped):
    text = answer(line(), stopped=str(stopped).lower())

    assert parse_living_runs(text).context_stopped is stopped


@given(st.text(st.characters(exclude_characters=FIELD + RECORD)))
def test_offsets_are_returned_unchanged(offsets):
    assert parsed(line(offsets=offsets))["id"].offsets == offsets


def test_malformed_line_does_not_affect_the_others():
    lines = [
        line(batch="seven"),
        line(session="x"),
        line(flag=""),
        line(active="perhaps"),
        line(stopping="perhaps"),
        line(cpu="fast"),
        line(offsets=FIELD),
        FIELD.join(("id", "run", "java.lang.IllegalStateException")) + RECORD,
        FIELD.join(("id", "run")) + RECORD,
    ]

    for odd in lines:
        runs = parsed(line(query="a"), odd, line(query="b"))
        assert isinstance(runs["id"], UnreadRun)
        assert (runs["id"].run_id, runs["a"], runs["b"]) == ("run", runs["b"], runs["a"])


def test_run_that_threw_names_its_exception():
    text = FIELD.join(("id", "run", "java.lang.IllegalStateException")) + RECORD

    assert parsed(text)["id"] == UnreadRun("run", "java.lang.IllegalStateException")


def test_malformed_answer_is_rejected():
    for text in (
        "",
        "id",
        "id" + RECORD,
        answer(line(), "id" + RECORD),
        line(),
        answer(stopped=""),
    ):
        with pytest.raises(ValueError, match=r"values|neither true nor false"):
            parse_living_runs(text)


class Jvm:
    """A JVM with a compiler; its compiled class returns or raises the given answers in turn."""

    def __init__(self, *answers, refuse=None):
        self.java = MagicMock()
        loader = self.java.lang.Thread.currentThread().getContextClassLoader()
        compiler = loader.loadClass("any name").newInstance()
        self.cook = compiler.cook
        self.cook.side_effect = refuse
        compiled = compiler.getClassLoader().loadClass("any name")
        compiled.newInstance().ask.side_effect = answers


def living_runs(jvm):
    details = OptionalCalls()
    return SparkLivingRuns(jvm, object(), object(), details, has_context=True), details


def test_class_is_compiled_once():
    jvm = Jvm(answer(line()), answer(line(batch="8")))
    runs, details = living_runs(jvm)

    assert [runs.ask(at).runs["id"].batch_id for at in (0, 1)] == [7, 8]
    assert jvm.cook.call_count == 1
    assert details.missing == set()


def test_failed_compilation_is_retried_once_a_minute():
    jvm = Jvm(refuse=Py4JError("java.lang.ClassNotFoundException"))
    runs, details = living_runs(jvm)

    assert [runs.ask(at) for at in range(int(RETRY_SECONDS) + 1)] == [None] * 61
    assert jvm.cook.call_count == 2
    assert details.missing == {"living_runs"}


def test_failed_call_is_retried():
    jvm = Jvm(Py4JError("a run went away"), answer(line()))
    runs, _ = living_runs(jvm)

    assert runs.ask(0) is None
    assert runs.ask(RETRY_SECONDS).runs["id"].batch_id == 7
    assert jvm.cook.call_count == 1


def test_lost_jvm_is_raised():
    runs, details = living_runs(Jvm(Py4JNetworkError("Answer from Java side is empty")))

    with pytest.raises(Py4JNetworkError):
        runs.ask(0)
    assert details.missing == set()
