"""How far the logs of a checkpoint reach, found with few requests to the storage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.storage import MemoryCheckpoint

from querypulse.listener.checkpoints import LIST_EVERY_SECONDS, MAX_STEPS, CheckpointLogs
from querypulse.listener.commit_log import (
    REASON_CHARACTERS,
    LoggedBatches,
    StorageError,
    ids_in,
    short_reason,
)

# -- names ------------------------------------------------------------------------------------


def listing(*names, folder="file:/cp/offsets"):
    return f"Array({', '.join(f'{folder}/{name}' for name in names)})"


def test_only_names_of_digits_are_batches():
    names = [
        "0",
        ".0.crc",
        "10",
        ".11.1b2c.tmp",
        "9.tmp",
        "-1",
        "007x",
        "a1",
        "1a",
        "٣",
        "2.compact",
    ]

    assert ids_in(listing(*names), "offsets") == [0, 10]


def test_ids_are_compared_as_numbers():
    assert max(ids_in(listing("9", "10", "100", "99"), "offsets")) == 100


def test_empty_folder_holds_no_batch():
    assert ids_in("Array()", "offsets") == []


@pytest.mark.parametrize(
    "folder",
    [
        "file:/data/a b, c/offsets",
        "s3a://bucket/7, 8/offsets",
        "abfss://c@account.dfs.core.windows.net/a%20b/12/offsets",
        "file:/x(1)/commits/5)/offsets",
        "hdfs://host:8020/commits/5, /offsets",
    ],
)
def test_digits_in_the_checkpoint_path_are_not_batches(folder):
    assert ids_in(listing("3", "4", folder=folder), "offsets") == [3, 4]


@given(st.sets(st.integers(0, 10**12)))
def test_every_batch_of_a_listing_is_found(batches):
    assert set(ids_in(listing(*batches), "offsets")) == batches


# -- following --------------------------------------------------------------------------------


def followed(checkpoint, *, gaps=False):
    """Both logs after the first reading."""
    logs = CheckpointLogs(checkpoint, gaps=gaps)
    logs.read(0)
    checkpoint.questions()
    return logs


def test_first_reading_lists_each_log_once():
    checkpoint = MemoryCheckpoint(offsets=range(5, 105), commits=range(5, 104))

    assert CheckpointLogs(checkpoint, gaps=False).read(0) == LoggedBatches(104, 103)
    assert checkpoint.questions() == {"list": 2, "has": 0}


def test_unchanged_log_is_never_listed_again():
    checkpoint = MemoryCheckpoint(offsets=range(5), commits=range(4))
    logs = followed(checkpoint)

    assert {logs.read(at) for at in range(1, 100)} == {LoggedBatches(4, 3)}
    assert checkpoint.questions() == {"list": 0, "has": 4 * 99}


def test_growing_log_is_followed_without_listing():
    checkpoint = MemoryCheckpoint(offsets=[0], commits=[0])
    logs = followed(checkpoint)
    for batch in range(1, 20):
        checkpoint.plan(batch)
        assert logs.read(batch) == LoggedBatches(batch, batch - 1)
        checkpoint.commit(batch)
        assert logs.read(batch) == LoggedBatches(batch, batch)

    assert checkpoint.questions()["list"] == 0


@pytest.mark.parametrize(
    ("batches", "committed", "below", "seen", "listed"),
    [
        (1, range(1, 1000), 0, LoggedBatches(999, 999), True),
        (5, range(200, 300), 200, LoggedBatches(299, 299), True),
        (100, (), 98, LoggedBatches(99, 99), False),
        (5, (), 1000, LoggedBatches(None, None), True),
    ],
    ids=["far ahead", "purged beyond the known batch", "purged up to it", "deleted"],
)
def test_log_is_listed_again_only_when_the_known_batch_is_far_behind_or_gone(
    batches, committed, below, seen, listed
):
    checkpoint = MemoryCheckpoint(offsets=range(batches), commits=range(batches))
    logs = followed(checkpoint)
    checkpoint.commit(*committed)
    checkpoint.purge(below=below)

    assert logs.read(1) == seen
    questions = checkpoint.questions()
    assert questions["list"] == 2 * listed
    assert questions["has"] <= 2 * MAX_STEPS


def test_missing_checkpoint_has_empty_logs_until_it_exists():
    checkpoint = MemoryCheckpoint()
    logs = followed(checkpoint)

    assert logs.read(1) == LoggedBatches(None, None)
    checkpoint.plan(0)
    assert logs.read(2) == LoggedBatches(0, None)


def test_log_with_gaps_is_listed_every_few_seconds_at_most():
    checkpoint = MemoryCheckpoint(offsets=[0, 5, 9], commits=[0, 5])
    logs = followed(checkpoint, gaps=True)
    checkpoint.commit(14)

    assert logs.read(LIST_EVERY_SECONDS - 0.1) == LoggedBatches(9, 5)
    assert checkpoint.questions() == {"list": 0, "has": 0}
    assert logs.read(LIST_EVERY_SECONDS) == LoggedBatches(14, 14)
    assert checkpoint.questions() == {"list": 2, "has": 0}


@pytest.mark.parametrize("gaps", [False, True])
def test_reading_resumes_where_it_was_after_a_storage_error(gaps):
    checkpoint = MemoryCheckpoint(offsets=range(3), commits=range(3))
    logs = followed(checkpoint, gaps=gaps)
    checkpoint.commit(3)
    checkpoint.refusal = "Connection refused"
    with pytest.raises(StorageError, match="Connection refused"):
        logs.read(LIST_EVERY_SECONDS)
    checkpoint.refusal = ""

    assert logs.read(LIST_EVERY_SECONDS + 1) == LoggedBatches(3, 3)


def test_batch_finished_during_the_reading_does_not_look_unfinished():
    class Busy(MemoryCheckpoint):
        """Plans and commits its next batch between any two requests."""

        def _answer(self, question, answer):
            self.commit(max(self.logs["offsets"]) + 1)
            return super()._answer(question, answer)

    logs = CheckpointLogs(Busy(offsets=[0], commits=[0]), gaps=False)
    for at in range(10):
        seen = logs.read(at)
        assert seen.planned <= seen.committed


# -- storage errors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An error occurred while calling o224.listStatus.\n"
            ": java.io.IOException: Filesystem closed\n\tat org.apache.hadoop.hdfs.DFSClient",
            "java.io.IOException: Filesystem closed",
        ),
        ("Can not create a Path from an empty string\n\nJVM stacktrace:\njava.lang",
         "Can not create a Path from an empty string"),
        ("", ""),
    ],
    ids=["Py4J's form", "PySpark's form", "empty"],
)  # fmt: skip
def test_reason_is_the_java_exceptions_own_line(text, reason):
    assert short_reason(text) == reason


def test_reason_is_short_and_holds_no_secret():
    text = f": java.io.IOException: GET https://a.blob/cp?sig=hunter2&se={'1' * 1000}\n\tat x"

    assert "hunter2" not in short_reason(text)
    assert len(short_reason(text)) <= REASON_CHARACTERS
