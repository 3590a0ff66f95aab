"""StreamingOffsetsRewound: an end offset went back and stays there, or the source ends before it.

If a topic was deleted and created again, a checkpoint was restored, or a source has lost its
position, rows are read twice. If a table was replaced by a shorter one, new rows are never read.
This is Burrow's rule 2 with a delay: after a restart Spark may repeat its last batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from ...core.states import QueryState
from ...listener.offsets import WHOLE
from ...listener.state.trends import Rewind
from ..evidence import report
from ..finding import Finding, Severity
from ..rule_context import RuleContext

NAME = "StreamingOffsetsRewound"
MIN_BATCHES = 2
MIN_POLLS = 2
_rewound = attrgetter("rewound")


def check(context: RuleContext) -> Finding | None:
    """Fire when a partition or source has been behind the query's old position for the window."""
    query = context.query
    # This runs twice a second, and nearly every query has neither.
    if not context.is_running or not (query.shortfalls or any(map(_rewound, query.trends.sources))):
        return None
    texts = [*_went_back(context), *_ends_before(context)]
    if not texts:
        return None
    reason = "; ".join(texts[:3])
    return report(
        context, NAME, Severity.WARNING, QueryState.REWOUND, reason, does="has rewound offsets"
    )


def _went_back(context: RuleContext) -> Iterator[str]:
    for trend in context.query.trends.sources:
        for partition, rewind in sorted(trend.rewound.items()):
            stuck = context.watched_since(rewind.since) > context.window.seconds
            if stuck and _stays(context, rewind):
                where = _named(trend.description, partition)
                yield f"{where} went back from {rewind.was} to {rewind.now}"


def _stays(context: RuleContext, rewind: Rewind) -> bool:
    """Whether more batches ended there too, or the query was idle since then with no backlog."""
    idle_at = context.query.last_idle_at
    idle = idle_at is not None and idle_at > rewind.since and not context.query.holds_back
    return idle or rewind.batches >= MIN_BATCHES


def _ends_before(context: RuleContext) -> Iterator[str]:
    """Count only the time between answered polls: a source that does not answer proves nothing."""
    for index, partitions in sorted(context.query.shortfalls.items()):
        description = context.query.polls[index].description
        for partition, short in sorted(partitions.items()):
            seen = context.watched_since(short.since) - context.watched_since(short.polled_at)
            if short.polls >= MIN_POLLS and seen > context.window.seconds:
                where = _named(description, partition)
                yield (
                    f"{where} ends at {short.end}, but was read up to {short.committed}: "
                    "it was replaced, or restored from a copy"
                )


def _named(description: str, partition: str) -> str:
    return f"{description} {partition}" if partition != WHOLE else description
