"""A folder of files on a disk, where others may write, too."""

from __future__ import annotations

import os
import stat

import pytest

from querypulse.core.folders import FileEntry, LocalFolder, is_uri


@pytest.fixture
def folder(tmp_path):
    folder = LocalFolder(tmp_path / "a" / "b")
    folder.make()
    return folder


def test_file_is_written_appended_listed_and_deleted(folder, tmp_path):
    folder.write("x.jsonl", b"one\n")
    folder.append("x.jsonl", b"two\n")
    (tmp_path / "a" / "b" / "folder").mkdir()

    assert folder.read("x.jsonl") == b"one\ntwo\n"
    (entry,) = folder.entries().values()
    assert entry == FileEntry(8, (tmp_path / "a" / "b" / "x.jsonl").stat().st_mtime)
    folder.delete("x.jsonl")
    folder.delete("x.jsonl")
    assert folder.entries() == {}


def test_only_the_owner_can_read_it(tmp_path):
    umask = os.umask(0)
    try:
        folder = LocalFolder(tmp_path / "new")
        folder.make()
        folder.write("x", b"")
    finally:
        os.umask(umask)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new", tmp_path / "new/x")]

    assert modes == [0o700, 0o600]


def test_folder_that_is_not_there_has_no_files_and_takes_none(tmp_path):
    folder = LocalFolder(tmp_path / "gone")

    assert folder.entries() == {}
    folder.delete("x")
    for call in (lambda: folder.write("x", b""), lambda: folder.read("x")):
        with pytest.raises(FileNotFoundError):
            call()


def test_nothing_is_appended_to_a_file_that_is_not_there(folder):
    """A recording without its beginning could not be read."""
    with pytest.raises(FileNotFoundError):
        folder.append("x", b"tail")

    assert folder.entries() == {}


def test_planted_link_is_not_followed(folder, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("secret")
    (tmp_path / "a" / "b" / "x").symlink_to(outside)
    assert folder.entries() == {}
    for call in (lambda: folder.read("x"), lambda: folder.append("x", b"y")):
        with pytest.raises(OSError, match="symbolic link"):
            call()
    folder.write("x", b"ours")

    assert outside.read_text() == "secret"
    assert folder.read("x") == b"ours"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/passwd", "a\\b", "a\0b"])
def test_name_that_leads_elsewhere_is_refused(folder, name):
    for call in (folder.read, folder.delete, lambda name: folder.write(name, b"")):
        with pytest.raises(OSError, match="not the name of a file"):
            call(name)


@pytest.mark.parametrize(
    ("place", "is_one"),
    [
        ("/var/lib/querypulse", False),
        ("querypulse", False),
        ("./a:b/c", False),
        ("C:/querypulse", False),
        ("C:\\querypulse", False),
        ("file:///tmp/x", True),
        ("dbfs:/x", True),
        ("s3a://bucket/x", True),
        ("abfss://c@account.dfs.core.windows.net/x", True),
    ],
)
def test_uri_is_no_path(place, is_one):
    assert is_uri(place) is is_one
