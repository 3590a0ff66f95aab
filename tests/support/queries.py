"""Small streaming queries for tests on real Spark."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from contextlib import contextmanager

from support import patience

SPARK_PATIENCE_SECONDS = 240.0
"""A busy machine takes minutes to start Spark; pytest ends a test after ten."""


class Boom(Exception):
    """The error with which a test's query fails."""


class Trap:
    """A ``foreachBatch`` function that works until the test sets ``die`` or ``hold``."""

    def __init__(self) -> None:
        self.die = threading.Event()
        self.hold = threading.Event()
        self.free = threading.Event()
        self.held = threading.Event()
        self.work: Callable[[object], object] | None = None

    def __call__(self, batch, batch_id):
        if self.die.is_set():
            raise Boom("files were added by a concurrent update, password=hunter2")
        if self.hold.is_set():
            self.held.set()
            self.wait_in_the_trap()
        if self.work is not None:
            self.work(batch)

    def wait_in_the_trap(self):
        assert self.free.wait(SPARK_PATIENCE_SECONDS)

    @contextmanager
    def holding(self):
        """Hold the next batch as long as the block lasts."""
        self.hold.set()
        try:
            assert self.held.wait(SPARK_PATIENCE_SECONDS)
            yield
        finally:
            self.release()

    def release(self):
        self.hold.clear()
        self.free.set()


def rate(spark):
    return spark.readStream.format("rate").option("rowsPerSecond", 10).load()


def start(stream, name, sink="noop", *, trigger="200 milliseconds", checkpoint=None, path=None):
    """Start a query that writes to a format by name, or to a ``foreachBatch`` function."""
    writer = stream.writeStream.trigger(processingTime=trigger)
    writer = writer.foreachBatch(sink) if callable(sink) else writer.format(sink)
    if name is not None:
        writer = writer.queryName(name)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.start() if path is None else writer.start(str(path))


def until(condition, what):
    """Wait for a condition that a query fulfils; return its value."""
    return patience.until(condition, what, SPARK_PATIENCE_SECONDS)


def warm(query):
    """Wait for some batches before monitoring starts: the first ones are slow and no baseline."""
    until(lambda: len(query.recentProgress) > 2, "it commits some batches")


def commits(sidecar, name, batches=1):
    """Wait until a query is known to have committed that many batches."""

    def committed():
        query = shown(sidecar, name)
        if query is None or query.last_commit_batch is None:
            return False
        return query.last_commit_batch >= batches - 1 and query.state == "running"

    until(committed, f"{name} commits")


def shown(sidecar, name):
    """A query as the sidecar shows it, or None."""
    return next((query for query in sidecar.snapshot().queries if query.name == name), None)


def idles(sidecar, name, seconds):
    """Whether a query is known to have committed nothing for more than some seconds."""
    query = shown(sidecar, name)
    age = query.last_commit_age_seconds if query is not None else None
    return age is not None and age > seconds


def offsets_of(text):
    """Offsets in a progress of Spark: some versions of PySpark print the JSON as Python's own."""
    return ast.literal_eval(text.replace("null", "None"))
