"""The folder of recordings: within its bounds, whatever the store does."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading

import pytest
from support.patience import PATIENCE_SECONDS
from support.stores import Store

from querypulse.alerting.alert import recording_id
from querypulse.core.folders import FileEntry, LocalFolder
from querypulse.recording.store import (
    DRAFT_SECONDS,
    KEEP_SECONDS,
    MOST_BYTES,
    MOST_WAITING,
    RETRY_SECONDS,
    TIDY_SECONDS,
    WRITE_SECONDS,
    RecordingStore,
    surplus,
)

NOW = 1_800_000_000.0
DAY = 86_400.0
A = recording_id({"app": "etl", "query": "bronze"}, NOW)
B = recording_id({"app": "etl", "query": "*"}, NOW)


def name(number):
    return f"20260101T0000{number:02}Z-etl-q-abcdef.jsonl"


def entry(size=1, *, age=0.0):
    return FileEntry(size, NOW - age)


# -- what is deleted --------------------------------------------------------------------------

KEPT = {
    "nothing": {},
    "one of each bound": {name(1): entry(MOST_BYTES, age=KEEP_SECONDS)},
    "foreign files, however old and large": {
        "notes.txt": entry(9 * MOST_BYTES, age=999 * DAY),
        "outbox-1.json": entry(age=999 * DAY),
        "20260101.jsonl": entry(age=999 * DAY),
        f"{name(1)}.bak": entry(age=999 * DAY),
        f"x{name(1)}": entry(age=999 * DAY),
    },
    "foreign files do not count": {name(1): entry(), "core": entry(9 * MOST_BYTES)},
    "the clock was set back": {name(1): entry(age=-999 * DAY), name(2): entry(age=-1)},
    "a draft that is being written": {f".{name(1)}.k2j": entry(age=DRAFT_SECONDS)},
}


@pytest.mark.parametrize("files", KEPT.values(), ids=KEPT)
def test_what_is_within_the_bounds_or_not_ours_stays(files):
    assert surplus(files, NOW) == ()


def test_recording_that_is_being_written_stays_beyond_the_bounds():
    files = {name(1): entry(2 * MOST_BYTES, age=99 * DAY), name(2): entry(age=1)}

    assert surplus(files, NOW, {name(1)}) == (name(2),)


DELETED = {
    "old ones": (
        {name(1): entry(age=KEEP_SECONDS + 1), name(2): entry(age=KEEP_SECONDS)},
        (name(1),),
    ),
    "the oldest, until the rest fits": (
        {
            name(n): entry(MOST_BYTES // 2, age=age)
            for n, age in ((1, 5), (2, 30), (3, 10), (4, 20))
        },
        (name(2), name(4)),
    ),
    "of one time, by name": (
        {name(2): entry(MOST_BYTES), name(1): entry(MOST_BYTES)},
        (name(1),),
    ),
    "of a continued incident, the earlier part": (
        {
            f"{A}.jsonl": entry(MOST_BYTES, age=2),
            f"{A}.2.jsonl": entry(MOST_BYTES, age=1),
        },
        (f"{A}.jsonl",),
    ),
    "drafts of processes that were killed": (
        {f".{name(1)}.k2j": entry(age=DRAFT_SECONDS + 1)},
        (f".{name(1)}.k2j",),
    ),
}


@pytest.mark.parametrize(("files", "expected"), DELETED.values(), ids=DELETED)
def test_what_is_beyond_the_bounds_is_deleted(files, expected):
    assert surplus(files, NOW) == expected


# -- a store ----------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def disk():
    return Store(appends=True, now=NOW)


def object_store():
    return Store(now=NOW)


def opened(folder, clock):
    return RecordingStore(folder, wall=lambda: NOW, clock=clock)


class Writer:
    """Puts one line after the other, as the recorder does."""

    def __init__(self, store, recording=A):
        self.store = store
        self.recording = recording
        self.whole = b""

    def put(self, line, *, urgent=False):
        self.whole += line
        self.store.put(self.recording, self.whole, line, urgent=urgent)

    def thin(self, whole):
        self.whole = whole
        self.store.put(self.recording, whole, b"")


def full():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_first_line_is_written_whole_and_later_ones_are_appended(clock):
    folder = disk()
    writer = Writer(opened(folder, clock))
    for line in (b"a\n", b"b\n", b"c\n"):
        writer.put(line)
    writer.thin(b"a\nc\n")
    writer.put(b"d\n")

    calls = [what for what, _ in folder.calls]
    assert calls == ["make", "write", "append", "append", "write", "append"]
    assert folder.files == {f"{A}.jsonl": b"a\nc\nd\n"}
    assert writer.store.index == {A: FileEntry(6, NOW)}


def test_without_appending_a_file_is_written_every_ten_seconds_and_at_once_if_urgent(clock):
    folder = object_store()
    writer = Writer(opened(folder, clock))
    writer.put(b"a\n", urgent=True)
    for _ in range(50):
        writer.put(b"b\n")
    assert folder.files == {f"{A}.jsonl": b"a\n"}
    clock.now += WRITE_SECONDS
    writer.store.tidy(NOW)
    assert folder.files == {f"{A}.jsonl": writer.whole}
    writer.put(b"c\n")
    writer.put(b"d\n", urgent=True)
    assert folder.files == {f"{A}.jsonl": writer.whole}
    writer.put(b"e\n")
    writer.store.finish(A)

    assert folder.files == {f"{A}.jsonl": writer.whole}
    assert [what for what, _ in folder.calls].count("write") == 4


def test_nothing_new_writes_nothing(clock):
    folder = object_store()
    writer = Writer(opened(folder, clock))
    writer.put(b"a\n", urgent=True)
    writer.store.finish(A)
    writer.store.finish(A)
    for _ in range(20):
        clock.now += 3.0
        writer.store.tidy(NOW)

    assert [what for what, _ in folder.calls] == ["make", "write", "entries"]


@pytest.mark.fault(
    "Disk, port and mounts",
    "The disk under `incidents_dir` is full",
    "It is reported; the recordings are complete once there is room",
)
@pytest.mark.parametrize("appends", [True, False], ids=["a disk", "an object store"])
def test_disk_that_fills_up_is_counted_said_once_and_gets_the_whole_file_later(
    clock, caplog, appends
):
    folder = Store(appends=appends, now=NOW)
    writer = Writer(opened(folder, clock))
    writer.put(b"a\n", urgent=True)
    folder.refuses = full()
    for _ in range(100):
        writer.put(b"b\n", urgent=True)
    clock.now += RETRY_SECONDS
    writer.put(b"c\n", urgent=True)
    assert writer.store.failures == 2
    assert writer.store.problem == "s3a://team/querypulse: No space left on device"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert folder.files == {f"{A}.jsonl": b"a\n"}
    folder.refuses = None
    writer.put(b"d\n", urgent=True)
    assert folder.files == {f"{A}.jsonl": b"a\n"}, "it is not asked all the time"
    clock.now += RETRY_SECONDS
    writer.store.tidy(NOW)

    assert folder.files == {f"{A}.jsonl": writer.whole}
    assert writer.store.problem == ""


def test_recording_that_ended_while_the_store_refused_is_written_later(clock):
    folder = disk()
    store = opened(folder, clock)
    folder.refuses = full()
    writers = [
        Writer(store, recording_id({"app": "etl", "query": f"q{number}"}, NOW))
        for number in range(MOST_WAITING + 2)
    ]
    for writer in writers:
        writer.put(b"a\n")
        store.finish(writer.recording)
    before = store.failures
    folder.refuses = None
    clock.now += RETRY_SECONDS
    store.tidy(NOW)

    assert set(folder.files) == {f"{writer.recording}.jsonl" for writer in writers[2:]}
    assert before == 3, "one refusal, and two that were given up"


@pytest.mark.parametrize("appends", [True, False], ids=["a disk", "an object store"])
def test_at_the_end_what_the_store_has_just_refused_is_tried_once_more(clock, appends):
    folder = Store(appends=appends, now=NOW)
    store = opened(folder, clock)
    writers = [Writer(store), Writer(store, f"{A}.2")]
    folder.refuses = full()
    for writer in writers:
        writer.put(b"a\n")
    folder.refuses = None
    store.close()
    assert folder.files == {f"{A}.jsonl": b"a\n", f"{A}.2.jsonl": b"a\n"}
    folder.refuses = full()
    for writer in writers:
        writer.put(b"b\n")
    folder.calls.clear()
    store.close()

    assert len(folder.calls) == 1, "one that still refuses is asked once"


@pytest.mark.fault(
    "Disk, port and mounts", "The store of `incidents_dir` hangs", "It is reported until it answers"
)
def test_store_that_hangs_for_a_minute_is_seen_by_other_threads_and_recovers(clock):
    folder = disk()
    store = opened(folder, clock)
    seen = []

    def hang():
        clock.now += 20.0
        seen.append((store.problem, dict(store.index), store.read(A)))

    folder.during = hang
    Writer(store).put(b"a\n")

    # It is asked to make the folder, and to write the file.
    assert seen[-1] == ("s3a://team/querypulse: no answer for 40 s", {}, b"a\n")
    assert store.problem == ""
    assert store.failures == 0
    assert store.index == {A: FileEntry(2, NOW)}


@pytest.mark.fault(
    "Disk, port and mounts", "A recording is deleted", "It is written again from its beginning"
)
def test_file_that_somebody_deleted_is_written_again_with_its_beginning(clock, tmp_path):
    folder = LocalFolder(tmp_path / "incidents")
    writer = Writer(opened(folder, clock))
    writer.put(b"a\n")
    (tmp_path / "incidents" / f"{A}.jsonl").unlink()
    writer.put(b"b\n")
    assert folder.read(f"{A}.jsonl") == b"a\nb\n"
    (tmp_path / "incidents" / f"{A}.jsonl").unlink()
    (tmp_path / "incidents").rmdir()
    writer.put(b"c\n")

    assert folder.read(f"{A}.jsonl") == b"a\nb\nc\n"
    assert writer.store.failures == 0


def test_folder_that_cannot_be_made_is_a_problem_and_nothing_else(clock, tmp_path):
    (tmp_path / "file").write_text("")
    store = opened(LocalFolder(tmp_path / "file" / "incidents"), clock)
    Writer(store).put(b"a\n")
    store.finish(A)
    store.tidy(NOW)

    assert store.problem == f"{tmp_path}/file/incidents: Not a directory"
    assert store.index == {}
    assert store.read(A) == b"a\n"


@pytest.mark.parametrize(
    "hostile", ["../x", "", "a/b", f"{A}/../x", "20260101T000000Z-é", f"{A}\n"]
)
def test_id_that_is_none_is_neither_written_nor_read(clock, hostile):
    folder = disk()
    store = opened(folder, clock)
    store.put(hostile, b"a", b"a")
    assert store.problem.endswith("is not the name of a recording")
    with pytest.raises(FileNotFoundError):
        store.read(hostile)

    assert folder.calls == []
    Writer(store).put(b"a\n")
    assert (store.problem, store.failures) == ("", 1)


@pytest.mark.parametrize(
    "query", ["../../etc/passwd", "a\0b", "é" * 300, "", "*", "con:aux\n", "'\"<"]
)
def test_every_query_has_an_id_that_is_one(clock, query):
    folder = disk()
    Writer(opened(folder, clock), recording_id({"app": query, "query": query}, NOW)).put(b"a\n")

    assert len(folder.files) == 1


def test_index_has_the_recordings_of_others_and_what_is_too_old_is_deleted(clock):
    folder = disk()
    old, other = (recording_id({"app": "etl", "query": query}, NOW) for query in ("old", "other"))
    folder.files = {f"{old}.jsonl": b"x", f"{other}.jsonl": b"yy", "notes.txt": b"z"}
    ages = {f"{old}.jsonl": 29, f"{A}.jsonl": 99, "notes.txt": 99}
    folder.changed = {name: NOW - days * DAY for name, days in ages.items()}
    store = opened(folder, clock)
    Writer(store).put(b"a\n")
    store.tidy(NOW)
    assert set(store.index) == {A, old, other}
    clock.now += TIDY_SECONDS
    store.tidy(NOW + 2 * DAY)

    assert set(store.index) == {A, other}
    assert set(folder.files) == {f"{A}.jsonl", f"{other}.jsonl", "notes.txt"}


def test_index_is_a_snapshot_that_nobody_can_change(clock):
    store = opened(disk(), clock)
    before = store.index
    Writer(store).put(b"a\n")

    assert before == {}
    with pytest.raises(TypeError):
        store.index[B] = FileEntry(1, NOW)


def test_other_threads_read_while_one_writes(clock, tmp_path):
    store = opened(LocalFolder(tmp_path), clock)
    writers = [
        Writer(store, recording_id({"app": "etl", "query": f"q{n}"}, NOW)) for n in range(20)
    ]
    ended, errors = threading.Event(), []

    def look():
        while not ended.is_set():
            try:
                for recording in store.index:
                    assert store.read(recording).startswith(b"0\n")
            except Exception as error:
                errors.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(20):
        for writer in writers:
            writer.put(b"%d\n" % number)
    for writer in writers:
        store.finish(writer.recording)
    ended.set()
    thread.join(PATIENCE_SECONDS)

    assert errors == []
    assert {len(store.read(writer.recording)) for writer in writers} == {50}


@pytest.mark.slow
def test_real_disk_that_takes_no_more_leaves_what_can_be_read(tmp_path):
    """``RLIMIT_FSIZE`` refuses within a file, as a full disk does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        clock = Clock()
        writer = Writer(opened(LocalFolder(tmp_path), clock))
        for _ in range(50):
            writer.put(b"x" * 99 + b"\n")
            clock.now += RETRY_SECONDS
        os.write(writing, f"{writer.store.failures} {writer.store.problem}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    failures, _, problem = os.read(reading, 500).decode().partition(" ")
    os.close(reading)
    os.close(writing)

    assert int(failures) == 10
    assert problem == f"{tmp_path}: File too large"
    assert (tmp_path / f"{A}.jsonl").stat().st_size == 4096
    assert [path.name for path in tmp_path.iterdir()] == [f"{A}.jsonl"], "no draft is left"
