"""Files of unread versions that were rewritten are found in the log, with few reads."""

from __future__ import annotations

import json

import pytest

from querypulse.listener.sources.delta_files import MAX_AT_ONCE, MAX_FILES, MAX_VERSIONS, read_on


def added(path):
    return {"add": {"path": path, "size": 7, "dataChange": True, "stats": '{"numRecords":3}'}}


def removed(path, at):
    return {"remove": {"path": path, "deletionTimestamp": at * 1000, "dataChange": False}}


def commit(*actions):
    info = {"commitInfo": {"timestamp": 1, "operation": "WRITE"}}
    return "\n".join(json.dumps(action) for action in (info, *actions)) + "\n"


class Log:
    """Commits from version 5 on; counts the reads."""

    def __init__(self, *commits):
        self.commits = dict(enumerate(commits, 5))
        self.reads = []

    def text(self, version):
        self.reads.append(version)
        return self.commits[version]

    def read_on(self, before=None, first=5):
        return read_on(before, first, 5 + len(self.commits), self.text)


@pytest.mark.parametrize(
    ("commits", "removed_at"),
    [
        ((commit(added("a")), commit(added("b"))), None),
        ((commit(added("a")), commit(removed("a", 70), removed("b", 60), added("c"))), 70.0),
        ((commit(added("a")), commit(removed("old", 60), added("new"))), None),
        ((commit(added("a"), added("b")), commit(removed("b", 70), removed("a", 60))), 60.0),
        ((None, commit(removed("a", 70))), None),
        ((commit(added("a")), commit(removed("a", 70), added("a"))), None),
        ((commit(added("a")), "{no JSON\n" + commit(removed("a", 70))), 70.0),
        ((commit({"remove": {"path": "a"}}), commit()), None),
        ((), None),
    ],
    ids=[
        "appends",
        "optimized",
        "rewritten before",
        "the first of two",
        "too long to read",
        "a deletion vector",
        "a broken line",
        "no time",
        "empty",
    ],
)
def test_only_the_removal_of_an_unread_file_counts(commits, removed_at):
    assert Log(*commits).read_on().removed_at == removed_at


def test_each_version_is_read_once_and_only_some_at_once():
    log, removals = Log(*[commit(added(str(number))) for number in range(500)]), None
    for _ in range(20):
        removals = log.read_on(removals)

    assert log.reads == list(range(5, 5 + MAX_VERSIONS))
    assert len(log.reads) > MAX_AT_ONCE


def test_files_are_kept_as_short_hashes_and_only_so_many():
    """A query that is stuck for days holds little memory: here, 600,000 files are unread."""
    path = "day=2026-11-28/hour=17/part-{}-c000.snappy.parquet"
    commits = [
        commit(*(added(path.format(number)) for number in range(start, start + 6000)))
        for start in range(0, 120_000, 6000)
    ]
    log, removals = Log(*commits, commit(removed(path.format(7), 70))), None
    for _ in range(20):
        removals = log.read_on(removals)

    assert len(removals.added) == MAX_FILES
    assert all(isinstance(file, int) and file.bit_length() < 64 for file in removals.added)
    assert log.reads == list(range(5, 5 + -(-MAX_FILES // 6000)))
    assert removals.removed_at is None, "reading has stopped"


def test_reading_starts_again_where_the_query_has_advanced():
    log = Log(commit(added("a")), commit(added("b")), commit(removed("a", 70)))
    assert log.read_on().removed_at == 70.0
    assert log.read_on(log.read_on(), first=6).removed_at is None
