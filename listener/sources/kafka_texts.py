"""Parses the text of Kafka's Java records: one text for many partitions. Pure.

One text costs one Py4J command; reading the fields of each partition's record costs several
commands per partition.
"""

from __future__ import annotations

import re

import msgspec

# {orders-0=ListOffsetsResultInfo(offset=7, timestamp=-1, leaderEpoch=Optional[0]), ...}
_OFFSET = re.compile(r"([\w.-]+)-(\d+)=\w+\(offset=(-?\d+),")
# (name=orders, internal=false, partitions=(partition=0, leader=host:9092 (id: 1 ...
_TOPIC = re.compile(r"\(name=([\w.-]+), internal=")
_PARTITION = re.compile(r"\(partition=(\d+), leader=([^,]+)")
# ConfigResource(type=TOPIC, name='orders')=Config(entries=[ConfigEntry(name=retention.ms, ...
_CONFIG = re.compile(r"ConfigResource\(type=TOPIC, name='([\w.-]+)'\)=")
_ENTRY = re.compile(r"ConfigEntry\(name=([\w.]+), value=(.*?), source=")


class Kept(msgspec.Struct, frozen=True):
    """How long a topic's records are kept (None: forever), and whether size is limited too."""

    seconds: float | None
    bounded_by_size: bool


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


def kept_in(text: str) -> dict[str, Kept]:
    """By topic, from ``DescribeConfigsResult.all()``; none of its settings is a secret."""
    return {topic: _kept(dict(_ENTRY.findall(config))) for topic, config in _by_name(_CONFIG, text)}


def _kept(config: dict[str, str]) -> Kept:
    """Without the policy ``delete`` no age or size limit applies, only compaction."""
    if "delete" not in config.get("cleanup.policy", "delete").split(","):
        return Kept(None, bounded_by_size=False)
    millis = int(config.get("retention.ms", "-1"))
    size = int(config.get("retention.bytes", "-1"))
    return Kept(None if millis < 0 else millis / 1000, bounded_by_size=size >= 0)


def _by_name(name: re.Pattern[str], text: str) -> list[tuple[str, str]]:
    """Each name, and the text up to the next name."""
    parts = name.split(text)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))
