"""Finds the sources of a run whose systems can be polled without Spark.

``StreamExecution.sources`` is private, but stable in Spark 3.5 to 4.3. It is empty until the run
has planned its query, and still answers after the run has ended.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..query import Query
from .delta_source import DeltaSource
from .kafka_admin import close_client
from .kafka_java import KafkaJava, java_errors
from .kafka_source import KafkaSource
from .shared_clients import SharedClients
from .source import Source

_OFFSET_READERS = {
    "KafkaMicroBatchStream": "kafkaOffsetReader",
    "KafkaContinuousStream": "offsetReader",
}
"""By the simple name of the stream's class: the method whose result holds the consumer options."""


class SparkSources:
    """The sources of all queries of one classic SparkContext; used by one thread.

    A run's ``StreamExecution`` is held from the start until its sources are known or the run is
    released, because Spark lists only active runs.
    """

    def __init__(self, spark: Any) -> None:
        self._jvm = spark.sparkContext._jvm  # noqa: SLF001 - no public way to the JVM
        self._kafka = KafkaJava(self._jvm)
        self._admins = SharedClients(partial(close_client, self._kafka))
        java_session = spark._jsparkSession  # noqa: SLF001 - no public way to all sessions
        self._active = java_session.sharedState().activeStreamingQueries()
        self._uuid = getattr(self._jvm, "java.util.UUID")
        self._held: dict[str, Any] = {}

    def open(self, query: Query) -> dict[int, Source] | None:
        """The sources by index as in Spark's progress; None while the run has none.

        Raises:
            SourceError: Spark refuses to list them.

        """
        with java_errors():
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

    def release(self, run_id: str) -> None:
        """Forget a run that will not be opened again."""
        self._held.pop(run_id, None)

    def _hold(self, query: Query) -> Any:
        """Its ``StreamExecution``, if it was available while the run was active."""
        if query.run_id not in self._held:
            execution = self._active.get(self._uuid.fromString(query.query_id))
            if execution is None or execution.runId().toString() != query.run_id:
                return None
            self._held[query.run_id] = execution
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
        return KafkaSource(
            self._kafka,
            self._admins,
            execution,
            stream,
            reader=reader,
            name=f"querypulse-{query.run_id[:8]}-{index}",
        )
