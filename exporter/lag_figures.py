"""The lag of each source, topic and, on request, partition. Pure.

The broker's figure also counts for a failed query. An old poll of a broker that no longer answers
does not describe the present: then there is no figure, instead of Spark's frozen one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .families import Family
from .query_figures import Split
from .row import QueryRow

LABELS = ("app", "query", "source")
LAG = (
    Split(
        "spark_streaming_source_lag_offsets",
        "source",
        "Lag in offsets of each source, by its index: from the broker if it can be polled, else "
        "as Spark reports it while that is current.",
        lambda row: row.lag_by_source,
    ),
    Split(
        "spark_streaming_source_lag_reported_offsets",
        "source",
        "Lag in offsets of each source when Spark planned the last batch, while that is current: "
        "always 0 if batches have no size limit.",
        lambda row: row.reported_lag_by_source,
    ),
    Split(
        "spark_streaming_source_lag_seconds",
        "source",
        "Age of the first unread record of each source, by its timestamp; 0 if nothing is unread, "
        "absent if unknown.",
        lambda row: row.lag_seconds_by_source,
    ),
    Split(
        "spark_streaming_source_last_success_timestamp_seconds",
        "source",
        "When the broker of each source last answered.",
        lambda row: {str(index): poll.wall for index, poll in row.polls.items()},
    ),
)


def lag_families(app: str, rows: Sequence[QueryRow], *, by_partition: bool) -> Iterator[Family]:
    """The lag by topic and by partition; partitions are empty unless requested."""
    yield from _topic_families(app, rows)
    partitions = Family(
        "spark_streaming_partition_lag_offsets",
        "Lag in offsets of each partition, with the setting lag_by_partition.",
        (*LABELS, "topic", "partition"),
    )
    for row in rows if by_partition else ():
        for index, poll in row.fresh_polls.items():
            for name, lag in poll.lag_by_partition.items():
                topic, _, number = name.rpartition("/")
                if topic:
                    partitions.add((app, row.label, str(index), topic, number), lag)
    yield partitions


def _topic_families(app: str, rows: Sequence[QueryRow]) -> Iterator[Family]:
    offsets = Family(
        "spark_streaming_topic_lag_offsets",
        "Lag in offsets of each topic, from the broker.",
        (*LABELS, "topic"),
    )
    seconds = Family(
        "spark_streaming_topic_lag_seconds",
        "Age of the first unread record of each topic, by its timestamp.",
        (*LABELS, "topic"),
    )
    for row in rows:
        for index, poll in row.fresh_polls.items():
            ages = row.lag_seconds_by_topic(poll)
            for topic, lag in poll.lag_by_topic.items():
                if topic:
                    labels = app, row.label, str(index), topic
                    offsets.add(labels, lag)
                    seconds.add(labels, ages.get(topic))
    yield offsets
    yield seconds
