"""The lag of Kafka's topics, from offsets, record times and text output; and its shared clients."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.story import poll

from querypulse.listener.source_polls import SourcePoll
from querypulse.listener.sources.kafka import (
    MAX_PARTITIONS,
    FirstUnread,
    SharedClients,
    led_partitions,
    offsets_in,
    retention_in,
    searches,
    still_true,
)

OFFSETS = st.dictionaries(st.sampled_from(["t/0", "t/1", "u/0"]), st.integers(0, 50))
POLLS = st.builds(
    lambda **parts: SourcePoll("Kafka", **parts),
    committed=OFFSETS,
    earliest=OFFSETS,
    latest=OFFSETS,
    first_waiting=OFFSETS,
)


def test_lag_counts_only_read_and_existing_partitions():
    polls = [
        ({"committed": 10, "latest": 25}, {"t/0": 15}),
        ({"committed": 10, "latest": 10}, {"t/0": 0}),
        # recreated: the end is below the committed offset
        ({"committed": 10, "latest": 3}, {"t/0": 0}),
        # deleted, or without a leader
        ({"committed": 10, "latest": None}, {}),
        # new: not read yet
        ({"committed": {"t/0": 5}, "latest": {"t/0": 5, "t/1": 9}}, {"t/0": 0}),
        # records deleted by retention do not count
        ({"committed": 10, "earliest": 20, "latest": 25}, {"t/0": 5}),
        # markers, aborted and compacted records precede the first unread record
        ({"committed": 10, "latest": 25, "first_waiting": 24}, {"t/0": 1}),
        ({"committed": 10, "latest": 25, "first_waiting": 25}, {"t/0": 0}),
    ]

    for seen, lags in polls:
        entry = poll(at=0, **seen)
        assert entry.lag_by_partition == lags
        assert entry.lag_offsets == (sum(lags.values()) if lags else None)


def test_topic_lag_is_the_sum_and_its_age_that_of_the_oldest_record():
    entry = poll(
        at=0,
        committed={"a/0": 0, "a/1": 0, "b/0": 7, "b/1": 0},
        latest={"a/0": 2, "a/1": 3, "b/0": 7, "b/1": 5},
        since={"a/0": 70.0, "a/1": 60.0, "b/0": 10.0},
    )

    assert entry.lag_by_topic == {"a": 5, "b": 5}
    # b/0 has no backlog, and b/1 has no known record time.
    assert entry.waiting_since_by_topic == {"a": 60.0}


@given(POLLS)
def test_lag_is_never_negative_and_topics_add_up(entry):
    assert all(lag >= 0 for lag in entry.lag_by_partition.values())
    assert sum(entry.lag_by_topic.values()) == sum(entry.lag_by_partition.values())
    assert set(entry.lag_by_partition) <= set(entry.committed) & set(entry.latest)


def test_first_unread_record_is_searched_in_partitions_with_lag_the_largest_first():
    """A search without a result continues where it ended."""
    entry = poll(
        at=0,
        committed={"t/0": 5, "t/1": 5, "t/2": 5, "t/3": 5, "t/4": 5, "t/5": 5, "gone/0": 5},
        earliest={"t/0": 0, "t/1": 0, "t/2": 6, "t/3": 0},
        latest={"t/0": 5, "t/1": 8, "t/2": 20, "t/3": 30, "t/4": 30, "t/5": 30},
    )
    earlier = {
        "t/3": FirstUnread(5, 7, 100.0),
        "t/4": FirstUnread(5, 25),
        "t/5": FirstUnread(5, 30),
    }

    assert list(searches(earlier, entry).items()) == [
        ("t/2", FirstUnread(5, 6)),
        ("t/4", FirstUnread(5, 25)),
        ("t/1", FirstUnread(5, 5)),
    ]
    many = {f"t/{number}": number for number in range(100)}
    largest = searches({}, poll(at=0, committed=dict.fromkeys(many, 0), latest=many))
    assert list(largest) == [f"t/{number}" for number in range(99, 99 - MAX_PARTITIONS, -1)]


@pytest.mark.parametrize(
    ("seen", "is_kept"),
    [
        ({"committed": 5, "latest": 30}, True),
        ({"committed": 7, "latest": 30}, True),
        ({"committed": 8, "latest": 30}, False),
        ({"committed": 4, "latest": 30}, False),
        ({"committed": 5, "earliest": 8, "latest": 30}, False),
        ({"committed": 5, "latest": 6}, False),
        ({"committed": 5, "latest": None}, False),
    ],
    ids=["unchanged", "read up to it", "read", "rewound", "deleted", "recreated", "gone"],
)
def test_found_record_is_valid_until_it_is_read_or_gone(seen, is_kept):
    results = {"t/0": FirstUnread(5, 7, 100.0)}

    assert still_true(results, poll(at=0, **seen)) == (results if is_kept else {})


def test_offsets_are_read_by_partition():
    text = (
        "{t-0=ListOffsetsResultInfo(offset=7, timestamp=-1, leaderEpoch=Optional[0]), "
        "a.b-c_d-12=ListOffsetsResultInfo(offset=0, timestamp=5, leaderEpoch=Optional.empty), "
        "t-1=ListOffsetsResultInfo(offset=-1, timestamp=-1, leaderEpoch=Optional.empty)}"
    )

    assert offsets_in(text) == {"t/0": 7, "a.b-c_d/12": 0}
    assert offsets_in("{}") == {}


def test_partition_without_a_leader_is_skipped():
    node = "h:9092 (id: 1 rack: null)"
    text = (
        f"(name=t, internal=false, partitions=(partition=0, leader={node}, replicas={node}, "
        f"isr={node}, elr=, lastKnownElr=),(partition=1, leader=none, replicas={node}, isr=), "
        f"authorizedOperations=null)(name=u-1, internal=false, partitions=(partition=2, "
        f"leader={node}, replicas=, isr=), authorizedOperations=null)"
    )

    assert led_partitions(text) == {"t/0", "u-1/2"}
    assert led_partitions("") == set()


def config(name, **entries):
    reported = ", ".join(
        f"ConfigEntry(name={key.replace('_', '.')}, value={value}, source=DYNAMIC_TOPIC_CONFIG, "
        "isSensitive=false, isReadOnly=false, synonyms=[], type=LONG, documentation=null)"
        for key, value in entries.items()
    )
    return f"ConfigResource(type=TOPIC, name='{name}')=Config(entries=[{reported}])"


def test_retention_comes_from_topics_that_delete_records():
    topics = [
        ({"retention_ms": "60000", "retention_bytes": "-1"}, {"t": 60.0}, set()),
        ({"retention_ms": "-1", "retention_bytes": "-1"}, {}, set()),
        ({"retention_ms": "-1", "retention_bytes": "100"}, {}, {"t"}),
        ({"cleanup_policy": "compact", "retention_ms": "60000"}, {}, set()),
        ({"cleanup_policy": "compact,delete", "retention_ms": "60000"}, {"t": 60.0}, set()),
    ]

    for entries, seconds, bounded in topics:
        text = "{" + ", ".join([config("t", **entries), config("u", retention_ms="1000")]) + "}"
        assert retention_in(text) == ({"u": 1.0, **seconds}, bounded)


class Config(dict):
    """A Java map."""

    def equals(self, other):
        return self == other


class Cluster:
    """Opens clients, records the open ones, and how many were opened."""

    def __init__(self):
        self.open = []
        self.opened = 0
        self.refusal = None
        self.clients = SharedClients(SimpleNamespace(millis=float))

    def lease(self, **config):
        return self.clients.lease(Config(config))

    def connect(self, name):
        if self.refusal is not None:
            raise self.refusal
        self.opened += 1
        client = SimpleNamespace(name=name, close=lambda millis: self.open.remove(client))
        self.open.append(client)
        return client


def test_only_sources_with_the_same_cluster_and_credentials_share_a_client():
    cluster = Cluster()
    leases = [
        cluster.lease(servers=servers, password=password)
        for servers, password in (("a", "x"), ("a", "x"), ("b", "x"), ("a", "y"))
    ]
    assert cluster.opened == 0, "a client is opened at its first use"
    first, second, *others = (lease.get(cluster.connect).name for lease in leases)

    assert first == second
    assert len({first, *others}) == 3
    assert all(name.startswith("querypulse-admin-") for name in (first, *others))
    other = Cluster()
    assert first != other.lease(servers="a").get(other.connect).name


def test_last_release_closes_the_client_and_a_later_lease_opens_a_new_one():
    cluster = Cluster()
    first, second, other = (cluster.lease(servers=name) for name in ("a", "a", "b"))
    before, kept = first.get(cluster.connect), other.get(cluster.connect)
    cluster.clients.release(first)
    assert cluster.open == [before, kept]
    cluster.clients.release(second)
    assert cluster.open == [kept]

    assert cluster.lease(servers="a").get(cluster.connect) not in (before, kept)


def test_closed_client_is_reopened_once_for_all():
    cluster = Cluster()
    first, second = cluster.lease(servers="a"), cluster.lease(servers="a")
    before = first.get(cluster.connect)
    second.close(0)
    assert cluster.open == []

    assert first.get(cluster.connect) is second.get(cluster.connect) is not before
    assert cluster.opened == 2


def test_failed_open_is_retried():
    cluster = Cluster()
    shared = cluster.lease(servers="a")
    cluster.refusal = OSError("No resolvable bootstrap urls")
    with pytest.raises(OSError, match="No resolvable"):
        shared.get(cluster.connect)
    shared.close(0)
    cluster.refusal = None

    assert shared.get(cluster.connect) in cluster.open


def test_client_keeps_no_source_that_has_released_it():
    cluster = Cluster()

    class Source:
        def open(self, name):
            return cluster.connect(name)

    source, first, second = Source(), cluster.lease(servers="a"), cluster.lease(servers="a")
    before, held = first.get(source.open), weakref.ref(source)
    cluster.clients.release(first)
    del source, first

    assert held() is None
    assert second.get(cluster.connect) is before
