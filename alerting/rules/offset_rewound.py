"""OffsetRewound: a source's end offset went down and stays down.

Topics deleted and made anew, checkpoints copied back, sources that forget: rows come twice.
Burrow's rule 2, with time to come back: after a restart Spark may repeat its last batches.
"""

from __future__ import annotations

from ...listener.offsets import WHOLE
from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "OffsetRewound"
MIN_BATCHES = 2


def check(case: Case) -> Finding | None:
    """Fire when a partition has ended below where it once was for the window."""
    if not case.is_running:
        return None
    told = [
        f"{trend.description}{f' {partition}' if partition != WHOLE else ''}: "
        f"from {rewind.was} back to {rewind.now}"
        for trend in case.query.trends.sources
        for partition, rewind in sorted(trend.rewound.items())
        if rewind.batches >= MIN_BATCHES and case.watched_since(rewind.since) > case.window.seconds
    ]
    if not told:
        return None
    reason = "; ".join(told[:3])
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.WARNING,
        state=State.REWOUND,
        reason=reason,
        summary=f"Streaming query {case.label} went back: {reason}",
        evidence=evidence(case),
    )
