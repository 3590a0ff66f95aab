"""What all living runs say at once is read, or asked for otherwise; it never blinds the probe."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JError, Py4JNetworkError

from querypulse.listener.details import Details
from querypulse.listener.living_runs import (
    FIELD,
    RUN,
    LivingRun,
    Status,
    parse_living_runs,
)
from querypulse.listener.spark_living_runs import COMPILER, SparkLivingRuns

STATUS = Status("Waiting for data to arrive", is_data_available=False, is_trigger_active=False)
JSON = '{"message":"Waiting for data to arrive","isDataAvailable":false,"isTriggerActive":false}'


def line(*, query="id", run="run", active="true", status=JSON, batch="7", offsets="", idle=""):
    return FIELD.join((query, run, active, status, batch, offsets, idle)) + RUN


def test_each_run_is_known_by_its_querys_id():
    text = line(query="a", run="1", offsets="{x: 5}") + line(query="b", active="false", idle="{}")

    assert parse_living_runs(text) == {
        "a": LivingRun("1", True, STATUS, 7, "{x: 5}", ""),
        "b": LivingRun("run", False, STATUS, 7, "", "{}"),
    }


def test_where_no_query_lives_there_is_none():
    assert parse_living_runs("") == {}


def test_continuous_has_no_batch():
    assert parse_living_runs(line(batch=""))["id"].batch_id is None


@given(st.text(st.characters(exclude_characters=FIELD + RUN)))
def test_whatever_offsets_hold_is_told_as_it_is(offsets):
    assert parse_living_runs(line(offsets=offsets))["id"].offsets == offsets


@pytest.mark.parametrize(
    "text", ["id" + RUN, line(batch="seven"), line(status="{}"), line(status="Waiting")]
)
def test_what_is_no_such_answer_is_refused(text):
    with pytest.raises(ValueError, match=r"values|literal|missing|malformed"):
        parse_living_runs(text)


class Jvm:
    """A JVM with a compiler, whose class answers or refuses, one after another."""

    def __init__(self, *answers, refuse=None):
        self.java = MagicMock()
        loader = self.java.lang.Thread.currentThread().getContextClassLoader()
        compiler = loader.loadClass(COMPILER).newInstance()
        self.cook = compiler.cook
        self.cook.side_effect = refuse
        compiled = compiler.getClassLoader().loadClass("any name")
        compiled.newInstance().tell.side_effect = answers


def living_runs(jvm):
    details = Details()
    return SparkLivingRuns(jvm, object(), 4, details), details


def test_the_class_is_compiled_once():
    jvm = Jvm(line(), line(batch="8"))
    runs, details = living_runs(jvm)

    assert [runs.tell()["id"].batch_id for _ in range(2)] == [7, 8]
    assert jvm.cook.call_count == 1
    assert details.missing == set()


def test_where_it_cannot_be_compiled_it_is_not_tried_again():
    jvm = Jvm(refuse=Py4JError("java.lang.ClassNotFoundException"))
    runs, details = living_runs(jvm)

    assert [runs.tell() for _ in range(3)] == [None] * 3
    assert jvm.cook.call_count == 1
    assert details.missing == {"living_runs"}


def test_what_is_refused_once_is_asked_again():
    runs, _ = living_runs(Jvm(Py4JError("a run went away"), line()))

    assert runs.tell() is None
    assert runs.tell()["id"].batch_id == 7


def test_a_jvm_that_is_gone_is_no_refusal():
    runs, details = living_runs(Jvm(Py4JNetworkError("Answer from Java side is empty")))

    with pytest.raises(Py4JNetworkError):
        runs.tell()
    assert details.missing == set()
