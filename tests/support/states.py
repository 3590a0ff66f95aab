"""State of stateful queries over weeks, simulated: what leaks, and what only has a rhythm."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from msgspec.structs import replace
from support.story import Story, policy, progress

from querypulse.alerting.facts import StateGrowing
from querypulse.alerting.rules.context import rule_context
from querypulse.alerting.rules.state_growth import state_growing
from querypulse.listener.foresight.operators import SST_BYTES, StateOperator
from querypulse.listener.foresight.state_growth import follow_growth
from querypulse.listener.state.trends import Watermark

HOUR = 3600.0
DAY = 24 * HOUR
STEP = HOUR
BEGIN = 1_790_000_000.0
"""Event times are those of this clock, the monotonic one from 0 on."""


@dataclass
class Batch:
    """What one batch leaves: the state, what was removed, and the watermark (None without one)."""

    rows: float
    removed: float = 0.0
    watermark: float | None = None
    size: float | None = None
    """Bytes of a row, else 200."""
    stuck_since: float | None = None


@dataclass
class Life:
    """The state of one query, batch by batch; ``limit`` bytes may be declared for it."""

    words: str
    batches: list[Batch]
    limit: int | None
    kind: str
    on_rocksdb: bool
    arrivals: list[float]

    @property
    def full_at(self) -> float:
        """When the state reaches its limit."""
        sizes = enumerate(self.sizes())
        return next((STEP * n for n, size in sizes if size >= (self.limit or math.inf)), math.inf)

    def sizes(self) -> list[float]:
        return [batch.rows * 200 if batch.size is None else batch.size for batch in self.batches]

    def first_alarm(self, every: int = 2) -> tuple[float, StateGrowing] | None:
        """When the rule first finds something, and what; asked every other hour."""
        limits = {} if self.limit is None else {"state_limit_bytes": self.limit}
        allowed = policy(**limits)
        story = Story().started(at=0).commit(batch=0, at=1)
        query = story.snapshot(2.0).labels()["a"]
        growth = query.checkpoint.growth
        read = 0.0
        for number, (batch, size) in enumerate(zip(self.batches, self.sizes(), strict=True), 1):
            at = number * STEP
            event = self._event(number, at, batch, size)
            read += self.arrivals[number - 1]
            growth = follow_growth(growth, event, at, int(read))
            if number % every:
                continue
            watermark = None
            if batch.stuck_since is not None and at - batch.stuck_since > HOUR:
                watermark = Watermark(batch.watermark or 0.0, 0.0, since=batch.stuck_since)
            trends = replace(query.checkpoint.trends, watermark=watermark)
            seen = replace(
                query,
                checkpoint=replace(query.checkpoint, growth=growth, trends=trends),
                run=replace(query.run, progress=event, last_commit_at=at),
            )
            snapshot = replace(story.snapshot(at), at=at)
            finding = state_growing(rule_context(seen, snapshot, at, allowed))
            if finding is not None:
                assert isinstance(finding.facts, StateGrowing)
                return at, finding.facts
        return None

    def _event(self, number, at, batch, size):
        custom = f'{{"{SST_BYTES}": {size}}}' if self.on_rocksdb else ""
        operator = StateOperator(
            self.kind,
            rows=int(batch.rows),
            rows_removed=int(batch.removed),
            memory_bytes=1_000_000 if self.on_rocksdb else int(size),
            custom=custom,
        )
        return progress(
            batch=number,
            operators=(operator,),
            watermark_timestamp=batch.watermark,
            event_time_max=BEGIN + at,
        )


def arrivals(random: Random, days: float) -> Iterator[float]:
    """Rows that arrive in each step, with the rhythm of a day and of a week, and noise."""
    mean = random.uniform(2e4, 2e6)
    daily = random.choice([0.0, 0.3, 0.6, 0.8])
    on_weekends = random.choice([1.0, 0.7, 0.4])
    noise = random.choice([0.02, 0.1, 0.3])
    begin = random.uniform(0, 7 * DAY)
    for step in range(int(days * DAY / STEP)):
        at = step * STEP + begin
        swing = 1 + daily * math.sin(2 * math.pi * at / DAY)
        weekend = on_weekends if at // DAY % 7 >= 5 else 1.0
        yield mean * swing * weekend * random.lognormvariate(0, noise)


def advancing(number: int, delay: float) -> float:
    return max(0.0, BEGIN + number * STEP - delay)


# -- leaks ------------------------------------------------------------------------------------


def without_watermark(random, traffic):
    rows = random.choice([0.0, 0.0, 2e7])
    for arrived in traffic:
        rows += arrived
        yield Batch(rows)


def never_times_out(random, traffic):
    rows, delay = 0.0, random.uniform(600, 2 * HOUR)
    for number, arrived in enumerate(traffic):
        rows += arrived
        yield Batch(rows, watermark=advancing(number, delay))


def values_grow(random, traffic):
    keys, size = 500_000, 1e8
    for number, arrived in enumerate(traffic):
        size += arrived * 200
        yield Batch(keys, watermark=advancing(number, HOUR), size=size)


def some_never_time_out(random, traffic):
    share, kept = random.uniform(0.05, 0.4), 0.0
    for batch in windows(random, traffic, HOUR * random.choice([1, 6, 24])):
        kept += share * batch.removed
        batch.rows, batch.removed = batch.rows + kept, batch.removed * (1 - share)
        yield batch


def watermark_stops(random, traffic):
    stops, kept, last = random.uniform(1, 5) * DAY, 0.0, None
    for number, batch in enumerate(windows(random, traffic, HOUR * random.choice([1, 6]))):
        at = number * STEP
        if at >= stops:
            last = last or batch.watermark
            kept += batch.removed
            batch.rows, batch.removed = batch.rows + kept, 0.0
            batch.watermark, batch.stuck_since = last, stops
        yield batch


# -- healthy ----------------------------------------------------------------------------------


def windows(random, traffic, length, delay=None, *, tumbling=False):
    """Rows are kept until their window is over: each for so long, or all until its end."""
    delay = random.uniform(60, HOUR) if delay is None else delay
    kept, rows = deque(), 0.0
    for number, arrived in enumerate(traffic):
        at, removed = number * STEP, 0.0
        until = (at // length + 1) * length if tumbling else at + length
        kept.append((until + delay, arrived))
        rows += arrived
        while kept and kept[0][0] <= at:
            removed += kept.popleft()[1]
        rows -= removed
        yield Batch(rows, removed, watermark=advancing(number, delay))


def levels_off(random, traffic):
    """Groups by key without a watermark: each day, ever fewer keys are new."""
    keys, scale = random.uniform(2e5, 1e8), random.uniform(0.2, 5) * DAY
    rows = random.choice([0.0, 0.5]) * keys
    pace = keys / scale / (sum(traffic) / len(traffic) / STEP)
    for arrived in traffic:
        rows += (keys - rows) / keys * arrived * pace
        yield Batch(rows)


def backlog(random, traffic):
    """What has waited for days is read within hours; then all is as usual."""
    for number, batch in enumerate(windows(random, traffic, HOUR * random.choice([6, 24, 72]))):
        more = random.uniform(5, 20) if number < 6 else 1
        yield Batch(batch.rows * more, batch.removed, watermark=batch.watermark)


def small(random, traffic):
    rows = 0.0
    for _ in traffic:
        rows += 80_000 / len(traffic)
        yield Batch(rows)


def constant(random, traffic):
    rows = random.uniform(1e3, 1e9)
    return (Batch(rows * random.uniform(0.97, 1.03)) for _ in traffic)


def of_windows(length, delay=None, *, tumbling=False):
    return lambda random, traffic: windows(random, traffic, length, delay, tumbling=tumbling)


def restarted(random, traffic):
    """A new checkpoint in the same folder: the state begins from nothing, and fills again."""
    first = random.randrange(len(traffic) // 4, len(traffic) // 2)
    lives = [*windows(random, traffic, DAY)]
    yield from lives[:first]
    yield from lives[: len(traffic) - first]


Shape = Callable[[Random, list[float]], Iterator[Batch]]
LEAKS: dict[str, tuple[str, Shape]] = {
    "no watermark": ("dedupe", without_watermark),
    "keys that never come again": ("stateStoreSave", without_watermark),
    "a join without watermark": ("symmetricHashJoin", without_watermark),
    "time-outs that never fire": ("flatMapGroupsWithState", never_times_out),
    "lists that grow in each key": ("applyInPandasWithState", values_grow),
    "some keys never time out": ("transformWithStateExec", some_never_time_out),
    "the watermark stops": ("stateStoreSave", watermark_stops),
}
HEALTHY: dict[str, tuple[str, Shape]] = {
    "as large as ever": ("stateStoreSave", constant),
    "windows of an hour": ("stateStoreSave", of_windows(HOUR)),
    "windows of a day that close at midnight": ("stateStoreSave", of_windows(DAY, tumbling=True)),
    "windows of a week that close on one day": (
        "stateStoreSave",
        of_windows(7 * DAY, tumbling=True),
    ),
    "a sliding window of a week": ("stateStoreSave", of_windows(7 * DAY)),
    "sessions": ("sessionWindowStateStoreSaveExec", of_windows(2 * HOUR)),
    "a join with an interval of five days": ("symmetricHashJoin", of_windows(5 * DAY)),
    "deduplication for ten days": ("dedupe", of_windows(STEP, 10 * DAY)),
    "time-outs of two days": ("flatMapGroupsWithState", of_windows(2 * DAY)),
    "keys that level off": ("stateStoreSave", levels_off),
    "known keys of a deduplication": ("dedupe", levels_off),
    "a backlog": ("stateStoreSave", backlog),
    "a small table that grows": ("stateStoreSave", small),
    "a new checkpoint": ("stateStoreSave", restarted),
}


def leak(seed: int) -> Life:
    """A state that reaches its limit after two days to three weeks."""
    random = Random(f"leak {seed}")
    words = list(LEAKS)[seed % len(LEAKS)]
    days = random.uniform(2, 20)
    life = _life(words, LEAKS[words], random, days + 3 + 5 * (words == "the watermark stops"))
    sizes = life.sizes()
    before = 5 * DAY if words == "the watermark stops" else 0.0
    usual = max(sizes[: int((before + DAY) / STEP)])
    life.limit = int(max(sizes[int((before + days * DAY) / STEP)], 1.5 * usual))
    return life


def healthy(seed: int) -> Life:
    """A state of weeks with what is usual; every second one has a limit, with some room."""
    random = Random(f"healthy {seed}")
    words = list(HEALTHY)[seed % len(HEALTHY)]
    life = _life(words, HEALTHY[words], random, random.uniform(14, 24))
    if seed // len(HEALTHY) % 2:
        life.limit = int(max(life.sizes()) * random.uniform(1.5, 3))
    return life


def _life(words, shape, random, days):
    kind, make = shape
    on_rocksdb = random.random() < 0.5
    traffic = list(arrivals(random, days))
    batches = list(make(random, traffic))
    if on_rocksdb:
        # Compaction rewrites its files: their size saws.
        for number, batch in enumerate(batches):
            size = batch.rows * 200 if batch.size is None else batch.size
            batch.size = size * (1 + 0.1 * (number % 7) / 7)
    return Life(words, batches, None, kind, on_rocksdb, traffic)
