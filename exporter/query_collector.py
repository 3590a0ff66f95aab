"""The published state as metric families, for our server and as a Prometheus collector."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from .driver_families import alert_families, driver_families
from .exposition import base_name
from .families import Family, printable
from .flow_families import flow_families
from .lag_figures import lag_families
from .monitor_families import build_info, monitor_families
from .published_state import PublishedState
from .query_families import query_families
from .query_limit import limited, overflow
from .retention_figures import retention_families
from .row import rows


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
