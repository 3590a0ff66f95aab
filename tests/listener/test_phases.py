"""Which batches of a query are kept, to know what is usual."""

from __future__ import annotations

from support.story import progress

from querypulse.listener.foresight.phases import MOST, follow_phases, follow_tasks
from querypulse.listener.foresight.tasks import BatchTasks, QueryTasks, TaskSums


def followed(*ids):
    batches = {}
    for batch_id in ids:
        batches = follow_phases(batches, progress(batch=batch_id))
    return batches


def test_of_ten_thousand_batches_the_newest_and_a_few_of_all_times_are_kept():
    ids = [batch.batch_id for batch in followed(*range(10_000)).values()]

    assert ids[0] == 0
    assert ids[-8:] == [*range(9992, 10_000)]
    assert len(ids) <= MOST
    assert all(any(begin <= batch < 2 * begin for batch in ids) for begin in (2500, 5000))


def test_ids_that_begin_again_keep_their_order_and_their_bound():
    ids = [batch.batch_id for batch in followed(*[*range(100)] * 20).values()]

    assert len(ids) <= MOST
    assert ids[-8:] == [*range(92, 100)]


def test_tasks_of_a_batch_that_ran_twice_are_those_of_its_newest_run():
    first = QueryTasks(batches=(BatchTasks(1, TaskSums(run_seconds=5.0)),))
    second = QueryTasks(batches=(BatchTasks(1, TaskSums(run_seconds=7.0)),))
    batches = follow_tasks(followed(0, 1), first)
    batches = follow_phases(batches, progress(batch=1))
    for _ in range(2):
        batches = follow_tasks(batches, second)

    assert [batch.run_seconds for batch in batches.values()] == [None, 5.0, 7.0]
    assert follow_tasks(batches, second) is batches
