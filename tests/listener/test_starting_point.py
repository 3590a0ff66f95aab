"""The starting point of a run comes from the file times in two listings, with sanity checks."""

from __future__ import annotations

import pytest

from querypulse.listener.commit_log import Written, starting_point

WALL = 1_800_000_000.0


def point(offsets, commits, *, now=100.0):
    """The starting point of a run; file times are seconds before the read."""
    ages = [
        {one: None if age is None else WALL - age for one, age in log.items()}
        for log in (offsets, commits)
    ]
    return starting_point(*ages, now, WALL)


def test_planned_batch_without_commit_is_unfinished():
    found = point({40: 2500, 41: 2400}, {40: 2450})

    assert found.unfinished == Written(41, -2300.0, WALL - 2400)
    assert found.committed == Written(40, -2350.0, WALL - 2450)


@pytest.mark.parametrize(
    ("offsets", "commits"),
    [
        ({}, {}),
        ({40: 9.0}, {40: 8.0}),
        ({38: 30.0, 39: 20.0, 40: 9.0}, {38: 29.0, 39: 19.0, 40: 8.0}),
        ({39: 20.0}, {39: 19.0, 40: 8.0}),
    ],
    ids=[
        "a new checkpoint",
        "one batch",
        "many batches",
        "planned and committed between two listings",
    ],
)
def test_clean_end_of_the_last_run_leaves_no_unfinished_batch(offsets, commits):
    assert point(offsets, commits).unfinished is None


@pytest.mark.parametrize("age", [None, -0.1, -3600.0, WALL, 400 * 86_400.0],
                         ids=["unknown", "a moment ahead", "an hour ahead", "1970", "older than a year"])  # fmt: skip
def test_implausible_file_time_is_ignored(age):
    assert point({41: age}, {}).unfinished == Written(41)


def test_longest_batches_are_those_of_the_last_day():
    """A long batch may span a restart: planned on Friday, committed on Monday."""
    offsets = {number: 600.0 * (200 - number) for number in range(200)}
    took = dict.fromkeys(offsets, 30.0) | {9: 90_000.0, 10: 800.0, 150: 700.0, 199: 60.0}
    commits = {number: offsets[number] - took[number] for number in offsets}

    assert point(offsets, commits).longest_seconds == (700.0, 90_000.0)


@pytest.mark.parametrize(
    ("offsets", "commits", "longest"),
    [
        ({}, {}, ()),
        ({0: 50.0}, {0: 40.0}, (10.0,)),
        ({0: 50.0, 1: 30.0}, {0: 40.0, 1: 29.0}, (1.0, 10.0)),
        ({0: 50.0, 1: 30.0}, {0: 60.0, 1: 29.0}, (1.0,)),
        ({0: None, 1: 30.0}, {0: 40.0, 1: None}, ()),
    ],
)
def test_batch_without_two_plausible_times_has_no_duration(offsets, commits, longest):
    assert point(offsets, commits).longest_seconds == longest


def test_listing_gives_only_the_times_of_batches():
    listing = (
        "Array(LocatedFileStatus{path=file:/c;p/offsets/9; isDirectory=false; length=5; replication=1;"
        " blocksize=33554432; modification_time=1700000009500; access_time=1700000009000; owner=; group=;"
        " permission=rw-rw-rw-; isSymlink=false; hasAcl=false; isEncrypted=false; isErasureCoded=false},"
        " DeprecatedRawLocalFileStatus{path=s3a://b/cp/offsets/10; isDirectory=false; length=5;"
        " modification_time=1700000010000; access_time=0; owner=me},"
        " FileStatus{path=file:/cp/offsets/.10.tmp; isDirectory=false; length=5; modification_time=1700000011000;"
        " access_time=0})"
    )

    assert times_in(listing) == {9: 1_700_000_009.5, 10: 1_700_000_010.0}


# -- reading the starting point -------------------------------------------------------------------


def with_checkpoint(*, offsets, commits):
    one = MemoryCheckpoint(offsets, commits)
    one.written = {"offsets": offsets, "commits": commits}
    return one


def test_starting_point_is_read_once_per_run_and_in_every_report():
    checkpoint = with_checkpoint(offsets={41: None}, commits={40: None})
    harness = LogReaderHarness(**{"/cp": checkpoint})

    reports = [harness.read(run(number=1), at=1), harness.read(run(number=1), at=2)]
    later = harness.read(run(number=2), at=3)

    expected = StartingPoint(Written(40), Written(41))
    assert [one.starts for one in reports] == [{"a-1": expected}] * 2
    assert later.starts == {"a-2": expected}
    assert checkpoint.asked == ["times"] * 4


def test_files_have_no_age_once_the_wall_clock_was_set():
    """It is not known which of its times compare with those of the storage."""
    checkpoint, clock = with_checkpoint(offsets={0: WALL}, commits={}), Clock()
    clock.now = ahead = 0.0
    points = StartingPoints(lambda *_: checkpoint, wall=lambda: WALL + 60.0 + clock.now + ahead)
    runs = [run("a"), run("b"), run("c")]
    before = points.read(runs[:1], 1.0)["a-1"]
    clock.now, ahead = 2.0, 4.0
    slewed = points.read(runs[:2], 2.0)["b-1"]
    ahead = 3335.0
    after = points.read(runs, 3.0)

    assert before.unfinished == Written(0, pytest.approx(-59.0), WALL)
    assert slewed.unfinished == Written(0, pytest.approx(-64.0), WALL)
    assert after["c-1"].unfinished == Written(0)
    assert after["a-1"] == before


def test_starting_point_of_an_ended_run_is_read():
    harness = LogReaderHarness(**{"/cp": with_checkpoint(offsets={41: None}, commits={})})

    assert harness.read(run(active=False), at=1).starts["a-1"].unfinished == Written(41)


def test_storage_error_gives_no_starting_point_and_is_not_retried(caplog):
    harness = LogReaderHarness()

    reports = [harness.read(run(), at=at) for at in (1, 2)]

    assert [one.starts for one in reports] == [{}, {}]
    assert [one.unreadable for one in reports] == [{}, {}]
    assert harness.storage.opened == ["/cp"]
    assert caplog.records == []


def test_only_a_new_run_pokes_the_reader():
    harness = LogReaderHarness(**{"/cp": with_checkpoint(offsets={}, commits={})})
    harness.read(run(), at=1)
    reader, pokes = harness.reader, []
    reader.poke = lambda: pokes.append(1)

    reader.poke_for(harness.probe)
    known = list(pokes)
    reader.poke_for(type(harness.probe)(began_at=2, at=2, runs=(run(number=2),)))

    assert (known, pokes) == ([], [1])


@pytest.mark.parametrize(
    "seen",
    [continuous("/cp"), run(trigger="RealTimeTrigger(300000)"), run(async_progress=True)],
    ids=["continuous", "realTime", "async progress tracking"],
)
def test_run_without_an_offset_log_has_no_starting_point(seen):
    harness = LogReaderHarness(**{"/cp": MemoryCheckpoint([0], [0])})

    assert harness.read(seen, at=1).starts == {}
