"""Next steps: what to do about one finding, where its runbook's are too general.

The usual next steps of an alert are a section of its runbook, ``dashboards/runbooks/``.
"""

from __future__ import annotations

import re
from functools import singledispatch

from ...listener.failure import SESSION_ENDED
from ...listener.state.positions import Cause
from .. import facts
from ..facts import Facts

NEXT_STEPS = "next_steps"
"""The annotation: three lines."""

ENDS_EARLIER = (
    "1. The log ends before the offset that the query has read: it was cut (unclean leader"
    " election), restored or mirrored, or the topic was created again (another TopicId).\n"
    "2. If the records up to there come back, restart then; otherwise start with a new checkpoint,"
    " and startingOffsets where the old log was left.\n"
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
            "3. Restart this query from the same checkpoint."
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
        "Cannot load current offset at snapshot|Cannot find snapshot after": (
            "1. The table has expired the snapshot of the checkpoint: a restart fails again.\n"
            "2. Start with a new checkpoint and stream-from-timestamp, the time of the last commit;"
            " read snapshots that have expired since then from the table itself.\n"
            "3. Keep snapshots (history.expire.max-snapshot-age-ms) longer than it may be down."
        ),
        r'return value of "org\.apache\.iceberg\.Snapshot\.parentId\(\)" is null'
        "|is not a parent ancestor of end snapshot": (
            "1. The table was rolled back behind the snapshot of the checkpoint.\n"
            "2. Roll it forward again, or start with a new checkpoint and stream-from-timestamp.\n"
            "3. Rows that were rolled back may have been written already: check the sink."
        ),
        "DELTA_LOG_FILE_NOT_FOUND(?:_FOR_STREAMING_SOURCE)?|DELTA_VERSION_NOT_FOUND": (
            "1. The log of the table was cleaned up before the query had read it: a restart fails"
            " again, also with failOnDataLoss=false.\n"
            "2. Start with a new checkpoint: it reads the whole table, or from startingTimestamp.\n"
            "3. Keep the log (delta.logRetentionDuration) longer than the query may be down."
        ),
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


@singledispatch
def own_steps(_: Facts) -> str:
    """Return the next steps of what was found; empty where those of the runbook fit."""
    return ""


@own_steps.register
def _of_newest(found: facts.Unnamed) -> str:
    return own_steps(found.newest.facts)


@own_steps.register
def _of_first(found: facts.ShareCause) -> str:
    return own_steps(found.members[0].facts)


@own_steps.register
def _after_error(found: facts.Failed) -> str:
    failure = found.failure
    text = f"{failure.error_class} {failure.exception} {failure.message}"
    moved = _MOVED.search(text)
    if moved is not None:
        was, now = (int(offset) for offset in moved.groups() if offset is not None)
        return ENDS_EARLIER if now < was else AGED_OUT
    return next((steps for error, steps in STEPS_BY_ERROR.items() if error.search(text)), "")


@own_steps.register(facts.ExecutorsLost)
@own_steps.register(facts.NoExecutors)
@own_steps.register(facts.BatchSlow)
def _keep_executors(found: Facts) -> str:
    return STEPS_OF_LOST if found.lost is not None and found.lost.are_a_cause else ""


@own_steps.register
def _decide_owner(_: facts.CheckpointTaken) -> str:
    return STEPS_OF_TAKEN


@own_steps.register
def _start_again(_: facts.ProgramEnded) -> str:
    return STEPS_OF_PROGRAM


@own_steps.register(facts.SkippedBySink)
@own_steps.register(facts.SinkRemembers)
def _change_output(_: Facts) -> str:
    return NEW_OUTPUT


@own_steps.register
def _read_again(found: facts.PassedOver) -> str:
    if all(gap.cause is Cause.RECREATED for gap in found.gaps):
        return READ_NEW_TOPIC
    if found.is_readable:
        return READ_VERSIONS if found.are_tables else READ_AGAIN
    return READ_TABLE if found.are_tables else RESTORE


@own_steps.register
def _bring_back(_: facts.FolderGone) -> str:
    return FOLDER_BACK


@own_steps.register
def _after_going_back(found: facts.OffsetsWentBack) -> str:
    if not found.has_gone_back:
        return STEPS_OF_LOST_IDENTITY
    if not found.ends_before:
        return ""
    return ENDS_EARLIER if found.ends_before[0].source.startswith("Kafka") else TABLE_REPLACED


@own_steps.register
def _restore(found: facts.RetentionUsed) -> str:
    return AGED_OUT if found.risks[0].lost else ""
