"""Polls a Kafka cluster: where a query's partitions begin and end, and since when data is unread.

Uses the client library of Spark's connector, with the query's own options and security and short
timeouts; the clients join no group and commit nothing. ``KafkaOffsetReader``, its
``driverKafkaParams`` and its ``ConsumerStrategy`` are private, but stable in Spark 3.5 to 4.2.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from msgspec.structs import replace
from py4j.protocol import Py4JError

from .kafka_admin import KafkaAdmin, Retention, admin_config
from .kafka_java import API_SECONDS, KafkaJava, java_errors, private_field
from .kafka_records import KafkaRecords
from .report import SourcePoll, topic_of
from .shared_clients import Lease, SharedClients
from .source import SourceError, SourceSilentError, committed_in
from .waiting import Found, searches, still_true

REQUEST_SECONDS = 3
OPTIONS = {
    "default.api.timeout.ms": str(API_SECONDS * 1000),
    "request.timeout.ms": str(REQUEST_SECONDS * 1000),
    "socket.connection.setup.timeout.ms": str(REQUEST_SECONDS * 1000),
    "socket.connection.setup.timeout.max.ms": str(REQUEST_SECONDS * 1000),
}


class KafkaSource:
    """One Kafka source of one run; used by one thread.

    Sources of one cluster with equal options and security share an admin client. A poll costs
    about 30 Py4J commands, plus 10 for each partition that is searched for a record.
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
        for option, value in OPTIONS.items():
            self._params.put(option, value)
        self.address = str(self._params.get("bootstrap.servers"))
        self._lease: Lease | None = None
        self._admin: KafkaAdmin | None = None
        self._records: KafkaRecords | None = None
        self._found: dict[str, Found] = {}

    def poll(self) -> SourcePoll:
        """Poll the cluster.

        Raises:
            SourceError: the cluster refused; ``SourceSilentError``: it did not answer in time.

        """
        try:
            with java_errors():
                committed = self._committed()
                poll = SourcePoll(
                    self._description, committed, {}, {}, at=time.monotonic(), wall=time.time()
                )
                return self._ask(poll) if committed else poll
        except SourceSilentError:
            # Open clients would keep trying to connect and log every attempt.
            if self._lease is not None:
                self._lease.drop()
            self.close()
            raise

    def close(self) -> None:
        """Release the clients; the cluster may be unreachable."""
        with suppress(Py4JError, OSError):
            if self._records is not None:
                self._records.close()
        if self._lease is not None:
            self._lease.release()
        self._lease = self._admin = self._records = None

    def _committed(self) -> dict[str, int]:
        positions = committed_in(self._execution, self._stream)
        return {key: end for key, end in positions.items() if isinstance(end, int)}

    def _ask(self, poll: SourcePoll) -> SourcePoll:
        """Complete a poll that has only the committed offsets."""
        admin = self._connect()
        led = admin.led(sorted({topic_of(partition) for partition in poll.committed}))
        partitions = tuple(sorted(led.intersection(poll.committed)))
        if not partitions:
            return poll
        # In this order, because all three only grow: records read and deleted meanwhile then do
        # not count as lost, and no batch can end beyond the latest offsets.
        earliest = admin.begins(partitions)
        committed = self._committed() or poll.committed
        latest = admin.ends(partitions)
        poll = replace(poll, committed=committed, earliest=earliest, latest=latest)
        topics = tuple(sorted({topic_of(partition) for partition in partitions}))
        poll = _with_retention(poll, admin.retention(topics, poll.at))
        return self._with_records(poll)

    def _connect(self) -> KafkaAdmin:
        if self._admin is None:
            isolation = str(self._params.get("isolation.level") or "read_uncommitted")
            config = admin_config(self._java, self._params)
            self._lease = self._lease or self._admins.lease(config, self._open_admin)
            self._admin = KafkaAdmin(self._java, self._lease, isolation)
        return self._admin

    def _open_admin(self, name: str) -> Any:
        params = self._java.java("java.util.HashMap")(self._params)
        params.put("client.id", name)
        return self._strategy.createAdmin(params)

    def _with_records(self, poll: SourcePoll) -> SourcePoll:
        """Add since when data is unread; an error here does not affect the rest of the poll."""
        self._found = still_true(self._found, poll)
        wanted = searches(self._found, poll)
        try:
            with java_errors():
                if wanted:
                    self._found |= self._read().find(wanted)
        except SourceError as error:
            poll = replace(
                poll, missing_reason="; ".join(filter(None, (poll.missing_reason, str(error))))
            )
        found = self._found.items()
        return replace(
            poll,
            first_waiting={partition: one.offset for partition, one in found},
            waiting_since={key: one.since for key, one in found if one.since is not None},
        )

    def _read(self) -> KafkaRecords:
        if self._records is None:
            params = self._strategy.setAuthenticationConfigIfNeeded(self._params)
            self._records = KafkaRecords(self._java, params, self._client_id)
        return self._records


def _with_retention(poll: SourcePoll, retention: Retention) -> SourcePoll:
    kept = retention.by_topic
    return replace(
        poll,
        retention_seconds={t: one.seconds for t, one in kept.items() if one.seconds is not None},
        bounded_by_size=frozenset(topic for topic, one in kept.items() if one.bounded_by_size),
        missing_reason=retention.missing_reason,
    )
