"""Which query reads what another one writes: places, and the graph of queries."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

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
    return tuple(sorted({one.strip().lower() for one in text.split(",")} - {""}))


def places_of(known: Places, sink: str, sources: Progress | None, plan: PlanPlaces) -> Places:
    """What a run reads and writes; ``known`` itself while nothing relevant has changed.

    ``sink`` is its description, and ``sources`` a progress of the run; without one, it reads what
    is known from the run before it.
    """
    described = sources.sources if sources is not None else ()
    seen = (sink, plan, tuple((one.description, _partitions(one)) for one in described))
    if seen == known.seen:
        return known
    found = [_with_brokers(place, plan) for source in described for place in _read(source)]
    reads = known.reads if sources is None else ()
    return Places(
        _distinct([*plan.reads, *found, *reads]),
        _distinct([*plan.writes, *_written(sink)]),
        seen,
    )


def _partitions(source: SourceProgress) -> int:
    """How many partitions a Kafka source reads: with a pattern, topics may join and leave."""
    return len(source.end) if isinstance(source.end, dict) and _is_pattern(source) else 0


def _is_pattern(source: SourceProgress) -> bool:
    return "SubscribePattern" in source.description


def _read(source: SourceProgress) -> Iterable[Place]:
    by_path = _BY_PATH.fullmatch(source.description)
    if by_path is not None:
        place = path_place(by_path.group(1))
        return () if place is None else (place,)
    kafka = _KAFKA.fullmatch(source.description)
    if kafka is None:
        return ()
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


def _written(sink: str) -> Iterable[Place]:
    by_path = _BY_PATH.fullmatch(sink)
    if by_path is not None:
        place = path_place(by_path.group(1))
        return () if place is None else (place,)
    return (Place(TABLE, sink),) if _TABLE.fullmatch(sink) else ()


def _with_brokers(place: Place, plan: PlanPlaces) -> Place:
    """The topic with the brokers of the query's only cluster; else the plan names them."""
    clusters = set(plan.brokers)
    if place.kind != TOPIC or len(clusters) != 1:
        return place
    return Place(TOPIC, place.name, next(iter(clusters)))


def _distinct(places: Iterable[Place]) -> tuple[Place, ...]:
    """Each place once, and none without owners that is also there with them."""
    found = tuple(dict.fromkeys(places))
    owned = {(place.kind, place.name) for place in found if place.owners}
    kept = [place for place in found if place.owners or (place.kind, place.name) not in owned]
    return tuple(kept[:MAX_PLACES])


# -- flow -------------------------------------------------------------------------------------
# Who reads what another query writes, as a graph.


MAX_EDGES = 10_000
"""Further edges are left out, and ``Flow.complete`` is False."""


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
    complete: bool = True


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
    feeds: dict[str, tuple[tuple[str, ...], ...]] = {}
    edges = 0
    for label, (reads, _) in sides.items():
        fed = (_fed_by(one, label, writers.get((one.kind, one.name), ())) for one in reads)
        found = tuple(filter(None, fed))
        edges += sum(map(len, found))
        if edges > MAX_EDGES:
            break
        if found:
            feeds[label] = found
    upstream = {label: _union(found) for label, found in feeds.items()}
    return Flow(feeds, upstream, _turned(upstream), complete=edges <= MAX_EDGES)


def _turned(upstream: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    readers: dict[str, list[str]] = {}
    for label, found in upstream.items():
        for writer in found:
            readers.setdefault(writer, []).append(label)
    return {label: tuple(found) for label, found in readers.items()}


def _sides(
    node: Node, declared: tuple[Declared, ...]
) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    own = [one for one in declared if fnmatchcase(node.name, one.pattern)]
    if not own:
        return node.places.reads, node.places.writes
    reads = [*node.places.reads, *(place for one in own for place in one.reads)]
    writes = [*node.places.writes, *(place for one in own for place in one.writes)]
    return tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes))


def _fed_by(place: Place, label: str, writers: Iterable[tuple[Place, str]]) -> tuple[str, ...]:
    found = (one for written, one in writers if one != label and place.may_be(written))
    return tuple(dict.fromkeys(found))


def _union(found: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(label for labels in found for label in labels))
