"""The failures that the next process of the app needs for its rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..listener.past_failures import KEEP_SECONDS, MAX_KEPT, FailedQuery, mark_of
from ..listener.query import Query
from .deaths import is_committed, repeated
from .policy import Policy


def kept_failures(
    queries: Iterable[Query], unmet: Iterable[FailedQuery], policy: Policy, now: float
) -> tuple[FailedQuery, ...]:
    """For each query, the failures within its window and those that may show a poison batch.

    ``unmet`` are queries of earlier processes that this process has not seen. Queries with the same
    name are kept without failures: their own id shows that they do not continue a failed one.
    """
    queries = tuple(queries)
    window = _longest_window(policy)
    found = [_trimmed(one, window, now) for one in unmet]
    found += [_of(query, policy, now) for query in queries if query.deaths]
    failed = sorted((one for one in found if one.deaths), key=lambda one: one.deaths[-1].at)
    kept = {one.query_id: one for one in failed[-MAX_KEPT:]}
    marks = {one.mark for one in kept.values() if one.mark}
    if marks:
        namesakes = [_bare(query) for query in queries if mark_of(query.name) in marks]
        namesakes += [one for one in found if one.mark in marks]
        for one in namesakes[: MAX_KEPT - len(kept)]:
            kept.setdefault(one.query_id, one)
    return tuple(kept.values())


def _of(query: Query, policy: Policy, now: float) -> FailedQuery:
    window = policy.limits(query.base_name).restart_window_seconds
    is_open = query.unrecovered_deaths > 0 and not is_committed(query, query.deaths[-1])
    unrecovered = query.unrecovered_deaths if is_open else 0
    one = replace(_bare(query), deaths=query.deaths, unrecovered_deaths=unrecovered)
    return _trimmed(one, window, now)


def _bare(query: Query) -> FailedQuery:
    return FailedQuery(query.query_id, mark_of(query.name), gone_at=query.gone_at)


def _trimmed(one: FailedQuery, window: float, now: float) -> FailedQuery:
    fresh = sum(now - died.at <= window for died in one.deaths)
    young = [died for died in one.deaths if now - died.at <= KEEP_SECONDS]
    same = repeated(young) if one.unrecovered_deaths else 0
    deaths = one.deaths[len(one.deaths) - max(fresh, same) :]
    unrecovered = min(one.unrecovered_deaths, len(deaths))
    return replace(one, deaths=deaths, unrecovered_deaths=unrecovered)


def _longest_window(policy: Policy) -> float:
    windows = [changes.get("restart_window_seconds", 0.0) for _, changes in policy.overrides]
    return max(policy.defaults.restart_window_seconds, *windows, 0.0)
