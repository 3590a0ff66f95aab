"""The state of a stateful query, as its progress reports it for each operator.

``StateOperatorProgress`` and the custom metrics of the two state stores,
``RocksDBStateStoreProvider`` and ``HDFSBackedStateStoreProvider``.
"""

from __future__ import annotations

import msgspec


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
    """None also where Spark's figure cannot be (SPARK-48208)."""
    partitions: int | None = None
    """``numShufflePartitions``."""
    update_seconds: float | None = None
    removal_seconds: float | None = None
    commit_seconds: float | None = None
    metrics: dict[str, float] = {}
    """``customMetrics`` by Spark's name: milliseconds, bytes and counts as Spark has them."""
