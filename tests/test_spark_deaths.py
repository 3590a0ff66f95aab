"""On real Spark: every death is told, with its reason, within a second or two."""

from __future__ import annotations

import re
import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryListener
from support.pagerduty_double import PagerDutyDouble
from support.queries import Trap, commits, rate, shown, start, until

pytestmark = pytest.mark.spark


def test_a_death_is_paged_with_its_reason_and_without_its_secrets(spark, watch, pages):
    sidecar = watch()
    trap = Trap()
    start(rate(spark), "well")
    start(rate(spark), "doomed", trap)
    commits(sidecar, "well")
    commits(sidecar, "doomed")

    trap.die.set()
    page = pages.wait_for("StreamingQueryFailed", "doomed")

    assert page.at - trap.died_at < 2
    assert page.annotations["reason"].startswith("Boom: files were added by a concurrent update")
    assert page.annotations["siblings"] == "1 of 2 queries healthy; not: doomed"
    assert "hunter2" not in str(pages.requests)
    assert shown(sidecar, "doomed").state == "failed"
    assert shown(sidecar, "well").state == "running"


def test_a_death_says_what_a_restart_repeats_and_where_the_job_is(spark, watch):
    sidecar = watch()
    trap = Trap()
    doomed = start(rate(spark), "doomed", trap)
    commits(sidecar, "doomed")

    def evidence():
        reported = [
            one.annotations for one in sidecar.alerts() if one.name == "StreamingQueryFailed"
        ]
        return reported[0] if reported and "offsets" in reported[0].get("on_restart", "") else None

    trap.die.set()
    found = until(evidence, "its last words are read")
    batch = int(found["on_restart"].split()[1])

    assert re.fullmatch(
        rf"batch {batch} runs again, offsets \{{.+: \d+\}} to \{{.+: \d+\}}", found["on_restart"]
    )
    assert batch == doomed.lastProgress["batchId"] + 1
    assert "job line" in found["main_thread"]


def test_a_death_is_paged_while_a_neighbour_clogs_the_listener_bus(spark, watch, pages):
    class Neighbour(StreamingQueryListener):
        received = 0

        def onQueryStarted(self, event):
            pass

        def onQueryProgress(self, event):
            self.received += 1
            time.sleep(0.3)

        def onQueryIdle(self, event):
            time.sleep(0.3)

        def onQueryTerminated(self, event):
            pass

    neighbour = Neighbour()
    spark.streams.addListener(neighbour)
    try:
        sidecar = watch()
        trap = Trap()
        for number in range(5):
            start(rate(spark), f"busy-{number}", trigger="50 milliseconds")
        start(rate(spark), "doomed", trap)
        commits(sidecar, "doomed")
        until(lambda: neighbour.received > 10, "the bus is clogged")

        trap.die.set()
        page = pages.wait_for("StreamingQueryFailed", "doomed")

        assert page.at - trap.died_at < 2
        # Our queue is not the neighbour's: the event is not late.
        until(lambda: sidecar.snapshot().monitor.events.get("terminated"), "its end arrives", 2)
    finally:
        spark.streams.removeListener(neighbour)


def test_a_death_in_another_session_is_paged(spark, watch, pages):
    sidecar = watch()
    trap = Trap()
    start(rate(spark.newSession()), "elsewhere", trap)
    commits(sidecar, "elsewhere", batches=2)

    trap.die.set()

    pages.wait_for("StreamingQueryFailed", "elsewhere")


def test_a_query_that_began_before_the_sidecar_is_known_and_its_death_paged(spark, watch, pages):
    trap = Trap()
    query = start(rate(spark), "older", trap)
    until(lambda: query.lastProgress, "it commits")
    sidecar = watch()
    commits(sidecar, "older")
    assert shown(sidecar, "older").id == query.id

    trap.die.set()

    pages.wait_for("StreamingQueryFailed", "older")


def test_a_query_that_dies_in_its_first_batch_is_paged(spark, watch, pages):
    sidecar = watch()
    trap = Trap()
    trap.die.set()
    start(rate(spark), "stillborn", trap)

    page = pages.wait_for("StreamingQueryFailed", "stillborn")

    assert page.annotations["last_commit"] == "none seen"
    assert shown(sidecar, "stillborn").error_class == "Boom"


def test_a_query_that_came_back_from_its_checkpoint_is_reported_as_resolved(
    spark, watch, pages, tmp_path
):
    sidecar = watch()
    trap = Trap()
    start(rate(spark), "phoenix", trap, checkpoint=tmp_path)
    commits(sidecar, "phoenix")
    trap.die.set()
    pages.wait_for("StreamingQueryFailed", "phoenix")

    trap.die.clear()
    start(rate(spark), "phoenix", trap, checkpoint=tmp_path)
    pages.wait_for("StreamingQueryFailed", "phoenix", status="resolved")

    commits(sidecar, "phoenix")
    assert pages.reported == [
        ("firing", "StreamingQueryFailed", "phoenix"),
        ("resolved", "StreamingQueryFailed", "phoenix"),
    ]


def test_pagerduty_is_reported_of_a_death_and_of_the_recovery_under_one_key(spark, watch, tmp_path):
    with PagerDutyDouble() as pagerduty:
        sidecar = watch(pagerduty_routing_key="k" * 32, pagerduty_url=pagerduty.enqueue_url)
        trap = Trap()
        start(rate(spark), "phoenix", trap, checkpoint=tmp_path)
        commits(sidecar, "phoenix")
        trap.die.set()
        until(lambda: pagerduty.open, "the incident is open")
        trap.die.clear()
        start(rate(spark), "phoenix", trap, checkpoint=tmp_path)
        until(lambda: not pagerduty.open, "the incident is resolved")
        sidecar.close()

    assert pagerduty.invalid == []
    key = "querypulse/tests/phoenix/StreamingQueryFailed"
    actions = [one["event_action"] for one in pagerduty.events if one["dedup_key"] == key]
    assert pagerduty.incidents == {key: 1}
    assert actions[-2:] == ["trigger", "resolve"]
    # While it was well at first, what an earlier driver may have left open was resolved: once.
    assert len(pagerduty.dropped_resolves) == len(set(pagerduty.dropped_resolves))


def test_a_query_stopped_and_not_back_is_gone(spark, watch, pages):
    sidecar = watch(gone_grace_seconds=2)
    query = start(rate(spark), "stopped")
    commits(sidecar, "stopped")

    query.stop()
    page = pages.wait_for("StreamingQueryStopped", "stopped")

    assert page.annotations["reason"].startswith("stopped without an exception")
    assert shown(sidecar, "stopped").state == "stopped_unexpectedly"


def test_a_query_of_the_roster_that_never_came_is_missing(spark, watch, pages):
    sidecar = watch(expected_queries=["here", "nowhere"], start_grace_seconds=2)
    start(rate(spark), "here")

    page = pages.wait_for("StreamingQueryMissing", "nowhere")

    assert page.annotations["known_queries"] == "here"
    assert shown(sidecar, "nowhere").state == "missing"
    assert pages.reported == [("firing", "StreamingQueryMissing", "nowhere")]


@pytest.mark.parametrize("by_itself", [False, True], ids=["by name", "by itself"])
def test_a_stop_that_was_announced_is_reported_to_nobody(spark, watch, pages, by_itself):
    sidecar = watch(gone_grace_seconds=0.5)
    planned = start(rate(spark), "planned")
    unplanned = start(rate(spark), "unplanned")
    commits(sidecar, "planned")
    commits(sidecar, "unplanned")

    sidecar.expect_stop(planned if by_itself else "planned")
    planned.stop()
    unplanned.stop()
    pages.wait_for("StreamingQueryStopped", "unplanned")
    sidecar.flush()

    assert [page.what for page in pages.pages] == [("StreamingQueryStopped", "unplanned")]
    assert shown(sidecar, "planned").state == "stopped"


def test_an_announcement_names_the_queries_there_are(spark, watch):
    sidecar = watch()
    start(rate(spark), "bronze")

    with pytest.raises(ValueError, match=r"no query is named 'bronse'; known: \['bronze'\]"):
        sidecar.expect_stop("bronse")


def test_a_crash_loop_is_reported_as_flapping_however_well_each_restart_goes(
    spark, watch, pages, tmp_path
):
    sidecar = watch(resolve_after_seconds=30)
    for _ in range(3):
        trap = Trap()
        query = start(rate(spark), "loop", trap, checkpoint=tmp_path)
        commits(sidecar, "loop")
        assert shown(sidecar, "loop").run_id == str(query.runId)
        trap.die.set()
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(30)

    page = pages.wait_for("StreamingQueryFlapping", "loop")

    assert page.annotations["reason"] == "3 failures within 600 s, the last with Boom"
    assert page.annotations["deaths"].count("Boom") == 3
    # It was never well for long enough between two deaths to be told of each.
    deaths = [page for page in pages.pages if page.what == ("StreamingQueryFailed", "loop")]
    assert [page.status for page in deaths] == ["firing"]
