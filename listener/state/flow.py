"""Which query reads what another one writes: datasets, and the graph of queries."""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain

import msgspec

from ..events import Progress, SourceProgress

# -- datasets ---------------------------------------------------------------------------------
# Canonical names of what a query reads and writes.
#
# From Spark's descriptions of sources and sinks in progress events: ``FileStreamSource[PATH]``,
# ``DeltaSource[PATH]``, ``FileSink[PATH]``, ``DeltaSink[PATH]``, ``KafkaV2[Subscribe[a, b]]``, and
# the name of an Iceberg table as a sink. Iceberg's source, Kafka's sink and Kafka's brokers are not
# described there; the probe reads them from the query's plan (``execution.py``).


MAX_DATASETS = 200
"""The most datasets of one query on each side."""
PATH, TABLE, TOPIC = "path", "table", "topic"
LOCAL = "file"
"""OpenLineage's namespace of local paths: another folder on each machine."""

_BY_PATH = re.compile(r"(?:FileStreamSource|DeltaSource|FileSink|DeltaSink)\[(.+)\]", re.DOTALL)
_KAFKA = re.compile(r"Kafka\w*\[(Subscribe|SubscribePattern|Assign)\[(.*)\]\]", re.DOTALL)
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/(?!/).*)", re.DOTALL)
_TABLE = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}


class Dataset(msgspec.Struct, frozen=True, gc=False):
    """A folder, table or topic. ``owners`` are the file system, or the brokers, as far as known."""

    kind: str
    name: str
    owners: tuple[str, ...] = ()

    def may_be(self, other: Dataset) -> bool:
        """Whether both are the same dataset; unknown owners may be any."""
        if self.kind != other.kind or self.name != other.name:
            return False
        return not self.owners or not other.owners or not set(self.owners).isdisjoint(other.owners)


class Datasets(msgspec.Struct, frozen=True, gc=False):
    """What one query reads and writes. ``seen`` are the descriptions that this was made of."""

    reads: tuple[Dataset, ...] = ()
    writes: tuple[Dataset, ...] = ()
    seen: tuple[object, ...] = ()


class PlanDatasets(msgspec.Struct, frozen=True, gc=False):
    """What the plan of a run shows: tables read, topics with their brokers, and the sink's topic.

    ``brokers`` are those of each Kafka source, without its topics.
    """

    reads: tuple[Dataset, ...] = ()
    writes: tuple[Dataset, ...] = ()
    brokers: tuple[tuple[str, ...], ...] = ()


# The names of OpenLineage (its spec/Naming.md): a namespace is a data source, a URI without a path.


def namespace_of(dataset: Dataset) -> str:
    """``kafka://broker:9092``, ``s3://lake``, ``file``; empty if it is not known.

    Of several brokers it is the first by name. A table's is its catalog (``catalog://lake``):
    where that is kept, Spark does not show.
    """
    if dataset.kind == TABLE:
        return f"catalog://{dataset.name.partition('.')[0]}"
    if not dataset.owners:
        return ""
    owner = dataset.owners[0]
    if dataset.kind == TOPIC:
        return f"kafka://{owner}"
    return LOCAL if owner == f"{LOCAL}://" else owner


def name_in_namespace(dataset: Dataset) -> str:
    """A topic, a path, or a table without its catalog."""
    return dataset.name.partition(".")[2] if dataset.kind == TABLE else dataset.name


def place_of(dataset: Dataset) -> str:
    """``kafka://broker:9092/orders``, ``s3://lake/bronze``, ``file:/data``, ``lake.db.orders``."""
    if dataset.kind == TABLE:
        return dataset.name
    namespace = namespace_of(dataset)
    if dataset.kind == TOPIC:
        return f"{namespace}/{dataset.name}".rstrip("/") if namespace else dataset.name
    return f"{LOCAL}:{dataset.name}" if namespace == LOCAL else f"{namespace}{dataset.name}"


def path_dataset(text: str) -> Dataset | None:
    """The dataset of a URI or an absolute path; None for a relative path."""
    match = _URI.fullmatch(text)
    owners: tuple[str, ...] = ()
    if match is not None:
        scheme = match.group(1).lower()
        owners = (f"{_SAME_SCHEME.get(scheme, scheme)}://{match.group(2) or ''}",)
        text = match.group(3)
    if not text.startswith("/"):
        return None
    return Dataset(PATH, "/" + posixpath.normpath(text).lstrip("/"), owners)


def brokers_of(text: str) -> tuple[str, ...]:
    """``kafka.bootstrap.servers`` as brokers."""
    return tuple(sorted({broker.strip().lower() for broker in text.split(",")} - {""}))


def datasets_of(
    before: Datasets, sink: str, sources: Progress | None, plan: PlanDatasets
) -> Datasets:
    """What a run reads and writes; ``before`` itself while nothing relevant has changed.

    ``sink`` is its description, and ``sources`` a progress of the run; without one, it reads what
    is known from the run before it.
    """
    described = sources.sources if sources is not None else ()
    seen = (sink, plan, tuple((source.description, _partitions(source)) for source in described))
    if seen == before.seen:
        return before
    reads = [_with_brokers(dataset, plan) for source in described for dataset in _read(source)]
    if sources is None:
        reads = [*before.reads]
    writes = _paths(sink) or ((Dataset(TABLE, sink),) if _TABLE.fullmatch(sink) else ())
    return Datasets(_distinct([*plan.reads, *reads]), _distinct([*plan.writes, *writes]), seen)


def _partitions(source: SourceProgress) -> int:
    """How many partitions a Kafka source reads: with a pattern, topics may join and leave."""
    is_pattern = "SubscribePattern" in source.description
    return len(source.end) if isinstance(source.end, dict) and is_pattern else 0


def _paths(description: str) -> tuple[Dataset, ...]:
    """The path of a source or a sink that is described by one."""
    by_path = _BY_PATH.fullmatch(description)
    dataset = path_dataset(by_path.group(1)) if by_path is not None else None
    return () if dataset is None else (dataset,)


def _read(source: SourceProgress) -> tuple[Dataset, ...]:
    kafka = _KAFKA.fullmatch(source.description)
    if kafka is None:
        return _paths(source.description)
    return tuple(Dataset(TOPIC, name) for name in _topics(source, *kafka.groups())[:MAX_DATASETS])


def _topics(source: SourceProgress, strategy: str, text: str) -> list[str]:
    """The topics of the offsets where only they show which ones match."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if strategy == "Subscribe":
        return names
    if strategy == "Assign":
        return list(dict.fromkeys(name.rpartition("-")[0] for name in names))
    ends = source.end if isinstance(source.end, dict) else {}
    return sorted({partition.rpartition("/")[0] for partition in ends} - {""})


def _with_brokers(dataset: Dataset, plan: PlanDatasets) -> Dataset:
    """The topic with the brokers of the query's only cluster; else the plan names them."""
    clusters = set(plan.brokers)
    if dataset.kind != TOPIC or len(clusters) != 1:
        return dataset
    return Dataset(TOPIC, dataset.name, clusters.pop())


def _distinct(datasets: Iterable[Dataset]) -> tuple[Dataset, ...]:
    """Each dataset once, and none without owners that is also there with them."""
    distinct = tuple(dict.fromkeys(datasets))
    owned = {(dataset.kind, dataset.name) for dataset in distinct if dataset.owners}
    kept = [
        dataset
        for dataset in distinct
        if dataset.owners or (dataset.kind, dataset.name) not in owned
    ]
    return tuple(kept[:MAX_DATASETS])


# -- flow -------------------------------------------------------------------------------------
# Who reads what another query writes, as a graph.


MAX_EDGES = 10_000
"""Further edges are left out."""


class Declared(msgspec.Struct, frozen=True, gc=False):
    """What the settings say that queries of a name pattern read and write."""

    pattern: str
    reads: tuple[Dataset, ...] = ()
    writes: tuple[Dataset, ...] = ()


class Flow(msgspec.Struct, frozen=True, gc=False):
    """The edges between queries, by label.

    ``feeds`` has, for each reader, the writers of each dataset that it reads; ``upstream`` and
    ``downstream`` are direct neighbours. A query that reads what it writes is not its own
    neighbour. ``inputs`` and ``outputs`` are the datasets, declared ones too.
    """

    feeds: dict[str, tuple[tuple[str, ...], ...]] = {}
    upstream: dict[str, tuple[str, ...]] = {}
    downstream: dict[str, tuple[str, ...]] = {}
    inputs: dict[str, tuple[Dataset, ...]] = {}
    outputs: dict[str, tuple[Dataset, ...]] = {}


class Node(msgspec.Struct, frozen=True, gc=False):
    """One query: the label it is shown under, the name for patterns, and its datasets."""

    label: str
    name: str
    datasets: Datasets = Datasets()


@lru_cache(maxsize=2)
def flow_of(nodes: tuple[Node, ...], declared: tuple[Declared, ...] = ()) -> Flow:
    """The graph of these queries; the same object while neither queries nor datasets change."""
    sides = {node.label: _sides(node, declared) for node in nodes}
    writers: dict[tuple[str, str], list[tuple[Dataset, str]]] = {}
    for label, (_, writes) in sides.items():
        for dataset in writes:
            writers.setdefault((dataset.kind, dataset.name), []).append((dataset, label))
    inputs = {label: tuple(reads) for label, (reads, _) in sides.items()}
    outputs = {label: tuple(writes) for label, (_, writes) in sides.items()}
    flow = Flow({}, {}, {}, inputs, outputs)
    edges = 0
    for reader, (reads, _) in sides.items():
        fed = [
            _fed_by(dataset, reader, writers.get((dataset.kind, dataset.name), []))
            for dataset in reads
        ]
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
) -> tuple[dict[Dataset, None], dict[Dataset, None]]:
    own = (side for side in declared if fnmatchcase(node.name, side.pattern))
    sides: list[Datasets | Declared] = [node.datasets, *own]
    reads = dict.fromkeys(dataset for side in sides for dataset in side.reads)
    return reads, dict.fromkeys(dataset for side in sides for dataset in side.writes)


def _fed_by(dataset: Dataset, reader: str, writers: list[tuple[Dataset, str]]) -> tuple[str, ...]:
    fed_by = (writer for other, writer in writers if writer != reader and dataset.may_be(other))
    return tuple(dict.fromkeys(fed_by))


def cut_off(
    roots: Iterable[str], dry: Iterable[str], flow: Flow, through: Collection[str] | None = None
) -> dict[str, str]:
    """By label: the root that cuts a query off, the nearest first. Roots are not among them.

    ``dry`` are the queries that write nothing; the search goes on ``through`` these queries, or
    through all.
    """
    causes: dict[str, str] = {}
    empty = set(dry)
    waiting = deque(roots)
    while waiting:
        writer = waiting.popleft()
        for reader in flow.downstream.get(writer, ()):
            if reader in causes or reader in empty:
                continue
            datasets = (writers for writers in flow.feeds[reader] if writer in writers)
            if not any(empty.issuperset(writers) for writers in datasets):
                continue
            causes[reader] = causes.get(writer, writer)
            if through is None or reader in through:
                empty.add(reader)
                waiting.append(reader)
    return causes
