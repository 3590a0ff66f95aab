"""The monitor's own figures, published together with the newest evaluation."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..alerting.generic_apps import problem_of
from ..alerting.lifecycle import Evaluated
from ..alerting.notifier import Notifier
from ..core.guard import Guard
from ..exporter.published_state import (
    CALLBACK_BUCKETS,
    PROBE_BUCKETS,
    Buckets,
    Labels,
    Monitor,
    PublishedState,
    alerts_last_open,
    process_of,
)
from ..exporter.push import Publisher
from ..listener.event_reader import EventReader
from ..listener.probe import Prober
from ..listener.spark.event_paths import EventPath
from ..listener.spark.health_listener import HealthListener
from ..listener.state.snapshot import Snapshot
from .observers import FileReaders
from .worker import Worker


@dataclass(kw_only=True)
class MonitorFacts:
    """Reads counters that other threads only ever increase; used by the worker."""

    app: str
    labels: Mapping[str, str]
    spark_version: str
    lag_by_partition: bool
    path: EventPath
    listener: HealthListener
    reader: EventReader
    prober: Prober
    worker: Worker
    guard: Guard
    notifier: Notifier
    files: FileReaders
    publishers: list[Publisher]
    callback_durations: Buckets = CALLBACK_BUCKETS
    probe_durations: Buckets = PROBE_BUCKETS
    alerts_last_open: dict[Labels, float] = field(default_factory=dict)

    def published(self, evaluated: Evaluated) -> PublishedState:
        """Everything that readers may see, frozen."""
        durations = _drain(self.listener.callback_durations)
        self.callback_durations = self.callback_durations.add(durations)
        self.probe_durations = self.probe_durations.add(_drain(self.prober.probe_durations))
        now = evaluated.snapshot.at
        self.alerts_last_open = alerts_last_open(self.alerts_last_open, evaluated.alerts, now)
        return PublishedState(
            app=self.app,
            labels=self.labels,
            spark_version=self.spark_version,
            snapshot=evaluated.snapshot,
            health=evaluated.evaluation.health,
            alerts=evaluated.alerts,
            alerts_last_open=self.alerts_last_open,
            suppressed=evaluated.suppressed,
            monitor=self._monitor(evaluated.snapshot),
            wall=time.time(),
            process=process_of(os.getpid()),
            expected=self.worker.policy.expected,
            lag_by_partition=self.lag_by_partition,
            flow=evaluated.evaluation.flow,
            passed=evaluated.passed,
            callback_durations=self.callback_durations,
            probe_durations=self.probe_durations,
        )

    def _monitor(self, snapshot: Snapshot) -> Monitor:
        report = snapshot.probe
        deliveries = self.notifier.deliveries
        # Both mailboxes of a Python listener drop for the same reasons.
        dropped = Counter(self.reader.drops)
        dropped.update(self.path.source.drops)
        dropped.update(self.listener.refused.copy())
        return Monitor(
            heartbeat_timestamp=time.time(),
            listener_path=self.path.name,
            listener_registered=report.listener.registered if report is not None else None,
            reregistrations=report.listener.reregistrations if report is not None else 0,
            missing=report.listener.missing if report is not None else (),
            mailbox_depth=self.path.source.depth,
            events=self.worker.state.events.copy(),
            events_dropped=dropped,
            internal_errors=self.guard.errors.copy(),
            probe_age_seconds=None if report is None else snapshot.at - report.at,
            sources_unread=sources_unread(snapshot),
            receivers=self.notifier.names,
            deliveries={name: dict(counts) for name, counts in self.notifier.outcomes.items()},
            outbox_pending={delivery.name: delivery.pending for delivery in deliveries},
            alerts_lost={delivery.name: delivery.losses for delivery in deliveries},
            circuits_open={delivery.name: delivery.circuit_open for delivery in deliveries},
            spool_problem=self.notifier.spool_problem,
            file_problems=self.files.problems,
            app_name_problem=problem_of(self.app),
            pushes={publisher.name: publisher.pushes for publisher in self.publishers},
            callback_duration_seconds=self.callback_durations.timing(),
            probe_duration_seconds=self.probe_durations.timing(),
        )


def sources_unread(snapshot: Snapshot) -> dict[str, str]:
    """By query: what the brokers did not answer, and why; permanent gaps included."""
    reasons = {
        label: [query.source_trouble, *(poll.missing_reason for poll in query.polls.values())]
        for label, query in snapshot.labels().items()
    }
    return {
        label: "; ".join(dict.fromkeys(filter(None, texts)))
        for label, texts in reasons.items()
        if any(texts)
    }


def _drain(samples: deque[float]) -> list[float]:
    return [samples.popleft() for _ in range(len(samples))]
