"""QueryLagging: lag above what is allowed in the whole window, never falling, input present.

Catching up after an outage is no sickness, however large the lag: it falls. Nor is a steady lag,
small as transaction markers leave it, or large with a few records more; nor one that rises by no
more than what arrives between two looks at the source. After Burrow's rules 1 and 5.
"""

from __future__ import annotations

from ...listener.trends import Point
from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "QueryLagging"
MIN_POINTS = 3
NOTABLE_RISE = 1.05
"""What less than one record in twenty adds is no trend yet; a slow rise gets there later."""


def check(case: Case) -> Finding | None:
    """Fire when the lag has only risen for the trend window, and was too large all the time."""
    rise = case.query.trends.rise
    if not case.is_running or not case.batches_come or len(rise) < MIN_POINTS:
        return None
    began, newest = _beginning(rise, case), rise[-1]
    if began is None or not _rises(rise, began, case):
        return None
    reason = (
        f"lag rose from {began.lag:.0f} to {newest.lag:.0f} offsets in "
        f"{case.watched_since(began.at):.0f} s and never fell "
        f"({case.limits.lag_allowed_offsets:.0f} allowed)"
    )
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.WARNING,
        state=State.LAGGING,
        reason=reason,
        summary=f"Streaming query {case.label} falls behind: {reason}",
        evidence=evidence(case),
    )


def _rises(rise: tuple[Point, ...], began: Point, case: Case) -> bool:
    """By a notable share, in the later half too, by more than looks differ; still told."""
    newest = rise[-1]
    half = (began.at + newest.at) / 2
    middle = [point for point in rise if point.at <= half][-1]
    notable = newest.lag >= began.lag * NOTABLE_RISE
    goes_on = newest.lag - middle.lag > max(middle.noise, newest.noise)
    return notable and goes_on and case.watched_since(newest.at) <= case.trend_seconds / 2


def _beginning(rise: tuple[Point, ...], case: Case) -> Point | None:
    """The first point above what is allowed, if it is older than the window."""
    allowed = case.limits.lag_allowed_offsets
    if rise[-1].lag <= allowed:
        return None
    first = next(point for point in rise if point.lag > allowed)
    return first if case.watched_since(first.at) >= case.trend_seconds else None
