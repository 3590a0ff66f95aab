"""The state of a stateful query, as its progress reports it for each operator.

``StateOperatorProgress`` and the custom metrics of the two state stores,
``RocksDBStateStoreProvider`` and ``HDFSBackedStateStoreProvider``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

import msgspec

SST_BYTES = "rocksdbSstFileSize"
PINNED_BYTES = "rocksdbPinnedBlocksMemoryUsage"
_OF_SPARK_3 = "rocksdbCommitPauseLatency"
"""Only Spark 3 has this metric."""
_MEMTABLE_BLOCK = 65_536
"""Far less than what RocksDB charges to a bounded cache for the memtables of each store (256 KiB),
and far more than a cache without a bound has pinned (88 bytes)."""
_UPLOADED = re.compile(r"SnapshotLastUploaded\.partition_(\d{1,9})_.+", re.ASCII | re.DOTALL)
_METRICS = msgspec.json.Decoder(dict[str, float])
MAX_NAME = 64
MAX_OPERATORS = 16
"""Further operators of a query are not shown; nobody has so many."""
_UNUSUAL = re.compile(r"[^\w. -]", re.ASCII)


class StateOperator(msgspec.Struct, frozen=True, gc=False):
    """One operator of ``stateOperators`` after a batch; what Spark does not report is None."""

    name: str
    """``operatorName``, such as ``stateStoreSave``."""
    rows: int | None = None
    rows_updated: int | None = None
    rows_removed: int | None = None
    rows_dropped: int | None = None
    """Behind the watermark (``numRowsDroppedByWatermark``)."""
    memory_bytes: int | None = None
    """None also where Spark's figure cannot be: see ``memory_of``."""
    partitions: int | None = None
    """``numShufflePartitions``."""
    stores: int | None = None
    """``numStateStoreInstances``."""
    update_seconds: float | None = None
    removal_seconds: float | None = None
    commit_seconds: float | None = None
    custom: str = ""
    """``customMetrics`` as Spark's JSON. Forty figures of each operator are read where they are
    asked for, not in each event."""

    @property
    def metrics(self) -> dict[str, float]:
        """``customMetrics`` by Spark's name: milliseconds, bytes and counts as Spark has them."""
        return metrics_of(self.custom)

    @property
    def state_bytes(self) -> float | None:
        """What grows with the state: RocksDB's files, else what the executors hold of it."""
        return self.metrics.get(SST_BYTES, self.memory_bytes)


def metrics_of(custom: str) -> dict[str, float]:
    """The numbers of ``customMetrics``, if it is an object."""
    if not custom:
        return {}
    with suppress(msgspec.MsgspecError):
        return _METRICS.decode(custom)
    with suppress(msgspec.MsgspecError, OverflowError, RecursionError):
        odd = msgspec.json.decode(custom)
        numbers = odd.items() if isinstance(odd, dict) else ()
        return {name: float(value) for name, value in numbers if type(value) in (int, float)}
    return {}


def memory_of(used: int | None, rows: int | None, stores: int | None, custom: str) -> int | None:
    """The memory of an operator; None where Spark's figure cannot be.

    With ``boundedMemoryUsage``, the RocksDB stores of an executor share one cache. Spark 3.5 counts
    all of it for each store, and Spark 4.0 reports 0 (SPARK-48208). From 4.1 on, each store counts
    an equal part of it (SPARK-53002). Without a bound, each store has its own.
    """
    if used is None or used < 0:
        return None
    if (used or not rows) and _OF_SPARK_3 not in custom:
        return used
    metrics = metrics_of(custom)
    if SST_BYTES not in metrics:
        return used
    counts_all = metrics.get(PINNED_BYTES, 0.0) > _MEMTABLE_BLOCK * (stores or 1)
    if (_OF_SPARK_3 in metrics and counts_all) or (used == 0 and rows):
        return None
    return used


def labelled(operators: Sequence[StateOperator]) -> dict[str, StateOperator]:
    """The operators by their labels: the name, with a number from the second one on.

    Spark reports the operators of a plan in the same order after each batch.
    """
    by_label: dict[str, StateOperator] = {}
    for operator in operators[:MAX_OPERATORS]:
        name = _UNUSUAL.sub("_", operator.name[:MAX_NAME]) or "unknown"
        label, number = name, 1
        while label in by_label:
            number += 1
            label = f"{name} {number}"
        by_label[label] = operator
    return by_label


def commit_seconds(operators: Sequence[StateOperator]) -> float:
    """How long all tasks have committed the state of these operators, as far as reported."""
    return sum([operator.commit_seconds or 0.0 for operator in operators])


# -- what is published ------------------------------------------------------------------------
# Of about forty metrics of RocksDB those that people look at: how large it is, what it costs.

_STEPS = {
    "flush": "rocksdbCommitFlushLatency",
    "compact": "rocksdbCommitCompactLatency",
    "compaction": "rocksdbTotalCompactionLatencyMs",
    "checkpoint": "rocksdbCommitCheckpointLatency",
    "file_sync": "rocksdbCommitFileSyncLatencyMs",
    "changelog": "rocksdbChangeLogWriterCommitLatencyMs",
    "upload": "rocksdbSaveZipFilesLatencyMs",
    "load": "rocksdbLoadLatencyMs",
    "writer_stall": "rocksdbWriterStallLatencyMs",
    "get": "rocksdbGetLatency",
    "put": "rocksdbPutLatency",
}
_PARTS = {
    "sst_files": SST_BYTES,
    "pinned_blocks": PINNED_BYTES,
    "read": "rocksdbTotalBytesRead",
    "iterated": "rocksdbTotalBytesReadThroughIterator",
    "written": "rocksdbTotalBytesWritten",
    "flushed": "rocksdbTotalBytesWrittenByFlush",
    "read_by_compaction": "rocksdbTotalBytesReadByCompaction",
    "written_by_compaction": "rocksdbTotalBytesWrittenByCompaction",
    "uploaded": "rocksdbBytesCopied",
    "current_version": "stateOnCurrentVersionSizeBytes",
}
_CACHES = {
    "hit": ("rocksdbReadBlockCacheHitCount", "loadedMapCacheHitCount"),
    "miss": ("rocksdbReadBlockCacheMissCount", "loadedMapCacheMissCount"),
}
Figures = dict[str, float | None]


def changed_rows(operator: StateOperator) -> Figures:
    """The rows that a batch has changed, by what it did to them."""
    return {
        "updated": operator.rows_updated,
        "removed": operator.rows_removed,
        "dropped": operator.rows_dropped,
    }


def step_seconds(operator: StateOperator) -> Figures:
    """The time of all tasks in each step; those of RocksDB are parts of the commit, mostly."""
    metrics = operator.metrics
    millis = {step: metrics.get(name) for step, name in _STEPS.items()}
    return {
        "update": operator.update_seconds,
        "removal": operator.removal_seconds,
        "commit": operator.commit_seconds,
        **{step: None if value is None else value / 1000 for step, value in millis.items()},
    }


def sizes(operator: StateOperator) -> Figures:
    """The bytes of the state, and those that a batch has moved.

    Where the memory of a shared cache is unknown, so is what it has pinned.
    """
    metrics = operator.metrics
    parts = {part: metrics.get(name) for part, name in _PARTS.items()}
    if operator.memory_bytes is None:
        parts["pinned_blocks"] = None
    return {"memory": operator.memory_bytes, **parts}


def cache_reads(operator: StateOperator) -> Figures:
    """How many reads its cache has answered, of blocks (RocksDB) or of whole versions."""
    metrics = operator.metrics
    return {
        outcome: next((metrics[name] for name in names if name in metrics), None)
        for outcome, names in _CACHES.items()
    }


# -- snapshots --------------------------------------------------------------------------------


class UploadAge(msgspec.Struct, frozen=True, gc=False):
    """The partition of an operator whose newest uploaded snapshot is the oldest.

    So many ``batches`` are not in it. ``is_none``: Spark knows none of it since the run began.
    """

    batches: int
    partition: int
    is_none: bool = False


def oldest_uploads(
    operators: Sequence[StateOperator], batch_id: int, first_batch: int
) -> dict[str, UploadAge]:
    """The oldest snapshot of each operator of which Spark reports them; Spark 4.1 and later.

    It reports the oldest ones
    (``spark.sql.streaming.stateStore.numStateStoreInstanceMetricsToReport``). Batch N writes
    version N + 1. Where none was uploaded (-1), the batches since the run's ``first_batch`` count.
    """
    oldest = {}
    for label, operator in labelled(operators).items():
        uploads = [
            (version, int(match[1]))
            for name, version in operator.metrics.items()
            if name.startswith("Snap") and (match := _UPLOADED.fullmatch(name)) is not None
        ]
        if uploads:
            version, partition = min(uploads)
            is_none = version < 0
            since = first_batch if is_none else min(version, batch_id + 1)
            oldest[label] = UploadAge(max(0, int(batch_id + 1 - since)), partition, is_none)
    return oldest
