"""What is read of the machine: control groups and disks, as files and folders, also hostile ones."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager

import pytest
from support.patience import until

from querypulse.listener.foresight import host
from querypulse.listener.foresight.host import HostReader, local_folders, read_container, read_disk
from querypulse.listener.foresight.resources import Container

GB = 1_000_000_000
V1 = "9:name=systemd:/\n4:cpu,cpuacct:/other\n3:memory:{}\n"
V2 = "0::{}\n"
NO_LIMIT_OF_V1 = 9223372036854771712


def group_of_v1(limit, usage, inactive):
    return {
        "memory.limit_in_bytes": limit,
        "memory.usage_in_bytes": usage,
        "memory.stat": f"cache 5\ninactive_file 1\ntotal_inactive_file {inactive}",
    }


def group_of_v2(limit, usage, inactive):
    return {
        "memory.max": limit,
        "memory.current": usage,
        "memory.stat": f"anon 5\nfile 7\ninactive_file {inactive}",
    }


def machine(root, cgroup, groups):
    """A root folder with these control groups: their files by their folder."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for folder, files in groups.items():
        (root / "sys/fs/cgroup" / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (root / "sys/fs/cgroup" / folder / name).write_text(f"{text}\n")
    return root


# -- the container --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "cgroup", "groups"),
    [
        ("no limit in version 2", V2.format("/a"), {"a": group_of_v2("max", GB, 0)}),
        ("no limit in version 1", V1.format("/"), {"memory": group_of_v1(NO_LIMIT_OF_V1, GB, 0)}),
        ("the root, which has no files", V2.format("/"), {}),
        ("a group that is gone", V2.format("/gone"), {"a": group_of_v2(4 * GB, GB, 0)}),
        ("a limit of 0", V2.format("/a"), {"a": group_of_v2(0, GB, 0)}),
        ("no number", V2.format("/a"), {"a": group_of_v2("1e9", GB, 0)}),
        ("an empty file", V2.format("/a"), {"a": group_of_v2("", GB, 0)}),
        ("statistics without a number", V2.format("/a"), {"a": group_of_v2(4 * GB, GB, "many")}),
        ("bytes that are no text", V2.format("/a"), {"a": group_of_v2("\xff\xfe", GB, 0)}),
        ("a file that is a folder", V2.format("/a"), {"a/memory.max": {}}),
        ("no control groups", "", {}),
        ("lines of another form", "memory\n::\n:memory\n", {}),
        ("a path out of the mount", V2.format("/../../../etc"), {"a": group_of_v2(4 * GB, GB, 0)}),
    ],
)
def test_what_limits_nothing_or_is_unreadable_is_no_container(tmp_path, words, cgroup, groups):
    assert read_container(machine(tmp_path, cgroup, groups)) is None, words


def test_machine_without_control_groups_has_no_container(tmp_path):
    assert read_container(tmp_path) is None


@pytest.mark.parametrize(
    ("words", "cgroup", "groups"),
    [
        ("its own, version 2", V2.format("/pod/own"), {"pod/own": group_of_v2(4 * GB, 3 * GB, GB)}),
        ("its own, version 1", V1.format("/own"), {"memory/own": group_of_v1(4 * GB, 3 * GB, GB)}),
        (
            "one above, version 2",
            V2.format("/pod/own"),
            {"pod": group_of_v2(4 * GB, 3 * GB, GB), "pod/own": group_of_v2("max", GB, 0)},
        ),
        (
            "one above that has less room",
            V2.format("/pod/own"),
            {"pod": group_of_v2(4 * GB, 3 * GB, GB), "pod/own": group_of_v2(8 * GB, GB, 0)},
        ),
        (
            "one above, version 1",
            V1.format("/pod/own"),
            {
                "memory/pod": group_of_v1(4 * GB, 3 * GB, GB),
                "memory/pod/own": group_of_v1(NO_LIMIT_OF_V1, 3 * GB, 0),
            },
        ),
        (
            "in a container, where only its own is mounted, as the root",
            V1.format("/docker/0123"),
            {"memory": group_of_v1(4 * GB, 3 * GB, GB)},
        ),
        (
            "both versions, memory in version 1",
            V1.format("/own") + V2.format("/user"),
            {"memory/own": group_of_v1(4 * GB, 3 * GB, GB), "user": group_of_v2(GB, GB, 0)},
        ),
    ],
)
def test_group_with_the_least_room_counts_without_what_the_kernel_takes_back(
    tmp_path, words, cgroup, groups
):
    found = read_container(machine(tmp_path, cgroup, groups))

    assert found == Container(2 * GB, 4 * GB), words


def test_more_that_can_be_taken_back_than_is_used_is_nothing_in_use(tmp_path):
    """Both are read one after the other."""
    root = machine(tmp_path, V2.format("/a"), {"a": group_of_v2(4 * GB, GB, 2 * GB)})

    assert read_container(root) == Container(0, 4 * GB)


# -- disks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("/data/orders", "/data/orders"),
        ("/data//orders/../new", "/data/new"),
        ("file:/data/orders", "/data/orders"),
        ("file:///data/orders", "/data/orders"),
        ("/data/a:b", "/data/a:b"),
        ("hdfs://host/data", None),
        ("s3a://bucket/data", None),
        ("dbfs:/data", None),
        ("relative", None),
        ("", None),
        ("file:", None),
    ],
)
def test_places_on_disks_of_this_machine_are_paths(place, path):
    assert list(local_folders({place: "checkpoint"})) == ([] if path is None else [path])


def test_of_thousand_checkpoints_hundred_are_asked():
    folders = {f"/data/{number}": f"checkpoint of {number}" for number in range(1000)}

    assert len(local_folders(folders)) == host.MAX_FOLDERS


@pytest.mark.parametrize("name", ["a b", "50%20off", "ü", "%zz"])
def test_checkpoint_is_found_by_its_path_and_by_its_escaped_uri(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()

    for place in (f"file:{folder}", folder.as_uri()):
        (path,) = local_folders({place: "checkpoint"})
        answer = read_disk(path)
        assert answer is not None
        device, disk = answer
        assert device == folder.stat().st_dev
        assert 0 <= disk.free_bytes <= disk.total_bytes
        assert os.path.ismount(disk.path)


def test_folder_that_is_gone_has_no_disk(tmp_path):
    assert read_disk(str(tmp_path / "gone")) is None


def threads_of_disks():
    return sum(thread.name == "querypulse-disks" for thread in threading.enumerate())


@contextmanager
def reader_of(folders, root):
    readings = []
    reader = HostReader(lambda: folders, lambda: readings.append(1), clock=lambda: 7.0, root=root)
    reader.stop()
    try:
        yield reader
    finally:
        reader.close()


def test_folders_of_one_file_system_are_one_disk_that_names_few_of_them(tmp_path):
    folders = {}
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        folders[str(tmp_path / str(number))] = f"checkpoint of {number}"
    folders[str(tmp_path / "gone")] = "spool_dir"
    folders["/data/\0"] = "a name that no file has"

    with reader_of(folders, tmp_path) as reader:
        reader.step()

    assert reader.latest is not None
    assert reader.latest.at == 7.0
    (disk,) = reader.latest.disks
    assert disk.holds == tuple(f"checkpoint of {number}" for number in range(host.MAX_HELD))


def test_disk_that_hangs_holds_one_thread_and_the_others_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "PATIENCE_SECONDS", 0.5)
    answers = threading.Event()
    original = host.read_disk

    def hanging(path):
        if path.startswith("/hangs"):
            answers.wait()
        return original(path)

    monkeypatch.setattr(host, "read_disk", hanging)
    folders = {f"/hangs/{number}": "checkpoint" for number in range(10)}
    folders[str(tmp_path)] = "spool_dir"

    with reader_of(folders, tmp_path) as reader:
        for _ in range(20):
            reader.step()
            assert reader.latest is not None
            assert [disk.holds for disk in reader.latest.disks] == [("spool_dir",)]
        assert threads_of_disks() <= 2
        answers.set()
    until(lambda: threads_of_disks() == 0, "the thread that was held ends")
