"""On real Spark: a query stays the same query over restarts, checkpoints and sessions."""

from __future__ import annotations

import contextlib

import pytest
from pyspark.errors import StreamingQueryException
from support.queries import Trap, commits, rate, shown, start, until

pytestmark = pytest.mark.spark

LOOPS = 30
HANDFUL = 6


def failed(stream, name, checkpoint=None):
    """Start a query that fails in its first batch, and wait for the failure."""
    trap = Trap()
    trap.die.set()
    query = start(stream, name, trap, checkpoint=checkpoint)
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination(30)
    return query


def names(sidecar):
    return [query.name for query in sidecar.snapshot().queries]


@pytest.mark.parametrize("kept", [True, False], ids=["kept checkpoint", "new checkpoint"])
def test_query_restarted_after_a_failure_recovers(spark, watch, pages, tmp_path, kept):
    """L3"""
    sidecar = watch()
    failed(rate(spark), "again", tmp_path / "first")
    pages.wait_for("StreamingQueryFailed", "again")
    start(rate(spark), "again", checkpoint=tmp_path / ("first" if kept else "second"))
    commits(sidecar, "again", batches=3)

    pages.wait_for("StreamingQueryFailed", "again", status="resolved")
    assert names(sidecar) == ["again"]
    assert pages.reported == [
        ("firing", "StreamingQueryFailed", "again"),
        ("resolved", "StreamingQueryFailed", "again"),
    ]
    assert shown(sidecar, "again").restarts == 1


def test_expected_stop_and_start_with_a_new_checkpoint_do_not_page(spark, watch, pages, tmp_path):
    """L3"""
    sidecar = watch(gone_grace_seconds=0.5, expected_queries=["moved"])
    old = start(rate(spark), "moved", checkpoint=tmp_path / "first")
    commits(sidecar, "moved")
    sidecar.expect_stop("moved")
    old.stop()
    new = start(rate(spark), "moved", checkpoint=tmp_path / "second")
    commits(sidecar, "moved")
    until(lambda: shown(sidecar, "moved").run_id == str(new.runId), "the new run is known")
    commits(sidecar, "moved", batches=8)

    assert (names(sidecar), pages.reported) == (["moved"], [])


def test_available_now_loop_recovers_with_its_next_run(spark, watch, pages, tmp_path):
    """A2, A3"""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("0\n")
    lines = spark.readStream.format("text").load(str(tmp_path / "in"))
    trap = Trap()
    trap.die.set()
    sidecar = watch()
    for run in range(6):
        (tmp_path / "in" / f"{run + 1}.txt").write_text(f"{run}\n")
        writer = lines.writeStream.queryName("loop").trigger(availableNow=True)
        query = writer.foreachBatch(trap).option("checkpointLocation", str(tmp_path / "c")).start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination(30)
        if run == 0:
            pages.wait_for("StreamingQueryFailed", "loop")
            trap.die.clear()
        elif run == 1:
            pages.wait_for("StreamingQueryFailed", "loop", status="resolved")
    until(lambda: shown(sidecar, "loop").state == "completed", "the last run has completed")

    assert names(sidecar) == ["loop"]
    assert pages.reported == [
        ("firing", "StreamingQueryFailed", "loop"),
        ("resolved", "StreamingQueryFailed", "loop"),
    ]
    assert shown(sidecar, "loop").restarts == 5


def test_queries_with_one_name_in_two_sessions_have_two_labels(spark, watch, pages):
    """L15"""
    sidecar = watch()
    first, second = Trap(), Trap()
    elder = start(rate(spark.newSession()), "twin", first)
    commits(sidecar, "twin")
    younger = start(rate(spark.newSession()), "twin", second)
    other = f"twin-{str(younger.id)[:8]}"
    commits(sidecar, other)
    first.die.set()
    pages.wait_for("StreamingQueryFailed", "twin")
    done = shown(sidecar, other).last_commit_batch
    commits(sidecar, other, batches=done + 5)

    assert {query.name: query.id for query in sidecar.snapshot().queries} == {
        "twin": str(elder.id),
        other: str(younger.id),
    }
    assert shown(sidecar, "twin").state == "failed"
    assert pages.reported == [("firing", "StreamingQueryFailed", "twin")]


def test_failing_query_without_a_fixed_checkpoint_stays_one_query(spark, watch, pages):
    """L23: before the fix there were sixty POSTs and a label for each restart."""
    sidecar = watch()
    for _ in range(LOOPS):
        failed(rate(spark), "looping")
    sidecar.flush()

    assert names(sidecar) == ["looping"]
    assert shown(sidecar, "looping").restarts == LOOPS - 1
    assert {(alert, query) for _, alert, query in pages.reported} == {
        ("StreamingQueryFailed", "looping"),
        ("StreamingQueryFlapping", "looping"),
    }
    assert len(pages.reported) <= HANDFUL


def test_unnamed_queries_that_fail_share_one_alert(spark, watch, pages):
    """A20"""
    sidecar = watch()
    for _ in range(10):
        failed(rate(spark), None)
    sidecar.flush()

    assert {(alert, query) for _, alert, query in pages.reported} <= {
        ("StreamingQueryFailed", "unnamed"),
        ("StreamingQueryFlapping", "unnamed"),
    }
    assert len(pages.reported) <= HANDFUL


def test_forgotten_query_resolves_its_alert(spark, watch, pages):
    sidecar = watch(expected_queries=["retired"])
    failed(rate(spark), "retired")
    pages.wait_for("StreamingQueryFailed", "retired")
    sidecar.forget("retired")

    pages.wait_for("StreamingQueryFailed", "retired", status="resolved")
    assert names(sidecar) == []
    assert len(pages.reported) == 2
