"""``supervise`` on real Spark: a query that fails twice and then works, one that always fails."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from support.queries import SPARK_PATIENCE_SECONDS, Boom, commits, rate, shown, start, until

from querypulse.sidecar import QueryFailure

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


class Unreliable:
    """A start function whose query fails in its first ``failures`` runs.

    It fails once its batch is seen in flight: of one that fails sooner, the batch is not known.
    """

    def __init__(self, spark, sidecar, checkpoint, failures):
        self.spark, self.sidecar, self.checkpoint = spark, sidecar, checkpoint
        self.name, self.failures, self.runs = checkpoint.name, failures, 0
        self.failed: set[str] = set()

    def __call__(self):
        self.runs += 1
        fails = self.runs <= self.failures

        def write(batch, batch_id):
            if fails:
                self.failed.add(until(partial(self.run_with, batch_id), "its batch is in flight"))
                raise Boom(f"run {self.name}, password=hunter2")

        return start(rate(self.spark), self.name, write, checkpoint=self.checkpoint)

    def run_with(self, batch_id):
        """The new run, once it is seen with this batch in flight."""
        query = shown(self.sidecar, self.name)
        is_seen = query is not None and query.batch_in_flight == batch_id
        return query.run_id if is_seen and query.run_id not in self.failed else None


@pytest.fixture
def supervised():
    """Run ``supervise`` in the background; what it raised is in the list."""
    threads = []

    def run(sidecar, starts, **terms):
        raised = []

        def wait():
            try:
                sidecar.supervise(starts, **terms)
            except Exception as error:
                raised.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        threads.append(thread)
        return raised

    yield run
    for thread in threads:
        thread.join(SPARK_PATIENCE_SECONDS)
        assert not thread.is_alive()


def test_supervised_queries_recover_or_are_given_up(spark, watch, pages, tmp_path, supervised):
    sidecar = watch(resolve_after_seconds=1)
    shaky = Unreliable(spark, sidecar, tmp_path / "shaky", failures=2)
    broken = Unreliable(spark, sidecar, tmp_path / "broken", failures=1000)
    completed = []

    def start_finite():
        completed.append(1)
        stream = rate(spark).writeStream.queryName("finite").trigger(availableNow=True)
        return stream.format("noop").option("checkpointLocation", str(tmp_path / "finite")).start()

    starts = {"shaky": shaky, "broken": broken, "finite": start_finite}
    raised = supervised(sidecar, starts, same_batch_failures=3)

    page = pages.wait_for("StreamingQueryGivenUp", "broken")
    commits(sidecar, "shaky")
    sidecar.flush()

    assert page.labels["severity"] == "critical"
    assert page.annotations["reason"] == "batch 0 failed 3 times with Boom"
    assert "hunter2" not in str(page.annotations)
    assert (shaky.runs, broken.runs) == (3, 3)
    assert shown(sidecar, "shaky").supervised.restarts == 2
    assert shown(sidecar, "broken").supervised.given_up
    assert {page.labels["severity"] for page in pages.pages if page.what[1] == "shaky"} == {
        "warning"
    }
    critical = [page.what for page in pages.pages if page.labels["severity"] == "critical"]
    assert critical == [("StreamingQueryGivenUp", "broken")]
    assert raised == []

    sidecar.expect_stop("shaky")
    next(query for query in spark.streams.active if query.name == "shaky").stop()
    until(lambda: raised, "the end of supervise")
    assert isinstance(raised[0], QueryFailure)
    assert (raised[0].query, shaky.runs) == ("broken", 3)
    assert completed == [1], "a completed query is not started again"

    sidecar.forget("broken")
    pages.wait_for("StreamingQueryGivenUp", "broken", status="resolved")


def test_query_that_never_starts_is_shown_and_reported(spark, watch, pages):
    sidecar = watch()

    def start_nothing():
        spark.readStream.format("no-such-format").load()

    with pytest.raises(QueryFailure, match="its start failed"):
        sidecar.supervise({"never": start_nothing}, restarts=1)
    pages.wait_for("StreamingQueryGivenUp", "never")

    assert shown(sidecar, "never").state == "failed"
    with pytest.raises(QueryFailure):
        sidecar.await_any_failure(SPARK_PATIENCE_SECONDS)
    sidecar.forget("never")
    assert sidecar.flush()
    assert shown(sidecar, "never") is None
