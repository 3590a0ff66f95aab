"""The metric families ``querypulse_*`` about the monitor itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from ..core.outcomes import LOSS_REASONS, OUTCOMES
from ..core.version import VERSION
from ..listener.events import EventKind
from .buckets import Buckets
from .families import Family, histogram
from .published_state import DROP_REASONS, Monitor


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
