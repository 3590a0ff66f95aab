"""Folders of file sources: which are polled, when one is gone, and storage that hangs."""

from __future__ import annotations

import pytest

from querypulse.listener.sources import folder
from querypulse.listener.sources.folder import FolderSource, folder_of


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("file:/in", "file:/in"),
        ("hdfs://nn:8020/in/orders", "hdfs://nn:8020/in/orders"),
        ("file:/in/*.json", "file:/in"),
        ("hdfs://nn/in/day=2026-??/hour=*/x.json", "hdfs://nn/in"),
        ("file:/in/{a,b}/c", "file:/in"),
        ("viewfs://lake/in/[ab]", "viewfs://lake/in"),
        ("file:/in*", "file:/"),
        ("hdfs://nn/in*", "hdfs://nn/"),
        ("s3a://bucket/in", ""),
        ("gs://bucket/in/*.json", ""),
        ("abfss://c@account.dfs.core.windows.net/in", ""),
    ],
)
def test_folder_of_a_file_source_is_what_precedes_its_pattern(path, expected):
    """In an object store a folder is gone with its last file, so there it shows nothing."""
    assert folder_of(f"FileStreamSource[{path}]") == expected


def test_other_sources_have_no_folder():
    assert folder_of("DeltaSource[file:/in]") == ""


class FakeFolder:
    """A folder in the JVM, and the run that reads it."""

    there, is_directory, offsets = True, True, ""

    def __init__(self, address="hdfs://nn/in") -> None:
        self.source = FolderSource(None, self, self, address)
        self.source._opened = self

    def has(self):
        return self.there

    def is_folder(self):
        return self.is_directory

    def toString(self):
        return "FileStreamSource[hdfs://nn/in]"

    def gone(self):
        return self.source.poll().missing_folder


@pytest.fixture(autouse=True)
def committed(monkeypatch):
    """The offsets of the fake run."""
    monkeypatch.setattr(folder, "committed_in", lambda run, _: run.offsets)


def test_folder_that_was_there_is_gone_and_comes_back():
    seen = FakeFolder()
    shown = []
    for there in (True, False, False, True):
        seen.there = there
        shown.append(seen.gone())

    assert shown == ["", "hdfs://nn/in", "hdfs://nn/in", ""]


def test_folder_that_is_not_there_yet_is_not_gone():
    seen = FakeFolder()
    seen.there = False
    assert seen.gone() == ""


def test_folder_that_an_earlier_run_has_read_is_gone():
    seen = FakeFolder()
    seen.there, seen.offsets = False, "logOffset 3"
    assert seen.gone() == "hdfs://nn/in"


def test_file_that_is_removed_is_not_a_folder_that_is_gone():
    seen = FakeFolder()
    seen.is_directory = False
    assert seen.gone() == ""
    seen.there = False
    assert seen.gone() == ""


def test_folder_whose_file_system_is_unmounted_is_gone_although_an_empty_one_is_left(monkeypatch):
    mounted = set()
    monkeypatch.setattr(folder.os.path, "ismount", lambda path: path in mounted)
    seen, shown = FakeFolder("file:/mnt/in"), []
    for step in (set(), {"/mnt/in"}, {"/mnt/in"}, set(), {"/mnt/in"}):
        mounted.clear()
        mounted.update(step)
        shown.append(seen.gone())

    assert shown == ["", "", "", "file:/mnt/in", ""]
