"""The immutable snapshot that rules, metrics and pages read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .commit_log import LogReport
from .ownership import ALONE, Ownership
from .probing import Context, ProbeReport
from .query import Query
from .supervised import SupervisedQuery


class Pause(msgspec.Struct, frozen=True):
    """A pause of this process: ``seconds`` long, until ``at``."""

    at: float
    seconds: float


class Snapshot(msgspec.Struct, frozen=True):
    """All queries of one driver at one moment. Times are monotonic seconds."""

    at: float
    began_at: float
    queries: tuple[Query, ...] = ()
    probe: ProbeReport | None = None
    log: LogReport | None = None
    context_stopped_at: float | None = None
    """When the probe first saw the SparkContext stopped, for any reason."""
    context_ran_at: float | None = None
    """When the last poll that saw it running began; None without such a poll."""
    events_dropped_at: float | None = None
    """When the probe last saw that Spark's listener queue had dropped more events."""
    pauses: tuple[Pause, ...] = ()
    ownership: Ownership = ALONE
    """Which queries this process alerts for."""
    expected: frozenset[str] = frozenset()
    """The names of queries that must run."""
    supervised: Mapping[str, SupervisedQuery] = {}
    """By label: the queries that ``supervise`` restarts, and those that it has given up."""

    @property
    def context(self) -> Context:
        """The SparkContext's last known state; running without a probe report."""
        return self.probe.context if self.probe is not None else Context.RUNNING

    @property
    def received_at(self) -> float | None:
        """When the probe, or an event of an active query, last reported anything.

        None without a probe.
        """
        if self.probe is None:
            return None
        events = (one.last_event_at for one in self.queries if one.alive)
        return max([self.probe.at, *(at for at in events if at is not None)])

    def watched(self, since: float, now: float) -> float:
        """Seconds between ``since`` and ``now`` in which this process was not paused.

        A driver that was frozen for ten minutes has not been inactive for ten minutes.
        """
        awake = now - since
        for pause in self.pauses:
            if pause.at > since:
                awake -= min(pause.seconds, pause.at - since)
        return max(0.0, awake)

    def labels(self) -> dict[str, Query]:
        """Queries by the label they are shown under."""
        return {query.label: query for query in self.queries}
