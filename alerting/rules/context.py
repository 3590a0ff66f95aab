"""What a rule reads."""

from __future__ import annotations

import msgspec

from ...listener.probe_report import Context, JobActivity
from ...listener.state.query import Query
from ...listener.state.snapshot import Snapshot
from ..policy import Limits, Policy, Window, batch_window, most_without_cpu, stall_window

LOOP = 2
"""So many completed runs are a loop."""


class RuleContext(msgspec.Struct, frozen=True, gc=False):
    """One query at ``now`` (monotonic seconds), with all that the rules need."""

    query: Query
    limits: Limits
    window: Window
    trend_seconds: float
    """How long a trend must last, in seconds; at least the window."""
    is_running: bool
    """Whether the query and its SparkContext are active."""
    batches_come: bool
    """Whether the last commit is no older than the window."""
    policy: Policy
    snapshot: Snapshot
    now: float
    received_at: float | None = None
    """When the last signal of any query of the driver was received."""

    @property
    def batch_window(self) -> Window:
        """The window of a batch in flight; long batches before excuse only one that moves."""
        window, most = batch_window(self.query, self.limits), most_without_cpu(self.limits)
        is_stuck = window.seconds > most.seconds and self._stuck_for > most.seconds
        return most if is_stuck else window

    @property
    def work(self) -> JobActivity | None:
        """The job activity of the run at the newest probe."""
        return self.query.run.probed.work if self.query.run.probed is not None else None

    @property
    def _stuck_for(self) -> float:
        """Seconds without a job, a task or CPU time; 0 if CPU time is not known."""
        flight, work = self.query.run.in_flight, self.work
        if flight is None or work is None or work.jobs.jobs_active or not work.has_cpu_times:
            return 0.0
        times = (flight.moved_at, flight.delayed_at, flight.tried_at)
        return self.watched_since(max(at for at in times if at is not None))

    @property
    def commits(self) -> bool:
        """Whether batches come, or a query that is started again and again has just completed."""
        return (self.is_running and self.batches_come) or self.is_between_runs

    @property
    def is_between_runs(self) -> bool:
        """Whether a query that completes and is started again has just completed."""
        completed = self.query.run.completed_loop
        if completed is None or self.query.history.totals.completed < LOOP:
            return False
        is_recent = self.watched_since(completed[1]) <= self.trend_seconds
        return is_recent and self.snapshot.context is Context.RUNNING

    def watched_since(self, at: float) -> float:
        """Seconds since ``at``, without the time in which querypulse was paused."""
        return self.snapshot.watched(at, self.now)

    @property
    def probe_is_stale(self) -> bool:
        """Whether there is a probe report, but it is too old."""
        probe = self.snapshot.probe
        return probe is not None and self.watched_since(probe.at) > self.policy.probe_stale_seconds

    @property
    def driver_is_silent(self) -> bool:
        """Whether neither the probe nor any event has arrived for a whole window."""
        at = self.received_at
        return at is not None and self.watched_since(at) > self.window.seconds


def is_handled(context: RuleContext) -> bool:
    """Whether ``supervise`` restarts the query, or StreamingQueryGivenUp pages for it."""
    supervised = context.snapshot.supervised.get(context.query.label)
    return supervised is not None and (bool(supervised.given_up) or is_restarted(context))


def is_restarted(context: RuleContext) -> bool:
    """Whether ``supervise`` restarts the query, so that its failure pages nobody yet.

    It does not while its start is overdue by more than ``start_grace_seconds``: then a start
    function hangs, its own or that of another query.
    """
    supervised = context.snapshot.supervised.get(context.query.label)
    if supervised is None or supervised.given_up:
        return False
    since = supervised.waits_since(context.query.run.gone_at)
    return since is None or context.watched_since(since) <= context.limits.start_grace_seconds


def rule_context(
    query: Query,
    snapshot: Snapshot,
    now: float,
    policy: Policy,
    received_at: float | None = None,
) -> RuleContext:
    """One query as the rules see it; ``received_at`` is computed once per snapshot."""
    limits = policy.limits(query.base_name)
    window, commit_at = stall_window(query, limits), query.run.last_commit_at
    return RuleContext(
        query=query,
        limits=limits,
        window=window,
        trend_seconds=max(window.seconds, limits.trend_window_seconds),
        is_running=snapshot.is_running(query),
        batches_come=(commit_at is not None and snapshot.watched(commit_at, now) <= window.seconds),
        policy=policy,
        snapshot=snapshot,
        now=now,
        received_at=received_at,
    )
