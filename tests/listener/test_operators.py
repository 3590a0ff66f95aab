"""Operators that keep state, and values of ``df.observe()``, as a progress reports them."""

from __future__ import annotations

import json

import pytest
from support.event_log import recorded

from querypulse.listener.events import EventKind, Observed, decode
from querypulse.listener.foresight.operators import (
    MAX_OPERATORS,
    StateOperator,
    UploadAge,
    cache_reads,
    labelled,
    oldest_uploads,
    sizes,
    step_seconds,
)

SST = "rocksdbSstFileSize"
PINNED = "rocksdbPinnedBlocksMemoryUsage"
SPARK_3 = "rocksdbCommitPauseLatency"


def decoded(operators=None, patterns=(), **parts):
    given = {} if operators is None else {"stateOperators": operators}
    body = {"id": "q", "runId": "r", "batchId": 7, **given, **parts}
    return decode(EventKind.PROGRESS, json.dumps({"progress": body}), patterns)


def test_each_figure_of_a_real_operator_is_decoded():
    stateful = [
        (json.loads(text)["progress"]["stateOperators"], decode(kind, text).operators)
        for kind, text in recorded("progress", "json")
        if json.loads(text)["progress"]["stateOperators"]
    ]

    assert stateful
    for written, operators in stateful:
        for wire, operator in zip(written, operators, strict=True):
            assert operator.metrics == wire["customMetrics"]
            assert (
                operator.name,
                operator.rows,
                operator.rows_updated,
                operator.rows_removed,
                operator.rows_dropped,
                operator.memory_bytes,
                operator.partitions,
                operator.stores,
            ) == tuple(
                wire[name]
                for name in (
                    "operatorName",
                    "numRowsTotal",
                    "numRowsUpdated",
                    "numRowsRemoved",
                    "numRowsDroppedByWatermark",
                    "memoryUsedBytes",
                    "numShufflePartitions",
                    "numStateStoreInstances",
                )
            )
            assert operator.commit_seconds == wire["commitTimeMs"] / 1000


MEMORY = {
    # Measured on stores of 30 rows in four partitions that share a cache of 64 MB, and without one.
    "Spark 3.5, each store counts the whole cache": (
        27_773_736,
        {SST: 5818, PINNED: 18_190_176, SPARK_3: 0},
        None,
    ),
    "Spark 3.5, each store has its own": (21_290, {SST: 6974, PINNED: 352, SPARK_3: 0}, 21_290),
    "Spark 4.0, which leaves it out": (0, {SST: 5818, PINNED: 18_190_176}, None),
    "Spark 4.3, each store counts its part": (
        4_503_566,
        {SST: 11_474, PINNED: 3_061_388},
        4_503_566,
    ),
    "the HDFS-backed store": (11_632, {"stateOnCurrentVersionSizeBytes": 3000}, 11_632),
    "a negative figure": (-1, {}, None),
}


@pytest.mark.parametrize("words", MEMORY)
def test_memory_that_cannot_be_is_unknown(words):
    used, metrics, known = MEMORY[words]
    wire = {
        "operatorName": "stateStoreSave",
        "numRowsTotal": 30,
        "memoryUsedBytes": used,
        "numStateStoreInstances": 4,
        "customMetrics": metrics,
    }
    progress = decoded([wire])
    shown = sizes(progress.operators[0])

    assert (progress.state_memory_bytes, shown["memory"]) == (known, known)
    assert shown["pinned_blocks"] == (metrics.get(PINNED) if known else None)


def test_hostile_figures_cost_only_themselves():
    wire = {
        "operatorName": ["no text"],
        "numRowsTotal": 2**70,
        "numRowsUpdated": "many",
        "numRowsRemoved": -4,
        "memoryUsedBytes": 5,
        "commitTimeMs": 1500,
        "allUpdatesTimeMs": -3,
        "customMetrics": {SST: 12, "nan": float("nan"), "none": None, "text": "x", "large": 2**70},
    }
    progress = decoded([wire, 7, {"numRowsTotal": 3, "customMetrics": "none"}], numInputRows=4)
    first, second, third = progress.operators

    assert (progress.input_rows, progress.lost_parts) == (4, ("stateOperators",))
    assert (first.name, first.rows, first.rows_updated, first.rows_removed) == ("", *[None] * 3)
    assert (first.memory_bytes, first.commit_seconds, first.update_seconds) == (5, 1.5, None)
    assert first.metrics == {SST: 12.0, "large": float(2**70)}
    assert (second, third.rows, third.metrics) == (StateOperator(""), 3, {})


def test_endless_metrics_are_not_kept():
    many = {f"rocksdb{number}": 1 for number in range(10_000)}

    assert decoded([{"customMetrics": many}]).operators == (StateOperator(""),)


def test_operators_of_one_name_have_a_label_each():
    names = ["dedupe", "dedupe", "x" * 500, 'a"}\n{b', ""]
    operators = [StateOperator(name) for name in names]

    assert list(labelled(operators)) == ["dedupe", "dedupe 2", "x" * 64, "a____b", "unknown"]
    assert len(labelled(operators * 100)) == MAX_OPERATORS


def test_steps_and_caches_are_those_of_either_store():
    rocksdb = StateOperator("a", commit_seconds=1.0, custom='{"rocksdbCommitFlushLatency": 250}')
    hdfs = StateOperator("a", custom='{"loadedMapCacheHitCount": 9}')

    assert step_seconds(rocksdb)["flush"] == 0.25
    assert cache_reads(hdfs) == {"hit": 9.0, "miss": None}


def uploads(**versions):
    metrics = {f"SnapshotLastUploaded.{name}": float(v) for name, v in versions.items()}
    return StateOperator("dedupe", custom=json.dumps({"rocksdbGetCount": 1.0, **metrics}))


UPLOADS = [
    (uploads(), {}),
    (uploads(partition_0_default=90, partition_3_default=41), {"dedupe": UploadAge(60, 3)}),
    (uploads(partition_0_default=101), {"dedupe": UploadAge(0, 0)}),
    (uploads(partition_0_default=900), {"dedupe": UploadAge(0, 0)}),
    (
        uploads(partition_0_default=41, partition_2_default=-1),
        {"dedupe": UploadAge(81, 2, is_none=True)},
    ),
    (uploads(partition_1_left_keyToNumValues=91), {"dedupe": UploadAge(10, 1)}),
    (uploads(partition_x_default=1, partition_=2), {}),
]


@pytest.mark.parametrize(("operator", "expected"), UPLOADS)
def test_oldest_snapshot_is_that_of_the_partition_that_is_furthest_behind(operator, expected):
    """Batch 100 writes version 101; the run began with batch 20."""
    assert oldest_uploads([operator], batch_id=100, first_batch=20) == expected


OBSERVED = {
    "orders": {
        "amount_sum": 12.5,
        "amount_max": "NaN",
        "dec": "3.50",
        "flag": True,
        "city": "Bern",
        "nothing": None,
        "row": {"a": 1},
        "list": [1],
    },
    "other": {"n": 2**70},
    "odd": 5,
}
PATTERNS = {
    ("orders.amount*",): [Observed("orders", "amount_sum", 12.5)],
    ("orders.dec", "*.flag"): [Observed("orders", "dec", 3.5), Observed("orders", "flag", 1.0)],
    ("other.*",): [Observed("other", "n", float(2**70))],
    ("*.city", "*.row", "*.list", "*.nothing"): [],
    ("orders",): [],
}


@pytest.mark.parametrize("patterns", PATTERNS)
def test_named_numbers_of_observations_are_kept(patterns):
    assert decoded(observedMetrics=OBSERVED, patterns=patterns).observed == tuple(
        PATTERNS[patterns]
    )


def test_without_the_setting_no_observation_is_read():
    assert decoded(observedMetrics=OBSERVED).observed == ()


def test_observations_are_bounded_and_never_cost_a_progress():
    many = {"a": {f"f{number}": number for number in range(500)}, "n" * 200: {"f": 1}}
    infinite = '{"progress": {"id": "q", "runId": "r", "batchId": 7, "observedMetrics": {"a": {"x": Infinity, "y": 2}}}}'

    assert len(decoded(observedMetrics=many, patterns=("*",)).observed) == 50
    assert decoded(observedMetrics=["odd"], patterns=("*",)).observed == ()
    event = decode(EventKind.PROGRESS, infinite, ("*",))
    assert (event.batch_id, event.observed) == (7, (Observed("a", "y", 2.0),))
