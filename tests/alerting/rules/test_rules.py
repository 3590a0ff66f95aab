"""The reasons and evidence of alerts; ``test_cases.py`` has every row of every rule."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.event_log import FIXTURES
from support.reading import OTHER, TableReads, table_read_to
from support.rules.case import holding
from support.rules.complete_by import AT_SIX, DAY, HOUR, SIX, done
from support.rules.data_loss import BY_SIZE, BY_TIME, EXPIRED, dead_at, failed_reader, unread_table
from support.rules.driver import FULL, dropping
from support.rules.input_missing import (
    EMPTY,
    INPUT,
    folder_polls,
    over_restart,
    snapshots,
    uncounted,
    united,
)
from support.rules.lagging import lagging
from support.rules.skipped import HUDI, restored, writing
from support.rules.slow import live_locked, lossy, lost_at, no_executor, no_slot
from support.rules.stalled import (
    LONG_B,
    asynchronous,
    behind_b,
    listing,
    many_behind_b,
    on_connect,
    trying,
)
from support.rules.stopped import SESSION_EXPIRED, over, served_until
from support.rules.stories import (
    batches,
    counted,
    dying,
    hung_batch,
    in_a_pool,
    kafka,
    one_task,
    steady,
    three_queries,
    topic,
    watched,
    with_b,
    working,
)
from support.story import CONFLICT, MONDAY, Story, policy, processing, progress, run, source

from querypulse.alerting.evaluate import evaluate, gather
from querypulse.alerting.facts import (
    EndsBefore,
    FolderGone,
    GivenUp,
    NoEpoch,
    OffsetsWentBack,
    PassedOver,
    Reported,
    RetentionRisk,
    RetentionUsed,
    WentBack,
)
from querypulse.alerting.finding import Finding, Severity, finding_about
from querypulse.alerting.kinds import BATCH_SLOW, QUERY_FAILED
from querypulse.alerting.policy import Limits, stall_window
from querypulse.alerting.rules.monitoring import driver_down
from querypulse.alerting.words.evidence import window_text
from querypulse.alerting.words.messages import say
from querypulse.alerting.words.next_steps import own_steps
from querypulse.alerting.words.reasons import MAX_DRIVER_QUERIES as MAX_NAMED
from querypulse.alerting.words.reasons import reason_of
from querypulse.core.states import QueryState
from querypulse.core.text import duration
from querypulse.listener.events import EventKind, decode
from querypulse.listener.probe_report import Context, JobCounts, LongTask, SlotUse
from querypulse.listener.source_polls import SourceReport
from querypulse.listener.state.positions import Cause, Gap

SKEWED = LongTask(4, 17, "host-3", 75.0, 2.1)

FIGURES = st.lists(
    st.sampled_from([None, "NaN", "x", -1, 0, 5, 1e18, 1e308, -1e308, 10**400]),
    min_size=8,
    max_size=8,
)
TIMES = st.sampled_from(
    [
        "1970-01-01T00:00:00.000Z",
        "2099-01-01T00:00:00.000Z",
        "+292278994-08-17T07:12:55.807Z",
        "soon",
        None,
    ]
)


@settings(max_examples=60)
@given(FIGURES, TIMES, TIMES, st.sampled_from([{}, {"lag_allowed_seconds": 1.0}]))
def test_no_rule_raises_whatever_the_figures_of_batches_are(figures, watermark, newest, allowed):
    rows, late, seconds, offset, files, behind, records, end = figures
    metrics = {
        "numFilesOutstanding": files,
        "maxMsBehindLatest": behind,
        "numRecordsReadyToProcess": records,
    }
    story = Story().started(at=0)
    for batch in range(12):
        fed = {
            "endOffset": {"t": {"0": end}},
            "latestOffset": {"t": {"0": offset}},
            "numInputRows": rows,
            "metrics": metrics,
        }
        event = {
            "id": "id-a",
            "runId": "a-1",
            "name": "a",
            "batchId": batch,
            "timestamp": newest,
            "numInputRows": rows,
            "durationMs": {"addBatch": 1, "triggerExecution": seconds},
            "eventTime": {"watermark": watermark, "max": newest},
            "sources": [fed, {"metrics": metrics}],
            "stateOperators": [{"numRowsTotal": 1, "numRowsDroppedByWatermark": late}],
        }
        event = decode(EventKind.PROGRESS, json.dumps({"progress": event}))
        story.state.apply_event(event, at := 90 * (batch + 1))

    assert "QuerypulseMonitoringDegraded" not in holding(story, at + 1, allowed)


def test_reason_says_what_holds_or_moves_the_batch():
    rows = [
        (hung_batch(until=170), 170, "batch_hung: batch 10 in flight for 69 s, no task of its own finished for 69 s"),
        (hung_batch(until=170, tasks=3), 170, "batch_hung: batch 10 in flight for 69 s, no task of its own finished for 69 s"),
        (watched(steady(), (101, 170, processing(batch=10, tasks=3, waits_for_log=True))), 170, "commit_log_behind: the next batch has waited for the commit log for 69 s"),
        (watched(steady(), (101, 170, run(message="Processing new data", busy=True, tasks=0, waits_for_log=True))), 170, "commit_log_behind: the next batch has waited for the commit log for 69 s"),
        (watched(steady(), (101, 170, run(message="Getting offsets from K", busy=True))), 170, "source_hung: 'Getting offsets from K' for 69 s"),
        (watched(steady(), (101, 170, run(message="Waiting for next trigger", data=True))), 170, "no_trigger: no batch in flight and no trigger for 70 s"),
        (on_connect(until=170), 170, "batch_hung: batch 10 in flight for 69 s, Spark Connect does not show its tasks"),
        (trying(until=170), 170, "batch_hung: batch 10 in flight for 69 s, no task of its own finished for 69 s, its thread in Spark tries again now and then"),
        (trying(until=170, stack=("x.Job.waitFor",)), 170, "batch_hung: batch 10 in flight for 69 s, no task of its own finished for 69 s, its thread in Spark tries again now and then at x.Job.waitFor"),
        (working(until=170, driver=0.0003), 170, "batch_hung: batch 10 in flight for 69 s, no task of its own finished for 69 s, blocked at /jobs/sync.py:12 in call_api"),
        (one_task(until=180), 180, "task_running: batch 10 in flight for 79 s, 1 task running, none finished for 79 s"),
        (one_task(until=180, running=3), 180, "task_running: batch 10 in flight for 79 s, 3 tasks running, none finished for 79 s"),
        (in_a_pool(until=180, running=1), 180, "task_running: batch 10 in flight for 79 s, 1 task running in jobs that name no query, none finished for 79 s"),
        (no_executor(until=500), 500, "no_executors: batch 10 in flight for 6 min, no executor is available to run its tasks, none finished for 6 min"),
        (watched(steady(), (101, 180, processing(batch=10, own=JobCounts(4, 1, 126, 2, SKEWED)))), 180, "task_running: batch 10 in flight for 79 s, 2 tasks running (partition 17 of stage 4 on host-3 for 75 s, while its siblings took 2.1 s), none finished for 79 s"),
        (no_slot(until=180), 180, "waiting_for_slots: batch 10 in flight for 79 s, none of its tasks is running, others hold 4 of 4 slots, id-b 3 of them, none finished for 79 s"),
        (working(until=170, stopping=True), 170, "batch_hung: batch 10 in flight for 69 s, no task of its own finished for 69 s, blocked at /jobs/sync.py:12 in call_api; it was stopped 69 s ago and still runs"),
        (counted(until=600, own=True, active=1), 600, "batch 10 in flight for 8 min, its tasks still finish"),
        (counted(until=600, unowned=True), 600, "batch 10 in flight for 8 min, its tasks still finish, or those of jobs that name no query"),
        (working(python=0.01, until=170), 170, "batch 10 in flight for 69 s, no task of its own runs, its Python thread works at /jobs/sync.py:12 in call_api"),
        (working(driver=0.01, until=170, line="", stack=("o.a.s.Log.write(Log.scala:3)",)), 170, "batch 10 in flight for 69 s, no task of its own runs, its thread in the driver works at o.a.s.Log.write(Log.scala:3)"),
        (listing(until=310), 310, "planning the next batch for 5 min, no task of its own runs, its thread in the driver works"),
        (live_locked(until=600), 597, "retrying: batch 10 in flight for 8 min, its tasks still finish, 490 jobs in this batch so far, usually at most 2.5"),
        (live_locked(until=600, usual=200), 597, "batch 10 in flight for 8 min, its tasks still finish"),
        (live_locked(until=180, jobs=0), 177, "task_running: batch 10 in flight for 76 s, 1 task running, none finished for 76 s"),
        (live_locked(until=1906, first=True), 1902, "batch 10 in flight for 30 min, its tasks still finish"),
        (kafka(*snapshots(101), **EMPTY), 1011, "Kafka: 100 batches in a row read no rows in 16 min, although its offsets advance"),
        (steady(), 170, "silent: no activity for 70 s from events, probe or commit log"),
        (steady().probe(run(), at=100), 170, "silent: no activity for 70 s from events, probe or commit log"),
    ]  # fmt: skip
    found = [[say(one).reason for one in story.evaluate(now).findings] for story, now, _ in rows]

    assert found == [[reason] for *_, reason in rows]


TABLE_CONFLICT = (
    "io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND.WITHOUT_HINT] "
    "Transaction conflict detected. a concurrent MERGE added data to table lake.fleet.alerts "
    "committed at version 7."
)
OF_OTHERS, OWN = JobCounts(7, 3, 8, 1), JobCounts(9, 1, 40, 2)


def busy(**work):
    return watched(steady(), (101, 170, processing(batch=10, **work)))


def failed_again():
    story = Story().started(at=0).commit(batch=12, at=90).ended(at=100, exception=CONFLICT)
    story.started(run=2, at=110).probe(processing(number=2, batch=13), at=111)
    return story.ended(run=2, at=120, exception=CONFLICT)


def unread():
    story = Story().started(at=0).commit(batch=0, at=10)
    story.state.apply_sources(SourceReport(20.0, unreadable={"a-1": "no answer"}))
    return story


def read():
    story = Story().started(at=0).commit(batch=0, at=10, sources=(source(5, 9),))
    return story.ask(at=20, committed=5, latest=45)


def with_two_partitions():
    """Query a has failed; the first unread record of t/1 is older than that of t/0."""
    begun = {"t/0": 100, "t/1": 60}
    ends = {
        name: (lambda at, said=BY_TIME[name]: dict.fromkeys(begun, said(at)))
        for name in ("latest", "earliest")
    }
    return dead_at(850, **ends, committed={"t/0": 101_000, "t/1": 100_600}, since=begun)


def evidence_of(story, now):
    """What the last alert says that is not about query b."""
    (*_, finding) = [found for found in story.evaluate(now).findings if found.query != "b"]
    words = say(finding)
    return {"reason": words.reason, "summary": words.summary, **words.evidence}


def test_evidence_says_what_is_known():
    hung = hung_batch(until=170).log(at=170, planned=10, committed=9)
    begun = Story().started(at=0).probe(processing(batch=13), at=5)
    stopped = three_queries().probe(
        run(batch=10), run("b"), run("c"), at=102, context=Context.STOPPED
    )
    rows = [
        (busy(own=JobCounts(), unowned=JobCounts()), 170, {"tasks": "0 completed so far, 0 running (no Spark job)", "other_jobs": None}),
        (busy(own=OWN, unowned=OF_OTHERS), 170, {"tasks": "40 completed so far, 2 running (jobs: 9 started so far, 1 active)", "other_jobs": None}),
        (busy(own=JobCounts(9, 0, 40, 0), unowned=OF_OTHERS), 170,
         {"tasks": "40 completed so far, 0 running (jobs: 9 started so far, 0 active)", "other_jobs": "3 active that name no query, tasks: 8 completed so far, 1 running"}),
        (busy(tasks=3), 170, {"tasks": "3 completed, 0 running (jobs: 1 active, newest 1)", "other_jobs": None}),
        (begun, 10, {"tasks": None}),
        (hung_batch(until=170), 170, {"time_allowed": "60 s without a commit (stall_floor_seconds)", "spark_says": "Processing new data", "batch_in_flight": "batch 10 in flight for 69 s"}),
        (hung, 171, {"commit_log": "batch 10 planned, never committed; last committed: 9", "signals": "Spark's last event 71 s ago, last poll 5 s ago, last read commit 1 s ago"}),
        (asynchronous(until=180, log_until=100), 180, {"reason": "commit_log_behind: the commit log has been at batch 49 for 78 s, while batches have reached 90"}),
        (no_slot(until=180, story=with_b()), 180, {"slots": "others hold 4 of 4 slots, b 3 of them"}),
        (one_task(until=180), 180, {"critical_after": "10 min without a finished task, or 30 min in flight"}),
        (one_task(until=706), 706, {"critical_after": None}),
        (working(until=170, stopping=True), 170, {"critical_after": "3 min without progress"}),
        (with_b().probe(processing(batch=10), run("b"), at=100).ended(at=101, exception=CONFLICT), 103,
         {"all_queries": "1 of 2 healthy; unhealthy: a", "last_commit": "batch 9, 3 s ago", "error_class": "ConcurrentAppendException", "table": None}),
        (Story().started(at=0).ended(at=1, exception=TABLE_CONFLICT), 2,
         {"table": "lake.fleet.alerts", "exception": "ConcurrentAppendException", "error_class": "DELTA_CONCURRENT_APPEND.WITHOUT_HINT",
          "summary": "a failed: ConcurrentAppendException on table lake.fleet.alerts"}),
        (failed_again(), 130, {"last_commit": "batch 12, 40 s ago by an earlier run"}),
        (begun.ended(at=9, exception=CONFLICT), 10, {"last_commit": "batch 12, before this run's first poll"}),
        (Story().probe(processing(batch=13), at=5).ended(at=9, exception=CONFLICT), 10, {"last_commit": "batch 12, before watching began"}),
        (lagging(*(2000 + 100 * n for n in range(7))), 372,
         {"reason": "lag rose from 2000 to 2600 offsets in 6 min (1000 allowed)", "lag": "Kafka: 2600 offsets, as Spark reported 2 s ago"}),
        (read().ended(at=25, exception=CONFLICT), 27, {"lag": "Kafka: 40 offsets, 7 s ago", "sources_unread": None}),
        (unread().ended(at=25, exception=CONFLICT), 27, {"sources_unread": "no answer"}),
        (dying(100, 500, 1000, batch=7), 1001,
         {"reason": "poison_batch: batch 7 failed 3 times with ConcurrentAppendException",
          "deaths": "1 s ago: batch 7, ConcurrentAppendException\n8 min ago: batch 7, ConcurrentAppendException\n15 min ago: batch 7, ConcurrentAppendException"}),
        (dead_at(850), 850, {"summary": "a is about to lose data: t/0: 75% of its retention time is used up, the oldest unread record is 12 min old, at least 4 min left"}),
        (dead_at(850, kept=BY_SIZE), 850,
         {"summary": "a is about to lose data: t/0: the unread backlog is 71% of what the topic retains, the retention edge is 3000 offsets behind, at least 4 min left"}),
        (dead_at(1300), 1300, {"summary": "a has lost data: t/0: 1000 offsets were deleted before they were read (committed 101000, retained from 102000)"}),
        (unread_table(850, story=failed_reader(), setting="delta.logRetentionDuration, by default 17 min"), 850,
         {"summary": "a is about to lose data: DeltaSource[/t]: 75% of its retention time is used up (delta.logRetentionDuration, by default 17 min), "
                     "the oldest unread version is 12 min old, at least 4 min left"}),
        (unread_table(850, story=failed_reader(), kept_from=9), 850,
         {"summary": "a has lost data: DeltaSource[/t]: 2 versions were deleted before they were read (committed 7, retained from 9)"}),
        (unread_table(850, story=failed_reader(), **EXPIRED), 850,
         {"summary": "a cannot read on: DeltaSource[/t]: the snapshot 7, up to which it has read, has expired"}),
        (table_read_to().run(OTHER, begins=10).asks({}, latest=10, begins=10).waits(9), 40,
         {"summary": "a has skipped data: DeltaSource[/t]: 3 versions from 7 to 9 were not read: its new checkpoint begins at 10; "
                     "they are still retained: start from version 7",
          "not_read": "DeltaSource[/t]: 3 versions from 7 to 9 were not read: its new checkpoint begins at 10; they are still retained: start from version 7"}),
        (table_read_to().run(OTHER, begins=10).asks({}, latest=10, begins=10, oldest=9).waits(9), 40,
         {"reason": "DeltaSource[/t]: 3 versions from 7 to 9 were not read: its new checkpoint begins at 10; those from version 9 on are still retained"}),
        (table_read_to().run(OTHER, begins=10).asks({}, latest=12, begins=10, oldest=11).waits(9), 40,
         {"reason": "DeltaSource[/t]: 3 versions from 7 to 9 were not read: its new checkpoint begins at 10; they are deleted by now"}),
        (TableReads().run().reads(12, start=7).asks(passed=(7, 9), oldest=9).waits(9), 30,
         {"summary": "a has lost data: DeltaSource[/t]: 2 versions from 7 to 8 were deleted before they were read (retained from 9)"}),
        (with_two_partitions(), 850,
         {"reason": "t/1: 79% of its retention time is used up, the oldest unread record is 13 min old, at least 3 min left; 2 partitions in total",
          "retention": "t/1: 79% of its retention time is used up, the oldest unread record is 13 min old, at least 3 min left\n"
                       "t/0: 75% of its retention time is used up, the oldest unread record is 12 min old, at least 4 min left"}),
        (stopped, 170, {"reason": "the SparkContext stopped by itself: a, b, c", "all_queries": "0 of 3 healthy; unhealthy: a, b, c"}),
        (Story().ended(at=5, exception=CONFLICT), 6, {"reason": "id-a: ConcurrentAppendException: Files were added"}),
        (dropping(steady().seen(batch=10, at=90), at=101), 105, {"listener_registered": "yes", "other_listeners": None}),
        (dropping(steady().seen(batch=10, at=90), at=101, full_queues=FULL), 105,
         {"other_listeners": "Spark has dropped 95 events of its listener queue streams while com.acme.Slow was at work; other listeners on it: com.acme.Slow"}),
    ]  # fmt: skip
    found = [
        {name: evidence.get(name) for name in expected}
        for story, now, expected in rows
        for evidence in [evidence_of(story, now)]
    ]

    assert found == [expected for *_, expected in rows]


@pytest.mark.parametrize(
    ("facts", "reason", "summary"),
    [
        (
            NoEpoch(seconds=9),
            "commit_log_behind: no epoch committed for 9 s",
            "no epoch committed for 9 s (commit_log_behind)",
        ),
        (GivenUp(why="boom: no", restarts=1), "boom: no", "boom: no"),
        (
            FolderGone(folder="in", source="orders", seconds=9),
            "in has not been there for 9 s: orders finds nothing to read",
            "in has not been there for 9 s: orders finds nothing to read",
        ),
    ],
)
def test_a_code_goes_to_the_end_of_a_summary_and_a_name_of_the_user_stays(facts, reason, summary):
    words = say(finding_about("a", BATCH_SLOW, Severity.CRITICAL, facts))

    assert (words.reason, words.summary) == (reason, f"a is slow: {summary}")


def test_missing_input_says_how_long_no_rows_were_read():
    stories = {
        "11 min, since its run began": Story().started(at=0).idle(at=600),
        "11 min, over restarts": Story()
        .started(at=0)
        .ended(at=300)
        .started(run=2, at=300)
        .idle(run=2, at=600),
        "10 min": Story().started(at=0).commit(batch=0, at=10).idle(at=600),
        "10 min, over restarts": Story()
        .started(at=0)
        .commit(batch=0, at=10)
        .ended(at=300)
        .started(run=2, at=300)
        .idle(run=2, at=600),
    }
    reasons = [
        say(finding).reason
        for story in stories.values()
        for finding in story.evaluate(660, expected_input_seconds=600.0).findings
    ]

    assert reasons == [f"no rows read for {how_long} (10 min allowed)" for how_long in stories]


@pytest.mark.parametrize(
    ("error", "step"),
    [
        ("java.lang.Exception: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 7", "1. Another run uses this checkpoint"),
        ("java.lang.IllegalStateException: Cannot start query with id 7 as another query with same id is already active.", "1. Another run uses this checkpoint"),
        ("x.UnknownFieldException: [UNKNOWN_FIELD_EXCEPTION.NEW_FIELDS_IN_FILE] Encountered unknown fields", "1. The schema of the source has changed"),
        ("x.DeltaIllegalStateException: [DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version 7", "1. The schema of the source has changed"),
        ("org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Offsets out of range", "1. The source has deleted data"),
        ("org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR] An error occurred", "1. A task that hangs"),
        ("io.delta.exceptions.ConcurrentAppendException: Files were added", None),
        ("java.util.ConcurrentModificationException: KafkaConsumer is not safe for multi-threaded access", None),
        ("io.delta.exceptions.MetadataChangedException: [DELTA_METADATA_CHANGED] The metadata of the table has been changed by a concurrent update.", None),
        ("org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired; you may set failOnDataLoss to false", None),
        ("java.lang.IllegalStateException: Cannot fetch offset 7. Some data may have been lost because they are not available in Kafka any more", "1. The source has deleted data"),
        ("x.DeltaRuntimeException: [DELTA_STREAMING_METADATA_EVOLUTION] The schema of your Delta table has changed", "1. The schema of the source has changed"),
        ("x.DeltaIllegalStateException: [DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (7, 9) are not contiguous", "1. Commits are missing"),
        # Spark 3.5 to 4.3, and their Kafka sources; the log ends before what was read ...
        ("java.lang.IllegalStateException: Partition t-0's offset was changed from 500 to 100, some data may have been missed. \nSome data may have been lost because they are not available in Kafka any more; either the data was aged out by Kafka or the topic may have been deleted", "1. The log ends before"),
        ("org.apache.spark.sql.kafka010.KafkaIllegalStateException: [KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED] Some data may have been lost because they are not available in Kafka any more; Reason: Partition t-0 offset was changed from 500 to 100.", "1. The log ends before"),
        ("org.apache.spark.SparkException: [KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost; Reason: Starting offset for t-0 was 500 but consumer reset to 20.", "1. The log ends before"),
        ("x.KafkaIllegalStateException: [RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] The resolved start offset 500 is greater", "1. The log ends before"),
        ("x.KafkaIllegalStateException: [END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW] Some of partitions", "1. The log ends before"),
        # ... or begins behind it ...
        ("org.apache.spark.SparkException: [KAFKA_DATA_LOSS.START_OFFSET_RESET] Some data may have been lost; Reason: Starting offset for t-0 was 20 but consumer reset to 500.", "1. The source has deleted data"),
        ("x.KafkaIllegalStateException: [KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost; Reason: Could not read records in offset [1, 7)", "1. The source has deleted data"),
        # ... or is gone.
        ("x.KafkaIllegalStateException: [KAFKA_DATA_LOSS.PARTITIONS_DELETED] Some data may have been lost; Reason: Partitions Set(t-1) have been deleted.", "1. The topic, or a partition"),
        ("x.KafkaIllegalStateException: [KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS] Some data", "1. The topic, or a partition"),
        ("java.lang.IllegalStateException: Set(t-1) are gone. Some data may have been missed. \nSome data may have been lost because they are not available in Kafka any more", "1. The topic, or a partition"),
        ("java.lang.IllegalStateException: Cannot find initial offsets for partitions Set(t-1). They may have been deleted", "1. The topic, or a partition"),
        ("java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic-partition.", "1. The topic, or a partition"),
        ("x.DeltaIllegalStateException: [DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] The streaming query was reading from an unexpected Delta table", "1. The table was replaced"),
        ("x.DeltaUnsupportedOperationException: [DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data update", "1. Rows of the source table"),
        ("java.lang.IllegalStateException: Cannot process overwrite snapshot: 7, to ignore overwrites, set streaming-skip-overwrite-snapshots=true", "1. Rows of the source table"),
        ("java.lang.IllegalArgumentException: Starting snapshot (exclusive) 7 is not a parent ancestor of end snapshot 9", "1. The table was rolled back"),
        # Not the same words.
        ("builtins.ValueError: the price offset was changed from high to low", None),
        ("builtins.ValueError: the files are gone. Ask the owner", None),
        ("builtins.ValueError: partition x of the cake was deleted", None),
        ("x.StateStoreException: [STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION] Schema evolution is not possible", None),
        ("x.DeltaRuntimeException: [DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION] set the conf", None),
        ("com.corp.NoUnknownFieldExceptionYet: a field is missing", None),
        ("java.io.FileNotFoundException: /data/KAFKA_DATA_LOSS_2026/part-1", None),
        ("java.lang.IllegalStateException: Cannot load current offset at snapshot 156670977066268436, the snapshot was expired or removed", "1. The table has expired the snapshot"),
        ('java.lang.NullPointerException: Cannot invoke "java.lang.Long.longValue()" because the return value of "org.apache.iceberg.Snapshot.parentId()" is null', "1. The table was rolled back"),
        ("x.DeltaFileNotFoundException: [DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE] If you never deleted it, it's likely your query is lagging behind.", "1. The log of the table was cleaned up"),
        ("org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/t/part-0.parquet. File does not exist.", "1. A data file was deleted"),
        ("org.apache.spark.SparkException: Lost task 0.0 in stage 23.0: org.apache.iceberg.exceptions.NotFoundException: Failed to open input stream for file: /t/data/0.parquet", "1. A data file was deleted"),
        ("org.apache.paimon.utils.OutOfRangeException: The snapshot with id 7 has expired. You can: 1. increase the snapshot expiration time.", "1. The table (Paimon)"),
        ('java.lang.NullPointerException: Cannot invoke "java.lang.Long.longValue()" because "<local4>" is null', None),
        ("org.apache.iceberg.exceptions.ValidationException: Found conflicting files that can contain records matching true", None),
        ("x.DeltaErrors: [DELTA_TABLE_NOT_FOUND] Delta table t does not exist", None),
        ("org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file", None),
        ("java.lang.RuntimeException: The session of user 7 has expired", None),
        ("builtins.KeyError: 'OffsetOutOfRangeExceptions'", None),
        ("builtins.ValueError: no such customer", None),
        ("java.io.IOException: No space left on device", None),
    ],
)  # fmt: skip
def test_known_error_has_next_steps_of_its_own(error, step):
    (finding,) = steady().ended(at=101, exception=error).evaluate(102).findings
    steps = say(finding).evidence["next_steps"]

    assert steps.startswith(
        step or "1. Read the error; a conflict or an outage may be over already."
    )
    assert len(steps.splitlines()) == 3


def passed_over(*gaps):
    is_lost = any(gap.cause is Cause.DELETED for gap in gaps)
    is_readable = not all(gap.is_gone for gap in gaps)
    return PassedOver(
        gaps=gaps, count=len(gaps), is_lost=is_lost, is_readable=is_readable, are_tables=False
    )


KAFKA_GAP = Gap("broker t/0", 0, 50, Cause.RECREATED, 0.0)


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (
            OffsetsWentBack(ends_before=(EndsBefore("KafkaV2[Subscribe[t]] t/0", 100, 500),)),
            "1. The log ends before",
        ),
        (
            OffsetsWentBack(ends_before=(EndsBefore("DeltaSource[s3a://lake/t]", 2, 5),)),
            "1. The table was replaced",
        ),
        (OffsetsWentBack(went_back=(WentBack("t/0", 500, 100),)), ""),
        (OffsetsWentBack(new_id_of="/cp"), "1. Find out what deleted the file metadata"),
        (passed_over(KAFKA_GAP), "1. The topic was created again"),
        (
            passed_over(replace(KAFKA_GAP, cause=Cause.SKIPPED)),
            "1. Read the records before they are deleted",
        ),
        # Two causes: what fits both.
        (
            passed_over(KAFKA_GAP, replace(KAFKA_GAP, cause=Cause.SKIPPED)),
            "1. Read the records before they are deleted",
        ),
        (
            passed_over(replace(KAFKA_GAP, cause=Cause.DELETED, first=50)),
            "1. The records are deleted",
        ),
        (
            RetentionUsed(
                risks=(
                    RetentionRisk(
                        name="t/0", unit="record", committed=1, earliest=9, used=1.0, lost=8
                    ),
                ),
                count=1,
            ),
            "1. The source has deleted data",
        ),
        (
            RetentionUsed(
                risks=(
                    RetentionRisk(name="t/0", unit="record", committed=9, earliest=1, used=0.8),
                ),
                count=1,
            ),
            "",
        ),
    ],
)
def test_next_steps_follow_what_happened_to_the_source(found, step):
    steps = own_steps(found)

    assert steps.startswith(step)
    assert bool(steps) is bool(step)
    assert not steps or len(steps.splitlines()) == 3


@pytest.mark.parametrize(
    ("story", "at", "reason"),
    [
        (
            writing(newest=49, skips_to=49),
            105,
            "FileSink[file:/out] has batches up to 49 of another checkpoint in its log, so Spark skips those of this "
            "query: 10 batches read and not written so far; it writes from batch 50 on",
        ),
        (
            writing(newest=4, skips_to=4),
            105,
            "FileSink[file:/out] has batches up to 4 of another checkpoint in its log, so Spark skips those of this "
            "query: 5 batches read and not written so far; it writes from batch 5 on",
        ),
        (
            writing(newest=0, skips_to=0, first=0),
            105,
            "FileSink[file:/out] has batches up to 0 of another checkpoint in its log, so Spark skips those of this "
            "query: 1 batch read and not written so far; it writes from batch 1 on",
        ),
        (
            writing(newest=9)
            .sink(at=103, newest=12, skips_to=12)
            .commit(batch=10, at=104)
            .commit(batch=11, at=105),
            106,
            "FileSink[file:/out] has batches up to 12 "
            "of another checkpoint in its log, so Spark skips those of this query: 2 batches read and not written so far; it writes from batch 13 on",
        ),
        (
            restored(HUDI),
            71,
            "HoodieStreamingSink[/t] remembers batch ids: batch ids went from 9 back to 3: its checkpoint is new or was restored; "
            "a sink that remembers ids skips batches up to 9",
        ),
        (
            folder_polls((100, 9999), until=500),
            505,
            "file:/in has not been there for 6 min: FileStreamSource[file:/in] finds nothing to read",
        ),
    ],
)
def test_what_is_not_written_and_what_is_gone_has_next_steps_of_its_own(story, at, reason):
    (finding,) = story.evaluate(at).findings
    steps = say(finding).evidence["next_steps"].splitlines()

    assert say(finding).reason == reason
    assert [step[:3] for step in steps] == ["1. ", "2. ", "3. "]
    assert max(map(len, steps)) <= 105


@pytest.mark.parametrize(
    ("story", "reason"),
    [
        (
            united(10, 20, 30),
            "KafkaV2[Subscribe[dry]]: no rows read for 11 min, while other sources had some (10 min allowed)",
        ),
        (
            united(),
            "KafkaV2[Subscribe[dry]]: no rows read for 11 min, since its run began, while other sources had some (10 min allowed)",
        ),
        (
            uncounted(),
            "FileStreamSource[file:/dry]: no rows read for 11 min, while other sources had some (10 min allowed)",
        ),
        (
            over_restart(10, 50, until=700),
            "KafkaV2[Subscribe[dry]]: no rows read for 10 min, over restarts, while other sources had some (10 min allowed)",
        ),
    ],
)
def test_reason_names_the_source_without_rows(story, reason):
    (finding,) = story.evaluate(705, **INPUT).findings

    assert say(finding).reason == reason


def test_one_of_two_sources_with_the_same_description_is_named_by_its_place():
    story = Story().started(at=0)
    for batch, at in enumerate(range(10, 701, 10)):
        sources = (source(topic(at)), source(topic(0), rows=0))
        story.commit(batch=batch, at=at, sources=sources)
    (finding,) = story.evaluate(705, **INPUT).findings

    assert say(finding).reason.startswith("Kafka (2 of 2): no rows read for 11 min")


@pytest.mark.parametrize(
    ("trigger", "seconds", "limits", "window"),
    [
        ("ProcessingTimeTrigger(0)", (1, 1), {}, "60 s without a commit (stall_floor_seconds)"),
        (
            "ProcessingTimeTrigger(3600000)",
            (1, 1),
            {},
            "3 h without a commit: 3 times its trigger interval (60 min)",
        ),
        (
            "ProcessingTimeTrigger(10000)",
            (40, 50, 90),
            {},
            "2 min without a commit: 3 times its usual longest batch (50 s)",
        ),
        (
            "ProcessingTimeTrigger(10000)",
            (40,),
            {},
            "2 min without a commit: 3 times its only batch so far (40 s)",
        ),
        (
            "ProcessingTimeTrigger(10000)",
            (7200,),
            {},
            "5 min without a commit: 3 times its only batch so far (100 s)",
        ),
        (
            "ProcessingTimeTrigger(0)",
            (1, 2),
            {"stall_floor_seconds": 15.0},
            "15 s without a commit (stall_floor_seconds)",
        ),
        ("ProcessingTimeTrigger(0)", (), {}, "5 min to start and commit (start_grace_seconds)"),
    ],
)
def test_window_adapts_to_trigger_and_batch_duration(trigger, seconds, limits, window):
    story = Story().probe(run(trigger=trigger, data=True), at=0)
    story = batches(*seconds, story=story)

    assert window_text(stall_window(story.query(), Limits(**limits))) == window
    health = story.evaluate(story.ends_at, **limits).health["a"]
    assert window.startswith(f"{duration(health.window_seconds)} ")


def test_query_that_holds_the_slots_is_paged_for_and_names_who_waits():
    story = behind_b(until=1906)
    findings, own = (
        {one.query: one for one in story.evaluate(1906, **limits).findings}
        for limits in (LONG_B, {})
    )

    assert say(findings["b"]).reason == "slots_held: its tasks hold the slots that a wait for"
    assert say(own["b"]).reason.endswith("its tasks still finish; a wait for its slots")
    assert say(findings["b"]).evidence["waiting"] == "a"
    assert "b 3 of them" in say(findings["a"]).reason


def test_query_for_whose_slots_many_wait_names_them_and_each_of_them_is_shown_as_stalled():
    evaluation = many_behind_b("a", "c", "d", until=180).evaluate(180, **LONG_B)

    (finding,) = evaluation.findings
    assert say(finding).reason == "slots_held: its tasks hold the slots that a, c, d wait for"
    assert say(finding).evidence["slots"] == "others hold 4 of 4 slots, b 4 of them"
    assert say(finding).evidence["all_queries"] == "0 of 4 healthy; unhealthy: a, b, c, d"
    assert {label: health.state.value for label, health in evaluation.health.items()} == {
        "a": "stalled",
        "b": "slow",
        "c": "stalled",
        "d": "stalled",
    }
    assert "b 4 of them" in evaluation.health["c"].reason


@pytest.mark.parametrize(
    ("story", "reason"),
    [
        (
            lossy(until=235),
            "executors_lost: batch 10 in flight for 2 min, its tasks begin again and again, none "
            "made progress for 2 min; 13 executors were lost in 2 min (Command exited with code 137)",
        ),
        (
            lossy(until=235, finishing=True),
            "batch 10 in flight for 2 min, its tasks still finish; 13 executors were lost in 2 min "
            "(Command exited with code 137)",
        ),
        (
            lost_at(130, until=180),
            "task_running: batch 10 in flight for 79 s, 1 task running, none finished for 79 s; "
            "1 executor was lost in 79 s (Command exited with code 137)",
        ),
        # A task that survives the losses of others is what the batch waits for.
        (
            lost_at(130, 140, 150, until=180, longest=True),
            "task_running: batch 10 in flight for 79 s, 1 task running (partition 17 of stage 4 on "
            "host-3 for 75 s, while its siblings took 2.1 s), none finished for 79 s; "
            "3 executors were lost in 79 s (Command exited with code 137)",
        ),
        # All were lost together, or for the last ones none came.
        (
            lost_at(105, 105, 105, 105, until=530, slots=SlotUse(0)),
            "no_executors: batch 10 in flight for 7 min, no executor is available to run its "
            "tasks, none finished for 7 min; 4 executors were lost in 7 min (Command exited with code "
            "137)",
        ),
        (
            lost_at(130, 170, 210, until=530, slots=SlotUse(0)),
            "no_executors: batch 10 in flight for 7 min, no executor is available to run its "
            "tasks, none finished for 7 min; 3 executors were lost in 7 min (Command exited with code "
            "137)",
        ),
        # What was lost long before the batch stood still does not hold it.
        (
            lost_at(10, 20, 30, until=180),
            "task_running: batch 10 in flight for 79 s, 1 task running, none finished for 79 s",
        ),
    ],
)
def test_reason_says_how_many_executors_were_lost_and_why(story, reason):
    (finding,) = story.evaluate(story.ends_at).findings

    words = say(finding)
    assert words.reason == reason
    is_cause = "13 executors" in reason or reason.startswith("no_executors")
    next_steps = words.evidence.get("next_steps", "")
    assert next_steps.startswith("1. Read why executors") is is_cause


# -- a new checkpoint under an old name: a note in the status and in the next alert -----------------

NOTE = (
    "batch ids went from 18,000 back to 0: its checkpoint is new or was restored; "
    "a sink that remembers ids skips batches up to 18,000"
)


def old_run():
    return Story().started(at=0).commit(batch=18_000, at=10).ended(at=20)


def commit_of_new_checkpoint(story, *batches, at=30):
    """The same name under a new id."""
    for number, batch in enumerate(batches):
        done = replace(progress("new-a", batch=batch), name="a", run_id="new-a")
        story.state.apply_event(done, at + number)
    return story


def state_reason(story, now=40):
    return reason_of(story.evaluate(now).health["a"].why)


def test_new_checkpoint_under_an_old_name_is_a_note_until_the_old_batch_id_has_passed():
    story = commit_of_new_checkpoint(old_run().started_again(at=21), 0, 1)
    assert state_reason(story) == NOTE

    commit_of_new_checkpoint(story, 18_000, at=35)
    assert state_reason(story) == ""


def test_checkpoint_that_was_restored_is_a_note():
    story = old_run().started(run=2, at=21).commit(run=2, batch=17_000, at=30)

    assert state_reason(story).startswith("batch ids went from 18,000 back to 17,000")


def test_next_alert_has_the_note():
    story = commit_of_new_checkpoint(old_run().started_again(at=21), 0)
    (stalled,) = story.evaluate(300).findings

    assert say(stalled).evidence["batch_ids"] == NOTE


@pytest.mark.parametrize(
    "story",
    [
        steady(),
        old_run().started(run=2, at=21).commit(run=2, batch=18_001, at=30),
        old_run().started(run=2, at=21).commit(run=2, batch=18_000, at=30),
        old_run().started_again(at=21),
        Story().started(at=0).commit(batch=0, at=10),
        Story()
        .started(at=0)
        .ended(at=5, exception=CONFLICT)
        .started(run=2, at=6)
        .commit(run=2, batch=0, at=8),
        Story()
        .probe(run(async_progress=True, batch=9), at=0)
        .commit(batch=9, at=10)
        .ended(at=20)
        .started(run=2, at=21)
        .probe(run(number=2, async_progress=True), at=22)
        .commit(run=2, batch=7, at=30),
    ],
    ids=[
        "one run",
        "goes on",
        "repeats its last batch",
        "new, nothing committed yet",
        "first run",
        "first run had no commit",
        "async progress tracking repeats batches",
    ],
)
def test_other_runs_have_no_note(story):
    assert "batch ids" not in state_reason(story, 32)


# -- the end of the JVM -----------------------------------------------------------------------------


def running(*queries):
    return Story().probe(*map(run, queries), at=100)


MANY = [f"q{number:03}" for number in range(MAX_NAMED + 5)]


@pytest.mark.parametrize(
    ("story", "reason"),
    [
        (Story(), "; no query was running"),
        (running("a"), ", and 1 streaming query with it: a"),
        (running("c", "a", "b"), ", and 3 streaming queries with it: a, b, c"),
        (
            running("a", "b", "scratch").ended("b", at=100.5, exception=CONFLICT),
            ", and 1 streaming query with it: a",
        ),
        (running(*MANY), f", and 25 streaming queries with it: {', '.join(MANY[:20])} and 5 more"),
    ],
    ids=[
        "no query",
        "one query",
        "three queries",
        "an ended and an ignored query",
        "more than it names",
    ],
)
def test_end_of_the_jvm_is_critical_and_names_the_queries_that_ran_and_are_not_ignored(
    story, reason
):
    story.probe(at=101, context=Context.JVM_GONE)
    settings = policy(overrides=[("scratch", {"ignore": True})])
    found = driver_down(story.state.snapshot(101), 101, settings)

    assert (found.severity, found.state) == (Severity.CRITICAL, QueryState.MISSING)
    assert say(found).reason == f"the JVM of the driver has ended{reason}"
    assert say(found).summary == f"driver is down: {say(found).reason}"


def test_end_of_the_jvm_is_the_reason_only_of_queries_that_ran_until_then():
    story = running("a", "b").ended("b", at=100.5).probe(at=130, context=Context.JVM_GONE)
    health = story.evaluate(131).health

    assert reason_of(health["a"].why) == "the JVM of the driver has ended"
    assert reason_of(health["b"].why) == ""


def test_an_alert_names_a_bounded_number_of_unhealthy_queries():
    names = [f"q{number:03}" for number in range(100)]
    found = [
        Finding(
            QUERY_FAILED,
            name,
            Severity.CRITICAL,
            QueryState.FAILED,
            Reported(reason="failed", summary="failed"),
        )
        for name in names
    ]

    gathered = gather(found, names)

    assert {say(finding).evidence["all_queries"] for finding in gathered} == {
        f"0 of 100 healthy; unhealthy: {', '.join(names[:20])} and 80 more"
    }


# -- what sources report in public reports ----------------------------------------------------------

RAISES = {
    "databricks_auto_loader": {"StreamingQueryLagging"},
    "databricks_pubsub": {"StreamingQueryLagging"},
    "late_rows_watermark_moves": {"StreamingRowsDropped"},
}
AVAILABLE_NOW = {"available_now_two_sources"}
SHAPES = {
    line["shape"]: line["events"]
    for line in map(json.loads, (FIXTURES / "public-sources.jsonl").read_text().splitlines())
}


def lived(shape):
    """The alerts of a query that commits these batches, one every two minutes."""
    story, raised = Story(), set()
    trigger = "AvailableNowTrigger" if shape in AVAILABLE_NOW else "ProcessingTimeTrigger(0)"
    for batch, event in enumerate(SHAPES[shape], 1):
        at = 120 * batch
        text = json.dumps({"progress": event["progress"] | {"batchId": batch}})
        decoded = decode(EventKind.PROGRESS, text)
        ids = {"query_id": decoded.query_id, "run_id": decoded.run_id, "name": decoded.name}
        seen = run(trigger=trigger, batch=batch)
        story.probe(replace(seen, facts=replace(seen.facts, **ids)), at=at - 1)
        story.state.apply_event(decoded, at)
        raised |= {found.alertname for found in story.evaluate(at + 1).findings}
    return raised


@pytest.mark.parametrize("shape", SHAPES)
def test_public_reports_raise_what_they_must_and_nothing_else(shape):
    assert lived(shape) == RAISES.get(shape, set())


def test_finite_run_that_is_late_is_not_called_missing():
    (finding,) = done().evaluate(DAY + SIX + 60, **AT_SIX).findings

    assert say(finding).summary.startswith("a has not completed in time: no run has completed for ")


def test_stop_with_an_expired_session_names_session_user_and_silence():
    (found,) = served_until(SESSION_EXPIRED).evaluate(162).findings

    assert found.code.value == "session_expired"
    assert found.reason == (
        "stopped 61 s ago, as the Spark Connect session c-1 of ada expired: its client had made "
        "no call for 61 s"
    )
    assert say(found).evidence["connect_session"] == "c-1 of ada"


def test_expired_session_of_a_client_without_a_user_is_named_by_its_id_alone():
    ends = {"s1": replace(SESSION_EXPIRED["session_ends"]["s1"], user="")}
    (found,) = served_until({"session_ends": ends}).evaluate(162).findings

    assert "the Spark Connect session c-1 expired" in found.reason
    assert say(found).evidence["connect_session"] == "c-1"


def test_stopped_query_is_reported_as_the_process_ends_though_no_poll_shows_its_session():
    """There is no later evaluation."""
    story = steady().probe(run(session="s1", batch=9), at=100, session_ends={})
    snapshot = story.ended(at=101).snapshot(101.2)
    for crashed, alertnames in ((False, []), (True, ["StreamingQueryStopped"])):
        ending = replace(policy(), ends=crashed, crashed=crashed)
        found = evaluate(snapshot, 101.2, ending).findings
        assert [finding.alertname for finding in found] == alertnames


def test_queries_of_an_expired_session_are_one_incident_and_those_of_two_are_two():
    ends = {**SESSION_EXPIRED["session_ends"], **over(idle=70.0, session="s2")["session_ends"]}
    ends["s2"] = replace(ends["s2"], session="c-2")
    story = Story()
    owners = {"a": "s1", "b": "s1", "c": "s2", "d": ""}
    polled = [run(query, session=session, batch=1) for query, session in owners.items()]
    for query in owners:
        story.started(query, at=0).commit(query, batch=0, at=1)
    story.probe(*polled, at=100)
    for query in "abc":
        story.ended(query, at=101)
    story.probe(polled[-1], at=102, session_ends=ends).commit("d", batch=1, at=160)

    gathered = [(found.query, found.reason) for found in story.evaluate(163).findings]

    assert sorted(gathered) == [
        (
            "*",
            f"the Spark Connect session {client} of ada expired: its client had made no call "
            f"for {idle}: {names}",
        )
        for client, idle, names in (("c-1", "61 s", "a, b"), ("c-2", "70 s", "c"))
    ]


@pytest.mark.parametrize("context", [Context.RUNNING, Context.STOPPED_BY_APPLICATION])
def test_deadline_of_the_next_run_is_known_also_once_spark_has_stopped(context):
    """What a driver says last, a watcher goes by."""
    story = done().probe(at=4.1 * HOUR, context=context)

    health = story.evaluate(5 * HOUR, **AT_SIX).health["a"]

    assert health.due_at == MONDAY + SIX + DAY
