"""The phases of a query's batches, and what is usual for them: why it is slow is read from these.

A batch is kept as a few numbers when it commits, and nothing is computed then. The newest batches
are all kept, older ones further and further apart, so that a slowdown of hours leaves what was
before it. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from statistics import median

import msgspec

from ..events import Progress

NEWEST = 8
"""So many of the newest batches are all kept."""
SPACING = 1 / 4
"""Two older ones are at least this part of their age apart: five for each doubling of the age."""
MOST = 32
"""More are not kept; of older ones, every second."""
LEAST = 4
"""So many batches show what is usual."""
SLOW = 1.5
"""A batch that takes this many times as long as usual is slow."""
LEAST_EXCESS_SECONDS = 0.5


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

    at: float
    batch_id: int
    rows: int
    seconds: float
    phases: tuple[float | None, ...]

    def of(self, *phases: Phase) -> float:
        """The seconds of these phases together; an unknown one counts 0."""
        together = (self.phases[_NAMES.index(phase.value)] for phase in phases)
        return sum(seconds or 0.0 for seconds in together)


Batches = tuple[BatchPhases, ...]


def follow_phases(batches: Batches, progress: Progress, at: float) -> Batches:
    """Add a batch that was committed and reported at ``at``."""
    if progress.batch_seconds is None or not progress.phase_seconds:
        return batches
    phases = tuple(map(progress.phase_seconds.get, _NAMES))
    newest = BatchPhases(
        at, progress.batch_id, progress.input_rows, progress.batch_seconds, phases
    )
    if len(batches) < MOST + NEWEST:
        return (*batches, newest)
    return (*_thinned(batches, at), newest)


def _thinned(batches: Batches, now: float) -> Batches:
    kept = [batches[0]]
    for batch in batches[1:-NEWEST]:
        if batch.at - kept[-1].at >= SPACING * (now - batch.at):
            kept.append(batch)
    if len(kept) > MOST - NEWEST:
        kept = kept[::2]
    return (*kept, *batches[-NEWEST:])


class Usual(msgspec.Struct, frozen=True, gc=False):
    """What is usual: some batches, each of which is one of many that were alike."""

    batches: Batches

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

    def most(self, *phases: Phase) -> float:
        """How long they take at most, but for one batch of ten."""
        times = sorted(batch.of(*phases) for batch in self.batches)
        return times[-1 - len(times) // 10]


def usual_before(batches: Sequence[BatchPhases], seconds: float) -> Usual | None:
    """What was usual before batches took ``seconds``; None if that is not slow, or unknown.

    The newest batches that took about as long are not what is usual; two shorter ones in a row are.
    If all took as long, nothing is known.
    """
    is_long = [batch.seconds * SLOW > seconds for batch in batches]
    before = len(batches)
    while before and any(is_long[max(0, before - 2) : before]):
        before -= 1
    if before < LEAST:
        return None
    usual = Usual(tuple(batches[:before]))
    is_slow = seconds >= SLOW * usual.seconds and seconds - usual.seconds >= LEAST_EXCESS_SECONDS
    return usual if is_slow else None
