"""Next steps: what to do about one finding. They name only evidence that its alert has.

A kind of alert with one code has those of its runbook, ``dashboards/runbooks/``; all others are
here.
"""

from __future__ import annotations

import re
from functools import singledispatch

from ...core.text import duration
from ...listener.failure import SESSION_ENDED, Failure
from ...listener.foresight.state_growth import Cause as WhyKept
from ...listener.state.positions import Cause
from .. import facts
from ..evidence import NO_EVIDENCE, Evidence, SlowCause
from ..facts import Facts

NEXT_STEPS = "next_steps"
"""The annotation: three lines."""

NAMED_BY_STEPS = frozenset(
    {
        "error_message",
        "python_line",
        "deaths",
        "stream_thread",
        "tasks",
        "on_restart",
        "known_queries",
        "waiting",
        "listener_registered",
        "other_listeners",
        "likely_cause",
    }
)
"""The evidence that next steps name, where an alert has it."""

ENDS_EARLIER = (
    "1. The log ends before the offset that the query has read: it was cut (unclean leader"
    " election), restored or mirrored, or the topic was created again (another TopicId).\n"
    "2. If the same records are restored, restart then: new ones at those offsets are never read."
    " Otherwise start with a new checkpoint and startingOffsets.\n"
    "3. Retention does not help. Rows that were written and are gone from the log stay in the sink."
)
TOPIC_GONE = (
    "1. The topic, or a partition that the query reads, is not there any more: find out who deleted"
    " it, and whether it was created again or its name is wrong.\n"
    "2. Bring it back from its producers or a mirror: its offsets then begin at 0.\n"
    "3. Start the query with a new checkpoint; what it had not read of the old topic is lost."
)
TABLE_REPLACED = (
    "1. The table was replaced, or restored from a copy: its versions are not those that the query"
    " has read.\n"
    "2. Put the old table back; or start with a new checkpoint, which reads the new table again.\n"
    "3. Look for rows that the query has written twice, or that it would never read."
)
AGED_OUT = (
    "1. The source has deleted data that the query had not read.\n"
    "2. Restore that data, or accept the loss: failOnDataLoss=false reads on behind it.\n"
    "3. Raise the retention of the source, or find out why the query was late."
)
SNAPSHOT_EXPIRED = (
    "1. The table has expired the snapshot of the checkpoint: a restart fails again.\n"
    "2. Start with a new checkpoint and stream-from-timestamp, the time of the last commit;"
    " read snapshots that have expired since then from the table itself.\n"
    "3. Keep snapshots (history.expire.max-snapshot-age-ms) longer than it may be down."
)
LOG_CLEANED = (
    "1. The log of the table was cleaned up before the query had read it: a restart fails"
    " again, also with failOnDataLoss=false.\n"
    "2. Start with a new checkpoint: it reads the whole table, or from startingTimestamp.\n"
    "3. Keep the log (delta.logRetentionDuration) longer than the query may be down."
)
_MOVED = re.compile(
    r"offset was changed from (\d+) to (\d+)"
    r"|Starting offset for \S+ was (\d+) but consumer reset to (\d+)"
)
"""``KafkaOffsetReader`` and ``KafkaDataConsumer`` of Spark: where it was, and what is there."""

STEPS_BY_ERROR = {
    re.compile(rf"\b(?:{pattern})\b"): steps
    for pattern, steps in {
        "CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY"
        "|Multiple streaming (?:jobs|queries)|same id is already active": (
            "1. Another run uses this checkpoint: find the second driver or query, and stop one.\n"
            "2. Give each query a checkpoint of its own.\n"
            "3. Once only one is left, start that one again from the same checkpoint."
        ),
        "UNKNOWN_FIELD_EXCEPTION|UnknownFieldException|DELTA_STREAMING_METADATA_EVOLUTION"
        "|DELTA_SCHEMA_CHANGED(?:_WITH_VERSION|_WITH_STARTING_OPTIONS)?": (
            "1. The schema of the source has changed: restart the query to read the new one.\n"
            "2. If it fails again, the sink refuses new columns: allow them (mergeSchema).\n"
            "3. If that is part of the job's life, add its error class to expected_errors."
        ),
        # The more exact ones first: Spark adds the same sentence on what may have happened to all.
        "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"
        "|END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST\\w*": ENDS_EARLIER,
        r"KAFKA_DATA_LOSS\.(?:PARTITIONS_DELETED\w*|INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS)"
        r"|LOST_TOPIC_PARTITIONS_IN_END_OFFSET\w*|UnknownTopicOrPartitionException"
        r"|are gone\. Some data may have been missed"
        r"|initial offsets for partitions .{0,200}\. They may have been deleted": TOPIC_GONE,
        "OffsetOutOfRangeException|KAFKA_DATA_LOSS|Some data may have been lost": AGED_OUT,
        "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": TABLE_REPLACED,
        "DELTA_VERSIONS_NOT_CONTIGUOUS": (
            "1. Commits are missing in the middle of the table's log: deleted by hand, by a"
            " lifecycle rule of the bucket, or not copied with the table.\n"
            "2. Restore the files in _delta_log; or start with a new checkpoint, which reads the"
            " whole table; failOnDataLoss=false reads on behind the gap.\n"
            "3. Leave the cleanup of the log to Delta (delta.logRetentionDuration)."
        ),
        "DELTA_SOURCE_TABLE_IGNORE_CHANGES|DELTA_SOURCE_IGNORE_DELETE"
        "|Cannot process (?:overwrite|delete) snapshot": (
            "1. Rows of the source table were changed, deleted or overwritten; the query reads only"
            " added ones: decide whether its sink needs the change.\n"
            "2. If not, set skipChangeCommits (Delta), or streaming-skip-overwrite-snapshots and"
            " streaming-skip-delete-snapshots (Iceberg), and restart.\n"
            "3. If so, write the sink again from the table, with a new checkpoint."
        ),
        "Cannot load current offset at snapshot|Cannot find snapshot after": SNAPSHOT_EXPIRED,
        r'return value of "org\.apache\.iceberg\.Snapshot\.parentId\(\)" is null'
        "|is not a parent ancestor of end snapshot": (
            "1. The table was rolled back behind the snapshot of the checkpoint.\n"
            "2. Roll it forward again, or start with a new checkpoint and stream-from-timestamp.\n"
            "3. Rows that were rolled back may have been written already: check the sink."
        ),
        "DELTA_LOG_FILE_NOT_FOUND(?:_FOR_STREAMING_SOURCE)?|DELTA_VERSION_NOT_FOUND": LOG_CLEANED,
        r"FAILED_READ_FILE\.FILE_NOT_EXIST|DELTA_FILE_NOT_FOUND_DETAILED"
        r"|iceberg\.exceptions\.NotFoundException: Failed to open input stream for file": (
            "1. A data file was deleted before it was read: VACUUM, expire_snapshots, by hand.\n"
            "2. Restore the file, or start with a new checkpoint behind that version.\n"
            "3. Keep files (delta.deletedFileRetentionDuration) longer than it may be late."
        ),
        r"The snapshot with id \d+ has expired": (
            "1. The table (Paimon) has expired the snapshot that the query reads next.\n"
            "2. Start with a new checkpoint; what has expired is in no later snapshot's changes.\n"
            "3. Set a consumer-id, which keeps unread snapshots, or snapshot.time-retained."
        ),
        "UNRELEASED_THREAD_ERROR|instance could not be acquired": (
            "1. A task that hangs, or a second attempt of it, holds the lock of the state store.\n"
            "2. Restart the query; if the task hangs in the executor, restart the executor.\n"
            "3. Again and again: turn speculation off, look for stages that read the state twice."
        ),
        SESSION_ENDED: (
            "1. The session does not come back, nor do its queries: restart the job.\n"
            "2. Or call spark.stop(), create a session, attach to it, and start the queries from "
            "the same checkpoints.\n"
            "3. Find what took the session: a network outage longer than its time-out, a restart "
            "of the server, somebody who released it."
        ),
    }.items()
}
"""Next steps by what the error says, where the steps of the alert's runbook are too general."""
STEPS_OF_TAKEN = (
    "1. Decide which of the two queries owns the checkpoint.\n"
    "2. Stop the other one, and give it a checkpoint of its own.\n"
    "3. Start the owner again: rows that the other one read went to its sink."
)
STEPS_OF_EXPIRED = (
    "1. Find out why the client of that session is gone: its log, its exit code, the network.\n"
    "2. Start that client again: its queries go on from their checkpoints.\n"
    "3. Let the client wait in awaitTermination(), or raise the server's time-out "
    "(spark.connect.session.manager.defaultSessionTimeout)."
)
STEPS_OF_PROGRAM = (
    "1. Find out why the main program ended: the log of the driver, its exit code.\n"
    "2. Start the job again: its queries go on from their checkpoints.\n"
    "3. Let it wait for its queries (await_any_failure), and announce a planned end: spark.stop()."
)
STEPS_OF_LOST_IDENTITY = (
    "1. Find out what deleted the file metadata of the checkpoint, such as a lifecycle rule.\n"
    "2. Look for rows that the first batch of this run has written twice.\n"
    "3. Exclude the checkpoint from the rule: it deletes the other files next."
)
NEW_OUTPUT = (
    "1. Stop the query: it commits batches whose rows it does not write.\n"
    "2. Start it with its old checkpoint; or with a new one and another output folder.\n"
    "3. Let the new checkpoint begin before the skipped rows, while the source still has them."
)
READ_AGAIN = """\
1. Read the records before they are deleted: with startingOffsets and a checkpoint of their own.
2. Find out why: a checkpoint that is new or was lost, or a topic that was created again.
3. If they may be left out, silence this alert; it ends a day after it was found."""
READ_NEW_TOPIC = """\
1. The topic was created again, and the query skips its first records: read them with another one.
2. Find out who did that: what was not read of the old topic is lost; its producers may have it.
3. Start the query with a new checkpoint, if its sink tolerates what it then reads again."""
RESTORE = """\
1. The records are deleted: restore them from another system, or from the topic's producer.
2. Raise the topic's retention above the longest time that the query may be down.
3. If they may be left out, silence this alert; it ends a day after it was found."""
READ_VERSIONS = """\
1. Read the versions before their commits are deleted: with startingVersion and another checkpoint.
2. Find out why: a checkpoint that is new or was lost, with startingVersion or startingTimestamp.
3. If they may be left out, silence this alert; it ends a day after it was found."""
READ_TABLE = """\
1. Read what the table still has of them: in a batch, or with a new checkpoint and its snapshot.
2. Raise delta.logRetentionDuration above the longest time that the query may be down.
3. If they may be left out, silence this alert; it ends a day after it was found."""
STEPS_OF_LOST = (
    "1. Read why executors are lost: spot capacity is taken back, memory (137, OOM), bad nodes.\n"
    "2. Move them to nodes that stay, or give them more memory: the batch then goes on by itself.\n"
    "3. If they stay lossy, use smaller batches, or keep shuffle data elsewhere (decommission)."
)
FOLDER_BACK = (
    "1. Mount the folder again, or move it back: the query goes on by itself.\n"
    "2. Find out what moved or removed it, and whether its producer writes elsewhere now.\n"
    "3. If it is elsewhere for good, start the query with the new path and a new checkpoint."
)


REPEATS = "its sink may then have rows twice"
"""What a restart does that repeats a batch."""


def _numbered(*steps: str) -> str:
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


_RESTART = re.compile(
    r"(?<!not )\b(?:restart|start) (?:it|the query|the queries|the job|a run)\b(?! with\b)",
    re.IGNORECASE,
)
"""A step that restarts what the alert is about as it is: not with a new checkpoint or path, and not
one of several queries that use the same checkpoint.
"""


def has_restart(steps: str) -> bool:
    """Return whether one of the next steps is a restart, so that they should say how."""
    return _RESTART.search(steps) is not None


STEPS: dict[type[Facts], str] = {
    facts.CheckpointTaken: STEPS_OF_TAKEN,
    facts.SessionExpired: STEPS_OF_EXPIRED,
    facts.ProgramEnded: STEPS_OF_PROGRAM,
    facts.NoActivity: _numbered(
        "See in a thread dump (Spark UI, Executors, driver) what its stream thread waits for.",
        "Free that: a source or catalog that does not answer, a checkpoint store, a lock.",
        "If it does not begin, restart the query, or the job.",
    ),
    facts.StartOverdue: _numbered(
        "See in the driver log what the function that starts it waits for, or raises.",
        "Free that: a source or catalog that does not answer, a lock, another start before it.",
        "If it does not return, restart the job from the same checkpoints.",
    ),
    facts.NeverSeen: _numbered(
        "Compare known_queries with the expected name: a typo, or a query without a name?",
        "If it did not start, read the driver log, then start the query, or restart the job.",
        "If it is not needed any more, remove it from expected_queries.",
    ),
    facts.SchedulerStopped: _numbered(
        "Read in the driver log why dag-scheduler-event-loop ended or waits: memory, a listener.",
        "Take a thread dump of the driver for later (Spark UI, Executors), if it still answers.",
        f"Restart the job: batches in flight are repeated; {REPEATS}.",
    ),
    facts.WaitingForSlots: _numbered(
        "Read in the reason who holds the slots: another query, a backfill, a job of a notebook.",
        "End it, or give it a pool of its own (spark.scheduler.pool) so that each gets a share.",
        "If all of them are needed at once, add executors; the batch goes on by itself.",
    ),
    facts.SourceHung: _numbered(
        "Check that the source answers: brokers, the listing of a folder, a catalog, the network.",
        "Repair it; most clients go on by themselves.",
        "If the query does not continue, restart it: no batch is in flight.",
    ),
    **dict.fromkeys(
        (facts.WaitsForLog, facts.LogBehind, facts.NoEpoch),
        _numbered(
            "Check the storage of the checkpoint: full, slow, read-only; can the driver write?",
            "Repair it: commits are then written, and the query goes on.",
            f"If it does not, restart it: batches since the last commit are repeated; {REPEATS}.",
        ),
    ),
    facts.Silent: _numbered(
        "Check the JVM of the driver: does the Spark UI answer; memory, CPU, garbage collection?",
        "Take a thread dump for later, if it answers (Spark UI, Executors, driver).",
        f"Else restart the job: batches in flight are repeated; {REPEATS}.",
    ),
    facts.NoTrigger: _numbered(
        "Take a thread dump of the driver (Spark UI, Executors): where is its stream thread?",
        "Free what it waits for: a listener, a lock, a source that does not answer.",
        "If it does not continue, restart the query: no batch is in flight.",
    ),
    facts.SlotsHeld: _numbered(
        "Decide which query goes first: those in waiting get nothing until this one frees slots.",
        "Stop or limit this one, or add executors.",
        "Restart it in a pool of its own (spark.scheduler.pool), so that each query gets a share.",
    ),
    facts.OpenTransaction: _numbered(
        "Find the producer whose transaction stays open: kafka-transactions.sh find-hanging.",
        "End that producer, or abort its transaction: kafka-transactions.sh abort.",
        "The query then reads on by itself. A shorter transaction.timeout.ms prevents the next.",
    ),
    facts.WatermarkAhead: _numbered(
        "Find the producer whose event times are in the future: a clock, a unit, a time zone.",
        "Filter such rows out before withWatermark: the watermark never goes back.",
        "Start the query with a new checkpoint, or wait until the clock has reached the watermark.",
    ),
    facts.WatermarkStuck: _numbered(
        "See which source's event times do not advance: an idle topic or partition, a stopped one.",
        "Repair that producer; the watermark is that of the slowest source.",
        "If one may be idle: multipleWatermarkPolicy max, only with a new checkpoint; rows of the "
        "slower source are then dropped.",
    ),
    facts.StateGrowing: _numbered(
        "Find what should clear this operator: a watermark on a column of its keys, a time-out.",
        "Add withWatermark, or a time-out or TTL to its function; mostly with a new checkpoint.",
        "Until then, give the executors memory and disk, and the limit some room if it is too low.",
    ),
    **dict.fromkeys(
        (facts.SkippedBySink, facts.SinkRemembers, facts.BatchIdsWentBack),
        NEW_OUTPUT,
    ),
    facts.FolderGone: FOLDER_BACK,
    facts.ReadsNothing: _numbered(
        "New data arrives, and the query reads none of it: check its filter, schema, subscription.",
        "Look for aborted transactions, or files and records that it skips (ignoreCorruptFiles).",
        "Repair that and restart it; what it has passed over is not read again.",
    ),
    facts.HeapFull: _numbered(
        "Take a heap histogram now (jmap -histo PID): it names what fills the heap.",
        "Restart the job before the heap is full: each query repeats one batch at most.",
        "Raise spark.driver.memory, or remove what the job keeps: collect(), caches, listeners.",
    ),
    facts.InCollection: _numbered(
        "Take a heap histogram now (jmap -histo PID): it names what fills the heap.",
        "Restart the job: until then its batches are slow, and late heartbeats cost it executors.",
        "Raise spark.driver.memory, or remove what the job keeps: collect(), caches, listeners.",
    ),
    facts.ContainerFull: _numbered(
        "Restart the job before the kernel kills it: each query repeats one batch at most.",
        "If the heap has room, it is memory outside: Python, direct buffers, RocksDB.",
        "Raise the container's memory (spark.driver.memoryOverhead), or bound what grows.",
    ),
    facts.DisksFull: _numbered(
        "Free space on the disk, or enlarge it, before batches fail.",
        "See what grows there: du -x --max-depth=2 PATH | sort -n.",
        "If it is the state of a query, see what should remove its rows: a watermark, a time-out.",
    ),
    facts.AttemptLost: _numbered(
        "Check that the queries work again: the alert ends when one does.",
        "See why the attempt ended: yarn applicationattempt -list APPLICATION, and its log.",
        "If its container used too much memory, raise spark.driver.memoryOverhead.",
    ),
    facts.JvmEnded: _numbered(
        "Check that the job is started again: without its JVM, the driver can only end.",
        "Read the end of the driver log and its exit code: out of memory (137), an eviction.",
        "If nothing starts it, restart the job from the same checkpoints.",
    ),
}
"""The next steps of facts for which nothing else counts."""


@singledispatch
def own_steps(found: Facts, _evidence: Evidence = NO_EVIDENCE) -> str:
    """Return the next steps of what was found; empty where those of the runbook fit."""
    return STEPS.get(type(found), "")


@own_steps.register
def _as_reported(found: facts.Reported, _evidence: Evidence = NO_EVIDENCE) -> str:
    return found.evidence.get(NEXT_STEPS, "")


@own_steps.register
def _clear_state(found: facts.StateGrowing, _evidence: Evidence = NO_EVIDENCE) -> str:
    return STEPS[facts.WatermarkStuck if found.cause is WhyKept.WATERMARK_STUCK else type(found)]


@own_steps.register
def _of_newest(found: facts.Unnamed, evidence: Evidence = NO_EVIDENCE) -> str:
    return own_steps(found.newest.facts, evidence)


@own_steps.register
def _of_first(found: facts.ShareCause, evidence: Evidence = NO_EVIDENCE) -> str:
    return own_steps(found.members[0].facts, evidence)


# -- runs that ended, or never began ----------------------------------------------------------


@own_steps.register
def _after_error(found: facts.Failed, evidence: Evidence = NO_EVIDENCE) -> str:
    failure = found.failure
    text = f"{failure.error_class} {failure.exception} {failure.message}"
    moved = _MOVED.search(text)
    if moved is not None:
        was, now = (int(offset) for offset in moved.groups() if offset is not None)
        return ENDS_EARLIER if now < was else AGED_OUT
    steps = next((steps for error, steps in STEPS_BY_ERROR.items() if error.search(text)), "")
    if steps:
        return steps
    if found.expected_within is not None:
        wait = (
            f"Wait {duration(found.expected_within)}: its restart is expected, and ends this alert."
        )
        return _numbered(wait, f"If it does not come: {_restart(evidence)}", _repair(failure))
    read = f"{_read_error(failure)}; a conflict or an outage may be over already."
    return _numbered(read, _restart(evidence), _repair(failure))


def _read_error(failure: Failure) -> str:
    return "Read the error and python_line" if failure.raised_at.line else "Read the error"


def _restart(evidence: Evidence) -> str:
    if evidence.ends_driver:
        return (
            "Check that the job is started again, else start it, from the same checkpoints: "
            "the batch is repeated."
        )
    return "Restart the query or the job from the same checkpoint: the failed batch is repeated."


def _repair(failure: Failure) -> str:
    where = " at that line" if failure.raised_at.line else ""
    return (
        f"If the same batch fails again{where}, repair or set aside its rows: see the runbook "
        "StreamingQueryFlapping."
    )


@own_steps.register
def _after_stop(found: facts.Stopped, evidence: Evidence = NO_EVIDENCE) -> str:
    if found.how is facts.HowStopped.WITH_CONTEXT:
        return _numbered(
            "Find in the driver log what stopped the SparkContext: memory, a lost master.",
            "Restart the job: no query can run in this SparkContext any more.",
            "If the job itself ends like that, let it call spark.stop(), which announces the end.",
        )
    ask = "Ask who stopped it: a deployment, a colleague, the job's own code."
    if found.how is facts.HowStopped.VANISHED:
        ask = "Read its end in the driver log: Spark did not report it; a fatal error?"
    again = "Start the query again, or restart the job."
    if evidence.ends_driver:
        again = "Check that the job is started again, else start it, from the same checkpoints."
    return _numbered(
        ask, again, "If it was planned, announce it next time with sidecar.expect_stop(name)."
    )


@own_steps.register
def _complete(found: facts.NotCompleted, _evidence: Evidence = NO_EVIDENCE) -> str:
    first = "Check the scheduler that starts its runs, and the log of the last one."
    second = "Start a run now: it goes on from the checkpoint."
    if found.running_seconds is not None:
        first = "See on the status page and the Spark UI whether the run makes progress."
        second = "If it does, let it complete; if not, restart it from the same checkpoint."
    return _numbered(first, second, "If it may take so long, set complete_by of the query later.")


@own_steps.register
def _set_aside(found: facts.PoisonBatch, _evidence: Evidence = NO_EVIDENCE) -> str:
    return _numbered(
        f"Stop whatever restarts the query, then {_read_last(found)}: which row or file breaks it?",
        f"Repair the rows of batch {found.batch_id}, or set them aside; a restart does not help.",
        "Then restart the query from the same checkpoint.",
    )


def _read_last(found: facts.PoisonBatch | facts.ManyFailures) -> str:
    failure = found.failure
    names = {
        "error_message": failure is not None and failure.message,
        "python_line": failure is not None and failure.raised_at.line,
        "deaths": found.failures,
    }
    return f"read {' and '.join([name for name, text in names.items() if text][:2])}"


@own_steps.register
def _find_disturber(found: facts.ManyFailures, _evidence: Evidence = NO_EVIDENCE) -> str:
    return _numbered(
        f"Stop whatever restarts the query, then {_read_last(found)}: several batches fail.",
        "Remove the cause, such as a second writer, an outage, or too little memory.",
        "Then restart the query from the same checkpoint.",
    )


# -- batches ----------------------------------------------------------------------------------


@own_steps.register
def _free_task(found: facts.TaskRunning, evidence: Evidence = NO_EVIDENCE) -> str:
    where = "the stage of its active job"
    if found.longest is not None:
        where = f"stage {found.longest.stage}, partition {found.longest.partition}"
    return _numbered(
        f"Open {where} in the Spark UI: one partition with far more rows, or a task that waits?",
        "Free what it waits for, or end its executor: Spark then runs the task elsewhere.",
        _restart_batch(evidence),
    )


def _restart_batch(evidence: Evidence) -> str:
    if evidence.on_restart is not None and evidence.on_restart.is_done:
        return (
            f"If it does not continue, restart the job; batches in on_restart run again: {REPEATS}."
        )
    return f"If it does not continue, restart the job: the batch is repeated; {REPEATS}."


@own_steps.register(facts.ExecutorsLost)
@own_steps.register(facts.NoExecutors)
def _keep_executors(found: Facts, _evidence: Evidence = NO_EVIDENCE) -> str:
    if isinstance(found, facts.ExecutorsLost) or _loses_executors(found):
        return STEPS_OF_LOST
    return _numbered(
        "See why the cluster gives no executor: quota, capacity, an image, the queue, dead nodes.",
        "Give it executors: the batch then goes on by itself.",
        "If dynamic allocation waits for none, raise spark.dynamicAllocation.minExecutors.",
    )


def _loses_executors(found: Facts) -> bool:
    return found.lost is not None and found.lost.are_a_cause


@own_steps.register
def _free_thread(_: facts.BatchHung, evidence: Evidence = NO_EVIDENCE) -> str:
    return _numbered(
        f"{_where_it_waits(evidence)}: what does the batch wait for?",
        "Free that: a lock, a slow service, another job.",
        _restart_batch(evidence),
    )


def _where_it_waits(evidence: Evidence) -> str:
    run = None if evidence.query is None else evidence.query.run
    activity = None if run is None else run.activity
    if activity is None:
        return "Take a thread dump of the driver (Spark UI, Executors)"
    names = {
        "python_line": activity.python_line,
        "stream_thread": activity.jvm_stack,
        "tasks": True,
    }
    return f"Read {' and '.join([name for name, text in names.items() if text][:2])}"


STEPS_BY_CAUSE = {
    SlowCause.SKEW: _numbered(
        "See which key has most of the rows: a null, a default, one large customer.",
        "Split it: salt the key, repartition, or set it apart; adaptive execution splits joins "
        "only in a foreachBatch.",
        "If that partition has as many rows as the others, look at its host in likely_cause.",
    ),
    SlowCause.SPILL: _numbered(
        "Give tasks more memory (spark.executor.memory), or run fewer of them in an executor.",
        "Make their data smaller: more partitions (spark.sql.shuffle.partitions; with state only "
        "for a new checkpoint), or smaller batches.",
        "If the backlog shrinks, do nothing until then.",
    ),
    SlowCause.GARBAGE_COLLECTION: _numbered(
        "See in likely_cause whether it is the memory of the executors or of the driver.",
        "Give it more memory, and find what fills it: collect(), cache(), a broadcast, state.",
        "Else it ends: a JVM that cannot free memory spends all of its time in that.",
    ),
    SlowCause.SHUFFLE_WAIT: _numbered(
        "Look for an executor that is lost, overloaded, or on a slow network or disk.",
        "Shuffle less: fewer columns, a filter before the join, a broadcast of the small side.",
        "If executors come and go, keep them longer, or use an external shuffle service.",
    ),
    SlowCause.SOURCE_LISTING: _numbered(
        "See what the source has to list: the files of a folder, or the versions of a table.",
        "Remove or archive what was read (cleanSource), compact small files, or use notifications.",
        "If a broker or a store answers slowly, repair that.",
    ),
    SlowCause.PLANNING: _numbered(
        "See what the plan grows with: columns, unions, files, a lineage that is never cut.",
        "Compact the tables that it joins, and collect no statistics while it plans.",
        "If foreachBatch builds one plan on another, write in between, or checkpoint it.",
    ),
    SlowCause.SLOW_COMMIT: _numbered(
        "Check the store of the checkpoint: is it slow, throttled, or full?",
        "Move it to a faster one; a checkpoint is moved only while its query is stopped.",
        "Make batches longer: each one writes there twice, whatever its size.",
    ),
    SlowCause.STATE_COMMIT: _numbered(
        "See on the status page whether its state grows: rows, bytes.",
        "Use RocksDB with changelog checkpointing, which uploads only what has changed.",
        "Limit the state with a watermark or a time-out, or give its executors faster disks.",
    ),
    SlowCause.WAITING_FOR_SLOTS: _numbered(
        "See who holds the slots: the query in likely_cause, or the Spark UI, Stages.",
        "Stop or limit that one, or add executors.",
        "Give each query a pool of its own (spark.scheduler.pool), so that each gets a share.",
    ),
}
"""The next steps where batches are slow and the likely cause is known."""


def _steps_by_cause(evidence: Evidence) -> str:
    slow = None if evidence.query is None else evidence.query.slowness
    return "" if slow is None or slow.cause is None else STEPS_BY_CAUSE[slow.cause.cause]


@own_steps.register(facts.BatchesGrow)
@own_steps.register(facts.LagRises)
@own_steps.register(facts.WaitedTooLong)
def _speed_up(_: Facts, evidence: Evidence = NO_EVIDENCE) -> str:
    return _steps_by_cause(evidence)


@own_steps.register
def _let_it_work(found: facts.BatchSlow, evidence: Evidence = NO_EVIDENCE) -> str:
    if _loses_executors(found):
        return STEPS_OF_LOST
    by_cause = _steps_by_cause(evidence)
    if by_cause:
        return by_cause
    return _numbered(
        "Check on the status page whether completed tasks and started jobs still grow.",
        f"{_where_it_waits(evidence)}: is it more data than usual, or something slow?",
        "If the backlog shrinks, do nothing; otherwise limit the batch size or add executors.",
    )


@own_steps.register
def _end_retries(found: facts.Retrying, evidence: Evidence = NO_EVIDENCE) -> str:
    if _loses_executors(found):
        return STEPS_OF_LOST
    return _numbered(
        f"{_where_it_waits(evidence)}: what does the batch repeat, such as a MERGE?",
        "Stop what it conflicts with, such as a second writer or a compaction.",
        _restart_batch(evidence),
    )


@own_steps.register
def _finish_batch(found: facts.NeverCommitted, _evidence: Evidence = NO_EVIDENCE) -> str:
    if _loses_executors(found):
        return STEPS_OF_LOST
    return _numbered(
        "Do not restart it: each time, this batch begins again from nothing.",
        "Give it what it needs to finish: executors, memory, a longer time-out of what ends it.",
        "If it cannot finish, see the runbook: a planned batch keeps its size over restarts.",
    )


@own_steps.register
def _after_going_back(found: facts.OffsetsWentBack, _evidence: Evidence = NO_EVIDENCE) -> str:
    if not found.has_gone_back:
        return STEPS_OF_LOST_IDENTITY
    if not found.ends_before:
        return ""
    return ENDS_EARLIER if found.ends_before[0].source.startswith("Kafka") else TABLE_REPLACED


# -- unread and late data -----------------------------------------------------------------------


# -- lost and missing data ----------------------------------------------------------------------


@own_steps.register
def _read_again(found: facts.PassedOver, _evidence: Evidence = NO_EVIDENCE) -> str:
    if all(gap.cause is Cause.RECREATED for gap in found.gaps):
        return READ_NEW_TOPIC
    if found.is_readable:
        return READ_VERSIONS if found.are_tables else READ_AGAIN
    return READ_TABLE if found.are_tables else RESTORE


@own_steps.register
def _restore(found: facts.RetentionUsed, _evidence: Evidence = NO_EVIDENCE) -> str:
    worst = found.risks[0]
    if not (worst.lost or worst.gone):
        return ""
    return {"version": LOG_CLEANED, "snapshot": SNAPSHOT_EXPIRED}.get(worst.unit, AGED_OUT)


# -- the driver and the monitor -----------------------------------------------------------------


@own_steps.register
def _unblock_events(found: facts.EventsMissing, _evidence: Evidence = NO_EVIDENCE) -> str:
    if not found.is_registered:
        repair = (
            "The job's own code has removed the listener (listener_registered): restart the job."
        )
    elif found.full_queues:
        repair = "Remove or repair the slow listener of other_listeners, then restart the job."
    else:
        repair = "Find the slow listener in the job's code or jars, then restart the job."
    return _numbered(
        "No hurry: alerts still work, since the probe sees failures and hangs without events.",
        repair,
        "If none is slow, raise spark.scheduler.listenerbus.eventqueue.capacity.",
    )


@own_steps.register
def _restore_sight(found: facts.Degraded, _evidence: Evidence = NO_EVIDENCE) -> str:
    if found.silent_seconds is not None:
        return _numbered(
            "The JVM does not answer: check garbage collections, memory and CPU.",
            "Watch the queries in the Spark UI: until it answers, a hang may be seen late.",
            "If queries are stalled too, their own alert says what to do.",
        )
    if found.unread_checkpoints:
        return _numbered(
            "Read in the reason which checkpoints cannot be read, and why.",
            "Give the driver permission to read them, or wait until the storage is back.",
            "Watch these queries in the Spark UI: their commits are not seen.",
        )
    return _numbered(
        "A rule of querypulse has raised an error; the other rules still work.",
        "Report it with the traceback in the driver log, and the version of querypulse.",
        "Watch in the Spark UI what that rule would report.",
    )
