"""Reads what Kafka's Java records print of themselves: one text for many partitions. Pure.

One text costs one Py4J command; asking a record of each partition for its fields costs
several for each.
"""

from __future__ import annotations

import re

# {orders-0=ListOffsetsResultInfo(offset=7, timestamp=-1, leaderEpoch=Optional[0]), ...}
_OFFSET = re.compile(r"([\w.-]+)-(\d+)=\w+\(offset=(-?\d+),")
# {orders=(name=orders, internal=false, partitions=(partition=0, leader=host:9092 (id: 1 ...
_TOPIC = re.compile(r"\(name=([\w.-]+), internal=")
_PARTITION = re.compile(r"\(partition=(\d+), leader=(\w+)")


def offsets_in(text: str) -> dict[str, int]:
    """Offset by partition of ``ListOffsetsResult.all()``; -1, which is none, is left out."""
    return {
        f"{topic}/{partition}": int(offset)
        for topic, partition, offset in _OFFSET.findall(text)
        if int(offset) >= 0
    }


def led_partitions(text: str) -> set[str]:
    """The partitions in a map of ``TopicDescription`` that somebody leads, so that can be asked."""
    parts = _TOPIC.split(text)[1:]
    return {
        f"{topic}/{number}"
        for topic, told in zip(parts[::2], parts[1::2], strict=True)
        for number, leader in _PARTITION.findall(told)
        if leader not in ("none", "null")
    }
