"""The monitor's own metrics, published together with the newest evaluation."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping

import msgspec

from ..alerting.generic_apps import problem_of
from ..alerting.lifecycle import Evaluated
from ..alerting.notifier import Notifier
from ..core.guard import Guard
from ..exporter.published_state import CALLBACK_BUCKETS, PROBE_BUCKETS, Monitor, PublishedState
from ..listener.event_reader import EventReader
from ..listener.probe import Prober
from ..listener.snapshot import Snapshot
from ..listener.spark.event_paths import EventPath
from ..listener.spark.health_listener import HealthListener
from .file_readers import FileReaders
from .pushing import Publishers
from .worker import Worker


class Origin(msgspec.Struct, frozen=True):
    """What never changes in what is published."""

    app: str
    spark_version: str
    lag_by_partition: bool


class MonitorFacts:
    """Reads counters that other threads only ever increase; used by the worker."""

    def __init__(
        self,
        origin: Origin,
        *,
        path: EventPath,
        listener: HealthListener,
        reader: EventReader,
        prober: Prober,
        worker: Worker,
        guard: Guard,
        notifier: Notifier,
        files: FileReaders,
        publishers: Publishers,
    ) -> None:
        self._origin = origin
        self._path = path
        self._listener = listener
        self._reader = reader
        self._prober = prober
        self._worker = worker
        self._guard = guard
        self._notifier = notifier
        self._files = files
        self._publishers = publishers
        self._callback_durations = CALLBACK_BUCKETS
        self._probe_durations = PROBE_BUCKETS

    def published(self, evaluated: Evaluated) -> PublishedState:
        """Everything that readers may see, frozen."""
        return PublishedState(
            app=self._origin.app,
            spark_version=self._origin.spark_version,
            snapshot=evaluated.snapshot,
            health=evaluated.evaluation.health,
            alerts=evaluated.alerts,
            suppressed=evaluated.suppressed,
            monitor=self._monitor(evaluated),
            wall=time.time(),
            expected=self._worker.policy.expected,
            lag_by_partition=self._origin.lag_by_partition,
            flow=evaluated.evaluation.flow,
            passed=evaluated.passed,
        )

    def _monitor(self, evaluated: Evaluated) -> Monitor:
        report = evaluated.snapshot.probe
        deliveries = self._notifier.deliveries
        self._callback_durations = self._callback_durations.add(
            _drain(self._listener.callback_durations)
        )
        self._probe_durations = self._probe_durations.add(_drain(self._prober.probe_durations))
        return Monitor(
            heartbeat_timestamp=time.time(),
            listener_path=self._path.name,
            listener_registered=report.listener.registered if report is not None else None,
            reregistrations=report.listener.reregistrations if report is not None else 0,
            missing=report.listener.missing if report is not None else (),
            mailbox_depth=self._path.source.depth,
            events=self._worker.state.events.copy(),
            events_dropped=self._dropped(),
            internal_errors=self._guard.errors.copy(),
            probe_age_seconds=None if report is None else evaluated.snapshot.at - report.at,
            sources_unread=sources_unread(evaluated.snapshot),
            deliveries=_by_name(self._notifier.outcomes),
            outbox_pending={one.name: one.pending for one in deliveries},
            alerts_lost=_by_name({one.name: one.losses for one in deliveries}),
            circuits_open={one.name: one.circuit_open for one in deliveries},
            receivers=self._notifier.names,
            spool_problem=self._notifier.spool_problem,
            file_problems=self._files.problems,
            pushes=self._publishers.pushes,
            app_name_problem=problem_of(self._origin.app),
            callback_duration_seconds=self._callback_durations,
            probe_duration_seconds=self._probe_durations,
        )

    def _dropped(self) -> dict[str, int]:
        # Both mailboxes of a Python listener drop for the same reasons.
        dropped = Counter(self._reader.drops)
        dropped.update(self._path.source.drops)
        dropped.update(self._listener.refused.copy())
        return dropped


def sources_unread(snapshot: Snapshot) -> dict[str, str]:
    """By query: what the brokers did not answer, and why; permanent gaps included."""
    reported = {
        label: [query.source_trouble, *(poll.missing_reason for poll in query.polls.values())]
        for label, query in snapshot.labels().items()
    }
    reasons = {label: "; ".join(dict.fromkeys(filter(None, reported[label]))) for label in reported}
    return {label: reason for label, reason in reasons.items() if reason}


def _by_name(counters: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, str], int]:
    """Counts by (receiver, kind); a copy, because other threads increase them."""
    return {(name, what): n for name, counts in counters.items() for what, n in [*counts.items()]}


def _drain(samples: deque[float]) -> list[float]:
    return [samples.popleft() for _ in range(len(samples))]
