"""Histories of a query's batches, usual ones and then slow ones, whose cause is known."""

from __future__ import annotations

from collections import Counter
from random import Random

from msgspec.structs import replace
from support.story import progress

from querypulse.alerting.evidence import SlowCause
from querypulse.alerting.rules.causes import SlowBatch, likely_cause
from querypulse.listener.foresight.operators import StateOperator
from querypulse.listener.foresight.phases import (
    Phase,
    follow_phases,
    follow_tasks,
    usual_before,
)
from querypulse.listener.foresight.tasks import BatchTasks, QueryTasks, StageSpread, TaskSums
from querypulse.listener.probe_report import LongTask

UNKNOWN = "unknown"
TROUBLES = ("more rows", "slow sink", *SlowCause)
"""What is injected; the first two have no cause that can be known."""
IN_PHASES = {
    SlowCause.SOURCE_LISTING: (Phase.LATEST_OFFSET, Phase.GET_BATCH),
    SlowCause.PLANNING: (Phase.PLANNING,),
    SlowCause.SLOW_COMMIT: (Phase.WAL_COMMIT, Phase.COMMIT_OFFSETS),
}
SHORT = {
    Phase.LATEST_OFFSET: (0.01, 0.5),
    Phase.WAL_COMMIT: (0.03, 0.3),
    Phase.GET_BATCH: (0.001, 0.05),
    Phase.PLANNING: (0.02, 0.5),
    Phase.COMMIT_OFFSETS: (0.03, 0.3),
}
"""How long the phases other than ``addBatch`` usually take."""
HABITS = (
    SlowCause.GARBAGE_COLLECTION,
    SlowCause.SHUFFLE_WAIT,
    SlowCause.STATE_COMMIT,
    SlowCause.WAITING_FOR_SLOTS,
    SlowCause.SKEW,
)
"""What takes 0.6 of each usual batch in some histories: it is no cause where it goes on as ever."""


class SlowHistory:
    """One query, from a seed: its usual batches, and slow ones with one trouble."""

    def __init__(self, seed: int, trouble: str | SlowCause) -> None:
        self.rng = Random(f"{trouble} {seed}")
        self.trouble = trouble
        self.usual = {phase: self.rng.uniform(*limits) for phase, limits in SHORT.items()}
        self.usual[Phase.ADD_BATCH] = self.rng.choice((0.3, 2.0, 20.0, 120.0))
        self.usual[Phase.ADD_BATCH] *= self.rng.uniform(0.5, 2.0)
        self.noise = self.rng.uniform(0.05, 0.3)
        self.slots = self.rng.choice((2, 4, 16, 64))
        self.bytes_per_second = self.rng.uniform(1e6, 50e6)
        """How much its tasks shuffle in a second."""
        self.spills = self.rng.choice((0.0, 0.0, 0.3))
        """Which part of that they usually spill."""
        habits = [habit for habit in HABITS if habit is not trouble]
        self.habit = self.rng.choice(habits) if self.rng.random() < 0.5 else None
        self.number = 0
        self.batches = {}

    def commit(self, phases, rows, tasks=None, state_commit=None):
        """Commit one batch; its tasks are those of a usual one, by default."""
        seconds = sum(phases.values())
        if state_commit is None:
            run = phases[Phase.ADD_BATCH] * self.slots * 0.8
            state_commit = self.usual_state_commit(run)
        done = progress(
            batch=self.number,
            seconds=seconds,
            phase_seconds={phase.value: taken for phase, taken in phases.items()},
            input_rows=rows,
            operators=(StateOperator("op", commit_seconds=state_commit),),
        )
        self.batches = follow_phases(self.batches, done)
        if tasks is None:
            busy = phases[Phase.ADD_BATCH]
            sums = self.usual_sums(busy)
            tasks = BatchTasks(self.number, sums, self.usual_wait(busy), self.usual_spread(busy))
        if self.rng.random() < 0.9:
            known = QueryTasks(tasks.sums, (tasks,))
            self.batches = follow_tasks(self.batches, known)
        self.number += 1

    def part(self, cause, least, most):
        """A usual part of the time of a batch; more where the query has that habit."""
        return 0.6 if self.habit is cause else self.rng.uniform(least, most)

    def usual_wait(self, busy):
        """For how long its stages wait for slots."""
        return busy * self.part(SlowCause.WAITING_FOR_SLOTS, 0, 0.03)

    def usual_spread(self, busy):
        """A stage whose tasks are a little uneven, or very."""
        longest = busy * self.rng.uniform(0.3, 0.9)
        median = longest / self.rng.uniform(1.1, 3.0)
        if self.habit is SlowCause.SKEW:
            median = longest / 20
        return StageSpread(12, 50, median, longest, 7, "host-3")

    def usual_state_commit(self, run):
        """For how long its tasks commit state."""
        return run * self.part(SlowCause.STATE_COMMIT, 0, 0.1)

    def usual_sums(self, busy):
        """What tasks do that keep the slots busy for so long, and nothing else."""
        run = busy * self.slots * self.rng.uniform(0.6, 1.0)
        shuffled = round(run * self.bytes_per_second * self.rng.lognormvariate(0, self.noise))
        return TaskSums(
            tasks=100,
            run_seconds=run,
            gc_seconds=run * self.part(SlowCause.GARBAGE_COLLECTION, 0, 0.08),
            shuffle_wait_seconds=run * self.part(SlowCause.SHUFFLE_WAIT, 0, 0.1),
            spilled_bytes=round(self.spills * shuffled * self.rng.uniform(0.5, 1.5)),
            shuffle_read_bytes=shuffled // 2,
            shuffle_written_bytes=shuffled // 2,
        )

    def noisy(self):
        """The phases of a usual batch; in one of twenty, one phase takes far longer."""
        phases = {
            phase: seconds * self.rng.lognormvariate(0, self.noise)
            for phase, seconds in self.usual.items()
        }
        if self.rng.random() < 0.05:
            phases[self.rng.choice(list(phases))] *= self.rng.uniform(2, 10)
        return phases

    def slow(self):
        """The newest slow batch, as it is known: committed, or still in flight."""
        for _ in range(self.rng.randint(12, 300)):
            self.commit(self.noisy(), round(10_000 * self.rng.lognormvariate(0, self.noise)))
        total = sum(self.usual.values())
        size = self.rng.uniform(2.0, 20.0)
        for _ in range(self.rng.choice((1, 2, 5, 20, 60))):
            phases, batch = self.troubled(max(1.0, size * total))
        if self.rng.random() < 0.5:
            return replace(batch, usual=usual_before(self.batches, batch.seconds))
        return self.in_flight(phases, batch)

    def troubled(self, extra):
        """A batch that takes ``extra`` seconds more than usual, and what is known of it."""
        phases = self.noisy()
        phases = {phase: min(seconds, 2 * self.usual[phase]) for phase, seconds in phases.items()}
        rows = 10_000
        where = self.rng.choice(IN_PHASES.get(self.trouble, (Phase.ADD_BATCH,)))
        before = phases[Phase.ADD_BATCH]
        phases[where] += extra
        if self.trouble == "more rows":
            rows = round(rows * phases[Phase.ADD_BATCH] / before)
        if self.rng.random() < 0.3:
            # Something else is a little worse than usual, too.
            other = self.rng.choice([phase for phase in phases if phase is not where])
            phases[other] += self.rng.uniform(0, 0.2) * extra
        seconds = sum(phases.values())
        usual = usual_before(self.batches, seconds)
        batch = SlowBatch(
            batch_id=self.number,
            seconds=seconds,
            usual=usual,
            usual_seconds=0.0 if usual is None else usual.seconds,
            phase_seconds=phases,
            rows=rows,
        )
        batch = self.with_tasks(batch, before, extra)
        self.commit(phases, rows, batch.tasks, batch.state_commit_seconds)
        return phases, batch

    def with_tasks(self, batch, before, extra):
        """The batch with what its tasks did, of which ``before`` seconds are usual."""
        rng, trouble = self.rng, self.trouble
        busy = batch.phase_seconds[Phase.ADD_BATCH]
        sums = self.usual_sums(before)
        waited = self.usual_wait(before)
        spread = self.usual_spread(before)
        state_commit = self.usual_state_commit(sums.run_seconds)
        if trouble == "more rows":
            sums = self.usual_sums(busy)
            waited = self.usual_wait(busy)
            spread = self.usual_spread(busy)
            state_commit = self.usual_state_commit(sums.run_seconds)
            if rng.random() < 0.3:
                # So many rows do not fit into memory any more, which costs a little.
                sums = replace(sums, spilled_bytes=sums.spilled_bytes + sums.shuffle_read_bytes)
        elif trouble is SlowCause.WAITING_FOR_SLOTS:
            waited = extra * rng.uniform(0.85, 1.0)
        elif trouble is SlowCause.SKEW:
            sums = replace(sums, run_seconds=sums.run_seconds + extra)
            longest = spread.median_seconds + extra * rng.uniform(0.85, 1.0)
            spread = replace(spread, longest_seconds=longest)
        else:
            sums = self.worse(sums, busy - before)
        if trouble is SlowCause.STATE_COMMIT:
            state_commit = (busy - before) * self.slots * rng.uniform(0.75, 1.0)
        tasks = BatchTasks(batch.batch_id, sums, waited, spread)
        return replace(batch, tasks=tasks, state_commit_seconds=state_commit)

    def worse(self, sums, extra):
        """The sums of tasks that run longer, so that the batch takes ``extra`` seconds more."""
        worse = extra * self.slots
        sums = replace(sums, run_seconds=sums.run_seconds + worse)
        most = worse * self.rng.uniform(0.75, 1.0)
        if self.trouble is SlowCause.GARBAGE_COLLECTION:
            return replace(sums, gc_seconds=sums.gc_seconds + most)
        if self.trouble is SlowCause.SHUFFLE_WAIT:
            return replace(sums, shuffle_wait_seconds=sums.shuffle_wait_seconds + most)
        if self.trouble is SlowCause.SPILL:
            spilled = round(sums.shuffle_read_bytes * self.rng.uniform(2.0, 6.0) + 2e6)
            return replace(sums, spilled_bytes=sums.spilled_bytes + spilled)
        return sums

    def in_flight(self, phases, batch):
        """The same batch before it ends: which phase it is in, and what has finished."""
        self.batches = dict(list(self.batches.items())[:-1])
        slowest = max(phases, key=phases.__getitem__)
        part = self.rng.uniform(0.6, 1.0)
        seconds = part * batch.seconds
        usual = usual_before(self.batches, seconds)
        if usual is None:
            return replace(batch, usual=None)
        polled_late = self.rng.uniform(0, 0.1) * phases[slowest]
        sums = batch.tasks.sums
        finished = {name: part * getattr(sums, name) for name in sums.__struct_fields__}
        spread = batch.tasks.spread
        longest = None
        if self.trouble is SlowCause.SKEW:
            median, longest_seconds = spread.median_seconds, part * spread.longest_seconds
            longest = LongTask(12, 7, "host-3", longest_seconds, median)
            spread = None
        tasks = BatchTasks(
            batch.batch_id, TaskSums(**finished), part * batch.tasks.waited_seconds, spread
        )
        return replace(
            batch,
            seconds=seconds,
            usual=usual,
            usual_seconds=usual.seconds,
            phase_seconds={slowest: part * phases[slowest] - polled_late},
            rows=None,
            tasks=tasks,
            longest=longest,
        )


def named(seed: int, trouble: str | SlowCause) -> str:
    """What is said about a history."""
    slow = SlowHistory(seed, trouble).slow()
    if slow.usual is None:
        return "not slow"
    cause = likely_cause(slow)
    return UNKNOWN if cause is None else cause.cause.value


def confusion(seeds: range) -> dict[str, Counter[str]]:
    """By what was injected: how often each cause was named."""
    return {
        getattr(trouble, "value", trouble): Counter(named(seed, trouble) for seed in seeds)
        for trouble in TROUBLES
    }


def as_table(confused: dict[str, Counter[str]]) -> str:
    """The confusion as lines of text."""
    return "\n".join(
        f"{trouble:20} {', '.join(f'{name} {count}' for name, count in counts.most_common())}"
        for trouble, counts in confused.items()
    )


if __name__ == "__main__":
    print(as_table(confusion(range(100))))
