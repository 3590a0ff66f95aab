"""The phases of a query's batches, and what is usual for them: why it is slow is read from these.

A batch is kept as a few numbers when it commits, and nothing is computed then. The newest batches
are all kept, older ones further and further apart, so that a long slowdown leaves what was before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import islice, pairwise
from statistics import median

import msgspec
from msgspec.structs import replace

from ..events import Progress
from .operators import commit_seconds
from .tasks import BatchTasks, QueryTasks, StageSpread

MOST = 32
"""So many batches are kept at most ..."""
THINNED = 8
"""... of which so many are dropped at once, none of them among so many newest ones."""
KEPT_TASKS = 2
"""So many batches ``QueryTasks`` has."""
LEAST = 4
"""So many batches show what is usual."""
LEAST_WITH_TASKS = 2
"""Polls may show the tasks of a few of them only."""
SLOW = 1.5
"""A batch that takes this many times as long as usual is slow."""
LEAST_EXCESS_SECONDS = 0.5
SKEWED = 4.0
"""A task that takes this many times the median of its stage is not one of many."""
LEAST_TASKS = 3
"""So many tasks of a stage have a median."""


class Phase(str, Enum):
    """A phase of a batch, as ``durationMs`` names it (``MicroBatchExecution``), in their order."""

    LATEST_OFFSET = "latestOffset"
    WAL_COMMIT = "walCommit"
    GET_BATCH = "getBatch"
    PLANNING = "queryPlanning"
    ADD_BATCH = "addBatch"
    COMMIT_OFFSETS = "commitOffsets"


_NAMES = tuple(phase.value for phase in Phase)


class BatchPhases(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One batch: its rows, how long it took, and how long each ``Phase``; unknown ones None."""

    batch_id: int
    rows: int
    seconds: float
    phases: tuple[float | None, ...]
    run_seconds: float | None = None
    """Of its tasks, like what follows; None where no poll has shown them after it ended."""
    shuffled_bytes: int = 0
    """Read and written, which says how much work it was."""
    spilled_bytes: int = 0
    gc_part: float = 0.0
    """Of the time of its tasks, like the next."""
    shuffle_wait_part: float = 0.0
    waited_part: float = 0.0
    """Of ``addBatch``, for slots; like the next."""
    skew_part: float = 0.0
    state_commit_seconds: float = 0.0
    """Of all tasks together; its progress says it."""

    @property
    def state_commit_part(self) -> float:
        """Of the time of its tasks."""
        return part(self.state_commit_seconds, self.run_seconds or 0.0)

    def of(self, *phases: Phase) -> float:
        """The seconds of these phases together; an unknown one counts 0."""
        together = (self.phases[_NAMES.index(phase.value)] for phase in phases)
        return sum(seconds or 0.0 for seconds in together)


Batches = dict[int, BatchPhases]
"""By their number as they came, oldest first: a batch may run again, and ids may go back."""


def follow_phases(batches: Batches, progress: Progress) -> Batches:
    """Add a batch that was committed."""
    if progress.batch_seconds is None or not progress.phase_seconds:
        return batches
    phases = tuple(map(progress.phase_seconds.get, _NAMES))
    newest = BatchPhases(
        progress.batch_id,
        progress.input_rows,
        progress.batch_seconds,
        phases,
        state_commit_seconds=commit_seconds(progress.operators) if progress.operators else 0.0,
    )
    number = next(reversed(batches)) + 1 if batches else 0
    batches = batches.copy() if len(batches) < MOST else _thinned(batches)
    batches[number] = newest
    return batches


def follow_tasks(batches: Batches, tasks: QueryTasks | None) -> Batches:
    """Add what the tasks of the newest batches did; the same batches if nothing is new."""
    if tasks is None or not batches:
        return batches
    for of_batch in tasks.batches:
        for number, batch in islice(reversed(batches.items()), KEPT_TASKS):
            if batch.batch_id == of_batch.batch_id:
                if batch.run_seconds != of_batch.sums.run_seconds:
                    batches = {**batches, number: _with_tasks(batch, of_batch)}
                break
    return batches


def _with_tasks(batch: BatchPhases, tasks: BatchTasks) -> BatchPhases:
    sums = tasks.sums
    add_batch = batch.of(Phase.ADD_BATCH)
    return replace(
        batch,
        run_seconds=sums.run_seconds,
        shuffled_bytes=sums.shuffle_read_bytes + sums.shuffle_written_bytes,
        spilled_bytes=sums.spilled_bytes,
        gc_part=part(sums.gc_seconds, sums.run_seconds),
        shuffle_wait_part=part(sums.shuffle_wait_seconds, sums.run_seconds),
        waited_part=part(tasks.waited_seconds, add_batch),
        skew_part=part(skew_seconds(tasks.spread), add_batch),
    )


def skew_seconds(spread: StageSpread | None) -> float:
    """By how much one task exceeds the median of its stage, if it is not one of many."""
    if spread is None or spread.tasks < LEAST_TASKS:
        return 0.0
    if spread.longest_seconds < SKEWED * spread.median_seconds:
        return 0.0
    return spread.longest_seconds - spread.median_seconds


def part(seconds: float, of_seconds: float) -> float:
    """Which part of these seconds the others are, at most all; none of no time."""
    return min(1.0, seconds / of_seconds) if of_seconds else 0.0


def _thinned(batches: Batches) -> Batches:
    """The batches without those that are closest to the one before, for their age."""
    older = list(islice(batches.items(), MOST - THINNED))
    _, newest = next(reversed(batches.items()))
    now = newest.batch_id
    distances = [
        ((batch.batch_id - before.batch_id) / max(1, now - batch.batch_id), number)
        for (_, before), (number, batch) in pairwise(older)
    ]
    closest = {number for _, number in sorted(distances)[:THINNED]}
    return {number: batch for number, batch in batches.items() if number not in closest}


class Usual(msgspec.Struct, frozen=True, gc=False):
    """What is usual: some batches, each of which is one of many that were alike."""

    batches: Sequence[BatchPhases]

    @property
    def seconds(self) -> float:
        """How long a batch usually takes."""
        return median(batch.seconds for batch in self.batches)

    @property
    def rows(self) -> float:
        """How many rows a batch usually has."""
        return median(batch.rows for batch in self.batches)

    def of(self, *phases: Phase) -> float:
        """How long these phases usually take together."""
        return median(batch.of(*phases) for batch in self.batches)

    @property
    def spilled_bytes(self) -> float | None:
        """How much its tasks usually spill; None if that is not known."""
        return self._of_tasks(lambda batch, _: float(batch.spilled_bytes))

    @property
    def seconds_per_byte(self) -> float | None:
        """For how long tasks usually run for each byte that is shuffled; None if not known."""
        return self._of_tasks(
            lambda batch, run: run / batch.shuffled_bytes if batch.shuffled_bytes else None
        )

    def part(self, read: Callable[[BatchPhases], float]) -> float:
        """Which part of their time tasks usually do something else than their work, if known."""
        return self._of_tasks(lambda batch, _: read(batch)) or 0.0

    def _of_tasks(self, read: Callable[[BatchPhases, float], float | None]) -> float | None:
        run_seconds = [(batch, batch.run_seconds) for batch in self.batches]
        read_values = [read(batch, run) for batch, run in run_seconds if run is not None]
        values = [value for value in read_values if value is not None]
        return median(values) if len(values) >= LEAST_WITH_TASKS else None


def usual_before(committed: Batches, seconds: float) -> Usual | None:
    """What was usual before batches took ``seconds``; None if that is not slow, or unknown.

    The newest batches that took about as long are not what is usual, up to two shorter ones in a
    row. Of what was before, the older half counts: batches may have grown since. If all took as
    long, nothing is known.
    """
    batches = list(committed.values())
    is_long = [batch.seconds * SLOW > seconds for batch in batches]
    before = len(batches)
    while before and any(is_long[max(0, before - 2) : before]):
        before -= 1
    if before < LEAST:
        return None
    usual = Usual(batches[: max(LEAST, before // 2)])
    is_slow = seconds >= SLOW * usual.seconds and seconds - usual.seconds >= LEAST_EXCESS_SECONDS
    return usual if is_slow else None
