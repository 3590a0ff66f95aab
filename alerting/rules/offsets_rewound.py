"""StreamingOffsetsRewound: an end offset went down and stays down, or the source ends before it.

Topics deleted and made anew, checkpoints copied back, sources that forget: rows come twice. A
table replaced by a shorter one: rows never come. Burrow's rule 2, with time to come back: after a
restart Spark may repeat its last batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from ...listener.offsets import WHOLE
from ...listener.trends import Rewind
from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "StreamingOffsetsRewound"
MIN_BATCHES = 2
MIN_LOOKS = 2
_rewound = attrgetter("rewound")


def check(case: Case) -> Finding | None:
    """Fire when a partition, or the source, has ended before where the query was for the window."""
    query = case.query
    # Nearly every query has neither, and is asked four times a second.
    if not case.is_running or not (query.shortfalls or any(map(_rewound, query.trends.sources))):
        return None
    told = [*_went_back(case), *_ends_before(case)]
    if not told:
        return None
    reason = "; ".join(told[:3])
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.WARNING,
        state=State.REWOUND,
        reason=reason,
        summary=f"{case.label} went back: {reason}",
        evidence=evidence(case),
    )


def _went_back(case: Case) -> Iterator[str]:
    for trend in case.query.trends.sources:
        for partition, rewind in sorted(trend.rewound.items()):
            stands = case.watched_since(rewind.since) > case.window.seconds
            if stands and _stays(case, rewind):
                where = _named(trend.description, partition)
                yield f"{where}: from {rewind.was} back to {rewind.now}"


def _stays(case: Case, rewind: Rewind) -> bool:
    """Whether more batches ended there too, or it has been idle since and holds nothing back."""
    idle_at = case.query.last_idle_at
    idle = idle_at is not None and idle_at > rewind.since and not case.query.holds_back
    return idle or rewind.batches >= MIN_BATCHES


def _ends_before(case: Case) -> Iterator[str]:
    """Only the time between looks counts: a source that cannot be asked proves nothing."""
    for index, partitions in sorted(case.query.shortfalls.items()):
        description = case.query.looks[index].description
        for partition, short in sorted(partitions.items()):
            seen = case.watched_since(short.since) - case.watched_since(short.looked_at)
            if short.looks >= MIN_LOOKS and seen > case.window.seconds:
                where = _named(description, partition)
                yield (
                    f"{where} ends at {short.end}, but was read up to {short.committed}: "
                    "it was replaced, or restored from a copy"
                )


def _named(description: str, partition: str) -> str:
    return f"{description} {partition}" if partition != WHOLE else description
