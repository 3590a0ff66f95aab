"""A streaming source whose offsets misbehave as a test wants, from the moment the test chooses.

Spark runs it in Python processes of their own, so a test makes it fail with a file, its switch.
It has offsets and no rows, so that no
task needs a Python worker. Needs Spark 4.2 (``REPORTS_OFFSETS``) and PyArrow.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark import cloudpickle

try:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader
except ImportError:  # Spark 3.5 has no sources in Python
    DataSource = DataSourceStreamReader = object

REPORTS_OFFSETS = hasattr(DataSourceStreamReader, "reportLatestOffset")
"""Whether this Spark asks a source in Python for its newest offset: from 4.2 on."""


class SteadyReader(DataSourceStreamReader):
    """Two partitions; each batch reads ``step`` more offsets, all there are. Subclasses differ."""

    step = 10

    def __init__(self, switch):
        self.switch = Path(switch)
        self.latest = None

    def failing(self):
        return self.switch.exists()

    def initialOffset(self):
        return offsets(1000, 1000)

    def latestOffset(self, start, limit):
        first, second = start["topic"].values()
        self.latest = offsets(first + self.step, second + self.step)
        return self.latest

    def reportLatestOffset(self):
        return self.latest

    def partitions(self, start, end):
        return []

    def read(self, partition):
        raise NotImplementedError


class HangingReader(SteadyReader):
    def latestOffset(self, start, limit):
        while self.failing():
            time.sleep(0.1)
        return super().latestOffset(start, limit)


class FrozenReader(SteadyReader):
    """Its second partition is stuck, while its unread data grows."""

    def latestOffset(self, start, limit):
        if not self.failing():
            return super().latestOffset(start, limit)
        first, second = start["topic"].values()
        self.latest = offsets(first + self.step, self.latest["topic"]["1"] + self.step)
        return offsets(first + self.step, second)


class RewoundReader(SteadyReader):
    """The topic is recreated once: its offsets begin again from 0."""

    def __init__(self, switch):
        super().__init__(switch)
        self.rewound = False

    def latestOffset(self, start, limit):
        if self.rewound or not self.failing():
            return super().latestOffset(start, limit)
        self.rewound = True
        self.latest = offsets(0, 0)
        return self.latest


class BacklogReader(SteadyReader):
    """A large backlog shrinks slowly; when it fails, more arrives than is processed."""

    step = 500
    waiting = 1_000_000

    def latestOffset(self, start, limit):
        first, second = start["topic"].values()
        if self.latest is None:
            self.latest = offsets(first + self.waiting, second + self.waiting)
        if self.failing():
            more = 40 * self.step
            self.latest = offsets(*(end + more for end in self.latest["topic"].values()))
        return offsets(first + self.step, second + self.step)


READERS = {
    kind.__name__: kind
    for kind in (SteadyReader, HangingReader, FrozenReader, RewoundReader, BacklogReader)
}


class Staged(DataSource):
    """``format("staged")``; options ``reader``, a name of ``READERS``, and ``switch``, a path."""

    @classmethod
    def name(cls):
        return "staged"

    def schema(self):
        return "value long"

    def streamReader(self, schema):
        return READERS[self.options["reader"]](self.options["switch"])


def offsets(first, second):
    """Offsets in the form of Kafka's source."""
    return {"topic": {"0": first, "1": second}}


def staged(spark, reader, switch):
    """A stream from ``reader``; it is healthy until the file ``switch`` exists."""
    # Spark's Python processes cannot import the tests; by default they use another Python.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.sparkContext.pythonExec = sys.executable
    spark.dataSource.register(Staged)
    stream = spark.readStream.format("staged").option("reader", reader.__name__)
    return stream.option("switch", str(switch)).load()
