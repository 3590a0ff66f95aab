"""StreamingDataLossRisk: unread data is near its source's retention edge, or beyond it.

By the time ``failOnDataLoss`` strikes it is too late. A query that outruns the edge, catching up
from the beginning of all that is kept, is in no danger. After klag-exporter's lag-to-retention
ratio, without its false alarms on idle topics.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from ...listener.query import Outcome
from ...listener.sources.edge import Edge, Point
from ...listener.sources.exposure import Exposure
from ...listener.sources.report import SourceLook
from ..case import Case
from ..evidence import evidence
from ..finding import Finding, Severity, State

NAME = "StreamingDataLossRisk"
MIN_LOOKS = 2
MAX_TOLD = 10


class _Risk(msgspec.Struct, frozen=True):
    """A partition that the edge is gaining on, and how much of its retention is used up."""

    exposure: Exposure
    used: float
    look: SourceLook
    edge: Edge


def check(case: Case) -> Finding | None:
    """Fire when the edge gains on a query and has used up the allowed share of its retention."""
    if not case.query.retention:
        return None
    risks = sorted(_risks(case), key=lambda risk: (-risk.exposure.lost, -risk.used))
    if not risks:
        return None
    worst = risks[0]
    critical = worst.used >= case.limits.data_loss_critical_ratio
    others = f"; {len(risks)} partitions in all" if len(risks) > 1 else ""
    reason = _told(worst, case) + others
    fate = "has lost data" if worst.exposure.lost else "is about to lose data"
    return Finding(
        alertname=NAME,
        query=case.label,
        severity=Severity.CRITICAL if critical else Severity.WARNING,
        state=State.LAGGING,
        reason=reason,
        summary=f"{case.label} {fate}: {reason}",
        evidence={
            **evidence(case),
            "retention": "\n".join(_told(risk, case) for risk in risks[:MAX_TOLD]),
        },
    )


def _risks(case: Case) -> Iterator[_Risk]:
    query, allowed = case.query, case.limits.data_loss_warning_ratio
    if not _should_read_on(case):
        return
    for index, look in query.looks.items():
        known = query.retention.get(index)
        if known is None or _committed_since(case, look):
            continue
        for exposure in known.exposures.values():
            if exposure.used(case.now) < allowed:
                continue
            edge = known.edges[exposure.partition]
            danger = _danger(case, exposure, edge, look)
            used = danger.used(case.now) if danger is not None else 0.0
            if danger is not None and used >= allowed:
                yield _Risk(danger, used, look, edge)


def _should_read_on(case: Case) -> bool:
    """Whether the query lives, or is dead and will be missed: not one that was stopped."""
    if case.snapshot.context.is_on_purpose:
        return False
    ended = case.query.ended
    return ended is None or ended.outcome is Outcome.FAILED


def _committed_since(case: Case, look: SourceLook) -> bool:
    """Whether the look is old and the query has gone on: nobody knows where it is now."""
    committed_at = case.query.last_commit_at
    if committed_at is None or committed_at <= look.at:
        return False
    return case.watched_since(look.at) > case.trend_seconds


def _danger(case: Case, exposure: Exposure, edge: Edge, look: SourceLook) -> Exposure | None:
    """What of the exposure is a danger: that by which the edge gains on the query, if anything."""
    if exposure.lost:
        return exposure
    if len(edge.points) < MIN_LOOKS:
        return None
    if _stands(case):
        return exposure
    then, now = _window_ago(case, edge), edge.points[-1]
    if then is None:
        return None
    if not _grows_old(then, now):
        exposure = replace(exposure, keeps_seconds=None)
    if not _is_overtaken(then, now, edge.speed(look.at)):
        exposure = replace(exposure, used_by_offsets=None, passed_at=None)
    return exposure


def _stands(case: Case) -> bool:
    """Whether it reads nothing: it is gone, or has shown no sign of life for its window."""
    return not case.query.alive or case.watched_since(case.query.last_sign_at) > case.window.seconds


def _window_ago(case: Case, edge: Edge) -> Point | None:
    """The newest look before the window began; something has waited ever since."""
    begin = case.now - case.window.seconds
    point = next((one for one in reversed(edge.points) if one.at <= begin), None)
    watched = point is not None and case.watched_since(point.at) >= case.window.seconds
    return point if watched else None


def _grows_old(then: Point, now: Point) -> bool:
    """Whether the first waiting record is older than it was then.

    Where the query gets on but the records' times do not, they say nothing.
    """
    if then.waiting_since is None or now.waiting_since is None:
        return False
    got_on = now.waiting_since - then.waiting_since
    return got_on < now.at - then.at and (got_on > 0 or now.committed == then.committed)


def _is_overtaken(then: Point, now: Point, edge_speed: float | None) -> bool:
    """Whether the edge moves faster than the query."""
    if edge_speed is None or now.at <= then.at:
        return False
    return (now.committed - then.committed) / (now.at - then.at) < edge_speed


def _told(risk: _Risk, case: Case) -> str:
    exposure, earliest = risk.exposure, risk.edge.earliest
    name, committed = exposure.partition, risk.look.committed[exposure.partition]
    if exposure.lost:
        return (
            f"{name}: {exposure.lost} offsets were deleted before they were read "
            f"(committed {committed}, kept from {earliest})"
        )
    left = exposure.left_seconds(case.now)
    rest = "" if left is None else f", {span(left)} left at least"
    written_at = exposure.written_at
    if written_at is None or exposure.used_by_time(case.now) < (exposure.used_by_offsets or 0.0):
        return (
            f"{name}: {risk.used:.0%} of all that is kept waits, "
            f"the edge is {committed - earliest} offsets behind{rest}"
        )
    return (
        f"{name}: {risk.used:.0%} of its retention time is used up, "
        f"the first waiting record is {span(case.now - written_at)} old{rest}"
    )


def span(seconds: float) -> str:
    """A length of time for people: "40 s", "12 min", "5.5 h", "3.2 d"."""
    if seconds < 2 * 60:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86_400 else f"{seconds / 86_400:.1f} d"
