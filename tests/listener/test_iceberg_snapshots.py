"""What a poll of an Iceberg table says of unread snapshots, and which of them may expire."""

from __future__ import annotations

import pytest

from querypulse.listener.source_polls import SourcePoll
from querypulse.listener.sources.iceberg import (
    MAX_AGE,
    MIN_KEPT,
    Expiry,
    Position,
    Snapshot,
    expiry_of,
    files_added,
    unread_poll,
)

DAY = 86_400.0
EXPIRES = Expiry(5 * DAY, "the setting")
READ = Snapshot(7, 70.0)


def polled(*operations, position=None, expiry=EXPIRES):
    """The poll after snapshot 7 was read and others came, one each ten seconds."""
    newer = [
        Snapshot(8 + number, 80.0 + 10 * number, operation == "append")
        for number, operation in enumerate(operations)
    ]
    empty = SourcePoll("t", {}, {}, {}, unit="snapshot")
    return unread_poll(empty, position or Position(1, 1), READ, newer, expiry)


def summary(poll):
    """The lag, since when data is unread, and for how long it is kept."""
    return poll.lag_offsets, poll.waiting_since.get(""), poll.retention_seconds.get("")


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ((), (0, None, None)),
        (("append",), (1, 80.0, None)),
        (("append", "append"), (2, 80.0, 5 * DAY)),
        (("append", "replace"), (2, 80.0, 5 * DAY)),
        (("replace",), (0, None, None)),
        (("replace", "replace", "delete"), (0, None, None)),
        (("replace", "append"), (1, 90.0, None)),
    ],
)
def test_only_appended_snapshots_are_unread_and_the_newest_one_never_expires(operations, expected):
    assert summary(polled(*operations)) == expected


def test_partly_read_snapshot_is_the_first_unread_one():
    poll = polled("append", position=Position(1, 3, is_partial=True))

    assert summary(poll) == (2, 70.0, 5 * DAY)
    assert (poll.committed, poll.within) == ({"": 7}, {"": 3})


def test_snapshots_that_are_always_kept_do_not_expire():
    kept = polled("append", "append", "append", expiry=Expiry(5 * DAY, "", 3))
    beyond = polled("append", "append", "append", "append", expiry=Expiry(5 * DAY, "", 3))

    assert (kept.retention_seconds, beyond.retention_seconds) == ({}, {"": 5 * DAY})


def test_snapshot_that_was_not_examined_counts_as_unread_without_a_time():
    empty = SourcePoll("t", {}, {}, {})
    poll = unread_poll(empty, Position(1, 1), READ, [Snapshot(8), Snapshot(9)], EXPIRES)

    assert summary(poll) == (2, None, None)


@pytest.mark.parametrize(
    ("properties", "branch", "expected"),
    [
        ({}, (None, None), Expiry(5 * DAY, f"{MAX_AGE}, by default 5 d", 1)),
        ({MAX_AGE: "7200000", MIN_KEPT: "9"}, (None, None), Expiry(7200.0, f"{MAX_AGE}, 2 h", 9)),
        ({MAX_AGE: "7200000"}, (60_000, 4), Expiry(60.0, f"{MAX_AGE}, 60 s", 4)),
        ({"gc.enabled": "false", MAX_AGE: "1"}, (None, None), Expiry()),
        ({MAX_AGE: "5d"}, (None, None), Expiry()),
        ({MAX_AGE: "5d"}, (60_000, 4), Expiry()),
        ({MIN_KEPT: "many"}, (None, None), Expiry()),
    ],
    ids=[
        "defaults",
        "properties",
        "overridden by the branch",
        "nothing may be deleted",
        "no number",
        "no number, overridden",
        "no number to keep",
    ],
)
def test_expiry_follows_the_properties_of_table_and_branch(properties, branch, expected):
    assert expiry_of(properties, *branch) == expected


@pytest.mark.parametrize(
    ("summary", "files"),
    [
        ({"added-data-files": "3"}, 3),
        ({"added-data-files": None}, 0),
        ({"added-data-files": "x"}, 0),
        ({}, 0),
        (None, 0),
    ],
)
def test_snapshot_without_a_readable_summary_adds_no_known_files(summary, files):
    assert files_added(summary) == files
