"""Finds the sources of a run that somebody else than Spark can be asked about.

``StreamExecution.sources`` is private, but stable in Spark 3.5 to 4.3; it is empty until the
run has planned its query, and still answers after the run's death.
"""

from __future__ import annotations

from typing import Any

from ..query import Query
from .delta_source import DeltaSource
from .kafka_java import KafkaJava, refusals
from .kafka_source import KafkaSource
from .reader import Source

_OFFSET_READERS = {
    "KafkaMicroBatchStream": "kafkaOffsetReader",
    "KafkaContinuousStream": "offsetReader",
}
"""By the simple name of the stream's class: what holds its consumer's options."""
MAX_HELD = 100
"""Runs that have not planned yet; one that never will is held until others push it out."""


class SparkSources:
    """The sources of all queries of one classic SparkContext; used by one thread.

    A run is held from the first moment, for Spark names only living ones.
    """

    def __init__(self, spark: Any) -> None:
        self._jvm = spark.sparkContext._jvm  # noqa: SLF001 - no public way to the JVM
        self._kafka = KafkaJava(self._jvm)
        java_session = spark._jsparkSession  # noqa: SLF001 - no public way to all sessions
        self._active = java_session.sharedState().activeStreamingQueries()
        self._uuid = getattr(self._jvm, "java.util.UUID")
        self._held: dict[str, Any] = {}

    def open(self, query: Query) -> dict[int, Source] | None:
        """The sources by index as in Spark's progress; None while the run has none.

        Raises:
            SourceError: Spark refuses to tell them.

        """
        with refusals():
            execution = self._hold(query)
            if execution is None:
                return None
            streams = execution.sources().distinct()
            count = int(streams.size())
            if not count and query.alive:
                return None
            del self._held[query.run_id]
            found = {
                index: source
                for index in range(count)
                if (source := self._source(query, execution, streams, index)) is not None
            }
            return dict(found)

    def _hold(self, query: Query) -> Any:
        """Its ``StreamExecution``, if that was to be had while it lived."""
        if query.run_id not in self._held:
            execution = self._active.get(self._uuid.fromString(query.query_id))
            if execution is None or execution.runId().toString() != query.run_id:
                return None
            self._held[query.run_id] = execution
            if len(self._held) > MAX_HELD:
                del self._held[next(iter(self._held))]
        return self._held[query.run_id]

    def _source(self, query: Query, execution: Any, streams: Any, index: int) -> Source | None:
        stream = streams.apply(index)
        kind = stream.getClass().getSimpleName()
        if kind == "DeltaSource":
            return DeltaSource(self._jvm, execution, stream)
        name = _OFFSET_READERS.get(kind)
        if name is None:
            return None
        reader = getattr(stream, name)()
        client_id = f"querypulse-{query.run_id[:8]}-{index}"
        return KafkaSource(self._kafka, execution, stream, reader, client_id)
