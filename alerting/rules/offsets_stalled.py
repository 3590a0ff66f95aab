"""StreamingOffsetsStalled: batches come and go, offsets do not move, and data waits.

Burrow's rule for a stalled partition: the same end offset again and again, behind the
source's latest one every time.
"""

from __future__ import annotations

from ...listener.trends import SourceTrend
from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "StreamingOffsetsStalled"
MIN_BATCHES = 3


def check(case: Case) -> Finding | None:
    """Fire when a partition stands for the window while batches still come."""
    if not case.is_running or not case.batches_come:
        return None
    stalled = [
        (trend, partitions)
        for trend in case.query.trends.sources
        if trend.standing and (partitions := _standing(trend, case))
    ]
    if not stalled:
        return None
    reason = "; ".join(_how(trend, partitions) for trend, partitions in stalled)
    reason = f"{reason}, while batches come and go and data waits"
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.CRITICAL,
        state=State.STALLED,
        reason=reason,
        summary=f"{case.label} does not advance: {reason}",
        evidence=evidence(case),
    )


def _standing(trend: SourceTrend, case: Case) -> dict[str, float]:
    """Seconds that each stalled partition has stood."""
    return {
        partition: stood
        for partition, standing in trend.standing.items()
        if standing.batches >= MIN_BATCHES
        and (stood := case.watched_since(standing.since)) > case.window.seconds
    }


def _how(trend: SourceTrend, partitions: dict[str, float]) -> str:
    names = ", ".join(sorted(partitions)[:3]) or "its offset"
    more = f" and {len(partitions) - 3} more" if len(partitions) > 3 else ""  # noqa: PLR2004 - as above
    what = f"{names}{more}".strip() or "its offset"
    return f"{trend.description}: {what} stands since {max(partitions.values()):.0f} s"
