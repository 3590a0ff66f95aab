"""Why is it slow: what an alert says as its likely cause, and more often that it says nothing."""

from __future__ import annotations

from support.rules.stories import later, topic
from support.story import Story, run, source

from querypulse.listener.foresight.operators import StateOperator
from querypulse.listener.foresight.phases import Phase
from querypulse.listener.foresight.resources import Heap
from querypulse.listener.foresight.tasks import BatchTasks, QueryTasks, StageSpread, TaskSums
from querypulse.listener.probe_report import JobCounts, LongTask, ProbeReport

USUAL = {
    "latestOffset": 0.5,
    "walCommit": 0.2,
    "getBatch": 0.1,
    "queryPlanning": 0.4,
    "addBatch": 18.0,
    "commitOffsets": 0.2,
}
MINUTELY = "ProcessingTimeTrigger(60000)"
GROWING = (*range(30, 280, 10),)
ONE_LONG = LongTask(12, 7, "host-3", 200.0, 3.0)


def did(batch, run=60.0, *, waited=0.0, longest=5.0, tasks=50, **sums):
    """What the tasks of a batch did; they shuffle as much as usual."""
    sums = {"shuffle_read_bytes": 10**8, "shuffle_written_bytes": 10**8, **sums}
    spread = StageSpread(12, tasks, 3.0, longest, 7, "host-3")
    of_batch = BatchTasks(batch, TaskSums(tasks=tasks, run_seconds=run, **sums), waited, spread)
    return QueryTasks(of_batch.sums, (of_batch,))


@later
def growing(
    *extra,
    usual=30,
    rows=10,
    trigger=MINUTELY,
    lengths=GROWING,
    tasks=None,
    restarted=False,
    commit=0.0,
):
    """Batches of 19 s; then longer ones, and all that is longer is in the phases ``extra``.

    ``tasks`` says what the tasks of a batch do that takes so many seconds more. It may have been
    restarted before the first long one.
    """
    story, at = Story().started(at=0), 0.0
    for number, longer in enumerate((*[0.0] * usual, *(length - 19.4 for length in lengths))):
        if restarted and number == usual:
            story = story.ended(at=at).started(at=at)
        story = story.seen(trigger=trigger, batch=number, at=at)
        phases = {**USUAL}
        for phase in extra:
            phases[phase] += longer / len(extra)
        seconds = sum(phases.values())
        at += seconds
        of_rows = rows if longer else 10
        operators = (StateOperator("dedupe", commit_seconds=commit * (60 + 4 * longer)),)
        story = story.commit(
            batch=number,
            at=at,
            seconds=seconds,
            phase_seconds=phases,
            input_rows=of_rows,
            operators=operators if commit else (),
        )
        if tasks is not None:
            story = story.seen(
                trigger=trigger, batch=number + 1, at=at + 0.1, finished=tasks(number, longer)
            )
        at += max(0.2, 60 - seconds)
    return story


@later
def in_flight(*, until=400.0, phase=None, usual=12, story=None, calm_until=0.0, **fields):
    """After batches of 19 s, one that has been in flight since 240 s; its tasks finish."""
    story = story or Story().started(at=0)
    for number in range(usual):
        story = story.commit(
            batch=number, at=20.0 * (number + 1), seconds=19.4, phase_seconds=USUAL
        )
    at = 240.0
    while at <= until:
        own = JobCounts(9, 1, round(at), 1, fields.get("longest"))
        polled = {name: value for name, value in fields.items() if name != "longest"}
        story = story.works(batch=usual, at=at, own=own, phase=phase, **polled)
        at += 5.0
    return story


def skewed(number, longer):
    return did(number, 60.0 + longer, longest=5.0 + longer)


def collecting(number, longer):
    return did(number, 60.0 + 4 * longer, gc_seconds=1.0 + 3.5 * longer)


def waiting_for_blocks(number, longer):
    return did(number, 60.0 + 4 * longer, shuffle_wait_seconds=1.0 + 3.5 * longer)


def spilling(number, longer):
    return did(number, 60.0 + 4 * longer, spilled_bytes=round(1e8 * longer))


def always_spilling(number, longer):
    return did(number, 60.0 + 4 * longer, spilled_bytes=4 * 10**9)


def more_data_spilled(number, longer):
    """So many more rows that they do not fit any more: each takes as long as before."""
    size = round(2e8 * (60 + 4 * longer) / 60)
    return did(
        number, 60.0 + 4 * longer, spilled_bytes=round(1e8 * longer), shuffle_read_bytes=size
    )


def waiting(number, longer):
    return did(number, waited=longer)


def a_little_of_each(number, longer):
    part = 0.3 * 4 * longer
    return did(
        number,
        60.0 + 4 * longer,
        longest=5.0 + 0.3 * longer,
        gc_seconds=part,
        shuffle_wait_seconds=part,
        waited=0.3 * longer,
    )


def always_skewed(number, longer):
    """One task takes most of the time, as it did before: all rows take longer."""
    return did(number, 60.0 + 4 * longer, longest=3.0 + 0.8 * (18.0 + longer))


def always_waiting(number, longer):
    return did(number, 60.0 + 4 * longer, waited=0.7 * (18.0 + longer))


def always_collecting(number, longer):
    run = 60.0 + 4 * longer
    return did(number, run, gc_seconds=0.6 * run)


def always_waiting_for_blocks(number, longer):
    run = 60.0 + 4 * longer
    return did(number, run, shuffle_wait_seconds=0.6 * run)


def two_tasks(number, longer):
    return did(number, 60.0 + longer, longest=5.0 + longer, tasks=2)


FALLING_BEHIND, SLOW, LAGGING = (
    "StreamingQueryFallingBehind",
    "StreamingBatchSlow",
    "StreamingQueryLagging",
)


@later
def lagging(*, seconds=19.4, phases=USUAL, since=30, collects=None, read_each=1):
    """Batches that take these seconds ``since`` one of them, while a lag rises.

    In each of these, the driver ``collects`` for so many seconds; its heap is read once in so many.
    """
    story = Story().started(at=0)
    at = 0.0
    for number in range(60):
        is_late = number >= since
        at += seconds if is_late else 19.4
        story = story.commit(
            batch=number,
            at=at,
            seconds=seconds if is_late else 19.4,
            phase_seconds=phases if is_late else USUAL,
            sources=(source(topic(100 * number), topic(100 * number + 10_000 + 999 * number)),),
        )
        if collects is not None and number % read_each == read_each - 1:
            story.state.apply_probe(heap_read(at, 0.1 * number + is_late * collects * number))
    return story


def heap_read(at, gc_seconds):
    heap = Heap(1, 1, 2, gc_seconds, collections=round(at), at=at)
    return ProbeReport(at, at, (run(batch=1),), heap=heap)


CAUSES: dict[str, tuple[object, str, str]] = {
    # What is said.
    "a source lists for longer and longer": (
        growing("latestOffset"),
        FALLING_BEHIND,
        "source_listing: asking the source (latestOffset, getBatch) took 4 min, usually 0.6 s",
    ),
    "plans grow": (
        growing("queryPlanning"),
        FALLING_BEHIND,
        "planning: planning the batch (queryPlanning) took 4 min, usually 0.4 s",
    ),
    "the store of the checkpoint is slow": (
        growing("walCommit", "commitOffsets"),
        FALLING_BEHIND,
        "slow_commit: writing to the checkpoint (walCommit, commitOffsets) took 4 min, "
        "usually 0.4 s",
    ),
    "one task takes longer and longer": (
        growing("addBatch", tasks=skewed),
        FALLING_BEHIND,
        "skew: one task of stage 12 takes 4 min, the median is 3 s (partition 7 on host-3)",
    ),
    "executors collect": (
        growing("addBatch", tasks=collecting),
        FALLING_BEHIND,
        "garbage_collection: collections take 83% of the time of its tasks",
    ),
    "tasks wait for blocks": (
        growing("addBatch", tasks=waiting_for_blocks),
        FALLING_BEHIND,
        "shuffle_wait: its tasks wait 83% of their time for blocks of other executors",
    ),
    "tasks spill what fitted before": (
        growing("addBatch", tasks=spilling),
        FALLING_BEHIND,
        "spill: its tasks wrote 25 GB to disk, because memory was too small; "
        "they usually take 94% less time for as much data",
    ),
    "stages wait for slots": (
        growing("addBatch", tasks=waiting),
        FALLING_BEHIND,
        "waiting_for_slots: its stages waited 4 min until a slot was free",
    ),
    "a restart on the same checkpoint keeps what is usual": (
        growing("latestOffset", restarted=True),
        FALLING_BEHIND,
        "source_listing: asking the source (latestOffset, getBatch) took 4 min, usually 0.6 s",
    ),
    "a query lags since its commits take long": (
        lagging(seconds=59.4, phases={**USUAL, "walCommit": 40.2}),
        LAGGING,
        "slow_commit: writing to the checkpoint (walCommit, commitOffsets) took 40.4 s, "
        "usually 0.4 s",
    ),
    "one batch after many usual ones has a slow commit": (
        lagging(seconds=59.4, phases={**USUAL, "walCommit": 40.2}, since=59),
        LAGGING,
        "slow_commit: writing to the checkpoint (walCommit, commitOffsets) took 40.4 s, "
        "usually 0.4 s",
    ),
    "a query lags since the driver collects": (
        lagging(seconds=59.4, phases={**USUAL, "addBatch": 58.0}, collects=30.0),
        LAGGING,
        "garbage_collection: collections stop it for 28.2 s, in the driver",
    ),
    "a batch in flight has a task that runs on": (
        in_flight(longest=ONE_LONG),
        SLOW,
        "skew: one task of stage 12 takes 3 min, the median is 3 s (partition 7 on host-3)",
    ),
    "a batch in flight writes to its checkpoint": (
        in_flight(phase=Phase.COMMIT_OFFSETS),
        SLOW,
        "slow_commit: writing to the checkpoint (walCommit, commitOffsets) took 2 min, "
        "usually 0.4 s",
    ),
    # Where nothing is said.
    "the driver collects in some of the time between two readings": (
        lagging(
            seconds=59.4, phases={**USUAL, "addBatch": 58.0}, since=58, collects=30.0, read_each=3
        ),
        LAGGING,
        "",
    ),
    "batches have more rows": (growing("addBatch", rows=200), FALLING_BEHIND, ""),
    "a sink, or code, is slow": (growing("addBatch"), FALLING_BEHIND, ""),
    "tasks run longer, all of them": (
        growing("addBatch", tasks=lambda number, longer: did(number, 60.0 + 4 * longer)),
        FALLING_BEHIND,
        "",
    ),
    "a little of everything": (
        growing("addBatch", tasks=a_little_of_each),
        FALLING_BEHIND,
        "",
    ),
    "tasks spill as much as usual": (
        growing("addBatch", tasks=always_spilling),
        FALLING_BEHIND,
        "",
    ),
    "tasks spill, because there are more rows": (
        growing("addBatch", rows=200, tasks=more_data_spilled),
        FALLING_BEHIND,
        "",
    ),
    "one task always takes most of the time": (
        growing("addBatch", tasks=always_skewed),
        FALLING_BEHIND,
        "",
    ),
    "stages always wait for slots": (growing("addBatch", tasks=always_waiting), FALLING_BEHIND, ""),
    "executors always collect": (growing("addBatch", tasks=always_collecting), FALLING_BEHIND, ""),
    "tasks always wait for blocks": (
        growing("addBatch", tasks=always_waiting_for_blocks),
        FALLING_BEHIND,
        "",
    ),
    "state is committed for as long a part of the time as ever": (
        growing(
            "addBatch", tasks=lambda number, longer: did(number, 60.0 + 4 * longer), commit=0.8
        ),
        FALLING_BEHIND,
        "",
    ),
    "a batch in flight, all of whose tasks run on, as with a sink that is slow": (
        in_flight(longest=LongTask(12, 7, "host-3", 200.0, 3.0, as_long=3)),
        SLOW,
        "",
    ),
    "a stage of two tasks has no median": (
        growing("addBatch", tasks=two_tasks),
        FALLING_BEHIND,
        "",
    ),
    "the time is in all phases": (
        growing("latestOffset", "queryPlanning", "walCommit", "addBatch"),
        FALLING_BEHIND,
        "",
    ),
    "a query is as slow as ever": (
        lagging(seconds=59.4, phases={**USUAL, "walCommit": 40.2}, since=0),
        LAGGING,
        "",
    ),
    "a query is slow since it was new": (
        lagging(seconds=59.4, phases={**USUAL, "walCommit": 40.2}, since=2),
        LAGGING,
        "",
    ),
    "a query lags, and its batches take as long as usual": (lagging(), LAGGING, ""),
    "a query lags, and its batches take a quarter longer": (
        lagging(seconds=24.4, phases={**USUAL, "walCommit": 5.2}),
        LAGGING,
        "",
    ),
    "a query lags, and the driver collects as much as usual": (
        lagging(seconds=59.4, phases={**USUAL, "addBatch": 58.0}, collects=0.0),
        LAGGING,
        "",
    ),
    "a batch in flight, of which nothing is known": (in_flight(), SLOW, ""),
    "a batch in flight, whose longest task takes as long as the others": (
        in_flight(longest=LongTask(12, 7, "host-3", 5.0, 3.0)),
        SLOW,
        "",
    ),
    "a batch in flight, whose longest task has no others": (
        in_flight(longest=LongTask(12, 7, "host-3", 200.0, None)),
        SLOW,
        "",
    ),
    "a batch in flight of a query that has committed twice": (
        in_flight(usual=2, longest=ONE_LONG),
        SLOW,
        "",
    ),
}
"""Words: a story, the alert that it ends with, and its likely cause; empty if none is named."""
