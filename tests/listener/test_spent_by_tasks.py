"""What a query has spent goes on over its runs, never falls, and is counted for one query only."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace
from support.fake_spark import FakeChannel, FakeSpark, fake_probe, poll, query_id
from support.story import Story, run

from querypulse.listener.foresight.tasks import QueryTasks, TaskSums, follow_sums
from querypulse.listener.probe_report import UNOWNED


def sums(cpu_seconds):
    return TaskSums(tasks=int(cpu_seconds), cpu_seconds=cpu_seconds)


def finished(cpu_seconds):
    return QueryTasks(sums(cpu_seconds))


def polled(story, *cpu_seconds, number=1, at=1.0, query="a", **facts):
    """A poll a second of a run of which that was counted; None where nothing was."""
    for index, seconds in enumerate(cpu_seconds):
        tasks = None if seconds is None else finished(seconds)
        seen = run(query, number, batch=0, finished=tasks)
        story = story.probe(replace(seen, facts=replace(seen.facts, **facts)), at=at + index)
    return story


def spent(story, query="a"):
    known = story.query(query).history.spent
    return None if known is None else known.total.cpu_seconds


SPENT = {
    "nothing is counted": ([[None, None]], None),
    "it grows": ([[10.0, 10.0, 25.0]], 25.0),
    "a poll does not know it": ([[10.0, None, 25.0]], 25.0),
    "the next run of the same id goes on": ([[10.0], [10.0, 25.0]], 25.0),
    "the next run is not counted yet": ([[10.0], [None]], 10.0),
    "nothing was polled of the run before": ([[], [10.0]], 10.0),
    "counting began again": ([[10.0, 4.0, 5.0]], 15.0),
    "counting began again between two runs": ([[10.0], [4.0, 6.0]], 16.0),
}


@pytest.mark.parametrize(("runs", "cpu_seconds"), SPENT.values(), ids=SPENT)
def test_query_has_spent_what_all_its_runs_have(runs, cpu_seconds):
    story = Story()
    for number, polls in enumerate(runs, 1):
        at = 100.0 * number
        story = polled(story.started(at=at), *polls, number=number, at=at + 1).ended(at=at + 50)

    assert spent(story) == cpu_seconds


def test_query_that_takes_over_a_checkpoint_does_not_count_what_the_one_before_has_spent():
    """The id is that of the checkpoint, and so are the sums."""
    story = polled(Story().started(at=0), 10.0).ended(at=2).takes("b", at=3)
    story = polled(story, 10.0, 14.0, at=4, query="b", query_id="id-a")

    assert (spent(story, "a"), spent(story, "b")) == (10.0, 4.0)


def test_new_checkpoint_has_a_new_id_whose_sums_are_added():
    """Its id in Spark differs, and its name is the same."""
    story = polled(Story().started(at=0), 10.0).ended(at=2)
    story = polled(story, 4.0, 6.0, number=2, at=3, query_id="id-new")

    assert spent(story) == 16.0


@given(st.lists(st.tuples(*[st.integers(min_value=0, max_value=9)] * 8), max_size=20))
def test_sums_of_all_runs_never_fall_and_never_exceed_what_was_counted(answers):
    known, totals = None, [TaskSums()]
    for answer in answers:
        known = follow_sums(known, TaskSums(*answer))
        totals.append(known.total)

    for before, after in pairwise(totals):
        assert all(then <= now for then, now in zip(astuple(before), astuple(after), strict=True))
    for index, total in enumerate(astuple(totals[-1])):
        assert total <= sum(answer[index] for answer in answers)


@pytest.mark.parametrize("refused", [False, True])
def test_each_poll_has_the_sums_of_all_runs_and_those_of_no_query(refused):
    spark, channel = FakeSpark(), FakeChannel()
    spark.start(1)
    spark.start(2)
    channel.sums = None if refused else {query_id(1): finished(7.0), UNOWNED: finished(3.0)}
    probe = fake_probe(spark, channel)
    runs = poll(probe)

    known = [runs[name].tasks for name in ("query 1", "query 2")]
    assert known == ([None, None] if refused else [finished(7.0), None])
    assert probe.poll(lambda: 1.0).unowned_tasks == (None if refused else sums(3.0))


def test_run_that_has_ended_has_the_sums_of_its_last_tasks():
    spark, channel = FakeSpark(), FakeChannel()
    spark.start(1)
    channel.sums = {query_id(1): finished(7.0)}
    probe = fake_probe(spark, channel)
    poll(probe)
    del spark.executions[query_id(1)]
    channel.sums = {query_id(1): finished(9.0)}

    assert poll(probe, 1.0)["query 1"].tasks == finished(9.0)
