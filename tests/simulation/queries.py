"""A query as its owner sees it: its plan, its checkpoint, its source, and its true state."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec

from querypulse.listener.commit_log import COMMITS, OFFSETS
from querypulse.listener.source_polls import SourcePoll

from .clock import Time
from .plan import QuerySpec
from .truth import Truth

if TYPE_CHECKING:
    from .run import Run
from .truth import Health

# -- sources -------------------------------------------------------------------------------------


DESCRIPTION = "KafkaV2[Subscribe[t]]"
ROWS = 10
LAG_ALLOWED = 1000
FLOOD = 3000
"""Rows that arrive between two batches while a query lags."""
FIRST_TOPIC = "4fD3yT0tRKyB0jxmQ1Vw2g"
BACK = 5000
"""By how much offsets go back."""


class Position(msgspec.Struct, frozen=True):
    """Where a batch ended, and where the source ended when it was planned."""

    end: int = 0
    latest: int = 0


class SimSource:
    """A topic of one partition. A condition lasts until its time ``..._until``."""

    def __init__(self, time: Time) -> None:
        self.now = Position()
        self.lag_until = 0.0
        self.stall_until = 0.0
        self.rewind_until = 0.0
        self.topic_id = FIRST_TOPIC
        self.recreated_at: float | None = None
        """When the topic was last created again."""
        self._logged = Position()
        self._highest = 0
        self._began = 0
        self._is_back = False
        self._time = time

    def begin(self) -> None:
        """Begin a run at the logged position; the last run may have read further."""
        self._highest = self.now.end
        self.now = msgspec.structs.replace(self._logged, latest=self.now.latest)

    def written(self) -> None:
        self._logged = self.now

    def recreate(self) -> None:
        """Delete the topic and create it again: soon it is longer than what was read of the old one."""
        self.topic_id = f"{self.topic_id}'"
        self.recreated_at = self._time.now
        self.now = Position(self.now.end, self.now.latest + ROWS)

    def restart(self) -> None:
        self.now = self._logged = Position()
        self._highest, self._is_back = 0, False

    def continue_from(self, other: SimSource) -> None:
        """Begin where the other one is, which has read the same topic."""
        self.now, self._logged = other.now, other._logged
        self._highest, self._is_back = other._highest, other._is_back

    def read(self) -> None:
        """Read one batch: all new data, or less during a fault."""
        time, end, latest = self._time.now, self.now.end, self.now.latest
        self._began = end
        if time < self.stall_until:
            # Nothing moves, not even backwards.
            self.now = Position(end, latest + ROWS)
            return
        if time < self.rewind_until and not self._is_back:
            self._is_back = True
            end = max(0, end - BACK)
            latest = end
        elif time >= self.rewind_until and self._is_back:
            self._is_back = False
            latest = max(latest, self._highest)
        if time < self.lag_until:
            self.now = Position(end + ROWS, max(end, latest) + FLOOD)
        else:
            latest = max(end, latest) + ROWS
            self.now = Position(latest, latest)
        self._highest = max(self._highest, self.now.end)

    @property
    def is_back(self) -> bool:
        """Whether its offsets are before those that were read once."""
        return self.now.end < self._highest

    @property
    def has_more(self) -> bool:
        """Whether the next batch has unread data, or will have."""
        held = max(self.lag_until, self.stall_until) > self._time.now
        return held or self.now.latest > self.now.end

    @property
    def health(self) -> Health:
        if self._time.now < self.stall_until:
            return Health.STALE
        if self.is_back:
            return Health.REWOUND
        return Health.LAGGING if self.now.latest - self.now.end > LAG_ALLOWED else Health.HEALTHY

    def poll(self, now: float, wall: float) -> SourcePoll:
        """What the broker says of the topic."""
        return SourcePoll(
            DESCRIPTION,
            committed={"t/0": self.now.end},
            earliest={"t/0": 0},
            latest={"t/0": max(self.now.end, self.now.latest)},
            topic_ids={"t": self.topic_id},
            system="kafka broker:9092",
            at=now,
            wall=wall,
        )

    @property
    def progress(self) -> dict[str, object]:
        return {
            "description": DESCRIPTION,
            "startOffset": {"t": {"0": min(self._began, self.now.end)}},
            "endOffset": {"t": {"0": self.now.end}},
            "latestOffset": {"t": {"0": self.now.latest}},
            "numInputRows": ROWS,
        }


# -- queries -------------------------------------------------------------------------------------


POLL_SECONDS = 2.0
"""How often the simulated probe polls."""


class SimCheckpoint:
    """The checkpoint of a query on disk, which outlives runs and drivers."""

    def __init__(self, rng: Random) -> None:
        self.query_id = identity(rng)
        self.batch = 0
        self.logged = -1
        """The newest batch in its commit log."""
        self.logged_at = float("-inf")
        self.planned = -1
        """The newest batch in its log of offsets, planned by any process."""
        self.planned_at = float("-inf")
        self.written: dict[str, dict[int, float]] = {OFFSETS: {}, COMMITS: {}}
        """When the newest files of each log were written."""

    def write(self, log: str, batch: int, at: float) -> None:
        """Write a file; Spark removes all but the newest hundred."""
        self.written[log] = {
            number: when
            for number, when in self.written[log].items()
            if batch - 100 < number < batch
        } | {batch: at}
        if log == OFFSETS:
            self.planned, self.planned_at = batch, at
        else:
            self.logged, self.logged_at = batch, at


class Failed(msgspec.Struct, frozen=True):
    """A failed run: its batch (None: before any), and whether an event reported it at once."""

    at: float
    batch: int | None
    known: bool
    cause: str
    """The class of its exception."""


class SimQuery:
    """The state of one query that outlives its runs.

    Times ``..._until`` are monotonic seconds until which a condition lasts.
    """

    def __init__(self, spec: QuerySpec, rng: Random, time: Time) -> None:
        self.spec = spec
        self.truth = Truth(spec.key)
        self.checkpoint = SimCheckpoint(rng)
        self.source = SimSource(time)
        self.wanted = False
        """Whether its application runs it: a restarted driver starts it."""
        self.hang_until = 0.0
        self.crawl_until = 0.0
        self.decay = (0.0, 0.0, 1.0)
        """Since when, for how long and up to how many times longer its batches take."""
        self.fan_until = 0.0
        self.compute_until = 0.0
        self.skew_until = 0.0
        self.starve_until = 0.0
        self.holder = ""
        """The query that holds the slots for which it waits, if one does."""
        self.ask_until = 0.0
        self.dry_until = 0.0
        self.log_until = 0.0
        self.crash_until = 0.0
        self.bad_until = 0.0
        self.bad_runs_until = 0.0
        self.bad_runs_last = 0.0
        """The length of each run until then, in seconds."""
        self.failures: list[Failed] = []
        """The failures of its runs, in all processes."""
        self.crash_pause = 1.0
        self.fails_at_once = False
        self.query_ids = {self.checkpoint.query_id}
        self.started_at = float("-inf")
        self.taken_at = float("-inf")
        """When another query was started on its checkpoint, while it ran."""
        self.fed_at = float("-inf")
        """When a batch last had rows."""
        self.known_fed_at = float("-inf")
        """The same, without the first commit of a run: only events report its rows."""
        self._first_fed_at = float("-inf")
        self.runs: list[Run] = []
        """All its runs, for events that are far too late."""
        self._rng = rng

    def is_fed(self, at: float, *, first_of_run: bool) -> None:
        if first_of_run:
            self._first_fed_at, self.known_fed_at = at, self.fed_at
        elif at - self._first_fed_at > POLL_SECONDS:
            self.known_fed_at = at
        self.fed_at = at

    def takes(self, now: float) -> float:
        began, seconds, most = self.decay
        share = (now - began) / seconds if began <= now < began + seconds else 0.0
        return self.spec.takes * (1.0 + share * (most - 1.0))

    @property
    def key(self) -> str:
        return self.spec.key

    @property
    def is_lost(self) -> bool:
        """Whether a restart cannot be recognised: it has no name, and another id each time."""
        return self.spec.name is None and len(self.query_ids) > 1

    def take_checkpoint(self, other: SimQuery) -> None:
        """From now on, both have the checkpoint of the other one."""
        self.checkpoint = other.checkpoint
        self.source.continue_from(other.source)
        self.query_ids.add(self.checkpoint.query_id)

    def new_checkpoint(self) -> None:
        """Replace its checkpoint, which was deleted or never kept."""
        self.checkpoint = SimCheckpoint(self._rng)
        self.source.restart()
        self.query_ids.add(self.checkpoint.query_id)


def identity(rng: Random) -> str:
    text = f"{rng.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
