"""The worker folds what arrived, judges it in time, and hands on what it found."""

from __future__ import annotations

from importlib import import_module

import pytest
from msgspec.structs import replace
from support.desk import WALL, Desk
from support.story import CONFLICT, processing, progress, run

from querypulse.alerting.lifecycle.silences import Silence
from querypulse.alerting.redacted import redacted
from querypulse.listener.events import Started, Terminated
from querypulse.listener.forgetting import KEEP_COMPLETED_SECONDS
from querypulse.listener.probing import Context
from querypulse.listener.reader import Arrived, Ending
from querypulse.listener.redaction import Redactor
from querypulse.sidecar.worker import TICK_SECONDS

EVALUATION = import_module("querypulse.alerting.evaluate")


def states(desk):
    health = desk.published[-1].evaluation.health
    return {label: health.state.value for label, health in health.items()}


# -- folding and judging ----------------------------------------------------------------------


def test_before_the_first_round_nothing_is_known_and_nothing_fires():
    evaluated = Desk().worker.evaluated

    assert (evaluated.snapshot.queries, evaluated.alerts, evaluated.evaluation.health) == (
        (),
        (),
        {},
    )


def test_what_arrived_is_folded_evaluated_and_published_in_one_round():
    desk = Desk().started().step().commit().step()

    assert states(desk) == {"a": "running"}
    assert desk.worker.evaluated is desk.published[-1]


def test_silence_is_evaluated_too_once_a_tick():
    desk = Desk().step().step().step()

    assert len(desk.published) == 3


def test_what_was_published_never_changes_afterwards():
    desk = Desk().started().step()
    first = desk.published[-1].snapshot
    desk.ended(exception=CONFLICT).step()

    assert first.queries[0].alive


def test_the_time_of_arrival_counts_not_the_time_of_reading():
    desk = Desk().started()
    desk.step(after=2.0)

    assert desk.published[-1].snapshot.queries[0].started_at == 1000.0


@pytest.mark.parametrize("hear", [Desk.started, Desk.commit])
def test_births_and_batches_wait_for_the_next_tick_to_be_evaluated(hear):
    desk = Desk().step()
    hear(desk).step(after=TICK_SECONDS / 5)
    assert len(desk.published) == 1
    desk.step()

    assert len(desk.published) == 2
    assert list(states(desk)) == ["a"]


def test_a_death_is_evaluated_at_once():
    desk = Desk().started().step()
    desk.ended(exception=CONFLICT).step(after=0.001)

    assert desk.told == [("StreamingQueryFailed", "a")]


def test_an_end_without_an_exception_is_evaluated_at_once_and_pages_nobody():
    desk = Desk().started().step()
    desk.ended().step(after=0.001)

    assert (states(desk), desk.told) == ({"a": "stopped"}, [])


def test_a_death_goes_before_the_progress_that_waits_with_it():
    desk = Desk().started().commit(batch=7).ended(exception=CONFLICT).step()

    assert desk.told == [("StreamingQueryFailed", "a")]
    assert desk.published[-1].snapshot.queries[0].last_commit_batch == 7


def test_the_last_words_under_a_stopped_context_page_nobody():
    desk = Desk().started().step()
    words = "org.apache.spark.SparkException: Job 1 cancelled because SparkContext was shut down"
    desk.ended(exception=words)
    (heard,) = desk.inbox.take(0)
    context = Context.STOPPED_BY_APPLICATION
    desk.inbox.put(Arrived(heard.event, heard.at, context), lifecycle=True)
    desk.step()

    assert desk.told == []


def test_a_crash_leaves_no_time_for_graces():
    desk = Desk(gone_grace_seconds=60).poll(run()).commit(batch=1).step()
    desk.ended().step().step()
    assert desk.told == []
    desk.inbox.put(Ending(crashed=True), lifecycle=True)
    desk.step().step()

    assert desk.told == [("StreamingQueryStopped", "a")]


def test_a_crash_reports_nothing_of_what_is_healthy():
    desk = Desk(gone_grace_seconds=60).started().commit(batch=1).step()
    desk.inbox.put(Ending(crashed=True), lifecycle=True)
    desk.step().step()

    assert desk.told == []


def test_a_rule_that_raises_is_reported_and_the_others_stand(monkeypatch):
    def broken(case):
        raise KeyError(case.label)

    broken.__module__ = "querypulse.alerting.rules.query_missing"
    monkeypatch.setattr(EVALUATION, "ORDER", (broken, *EVALUATION.ORDER))
    desk = Desk().started().started("b").step()
    desk.ended(exception=CONFLICT).step().step()

    assert ("StreamingQueryFailed", "a") in desk.told
    assert {where for where, _ in desk.errors} == {"rule query_missing"}
    blind = [one for one in desk.published[-1].alerts if one.name == "QuerypulseMonitoringDegraded"]
    assert [one.annotations["reason"] for one in blind] == ["rules that fail: query_missing"]


def test_a_failure_that_recovers_within_its_grace_is_reported_to_nobody():
    desk = Desk(failed_grace_seconds=60).poll(run()).commit(batch=1).step()
    desk.ended(exception=CONFLICT).step().step(after=10.0)
    desk.hear(Started("id-a", "a-2", "a")).step()
    for batch in (2, 3, 4):
        desk.hear(replace(progress(batch=batch), run_id="a-2")).step(after=20.0)

    assert desk.told == []


def test_a_failure_that_outlasts_its_grace_is_reported():
    desk = Desk(failed_grace_seconds=60).poll(run()).step()
    desk.ended(exception=CONFLICT).step()
    for _ in range(31):
        desk.step(after=2.0)

    assert desk.told == [("StreamingQueryFailed", "a")]


@pytest.mark.parametrize("crashed", [True, False])
def test_a_failure_within_its_grace_is_reported_when_the_process_ends(crashed):
    desk = Desk(failed_grace_seconds=60).poll(run()).step()
    desk.ended(exception=CONFLICT).step()
    desk.inbox.put(Ending(crashed=crashed), lifecycle=True)
    desk.step().step()

    assert desk.told == [("StreamingQueryFailed", "a")]


def test_a_query_that_is_gone_within_its_grace_is_not_reported_when_the_process_closes():
    desk = Desk(gone_grace_seconds=60).poll(run()).step()
    desk.ended().step()
    desk.inbox.put(Ending(crashed=False), lifecycle=True)
    desk.step().step()

    assert desk.told == []


# -- the probe --------------------------------------------------------------------------------


def test_a_new_poll_is_evaluated_at_once():
    desk = Desk().step()
    desk.poll(run(active=False, exception=CONFLICT)).step(after=0.001)

    assert desk.told == [("StreamingQueryFailed", "a")]


def test_the_same_report_is_taken_in_once():
    desk = Desk().poll(run()).step()
    desk.step(after=0.001).step(after=0.001)

    assert len(desk.published) == 1


def test_of_several_polls_between_two_rounds_only_the_newest_counts():
    desk = Desk().poll(run(), run("b")).poll(run("b")).step()

    assert list(states(desk)) == ["b"]


def test_a_run_the_newest_poll_does_not_name_has_vanished():
    desk = Desk(gone_grace_seconds=1).poll(run(), run("b")).step()
    desk.poll(run("b")).step()
    assert desk.told == []
    desk.poll(run("b")).step(after=1.5).step()

    assert desk.told == [("StreamingQueryStopped", "a")]


# -- markers ----------------------------------------------------------------------------------


def test_a_marker_passes_once_what_came_before_it_is_evaluated():
    desk = Desk().step()
    passed_early = []
    marker = desk.ended(exception=CONFLICT).mark()
    desk.worker._on_evaluated = lambda evaluated: passed_early.append(marker.passed.is_set())
    desk.step(after=0.001)

    assert passed_early == [False]
    assert marker.passed.is_set()
    assert desk.worker.evaluated.alerts[0].name == "StreamingQueryFailed"


def test_a_marker_alone_is_evaluated_at_once():
    desk = Desk().step()
    marker = desk.mark()
    desk.step(after=0.001)

    assert marker.passed.is_set()
    assert len(desk.published) == 2


# -- handing over -----------------------------------------------------------------------------


def keys(incidents):
    return [incident.key for incident in incidents]


def test_the_whole_set_is_offered_in_every_round():
    desk = Desk().started().ended(exception=CONFLICT).step().step().step()

    assert [keys(offer) for offer in desk.offers] == [["querypulse/etl/a/StreamingQueryFailed"]] * 3


def test_an_empty_set_is_offered_too():
    assert Desk().step().step().offers == [(), ()]


def test_what_is_well_is_offered_once_as_over_and_then_no_longer():
    desk = Desk().started().ended(exception=CONFLICT).step()
    desk.poll(processing(number=2, batch=0)).step()
    for batch in range(1, 12):
        desk.poll(processing(number=2, batch=batch)).step(after=1.0)
        open_, *_ = desk.offers[-1]
        if open_.ends_at is not None:
            break
    desk.step()

    assert (batch, open_.key) == (11, "querypulse/etl/a/StreamingQueryFailed")
    assert (desk.told, desk.offers[-1]) == ([], ())


def test_a_start_alone_cures_nothing():
    desk = Desk().started().ended(exception=CONFLICT).step()
    for _ in range(60):
        desk.poll(processing(number=2, batch=0)).step(after=1.0)

    assert desk.told == [("StreamingQueryFailed", "a")]


def test_what_an_earlier_driver_may_have_left_open_is_offered_as_over():
    desk = Desk().started()
    for batch in range(30):
        desk.commit(batch=batch).step(after=1.0)
    stale_resolves = keys(desk.stale_resolves[-1])

    assert "querypulse/etl/a/StreamingQueryFailed" in stale_resolves
    assert desk.told == []


def test_the_silences_of_the_moment_hold():
    desk = Desk().started().ended(exception=CONFLICT)
    desk.silences = [Silence("a", WALL + 1010.0, reason="we know")]
    desk.step()
    assert desk.offers[-1][0].muted == "silenced until 2023-11-14T22:30:10Z: we know"
    assert desk.published[-1].alerts[0].annotations["muted"] == desk.offers[-1][0].muted
    desk.silences = []
    desk.step()

    assert desk.offers[-1][0].muted == ""
    assert "muted" not in desk.published[-1].alerts[0].annotations


def test_nothing_leaves_that_was_not_redacted():
    desk = Desk().started().ended(exception=CONFLICT)
    desk.redactor = lambda evaluation: replace(
        evaluation, findings=tuple(replace(one, reason="***") for one in evaluation.findings)
    )
    desk.step()
    published, (incident,) = desk.published[-1], desk.offers[-1]

    assert published.evaluation.findings[0].reason == "***"
    assert published.alerts[0].annotations["reason"] == "***"
    assert incident.alerts[0].annotations["reason"] == "***"


def test_an_alert_begins_when_it_first_fired_on_the_wall_clock():
    desk = Desk().started().ended(exception=CONFLICT).step(after=1.0).step().step()

    assert [incident.starts_at for (incident,) in desk.offers] == [WALL + 1001.0] * 3


# -- housekeeping -----------------------------------------------------------------------------


def test_the_heart_beats_with_every_round_evaluated_or_not():
    desk = Desk().step()
    desk.step(after=0.01)

    assert desk.worker.beat_at == desk.clock()


def test_a_round_that_fails_does_not_beat_and_is_done_again():
    desk = Desk().started().step()
    before = desk.worker.beat_at

    def broken(evaluated):
        raise RuntimeError("nobody reads the board")

    desk.worker._on_evaluated = broken
    with pytest.raises(RuntimeError):
        desk.ended(exception=CONFLICT).step()
    assert desk.worker.beat_at == before
    desk.worker._on_evaluated = desk.on_evaluated
    desk.step()

    assert desk.told == [("StreamingQueryFailed", "a")]


def test_a_completed_query_is_forgotten_in_time():
    desk = Desk().poll(run(trigger="AvailableNowTrigger")).step().ended().step()
    while desk.clock() < 1000.0 + KEEP_COMPLETED_SECONDS - 10:
        desk.step(after=2.0)
    assert list(states(desk)) == ["a"]
    for _ in range(50):
        desk.step(after=2.0)

    assert states(desk) == {}


def test_a_crash_loop_without_a_fixed_checkpoint_is_one_open_incident_per_alert():
    """L23: thirty restarts in a minute, each under an id of its own."""
    desk = Desk()
    for number in range(30):
        ids = (f"id-{number}", f"run-{number}")
        desk.hear(Started(*ids, "a", session="s")).step()
        desk.hear(Terminated(*ids, CONFLICT, None)).step(after=0.5)
        desk.step(after=1.0)

    offered = {(one.key, one.revision) for offer in desk.offers for one in offer}
    assert offered == {
        ("querypulse/etl/a/StreamingQueryFailed", 0),
        ("querypulse/etl/a/StreamingQueryFlapping", 0),
    }


# -- why nobody restarts the job --------------------------------------------------------------

WAITS = "waits in StreamingQuery.awaitTermination(), job line /jobs/jobs.py:41 in main"


@pytest.mark.parametrize("alertname", ["StreamingQueryFailed", "StreamingQueryStalled"])
def test_a_failed_or_stalled_query_says_where_the_main_thread_is(alertname):
    desk = Desk().started().commit()
    desk.main_thread_is = WAITS
    desk.step()
    if alertname == "StreamingQueryFailed":
        desk.ended(exception=CONFLICT).step()
    else:
        for batches in range(40):
            desk.poll(processing(batch=1, tasks=0)).step(after=2.0)
            assert batches < 39 or desk.told
    (alert,) = desk.published[-1].alerts

    assert alert.name == alertname
    assert alert.annotations["main_thread"] == WAITS


def test_a_healthy_query_asks_nothing_of_the_main_thread():
    desk = Desk().started().commit().step().step()

    assert desk.asked_for_main_thread == 0


def test_a_warning_that_is_no_stall_says_nothing_of_the_main_thread():
    desk = Desk(expected_input_seconds=60.0).started().commit()
    desk.main_thread_is = WAITS
    for _ in range(90):
        desk.poll(run(batch=1)).step(after=2.0)
    (alert,) = desk.published[-1].alerts

    assert alert.name == "StreamingInputMissing"
    assert "main_thread" not in alert.annotations


def test_what_the_main_thread_says_is_redacted():
    desk = Desk().started()
    desk.main_thread_is = "waits in connect(), job line /jobs/password=hunter2/jobs.py:41 in main"
    desk.redactor = lambda evaluation: redacted(evaluation, Redactor())
    desk.ended(exception=CONFLICT).step()
    (alert,) = desk.published[-1].alerts

    assert "hunter2" not in str(alert.annotations)
    assert "main_thread" in alert.annotations


def test_where_the_main_thread_says_nothing_there_is_no_evidence():
    desk = Desk().started().ended(exception=CONFLICT).step()

    assert "main_thread" not in desk.published[-1].alerts[0].annotations
