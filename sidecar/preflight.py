"""The pre-flight: what is risky in how a job is set up, each with its remedy, while all is well.

Nothing here is an alert. Each risk is logged once, and ``/status`` has those of now. What may be
meant, or is covered otherwise, is not said: rather nothing than noise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from ..alerting.policy import Policy
from ..alerting.rules.query_ends import endless
from ..core.text import listed
from ..exporter.published_state import Risk
from ..listener.checkpoints import checkpoint_problem
from ..listener.state.query import Query
from ..listener.state.snapshot import Snapshot
from ..settings.settings import Settings

log = logging.getLogger("querypulse")

EVERY_SECONDS = 1.0
SETTLED_SECONDS = 20.0
"""So long after the start of its last query, a job has started what it starts."""
UNREAD_SECONDS = 600.0
"""Who polls a driver has done so by then; a scraper does within a minute."""
EXPECT = (
    "no query is expected: one that is never started raises no alert. Name those that must run in "
    "'expected_queries'"
)
WATCH = (
    "nothing outside this process watches it: nobody is notified when it is killed. Set "
    "'heartbeat_url', let Prometheus scrape it, or run `querypulse watch`"
)
PROMISE = "freshness_seconds"
SPOOL = (
    "freshness_seconds is set, and no 'spool_dir': what is left of the budget starts again with "
    "each process. Set 'spool_dir'"
)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What no snapshot shows; each function is cheap and asks no JVM."""

    is_interactive: bool
    """Whether a person types the program, in a notebook or a shell."""
    is_connect: bool
    scheduler_mode: str = ""
    """``spark.scheduler.mode``; empty if it is not known."""
    waits_for_one: Callable[[], str] = str
    """Where the main thread waits for one query without end; empty if it does not."""
    is_awaited: Callable[[], bool] = bool
    """Whether the application has called ``await_any_failure`` or ``supervise``."""
    is_read: Callable[[], bool] = bool
    """Whether anybody has read the metrics or the status."""


class Preflight:
    """Finds the risks of each evaluation, and logs a new one; the worker's thread calls it."""

    def __init__(self, settings: Settings, around: Surroundings) -> None:
        self._settings = settings
        self._around = around
        self._logged: set[tuple[str, str]] = set()
        """Code and query of each risk that was logged; no query for one of the whole job."""
        self._checked_at = float("-inf")
        self.risks: tuple[Risk, ...] = ()
        """Those of the last check."""

    def check(self, snapshot: Snapshot, policy: Policy) -> None:
        """Find the risks of now, at most every second."""
        if snapshot.at - self._checked_at < EVERY_SECONDS or not snapshot.queries:
            return
        self._checked_at = snapshot.at
        self.risks = risks(snapshot, policy, self._settings, self._around)
        for risk in self.risks:
            about = {(risk.code, query) for query in risk.queries or ("",)}
            if not about <= self._logged:
                log.warning("querypulse: pre-flight: %s (%s)", risk.text, risk.code)
            self._logged |= about


def risks(
    snapshot: Snapshot, policy: Policy, settings: Settings, around: Surroundings
) -> tuple[Risk, ...]:
    """Find what is risky now."""
    found = [*_of_checkpoints(snapshot, policy), *_of_promises(snapshot, policy)]
    queries = endless(snapshot, policy)
    may_be_said = not (around.is_interactive or around.is_connect)
    if may_be_said and _is_settled(queries, snapshot):
        if len(queries) > 1:
            found += _of_wait(queries, snapshot, around)
            found += _of_several(queries, policy, around)
        if not is_watched(settings) and not around.is_read():
            began = min(query.run.started_at for query in queries.values())
            if snapshot.watched(began, snapshot.at) >= UNREAD_SECONDS:
                found.append(Risk("nobody_watches", WATCH))
    return tuple(found)


def known_risks(settings: Settings) -> tuple[Risk, ...]:
    """What the settings alone show, before a job starts."""
    found = [] if settings.expected_queries else [Risk("nothing_expected", EXPECT)]
    if settings.http_port < 0 and not is_watched(settings):
        found.append(Risk("nobody_watches", WATCH))
    limits = (settings, *settings.queries.values())
    promised = [getattr(own, PROMISE) for own in limits]
    if settings.spool_dir is None and any(promised):
        found.append(Risk("promise_without_spool", SPOOL))
    return tuple(found)


def is_watched(settings: Settings) -> bool:
    """Whether the settings name what notices the end of the process, from outside."""
    ours = (
        settings.heartbeat_url,
        settings.heartbeat_url_file,
        settings.pushgateway_url,
        settings.otlp_endpoint,
    )
    of_queries = (own.heartbeat_url or own.heartbeat_url_file for own in settings.queries.values())
    return any(ours) or any(of_queries)


def _is_settled(queries: dict[str, Query], snapshot: Snapshot) -> bool:
    starts = [query.run.started_at for query in queries.values()]
    return bool(starts) and snapshot.watched(max(starts), snapshot.at) >= SETTLED_SECONDS


def _of_wait(queries: dict[str, Query], snapshot: Snapshot, around: Surroundings) -> list[Risk]:
    # A finite run may be what the main thread waits for.
    has_finite = any(query.run.alive and query.label not in queries for query in snapshot.queries)
    line = "" if around.is_awaited() or has_finite else around.waits_for_one()
    if not line:
        return []
    text = (
        f"the main thread waits for one of {len(queries)} queries ({line}): the job goes on "
        "without each other one that fails. Call sidecar.await_any_failure() there"
    )
    return [Risk("waits_for_one_query", text)]


def _of_several(queries: dict[str, Query], policy: Policy, around: Surroundings) -> list[Risk]:
    """What several queries of one job risk, which one alone does not."""
    count = len(queries)
    found = []
    unnamed = [label for label, query in queries.items() if not query.name]
    if unnamed:
        text = (
            f"{len(unnamed)} of {count} queries have no name ({listed(unnamed)}): alerts call them "
            "by their id. Set writeStream.queryName(...)"
        )
        found.append(Risk("unnamed_query", text))
    if not policy.expected:
        found.append(Risk("nothing_expected", EXPECT))
    if around.scheduler_mode == "FIFO":
        text = (
            f"all {count} queries share one scheduler pool (spark.scheduler.mode is FIFO): a large "
            "batch of one delays the others. Set it to FAIR, and spark.scheduler.pool before each "
            "start"
        )
        found.append(Risk("one_scheduler_pool", text))
    return found


def _of_checkpoints(snapshot: Snapshot, policy: Policy) -> list[Risk]:
    """Checkpoints that the next start may not find, by problem; of any query that runs."""
    at_risk: dict[str, list[Query]] = {}
    for query in snapshot.queries:
        facts = query.run.facts
        is_ours = snapshot.ownership.is_own(query.run.session)
        is_meant = query.run.alive and is_ours and not policy.limits(query.base_name).ignore
        problem = checkpoint_problem(facts.checkpoint) if facts is not None and is_meant else ""
        if problem:
            at_risk.setdefault(problem, []).append(query)
    return [_of_checkpoint(problem, queries) for problem, queries in at_risk.items()]


def _of_checkpoint(problem: str, queries: list[Query]) -> Risk:
    kind = "temporary" if problem.startswith("temporary") else "local"
    labels = [query.label for query in queries]
    text = (
        f"the checkpoint of {listed(labels)} is {problem}. Set checkpointLocation to a shared "
        "folder"
    )
    # Each start of a query without a name has another label.
    named = tuple(query.label for query in queries if not query.is_unnamed)
    return Risk(f"{kind}_checkpoint", text, named)


def _of_promises(snapshot: Snapshot, policy: Policy) -> list[Risk]:
    """Promises that the trigger interval of a query breaks, however fast it is."""
    broken = [
        query.label
        for query in snapshot.queries
        if (trigger := query.run.trigger) is not None
        and (promise := policy.limits(query.base_name).promise) is not None
        and query.run.alive
        and trigger.interval_seconds >= promise.seconds
    ]
    if not broken:
        return []
    text = (
        f"the trigger interval of {listed(broken)} is not below freshness_seconds: between two "
        "commits the data is older than promised. Shorten the one, or raise the other"
    )
    return [Risk("promise_below_trigger", text, tuple(broken))]
