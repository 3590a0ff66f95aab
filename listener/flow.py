"""Who reads what another query writes, as a graph. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from .places import Place, Places

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
