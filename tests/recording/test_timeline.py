"""A recording answers what a stranger asks, and nothing in it keeps it from being read."""

from __future__ import annotations

import json
import re
from itertools import chain
from typing import get_args

import msgspec
import pytest
from support.recordings import (
    FAILED,
    MISTAKE,
    STALLED,
    Tape,
    all_stories,
    failed_and_restarted,
    group_of_three,
    hung_and_stopped,
    killed_and_continued,
)
from support.repository import ROOT
from support.story import MONDAY

from querypulse.listener.probe_report import Context, JobCounts, LongTask, SlotUse
from querypulse.recording import lines, recorder, ring, store
from querypulse.recording.lines import OUTLINE, Change, Event, How, SeenFrom, State, decode
from querypulse.recording.timeline import What, summary_of, timeline_of

FIXTURES = ROOT / "tests" / "fixtures"


def story_of(*tapes):
    return timeline_of([tape.recording for tape in tapes])


def texts(timeline, *, what=None):
    """The time of day and the text of each moment."""
    return [
        (round(moment.at - MONDAY, 1), moment.text)
        for moment in timeline.moments
        if what is None or moment.what is what
    ]


def opened(query="billing", *, at=61.0, name=FAILED, seen_from=SeenFrom.DRIVER, **fields):
    """A recording that begins with one alert."""
    words = {"does": "failed", "reason": "ValueError: negative amount"}
    return Tape(query, at=at, seen_from=seen_from).alert(query, name, at=at, **{**words, **fields})


# -- what is not said -----------------------------------------------------------------------------


def test_empty_recording_says_that_it_shows_nothing():
    assert story_of(Tape(at=61)).answers == {
        "first": "The recording does not show what happened first: it has no alert and no failure.",
        "held_by": "The recording does not show what held it.",
        "notified": "The recording shows no attempt to notify anybody before it breaks off.",
        "done": "The recording shows nothing that was done.",
        "ended": "The recording does not show an end: it breaks off at 00:01:01 UTC, where its "
        "process was killed, or still runs.",
    }


def test_failure_of_another_query_is_not_what_happened_first():
    tape = opened("billing").started("bronze", at=1).terminated("bronze", at=30, exception=MISTAKE)

    assert story_of(tape).answers["first"] == (
        "2026-11-23 00:01:01 UTC: StreamingQueryFailed of billing opened: "
        "ValueError: negative amount."
    )


def test_failure_of_a_query_is_not_what_happened_first_to_its_monitor():
    tape = Tape("*", at=61).started("bronze", at=1).terminated("bronze", at=30, exception=MISTAKE)
    tape.alert("*", "QuerypulseEventsMissing", at=61, code="events_missing", reason="7 dropped")

    answers = story_of(tape).answers
    assert answers["first"] == (
        "2026-11-23 00:01:01 UTC: QuerypulseEventsMissing opened: 7 dropped."
    )
    assert answers["held_by"] == "The recording shows no batch that was held."


def test_silence_in_force_when_the_recording_begins_is_not_what_was_done():
    tape = opened().silenced({"queries": "gold*", "until": MONDAY + 4000}, at=61)

    assert story_of(tape).answers["done"] == "The recording shows nothing that was done."


def test_quick_batch_is_not_what_held_a_query():
    tape = opened("billing").works("billing", at=50, batch=1).works("billing", at=60, batch=1)

    assert story_of(tape).answers["held_by"] == "The recording shows no batch that was held."


def test_first_commit_of_the_first_run_is_no_recovery():
    tape = opened().started("billing", at=1).commit("billing", batch=0, at=10)

    assert texts(story_of(tape), what=What.BATCH) == []


def test_silence_from_before_the_alert_is_not_what_was_done():
    tape = Tape(at=61).silenced({"queries": "*", "until": MONDAY + 4000}, at=50)
    tape.alert("billing", FAILED, at=61, muted="silenced until 00:30")

    timeline = story_of(tape)
    assert timeline.answers["done"] == "The recording shows nothing that was done."
    assert timeline.answers["notified"] == "Nobody was notified: silenced until 00:30."


def test_stop_from_before_the_alert_is_not_what_was_done():
    tape = Tape(at=61).started("billing", at=1).terminated("billing", at=40).state(at=41)
    tape.alert("billing", FAILED, at=61)

    assert story_of(tape).answers["done"] == "The recording shows nothing that was done."


def test_stop_before_a_restart_is_not_what_happened_first():
    tape = Tape(at=61).started("billing", at=1).terminated("billing", at=40).state(at=41)
    tape.started("billing", 2, at=45).state(at=46)
    tape.alert("billing", "StreamingQueryLagging", at=61, reason="lag rises", code="lag_rises")

    assert "StreamingQueryLagging of billing opened" in story_of(tape).answers["first"]


def test_start_from_before_the_recording_is_no_moment():
    tape = Tape("billing", at=7000).started("billing", at=1).state(at=7000)
    tape.lines.pop(0)  # Its event is too old for the ring.

    timeline = story_of(tape)
    assert texts(timeline, what=What.RUN) == []
    assert [(span.since - MONDAY, span.until) for span in timeline.spans] == [(7000, None)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("batch 3 in flight for 90 s", "batch 3 in flight for 91 s"),
        ("batch 3 in flight for 90 s, none finished for 61 s", "batch 3 in flight for 3 min, "),
        ("lag rose from 10 to 2000 offsets", "lag rose from 10 to 2,500 offsets"),
    ],
)
def test_alert_of_which_only_numbers_change_is_no_moment(before, after):
    after = after if not after.endswith(", ") else f"{after}none finished for 2 h"
    tape = opened(reason=before)
    tape.alert("billing", FAILED, at=90, change=Change.CHANGED, does="failed", reason=after)

    assert len(texts(story_of(tape), what=What.ALERT)) == 1
    assert after in story_of(tape).summary.headline


def test_recording_that_was_closed_or_breaks_off_has_no_end():
    closed = opened().end(at=90, how=How.CLOSED)

    assert story_of(closed).summary.until is None
    assert story_of(closed).summary.how == "open when its process ended"
    assert story_of(closed).answers["ended"] == (
        "It was still open at 00:01:30 UTC, when its process ended."
    )
    assert story_of(opened()).summary.how == "open where the recording breaks off"
    assert story_of(opened()).spans[0].until is None


def test_recording_says_how_the_main_program_ended_its_process():
    how = "the main program ended with QueryFailure: streaming query billing: negative amount"
    ending = {"crashed": True, "program": {"how": how, "has_failed": True}}
    tape = opened()
    tape.add(State(at=MONDAY + 89, now=89.0, driver={"ending": ending}))
    tape.end(at=90, how=How.CLOSED)

    assert story_of(tape).answers["ended"] == (
        f"It was still open at 00:01:30 UTC, when its process ended because {how}."
    )
    assert texts(story_of(tape), what=What.RECORDING)[-1][1].endswith(
        f"its process ended because {how}"
    )


def test_alert_that_a_later_process_opens_again_is_one_alert():
    timeline = story_of(*killed_and_continued())

    alerts = [span for span in timeline.spans if span.what is What.ALERT]
    assert [(span.since - MONDAY, span.until - MONDAY) for span in alerts] == [(61, 651)]
    assert len(texts(timeline, what=What.ALERT)) == 2


def test_run_of_a_killed_process_did_not_end_by_itself():
    first, second = killed_and_continued()
    first.started("silver", at=20)

    timeline = story_of(first, second)
    assert not [text for _, text in texts(timeline) if "silver ended" in text]
    assert next(span for span in timeline.spans if span.query == "silver").until is not None


# -- the stories --------------------------------------------------------------------------------

ANSWERS = {
    failed_and_restarted: {
        "first": "2026-11-23 00:01:00 UTC: billing failed: ValueError: negative amount, raised at "
        "/job/billing.py:41 in write.",
        "held_by": "No batch was held: billing failed at /job/billing.py:41 in write, and did not run until 00:05:00 UTC (4 min).",
        "notified": "pagerduty was notified at 00:01:01 UTC (0.4 s after the first alert opened), "
        "webhook was notified at 00:01:06 UTC (5.3 s after the first alert opened); receivers "
        "accepted 2 notifications and 2 messages of its end; 1 attempt failed (webhook: 503: overloaded).",
        "done": "billing was started again at 00:05:00 UTC. The recording does not show by whom.",
        "ended": "The last alert ended at 00:05:41 UTC, 4 min after the first alert opened: "
        "billing commits again.",
    },
    hung_and_stopped: {
        "first": "2026-11-23 00:01:10 UTC: batch 3 of bronze began and did not finish.",
        "held_by": "Batch 3 of bronze was in flight from 00:01:10 UTC to 00:15:00 UTC (13 min): "
        "1 task runs (partition 3 of stage 12 on host-7 for 90 s, while its siblings took 1.5 s); "
        "its thread was at /job/bronze.py:12 in write.",
        "notified": "webhook was notified at 00:02:40 UTC (0.5 s after the first alert opened), "
        "pagerduty was notified at 00:11:10 UTC (8 min after the first alert opened); receivers "
        "accepted 2 notifications and 1 message of its end.",
        "done": "A silence of bronze began at 00:11:40 UTC; the stop of bronze was announced at "
        "00:14:40 UTC; bronze was stopped at 00:15:00 UTC; bronze was started again at "
        "00:15:05 UTC. The recording does not show by whom.",
        "ended": "The last alert ended at 00:15:46 UTC, 13 min after the first alert opened: "
        "bronze commits again.",
    },
    killed_and_continued: {
        "first": "2026-11-23 00:01:00 UTC: billing failed: ValueError: negative amount, raised at "
        "/job/billing.py:41 in write.",
        "held_by": "No batch was held: billing failed at /job/billing.py:41 in write, and did not run until 00:10:05 UTC (9 min).",
        "notified": "pagerduty was notified at 00:01:01 UTC (0.4 s after the first alert opened); "
        "receivers accepted 1 notification and 1 message of its end.",
        "done": "Its process was killed at 00:01:01 UTC; the next process began at 00:10:00 UTC; "
        "billing was started again at 00:10:05 UTC. The recording does not show by whom.",
        "ended": "The last alert ended at 00:10:51 UTC, 9 min after the first alert opened: "
        "billing commits again.",
    },
    group_of_three: {
        "first": "2026-11-23 00:01:00 UTC: bronze failed: TimeoutException: Timed out waiting for "
        "a node assignment.",
        "held_by": "No batch was held: bronze failed, and did not run until 00:10:00 UTC (9 min).",
        "notified": "pagerduty was notified at 00:01:02 UTC (0.5 s after the first alert opened); "
        "receivers accepted 1 notification and 1 message of its end.",
        "done": "bronze was started again at 00:10:00 UTC; silver was started again at "
        "00:10:00 UTC; gold was started again at 00:10:00 UTC. The recording does not show by "
        "whom.",
        "ended": "The last alert ended at 00:10:41 UTC, 9 min after the first alert opened: "
        "bronze, silver, gold commit again.",
    },
}


@pytest.mark.parametrize("story", ANSWERS, ids=lambda story: story.__name__)
def test_story_is_answered_from_its_file_alone(story):
    tapes = story() if isinstance(story(), list) else [story()]

    parts = [decode(tape.content, tape.id) for tape in tapes]
    assert timeline_of(parts[::-1]).answers == ANSWERS[story]


def test_summary_says_who_and_how():
    summary = story_of(*killed_and_continued()).summary
    group = story_of(group_of_three()).summary

    assert summary.headline == "[orders] billing failed: ValueError: negative amount"
    assert (summary.cause, summary.severity, summary.notifications, summary.receivers) == (
        "ValueError",
        "critical",
        1,
        ("pagerduty",),
    )
    assert [part[-2:] for part in summary.parts[1:]] == [".2"]
    assert (group.query, group.how) == ("*", "bronze, silver, gold commit again")
    assert group.headline == (
        "[orders] 3 queries failed: TimeoutException: Timed out waiting for a node assignment "
        "(bronze, silver, gold)"
    )


@pytest.mark.parametrize("number", range(4))
def test_summary_needs_only_the_lines_of_an_outline(number):
    tapes = all_stories()[number]
    outlines = [decode(tape.content, tape.id, beginnings=OUTLINE) for tape in tapes]

    assert summary_of(outlines) == story_of(*tapes).summary


def test_moments_of_a_hang_are_in_order():
    assert texts(story_of(hung_and_stopped())) == [
        (1, "bronze was started"),
        (70, "Batch 3 of bronze begins"),
        (
            120,
            "Batch 3 of bronze is held: 1 task runs (partition 3 of stage 12 on host-7 for 90 s, "
            "while its siblings took 1.5 s)",
        ),
        (160, "The recording begins in the driver: querypulse 0.1.0, Spark 4.1.3"),
        (
            160,
            "StreamingQueryStalled of bronze opens (warning): task_running: batch 3 in flight for "
            "90 s, 1 task running (partition 3 of stage 12 on host-7 for 130 s), none finished for "
            "90 s",
        ),
        (160, "The thread of bronze is at /job/bronze.py:12 in write"),
        (160.5, "webhook is notified of StreamingQueryStalled"),
        (
            670,
            "StreamingQueryStalled of bronze is now critical: task_running: batch 3 in flight for "
            "10 min, 1 task running (partition 3 of stage 12 on host-7 for 130 s), none finished "
            "for 90 s",
        ),
        (670.4, "pagerduty is notified of StreamingQueryStalled"),
        (700, "A silence of bronze is in force until 2026-11-23 01:06:40 UTC: known"),
        (880, "The stop of bronze was announced, until 2026-11-23 00:24:40 UTC"),
        (900, "bronze was stopped"),
        (900, "Batch 3 of bronze is given up after 13 min"),
        (905, "bronze was started again"),
        (915, "bronze commits again: batch 3"),
        (946, "StreamingQueryStalled of bronze ends after 13 min: bronze commits again"),
        (946, "The recording ends: the last alert has ended"),
        (946.5, "pagerduty is notified that it has ended: StreamingQueryStalled"),
    ]


def test_spans_of_a_hang_have_a_severity_each():
    spans = [
        (span.what.value, span.since - MONDAY, span.until and span.until - MONDAY, span.severity)
        for span in story_of(hung_and_stopped()).spans
    ]
    assert spans == [
        ("run", 1, 900, ""),
        ("batch", 70, 900, ""),
        ("alert", 160, 670, "warning"),
        ("alert", 670, 946, "critical"),
        ("silence", 700, None, ""),
        ("run", 905, None, ""),
    ]


def test_details_hold_the_stack_and_the_traceback():
    details = [moment.detail for moment in story_of(hung_and_stopped()).moments if moment.detail]
    failed = [moment.detail for moment in story_of(failed_and_restarted()).moments if moment.detail]

    assert details[-1].splitlines()[-1] == "org.apache.spark.scheduler.JobWaiter.awaitResult"
    assert failed[0].splitlines()[0] == "/job/billing.py:41 in write"
    assert "raise ValueError('negative amount')" in failed[0]


# -- one thing at a time --------------------------------------------------------------------------


def test_slots_are_held_by_a_query_that_is_named():
    tape = Tape("gold", at=200).started("gold", at=1).started("silver", at=1)
    busy = JobCounts(jobs_started=3, jobs_active=1)
    slots = SlotUse(total=4, taken=4, holder="id-silver", held=3)
    for at in (50, 200):
        tape.works("gold", at=at, batch=1, own=busy, slots=slots)

    assert story_of(tape).answers["held_by"] == (
        "Batch 1 of gold was in flight from 00:00:50 UTC to 00:03:20 UTC (2 min), and still is "
        "where the recording ends: none of its tasks runs: others hold 4 of 4 slots, silver 3 of "
        "them."
    )


def test_batch_whose_cause_no_poll_shows_has_the_words_of_its_alert():
    tape = Tape("bronze", at=100).started("bronze", at=1)
    own = JobCounts(jobs_started=2, tasks_completed=40)
    for at, line in ((20, 12), (100, 13)):
        tape.works("bronze", at=at, batch=0, own=own, line=f"/job/bronze.py:{line} in write")
    facts = {"flight": {"batch_id": 0}}
    reason = "batch 0 in flight for 80 s, its tasks still finish, 32 jobs so far"
    tape.alert("bronze", "StreamingBatchSlow", at=100, does="is slow", reason=reason, facts=facts)

    assert story_of(tape).answers["held_by"].partition("ends: ")[2] == (
        "no task of its own runs, its Python thread is at /job/bronze.py:12 in write; "
        f"the alert says: {reason}."
    )


def test_likely_cause_of_a_slow_batch_is_part_of_what_held_it():
    tape = Tape("bronze", at=100).started("bronze", at=1)
    tape.works("bronze", at=20, batch=0, own=JobCounts(jobs_started=2, tasks_completed=40))
    tape.works("bronze", at=100, batch=0, own=JobCounts(jobs_started=2, tasks_completed=90))
    cause = "planning: planning the batch (queryPlanning) took 80 s, usually 0.4 s"
    tape.alert(
        "bronze",
        "StreamingBatchSlow",
        at=100,
        reason="batch 0 in flight for 80 s",
        facts={"flight": {"batch_id": 0}},
        evidence={"likely_cause": cause},
    )

    assert story_of(tape).answers["held_by"].endswith(f"; likely cause: {cause}.")


def test_task_that_was_seen_once_in_a_batch_of_small_jobs_does_not_hide_what_its_alert_says():
    tape = Tape("bronze", at=100).started("bronze", at=1)
    idle = JobCounts(jobs_started=2, tasks_completed=40)
    busy = JobCounts(jobs_started=3, jobs_active=1, tasks_active=4, tasks_completed=40)
    tape.works("bronze", at=20, batch=0, own=idle, line="/job/bronze.py:12 in write")
    tape.works("bronze", at=50, batch=0, own=busy)
    reason = "batch 0 in flight for 80 s, its tasks still finish"
    facts = {"flight": {"batch_id": 0}}
    tape.alert("bronze", "StreamingBatchSlow", at=100, does="is slow", reason=reason, facts=facts)

    assert story_of(tape).answers["held_by"].partition("ends: ")[2] == (
        "no task of its own runs, its Python thread is at /job/bronze.py:12 in write; "
        f"then 4 tasks run; the alert says: {reason}."
    )


def test_place_of_a_batch_is_said_once_though_its_alert_names_it_too():
    tape = Tape("bronze", at=100).started("bronze", at=1)
    own = JobCounts(jobs_started=2, tasks_completed=40)
    tape.works("bronze", at=20, batch=0, own=own, line="/job/bronze.py:12 in write")
    tape.works("bronze", at=100, batch=0, own=own, line="/job/bronze.py:12 in write")
    reason = "batch_hung: batch 0 in flight for 90 s, blocked at /job/bronze.py:13 in write"
    facts = {"flight": {"batch_id": 0}}
    tape.alert("bronze", STALLED, at=100, does="is stalled", reason=reason, facts=facts)

    assert story_of(tape).answers["held_by"].partition(": ")[2] == (
        "no task of its own runs, its Python thread is at /job/bronze.py:12 in write."
    )


def test_task_that_held_a_batch_has_the_time_at_which_it_was_seen_last():
    tape = Tape("bronze", at=100).started("bronze", at=1)
    tape.works("bronze", at=20, batch=0)
    for at in (50, 1000):
        longest = LongTask(12, 3, "host-7", at - 20.0)
        own = JobCounts(jobs_started=1, jobs_active=1, tasks_active=1, longest=longest)
        tape.works("bronze", at=at, batch=0, own=own)
    tape.alert("bronze", STALLED, at=100, does="is stalled", reason="task_running")

    assert "on host-7 for 16 min" in story_of(tape).answers["held_by"]
    held = [text for _, text in texts(story_of(tape)) if "is held" in text]
    assert [re.search("for 30 s", text) is not None for text in held] == [True]


def test_of_many_queries_the_one_that_failed_first_is_named():
    tape = Tape("*", at=61).started("bronze", at=1).started("silver", at=2)
    tape.terminated("silver", at=60, exception=MISTAKE)
    tape.terminated("bronze", at=61, exception=MISTAKE)
    for query in ("bronze", "silver"):
        tape.alert(query, FAILED, at=61, does="failed", reason="ValueError: negative amount")

    assert "silver failed" in story_of(tape).answers["first"]
    assert "silver failed" in story_of(tape).answers["held_by"]


def test_slow_batch_that_is_committed_says_how_long_it_took():
    tape = Tape("bronze", at=100).started("bronze", at=1)
    tape.works("bronze", at=20, batch=0).works("bronze", at=100, batch=0)
    tape.commit("bronze", batch=0, at=140, seconds=120)

    assert texts(story_of(tape), what=What.BATCH) == [
        (20, "Batch 0 of bronze begins"),
        (140, "Batch 0 of bronze is committed after 2 min"),
    ]
    assert "batch 0 of bronze began and took 2 min" in story_of(tape).answers["first"]


def test_state_shows_a_failure_whose_event_was_lost():
    tape = failed_and_restarted()
    tape.lines = [
        line
        for line in tape.lines
        if not (isinstance(line, Event) and line.event in {"terminated", "started"})
    ]
    assert (60.5, "billing failed: ValueError: negative amount") in texts(story_of(tape))
    assert (300, "billing was started again") in texts(story_of(tape))


def test_restart_whose_event_was_lost_is_shown_after_its_first_commit():
    tape = opened().started("billing", at=1).state(at=2)
    tape.started("billing", 2, at=70).commit("billing", 2, batch=1, at=75).state(at=76)
    tape.lines = [line for line in tape.lines if getattr(line, "at", 0) != MONDAY + 70]

    assert (70, "billing was started again") in texts(story_of(tape))


def test_stop_that_an_alert_is_about_happened_first():
    tape = Tape(at=61).started("billing", at=1).terminated("billing", at=40).state(at=41)
    tape.alert("billing", "StreamingQueryStopped", at=61, reason="stopped 21 s ago")

    answers = story_of(tape).answers
    assert answers["first"] == "2026-11-23 00:00:40 UTC: billing was stopped."
    assert answers["held_by"] == (
        "No batch was held: billing was stopped, and the recording shows no restart."
    )


@pytest.mark.parametrize("counted_at", [62, 66])
def test_restart_by_querypulse_is_said(counted_at):
    tape = Tape("billing", at=60).started("billing", at=1)
    tape.story.supervised("billing", restarts=0)
    tape.state(at=2).terminated("billing", at=60, exception=MISTAKE).state(at=60)
    tape.alert("billing", FAILED, at=60)
    for at in (62, 66):
        if at == 66:
            tape.started("billing", 2, at=65)
        if at == counted_at:
            tape.story.supervised("billing", restarts=1)
        tape.state(at=at)

    assert story_of(tape).answers["done"] == (
        "billing was started again by querypulse (supervise) at 00:01:05 UTC."
    )


def test_crash_loop_is_counted():
    tape = Tape(at=2).started("billing", at=0)
    tape.terminated("billing", at=1, exception=MISTAKE).alert("billing", FAILED, at=2)
    for number in range(2, 12):
        tape.started("billing", number, at=10 * number)
        tape.terminated("billing", number, at=10 * number + 1, exception=MISTAKE)

    answers = story_of(tape).answers
    assert answers["held_by"] == (
        "No batch was held: billing failed 11 times, first at /job/billing.py:41 in write, and did "
        "not run until 00:00:20 UTC (19 s)."
    )
    assert answers["done"] == (
        "billing was started again at 00:00:20 UTC and 9 times more until 00:01:50 UTC. The "
        "recording does not show by whom."
    )


def test_cause_that_queries_share_is_about_its_members():
    facts = {"members": [{"query": "billing", "facts": {"failure": {"error_class": "Gone"}}}]}
    tape = Tape("*", at=61).started("billing", at=1).terminated("billing", at=60, exception=MISTAKE)
    tape.alert("*", "StreamingQueryFailed", at=61, facts=facts)

    assert "billing failed" in story_of(tape).answers["first"]
    assert story_of(tape).summary.cause == "Gone"


def test_replay_says_what_would_have_been_sent():
    tape = Tape(at=61, seen_from=SeenFrom.REPLAY).alert("billing", FAILED, at=61)
    tape.notified("replay", at=61, alerts=(FAILED,)).notified("replay", at=90, status="resolved")

    assert story_of(tape).answers["notified"] == (
        "A replay notifies nobody; a driver would have sent 1 notification and 1 message of its "
        "end: at 00:01:01 UTC, 00:01:30 UTC."
    )
    assert texts(story_of(tape), what=What.NOTIFICATION) == [
        (61, "people would be notified of StreamingQueryFailed"),
        (90, "people would be notified that it has ended"),
    ]


def test_replay_whose_log_ends_first_says_so():
    tape = opened(seen_from=SeenFrom.REPLAY).end(at=90, how=How.CLOSED)

    timeline = story_of(tape)
    assert timeline.summary.how == "open when the log ended"
    assert timeline.answers["ended"] == "It was still open at 00:01:30 UTC, when the log ended."
    assert timeline.answers["notified"] == (
        "A replay notifies nobody; the recording shows no attempt."
    )
    assert timeline.moments[-1].text == (
        "The recording ends, and the incident is open: the log ended"
    )


def test_recording_of_a_watcher_that_is_killed_blames_no_driver():
    timeline = story_of(opened(seen_from=SeenFrom.WATCH))

    assert "querypulse watch was killed, or still runs" in timeline.answers["ended"]
    assert timeline.moments[-1].text.endswith("querypulse watch was killed, or still runs")


def test_incident_that_its_process_still_records_is_open_and_does_not_break_off():
    tape = opened().terminated("billing", at=61, exception=MISTAKE)

    timeline = timeline_of([tape.recording], is_open=True)
    assert timeline.summary.how == "open"
    assert timeline.answers["ended"] == "It is still open: StreamingQueryFailed of billing."
    assert timeline.answers["held_by"].endswith(", and has not run since.")
    assert timeline.answers["notified"] == "Nobody has been notified yet."
    assert "breaks off" not in "".join(moment.text for moment in timeline.moments)

    hung = hung_and_stopped()
    hung.lines = [line for line in hung.lines if line.at < MONDAY + 800]
    answers = timeline_of([hung.recording], is_open=True).answers
    assert answers["first"].endswith("batch 3 of bronze began and has not finished.")
    assert "recording ends" not in "".join(answers.values())


def test_messages_of_a_group_say_of_how_many_queries_and_what_is_repeated():
    tape = opened().notified("webhook", at=61, alerts=(FAILED,))
    tape.notified("webhook", at=62, alerts=(FAILED, FAILED, STALLED))
    tape.notified("webhook", at=3700, alerts=(FAILED, FAILED, STALLED))
    tape.notified("webhook", at=3800, alerts=(FAILED, FAILED, STALLED), status="resolved")

    group = "StreamingQueryFailed of 2 queries, StreamingQueryStalled"
    assert [text for _, text in texts(story_of(tape), what=What.NOTIFICATION)] == [
        "webhook is notified of StreamingQueryFailed",
        f"webhook is notified of {group}",
        f"webhook is notified again of {group}",
        f"webhook is notified that it has ended: {group}",
    ]
    assert story_of(tape).summary.notifications == 3


def test_attempts_that_fail_alike_are_one_moment():
    tape = opened()
    for at in range(62, 102):
        tape.notified("webhook", at=at, outcome="transient", error="no answer")
    tape.notified("webhook", at=102)

    assert texts(story_of(tape), what=What.NOTIFICATION) == [
        (
            62,
            "webhook is not notified in 40 attempts: no answer (it is tried again); the last one "
            "at 2026-11-23 00:01:41 UTC",
        ),
        (102, "webhook is notified that the incident is open"),
    ]
    assert story_of(tape).summary.notifications == 1


def test_attempts_that_all_fail_have_notified_nobody():
    tape = opened().notified("pagerduty", at=62, outcome="misconfigured", error="401: key")

    assert story_of(tape).answers["notified"] == (
        "Nobody was notified: no receiver accepted a message; 1 attempt failed "
        "(pagerduty: 401: key)."
    )


def test_alert_that_goes_on_elsewhere_says_where():
    tape = opened().alert(
        "billing", FAILED, at=90, change=Change.ENDED, since=61, goes_on="another_incident"
    )
    tape.end(at=90)

    timeline = story_of(tape)
    assert texts(timeline, what=What.ALERT)[1:] == [
        (90, "StreamingQueryFailed of billing ends after 29 s and goes on in another incident")
    ]
    assert timeline.summary.how == "billing goes on in another incident"


def test_muted_alert_says_why_and_since_when_people_are_notified():
    tape = opened(muted="silenced until 00:30")
    for at, muted in ((70, ""), (80, "silenced again")):
        words = {"does": "failed", "reason": "ValueError: negative amount"}
        tape.alert("billing", FAILED, at=at, change=Change.CHANGED, muted=muted, **words)

    assert [text for _, text in texts(story_of(tape), what=What.ALERT)] == [
        "StreamingQueryFailed of billing opens (critical): ValueError: negative amount; nobody is "
        "notified: silenced until 00:30",
        "People are notified of StreamingQueryFailed of billing again",
        "Nobody is notified of StreamingQueryFailed of billing any more: silenced again",
    ]


def test_silence_that_ends_is_a_span():
    tape = opened()
    until = {"queries": "billing", "until": MONDAY + 100.0}
    tape.silenced(until, {"queries": "*", "until": "inf"}, at=70)
    tape.silenced(until, at=80)
    tape.end(at=200)

    silences = [span for span in story_of(tape).spans if span.what is What.SILENCE]
    assert [(span.label, span.until - MONDAY) for span in silences] == [
        ("silence of billing", 100),
        ("silence of all queries", 80),
    ]


def test_driver_that_ends_is_a_moment():
    tape = Tape("*", at=60).started("billing", at=1)
    tape.story.report(at=50, context=Context.STOPPED)
    tape.state(at=50)

    assert (50, "The SparkContext stopped by itself") in texts(story_of(tape))
    assert "the SparkContext stopped by itself" in story_of(tape).answers["first"]


def test_watcher_says_from_where_it_saw():
    tape = Tape("*", at=60, seen_from=SeenFrom.WATCH)

    assert "from outside of the driver (querypulse watch)" in texts(story_of(tape))[0][1]


def test_alert_that_is_known_only_in_words_has_no_code_as_its_cause():
    tape = Tape("*", at=60, seen_from=SeenFrom.WATCH)
    tape.alert("*", "StreamingDriverDown", at=60, code="reported", reason="nothing listens")

    assert story_of(tape).summary.cause == ""


def test_batches_have_the_figures_of_plots():
    (batches,) = story_of(failed_and_restarted()).batches.values()

    assert [batch.batch_id for batch in batches] == [0, 1, 2, 3, 4, 5, 6]
    slow = batches[5]
    assert (slow.seconds, slow.input_rows, slow.lag_offsets, slow.state_memory_bytes) == (
        8,
        2400,
        0,
        8192,
    )


# -- strange content ------------------------------------------------------------------------------


def test_progress_of_every_source_gives_batches():
    rows = (FIXTURES / "public-sources.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, rows):
        tape = opened("orders")
        for at, event in enumerate(row["events"]):
            tape.add(Event(at=MONDAY + at, query="orders", event="progress", data=event))
        timeline = story_of(tape)
        assert (timeline.unread, len(timeline.batches["orders"])) == (0, len(row["events"]))


STRANGE = (None, -1, 1e300, "inf", "", [], {}, [[]], {"a": {"b": [1]}}, True)


def _with_strange(value):
    """The JSON value with each of its members replaced in turn."""
    if isinstance(value, dict):
        for name, part in value.items():
            for other in (*STRANGE, *_with_strange(part)):
                yield {**value, name: other}
            yield {other: part for other, part in value.items() if other != name}


MOST_STRANGE = 8


def test_lines_of_any_form_are_read():
    tape = hung_and_stopped()
    rows = tape.content.splitlines()
    for number, row in enumerate(rows[1:], start=1):
        values = list(_with_strange(msgspec.json.decode(row)))
        for value in values[number % 7 :: 1 + len(values) // MOST_STRANGE]:
            lines = [*rows[:number], msgspec.json.encode(value), *rows[number + 1 :]]
            assert timeline_of([decode(b"\n".join(lines), "file")]).answers


def test_lines_of_strange_values_are_read():
    lines = [
        {"kind": "alert", "at": 1e9, "change": "opened", "incident": "i", "alertname": "New"}
        | {"query": "q", "severity": "notice", "code": "", "starts_at": 5, "facts": {"failure": 1}},
        {"kind": "alert", "at": 1e9, "change": "ended", "incident": "i", "alertname": "New"}
        | {"query": "q", "severity": "", "code": "", "starts_at": 5, "outcome": "x_y"},
        {"kind": "notification", "at": 1e9, "incident": "", "receiver": "", "status": ""}
        | {"outcome": "new"},
        {"kind": "silences", "at": 2e9, "silences": [{"until": [], "queries": {}}, {}]},
        {"kind": "request", "at": 1e9, "request": "new{0}", "query": "{q}"},
        {"kind": "stack", "at": 1e9, "query": ""},
        {"kind": "new", "at": 1e9},
        {"kind": "end", "at": 1e300, "how": "resolved"},
        {"kind": "state", "at": 1e9, "now": 1e308, "queries": {"a": {"run": {"run_id": "r"}}}},
        {"kind": "state", "at": 1e9, "now": 1, "queries": {"a": 1, "$removed": 1}},
    ]
    content = b"\n".join([opened().content, *map(msgspec.json.encode, lines)])

    timeline = timeline_of([decode(content, "file")])
    assert timeline.unread == 3  # the new kind, the end beyond the calendar, the last state
    assert any("x y" in moment.text for moment in timeline.moments)


@pytest.mark.parametrize("depth", [100, 2000, 100_000])
def test_deep_values_are_read(depth):
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    lines = [
        b'{"kind":"state","at":1e9,"now":1,"queries":' + deep + b"}",
        b'{"kind":"state","at":1e9,"now":1,"queries":' + deep + b"}",
        b'{"kind":"event","at":1e9,"query":"q","event":"progress","data":' + deep + b"}",
    ]
    content = b"\n".join([opened().content, *lines])

    assert timeline_of([decode(content, "file")]).unread


def test_each_cut_of_a_file_is_read():
    contents = [tape.content for tape in chain.from_iterable(all_stories())]
    for content in contents:
        first = content.index(b"\n")
        for end in range(first, len(content), 211):
            assert timeline_of([decode(content[:end], "file")]).answers


def test_stalled_alert_outranks_a_slower_one_of_the_same_severity():
    tape = opened("billing", name="StreamingQueryLagging", severity="warning", reason="lag rises")
    tape.alert("billing", STALLED, at=70, severity="warning", does="is stalled", reason="silent")

    assert story_of(tape).summary.alertname == STALLED
    assert story_of(tape).summary.cause == "failed"


# -- the page -------------------------------------------------------------------------------------


def test_page_has_each_kind_of_line_with_its_members():
    page = (ROOT / "docs" / "incidents.md").read_text(encoding="utf-8")
    documented = {
        kind: set(re.findall(r"`(\w+)`", members))
        for kind, members in re.findall(r"^\| `(\w+)` \|[^|]*\| (.*) \|$", page, re.MULTILINE)
    }

    assert documented == {
        kind.__struct_config__.tag: set(kind.__struct_fields__) - {"at"}
        for kind in get_args(lines.AnyLine)
    }


def test_page_has_the_bounds_of_the_code():
    page = (ROOT / "docs" / "incidents.md").read_text(encoding="utf-8")

    assert f"now {lines.VERSION};" in page
    for bound in (
        f"{recorder.FULL_BYTES / 2**20:.0f} MB a file",
        f"{store.MOST_BYTES / 1e6:.0f} MB and {store.KEEP_SECONDS / 86_400:.0f} days in all",
        f"{ring.RING_BYTES / 2**20:.0f} MB of memory",
        f"more than {recorder.MOST_QUERIES} queries",
        f"longer than {ring.LONGEST_EVENT / 1024:.0f} KiB",
    ):
        assert bound in page
