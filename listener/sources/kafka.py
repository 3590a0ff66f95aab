"""Polls a Kafka cluster: where a query's partitions begin and end, and since when data is unread.

Uses the client library of Spark's connector, with the query's own options and security and short
timeouts; the clients join no group and commit nothing. ``KafkaOffsetReader``, its
``driverKafkaParams`` and its ``ConsumerStrategy`` are private, but stable in Spark 3.5 to 4.2.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace
from py4j.protocol import Py4JError

from ..offsets import committed_in, planned_in
from ..source_polls import SourceError, SourcePoll, SourceSilentError, topic_of
from ..spark.jvm import THROWN, private_field, reason_of

API_SECONDS = 4
_SILENCE = ("TimeoutException", "No resolvable bootstrap", "DisconnectException")


class KafkaJava:
    """Java classes by name, each resolved once, and the containers that calls need."""

    def __init__(self, jvm: Any) -> None:
        self.java = cache(partial(getattr, jvm))
        """A class by its full name."""
        self._package = "org.apache.kafka"
        self._seconds = self.java("java.util.concurrent.TimeUnit").SECONDS

    def use_package_of(self, params: Any) -> None:
        """Use the package of a query's deserializer for all classes: a vendor may move them."""
        self._package = str(params.get("key.deserializer")).partition(".common.")[0]

    def kafka(self, name: str) -> Any:
        """A class by its name within Kafka's packages."""
        return self.java(f"{self._package}.{name}")

    def array_list(self, *items: Any) -> Any:
        """A Java list."""
        made = self.java("java.util.ArrayList")()
        for item in items:
            made.add(item)
        return made

    def partition(self, partition: str) -> Any:
        """The ``TopicPartition`` for ``topic/0``."""
        topic, _, number = partition.rpartition("/")
        return self.kafka("common.TopicPartition")(topic, int(number))

    def millis(self, seconds: float) -> Any:
        """A Java duration."""
        return self.java("java.time.Duration").ofMillis(int(seconds * 1000))

    def result(self, future: Any) -> Any:
        """A future's result; the future itself fails after ``API_SECONDS``."""
        return future.get(API_SECONDS + 1, self._seconds)

    def text(self, future: Any) -> str:
        """A future's result as text."""
        return str(self.result(future).toString())


@contextmanager
def java_errors() -> Iterator[None]:
    """Raise Java exceptions as ``SourceError``, timeouts as ``SourceSilentError``."""
    try:
        yield
    except (*THROWN, LookupError) as error:
        silent = any(word in str(error) for word in _SILENCE)
        raise (SourceSilentError if silent else SourceError)(reason_of(error)) from error


# Kafka's records are read from their text: one Py4J command for all partitions.
# {orders-0=ListOffsetsResultInfo(offset=7, timestamp=-1, leaderEpoch=Optional[0]), ...}
_OFFSET = re.compile(r"([\w.-]+)-(\d+)=\w+\(offset=(-?\d+),")
# (name=orders, internal=false, partitions=(partition=0, leader=host:9092 (id: 1 ...
_TOPIC = re.compile(r"\(name=([\w.-]+), internal=")
_PARTITION = re.compile(r"\(partition=(\d+), leader=([^,]+)")
# ConfigResource(type=TOPIC, name='orders')=Config(entries=[ConfigEntry(name=retention.ms, ...
_CONFIG = re.compile(r"ConfigResource\(type=TOPIC, name='([\w.-]+)'\)=")
_ENTRY = re.compile(r"ConfigEntry\(name=([\w.]+), value=(.*?), source=")


def offsets_in(text: str) -> dict[str, int]:
    """Offset by partition from ``ListOffsetsResult.all()``, without -1, which means none."""
    return {
        f"{topic}/{partition}": int(offset)
        for topic, partition, offset in _OFFSET.findall(text)
        if int(offset) >= 0
    }


def led_partitions(text: str) -> set[str]:
    """The partitions in ``TopicDescription`` that have a leader and can be queried."""
    return {
        f"{topic}/{number}"
        for topic, description in _by_name(_TOPIC, text)
        for number, leader in _PARTITION.findall(description)
        if leader not in ("none", "null")
    }


def retention_in(text: str) -> tuple[dict[str, float], frozenset[str]]:
    """The seconds that topics keep records, and the topics of limited size.

    From ``DescribeConfigsResult.all()``; none of its settings is a secret. A topic without a limit
    is left out.
    """
    seconds = {}
    bounded = set()
    for topic, config in _by_name(_CONFIG, text):
        entries = dict(_ENTRY.findall(config))
        # Without the policy ``delete`` no age or size limit applies, only compaction.
        if "delete" not in entries.get("cleanup.policy", "delete").split(","):
            continue
        millis = int(entries.get("retention.ms", "-1"))
        if millis >= 0:
            seconds[topic] = millis / 1000
        if int(entries.get("retention.bytes", "-1")) >= 0:
            bounded.add(topic)
    return seconds, frozenset(bounded)


def _by_name(name: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """Each name, and the text up to the next name."""
    parts = name.split(text)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


class SharedClient:
    """An admin client that all sources with equal options use; opened when first needed."""

    def __init__(self, config: Any, name: str) -> None:
        self.config = config
        self.users = 0
        self._name = name
        self._client: Any = None

    def get(self, open_client: Callable[[str], Any]) -> Any:
        """The client; ``open_client`` opens one of a name, and is not kept: it holds a run."""
        if self._client is None:
            self._client = open_client(self._name)
        return self._client

    def close(self, at_once: Any) -> None:
        """Close the client for all its users, ``at_once``; the next use opens a new one."""
        client = self._client
        self._client = None
        if client is not None:
            # The cluster may be unreachable.
            with suppress(Py4JError, OSError):
                client.close(at_once)


class SharedClients:
    """One client per configuration, for as long as a source needs it; used by one thread.

    A configuration is a Java map without the client's name: equal maps mean the same servers,
    security and behaviour. The maps, and the secrets in them, stay in Java.
    """

    def __init__(self, java: KafkaJava) -> None:
        self._java = java
        self._name = f"querypulse-admin-{uuid.uuid4().hex[:8]}"
        self._numbers = count(1)
        self._clients: list[SharedClient] = []

    def lease(self, config: Any) -> SharedClient:
        """The configuration's client, for one more user."""
        client = next((client for client in self._clients if client.config.equals(config)), None)
        if client is None:
            client = SharedClient(config, f"{self._name}-{next(self._numbers)}")
            self._clients.append(client)
        client.users += 1
        return client

    def release(self, client: SharedClient) -> None:
        """End the use by one user; the last one closes the client."""
        client.users -= 1
        if not client.users:
            self._clients.remove(client)
            client.close(self._java.millis(0))


MAX_PARTITIONS = 16
"""How many partitions are searched in one poll."""


class FirstUnread(msgspec.Struct, frozen=True):
    """A search from ``committed``: no record before ``offset``; the record there is of ``since``.

    Not every offset holds a record: transactions leave markers, aborted transactions leave
    invisible records, and compaction removes records. ``since`` is Unix seconds; None if no record
    has been found yet.
    """

    committed: int
    offset: int
    since: float | None = None


def still_true(results: Mapping[str, FirstUnread], poll: SourcePoll) -> dict[str, FirstUnread]:
    """The results still valid: not passed by the query, not deleted, the topic not recreated."""
    return {
        partition: first
        for partition, first in results.items()
        if partition in poll.latest
        and first.committed <= poll.committed.get(partition, -1) <= first.offset
        and poll.earliest.get(partition, 0) <= first.offset <= poll.latest[partition]
    }


def searches(results: Mapping[str, FirstUnread], poll: SourcePoll) -> dict[str, FirstUnread]:
    """Where to search now, up to the end: partitions without a result, the most unread first."""
    wanted = {}
    for partition, committed in poll.committed.items():
        first = results.get(partition, FirstUnread(committed, committed))
        start = max(committed, poll.earliest.get(partition, 0), first.offset)
        if first.since is None and start < poll.latest.get(partition, 0):
            wanted[partition] = FirstUnread(committed, start)
    largest = sorted(
        wanted, key=lambda partition: wanted[partition].offset - poll.latest[partition]
    )
    return {partition: wanted[partition] for partition in largest[:MAX_PARTITIONS]}


SEARCH_SECONDS = 2.0
"""The time limit for all searches of one poll."""
POLL_SECONDS = 0.5
CONSUMER_OPTIONS = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    # Reading a deleted topic must not create it again.
    "allow.auto.create.topics": "false",
    "max.poll.records": "1",
    "max.partition.fetch.bytes": "65536",
    "fetch.max.bytes": "1048576",
}
OF_GROUPS = ("group.id", "group.instance.id", "interceptor.classes")


class KafkaRecords:
    """One consumer without a group, which commits nothing; used by one thread at a time."""

    def __init__(self, java: KafkaJava, params: Any, client_id: str) -> None:
        self._java = java
        params = java.java("java.util.HashMap")(params)
        for name in OF_GROUPS:
            params.remove(name)
        for name, value in {**CONSUMER_OPTIONS, "client.id": f"{client_id}-records"}.items():
            params.put(name, value)
        self._consumer = java.kafka("clients.consumer.KafkaConsumer")(params)

    def find(
        self, searches: Mapping[str, FirstUnread], ends: Mapping[str, int]
    ) -> dict[str, FirstUnread]:
        """The first record of each partition, within ``SEARCH_SECONDS`` in total."""
        until = time.monotonic() + SEARCH_SECONDS
        results = {}
        for partition, first in searches.items():
            if time.monotonic() >= until:
                break
            results[partition] = self._find(partition, first, ends[partition], until)
        self._consumer.unsubscribe()
        return results

    def close(self) -> None:
        """Drop the connections at once."""
        self._consumer.close(self._java.millis(0))

    def _find(self, name: str, first: FirstUnread, end: int, until: float) -> FirstUnread:
        partition = self._java.partition(name)
        self._consumer.assign(self._java.array_list(partition))
        self._consumer.seek(partition, first.offset)
        position = first.offset
        while position < end and (left := until - time.monotonic()) > 0:
            records = self._consumer.poll(self._java.millis(min(POLL_SECONDS, left)))
            if not records.isEmpty():
                record = records.iterator().next()
                millis = int(record.timestamp())
                offset = int(record.offset())
                # Records of old formats have no timestamp (-1).
                since = millis / 1000 if millis > 0 and offset < end else None
                return FirstUnread(first.committed, min(offset, end), since)
            position = int(self._consumer.position(partition, self._java.millis(POLL_SECONDS)))
        return FirstUnread(first.committed, min(position, end))


CONFIG_EVERY_SECONDS = 300.0
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""``Uuid.ZERO_UUID``."""
UNCOMMITTED = "read_uncommitted"
REQUEST_SECONDS = 3
ADMIN_OPTIONS = {
    "default.api.timeout.ms": str(API_SECONDS * 1000),
    "request.timeout.ms": str(REQUEST_SECONDS * 1000),
    "socket.connection.setup.timeout.ms": str(REQUEST_SECONDS * 1000),
    "socket.connection.setup.timeout.max.ms": str(REQUEST_SECONDS * 1000),
}


class KafkaSource:
    """One Kafka source of one run; used by one thread.

    Sources of one cluster with equal options and security share an admin client. A poll costs
    about 30 Py4J commands, plus 4 for each topic, and 10 for each partition that is searched for a
    record.
    """

    def __init__(
        self,
        java: KafkaJava,
        admins: SharedClients,
        execution: Any,
        stream: Any,
        *,
        reader: Any,
        name: str,
    ) -> None:
        self._java = java
        self._admins = admins
        self._execution = execution
        self._stream = stream
        self._description = str(stream.toString())
        self._strategy = private_field(reader, "consumerStrategy")
        self._client_id = name
        self._params = java.java("java.util.HashMap")(reader.driverKafkaParams())
        java.use_package_of(self._params)
        for option, value in ADMIN_OPTIONS.items():
            self._params.put(option, value)
        self.address = str(self._params.get("bootstrap.servers"))
        isolation = str(self._params.get("isolation.level") or UNCOMMITTED)
        levels = java.kafka("common.IsolationLevel")
        options = java.kafka("clients.admin.ListOffsetsOptions")
        self._options = options(levels.valueOf(isolation.upper()))
        self._uncommitted = None if isolation == UNCOMMITTED else options(levels.READ_UNCOMMITTED)
        self._admin: SharedClient | None = None
        self._records: KafkaRecords | None = None
        self._results: dict[str, FirstUnread] = {}
        self._partitions: tuple[str, ...] = ()
        self._specs: tuple[Any, Any] = (None, None)
        """The maps from each of these to its earliest, and to its latest offset."""
        self._retention = Retention()
        self._written: dict[str, int] | None = None
        self._has_ids = True

    def poll(self, written_since: float | None = None) -> SourcePoll:
        """Poll the cluster.

        ``written_since``: the Unix time whose first offset in each partition is asked for, once.

        Raises:
            SourceError: the cluster refused; ``SourceSilentError``: it did not answer in time.

        """
        try:
            with java_errors():
                committed = self._committed()
                poll = SourcePoll(
                    self._description,
                    committed,
                    {},
                    {},
                    at=time.monotonic(),
                    wall=time.time(),
                    system=self.address,
                )
                return self._with_written(self._ask(poll), written_since) if committed else poll
        except SourceSilentError:
            # Open clients would keep trying to connect and log every attempt.
            if self._admin is not None:
                self._admin.close(self._java.millis(0))
            self.close()
            raise

    def close(self) -> None:
        """Release the clients; the cluster may be unreachable."""
        with suppress(Py4JError, OSError):
            if self._records is not None:
                self._records.close()
        if self._admin is not None:
            self._admins.release(self._admin)
        self._admin = self._records = None

    def _committed(self) -> dict[str, int]:
        positions = committed_in(self._execution, self._stream)
        return {key: end for key, end in positions.items() if isinstance(end, int)}

    def _ask(self, poll: SourcePoll) -> SourcePoll:
        """Complete a poll that has only the committed offsets."""
        led, ids = self._led(sorted({topic_of(partition) for partition in poll.committed}))
        partitions = tuple(sorted(led.intersection(poll.committed)))
        if not partitions:
            return poll
        first, last = self._specs_of(partitions)
        # In this order, because all three only grow: records read and deleted meanwhile then do
        # not count as lost, and no batch can end beyond the latest offsets.
        earliest = self._offsets(first, self._options)
        committed = self._committed() or poll.committed
        latest = self._offsets(last, self._options)
        log_end = {} if self._uncommitted is None else self._offsets(last, self._uncommitted)
        poll = replace(
            poll,
            committed=committed,
            earliest=earliest,
            latest=latest,
            log_end=log_end,
            topic_ids=ids,
            at_rest=self._is_at_rest(committed, earliest),
        )
        topics = tuple(sorted({topic_of(partition) for partition in partitions}))
        return self._with_records(self._with_retention(poll, topics))

    def _is_at_rest(self, committed: dict[str, int], earliest: dict[str, int]) -> bool:
        """Whether no batch is planned beyond ``committed``; asked only where that proves a loss."""
        if all(offset >= earliest.get(partition, 0) for partition, offset in committed.items()):
            return False
        return planned_in(self._execution, self._stream) == committed

    def _with_written(self, poll: SourcePoll, since: float | None) -> SourcePoll:
        """Add the first offset of each partition that was written at ``since`` or later."""
        if since is None or not poll.latest:
            return poll
        if self._written is None:
            spec = self._java.kafka("clients.admin.OffsetSpec").forTimestamp(int(since * 1000))
            wanted = self._java.java("java.util.HashMap")()
            for partition in self._partitions:
                wanted.put(self._java.partition(partition), spec)
            # Nothing was written since in a partition that the answer lacks.
            self._written = {**poll.latest, **self._offsets(wanted, self._options)}
        return replace(poll, written_since=self._written)

    def _client(self) -> Any:
        """The admin client, with the query's options and Spark's own security."""
        if self._admin is None:
            config = admin_config(self._java, self._params)
            self._admin = self._admins.lease(config)
        return self._admin.get(self._open)

    def _open(self, name: str) -> Any:
        params = self._java.java("java.util.HashMap")(self._params)
        params.put("client.id", name)
        return self._strategy.createAdmin(params)

    def _led(self, topics: list[str]) -> tuple[set[str], dict[str, str]]:
        """The partitions that have a leader, and the ids of their topics; a deleted one has none.

        A request for an offset of a partition without a leader would wait until its timeout.
        """
        names = self._java.array_list(*topics)
        futures = self._client().describeTopics(names).topicNameValues()
        described = {topic: self._described(futures.get(topic)) for topic in topics}
        led = led_partitions("".join(text for text, _ in described.values()))
        return led, {topic: topic_id for topic, (_, topic_id) in described.items() if topic_id}

    def _described(self, future: Any) -> tuple[str, str]:
        try:
            description = self._java.result(future)
        except Py4JError as error:
            if "UnknownTopicOrPartitionException" in str(error):
                return "", ""
            raise
        return str(description.toString()), self._topic_id(description)

    def _topic_id(self, description: Any) -> str:
        """The topic's id; empty for a client or a broker before Kafka 2.8."""
        if not self._has_ids:
            return ""
        try:
            topic_id = str(description.topicId().toString())
        except Py4JError:
            self._has_ids = False
            return ""
        return "" if topic_id == NO_ID else topic_id

    def _specs_of(self, partitions: tuple[str, ...]) -> tuple[Any, Any]:
        if partitions != self._partitions:
            spec = self._java.kafka("clients.admin.OffsetSpec")
            earliest = spec.earliest()
            latest = spec.latest()
            first, last = (self._java.java("java.util.HashMap")() for _ in range(2))
            for partition in partitions:
                key = self._java.partition(partition)
                first.put(key, earliest)
                last.put(key, latest)
            self._partitions = partitions
            self._specs = (first, last)
        return self._specs

    def _offsets(self, specs: Any, options: Any) -> dict[str, int]:
        return offsets_in(self._java.text(self._client().listOffsets(specs, options).all()))

    def _with_retention(self, poll: SourcePoll, topics: tuple[str, ...]) -> SourcePoll:
        """Add how long topics are kept, read every few minutes; the user may lack permission."""
        kept = self._retention
        if topics != kept.topics or poll.at - kept.at >= CONFIG_EVERY_SECONDS:
            kept = Retention(topics, poll.at)
            try:
                seconds, bounded = retention_in(self._configs(topics))
                kept = replace(kept, seconds=seconds, bounded=bounded)
            except Py4JError as error:
                kept = replace(kept, refusal=reason_of(error))
            self._retention = kept
        return replace(
            poll,
            retention_seconds=kept.seconds,
            bounded_by_size=kept.bounded,
            missing_reason=kept.refusal,
        )

    def _configs(self, topics: tuple[str, ...]) -> str:
        resource = self._java.kafka("common.config.ConfigResource")
        kind = self._java.kafka("common.config.ConfigResource$Type").TOPIC
        asked = self._java.array_list(*(resource(kind, topic) for topic in topics))
        return self._java.text(self._client().describeConfigs(asked).all())

    def _with_records(self, poll: SourcePoll) -> SourcePoll:
        """Add since when data is unread; an error here does not affect the rest of the poll."""
        self._results = still_true(self._results, poll)
        wanted = searches(self._results, poll)
        try:
            with java_errors():
                if wanted:
                    self._results |= self._read().find(wanted, poll.latest)
        except SourceError as error:
            reasons = filter(None, (poll.missing_reason, str(error)))
            poll = replace(poll, missing_reason="; ".join(reasons))
        results = self._results.items()
        return replace(
            poll,
            first_waiting={partition: first.offset for partition, first in results},
            waiting_since={key: first.since for key, first in results if first.since is not None},
        )

    def _read(self) -> KafkaRecords:
        if self._records is None:
            params = self._strategy.setAuthenticationConfigIfNeeded(self._params)
            self._records = KafkaRecords(self._java, params, self._client_id)
        return self._records


class Retention(msgspec.Struct, frozen=True):
    """How long topics are kept, as of ``at``, and which ones have a limited size, too."""

    topics: tuple[str, ...] = ()
    at: float = 0.0
    seconds: dict[str, float] = {}
    bounded: frozenset[str] = frozenset()
    refusal: str = ""


def admin_config(java: KafkaJava, params: Any) -> Any:
    """A query's options for an admin client; sources with equal maps may share a client."""
    new = java.java
    ignored = new("java.util.HashSet")(java.kafka("clients.consumer.ConsumerConfig").configNames())
    ignored.removeAll(java.kafka("clients.admin.AdminClientConfig").configNames())
    # The name, which we set.
    ignored.add("client.id")
    config = new("java.util.HashMap")(params)
    config.keySet().removeAll(ignored)
    return config
