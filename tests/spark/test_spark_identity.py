"""On real Spark: a query stays the same query over restarts, checkpoints and sessions."""

from __future__ import annotations

import contextlib
import shutil

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


def becomes(sidecar, name, query):
    """Wait until the run of a query is known under a name."""
    run = (name, str(query.runId))
    until(
        lambda: run in {(shown.name, shown.run_id) for shown in sidecar.snapshot().queries},
        f"{name} has a new run",
    )


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


# -- one checkpoint, two names -------------------------------------------------------------------

TAKEN = "StreamingQueryStopped"


def in_another_session(spark, name, checkpoint):
    return start(rate(spark.newSession()), name, checkpoint=checkpoint)


def test_query_that_takes_the_checkpoint_of_another_is_reported_until_that_takes_it_back(
    spark, watch, pages, tmp_path
):
    """Spark stops the running query, without an exception; the grace would be an hour."""
    sidecar = watch(gone_grace_seconds=3600.0, expected_queries=["a", "b"])
    start(rate(spark), "a", checkpoint=tmp_path / "c")
    commits(sidecar, "a")
    in_another_session(spark, "b", tmp_path / "c")
    pages.wait_for(TAKEN, "a")
    commits(sidecar, "b", batches=3)
    (alert,) = sidecar.alerts()
    a, b = shown(sidecar, "a"), shown(sidecar, "b")

    assert "b was started on its checkpoint, file:" in alert.annotations["reason"]
    assert str(tmp_path / "c") in alert.annotations["reason"]
    assert alert.annotations["next_steps"].startswith("1. Decide which of the two")
    assert (a.state, a.id == b.id, b.restarts) == ("stopped_unexpectedly", True, 0)

    back = start(rate(spark), "a", checkpoint=tmp_path / "c")
    pages.wait_for(TAKEN, "b")
    becomes(sidecar, "a", back)
    commits(sidecar, "a", batches=b.last_commit_batch + 3)
    pages.wait_for(TAKEN, "a", status="resolved")

    assert names(sidecar) == ["a", "b"]
    assert shown(sidecar, "a").restarts == 1
    assert pages.reported == [
        (status, TAKEN, name)
        for status, name in (("firing", "a"), ("firing", "b"), ("resolved", "a"))
    ]


def test_other_starts_on_the_checkpoint_of_a_query_are_reported_as_no_stop(
    spark, watch, pages, tmp_path
):
    """The same name again, also elsewhere; a new name after an end; no name; a refused start."""
    sidecar = watch(gone_grace_seconds=3600.0)
    for _ in range(3):
        # Spark may fail a run that it stops while it begins.
        again = in_another_session(spark, "again", tmp_path / "again")
        becomes(sidecar, "again", again)
        commits(sidecar, "again")
    for number in range(5):
        old = start(rate(spark), f"name-{number}", checkpoint=tmp_path / "renamed")
        becomes(sidecar, "name-0", old)
        commits(sidecar, "name-0")
        old.stop()
        until(lambda: shown(sidecar, "name-0").state == "stopped", "its end is known")
    renamed = start(rate(spark), "renamed", checkpoint=tmp_path / "renamed")
    start(rate(spark), "named", checkpoint=tmp_path / "some")
    commits(sidecar, "named")
    in_another_session(spark, None, tmp_path / "some")
    refusing = spark.newSession()
    refusing.conf.set("spark.sql.streaming.stopActiveRunOnRestart", "false")
    with pytest.raises(Exception, match="already active"):
        start(rate(refusing), "refused", checkpoint=tmp_path / "renamed")
    becomes(sidecar, "name-0", renamed)
    commits(sidecar, "name-0", batches=3)
    assert sidecar.flush()

    assert names(sidecar) == ["again", "name-0", "named"]
    assert pages.reported == []


def test_query_taken_over_after_an_announced_stop_pages_nobody(spark, watch, pages, tmp_path):
    sidecar = watch(gone_grace_seconds=0.5)
    start(rate(spark), "a", checkpoint=tmp_path / "c")
    commits(sidecar, "a")
    sidecar.expect_stop("a")
    b = in_another_session(spark, "b", tmp_path / "c")
    commits(sidecar, "b", batches=8)
    sidecar.expect_stop(b)
    b.stop()
    start(rate(spark), "other")
    commits(sidecar, "other", batches=8)
    assert sidecar.flush()

    assert [(query.name, query.state) for query in sidecar.snapshot().queries] == [
        ("a", "stopped"),
        ("b", "stopped"),
        ("other", "running"),
    ]
    assert pages.reported == []


# -- one folder, another id ----------------------------------------------------------------------

LOST_ID = "StreamingOffsetsRewound"
REFUSES = "spark.sql.streaming.checkpoint.verifyMetadataExists.enabled"
"""Where Spark knows this conf (4.2), it refuses to start without the file unless it is false."""


def without_metadata(folder):
    for file in (*folder.glob("metadata"), *folder.glob(".metadata*")):
        file.unlink()


@pytest.fixture
def restarts_after(spark, watch, pages, tmp_path):
    """Run a query, change its checkpoint's folder, and start it again: the new batches it waits for.

    Returns what was reported.
    """

    def restart(name, change, *, batches):
        sidecar, folder = watch(gone_grace_seconds=3600.0), tmp_path / "c"
        session = spark.newSession()
        session.conf.set(REFUSES, "false")
        old = start(rate(session), name, checkpoint=folder)
        label = name or str(old.id)[:8]
        commits(sidecar, label, batches=4)
        sidecar.expect_stop(label)
        old.stop()
        assert sidecar.flush()
        done = shown(sidecar, label).last_commit_batch
        change(folder)
        new = start(rate(session), name, checkpoint=folder)
        becomes(sidecar, label, new)
        commits(sidecar, label, batches=batches(done))
        assert (names(sidecar), shown(sidecar, label).restarts) == ([label], 1)
        assert old.id != new.id
        return sidecar

    return restart


@pytest.mark.parametrize("name", ["kept", None], ids=["named", "unnamed"])
def test_query_whose_checkpoint_lost_its_id_is_one_query_with_a_warning(
    restarts_after, pages, name
):
    restarts_after(name, without_metadata, batches=lambda done: done + 3)
    pages.wait_for(LOST_ID, name or "unnamed")

    assert pages.reported == [("firing", LOST_ID, name or "unnamed")]


@pytest.mark.parametrize("name", ["kept", None], ids=["named", "unnamed"])
def test_query_whose_checkpoint_was_emptied_is_one_query_without_a_warning(
    restarts_after, pages, name
):
    sidecar = restarts_after(name, shutil.rmtree, batches=lambda _: 4)
    assert sidecar.flush()

    assert pages.reported == []
