"""On real Spark: every failure is reported with its reason within two seconds."""

from __future__ import annotations

import re
import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryListener
from support.pagerduty_double import PagerDutyDouble
from support.queries import Trap, commits, rate, shown, start, until

pytestmark = pytest.mark.spark


def test_failure_pages_with_its_reason_and_without_secrets(spark, watch, pages):
    sidecar = watch()
    trap = Trap()
    start(rate(spark), "healthy")
    start(rate(spark), "doomed", trap)
    commits(sidecar, "healthy")
    commits(sidecar, "doomed")

    trap.die.set()
    page = pages.wait_for("StreamingQueryFailed", "doomed")

    assert page.at - trap.died_at < 2
    assert page.annotations["reason"].startswith("Boom: files were added by a concurrent update")
    assert page.annotations["siblings"] == "1 of 2 queries healthy; not: doomed"
    assert "hunter2" not in str(pages.requests)
    assert shown(sidecar, "doomed").state == "failed"
    assert shown(sidecar, "healthy").state == "running"


def test_failure_reports_what_a_restart_repeats_and_the_main_thread(spark, watch):
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
    found = until(evidence, "the evidence is complete")
    batch = int(found["on_restart"].split()[1])

    assert re.fullmatch(
        rf"batch {batch} runs again, offsets \{{.+: \d+\}} to \{{.+: \d+\}}", found["on_restart"]
    )
    assert batch == doomed.lastProgress["batchId"] + 1
    assert "job line" in found["main_thread"]


def test_failure_pages_while_another_listener_blocks_the_bus(spark, watch, pages):
    class SlowListener(StreamingQueryListener):
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

    slow_listener = SlowListener()
    spark.streams.addListener(slow_listener)
    try:
        sidecar = watch()
        trap = Trap()
        for number in range(5):
            start(rate(spark), f"busy-{number}", trigger="50 milliseconds")
        start(rate(spark), "doomed", trap)
        commits(sidecar, "doomed")
        until(lambda: slow_listener.received > 10, "the bus is blocked", 90)

        trap.die.set()
        page = pages.wait_for("StreamingQueryFailed", "doomed")

        assert page.at - trap.died_at < 2
        # Our listener has its own queue, so the event is not late.
        until(
            lambda: sidecar.snapshot().monitor.events.get("terminated"), "its end event arrives", 2
        )
    finally:
        spark.streams.removeListener(slow_listener)


def test_failure_in_another_session_pages(spark, watch, pages):
    sidecar = watch()
    trap = Trap()
    start(rate(spark.newSession()), "elsewhere", trap)
    commits(sidecar, "elsewhere", batches=2)

    trap.die.set()

    pages.wait_for("StreamingQueryFailed", "elsewhere")


def test_failure_pages_for_a_query_started_before_the_sidecar(spark, watch, pages):
    trap = Trap()
    query = start(rate(spark), "older", trap)
    until(lambda: query.lastProgress, "it commits")
    sidecar = watch()
    commits(sidecar, "older")
    assert shown(sidecar, "older").id == query.id

    trap.die.set()

    pages.wait_for("StreamingQueryFailed", "older")


def test_failure_in_the_first_batch_pages(spark, watch, pages):
    sidecar = watch()
    trap = Trap()
    trap.die.set()
    start(rate(spark), "first_batch", trap)

    page = pages.wait_for("StreamingQueryFailed", "first_batch")

    assert page.annotations["last_commit"] == "none seen"
    assert shown(sidecar, "first_batch").error_class == "Boom"


def test_restart_from_the_checkpoint_resolves_the_alert(spark, watch, pages, tmp_path):
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


def test_pagerduty_gets_failure_and_recovery_under_one_key(spark, watch, tmp_path):
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
    # The first healthy period resolves, once, what an earlier driver may have left open.
    assert len(pagerduty.dropped_resolves) == len(set(pagerduty.dropped_resolves))


def test_stopped_query_pages_after_the_grace_period(spark, watch, pages):
    sidecar = watch(gone_grace_seconds=2)
    query = start(rate(spark), "stopped")
    commits(sidecar, "stopped")

    query.stop()
    page = pages.wait_for("StreamingQueryStopped", "stopped")

    assert page.annotations["reason"].startswith("stopped without an exception")
    assert shown(sidecar, "stopped").state == "stopped_unexpectedly"


def test_expected_query_that_never_starts_is_missing(spark, watch, pages):
    sidecar = watch(expected_queries=["here", "nowhere"], start_grace_seconds=2)
    start(rate(spark), "here")

    page = pages.wait_for("StreamingQueryMissing", "nowhere")

    assert page.annotations["known_queries"] == "here"
    assert shown(sidecar, "nowhere").state == "missing"
    assert pages.reported == [("firing", "StreamingQueryMissing", "nowhere")]


@pytest.mark.parametrize("by_query", [False, True], ids=["by name", "by query"])
def test_announced_stop_does_not_page(spark, watch, pages, by_query):
    sidecar = watch(gone_grace_seconds=0.5)
    planned = start(rate(spark), "planned")
    unplanned = start(rate(spark), "unplanned")
    commits(sidecar, "planned")
    commits(sidecar, "unplanned")

    sidecar.expect_stop(planned if by_query else "planned")
    planned.stop()
    unplanned.stop()
    pages.wait_for("StreamingQueryStopped", "unplanned")
    sidecar.flush()

    assert [page.what for page in pages.pages] == [("StreamingQueryStopped", "unplanned")]
    assert shown(sidecar, "planned").state == "stopped"


def test_expect_stop_of_an_unknown_query_lists_known_queries(spark, watch):
    sidecar = watch()
    start(rate(spark), "bronze")

    with pytest.raises(ValueError, match=r"no query is named 'bronse'; known: \['bronze'\]"):
        sidecar.expect_stop("bronse")


def test_crash_loop_pages_as_flapping_although_each_restart_commits(spark, watch, pages, tmp_path):
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
    # It is never healthy for long enough between two failures to page for each of them.
    deaths = [page for page in pages.pages if page.what == ("StreamingQueryFailed", "loop")]
    assert [page.status for page in deaths] == ["firing"]
