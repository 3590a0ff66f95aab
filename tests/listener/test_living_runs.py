"""The state of all live runs is read in one call, or run by run; errors never blind the probe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querypulse.listener.spark.execution import LivingRun, UnreadRun, parse_living_runs
from querypulse.listener.spark.jvm import FIELD, RECORD

MESSAGE = "Waiting for data to arrive"
STATUS = (MESSAGE, False, True)


def line(*, query="id", run="run", active="true", flag="false", batch="7", session="", offsets="", idle="", cpu="", stopping="false"):  # fmt: skip
    fields = query, run, active, stopping, cpu, MESSAGE, flag, "true", batch, session, offsets, idle
    return FIELD.join(fields) + RECORD


def answer(*lines, stopped="false"):
    return "".join(lines) + stopped + RECORD


def parsed(*lines):
    return parse_living_runs(answer(*lines))[0]


def test_answer_describes_each_run_and_whether_the_context_is_stopped():
    first = line(
        query="a", run="1", offsets="{x: 5}", session="88", cpu="1500000000", stopping="true"
    )
    other = line(query="b", active="false", idle="{}")
    continuous = line(query="c", batch="")
    threw = FIELD.join(("d", "run", "java.lang.IllegalStateException")) + RECORD

    assert parsed(first, other, continuous, threw) == {
        "a": LivingRun("1", True, *STATUS, 7, 88, "{x: 5}", "", 1.5, True),
        "b": LivingRun("run", False, *STATUS, 7, None, "", "{}"),
        "c": LivingRun("run", True, *STATUS, None),
        "d": UnreadRun("run", "java.lang.IllegalStateException"),
    }
    assert [parse_living_runs(answer(stopped=text)) for text in ("true", "false")] == [
        ({}, True),
        ({}, False),
    ]


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
