"""What readers see of a driver as of the newest evaluation: ``/status``, pushes, and metrics, also
in the job's own registry.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from prometheus_client import Metric

from ..alerting.alert import problem_of
from ..alerting.delivery.deliveries import Notifier
from ..alerting.incidents.lifecycle import Evaluated
from ..exporter.exposition import Family, base_name, printable
from ..exporter.metrics import all_families
from ..exporter.published_state import (
    Buckets,
    Monitor,
    PublishedState,
    alerts_last_open,
    process_of,
)
from ..exporter.push import Publisher
from ..listener.connect.event_path import ConnectPath
from ..listener.probe_report import ListenerHealth
from ..listener.spark.event_paths import EventPath
from ..listener.spark.health_listener import HealthListener
from ..listener.state.snapshot import Snapshot
from ..settings.settings import Settings
from .assemble import Components
from .black_box import BlackBox
from .observers import FileReaders, Observers
from .preflight import Preflight
from .worker import Worker

if TYPE_CHECKING:
    from prometheus_client.registry import Collector
else:
    # The oldest prometheus_client that we allow has no such class; a registry needs none.
    Collector = object


class Publishing:
    """Publishes evaluations, with figures about the monitor itself, which it collects.

    The worker's thread calls ``publish``, after the alerts are handed over; others read ``newest``.
    """

    def __init__(
        self,
        app: str,
        spark_version: str,
        components: Components,
        *,
        path: EventPath | ConnectPath,
        listener: HealthListener,
        observers: Observers,
        files: FileReaders,
        worker: Worker,
        notifier: Notifier,
        black_box: BlackBox,
        publishers: Sequence[Publisher],
        preflight: Preflight,
    ) -> None:
        self._guard = components.guard
        self._path = path
        self._listener = listener
        self._observers = observers
        self._files = files
        self._worker = worker
        self._notifier = notifier
        self._black_box = black_box
        self._publishers = publishers
        self._preflight = preflight
        nothing = PublishedState(
            app=app,
            labels=components.settings.labels,
            spark_version=spark_version,
            process=process_of(os.getpid()),
            lag_by_partition=components.settings.lag_by_partition,
            snapshot=worker.evaluated.snapshot,
            health={},
            alerts=(),
            monitor=Monitor(),
            wall=worker.evaluated.wall,
        )
        self.newest = self._after(nothing, worker.evaluated)
        """Everything that readers may see: frozen, and replaced as a whole."""

    def publish(self, evaluated: Evaluated) -> None:
        """Replace what readers see, and log what is risky in how the job is set up, once."""
        self._guard.attempt(
            "preflight", lambda: self._preflight.check(evaluated.snapshot, self._worker.policy)
        )
        self.newest = self._after(self.newest, evaluated)

    def _after(self, before: PublishedState, evaluated: Evaluated) -> PublishedState:
        callbacks = before.callback_durations.add(_drain(self._listener.callback_durations))
        polls = before.probe_durations.add(_drain(self._observers.prober.probe_durations))
        snapshot = evaluated.snapshot
        alerts = evaluated.alerts
        return replace(
            before,
            snapshot=snapshot,
            health=evaluated.evaluation.health,
            alerts=alerts,
            alerts_last_open=alerts_last_open(before.alerts_last_open, alerts, snapshot.at),
            inhibited=evaluated.inhibited,
            monitor=self._monitor(evaluated, before.app, callbacks, polls),
            wall=evaluated.wall,
            expected=self._worker.policy.expected,
            flow=evaluated.evaluation.flow,
            passed=evaluated.passed,
            freshness=evaluated.freshness,
            callback_durations=callbacks,
            probe_durations=polls,
        )

    def _monitor(
        self, evaluated: Evaluated, app: str, callbacks: Buckets, polls: Buckets
    ) -> Monitor:
        snapshot = evaluated.snapshot
        report = snapshot.probe
        health = report.listener if report is not None else ListenerHealth()
        source = self._path.source
        deliveries = self._notifier.deliveries
        return Monitor(
            heartbeat_timestamp=evaluated.wall,
            listener_path=self._path.name,
            listener_registered=health.registered if report is not None else None,
            reregistrations=health.reregistrations,
            missing=health.missing,
            other_listeners=tuple(map(str, health.full_queues)),
            mailbox_depth=source.depth,
            events=self._worker.state.events.copy(),
            # Both mailboxes of a Python listener drop for the same reasons.
            events_dropped=sum_of(
                self._observers.reader.drops, source.drops, self._listener.refused.copy()
            ),
            internal_errors=self._guard.errors.copy(),
            probe_age_seconds=None if report is None else snapshot.at - report.at,
            sources_unread=_sources_unread(snapshot),
            receivers=tuple(delivery.name for delivery in deliveries),
            deliveries={name: dict(counts) for name, counts in self._notifier.outcomes.items()},
            outbox_pending={delivery.name: delivery.pending for delivery in deliveries},
            alerts_lost={delivery.name: delivery.losses for delivery in deliveries},
            circuits_open={delivery.name: delivery.circuit_open for delivery in deliveries},
            spool_problem=self._notifier.spool_problem or None,
            recordings=self._black_box.published,
            file_problems=self._files.problems,
            app_name_problem=problem_of(app) or None,
            preflight=self._preflight.risks,
            pushes={publisher.name: publisher.pushes for publisher in self._publishers},
            callback_duration_seconds=callbacks.timing(),
            probe_duration_seconds=polls.timing(),
        )


def sum_of(*counts: Mapping[str, int]) -> Counter[str]:
    """The sum of counts by name."""
    total: Counter[str] = Counter()
    for by_name in counts:
        total.update(by_name)
    return total


def _sources_unread(snapshot: Snapshot) -> dict[str, str]:
    """By query: what the brokers did not answer, and why; permanent gaps included."""
    reasons = {
        label: [
            query.run.source_trouble,
            *(poll.missing_reason for poll in query.checkpoint.polls.values()),
        ]
        for label, query in snapshot.labels().items()
    }
    return {
        label: "; ".join(dict.fromkeys(filter(None, texts)))
        for label, texts in reasons.items()
        if any(texts)
    }


def _drain(samples: deque[float]) -> list[float]:
    return [samples.popleft() for _ in range(len(samples))]


def nothing_published(settings: Settings) -> PublishedState:
    """What readers see where nothing is watched: no query, no alert."""
    now = time.monotonic()
    return PublishedState(
        app=settings.app_name or "",
        labels=settings.labels,
        spark_version="",
        snapshot=Snapshot(at=now, began_at=now),
        health={},
        alerts=(),
        monitor=Monitor(),
        wall=time.time(),
    )


class MetricsCollector(Collector):
    """The families of ``/metrics``, for ``prometheus_client.REGISTRY.register``.

    ``published`` returns what ``/metrics`` shows now, or None before the first evaluation; a closed
    sidecar has no metrics, as its port has none.
    """

    def __init__(
        self, published: Callable[[], PublishedState | None], is_closed: Callable[[], bool]
    ) -> None:
        self._published = published
        self._is_closed = is_closed

    def collect(self) -> Iterable[Metric]:
        """The families, with the newest figures."""
        families = () if self._is_closed() else all_families(self._published())
        return [_metric(family) for family in families]

    def describe(self) -> Iterable[Metric]:
        """All families without figures: a registry refuses to take them twice."""
        return [_metric(family) for family in all_families(nothing_published(Settings()))]


def _metric(family: Family) -> Metric:
    metric = Metric(base_name(family), family.documentation, family.kind)
    for name, names, values, figure in family.samples:
        labels = dict(zip(names, map(printable, values), strict=True))
        metric.add_sample(name, labels, float(figure))
    return metric
