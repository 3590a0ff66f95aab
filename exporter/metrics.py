"""All metric families: of the queries, of the driver and of the monitor itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ..core.installed import VERSION
from ..core.states import LOSS_REASONS, OUTCOMES
from ..listener.events import EventKind
from .exposition import Family, Labels, base_name, histogram, printable
from .published_state import DROP_REASONS, Buckets, Monitor, PublishedState, ShownAlert
from .query_metrics import (
    flow_families,
    lag_families,
    limited,
    overflow,
    query_families,
    retention_families,
)
from .query_row import QueryRow, rows

# -- driver families --------------------------------------------------------------------------
# Metric families about the driver and its open alerts.


LABELS = ("app", "query", "alertname", "severity")
OCCURRENCE = "occurrence"
"""A further label of an alert that was held open and then lasted; others lack it."""


def driver_families(
    app: str, heartbeat: float | None, rows: Sequence[QueryRow]
) -> Iterator[Family]:
    """The heartbeat (Unix seconds), and the same value while the driver should keep running.

    A rule about a vanished driver can only compare the last samples, so both families hold the time
    of the same heartbeat.
    """
    beat = Family(
        "querypulse_driver_heartbeat_timestamp_seconds",
        "When the monitor last evaluated the queries, by its app.",
        ("app",),
    )
    beat.add((app,), heartbeat)
    yield beat
    needed = Family(
        "querypulse_driver_expected_timestamp_seconds",
        "The same time while a query should keep running, so that the driver should not end; "
        "absent otherwise.",
        ("app",),
    )
    if any(row.is_needed for row in rows):
        needed.add((app,), heartbeat)
    yield needed


def alert_families(alerts: Sequence[ShownAlert]) -> Iterator[Family]:
    """Each open alert as a series of value 1, and the number of alerts of each kind."""
    yield _open(alerts)
    yield _firing(alerts)


def _open(alerts: Sequence[ShownAlert]) -> Family:
    family = Family(
        "spark_streaming_query_alert",
        'Whether querypulse has this alert open; query "*" is the whole driver, and an alert that '
        "was held open and then lasted has an occurrence.",
        LABELS,
    )
    for labels, further in dict.fromkeys(map(_labels, alerts)):
        family.add_info(labels, dict(further))
    return family


def _labels(alert: ShownAlert) -> tuple[Labels, tuple[tuple[str, str], ...]]:
    known = alert.labels
    further = ((OCCURRENCE, known[OCCURRENCE]),) if OCCURRENCE in known else ()
    return tuple(known[name] for name in LABELS), further


def _firing(alerts: Sequence[ShownAlert]) -> Family:
    family = Family("querypulse_alerts_firing", "Alerts firing now.", ("alertname", "severity"))
    kinds = Counter((alert.labels["alertname"], alert.labels["severity"]) for alert in alerts)
    for labels, count in kinds.items():
        family.add(labels, count)
    return family


# -- monitor families -------------------------------------------------------------------------
# The metric families ``querypulse_*`` about the monitor itself.


class Count(NamedTuple):
    """One family: label names, and how to read its samples by their label values."""

    name: str
    labels: tuple[str, ...]
    documentation: str
    read: Callable[[Monitor], Mapping[tuple[str, ...], float | None]]


def _known(names: Iterable[str], values: Mapping[str, int]) -> dict[tuple[str, ...], float | None]:
    """Counts by one label; known names start at 0 before their first event."""
    return {(name,): count for name, count in {**dict.fromkeys(names, 0), **values}.items()}


def _by_receiver(
    monitor: Monitor, known: Iterable[str], values: Mapping[tuple[str, str], int]
) -> dict[tuple[str, ...], float | None]:
    """Counts by receiver and one more label of known values."""
    pairs = [*product(monitor.receivers, known), *values]
    return {pair: values.get(pair, 0) for pair in pairs}


COUNTS = (
    Count(
        "querypulse_heartbeat_timestamp_seconds",
        (),
        "When the monitor last evaluated the queries.",
        lambda monitor: {(): monitor.heartbeat_timestamp},
    ),
    Count(
        "querypulse_mailbox_depth",
        (),
        "Events received but not read yet.",
        lambda monitor: {(): monitor.mailbox_depth},
    ),
    Count(
        "querypulse_events_total",
        ("event",),
        "Events received.",
        lambda monitor: _known([kind.value for kind in EventKind], monitor.events),
    ),
    Count(
        "querypulse_events_dropped_total",
        ("reason",),
        "Events received and then lost, by reason.",
        lambda monitor: _known(DROP_REASONS, monitor.events_dropped),
    ),
    Count(
        "querypulse_internal_errors_total",
        ("component",),
        "Contained errors of the monitor itself, by component.",
        lambda monitor: _known((), monitor.internal_errors),
    ),
    Count(
        "querypulse_deliveries_total",
        ("receiver", "outcome"),
        "Attempts to deliver an alert.",
        lambda monitor: _by_receiver(monitor, OUTCOMES, monitor.deliveries),
    ),
    Count(
        "querypulse_alerts_lost_total",
        ("receiver", "reason"),
        "Alerts dropped without delivery, by reason.",
        lambda monitor: _by_receiver(monitor, LOSS_REASONS, monitor.alerts_lost),
    ),
    Count(
        "querypulse_receiver_circuit_open",
        ("receiver",),
        "Whether the receiver, after failures, is tried with only one alert at a time.",
        lambda monitor: _known(monitor.receivers, monitor.circuits_open),
    ),
    Count(
        "querypulse_outbox_pending",
        ("receiver",),
        "Alerts not delivered yet.",
        lambda monitor: _known(monitor.receivers, monitor.outbox_pending),
    ),
)


def monitor_families(monitor: Monitor) -> Iterator[Family]:
    """All families about the monitor itself."""
    for count in COUNTS:
        family = Family(count.name, count.documentation, count.labels)
        for labels, value in count.read(monitor).items():
            family.add(labels, value)
        yield family
    yield _timing(
        "querypulse_callback_duration_seconds",
        "Time that each event takes on Spark's listener thread.",
        monitor.callback_duration_seconds,
    )
    yield _timing(
        "querypulse_probe_duration_seconds",
        "Time that each probe of Spark took.",
        monitor.probe_duration_seconds,
    )


def build_info() -> Family:
    """The version of querypulse; present before any other family."""
    family = Family("querypulse_build_info", "The version of querypulse in this driver.")
    family.add_info((), {"version": VERSION})
    return family


def _timing(name: str, documentation: str, buckets: Buckets) -> Family:
    family = histogram(name, documentation)
    family.add_buckets((), buckets)
    return family


# -- query collector --------------------------------------------------------------------------
# The published state as metric families, for our server and as a Prometheus collector.


def all_families(published: PublishedState | None) -> Iterator[Family]:
    """All families; before the first evaluation only ``querypulse_build_info``."""
    yield build_info()
    if published is None:
        return
    known = rows(published)
    shown = limited(known)
    yield from query_families(published.app, shown)
    yield from lag_families(published.app, shown, by_partition=published.lag_by_partition)
    yield from retention_families(published.app, shown)
    yield from flow_families(published.app, shown)
    yield from driver_families(published.app, published.monitor.heartbeat_timestamp, known)
    yield from alert_families(published.alerts)
    yield overflow(published.app, known)
    yield from monitor_families(published.monitor)


class QueryCollector(Collector):
    """Builds all families from the newest published state at every scrape, and keeps no state."""

    def __init__(self, published: Callable[[], PublishedState | None]) -> None:
        self._published = published

    def collect(self) -> Iterator[Metric]:
        """``all_families`` as ``prometheus_client`` metrics."""
        return map(_metric, all_families(self._published()))


def _metric(family: Family) -> Metric:
    metric = Metric(base_name(family), family.documentation, family.kind)
    for name, names, values, figure in family.samples:
        labels = dict(zip(names, map(printable, values), strict=True))
        metric.add_sample(name, labels, figure)
    return metric
