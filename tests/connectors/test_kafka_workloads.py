"""On real Kafka: queries that look unhealthy but are healthy raise no alert."""

from __future__ import annotations

import json

import pytest
from support.healthy_workloads import (
    ALLOWED,
    FLOOR,
    TREND,
    HealthyWorkload,
    all_live,
    commits_on,
)
from support.healthy_workloads import SETTINGS as HEALTHY
from support.queries import offsets_of, until
from support.spark_harness import Diary

# A busy machine takes minutes to start all workloads.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.delta,
    pytest.mark.thorough,
    pytest.mark.timeout(900),
]

GRACE = 30
# Each tenth commit writes a Delta checkpoint, which a busy machine is slow at.
SETTINGS = HEALTHY | {
    "start_grace_seconds": GRACE,
    "source_interval_seconds": 1,
    "queries": {
        "to_delta": {"stall_floor_seconds": 3 * FLOOR},
        # Its transaction is open for less than the default trend window, which is scaled here.
        "open_transaction": {"trend_window_seconds": 300},
    },
}
BRISK = {"processingTime": "1 second"}
SPELL = 2.5 * FLOOR
"""Long enough to look like a stall."""


# -- little or no data --------------------------------------------------------------------------


def first_message_after_long_idle(harness):
    topic = harness.kafka.topic()
    harness.put(topic, 5)
    harness.later(SPELL, lambda: harness.put(topic))
    name = "first_message_after_long_idle"
    return harness.start(harness.stream(topic), name, trigger=BRISK)


def waits_for_more(harness):
    """The source has data and holds it back."""
    topic = harness.kafka.topic()
    harness.put(topic, 10)
    harness.feed(topic, every=5)
    options = {"minOffsetsPerTrigger": 10 * ALLOWED, "maxTriggerDelay": "1h"}
    return harness.start(harness.stream(topic, **options), "waits_for_more", trigger=BRISK)


# -- much data ----------------------------------------------------------------------------------


def catching_up(harness):
    """The lag is always far above the limit, and it falls."""
    topic = harness.kafka.topic()
    harness.put(topic, 20 * ALLOWED)
    return harness.start(harness.stream(topic, maxOffsetsPerTrigger=ALLOWED // 10), "catching_up")


def steady_backlog(harness):
    """As much data arrives as the query reads, and the backlog is large."""
    topic = harness.kafka.topic()
    harness.put(topic, 5 * ALLOWED)
    query = harness.start(harness.stream(topic, maxOffsetsPerTrigger=50), "steady_backlog")
    ends = [50]

    def make_up():
        newest = query.lastProgress
        if newest is not None and (end := sum(end_of(newest).values())) > ends[-1]:
            harness.put(topic, end - ends[-1])
            ends.append(end)

    harness.repeat(make_up, 0.2)
    return query


def bursts(harness):
    """More than the allowed lag arrives at once, and is processed."""
    topic = harness.kafka.topic()
    harness.put(topic, 3 * ALLOWED)
    harness.feed(topic, 3 * ALLOWED, every=SPELL)
    stream = harness.stream(topic, maxOffsetsPerTrigger=ALLOWED // 2)
    return harness.start(stream, "bursts", trigger=BRISK)


# -- offsets without rows -----------------------------------------------------------------------


def compacted(harness):
    """Most of its offsets are compacted away."""
    topic = harness.kafka.topic(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01"
    )
    harness.put(topic, ALLOWED, keys=3)
    harness.compact(topic)
    harness.repeat(lambda: harness.put(topic, 3, keys=3), 2)
    return harness.start(harness.stream(topic, maxOffsetsPerTrigger=100), "compacted")


def transactions(harness):
    """Every other transaction is aborted; each transaction leaves a marker."""
    topic = harness.kafka.topic()
    outcomes = iter([True, False] * 1000)

    def write():
        harness.kafka.transaction(topic, ["a", "b", "c"], commit=next(outcomes))

    harness.repeat(write, 2)
    return harness.start(committed(harness, topic), "transactions")


def aborted_tail(harness):
    """The last records belong to an aborted transaction and are never read."""
    topic = harness.kafka.topic()
    harness.kafka.transaction(topic, ["kept"] * 5)
    harness.kafka.transaction(topic, ["dropped"] * 5, commit=False)
    return harness.start(committed(harness, topic), "aborted_tail", trigger=BRISK)


def open_transaction(harness):
    """Records after an open transaction must not be read yet: for a while, that is no lag."""
    topic = harness.kafka.topic()
    harness.put(topic, 5)
    harness.open_transaction(topic)
    harness.feed(topic, 100)
    return harness.start(committed(harness, topic), "open_transaction", trigger=BRISK)


def committed(harness, topic):
    return harness.stream(topic, **{"kafka.isolation.level": "read_committed"})


# -- topics that change -------------------------------------------------------------------------


def new_partitions(harness):
    topic = harness.kafka.topic()
    harness.feed(topic, 4)
    harness.later(SPELL, lambda: harness.kafka.add_partitions(topic, 3))
    return harness.start(harness.stream(topic), "new_partitions")


def one_topic_deleted(harness):
    """One topic of a pattern is deleted; ``failOnDataLoss`` allows it."""
    kept, deleted = harness.kafka.topic(), harness.kafka.topic()
    harness.feed(kept, 2)
    # Use a producer that ends: a living one polls its topics, which recreates them.
    harness.kafka.produce(deleted, ["v"] * 5)
    harness.later(SPELL, lambda: harness.kafka.delete(deleted))
    reader = harness.spark.readStream.format("kafka").option("failOnDataLoss", "false")
    reader = reader.option("kafka.bootstrap.servers", harness.kafka.bootstrap_servers)
    # By default, Kafka's client rarely refreshes its list of topics.
    reader = reader.option("kafka.metadata.max.age.ms", 1000)
    # While a topic is deleted, the client may wait for its whole timeout, a minute by default.
    patience = 1000 * FLOOR // 2
    reader = reader.option("kafka.default.api.timeout.ms", patience)
    reader = reader.option("kafka.request.timeout.ms", patience)
    reader = reader.option("startingOffsets", "earliest")
    stream = reader.option("subscribePattern", f"{kept}|{deleted}").load()
    return harness.start(stream, "one_topic_deleted")


def trimmed_behind(harness):
    """Records are deleted as soon as they are read: retention follows the query closely."""
    topic = harness.kafka.topic()
    harness.feed(topic, 20)
    query = harness.start(harness.stream(topic), "trimmed_behind")

    def trim():
        newest = query.lastProgress
        if newest is not None and newest.numInputRows:
            harness.kafka.forget(topic, end_of(newest)["0"])

    harness.repeat(trim, 1)
    return query


def all_expired(harness):
    """All records of its topic expire."""
    topic = harness.kafka.topic()
    harness.put(topic, 5)
    harness.later(SPELL, lambda: harness.kafka.forget(topic, -1))
    return harness.start(harness.stream(topic), "all_expired", trigger=BRISK)


# -- partitions -----------------------------------------------------------------------------------


def assigned(harness):
    """It reads the new rows of one of two partitions; the other partition must not count."""
    topic = harness.kafka.topic(partitions=2)
    harness.put(topic, 3 * ALLOWED, partition=0)
    harness.feed(topic, partition=0)
    harness.feed(topic, ALLOWED // 4, partition=1)
    reader = harness.spark.readStream.format("kafka").option("assign", json.dumps({topic: [0]}))
    reader = reader.option("kafka.bootstrap.servers", harness.kafka.bootstrap_servers)
    return harness.start(reader.load(), "assigned")


# -- sinks ----------------------------------------------------------------------------------------


def to_delta(harness):
    """Writes each row into a Delta table, by ``foreachBatch``."""
    topic, table = harness.kafka.topic(), str(harness.folder("to_delta") / "table")
    harness.feed(topic)
    append = lambda batch, number: batch.write.format("delta").mode("append").save(table)
    return harness.start(harness.stream(topic).select("value"), "to_delta", append)


# -- what each workload must have done ----------------------------------------------------------


def is_idle_between_two_batches(life, query):
    return life.commits == {0, 1} and life.longest_silence > 2 * FLOOR and rows(query) == 6


def holds_back(life, query):
    return life.commits <= {0} and query.lastProgress.numInputRows == 0


def lags_less_and_less(life, query):
    lags = life.lags
    return len(lags) > 5 and min(lags) > ALLOWED and lags[0] > lags[-1]


def lags_as_before(life, query):
    return len(life.commits) > 5 and min(life.lags) > 4 * ALLOWED


def lags_and_recovers(life, query):
    return max(life.lags) > ALLOWED and min(life.lags) < max(life.lags) / 2


def skips_offsets(life, query):
    return 0 < rows(query) < travelled(query) and len(life.commits) > 3


def leaves_the_tail(life, query):
    return rows(query) == 5 and travelled(query) > 10


def leaves_the_undecided(life, query):
    return rows(query) == 5 == travelled(query)


def reads_three_partitions(life, query):
    ends = end_of(query.recentProgress[-1])
    return set(ends) == {"0", "1", "2"} and min(ends.values()) > 0


def goes_on_without_it(life, query):
    first, last = (offsets_of(query.recentProgress[at].sources[0].endOffset) for at in (0, -1))
    return len(first) == 2 and len(last) == 1 and commits_on(life, query)


def reads_one_partition(life, query):
    return set(end_of(query.lastProgress)) == {"0"} and commits_on(life, query)


def rows(query):
    """The number of rows read, as far as Spark remembers."""
    return sum(p.numInputRows for p in query.recentProgress)


def travelled(query):
    """The number of offsets passed, as far as Spark remembers."""
    past = query.recentProgress
    start = offsets_of(past[0].sources[0].startOffset or "null") or {}
    began = sum(sum(partitions.values()) for partitions in start.values())
    return sum(end_of(past[-1]).values()) - began


def end_of(progress):
    """The end offsets of the first topic of the first source, by partition."""
    return next(iter(offsets_of(progress.sources[0].endOffset).values()))


BEFORE = (
    HealthyWorkload(compacted, skips_offsets),
    HealthyWorkload(catching_up, lags_less_and_less),
    HealthyWorkload(steady_backlog, lags_as_before),
    HealthyWorkload(transactions, skips_offsets),
    HealthyWorkload(aborted_tail, leaves_the_tail, ("idle",)),
    HealthyWorkload(open_transaction, leaves_the_undecided, ("idle",)),
    HealthyWorkload(trimmed_behind, commits_on),
    HealthyWorkload(all_expired, lambda life, query: rows(query) == 5, ("idle",)),
    HealthyWorkload(assigned, reads_one_partition),
    HealthyWorkload(to_delta, commits_on),
)
"""Started before the sidecar: Spark is slow to start so many, which must not count as normal."""

AFTER = (
    HealthyWorkload(
        first_message_after_long_idle, is_idle_between_two_batches, ("running", "idle")
    ),
    HealthyWorkload(waits_for_more, holds_back, ("waiting",)),
    HealthyWorkload(bursts, lags_and_recovers, ("running", "idle")),
    HealthyWorkload(new_partitions, reads_three_partitions),
    HealthyWorkload(one_topic_deleted, goes_on_without_it),
)

WATCH_SECONDS = 40
assert 2 * max(FLOOR, TREND) < WATCH_SECONDS


@pytest.mark.nightly
def test_healthy_queries_on_kafka_raise_no_alert(harness, watch, pages):
    queries = {workload.name: workload.start(harness) for workload in BEFORE}
    until(lambda: all(harness.committed(name) >= 0 for name in queries), "all commit")
    sidecar = watch(**SETTINGS)
    diary = Diary(harness, sidecar)
    queries |= {workload.name: workload.start(harness) for workload in AFTER}

    until(lambda: diary.seconds > WATCH_SECONDS, "the time is over")
    all_live((*BEFORE, *AFTER), diary, queries)

    assert pages.pages == []
    assert sidecar.alerts() == ()
    read = rows(queries["to_delta"])
    table = harness.spark.read.format("delta").load(str(harness.folder("to_delta") / "table"))
    assert table.count() >= read > 5
