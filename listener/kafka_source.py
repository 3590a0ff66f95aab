"""Asks a Kafka cluster where a query's partitions begin and end, through Kafka's own client.

The client is the one that Spark's connector brings, with the query's own options and security
and short timeouts; it is in no group and commits nothing. ``KafkaOffsetReader``, its
``driverKafkaParams`` and ``consumerStrategy`` are private, but stable in Spark 3.5 to 4.2.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from .checkpoint import short_reason
from .kafka_texts import led_partitions, offsets_in
from .offsets import parse_offsets
from .source_reader import SourceError, SourceSilentError
from .source_report import SourceLook, topic_of

API_SECONDS = 4
REQUEST_SECONDS = 3
OWN_OPTIONS = {
    "default.api.timeout.ms": str(API_SECONDS * 1000),
    "request.timeout.ms": str(REQUEST_SECONDS * 1000),
    "socket.connection.setup.timeout.ms": str(REQUEST_SECONDS * 1000),
    "reconnect.backoff.max.ms": "1000",
}
_SILENCE = ("TimeoutException", "No resolvable bootstrap", "DisconnectException")


class KafkaSource:
    """One Kafka source of one run; used by one thread. A look costs about 20 Py4J commands."""

    def __init__(self, jvm: Any, execution: Any, stream: Any, reader: Any, client_id: str) -> None:
        self._jvm = jvm
        self._execution = execution
        self._stream = stream
        self._description = str(stream.toString())
        self._strategy = _field(reader, "consumerStrategy")
        self._params = getattr(jvm, "java.util.HashMap")(reader.driverKafkaParams())
        for name, value in {**OWN_OPTIONS, "client.id": client_id}.items():
            self._params.put(name, value)
        self.address = str(self._params.get("bootstrap.servers"))
        self._seconds = getattr(jvm, "java.util.concurrent.TimeUnit").SECONDS
        self._clients: _Clients | None = None

    def look(self) -> SourceLook:
        """Ask the cluster.

        Raises:
            SourceError: it refused; ``SourceSilentError``: it did not answer in time.

        """
        with refusals():
            committed = self._committed()
            at, wall = time.monotonic(), time.time()
            earliest, latest = self._ends(committed) if committed else ({}, {})
        return SourceLook(self._description, committed, earliest, latest, at=at, wall=wall)

    def close(self) -> None:
        """Let go of the client; the cluster may be away."""
        with suppress(Py4JError, OSError):
            if self._clients is not None:
                self._clients.close()
        self._clients = None

    def _committed(self) -> dict[str, int]:
        offset = self._execution.committedOffsets().get(self._stream)
        positions = parse_offsets(offset.get().json()) if offset.isDefined() else None
        if not isinstance(positions, dict):
            return {}
        return {key: end for key, end in positions.items() if isinstance(end, int)}

    def _ends(self, committed: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
        """Beginning and end of those partitions that are still there."""
        if self._clients is None:
            self._clients = _Clients(self._jvm, self._strategy.createAdmin(self._params))
        clients = self._clients
        led = clients.led({topic_of(partition) for partition in committed})
        partitions = tuple(sorted(led.intersection(committed)))
        if not partitions:
            return {}, {}
        isolation = str(self._params.get("isolation.level") or "read_uncommitted")
        return clients.ends(partitions, isolation)


class _Clients:
    """The admin client, and what it is asked with, made once for each set of partitions."""

    def __init__(self, jvm: Any, admin: Any) -> None:
        self._jvm = jvm
        self._admin = admin
        # A vendor's connector may hold Kafka's client under another package.
        self._kafka = str(admin.getClass().getName()).partition(".clients.")[0]
        self._seconds = getattr(jvm, "java.util.concurrent.TimeUnit").SECONDS
        self._asked: tuple[str, ...] = ()
        self._from: Any = None
        self._to: Any = None

    def led(self, topics: set[str]) -> set[str]:
        """Those of the topics' partitions that have a leader; a deleted topic has none."""
        names = getattr(self._jvm, "java.util.ArrayList")()
        for topic in sorted(topics):
            names.add(topic)
        futures = self._admin.describeTopics(names).topicNameValues()
        told = [self._described(futures.get(topic)) for topic in sorted(topics)]
        return led_partitions("".join(told))

    def ends(
        self, partitions: tuple[str, ...], isolation: str
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Earliest and latest offsets of partitions."""
        if partitions != self._asked:
            spec = self._class("clients.admin.OffsetSpec")
            self._from = self._ask_each(partitions, spec.earliest())
            self._to = self._ask_each(partitions, spec.latest())
            self._asked = partitions
        level = self._class("common.IsolationLevel").valueOf(isolation.upper())
        options = self._class("clients.admin.ListOffsetsOptions")(level)
        begins = self._admin.listOffsets(self._from, options).all()
        ends = self._admin.listOffsets(self._to, options).all()
        return offsets_in(self._text(begins)), offsets_in(self._text(ends))

    def close(self) -> None:
        duration = getattr(self._jvm, "java.time.Duration")
        self._admin.close(duration.ofSeconds(0))

    def _described(self, future: Any) -> str:
        try:
            return self._text(future)
        except Py4JError as error:
            if "UnknownTopicOrPartitionException" in str(error):
                return ""
            raise

    def _ask_each(self, partitions: tuple[str, ...], spec: Any) -> Any:
        partition_class = self._class("common.TopicPartition")
        specs = getattr(self._jvm, "java.util.HashMap")()
        for partition in partitions:
            topic, _, number = partition.rpartition("/")
            specs.put(partition_class(topic, int(number)), spec)
        return specs

    def _text(self, future: Any) -> str:
        return str(future.get(API_SECONDS + 1, self._seconds).toString())

    def _class(self, name: str) -> Any:
        return getattr(self._jvm, f"{self._kafka}.{name}")


def _field(java: Any, name: str) -> Any:
    """A private field, wherever in the class's ancestry it is."""
    declaring = java.getClass()
    while declaring is not None:
        names = [field.getName() for field in declaring.getDeclaredFields()]
        if name in names:
            field = declaring.getDeclaredField(name)
            field.setAccessible(True)
            return field.get(java)
        declaring = declaring.getSuperclass()
    raise SourceError(f"Spark's Kafka connector has no {name}")


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what Java throws into ``SourceError``, a silence into ``SourceSilentError``."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        text = str(error)
        reason = short_reason(text) or type(error).__name__
        silent = any(word in text for word in _SILENCE)
        raise (SourceSilentError if silent else SourceError)(reason) from error
