"""What hangs as one: places that share a store."""

from __future__ import annotations

import pytest

from querypulse.listener import stores
from querypulse.listener.stores import store_of

MOUNTS = r"""/dev/vda / ext4 rw 0 0
nas:/lake /mnt/lake nfs rw 0 0
nas:/cold /mnt/lake/cold nfs rw 0 0
nas:/two /mnt/two\040words nfs rw 0 0
"""


@pytest.fixture(autouse=True)
def mounts(tmp_path, monkeypatch):
    """The mounts of the machine."""
    path = tmp_path / "mounts"
    path.write_text(MOUNTS)
    monkeypatch.setattr(stores, "MOUNTS", path)
    return path


@pytest.mark.parametrize(
    ("place", "store"),
    [
        ("hdfs://nn:8020/in/orders", "hdfs://nn:8020"),
        ("hdfs:/in", "hdfs://"),
        ("s3a://bucket/a/b", "s3a://bucket"),
        ("abfss://c@account.dfs.core.windows.net/in", "abfss://c@account.dfs.core.windows.net"),
        ("viewfs://lake/in/a", "viewfs://lake/in"),
        ("DeltaSource[s3a://bucket/t]", "s3a://bucket"),
        ("DeltaSource[file:/mnt/lake/t]", "/mnt/lake"),
        ("file:/mnt/lake/a", "/mnt/lake"),
        ("file:///mnt/lake/a", "/mnt/lake"),
        ("/mnt/lake", "/mnt/lake"),
        ("/mnt/lake/cold/x", "/mnt/lake/cold"),
        ("/mnt/lakes/x", "/mnt"),
        ("file:/mnt/two words/x", "/mnt/two words"),
        ("file:/data/a/b", "/data"),
        ("file:/data", "/data"),
        ("file:/", "/"),
        ("/out[1]/x", "/out[1]"),
        ("out/x", "out"),
        ("catalog.db.table", "catalog.db.table"),
        ("", ""),
    ],
)
def test_store_is_the_authority_or_for_a_local_path_its_mount(place, store):
    assert store_of(place) == store


def test_without_a_list_of_mounts_the_first_folder_of_a_path_is_its_store(mounts):
    mounts.unlink()
    assert store_of("file:/mnt/lake/cold/x") == "/mnt"
