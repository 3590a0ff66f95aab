"""Which jobs prove that a batch advances: its own, and unowned ones while it has none active."""

from __future__ import annotations

from itertools import pairwise

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from support.fake_spark import CLOSER_AFTER, FakeChannel, FakeSpark, fake_probe, poll, query_id

from querypulse.listener.probe_report import UNOWNED, JobActivity, JobCounts, Moves, SlotUse
from querypulse.listener.python_frames import ForeachBatchCall
from querypulse.listener.state.run import Delay, delay_of

SIBLINGS = range(2, 9)
BUSY = {"message": "Processing new data", "busy": True}


class BatchBesideSiblings:
    """Query 1 is in a long batch next to seven siblings; each ``poll`` examines its jobs."""

    def __init__(self, *, counted):
        self.spark = FakeSpark()
        for number in (1, *SIBLINGS):
            self.spark.start(number, **BUSY)
        self.counts = {query_id(number): JobCounts(5, 0, 20, 0) for number in (1, *SIBLINGS)}
        self.channel = FakeChannel(self.counts if counted else None)
        self.probe = fake_probe(self.spark, self.channel)
        self.at = 0.0
        poll(self.probe)

    def poll(self):
        return self.poll_of("query 1")

    def poll_of(self, name):
        self.at += CLOSER_AFTER
        return poll(self.probe, self.at)[name].work

    def moves(self, change):
        """Whether ``change`` counts as progress of the batch, by its jobs."""
        self.poll()
        before = self.poll()
        change()
        return self.poll().moved_since(before) is Moves.TASKS


@pytest.fixture(params=[True, False], ids=["counted", "tracked"])
def batch(request):
    return BatchBesideSiblings(counted=request.param)


def work_for(batch, owner, *, jobs=0, tasks=0, active=()):
    """Start jobs of ``owner``, finish tasks, and set its active jobs to ``active``."""
    if batch.channel.counts is not None:
        known = batch.counts.get(owner, JobCounts())
        batch.counts[owner] = JobCounts(
            known.jobs_started + jobs, len(active), known.tasks_completed + tasks, len(active)
        )
        return
    number = int(owner[-3:]) if owner else None
    group = batch.spark.jobs.setdefault(f"run-{number}-1" if number else "a group of the user", [])
    newest = max((job for jobs_of in batch.spark.jobs.values() for job in jobs_of), default=0)
    group.extend(range(newest + 1, newest + 1 + jobs))
    for job in active:
        batch.spark.active_jobs[job] = batch.spark.active_jobs.get(job, 0) + tasks
        group.extend({job} - set(group))


OWN = query_id(1)
OTHERS = tuple(map(query_id, SIBLINGS))


CHANGES = {
    "a job of its own starts": ({}, [(OWN, {"jobs": 1})], True),
    "tasks of its own finish": ({OWN: 1}, [(OWN, {"tasks": 3, "active": [1]})], True),
    "a thread pool's job starts, without a query": ({}, [(UNOWNED, {"jobs": 1, "tasks": 4, "active": [70]})], True),
    "tasks of one long job of a thread pool finish": ({UNOWNED: 70}, [(UNOWNED, {"tasks": 4, "active": [70]})], True),
    "nothing happens": ({}, [], False),
    "only its siblings go on": ({}, [(other, {"jobs": 3, "tasks": 40, "active": [101]}) for other in OTHERS], False),
    "its own task hangs beside other jobs": ({OWN: 1}, [(UNOWNED, {"jobs": 9, "tasks": 90, "active": [70]})], False),
}  # fmt: skip


@pytest.mark.parametrize(("active", "changes", "moves"), CHANGES.values(), ids=CHANGES)
def test_batch_moves_by_its_own_jobs_or_by_unowned_ones_while_it_has_none(
    batch, active, changes, moves
):
    for owner, job in active.items():
        work_for(batch, owner, jobs=1, active=[job])

    def change():
        for owner, work in changes:
            work_for(batch, owner, **work)

    assert batch.moves(change) is moves


@pytest.mark.parametrize("waits_outside", [True, False])
def test_unowned_jobs_are_not_those_of_a_function_that_waits_outside(
    batch, monkeypatch, waits_outside
):
    call = ForeachBatchCall(batch.spark.frame(1), "job.py:1 in load", 0.0, waits_outside)
    monkeypatch.setattr("querypulse.listener.spark.jobs.foreach_batch_calls", lambda: [call])

    def change():
        work_for(batch, UNOWNED, jobs=1, tasks=4, active=[70])

    assert batch.moves(change) is not waits_outside
    assert (delay_of(batch.poll()) is None) is waits_outside


@pytest.mark.parametrize("waits", [(True, False), (False, True), (True, True)])
def test_unowned_jobs_of_all_time_are_no_progress_when_a_wait_outside_begins_or_ends(
    batch, monkeypatch, waits
):
    work_for(batch, UNOWNED, jobs=900, tasks=4000, active=[70])
    calls = [ForeachBatchCall(batch.spark.frame(1), "job.py:1", 0.0, wait) for wait in waits]
    monkeypatch.setattr("querypulse.listener.spark.jobs.foreach_batch_calls", lambda: calls[:1])
    batch.poll()
    before = batch.poll()
    calls.pop(0)

    assert batch.poll().moved_since(before) is None


@pytest.mark.parametrize("waits_outside", [True, False])
def test_own_jobs_count_wherever_its_function_waits(batch, monkeypatch, waits_outside):
    call = ForeachBatchCall(batch.spark.frame(1), "job.py:1 in load", 0.0, waits_outside)
    monkeypatch.setattr("querypulse.listener.spark.jobs.foreach_batch_calls", lambda: [call])

    assert batch.moves(lambda: work_for(batch, OWN, jobs=1, tasks=4, active=[1]))


COUNTED = JobActivity(JobCounts(9, 0, 9), counted=True)
ACTIVE = JobCounts(0, 1)


def python(seconds, **work):
    return JobActivity(python_cpu_seconds=seconds, **work)


ACTIVITIES = {
    "jobs are counted, which were tracked": (JobActivity(JobCounts(2, 1, 3)), COUNTED, None),
    "jobs are tracked, which were counted": (COUNTED, JobActivity(JobCounts(99)), None),
    "counters restart from zero": (COUNTED, JobActivity(JobCounts(1), counted=True), None),
    "Python works": (python(1.0), python(1.002), Moves.PYTHON),
    "Python wakes up": (python(1.0), python(1.0001), None),
    "a pool has ended": (python(1.0), python(0.5), None),
    "its first poll": (python(None), python(1.0), None),
    "no call now": (python(1.0), python(None), None),
    "its job is active": (python(1.0), python(9.0, own=ACTIVE), None),
}


@pytest.mark.parametrize(("before", "now", "moves"), ACTIVITIES.values(), ids=ACTIVITIES)
def test_batch_moves_by_its_jobs_or_by_the_cpu_time_of_its_python_thread(before, now, moves):
    assert now.moved_since(before) is moves


@pytest.mark.parametrize(
    ("seconds", "used", "own", "works"),
    [
        (0.5, 0.002, JobCounts(), True),
        (30.0, 0.02, JobCounts(), True),
        (0.1, 0.0001, JobCounts(), False),
        (30.0, 0.0012, JobCounts(), False),
        (0.5, 0.002, ACTIVE, False),
    ],
    ids=["it computes", "slow requests", "it wakes up", "retries for a lock", "its job is active"],
)
def test_batch_moves_by_the_cpu_time_of_its_jvm_thread_while_it_has_no_job(
    seconds, used, own, works
):
    work = JobActivity(own, jvm_cpu_seconds=7.0 + used)

    assert work.works_in_jvm(7.0, seconds) is works
    assert not work.works_in_jvm(None, seconds)


@pytest.mark.parametrize("odd", [Py4JError("refused"), PySparkException("odd")])
def test_unowned_jobs_prove_nothing_if_own_jobs_are_unknown(odd):
    batch = BatchBesideSiblings(counted=False)
    tracker = batch.spark.sparkContext._jsc.answers["statusTracker"]
    tracker.answers["getJobIdsForGroup"] = odd

    assert not batch.moves(lambda: work_for(batch, UNOWNED, jobs=1, active=[70]))


def test_siblings_job_that_starts_during_the_poll_is_not_unowned():
    batch = BatchBesideSiblings(counted=False)
    tracker = batch.spark.sparkContext._jsc.answers["statusTracker"]

    def then_start_a_job(group):
        jobs = list(batch.spark.jobs.get(group, []))
        if group == "run-1-1":
            work_for(batch, OWN, jobs=1, active=[100 + len(jobs)])
        return jobs

    tracker.answers["getJobIdsForGroup"] = then_start_a_job
    seen = [batch.poll_of("query 2") for _ in range(4)]

    assert not any(after.moved_since(before) for before, after in pairwise(seen))


def test_status_tracker_is_used_if_the_channel_refuses_to_count():
    batch = BatchBesideSiblings(counted=False)
    batch.channel.counts = Py4JError("refused")
    batch.spark.jobs["run-1-1"] = [4]
    batch.spark.active_jobs[4] = 2

    assert batch.poll().own == JobCounts(5, 1, 2, 1)
    assert "job_counts" in batch.probe.details.missing


# -- jobs older than the counts -----------------------------------------------------------------


def attached_late(**jobs):
    """The counts begin at job 50; ``jobs`` are older active jobs by run, with finished tasks."""
    batch = BatchBesideSiblings(counted=True)
    batch.counts.clear()
    batch.channel.first_job = 50
    for number, (group, tasks) in enumerate(jobs.items(), start=1):
        batch.spark.jobs[group.replace("_", "-")] = [number]
        batch.spark.active_jobs[number] = tasks
    return batch


@pytest.mark.parametrize(
    ("group", "moves"), [("run_1_1", True), ("a_group_of_the_user", True), ("run_2_1", False)]
)
def test_batch_moves_by_jobs_from_before_attach_that_are_its_own_or_a_thread_pools(group, moves):
    batch = attached_late(**{group: 4})

    assert batch.moves(lambda: batch.spark.active_jobs.update({1: 5})) is moves
    delay = Delay.TASK_RUNNING if moves else None
    assert delay_of(batch.poll()) is delay


COUNTED_JOBS = {
    "its own older one": ({"run_1_1": 4}, JobCounts(3, 1, 9, 1)),
    "an older one of others, between its short jobs": ({"a_group_of_the_user": 4}, JobCounts(3, 0, 9, 0)),
    "a counted one that has ended, and that the tracker still lists": ({}, JobCounts()),
}  # fmt: skip


@pytest.mark.parametrize(("jobs", "counts"), COUNTED_JOBS.values(), ids=COUNTED_JOBS)
def test_counted_jobs_take_precedence_over_those_of_the_tracker(jobs, counts):
    batch = attached_late(**jobs)
    batch.counts[OWN] = counts
    if not jobs:
        batch.spark.jobs["run-1-1"], batch.spark.active_jobs[60] = [60], 2

    seen = batch.poll()
    assert (seen.own, seen.unowned, seen.counted) == (counts, JobCounts(), True)


@pytest.mark.parametrize(
    ("tracked", "scheduled", "tasks", "missing"),
    [
        (0, {1: 2}, 2, set()),
        (0, {1: 0}, 0, set()),
        (0, {}, 0, set()),
        (3, {}, 3, set()),
        (0, {1: Py4JError("refused")}, 0, {"running_tasks"}),
    ],
    ids=["only the scheduler", "neither", "no longer scheduled", "the tracker", "refused"],
)
def test_task_that_the_status_tracker_does_not_know_yet_counts(tracked, scheduled, tasks, missing):
    batch = attached_late(run_1_1=4)
    batch.spark.tracked_tasks, batch.spark.scheduled_tasks = tracked, scheduled

    assert (batch.poll().own.tasks_active, batch.probe.details.missing) == (tasks, missing)


# -- causes of a delay ------------------------------------------------------------------------


RUNS = JobCounts(5, 1, 20, 1)
WAITS = JobCounts(5, 1, 20, 0)
NONE = JobCounts(5, 0, 20, 0)


@pytest.mark.parametrize(
    ("own", "unowned", "slots", "delay"),
    [
        (RUNS, NONE, None, Delay.TASK_RUNNING),
        (NONE, RUNS, None, Delay.TASK_RUNNING),
        (WAITS, NONE, SlotUse(0), Delay.NO_EXECUTORS),
        (WAITS, NONE, SlotUse(4, 4, "other", 4), Delay.WAITING_FOR_SLOTS),
        (NONE, WAITS, SlotUse(4, 5, "other", 4), Delay.WAITING_FOR_SLOTS),
        (WAITS, RUNS, None, None),
        (WAITS, NONE, None, None),
        (WAITS, NONE, SlotUse(4), None),
        (WAITS, NONE, SlotUse(4, 3, "other", 3), None),
        (NONE, NONE, SlotUse(0), None),
        (NONE, NONE, SlotUse(4, 4, "other", 4), None),
        (JobCounts(5, 0, 20, 1), NONE, None, None),
        (JobCounts(), JobCounts(), None, None),
    ],
)
def test_batch_is_delayed_only_while_a_job_is_active(own, unowned, slots, delay):
    assert delay_of(JobActivity(own, unowned, counted=True, slots=slots)) is delay


def test_batch_whose_jobs_were_not_examined_has_no_known_delay():
    assert delay_of(None) is None


def slots_of(batch):
    batch.counts[OWN] = WAITS
    return batch.poll().slots


def test_waiting_batch_names_the_query_that_holds_the_slots():
    batch = BatchBesideSiblings(counted=True)
    assert slots_of(batch) == SlotUse(4), "free slots have no holder"
    batch.counts[query_id(2)] = JobCounts(5, 1, 20, 3)
    batch.counts[UNOWNED] = JobCounts(5, 1, 20, 1)

    assert slots_of(batch) == SlotUse(4, 4, query_id(2), 3)


def test_driver_without_executors_has_no_slots(batch):
    work_for(batch, OWN, jobs=1, active=[1])
    batch.spark.slots = 0
    batch.spark.sparkContext._jsc.answers["statusTracker"].answers["getStageInfo"] = None
    if batch.channel.counts is not None:
        batch.counts[OWN] = WAITS

    assert batch.poll().slots == SlotUse(0)


def test_slots_are_read_only_while_a_job_waits_and_once_for_all_runs():
    batch = BatchBesideSiblings(counted=True)
    reads = []
    for waiting in ([], [1], [1, *SIBLINGS]):
        for number in (1, *SIBLINGS):
            batch.counts[query_id(number)] = WAITS if number in waiting else RUNS
        batch.poll()
        reads.append(batch.spark.commands.count("maxNumConcurrentTasks"))

    assert reads == [0, 1, 2]


@pytest.mark.parametrize("odd", [Py4JError("refused"), PySparkException("odd"), "no number"])
def test_uncountable_slots_cost_only_this_detail(odd):
    batch = BatchBesideSiblings(counted=True)
    batch.spark.sparkContext._jsc.answers["sc"].answers["maxNumConcurrentTasks"] = odd

    assert slots_of(batch) is None
    assert batch.poll().own == WAITS
    assert batch.probe.details.missing == {"slots"}


# -- cost -------------------------------------------------------------------------------------


def lines_of(monkeypatch, spark, numbers):
    """Each of these queries is in a ``foreachBatch`` call, on its own line."""
    calls = [
        ForeachBatchCall(spark.frame(number), f"job.py:{number} in write", 0.5 * number, False)
        for number in numbers
    ]
    monkeypatch.setattr("querypulse.listener.spark.jobs.foreach_batch_calls", lambda: calls)


def busy_driver(monkeypatch, queries, *, counted=True):
    spark = FakeSpark()
    channel = FakeChannel({} if counted else None)
    for number in range(1, queries + 1):
        spark.start(number, **BUSY)
    lines_of(monkeypatch, spark, range(queries, 0, -1))
    probe = fake_probe(spark, channel)
    poll(probe)
    spark.commands.clear()
    return spark, channel, probe


def test_each_query_gets_the_line_of_its_own_batch(monkeypatch):
    _, _, probe = busy_driver(monkeypatch, 3)
    poll(probe, CLOSER_AFTER)
    runs = poll(probe, 2 * CLOSER_AFTER)

    assert {name: run.work.python_line for name, run in runs.items()} == {
        f"query {number}": f"job.py:{number} in write" for number in (1, 2, 3)
    }


def test_separately_polled_run_gets_its_line(monkeypatch):
    spark, _, probe = busy_driver(monkeypatch, 3)
    spark.refuse_all = Py4JError("refused")
    probe = fake_probe(spark)
    poll(probe)
    poll(probe, CLOSER_AFTER)

    assert poll(probe, 2 * CLOSER_AFTER)["query 2"].work.python_line == "job.py:2 in write"


@pytest.mark.parametrize("counted", [True, False])
def test_examining_jobs_costs_the_same_for_each_run(monkeypatch, counted):
    def cost(queries):
        spark, _, probe = busy_driver(monkeypatch, queries, counted=counted)
        spark.active_jobs[70] = 1
        poll(probe, CLOSER_AFTER)
        spark.commands.clear()
        poll(probe, 2 * CLOSER_AFTER)
        return len(spark.commands)

    assert cost(40) - cost(30) == cost(20) - cost(10)
    assert cost(40) <= 40 * 12


def test_jobs_are_counted_once_per_poll_and_every_half_interval_while_a_run_is_due(monkeypatch):
    spark, channel, probe = busy_driver(monkeypatch, 5)
    shown = [
        (channel.counted, poll(probe, at * CLOSER_AFTER)["query 1"].work)
        for at in (0.9, 1.0, 1.4, 1.5)
    ]
    spark.start(1, batch=4, **BUSY)
    work = poll(probe, 1.6 * CLOSER_AFTER)["query 1"].work

    assert ([counted for counted, _ in shown], channel.counted) == ([0, 0, 1, 1], 2)
    none, first, same, second = (seen for _, seen in shown)
    assert none is None
    assert first is same is not second
    assert work is None, "the next batch has just begun"
