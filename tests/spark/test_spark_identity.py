"""On real Spark: a query stays the same query over restarts, checkpoints and sessions."""

from __future__ import annotations

import contextlib

import pytest
from pyspark.errors import StreamingQueryException
from support.queries import Trap, commits, rate, shown, start, until

pytestmark = [pytest.mark.spark, pytest.mark.every_spark]

FAILED = "StreamingQueryFailed"
LOOPS = 10
HANDFUL = 6


def failed(stream, name, checkpoint=None):
    """Start a query that fails in its first batch, and wait for the failure."""
    trap = Trap()
    trap.die.set()
    query = start(stream, name, trap, checkpoint=checkpoint)
    with contextlib.suppress(StreamingQueryException):
        query.awaitTermination()
    return query


def names(sidecar):
    return [query.name for query in sidecar.snapshot().queries]


def test_query_restarted_after_a_failure_recovers(spark, watch, pages, tmp_path):
    """With the checkpoint of its last run, or with a new one."""
    sidecar = watch()
    for name, second in (("kept", "kept"), ("moved", "new")):
        failed(rate(spark), name, tmp_path / name)
        pages.wait_for(FAILED, name)
        start(rate(spark), name, checkpoint=tmp_path / second)
        commits(sidecar, name, batches=3)
        pages.wait_for(FAILED, name, status="resolved")

    assert names(sidecar) == ["kept", "moved"]
    assert pages.reported == [
        (status, FAILED, name) for name in ("kept", "moved") for status in ("firing", "resolved")
    ]
    assert [shown(sidecar, name).restarts for name in ("kept", "moved")] == [1, 1]


def test_expected_stop_and_start_with_a_new_checkpoint_do_not_page(spark, watch, pages, tmp_path):
    sidecar = watch(gone_grace_seconds=0.5, expected_queries=["moved"])
    old = start(rate(spark), "moved", checkpoint=tmp_path / "first")
    commits(sidecar, "moved")
    sidecar.expect_stop("moved")
    old.stop()
    new = start(rate(spark), "moved", checkpoint=tmp_path / "second")
    commits(sidecar, "moved")
    until(lambda: shown(sidecar, "moved").run_id == str(new.runId), "the new run is known")
    commits(sidecar, "moved", batches=8)
    assert sidecar.flush()

    assert (names(sidecar), pages.reported) == (["moved"], [])


def test_queries_with_one_name_in_two_sessions_have_two_labels(spark, watch, pages):
    sidecar = watch()
    first, second = Trap(), Trap()
    elder = start(rate(spark.newSession()), "twin", first)
    commits(sidecar, "twin")
    younger = start(rate(spark.newSession()), "twin", second)
    other = f"twin-{str(younger.id)[:8]}"
    commits(sidecar, other)
    first.die.set()
    pages.wait_for(FAILED, "twin")
    done = shown(sidecar, other).last_commit_batch
    commits(sidecar, other, batches=done + 5)

    assert {query.name: query.id for query in sidecar.snapshot().queries} == {
        "twin": str(elder.id),
        other: str(younger.id),
    }
    assert shown(sidecar, "twin").state == "failed"
    assert pages.reported == [("firing", FAILED, "twin")]


@pytest.mark.thorough
def test_available_now_loop_recovers_with_its_next_run(spark, watch, pages, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("0\n")
    lines = spark.readStream.format("text").load(str(tmp_path / "in"))
    trap = Trap()
    trap.die.set()
    sidecar = watch()
    for run in range(4):
        (tmp_path / "in" / f"{run + 1}.txt").write_text(f"{run}\n")
        writer = lines.writeStream.queryName("loop").trigger(availableNow=True)
        query = writer.foreachBatch(trap).option("checkpointLocation", str(tmp_path / "c")).start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination()
        if run == 0:
            pages.wait_for(FAILED, "loop")
            trap.die.clear()
        elif run == 1:
            pages.wait_for(FAILED, "loop", status="resolved")
    until(lambda: shown(sidecar, "loop").state == "completed", "the last run has completed")

    assert names(sidecar) == ["loop"]
    assert pages.reported == [("firing", FAILED, "loop"), ("resolved", FAILED, "loop")]
    assert shown(sidecar, "loop").restarts == 3


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["looping", None], ids=["named", "unnamed"])
def test_query_that_fails_again_and_again_without_a_fixed_checkpoint_has_one_label(
    spark, watch, pages, name
):
    """Each run has a new id: without a name, all share one alert."""
    sidecar, label = watch(), name or "unnamed"
    for _ in range(LOOPS):
        failed(rate(spark), name)
    assert sidecar.flush()

    what = {(alert, query) for _, alert, query in pages.reported}
    assert what <= {(FAILED, label), ("StreamingQueryFlapping", label)}
    assert 0 < len(pages.reported) <= HANDFUL
    if name is not None:
        assert names(sidecar) == [name]
        assert shown(sidecar, name).restarts == LOOPS - 1
        assert "StreamingQueryFlapping" in {alert.name for alert in sidecar.alerts()}
