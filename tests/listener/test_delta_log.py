"""The end of a Delta table's log is found with few requests, even after the table was replaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querypulse.listener.offsets import END_INDEX, first_unread
from querypulse.listener.sources.delta import (
    commit_name,
    end_of,
    oldest_of,
    versions_in,
)
from querypulse.listener.sources.delta_begins import (
    MAX_WITHOUT_ROWS,
    Begin,
    LogSeen,
    behind_rows,
    passed_over,
    version_in,
)


class Log:
    """The log of a table with these versions; counts the requests."""

    def __init__(self, versions):
        self.present = set(versions)
        self.requests = 0
        self.listed = 0

    def has(self, version):
        self.requests += 1
        return version in self.present

    def versions(self):
        self.listed += 1
        return list(self.present)


def end(log, start):
    return end_of(log.has, log.versions, start)


@given(oldest=st.integers(0, 50), count=st.integers(1, 3000), start=st.integers(0, 3100))
def test_end_is_found_from_any_earlier_position(oldest, count, start):
    log = Log(range(oldest, oldest + count))

    assert end(log, start) == oldest + count


@pytest.mark.parametrize(("new", "most"), [(0, 2), (1, 3), (7, 8), (1000, 25), (100_000, 40)])
def test_search_needs_few_requests_and_no_listing(new, most):
    log = Log(range(1000 + new))

    assert end(log, 1000) == 1000 + new
    assert log.requests <= most
    assert log.listed == 0


@pytest.mark.parametrize(
    ("versions", "ends"),
    [(range(2), 2), (range(40, 60), 60), ((), 0)],
    ids=["a shorter replacement", "a log that starts later", "no versions"],
)
def test_log_without_the_known_version_is_listed(versions, ends):
    log = Log(versions)

    assert (end(log, 5), log.listed) == (ends, 1)


@given(missing=st.integers(0, 50), kept=st.integers(1, 3000))
def test_oldest_version_behind_a_deleted_one_is_found_with_few_requests(missing, kept):
    oldest, end = missing + kept, missing + 2 * kept
    log = Log(range(oldest, end))

    assert oldest_of(log.has, missing, end) == oldest
    assert log.requests <= 13


def test_table_without_versions_ends_at_0():
    assert end(Log(()), 0) == 0


def test_version_is_read_once_all_its_files_are_read():
    versions = {
        (5, -1): 5,
        (5, -100): 5,
        (3, 0): 3,
        (3, 17): 3,
        (3, END_INDEX): 4,
        (3, 2**63 - 101): 4,
        7: None,
        None: None,
    }

    assert {position: first_unread(position) for position in versions} == versions


def test_only_commits_are_versions():
    """The format in which ``FileUtil.stat2Paths`` and ``ScalaRunTime.stringOf`` list a real log."""
    log = "file:/t/_delta_log"
    names = [
        commit_name(7),
        commit_name(8),
        f"{10:020d}.crc",
        f"{10:020d}.checkpoint.parquet",
        "_last_checkpoint",
        "_staged_commits",
        f".{9:020d}.json.crc",
        f"{9:020d}.json.tmp",
        "7.json",
    ]
    staged = (
        f"file:/t/_delta_log/_staged_commits/{9:020d}.0a1b2c3d-0000-4000-8000-00000000000f.json"
    )

    assert versions_in(f"Array({', '.join(f'{log}/{name}' for name in names)})") == [7, 8]
    assert versions_in(f"Array({staged})") == [9]
    assert versions_in("Array()") == []
    assert commit_name(7) == "00000000000000000007.json"


# -- where a run began ------------------------------------------------------------------------

ADDS = '{"add":{"path":"a","dataChange":true}}'
OPTIMIZES = '{"add":{"path":"a","dataChange":false}}\n{"remove":{"path":"b","dataChange":false}}'
DELETES = '{"remove":{"path":"b","dataChange":true}}'
SETS = '{"metaData":{"id":"T"}}'


@pytest.mark.parametrize(
    ("what", "commits", "expected"),
    [
        ("rows", [ADDS, ADDS, ADDS], 3),
        ("maintenance", [ADDS, OPTIMIZES, SETS], 1),
        ("a deletion of rows", [ADDS, DELETES], 1),
        ("a commit too long to be read", [ADDS, None], 2),
        ("nothing but settings", [SETS, SETS], 0),
        ("no version", [], 0),
        ("too many versions without rows", [SETS] * (MAX_WITHOUT_ROWS + 1), None),
        ("rows just near enough", [ADDS, *[SETS] * (MAX_WITHOUT_ROWS - 1)], 1),
    ],
)
def test_new_checkpoint_begins_behind_the_last_rows_before_it(what, commits, expected):
    found = behind_rows(len(commits), lambda _: True, commits.__getitem__)

    assert found == expected, what


def test_deleted_commit_may_have_had_rows():
    assert behind_rows(9, lambda _: False, {}.__getitem__) == 9


@pytest.mark.parametrize(
    ("what", "begin", "log", "expected"),
    [
        ("cleaned long before", Begin(1000, 5), LogSeen(1010, 8, 400), (5, 8)),
        ("seen before the first batch", Begin(1000, 5), LogSeen(999, 8, 998), (5, 8)),
        ("cleaned just before", Begin(1000, 5), LogSeen(1010, 8, 990), None),
        ("cleaned since", Begin(1000, 5), LogSeen(1010, 8, 1005), None),
        ("the log was seen late", Begin(1000, 5), LogSeen(1100, 8, 400), None),
        ("never cleaned by Delta", Begin(1000, 5), LogSeen(1010, 8), None),
        ("all is there", Begin(1000, 5), LogSeen(1010, 5, 400), None),
        ("more is there", Begin(1000, 5), LogSeen(1010, 0, 400), None),
        ("a snapshot is read", Begin(1000), LogSeen(1010, 8, 400), None),
    ],
)
def test_first_batch_has_passed_over_only_what_was_certainly_deleted(what, begin, log, expected):
    assert passed_over(begin, log) == expected, what


def test_commits_are_not_needed_within_a_snapshot():
    offset = '{"reservoirId":"T","reservoirVersion":5,"index":3,"isStartingVersion":%s}'
    versions = {offset % "false": 5, offset % "true": None, "": None, "null": None, None: None}

    assert {text: version_in(text) for text in versions} == versions
