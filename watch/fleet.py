"""All drivers of a watcher at one moment: what is wrong, why, and who waits for whom. Pure.

Times are Unix seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from ..alerting.alert import CRITICAL, Incident
from ..alerting.finding import NOT_WORKING
from ..alerting.silences import END_OF_TIME
from ..alerting.words.messages import INCIDENT_URL
from ..core.installed import VERSION
from ..core.states import STATES
from ..core.text import shorten
from ..listener.state.flow import LOCAL, Dataset, Datasets, Node, cut_off, flow_of
from .client import SUMMARY, DatasetName, DriverAlert, DriverFreshness, DriverQuery

MAX_TEXT = 300
"""Characters of a text that a driver has chosen."""
MAX_UNHEALTHY = 20
"""The most unhealthy queries that are named for each driver."""
MAX_LISTED = 500
"""The most incidents, starving queries, and datasets that are listed."""
DOWN, UNANSWERED, REFUSES, ENDED, UP, STOPPED = (
    "down",
    "no answer",
    "refuses",
    "ended",
    "up",
    "stopped",
)
"""The states of a driver, the worst first."""
DRIVER_STATES = (DOWN, UNANSWERED, REFUSES, ENDED, UP, STOPPED)
GONE = frozenset({DOWN, ENDED, STOPPED})
DRY_STATES = frozenset({*(state.value for state in NOT_WORKING), "stopped", "completed"})
BROKEN_STATES = frozenset(state.value for state in NOT_WORKING)
WORKING = frozenset({"running", "idle", "waiting", "stopped", "completed"})
"""States of a query that need nobody."""


class SeenDriver(msgspec.Struct, frozen=True, kw_only=True):
    """One driver, as the watcher has seen it last."""

    name: str
    url: str
    state: str
    detail: str = ""
    since: float | None = None
    """Since when it is down, or does not answer."""
    labels: Mapping[str, str] = {}
    queries: tuple[DriverQuery, ...] = ()
    alerts: tuple[DriverAlert, ...] = ()


class SeenPeer(msgspec.Struct, frozen=True):
    """Another watcher of the same drivers."""

    url: str
    detail: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a watcher has seen. ``incidents`` are its own, about drivers."""

    at: float
    drivers: tuple[SeenDriver, ...] = ()
    incidents: tuple[Incident, ...] = ()
    notifies: bool = True
    """Whether this watcher sends; else a peer does."""
    peers: tuple[SeenPeer, ...] = ()


# -- the fleet --------------------------------------------------------------------------------


class UnhealthyQuery(msgspec.Struct, frozen=True):
    """A query that needs somebody."""

    name: str
    state: str
    reason: str


class FleetDriver(msgspec.Struct, frozen=True, kw_only=True):
    """One driver. ``queries`` counts them by state, ``incidents`` those that are open."""

    name: str
    url: str
    state: str
    detail: str
    since: float | None
    labels: Mapping[str, str]
    queries: dict[str, int]
    unhealthy: tuple[UnhealthyQuery, ...]
    freshness: dict[str, DriverFreshness]
    """By query, what its driver says of its promise."""
    incidents: int
    critical: int

    @property
    def needs_somebody(self) -> bool:
        """Whether it is worth more than a line among the healthy ones."""
        is_well = self.state in (UP, STOPPED)
        return not is_well or bool(self.incidents) or bool(self.unhealthy)


class FleetIncident(msgspec.Struct, frozen=True, kw_only=True):
    """One open incident; ``url`` is that of its recording, empty without one."""

    driver: str
    query: str
    severity: str
    alertname: str
    headline: str
    since: float | None
    cause: str
    muted: str
    url: str


class FleetCause(msgspec.Struct, frozen=True):
    """What incidents of several drivers have in common; ``incidents`` are their indices."""

    cause: str
    severity: str
    since: float | None
    drivers: int
    incidents: tuple[int, ...]


class Starved(msgspec.Struct, frozen=True):
    """A broken query, and those of other drivers that get no data because of it."""

    driver: str
    query: str
    state: str
    readers: tuple[tuple[str, str], ...]
    """Driver and query of each."""


class Feed(msgspec.Struct, frozen=True):
    """A dataset that queries of one driver write and those of another one read."""

    namespace: str
    name: str
    writers: tuple[tuple[str, str], ...]
    """Driver and query of each."""
    readers: tuple[tuple[str, str], ...]


class Group(msgspec.Struct, frozen=True):
    """The drivers with one label; ``bad`` are those that need somebody."""

    label: str
    value: str
    drivers: int
    bad: int
    incidents: int


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, the worst first. ``left_out`` counts what is not listed, by field."""

    at: float
    drivers: tuple[FleetDriver, ...]
    incidents: tuple[FleetIncident, ...]
    causes: tuple[FleetCause, ...]
    starved: tuple[Starved, ...]
    feeds: tuple[Feed, ...]
    groups: tuple[Group, ...]
    left_out: dict[str, int]
    notifies: bool
    peers: tuple[SeenPeer, ...]
    version: str = VERSION

    @property
    def states(self) -> dict[str, int]:
        """How many drivers are in each state, the worst first."""
        counts = Counter(driver.state for driver in self.drivers)
        return {state: counts[state] for state in DRIVER_STATES if counts[state]}

    @property
    def queries(self) -> dict[str, int]:
        """How many queries of the drivers that run are in each state, the worst first."""
        counts: Counter[str] = Counter()
        for driver in self.drivers:
            if driver.state not in GONE:
                counts.update(driver.queries)
        return dict(sorted(counts.items(), key=lambda pair: _rank(STATES, pair[0])))


def fleet_of(seen: Seen) -> Fleet:
    """What the drivers show together."""
    incidents = _incidents(seen)
    drivers = _drivers(seen, incidents)
    lineage = Lineage(seen.drivers)
    starved = lineage.starved()
    feeds = lineage.feeds()
    counts = {"incidents": len(incidents), "starved": len(starved), "feeds": len(feeds)}
    return Fleet(
        at=seen.at,
        drivers=tuple(drivers),
        incidents=tuple(incidents[:MAX_LISTED]),
        causes=tuple(_causes(incidents[:MAX_LISTED])),
        starved=tuple(starved[:MAX_LISTED]),
        feeds=tuple(feeds[:MAX_LISTED]),
        groups=tuple(_groups(drivers)),
        left_out={name: count - MAX_LISTED for name, count in counts.items() if count > MAX_LISTED},
        notifies=seen.notifies,
        peers=seen.peers,
    )


def _rank(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def _drivers(seen: Seen, incidents: Sequence[FleetIncident]) -> list[FleetDriver]:
    """The drivers, the worst first."""
    every = Counter(incident.driver for incident in incidents if not incident.muted)
    critical = Counter(
        incident.driver
        for incident in incidents
        if not incident.muted and incident.severity == CRITICAL
    )
    drivers = [
        _driver(driver, every[driver.name], critical[driver.name]) for driver in seen.drivers
    ]
    drivers.sort(
        key=lambda driver: (
            not driver.needs_somebody,
            driver.state != DOWN,
            -driver.critical,
            -driver.incidents,
            _rank(DRIVER_STATES, driver.state),
            -len(driver.unhealthy),
            driver.name,
        )
    )
    return drivers


def _driver(seen: SeenDriver, incidents: int, critical: int) -> FleetDriver:
    counts = Counter(query.state for query in seen.queries)
    unhealthy = [
        UnhealthyQuery(query.name, query.state, shorten(query.reason, MAX_TEXT))
        for query in sorted(seen.queries, key=lambda query: _rank(STATES, query.state))
        if query.state not in WORKING and not query.ignored
    ]
    return FleetDriver(
        name=seen.name,
        url=seen.url,
        state=seen.state,
        detail=shorten(seen.detail, MAX_TEXT),
        since=seen.since,
        labels=seen.labels,
        queries={state: counts[state] for state in STATES if counts[state]},
        unhealthy=tuple(unhealthy[:MAX_UNHEALTHY]),
        freshness={query.name: query.freshness for query in seen.queries if query.freshness},
        incidents=incidents,
        critical=critical,
    )


def _groups(drivers: Sequence[FleetDriver]) -> list[Group]:
    """Each value of each label, ``team`` first, the worst value first."""
    by_label: dict[tuple[str, str], list[FleetDriver]] = {}
    for driver in drivers:
        for pair in driver.labels.items():
            by_label.setdefault(pair, []).append(driver)
    groups = [
        Group(
            label,
            value,
            len(own),
            sum(driver.needs_somebody for driver in own),
            sum(driver.incidents for driver in own),
        )
        for (label, value), own in by_label.items()
    ]
    return sorted(
        groups,
        key=lambda group: (
            group.label != "team",
            group.label,
            -group.incidents,
            -group.bad,
            group.value,
        ),
    )


# -- incidents --------------------------------------------------------------------------------


def _incidents(seen: Seen) -> list[FleetIncident]:
    """All open incidents, those that notify and the critical ones first, then the oldest."""
    found = {
        (incident.driver, incident.query): incident
        for driver in seen.drivers
        if driver.state != STOPPED
        for incident in _incidents_of(driver)
    }
    # Of a driver that is down, the watcher knows best.
    found |= {
        (incident.driver, incident.query): incident
        for incident in map(_own_incident, seen.incidents)
    }
    return sorted(
        found.values(),
        key=lambda incident: (
            bool(incident.muted),
            incident.severity != CRITICAL,
            incident.since or seen.at,
            incident.driver,
            incident.query,
        ),
    )


def _incidents_of(driver: SeenDriver) -> Iterator[FleetIncident]:
    """The open incidents of one driver; the headline is that of the most prominent alert."""
    alerts: dict[str, list[DriverAlert]] = {}
    for alert in driver.alerts:
        alerts.setdefault(alert.incident or alert.query, []).append(alert)
    for query, own in alerts.items():
        loud = [alert for alert in own if not alert.muted] or own
        shown = next((alert for alert in loud if alert.is_critical), loud[0])
        starts = [at for at in map(_unix, own) if at is not None]
        yield FleetIncident(
            driver=driver.name,
            query=query,
            severity=shown.labels.get("severity", ""),
            alertname=shown.name,
            headline=shorten(shown.annotations.get(SUMMARY, "") or shown.name, MAX_TEXT),
            since=min(starts, default=None),
            cause=shorten(shown.cause, MAX_TEXT),
            muted=shown.muted,
            url=shown.annotations.get(INCIDENT_URL, ""),
        )


def _own_incident(incident: Incident) -> FleetIncident:
    """An incident that the watcher itself has opened."""
    alert = incident.alerts[0]
    return FleetIncident(
        driver=incident.labels["app"],
        query=incident.query,
        severity=incident.severity,
        alertname=alert.name,
        headline=shorten(alert.annotations.get(SUMMARY, "") or alert.name, MAX_TEXT),
        since=incident.starts_at,
        cause=shorten(alert.cause, MAX_TEXT),
        muted=incident.muted,
        url=alert.annotations.get(INCIDENT_URL, ""),
    )


def _unix(alert: DriverAlert) -> float | None:
    try:
        at = datetime.fromisoformat(alert.starts_at.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if 0.0 <= at <= END_OF_TIME else None


def _causes(incidents: Sequence[FleetIncident]) -> Iterator[FleetCause]:
    """The causes that several drivers share, the one of most drivers first."""
    members: dict[str, list[int]] = {}
    for index, incident in enumerate(incidents):
        if incident.cause:
            members.setdefault(incident.cause, []).append(index)
    causes = []
    for cause, indices in members.items():
        own = [incidents[index] for index in indices]
        drivers = len({incident.driver for incident in own})
        if drivers > 1:
            since = min((i.since for i in own if i.since is not None), default=None)
            # They are sorted: the first one is the worst.
            causes.append(FleetCause(cause, own[0].severity, since, drivers, tuple(indices)))
    yield from sorted(causes, key=lambda cause: -cause.drivers)


# -- who feeds whom ---------------------------------------------------------------------------

QueryKey = tuple[str, str]
"""Driver and query."""


class Lineage:
    """Who reads what queries of other drivers write. A folder ``file`` is one of its machine.

    A dataset without a namespace may be anybody's.
    """

    def __init__(self, drivers: Iterable[SeenDriver]) -> None:
        self._states: dict[QueryKey, str] = {}
        self._keys: dict[str, QueryKey] = {}
        self._nodes: list[Node] = []
        self._writers: dict[Dataset, list[QueryKey]] = {}
        self._readers: dict[Dataset, list[QueryKey]] = {}
        for driver in drivers:
            host = urlsplit(driver.url).hostname or ""
            for query in driver.queries:
                self._add(driver, query, host)

    def _add(self, driver: SeenDriver, query: DriverQuery, host: str) -> None:
        key = (driver.name, query.name)
        self._states[key] = _state_of(driver, query)
        reads = _datasets(query.reads, host)
        writes = _datasets(query.writes, host)
        if not (reads or writes):
            return
        label = f"{driver.name}\n{query.name}"
        self._keys[label] = key
        self._nodes.append(Node(label, label, Datasets(reads, writes)))
        for side, datasets in ((self._readers, reads), (self._writers, writes)):
            for dataset in datasets:
                side.setdefault(dataset, []).append(key)

    def starved(self) -> list[Starved]:
        """The queries that a broken one of another driver cuts off, over any number of drivers."""
        flow = flow_of(tuple(self._nodes))
        states = {label: self._states[key] for label, key in self._keys.items()}
        dry = [label for label, state in states.items() if state in DRY_STATES or state == DOWN]
        roots = [label for label in dry if states[label] in BROKEN_STATES or states[label] == DOWN]
        readers: dict[str, list[QueryKey]] = {}
        for label, root in cut_off(roots, dry, flow).items():
            if self._keys[label][0] != self._keys[root][0]:
                readers.setdefault(root, []).append(self._keys[label])
        found = [
            Starved(*self._keys[root], states[root], tuple(sorted(own)))
            for root, own in readers.items()
        ]
        return sorted(found, key=lambda entry: (-len(entry.readers), entry.driver, entry.query))

    def feeds(self) -> list[Feed]:
        """The datasets that pass from one driver to another."""
        found = []
        for dataset, readers in self._readers.items():
            writers = self._writers.get(dataset, [])
            if len({driver for driver, _ in (*writers, *readers)}) > 1 and writers:
                namespace = dataset.kind
                found.append(Feed(namespace, dataset.name, tuple(writers), tuple(readers)))
        return sorted(found, key=lambda feed: (feed.namespace, feed.name))


def _state_of(driver: SeenDriver, query: DriverQuery) -> str:
    """The state of a query; one of a driver that is gone writes nothing any more."""
    if query.state in DRY_STATES or driver.state not in GONE:
        return query.state
    return DOWN if driver.state == DOWN else "stopped"


def _datasets(named: Iterable[DatasetName], host: str) -> tuple[Dataset, ...]:
    """The datasets that may be those of other drivers: their namespace must be known."""
    return tuple(
        Dataset(dataset.namespace, dataset.name, (host,) if dataset.namespace == LOCAL else ())
        for dataset in named
        if dataset.namespace
    )
