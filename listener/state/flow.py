"""Which query reads what another one writes: places, and the graph of queries."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain

import msgspec

from ..events import Progress, SourceProgress

# -- places -----------------------------------------------------------------------------------
# Canonical names of what a query reads and writes.
#
# From Spark's descriptions of sources and sinks in progress events: ``FileStreamSource[PATH]``,
# ``DeltaSource[PATH]``, ``FileSink[PATH]``, ``DeltaSink[PATH]``, ``KafkaV2[Subscribe[a, b]]``, and
# the name of an Iceberg table as a sink. Iceberg's source, Kafka's sink and Kafka's brokers are not
# described there; the probe reads them from the query's plan (``execution.py``).


MAX_PLACES = 200
"""The most places of one query on each side."""
PATH, TABLE, TOPIC = "path", "table", "topic"

_BY_PATH = re.compile(r"(?:FileStreamSource|DeltaSource|FileSink|DeltaSink)\[(.+)\]", re.DOTALL)
_KAFKA = re.compile(r"Kafka\w*\[(Subscribe|SubscribePattern|Assign)\[(.*)\]\]", re.DOTALL)
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/(?!/).*)", re.DOTALL)
_TABLE = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}


class Place(msgspec.Struct, frozen=True, gc=False):
    """A folder, table or topic. ``owners`` are the file system, or the brokers, as far as known."""

    kind: str
    name: str
    owners: tuple[str, ...] = ()

    def may_be(self, other: Place) -> bool:
        """Whether both are the same place; unknown owners may be any."""
        if self.kind != other.kind or self.name != other.name:
            return False
        return not self.owners or not other.owners or not set(self.owners).isdisjoint(other.owners)


class Places(msgspec.Struct, frozen=True, gc=False):
    """What one query reads and writes. ``seen`` are the descriptions that this was made of."""

    reads: tuple[Place, ...] = ()
    writes: tuple[Place, ...] = ()
    seen: tuple[object, ...] = ()


class PlanPlaces(msgspec.Struct, frozen=True, gc=False):
    """What the plan of a run shows: tables read, topics with their brokers, and the sink's topic.

    ``brokers`` are those of each Kafka source, without its topics.
    """

    reads: tuple[Place, ...] = ()
    writes: tuple[Place, ...] = ()
    brokers: tuple[tuple[str, ...], ...] = ()


def path_place(text: str) -> Place | None:
    """The place of a URI or an absolute path; None for a relative path."""
    match = _URI.fullmatch(text)
    owners: tuple[str, ...] = ()
    if match is not None:
        scheme = match.group(1).lower()
        owners = (f"{_SAME_SCHEME.get(scheme, scheme)}://{match.group(2) or ''}",)
        text = match.group(3)
    if not text.startswith("/"):
        return None
    return Place(PATH, "/" + posixpath.normpath(text).lstrip("/"), owners)


def brokers_of(text: str) -> tuple[str, ...]:
    """``kafka.bootstrap.servers`` as brokers."""
    return tuple(sorted({broker.strip().lower() for broker in text.split(",")} - {""}))


def places_of(before: Places, sink: str, sources: Progress | None, plan: PlanPlaces) -> Places:
    """What a run reads and writes; ``before`` itself while nothing relevant has changed.

    ``sink`` is its description, and ``sources`` a progress of the run; without one, it reads what
    is known from the run before it.
    """
    described = sources.sources if sources is not None else ()
    seen = (sink, plan, tuple((source.description, _partitions(source)) for source in described))
    if seen == before.seen:
        return before
    reads = [_with_brokers(place, plan) for source in described for place in _read(source)]
    if sources is None:
        reads = [*before.reads]
    writes = _paths(sink) or ((Place(TABLE, sink),) if _TABLE.fullmatch(sink) else ())
    return Places(_distinct([*plan.reads, *reads]), _distinct([*plan.writes, *writes]), seen)


def _partitions(source: SourceProgress) -> int:
    """How many partitions a Kafka source reads: with a pattern, topics may join and leave."""
    is_pattern = "SubscribePattern" in source.description
    return len(source.end) if isinstance(source.end, dict) and is_pattern else 0


def _paths(description: str) -> tuple[Place, ...]:
    """The path of a source or a sink that is described by one."""
    by_path = _BY_PATH.fullmatch(description)
    place = path_place(by_path.group(1)) if by_path is not None else None
    return () if place is None else (place,)


def _read(source: SourceProgress) -> tuple[Place, ...]:
    kafka = _KAFKA.fullmatch(source.description)
    if kafka is None:
        return _paths(source.description)
    return tuple(Place(TOPIC, name) for name in _topics(source, *kafka.groups())[:MAX_PLACES])


def _topics(source: SourceProgress, strategy: str, text: str) -> list[str]:
    """The topics of the offsets where only they show which ones match."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if strategy == "Subscribe":
        return names
    if strategy == "Assign":
        return list(dict.fromkeys(name.rpartition("-")[0] for name in names))
    ends = source.end if isinstance(source.end, dict) else {}
    return sorted({partition.rpartition("/")[0] for partition in ends} - {""})


def _with_brokers(place: Place, plan: PlanPlaces) -> Place:
    """The topic with the brokers of the query's only cluster; else the plan names them."""
    clusters = set(plan.brokers)
    if place.kind != TOPIC or len(clusters) != 1:
        return place
    return Place(TOPIC, place.name, clusters.pop())


def _distinct(places: Iterable[Place]) -> tuple[Place, ...]:
    """Each place once, and none without owners that is also there with them."""
    distinct = tuple(dict.fromkeys(places))
    owned = {(place.kind, place.name) for place in distinct if place.owners}
    kept = [place for place in distinct if place.owners or (place.kind, place.name) not in owned]
    return tuple(kept[:MAX_PLACES])


# -- flow -------------------------------------------------------------------------------------
# Who reads what another query writes, as a graph.


MAX_EDGES = 10_000
"""Further edges are left out."""


class Declared(msgspec.Struct, frozen=True, gc=False):
    """What the settings say that queries of a name pattern read and write."""

    pattern: str
    reads: tuple[Place, ...] = ()
    writes: tuple[Place, ...] = ()


class Flow(msgspec.Struct, frozen=True, gc=False):
    """The edges between queries, by label.

    ``feeds`` has, for each reader, the writers of each place that it reads; ``upstream`` and
    ``downstream`` are direct neighbours. A query that reads what it writes is not its own
    neighbour.
    """

    feeds: dict[str, tuple[tuple[str, ...], ...]] = {}
    upstream: dict[str, tuple[str, ...]] = {}
    downstream: dict[str, tuple[str, ...]] = {}


class Node(msgspec.Struct, frozen=True, gc=False):
    """One query: the label it is shown under, the name for patterns, and its places."""

    label: str
    name: str
    places: Places = Places()


@lru_cache(maxsize=2)
def flow_of(nodes: tuple[Node, ...], declared: tuple[Declared, ...] = ()) -> Flow:
    """The graph of these queries; the same object while neither queries nor places change."""
    sides = {node.label: _sides(node, declared) for node in nodes}
    writers: dict[tuple[str, str], list[tuple[Place, str]]] = {}
    for label, (_, writes) in sides.items():
        for place in writes:
            writers.setdefault((place.kind, place.name), []).append((place, label))
    flow, edges = Flow({}, {}, {}), 0
    for reader, (reads, _) in sides.items():
        fed = [_fed_by(place, reader, writers.get((place.kind, place.name), [])) for place in reads]
        edges += sum(map(len, fed))
        if not any(fed) or edges > MAX_EDGES:
            continue
        flow.feeds[reader] = tuple(filter(None, fed))
        flow.upstream[reader] = tuple(dict.fromkeys(chain(*fed)))
        for writer in flow.upstream[reader]:
            flow.downstream[writer] = (*flow.downstream.get(writer, ()), reader)
    return flow


def _sides(
    node: Node, declared: tuple[Declared, ...]
) -> tuple[dict[Place, None], dict[Place, None]]:
    own = (side for side in declared if fnmatchcase(node.name, side.pattern))
    sides: list[Places | Declared] = [node.places, *own]
    reads = dict.fromkeys(place for side in sides for place in side.reads)
    return reads, dict.fromkeys(place for side in sides for place in side.writes)


def _fed_by(place: Place, reader: str, writers: list[tuple[Place, str]]) -> tuple[str, ...]:
    fed_by = (writer for other, writer in writers if writer != reader and place.may_be(other))
    return tuple(dict.fromkeys(fed_by))
