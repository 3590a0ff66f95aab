"""Queries that run well for a few batches, and then die or hang, each at its moment."""

import math
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ..common.session import rows
from .desk import DEATH

WELL_SECONDS = 4.5
"""How long a query is there before its moment."""
TRIGGER_MILLISECONDS = (1200, 1800)
LEAST_BATCHES = 2
HUNG_SECONDS = 11.0
KEPT_EVERY = 5
"""Of so many hung queries one hangs to the end, for those who are slow to tell."""


class Actor:
    """One query's ``foreachBatch``: works until ``due_at``, then meets its ``fate``.

    ``met_at`` is when it did, in monotonic seconds: the death, or the beginning of the batch
    that never ends; infinite before.
    """

    def __init__(self, name: str, fate: str, due_at: float, *, kept: bool) -> None:
        self.name = name
        self.fate = fate
        self.due_at = due_at
        self.kept = kept
        self.met_at = math.inf
        self.free = threading.Event()
        self._batches = 0
        self._query: Any = None

    def start(self, spark: SparkSession) -> None:
        """Begin, a while before its moment."""
        milliseconds = random.randint(*TRIGGER_MILLISECONDS)
        trigger = f"{milliseconds} milliseconds"
        self._query = writer(spark, self.name, trigger).foreachBatch(self).start()

    def __call__(self, _: Any, __: int) -> None:
        left = self.due_at - time.monotonic()
        self._batches += 1
        if left > TRIGGER_MILLISECONDS[1] / 1000 or self._batches <= LEAST_BATCHES:
            return
        if self.fate == DEATH:
            # Triggers keep to the clock's beat, as a probe does: the moment must not.
            time.sleep(max(0.0, left))
            self.met_at = time.monotonic()
            raise RuntimeError("files were added by a concurrent update")
        if math.isinf(self.met_at):
            self.met_at = time.monotonic()
            self.free.wait(None if self.kept else HUNG_SECONDS)
            threading.Thread(target=self._query.stop).start()


def cast(phase: str, began: float, spans: dict[str, tuple[int, float]]) -> list[Actor]:
    """So many actors of each fate, their moments at random in its span of seconds."""
    return [
        Actor(
            f"{phase}-{fate}-{number}",
            fate,
            began + WELL_SECONDS + random.uniform(0, seconds),
            kept=number % KEPT_EVERY == 0,
        )
        for fate, (count, seconds) in spans.items()
        for number in range(count)
    ]


def play(spark: SparkSession, actors: Sequence[Actor]) -> None:
    """Let each come on in time; returns when all have met their fate."""
    for actor in sorted(actors, key=lambda actor: actor.due_at):
        time.sleep(max(0.0, actor.due_at - WELL_SECONDS - time.monotonic()))
        actor.start(spark)
    deadline = time.monotonic() + 30
    while waiting := [actor.name for actor in actors if math.isinf(actor.met_at)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened to {waiting}")
        time.sleep(0.1)


def bystanders(spark: SparkSession, count: int) -> list[StreamingQuery]:
    """Queries that nothing happens to."""
    names = [f"well-{number}" for number in range(count)]
    return [writer(spark, name, "1 second").format("noop").start() for name in names]


def writer(spark: SparkSession, name: str, trigger: str) -> Any:
    """A writer of a query that has new rows at every trigger."""
    return rows(spark).writeStream.queryName(name).trigger(processingTime=trigger)
