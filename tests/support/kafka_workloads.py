"""Healthy workloads at a broker: what topics do to queries that is no failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from support.healthy_workloads import ALLOWED, FLOOR
from support.healthy_workloads import SETTINGS as HEALTHY
from support.kafka_harness import KafkaHarness
from support.spark_harness import Life

GRACE = 30
SETTINGS = HEALTHY | {"start_grace_seconds": GRACE, "source_interval_seconds": 1}
BRISK = {"processingTime": "1 second"}
SPELL = 2.5 * FLOOR
"""Long enough to look like the end."""


class Workload(NamedTuple):
    """``start`` brings the query; ``lived`` tells whether it did what its name says.

    It ends in one of ``states``. A ``leisurely`` one has, rightly, a window too long for a test
    to see the end of.
    """

    start: Callable[[KafkaHarness], Any]
    lived: Callable[[Life, Any], bool]
    states: tuple[str, ...] = ("running",)
    leisurely: bool = False

    @property
    def name(self) -> str:
        return self.start.__name__


# -- nothing, or little, comes ------------------------------------------------------------------


def idle_topic(harness):
    """Nothing was ever written to it."""
    return harness.start(harness.stream(harness.kafka.topic()), "idle_topic", trigger=BRISK)


def first_message_after_long_idle(harness):
    topic = harness.kafka.topic()
    harness.put(topic, 5)
    harness.later(SPELL, lambda: harness.put(topic))
    name = "first_message_after_long_idle"
    return harness.start(harness.stream(topic), name, trigger=BRISK)


def trickle(harness):
    """One row now and then, more rarely than the floor."""
    topic = harness.kafka.topic()
    harness.feed(topic, every=FLOOR + 1)
    return harness.start(harness.stream(topic), "trickle", trigger=BRISK)


def waits_for_more(harness):
    """Its source has data and holds it back."""
    topic = harness.kafka.topic()
    harness.put(topic, 10)
    harness.feed(topic, every=5)
    options = {"minOffsetsPerTrigger": 10 * ALLOWED, "maxTriggerDelay": "1h"}
    return harness.start(harness.stream(topic, **options), "waits_for_more", trigger=BRISK)


# -- much comes ---------------------------------------------------------------------------------


def catching_up(harness):
    """Lag far above what is allowed all the time, and falling."""
    topic = harness.kafka.topic()
    harness.put(topic, 20 * ALLOWED)
    return harness.start(harness.stream(topic, maxOffsetsPerTrigger=ALLOWED // 10), "catching_up")


def steady_backlog(harness):
    """As much comes as it takes, and very much waits."""
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
    """More than is allowed comes at once, and is worked off."""
    topic = harness.kafka.topic()
    harness.put(topic, 3 * ALLOWED)
    harness.feed(topic, 3 * ALLOWED, every=SPELL)
    stream = harness.stream(topic, maxOffsetsPerTrigger=ALLOWED // 2)
    return harness.start(stream, "bursts", trigger=BRISK)


def every_ten_seconds(harness):
    """Its trigger is rarer than the floor; more than is allowed comes in between."""
    topic = harness.kafka.topic()
    harness.feed(topic, ALLOWED // 5)
    trigger = {"processingTime": "10 seconds"}
    return harness.start(harness.stream(topic), "every_ten_seconds", trigger=trigger)


def hourly(harness):
    """All that comes waits for its next hour."""
    topic = harness.kafka.topic()
    harness.feed(topic, ALLOWED // 5)
    trigger = {"processingTime": "1 hour"}
    return harness.start(harness.stream(topic), "hourly", trigger=trigger)


# -- offsets without rows -----------------------------------------------------------------------


def compacted(harness):
    """Most of its offsets hold nothing any more."""
    topic = harness.kafka.topic(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01"
    )
    harness.put(topic, ALLOWED, keys=3)
    harness.compact(topic)
    harness.repeat(lambda: harness.put(topic, 3, keys=3), 2)
    return harness.start(harness.stream(topic, maxOffsetsPerTrigger=100), "compacted")


def transactions(harness):
    """Every other transaction is aborted; each leaves a marker."""
    topic = harness.kafka.topic()
    outcomes = iter([True, False] * 1000)

    def write():
        harness.kafka.transaction(topic, ["a", "b", "c"], commit=next(outcomes))

    harness.repeat(write, 2)
    return harness.start(committed(harness, topic), "transactions")


def aborted_tail(harness):
    """The last that was written is never to be read."""
    topic = harness.kafka.topic()
    harness.kafka.transaction(topic, ["kept"] * 5)
    harness.kafka.transaction(topic, ["dropped"] * 5, commit=False)
    return harness.start(committed(harness, topic), "aborted_tail", trigger=BRISK)


def open_transaction(harness):
    """What comes after an undecided row must not be read yet."""
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
    """One of those that a pattern finds; the user has said that this may be."""
    kept, deleted = harness.kafka.topic(), harness.kafka.topic()
    harness.feed(kept, 2)
    # By a producer that ends: one that lives asks for its topics, which makes them anew.
    harness.kafka.produce(deleted, ["v"] * 5)
    harness.later(SPELL, lambda: harness.kafka.delete(deleted))
    reader = harness.spark.readStream.format("kafka").option("failOnDataLoss", "false")
    reader = reader.option("kafka.bootstrap.servers", harness.kafka.bootstrap_servers)
    # Kafka's client looks for new topics rarely, by default.
    reader = reader.option("kafka.metadata.max.age.ms", 1000)
    reader = reader.option("startingOffsets", "earliest")
    stream = reader.option("subscribePattern", f"{kept}|{deleted}").load()
    return harness.start(stream, "one_topic_deleted")


def trimmed_behind(harness):
    """What it has read is deleted at once: the edge of what is kept follows it closely."""
    topic = harness.kafka.topic()
    harness.feed(topic, 20)
    query = harness.start(harness.stream(topic), "trimmed_behind")

    def trim():
        newest = query.lastProgress
        if newest is not None and newest.numInputRows:
            harness.trim(topic, end_of(newest)["0"])

    harness.repeat(trim, 1)
    return query


def all_expired(harness):
    """Its topic is empty again, and was not always."""
    topic = harness.kafka.topic()
    harness.put(topic, 5)
    harness.later(SPELL, lambda: harness.trim(topic, -1))
    return harness.start(harness.stream(topic), "all_expired", trigger=BRISK)


# -- several of them ----------------------------------------------------------------------------


def union_of_two(harness):
    """One of its topics is silent."""
    fed, silent = harness.kafka.topic(), harness.kafka.topic()
    harness.feed(fed)
    return harness.start(harness.stream(fed).union(harness.stream(silent)), "union_of_two")


def assigned(harness):
    """It reads the new rows of one of two partitions; all else is none of its business."""
    topic = harness.kafka.topic(partitions=2)
    harness.put(topic, 3 * ALLOWED, partition=0)
    harness.feed(topic, partition=0)
    harness.feed(topic, ALLOWED // 4, partition=1)
    reader = harness.spark.readStream.format("kafka").option("assign", json.dumps({topic: [0]}))
    reader = reader.option("kafka.bootstrap.servers", harness.kafka.bootstrap_servers)
    return harness.start(reader.load(), "assigned")


# -- ways to be run, and to write ---------------------------------------------------------------


def available_now_again(harness):
    """A job that comes, reads what is there and ends, more often than the budget of failures."""
    name, topic = "available_now_again", harness.kafka.topic()
    harness.put(topic, 5)
    run = lambda: harness.start(harness.stream(topic), name, trigger={"availableNow": True})

    def come_again():
        for _ in range(SETTINGS["restart_budget"] + 2):
            while harness.spark.streams.get(first.id) and not harness.closing.wait(0.2):
                pass
            if harness.closing.wait(2):
                return
            harness.put(topic, 5)
            run()

    first = run()
    harness.help(come_again)
    return first


def to_kafka(harness):
    """Each row goes into another topic."""
    topic, other = harness.kafka.topic(), harness.kafka.topic()
    harness.feed(topic)
    options = {"kafka.bootstrap.servers": harness.kafka.bootstrap_servers, "topic": other}
    stream = harness.stream(topic).select("value")
    return harness.start(stream, "to_kafka", "kafka", **options)


def to_delta(harness):
    """Each row goes into a table, by ``foreachBatch``."""
    topic, table = harness.kafka.topic(), str(harness.folder("to_delta") / "table")
    harness.feed(topic)
    append = lambda batch, number: batch.write.format("delta").mode("append").save(table)
    return harness.start(harness.stream(topic).select("value"), "to_delta", append)


# -- what each must be seen to do ---------------------------------------------------------------


def commits_on(life, query):
    return len(life.commits) > 5


def reads_nothing(life, query):
    return rows(query) == 0 and life.commits <= {0}


def is_idle_between_two_batches(life, query):
    return life.commits == {0, 1} and life.longest_silence > 2 * FLOOR and rows(query) == 6


def commits_rarely(life, query):
    return life.longest_silence > FLOOR and len(life.commits) > 1


def commits_once(life, query):
    return life.commits == {0} and life.longest_silence > 2 * FLOOR


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
    first, last = (json.loads(query.recentProgress[at].sources[0].endOffset) for at in (0, -1))
    return len(first) == 2 and len(last) == 1 and commits_on(life, query)


def has_one_side(life, query):
    fed = [sum(p.sources[at].numInputRows for p in query.recentProgress) for at in (0, 1)]
    return fed[0] > 5 and fed[1] == 0 and commits_on(life, query)


def reads_one_partition(life, query):
    return set(end_of(query.lastProgress)) == {"0"} and commits_on(life, query)


def runs_again_and_again(life, query):
    return len(life.runs) > SETTINGS["restart_budget"]


def writes_what_it_reads(life, query):
    return sum(p.sink.numOutputRows for p in query.recentProgress) == rows(query) > 5


def rows(query):
    """How many it has read, as far as Spark remembers."""
    return sum(p.numInputRows for p in query.recentProgress)


def travelled(query):
    """Over how many offsets it has come, as far as Spark remembers."""
    past = query.recentProgress
    start = json.loads(past[0].sources[0].startOffset or "null") or {}
    began = sum(sum(partitions.values()) for partitions in start.values())
    return sum(end_of(past[-1]).values()) - began


def end_of(progress):
    """Where the first topic of the first source ended, by partition."""
    return next(iter(json.loads(progress.sources[0].endOffset).values()))


BEFORE = (
    Workload(compacted, skips_offsets),
    Workload(catching_up, lags_less_and_less),
    Workload(steady_backlog, lags_as_before),
    Workload(transactions, skips_offsets),
    Workload(aborted_tail, leaves_the_tail, ("idle",)),
    Workload(open_transaction, leaves_the_undecided, ("idle",)),
    Workload(trimmed_behind, commits_on),
    Workload(all_expired, lambda life, query: rows(query) == 5, ("idle",)),
    Workload(union_of_two, has_one_side),
    Workload(assigned, reads_one_partition),
    Workload(to_kafka, writes_what_it_reads),
    Workload(to_delta, commits_on),
)
"""Older than the sidecar: Spark takes long to begin so many, which is not to be learned."""

AFTER = (
    Workload(idle_topic, reads_nothing, ("idle",)),
    Workload(first_message_after_long_idle, is_idle_between_two_batches, ("running", "idle")),
    Workload(trickle, commits_rarely, ("running", "idle")),
    Workload(waits_for_more, holds_back, ("waiting",)),
    Workload(bursts, lags_and_recovers, ("running", "idle")),
    Workload(every_ten_seconds, commits_rarely, leisurely=True),
    Workload(hourly, commits_once, leisurely=True),
    Workload(new_partitions, reads_three_partitions),
    Workload(one_topic_deleted, goes_on_without_it),
    Workload(available_now_again, runs_again_and_again, ("completed",)),
)
