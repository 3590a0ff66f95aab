"""The healthy zoo at a broker: what topics do to queries, and is no sickness."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from support.kafka_cage import KafkaCage
from support.zoo import Life
from support.zoo_healthy import ALLOWED, FLOOR
from support.zoo_healthy import SETTINGS as HEALTHY

GRACE = 30
SETTINGS = HEALTHY | {"start_grace_seconds": GRACE, "source_interval_seconds": 1}
BRISK = {"processingTime": "1 second"}
SPELL = 2.5 * FLOOR
"""Long enough to look like the end."""


class Animal(NamedTuple):
    """``start`` brings the query; ``lived`` tells whether it did what its name says.

    It ends in one of ``states``. A ``leisurely`` one has, rightly, a window too long for a test
    to see the end of.
    """

    start: Callable[[KafkaCage], Any]
    lived: Callable[[Life, Any], bool]
    states: tuple[str, ...] = ("running",)
    leisurely: bool = False

    @property
    def name(self) -> str:
        return self.start.__name__


# -- nothing, or little, comes ------------------------------------------------------------------


def idle_topic(cage):
    """Nothing was ever written to it."""
    return cage.start(cage.stream(cage.kafka.topic()), "idle_topic", trigger=BRISK)


def first_message_after_long_idle(cage):
    topic = cage.kafka.topic()
    cage.put(topic, 5)
    cage.later(SPELL, lambda: cage.put(topic))
    name = "first_message_after_long_idle"
    return cage.start(cage.stream(topic), name, trigger=BRISK)


def trickle(cage):
    """One row now and then, more rarely than the floor."""
    topic = cage.kafka.topic()
    cage.feed(topic, every=FLOOR + 1)
    return cage.start(cage.stream(topic), "trickle", trigger=BRISK)


def waits_for_more(cage):
    """Its source has data and holds it back."""
    topic = cage.kafka.topic()
    cage.put(topic, 10)
    cage.feed(topic, every=5)
    options = {"minOffsetsPerTrigger": 10 * ALLOWED, "maxTriggerDelay": "1h"}
    return cage.start(cage.stream(topic, **options), "waits_for_more", trigger=BRISK)


# -- much comes ---------------------------------------------------------------------------------


def catching_up(cage):
    """Lag far above what is allowed all the time, and falling."""
    topic = cage.kafka.topic()
    cage.put(topic, 20 * ALLOWED)
    return cage.start(cage.stream(topic, maxOffsetsPerTrigger=ALLOWED // 10), "catching_up")


def steady_backlog(cage):
    """As much comes as it takes, and very much waits."""
    topic = cage.kafka.topic()
    cage.put(topic, 5 * ALLOWED)
    query = cage.start(cage.stream(topic, maxOffsetsPerTrigger=50), "steady_backlog")
    ends = [50]

    def make_up():
        newest = query.lastProgress
        if newest is not None and (end := sum(end_of(newest).values())) > ends[-1]:
            cage.put(topic, end - ends[-1])
            ends.append(end)

    cage.repeat(make_up, 0.2)
    return query


def bursts(cage):
    """More than is allowed comes at once, and is worked off."""
    topic = cage.kafka.topic()
    cage.put(topic, 3 * ALLOWED)
    cage.feed(topic, 3 * ALLOWED, every=SPELL)
    stream = cage.stream(topic, maxOffsetsPerTrigger=ALLOWED // 2)
    return cage.start(stream, "bursts", trigger=BRISK)


def every_ten_seconds(cage):
    """Its trigger is rarer than the floor; more than is allowed comes in between."""
    topic = cage.kafka.topic()
    cage.feed(topic, ALLOWED // 5)
    trigger = {"processingTime": "10 seconds"}
    return cage.start(cage.stream(topic), "every_ten_seconds", trigger=trigger)


def hourly(cage):
    """All that comes waits for its next hour."""
    topic = cage.kafka.topic()
    cage.feed(topic, ALLOWED // 5)
    trigger = {"processingTime": "1 hour"}
    return cage.start(cage.stream(topic), "hourly", trigger=trigger)


# -- offsets without rows -----------------------------------------------------------------------


def compacted(cage):
    """Most of its offsets hold nothing any more."""
    topic = cage.kafka.topic(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01"
    )
    cage.put(topic, ALLOWED, keys=3)
    cage.compact(topic)
    cage.repeat(lambda: cage.put(topic, 3, keys=3), 2)
    return cage.start(cage.stream(topic, maxOffsetsPerTrigger=100), "compacted")


def transactions(cage):
    """Every other transaction is aborted; each leaves a marker."""
    topic = cage.kafka.topic()
    outcomes = iter([True, False] * 1000)

    def write():
        cage.kafka.transaction(topic, ["a", "b", "c"], commit=next(outcomes))

    cage.repeat(write, 2)
    return cage.start(committed(cage, topic), "transactions")


def aborted_tail(cage):
    """The last that was written is never to be read."""
    topic = cage.kafka.topic()
    cage.kafka.transaction(topic, ["kept"] * 5)
    cage.kafka.transaction(topic, ["dropped"] * 5, commit=False)
    return cage.start(committed(cage, topic), "aborted_tail", trigger=BRISK)


def open_transaction(cage):
    """What comes after an undecided row must not be read yet."""
    topic = cage.kafka.topic()
    cage.put(topic, 5)
    cage.open_transaction(topic)
    cage.feed(topic, 100)
    return cage.start(committed(cage, topic), "open_transaction", trigger=BRISK)


def committed(cage, topic):
    return cage.stream(topic, **{"kafka.isolation.level": "read_committed"})


# -- topics that change -------------------------------------------------------------------------


def new_partitions(cage):
    topic = cage.kafka.topic()
    cage.feed(topic, 4)
    cage.later(SPELL, lambda: cage.kafka.add_partitions(topic, 3))
    return cage.start(cage.stream(topic), "new_partitions")


def one_topic_deleted(cage):
    """One of those that a pattern finds; the user has said that this may be."""
    kept, deleted = cage.kafka.topic(), cage.kafka.topic()
    cage.feed(kept, 2)
    # By a producer that ends: one that lives asks for its topics, which makes them anew.
    cage.kafka.produce(deleted, ["v"] * 5)
    cage.later(SPELL, lambda: cage.kafka.delete(deleted))
    reader = cage.spark.readStream.format("kafka").option("failOnDataLoss", "false")
    reader = reader.option("kafka.bootstrap.servers", cage.kafka.bootstrap_servers)
    # Kafka's client looks for new topics rarely, by default.
    reader = reader.option("kafka.metadata.max.age.ms", 1000)
    reader = reader.option("startingOffsets", "earliest")
    stream = reader.option("subscribePattern", f"{kept}|{deleted}").load()
    return cage.start(stream, "one_topic_deleted")


def trimmed_behind(cage):
    """What it has read is deleted at once: the edge of what is kept follows it closely."""
    topic = cage.kafka.topic()
    cage.feed(topic, 20)
    query = cage.start(cage.stream(topic), "trimmed_behind")

    def trim():
        newest = query.lastProgress
        if newest is not None and newest.numInputRows:
            cage.trim(topic, end_of(newest)["0"])

    cage.repeat(trim, 1)
    return query


def all_expired(cage):
    """Its topic is empty again, and was not always."""
    topic = cage.kafka.topic()
    cage.put(topic, 5)
    cage.later(SPELL, lambda: cage.trim(topic, -1))
    return cage.start(cage.stream(topic), "all_expired", trigger=BRISK)


# -- several of them ----------------------------------------------------------------------------


def union_of_two(cage):
    """One of its topics is silent."""
    fed, silent = cage.kafka.topic(), cage.kafka.topic()
    cage.feed(fed)
    return cage.start(cage.stream(fed).union(cage.stream(silent)), "union_of_two")


def assigned(cage):
    """It reads the new rows of one of two partitions; all else is none of its business."""
    topic = cage.kafka.topic(partitions=2)
    cage.put(topic, 3 * ALLOWED, partition=0)
    cage.feed(topic, partition=0)
    cage.feed(topic, ALLOWED // 4, partition=1)
    reader = cage.spark.readStream.format("kafka").option("assign", json.dumps({topic: [0]}))
    reader = reader.option("kafka.bootstrap.servers", cage.kafka.bootstrap_servers)
    return cage.start(reader.load(), "assigned")


# -- ways to be run, and to write ---------------------------------------------------------------


def available_now_again(cage):
    """A job that comes, reads what is there and ends, more often than the budget of failures."""
    name, topic = "available_now_again", cage.kafka.topic()
    cage.put(topic, 5)
    run = lambda: cage.start(cage.stream(topic), name, trigger={"availableNow": True})

    def come_again():
        for _ in range(SETTINGS["restart_budget"] + 2):
            while cage.spark.streams.get(first.id) and not cage.closing.wait(0.2):
                pass
            if cage.closing.wait(2):
                return
            cage.put(topic, 5)
            run()

    first = run()
    cage.help(come_again)
    return first


def to_kafka(cage):
    """Each row goes into another topic."""
    topic, other = cage.kafka.topic(), cage.kafka.topic()
    cage.feed(topic)
    options = {"kafka.bootstrap.servers": cage.kafka.bootstrap_servers, "topic": other}
    stream = cage.stream(topic).select("value")
    return cage.start(stream, "to_kafka", "kafka", **options)


def to_delta(cage):
    """Each row goes into a table, by ``foreachBatch``."""
    topic, table = cage.kafka.topic(), str(cage.folder("to_delta") / "table")
    cage.feed(topic)
    append = lambda batch, number: batch.write.format("delta").mode("append").save(table)
    return cage.start(cage.stream(topic).select("value"), "to_delta", append)


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
    Animal(compacted, skips_offsets),
    Animal(catching_up, lags_less_and_less),
    Animal(steady_backlog, lags_as_before),
    Animal(transactions, skips_offsets),
    Animal(aborted_tail, leaves_the_tail, ("idle",)),
    Animal(open_transaction, leaves_the_undecided, ("idle",)),
    Animal(trimmed_behind, commits_on),
    Animal(all_expired, lambda life, query: rows(query) == 5, ("idle",)),
    Animal(union_of_two, has_one_side),
    Animal(assigned, reads_one_partition),
    Animal(to_kafka, writes_what_it_reads),
    Animal(to_delta, commits_on),
)
"""Older than the sidecar: Spark takes long to begin so many, which is not to be learned."""

AFTER = (
    Animal(idle_topic, reads_nothing, ("idle",)),
    Animal(first_message_after_long_idle, is_idle_between_two_batches, ("running", "idle")),
    Animal(trickle, commits_rarely, ("running", "idle")),
    Animal(waits_for_more, holds_back, ("waiting",)),
    Animal(bursts, lags_and_recovers, ("running", "idle")),
    Animal(every_ten_seconds, commits_rarely, leisurely=True),
    Animal(hourly, commits_once, leisurely=True),
    Animal(new_partitions, reads_three_partitions),
    Animal(one_topic_deleted, goes_on_without_it),
    Animal(available_now_again, runs_again_and_again, ("completed",)),
)
