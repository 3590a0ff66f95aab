"""The worker folds events, evaluates the rules in time, and passes the results on."""

from __future__ import annotations

from importlib import import_module

import msgspec
import pytest
from msgspec.structs import astuple, replace
from support.deliveries import Recorder
from support.patience import PATIENCE_SECONDS
from support.story import CONFLICT, processing, progress, run
from support.worker_harness import WorkerHarness

from querypulse.alerting.delivery.deliveries import Delivery, Notifier
from querypulse.alerting.redaction import redacted
from querypulse.core.guard import Guard
from querypulse.core.redaction import Redactor
from querypulse.core.threads import Deadline
from querypulse.listener.events import Started, Terminated
from querypulse.listener.mailbox import Arrived, Ending, Marker
from querypulse.listener.probe_report import Context
from querypulse.listener.state.snapshot import Pause
from querypulse.listener.state.state import KEEP_COMPLETED_SECONDS
from querypulse.sidecar.worker import LATE_SECONDS, POLL_AGAIN_SECONDS, TICK_SECONDS

EVALUATION = import_module("querypulse.alerting.evaluate")


def states(harness):
    health = harness.published[-1].evaluation.health
    return {label: health.state.value for label, health in health.items()}


# -- folding and evaluating -------------------------------------------------------------------


def test_events_are_folded_evaluated_and_published_in_one_step():
    harness = WorkerHarness().started().step().commit().step()

    assert states(harness) == {"a": "running"}
    assert harness.worker.evaluated is harness.published[-1]


@pytest.mark.parametrize("receive", [WorkerHarness.started, WorkerHarness.commit])
def test_starts_and_batches_are_evaluated_at_the_next_tick_and_a_failure_at_once(receive):
    harness = WorkerHarness().step()
    receive(harness).step(after=TICK_SECONDS / 5)
    assert len(harness.published) == 1
    harness.step()
    assert list(states(harness)) == ["a"]
    harness.ended(exception=CONFLICT).step(after=0.001)

    assert harness.reported == [("StreamingQueryFailed", "a")]


def test_a_failure_overtakes_queued_progress_and_both_count():
    harness = WorkerHarness().started().commit(batch=7).ended(exception=CONFLICT).step()

    assert harness.reported == [("StreamingQueryFailed", "a")]
    assert harness.published[-1].snapshot.queries[0].checkpoint.last_commit_batch == 7


def test_a_failure_caused_by_a_stopped_context_pages_nobody():
    harness = WorkerHarness().started().step()
    text = "org.apache.spark.SparkException: Job 1 cancelled because SparkContext was shut down"
    harness.ended(exception=text)
    (received,) = harness.inbox.take(0)
    context = Context.STOPPED_BY_APPLICATION
    harness.inbox.put(Arrived(received.event, received.at, context), lifecycle=True)
    harness.step()

    assert harness.reported == []


@pytest.mark.parametrize(
    ("crashed", "reported"), [(True, [("StreamingQueryStopped", "a")]), (False, [])]
)
def test_a_stopped_query_has_its_grace_unless_the_process_crashes(crashed, reported):
    harness = WorkerHarness(gone_grace_seconds=60).poll(run()).commit(batch=1).step()
    harness.ended().step().step()
    assert harness.reported == []
    harness.inbox.put(Ending(crashed=crashed), lifecycle=True)
    harness.step().step()

    assert harness.reported == reported


@pytest.mark.parametrize("pause", [0.0, 4.0])
def test_a_crash_reports_a_query_that_stopped_at_the_same_instant(pause):
    harness = WorkerHarness(gone_grace_seconds=60).poll(run()).commit(batch=1).step()
    harness.ended()
    for item, after in ((Ending(crashed=True), 0.0), (Marker(), 0.0), (Marker(), pause)):
        harness.inbox.put(item, lifecycle=True)
        harness.step(after=after)

    assert harness.reported == [("StreamingQueryStopped", "a")]


def test_a_rule_that_raises_is_reported_and_the_other_rules_still_work(monkeypatch):
    def query_missing(case):
        raise KeyError(case.label)

    monkeypatch.setattr(EVALUATION, "ORDER", (query_missing, *EVALUATION.ORDER))
    harness = WorkerHarness().started().started("b").step()
    harness.ended(exception=CONFLICT).step().step()

    assert ("StreamingQueryFailed", "a") in harness.reported
    assert {where for where, _ in harness.errors} == {"rule query_missing"}
    blind = [
        alert
        for alert in harness.published[-1].alerts
        if alert.name == "QuerypulseMonitoringDegraded"
    ]
    assert [entry.annotations["reason"] for entry in blind] == ["rules that fail: query_missing"]


def test_a_failure_that_recovers_within_its_grace_is_not_reported():
    harness = WorkerHarness(failed_grace_seconds=60).poll(run()).commit(batch=1).step()
    harness.ended(exception=CONFLICT).step().step(after=10.0)
    harness.receive(Started("id-a", "a-2", "a")).step()
    for batch in (2, 3, 4):
        harness.receive(replace(progress(batch=batch), run_id="a-2")).step(after=20.0)

    assert harness.reported == []


@pytest.mark.parametrize(
    ("seconds", "crashed", "keys"),
    [
        (56, None, []),
        (62, None, ["querypulse/etl/a"]),
        (2, True, ["querypulse/etl/a/warning"]),
        (2, False, ["querypulse/etl/a/warning"]),
        (62, True, ["querypulse/etl/a"]),
    ],
)
def test_a_failure_has_its_grace_and_is_a_warning_when_the_process_ends_before(
    seconds, crashed, keys
):
    """A restart is expected: the job's own policy. The grace of a stop is another one."""
    harness = WorkerHarness(failed_grace_seconds=60, gone_grace_seconds=10).poll(run()).step()
    harness.ended(exception=CONFLICT).step()
    for _ in range(seconds // 2):
        harness.step(after=2.0)
    if crashed is not None:
        harness.inbox.put(Ending(crashed=crashed), lifecycle=True)
        harness.step().step()

    assert harness.reported == [("StreamingQueryFailed", "a")] * len(keys)
    assert [incident.key for incident in harness.offers[-1]] == keys
    if keys == ["querypulse/etl/a/warning"]:
        summary = harness.offers[-1][0].alerts[0].annotations["summary"]
        assert summary.endswith("the process ends, and a restart is expected within 60 s")


def test_failures_in_a_row_share_one_grace():
    """A query that fails again and again must not be given more time each time."""
    harness = WorkerHarness(failed_grace_seconds=60, restart_budget=10).poll(run()).step()
    for number in range(1, 4):
        harness.receive(Terminated("id-a", f"a-{number}", CONFLICT, None)).step()
        for _ in range(12):
            harness.step(after=2.0)
        harness.receive(Started("id-a", f"a-{number + 1}", "a")).step()
    harness.receive(Terminated("id-a", "a-4", CONFLICT, None)).step()

    assert harness.reported == [("StreamingQueryFailed", "a")]


# -- markers ----------------------------------------------------------------------------------


def test_a_marker_passes_once_the_events_before_it_are_evaluated():
    harness = WorkerHarness().step()
    passed_early = []
    marker = harness.ended(exception=CONFLICT).mark()
    harness.worker._on_evaluated = lambda evaluated: passed_early.append(marker.is_set())
    harness.step(after=0.001)

    assert passed_early == [False]
    assert marker.is_set()
    assert harness.worker.evaluated.alerts[0].name == "StreamingQueryFailed"


# -- offering incidents -----------------------------------------------------------------------


def test_incidents_are_offered_although_publishing_fails():
    harness = WorkerHarness().started().ended(exception=CONFLICT)

    def broken(_):
        raise RuntimeError("cannot publish")

    harness.worker._on_evaluated = broken
    with pytest.raises(RuntimeError):
        harness.step()

    assert len(harness.offers) == 1


def test_incidents_are_offered_before_their_evaluation_is_published():
    harness = WorkerHarness().started().ended(exception=CONFLICT)
    offered_before = []
    harness.worker._on_evaluated = lambda _: offered_before.append(len(harness.offers))
    harness.step()

    assert offered_before == [1]


def test_a_page_leaves_while_its_evaluation_is_still_being_published():
    harness = WorkerHarness().started().ended(exception=CONFLICT)
    receiver = Recorder()
    notifier = Notifier([Delivery(receiver, Guard())])
    harness.worker._dispatch = notifier
    harness.worker._on_evaluated = lambda _: receiver.wait_for(1)
    notifier.start()
    try:
        harness.step()
    finally:
        notifier.close(Deadline(PATIENCE_SECONDS))

    assert receiver.sent == [("a", "firing")]


def test_an_evaluation_is_published_although_its_incidents_cannot_be_offered():
    harness = WorkerHarness().started().ended(exception=CONFLICT)

    def broken(_):
        raise RuntimeError("cannot offer")

    harness.offer = broken
    with pytest.raises(RuntimeError):
        harness.step()

    assert harness.reported == [("StreamingQueryFailed", "a")]


def test_a_recovered_incident_is_offered_once_as_resolved():
    harness = WorkerHarness().started().ended(exception=CONFLICT).step()
    harness.poll(processing(number=2, batch=0)).step()
    for batch in range(1, 12):
        harness.poll(processing(number=2, batch=batch)).step(after=1.0)
        open_, *_ = harness.offers[-1]
        if open_.ends_at is not None:
            break
    harness.step()

    assert (batch, open_.key) == (11, "querypulse/etl/a")
    assert (harness.reported, harness.offers[-1]) == ([], ())


# -- housekeeping -----------------------------------------------------------------------------


def test_a_failed_step_has_no_heartbeat_and_is_repeated():
    harness = WorkerHarness().started().step()
    before = harness.worker.beat_at

    def broken(evaluated):
        raise RuntimeError("nobody reads the published state")

    harness.worker._on_evaluated = broken
    with pytest.raises(RuntimeError):
        harness.ended(exception=CONFLICT).step()
    assert harness.worker.beat_at == before
    harness.worker._on_evaluated = harness.on_evaluated
    harness.step()

    assert harness.reported == [("StreamingQueryFailed", "a")]


def test_a_completed_query_is_forgotten_in_time():
    harness = WorkerHarness().poll(run(trigger="AvailableNowTrigger")).step().ended().step()
    while harness.clock() < 1000.0 + KEEP_COMPLETED_SECONDS - 10:
        harness.step(after=2.0)
    assert list(states(harness)) == ["a"]
    for _ in range(50):
        harness.step(after=2.0)

    assert states(harness) == {}


# -- why nobody restarts the job --------------------------------------------------------------

WAITS = "waits in StreamingQuery.awaitTermination(), job line /jobs/jobs.py:41 in main"


@pytest.mark.parametrize("alertname", ["StreamingQueryFailed", "StreamingQueryStalled"])
def test_a_failed_or_stalled_query_says_where_the_main_thread_is(alertname):
    harness = WorkerHarness().started().commit()
    harness.main_thread_is = WAITS
    harness.step()
    if alertname == "StreamingQueryFailed":
        harness.ended(exception=CONFLICT).step()
    else:
        for batches in range(40):
            harness.poll(processing(batch=1, tasks=0)).step(after=2.0)
            assert batches < 39 or harness.reported
    (alert,) = harness.published[-1].alerts

    assert alert.name == alertname
    assert alert.annotations["main_thread"] == WAITS


def test_a_healthy_query_does_not_inspect_the_main_thread():
    harness = WorkerHarness().started().commit().step().step()

    assert harness.asked_for_main_thread == 0


def test_published_time_is_that_of_the_snapshot_however_slow_its_evaluation_is():
    harness = WorkerHarness().started()

    def freeze(evaluation):
        harness.clock.now += 900.0
        return evaluation

    harness.redactor = freeze
    harness.step()
    (evaluated,) = harness.published

    assert harness.clock.now >= evaluated.snapshot.at + 899.0
    assert evaluated.wall == pytest.approx(harness.wall + evaluated.snapshot.at, abs=0.01)


def test_everything_published_and_offered_is_redacted():
    harness = WorkerHarness().started()
    harness.main_thread_is = (
        "waits in connect(), job line /jobs/password=hunter2/jobs.py:41 in main"
    )
    harness.redactor = lambda evaluation: redacted(evaluation, Redactor().text)
    harness.ended(exception=f"{CONFLICT} password=hunter2").step()

    assert "main_thread" in harness.published[-1].alerts[0].annotations
    evaluation = harness.published[-1].evaluation
    reasons = [health.reason for health in evaluation.health.values()]
    words = [finding.words for finding in evaluation.findings]
    assert b"hunter2" not in msgspec.json.encode([reasons, words, harness.offers[-1]])


# -- pauses of the driver ---------------------------------------------------------------------


def watched(harness, *, seconds, run_now):
    """One tick and one poll per second for ``seconds``; every poll sees ``run_now``."""
    for _ in range(int(seconds)):
        harness.poll(run_now).step(after=1.0)
    return harness


def test_a_step_that_is_far_too_late_is_a_pause_that_does_not_count():
    harness = WorkerHarness().step()
    harness.step(after=60.0)

    (pause,) = harness.published[-1].snapshot.pauses
    assert isinstance(pause, Pause)
    assert astuple(pause) == pytest.approx((1060.0 + TICK_SECONDS, 60.0 - TICK_SECONDS))


@pytest.mark.parametrize("is_polled", [True, False])
def test_after_a_pause_nothing_is_evaluated_until_a_poll_or_for_some_seconds(is_polled):
    harness = WorkerHarness().poll(run()).step()
    before = len(harness.published)
    harness.step(after=600.0).step()
    while not is_polled and harness.clock() < 1600.0 + POLL_AGAIN_SECONDS:
        harness.step()
    assert len(harness.published) == before
    if is_polled:
        harness.poll(run())
    harness.step()

    assert len(harness.published) == before + 1


def test_a_process_that_ends_after_a_pause_does_not_wait_for_a_poll():
    harness = WorkerHarness().poll(run()).step()
    harness.step(after=600.0)
    harness.ended(exception=CONFLICT)
    harness.inbox.put(Ending(crashed=True), lifecycle=True)
    harness.step(after=0.0)

    assert harness.reported == [("StreamingQueryFailed", "a")]


@pytest.mark.fault("Time and pauses", "Every evaluation is late", "Queries are still evaluated")
def test_a_driver_that_is_late_in_every_step_is_still_evaluated():
    """In a throttled container, each step ends a pause, and the last poll is always older."""
    harness = WorkerHarness().poll(run()).step()
    harness.ended(exception=CONFLICT)
    for _ in range(10):
        harness.step(after=TICK_SECONDS + LATE_SECONDS + 1.0)
        harness.poll(run(active=False, exception=CONFLICT))

    assert harness.reported == [("StreamingQueryFailed", "a")]


@pytest.mark.fault(
    "Time and pauses", "The driver is frozen for minutes", "Nobody is notified afterwards"
)
def test_a_frozen_driver_pages_nobody():
    """Ten minutes of SIGSTOP are not ten minutes without a commit."""
    harness = watched(
        WorkerHarness().started().step().commit(), seconds=5, run_now=processing(batch=1)
    )
    harness.step(after=600.0)
    watched(harness, seconds=10, run_now=processing(batch=1))

    assert harness.reported == []


@pytest.mark.parametrize(("polls", "pauses"), [(1, 1), (2, 0), (10, 0)])
def test_slow_step_in_which_polls_go_on_is_no_pause(polls, pauses):
    """One poll may be answered at once after a pause; two show that the process ran."""
    harness = WorkerHarness().poll(processing(batch=1)).step()

    def slow(evaluated):
        harness.published.append(evaluated)
        harness.clock.now += 10.0
        for number in range(polls):
            harness.poll(processing(batch=1), began_at=harness.clock.now - polls + number + 1)
        harness.worker._on_evaluated = harness.on_evaluated

    harness.worker._on_evaluated = slow
    harness.step().step()

    assert len(harness.worker.state.snapshot(0).pauses) == pauses


@pytest.mark.fault(
    "Time and pauses", "A query fails while the driver is frozen", "It is reported afterwards"
)
def test_a_failure_found_after_a_pause_is_reported():
    """A marker passes then: ``flush`` promises that everything received so far is evaluated."""
    harness = WorkerHarness().poll(run()).step()
    marker = harness.ended(exception=CONFLICT).mark()
    harness.step(after=600.0)
    assert (harness.reported, marker.is_set()) == ([], False)
    harness.poll(run(active=False, exception=CONFLICT)).step()

    assert harness.reported == [("StreamingQueryFailed", "a")]
    assert marker.is_set()
