"""The end of a Delta table's log is found with few requests, even after the table was replaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querypulse.listener.sources.delta import (
    END_INDEX,
    commit_name,
    end_of,
    first_unread,
    oldest_of,
    versions_in,
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
        commit_name(7), commit_name(8), f"{10:020d}.crc", f"{10:020d}.checkpoint.parquet", "_last_checkpoint",
        "_staged_commits", f".{9:020d}.json.crc", f"{9:020d}.json.tmp", "7.json",
    ]  # fmt: skip
    staged = (
        f"file:/t/_delta_log/_staged_commits/{9:020d}.0a1b2c3d-0000-4000-8000-00000000000f.json"
    )

    assert versions_in(f"Array({', '.join(f'{log}/{name}' for name in names)})") == [7, 8]
    assert versions_in(f"Array({staged})") == [9]
    assert versions_in("Array()") == []
    assert commit_name(7) == "00000000000000000007.json"
