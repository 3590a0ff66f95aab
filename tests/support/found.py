"""Everything that rules can find, in each of its forms, with the kinds of evidence of a finding."""

from __future__ import annotations

from querypulse.alerting import facts, kinds
from querypulse.alerting.evidence import (
    NO_EVIDENCE,
    Activity,
    CommitSeen,
    Evidence,
    LastCommit,
    LikelyCause,
    OnRestart,
    QueryEvidence,
    RunEvidence,
    SlowCause,
    Slowness,
)
from querypulse.alerting.facts import Facts, Flight, HowStopped, Losses, Place, Slots, Unfinished
from querypulse.alerting.kinds import SharedCause
from querypulse.alerting.policy import Window, WindowCause
from querypulse.listener.failure import Failure, RaisedAt
from querypulse.listener.foresight.filling import Full
from querypulse.listener.foresight.resources import Container, Disk, Heap, MemoryUse
from querypulse.listener.foresight.state_growth import Cause as WhyKept
from querypulse.listener.probe_report import JobCounts, LongTask, Moves, SessionEnd
from querypulse.listener.state.positions import Cause, Gap
from querypulse.listener.state.snapshot import DriverAttempt

MEMORY = MemoryUse(
    heap=Heap(450_000_000, 470_000_000, 500_000_000, 12.5, 40),
    heap_full=Full(600.0, 500.0, 700.0),
    gc_share=0.6,
    container=Container(990_000_000, 1_000_000_000),
)
DISK = Disk("/data", ("checkpoint of a",), 1_000_000_000, 100_000_000_000)
FLIGHT, SLOTS = Flight(7, 700.0), Slots(4, 4, 3, "bronze")
JAVA = Failure("ConnectException", "no route to host", "ConnectException")
PYTHON = Failure("ValueError", "negative", "ValueError", raised_at=RaisedAt("/job.py:3 in f", "x"))
BARE = Failure("ValueError", "", "ValueError")
PAST = (facts.PastFailure(3.0, 7, "ValueError", is_of_earlier_process=False),)
IDS = facts.BatchIdsWentBack(earlier=90, first=0)
LOST = Losses(9, 60.0, "spot")


def gap(cause=Cause.SKIPPED, **changes):
    return Gap("kafka t/0", 0, 9, cause, 1.0, **changes)


def risk(**changes):
    named = {"name": "t/0", "unit": "offset", "committed": 5, "earliest": 1, "used": 0.8}
    return facts.RetentionUsed(risks=(facts.RetentionRisk(**(named | changes)),), count=1)


def passed(*gaps, **changes):
    named = {"is_lost": False, "is_readable": True, "are_tables": False}
    return facts.PassedOver(gaps=gaps, count=len(gaps), **(named | changes))


def silent():
    return facts.Silent(seconds=70)


FOUND: dict[str, list[Facts]] = {
    kinds.QUERY_FAILED: [
        facts.Failed(failure=JAVA),
        facts.Failed(failure=PYTHON),
        facts.Failed(failure=BARE),
        facts.Failed(failure=PYTHON, expected_within=300.0),
        facts.Unnamed(newest=facts.Member("u-1", facts.Failed(failure=JAVA)), others=(), count=1),
    ],
    kinds.QUERY_GIVEN_UP: [facts.GivenUp(why="no", restarts=3)],
    kinds.QUERY_STOPPED: [
        *(facts.Stopped(how=how, seconds=70) for how in HowStopped),
        facts.CheckpointTaken(by="b", seconds=9, checkpoint="/cp"),
        facts.SessionExpired(seconds=61, session=SessionEnd(1.0, "c-1", "ada", 61.0, 60.0)),
        facts.ProgramEnded(how="the main program ended", queries=("a",)),
        facts.ShareCause(
            cause=SharedCause.CONTEXT_STOPPED,
            members=(facts.Member("a", facts.Stopped(how=HowStopped.WITH_CONTEXT, seconds=9)),),
        ),
    ],
    kinds.QUERY_MISSING: [
        facts.NoActivity(seconds=310),
        facts.StartOverdue(seconds=310),
        facts.NeverSeen(seconds=310, known_queries=("b",)),
        facts.NotCompleted(times="06:00", due_at=9.0, completed_at=None),
        facts.NotCompleted(times="06:00", due_at=9.0, completed_at=1.0, running_seconds=9.0),
    ],
    kinds.QUERY_STALLED: [
        facts.SchedulerStopped(flight=FLIGHT),
        facts.TaskRunning(flight=FLIGHT, still_seconds=70, tasks=1),
        facts.TaskRunning(flight=FLIGHT, still_seconds=70, tasks=1, longest=LongTask(4, 1, "h", 9)),
        facts.NoExecutors(flight=FLIGHT, still_seconds=70),
        facts.NoExecutors(flight=FLIGHT, still_seconds=70, lost=LOST),
        facts.ExecutorsLost(flight=FLIGHT, still_seconds=70, lost=LOST),
        facts.WaitingForSlots(flight=FLIGHT, still_seconds=70, slots=SLOTS),
        facts.BatchHung(flight=FLIGHT, still_seconds=70, place=Place()),
        facts.BatchHung(flight=FLIGHT, still_seconds=None, place=Place("/job.py:3")),
        facts.SourceHung(step="getting offsets", seconds=70, place=Place()),
        facts.WaitsForLog(seconds=70),
        facts.LogBehind(seconds=70, logged=None, reached=7),
        facts.NoEpoch(seconds=70),
        silent(),
        facts.NoTrigger(seconds=70),
        facts.ShareCause(cause=SharedCause.JVM_SILENT, members=(facts.Member("a", silent()),)),
    ],
    kinds.OFFSETS_STALLED: [facts.OffsetsStuck(sources=(facts.StuckSource("k", ("0",), 1, 9),))],
    kinds.QUERY_FLAPPING: [
        kind(times=3, error_class="ValueError", earlier=0, failures=PAST, failure=failure, **own)
        for kind, own in (
            (facts.PoisonBatch, {"batch_id": 7}),
            (facts.ManyFailures, {"within_seconds": 600}),
        )
        for failure in (None, JAVA, PYTHON, BARE)
    ],
    kinds.OFFSETS_REWOUND: [
        facts.OffsetsWentBack(went_back=(facts.WentBack("k", 9, 3),)),
        facts.OffsetsWentBack(ends_before=(facts.EndsBefore("Kafka", 3, 9),)),
        facts.OffsetsWentBack(ends_before=(facts.EndsBefore("delta", 3, 9),)),
        facts.OffsetsWentBack(new_id_of="/cp", id_before="1"),
        IDS,
    ],
    kinds.BATCH_SLOW: [
        *(facts.BatchSlow(flight=FLIGHT, moves=moves) for moves in Moves),
        facts.BatchSlow(flight=FLIGHT, moves=Moves.TASKS, lost=LOST),
        facts.Retrying(flight=FLIGHT, moves=Moves.TASKS, jobs=400, usual_jobs=2),
        facts.NeverCommitted(flight=FLIGHT, moves=Moves.TASKS, planned=Unfinished(7, 9000)),
        facts.SlotsHeld(slots=SLOTS, waiting=("b",)),
    ],
    kinds.DATA_LOSS_RISK: [
        risk(),
        risk(lost=3),
        risk(gone="is gone", unit="snapshot"),
        facts.SkippedBySink(sink="files", until=9, batches=2),
        facts.SinkRemembers(sink="delta", ids=IDS),
        passed(gap()),
        passed(gap(), is_readable=False, is_lost=True),
        passed(gap(Cause.RECREATED)),
        passed(gap(Cause.DELETED), are_tables=True),
    ],
    kinds.QUERY_LAGGING: [
        facts.WaitedTooLong(partition="t/0", seconds=900, allowed=300),
        facts.LagRises(unit="offsets", first=1, newest=9000, seconds=400, allowed=1000),
        facts.OpenTransaction(partition="t/0", records=4, seconds=70, partitions=1),
    ],
    kinds.QUERY_FALLING_BEHIND: [
        facts.BatchesGrow(batches=9, is_loop=False, limit=60, seconds=900, first=30, newest=90)
    ],
    kinds.WATERMARK_STUCK: [
        facts.WatermarkStuck(seconds=400, batches=9),
        facts.WatermarkAhead(watermark=9e9, ahead_seconds=9000, late_rows=4),
    ],
    kinds.ROWS_DROPPED: [facts.RowsDropped(batches=9, seconds=400, rows=9, input_rows=90)],
    kinds.STATE_GROWING: [
        facts.StateGrowing(operator="dedupe", rows=9e6, size_bytes=9e9, seconds=86_400, cause=cause)
        for cause in (None, *WhyKept)
    ],
    kinds.INPUT_MISSING: [
        facts.FolderGone(folder="/in", source="files", seconds=400),
        facts.ReadsNothing(source="Kafka", batches=100, seconds=900),
        facts.NoRows(allowed=600, seconds=700),
    ],
    kinds.DRIVER_DOWN: [
        facts.JvmEnded(queries=("a",)),
        facts.AttemptLost(attempt=DriverAttempt("application_1_0001", 1, "host n7")),
        facts.Reported(reason="no", summary="no"),
    ],
    kinds.DRIVER_MEMORY: [
        facts.HeapFull(memory=MEMORY),
        facts.InCollection(memory=MEMORY),
        facts.ContainerFull(memory=MEMORY),
    ],
    kinds.DISK_FILLING: [facts.DisksFull(disks=(facts.FullDisk(DISK, Full(600.0, 500.0, 700.0)),))],
    kinds.EVENTS_MISSING: [
        facts.EventsMissing(late=("a",), late_seconds=70),
        facts.EventsMissing(dropped=9, is_registered=False),
        facts.EventsMissing(dropped=9, full_queues=("streams: slow",)),
    ],
    kinds.MONITORING_DEGRADED: [
        facts.Degraded(failed_rules=("query_failed",)),
        facts.Degraded(silent_seconds=70),
        facts.Degraded(unread_checkpoints=(("a", "no answer"),)),
    ],
}
"""By kind: everything that can be found, in each of its forms."""


def activity(python_line="", stack=()):
    return Activity(JobCounts(4, 1, 4, 1), JobCounts(), True, python_line, stack)


def slow_for(cause):
    return Slowness(
        batch_id=7,
        seconds=90.0,
        usual_seconds=3.0,
        rows=None,
        usual_rows=10.0,
        cause=LikelyCause(cause=cause, explained_seconds=80.0),
    )


def evidence(of_run=None, slow=None, **changes):
    commit = LastCommit(CommitSeen.NEVER)
    window = Window(60.0, WindowCause.FLOOR)
    query = QueryEvidence(
        query_id="1",
        run_id="2",
        last_commit=commit,
        window=window,
        run=None if of_run is None else RunEvidence(activity=of_run),
        slowness=None if slow is None else slow_for(slow),
    )
    return Evidence(query=query, **changes)


EVIDENCES = [
    NO_EVIDENCE,
    evidence(),
    evidence(activity()),
    evidence(activity("/job.py:7 in wait"), on_restart=OnRestart(7, 8, is_done=True)),
    evidence(activity("", ("java.net.read",)), ends_driver=True, main_thread="waits"),
    *(evidence(slow=cause) for cause in SlowCause),
]
