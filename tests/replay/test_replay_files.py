"""Replay finds, unpacks and reads event logs in every form in which Spark stores them."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from support.event_log import CONFLICT, EventLog, changes, replayed

from querypulse.replay.log_files import ReplayError, find_applications

CODECS = {
    "": lambda content: content,
    ".zstd": zstandard.compress,
    ".zst": zstandard.compress,
    ".gz": gzip.compress,
}


@pytest.fixture(scope="module")
def log():
    """A query fails, and its next run stalls."""
    log = EventLog().started(at=1).commits(since=3, until=41).ended(exception=CONFLICT)
    log.started(run=2, at=60)
    for batch in range(20, 80):
        log.commit(run=2, batch=batch, at=batch * 2 + 30)
    return log.work(at=900).stopped(at=901)


@pytest.fixture(scope="module")
def expected(log, tmp_path_factory):
    alerts = changes(log.write(tmp_path_factory.mktemp("plain") / "log"))
    assert len(alerts) == 3
    return alerts


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_log_gives_the_same_alerts(tmp_path, log, expected, codec):
    packed = CODECS[codec](log.content)
    for ending in ("", ".inprogress", ".compact"):
        path = written(tmp_path / f"application_1{codec}{ending}", packed)
        assert changes(path) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_concatenated_streams_are_read_to_the_end(tmp_path, log, expected, codec):
    half, pack = len(log.content) // 2, CODECS[codec]
    path = written(tmp_path / f"log{codec}", pack(log.content[:half]) + pack(log.content[half:]))

    assert changes(path) == expected


CUT = "{}: cut off: events at its end may be missing"


def cut_off(packed):
    """``packed``, cut off at several places."""
    return (packed[:end] for end in (2, 7, 8, 20, 21, len(packed) // 2, len(packed) - 1))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("ending", ["", ".inprogress"])
def test_cut_log_is_read_as_far_as_it_goes_and_is_an_error_once_finished(
    tmp_path, log, expected, codec, ending
):
    """A plain log may end with half a line at any time."""
    path = tmp_path / f"log{codec}{ending}"

    for content in cut_off(CODECS[codec](log.content)):
        ((alerts, replay),) = replayed(written(path, content))
        assert alerts == expected[: len(alerts)]
        assert replay.error == (CUT.format(path) if codec and not ending else None)


@pytest.mark.parametrize("size", [1, 5000])
def test_zeros_may_follow_each_stream_of_gzip(tmp_path, log, expected, size):
    """As gzip itself has it: a tape or a copy by blocks fills the last block."""
    half = len(log.content) // 2
    parts = (gzip.compress(part) for part in (log.content[:half], log.content[half:]))
    path = written(tmp_path / "log.gz", b"".join(part + bytes(size) for part in parts))
    ((alerts, replay),) = replayed(path)
    assert (alerts, replay.error) == (expected, None)

    ((_, replay),) = replayed(written(tmp_path / "zeros.gz", bytes(size)))
    assert str(tmp_path / "zeros.gz") in replay.error


def test_stream_without_its_end_is_read_to_the_last_line(tmp_path, log, expected):
    path = written(tmp_path / "log.gz", gzip.compress(log.content.rstrip())[:-4])
    ((alerts, replay),) = replayed(path)

    assert (alerts, replay.error) == (expected, CUT.format(path))


@pytest.mark.parametrize(
    ("number", "status", "is_error"),
    [(2, "app.inprogress", False), (2, "app", True), (1, "app.inprogress", True)],
)
def test_only_the_newest_file_of_a_log_that_spark_writes_may_be_cut(
    tmp_path, log, number, status, is_error
):
    folder = rolled(tmp_path / "eventlog_v2_app", log.content, [len(log.content) // 2], ".zstd")
    (folder / "appstatus_app").rename(folder / f"appstatus_{status}")
    path = folder / f"events_{number}_app.zstd"
    path.write_bytes(path.read_bytes()[:-1])
    ((_, replay),) = replayed(folder)

    assert replay.error == (CUT.format(path) if is_error else None)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec])
def test_damaged_log_keeps_earlier_alerts_and_is_an_error(tmp_path, codec):
    log = EventLog().started(at=1).commits(since=3, until=41).ended(exception=CONFLICT)
    later = b'{"Event":"SparkListenerEnvironmentUpdate"}\n' * 100_000
    packed = CODECS[codec](log.content + later)
    path = written(tmp_path / f"log{codec}", packed + b"\x13damaged" * 100)
    ((alerts, replay),) = replayed(path)

    assert [change.alertname for change in alerts] == ["StreamingQueryFailed"]
    assert str(path) in replay.error


@pytest.mark.parametrize("codec", ["lz4", "snappy", "lzf"])
def test_codec_that_only_spark_reads_is_refused_with_a_suggestion(tmp_path, codec):
    path = written(tmp_path / f"local-1.{codec}", b"ZV")
    ((_, replay),) = replayed(path)

    assert str(path) in replay.error
    assert f"the codec {codec} is not supported" in replay.error
    assert "spark.eventLog.compression.codec=zstd" in replay.error


def rolled(folder, content, cuts, codec=""):
    """Write the log in several files, as Spark rolls it."""
    edges = [0, *sorted(cuts), len(content)]
    for number, (start, end) in enumerate(itertools.pairwise(edges), 1):
        written(folder / f"events_{number}_app{codec}", CODECS[codec](content[start:end]))
    written(folder / "appstatus_app", b"")
    return folder


def line_ends(log):
    return list(itertools.accumulate(len(line) + 1 for line in log.lines))


@pytest.mark.slow
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 90), max_size=12), codec=st.sampled_from(sorted(CODECS)))
def test_rolled_and_compressed_log_gives_the_same_alerts(
    log, expected, tmp_path_factory, cuts, codec
):
    ends = line_ends(log)
    folder = tmp_path_factory.mktemp("logs") / "eventlog_v2_app"
    rolled(folder, log.content, [ends[min(cut, len(ends) - 1)] for cut in cuts], codec)

    assert changes(folder) == expected


def test_compacted_file_replaces_all_files_before_it(tmp_path, log, expected):
    folder = rolled(tmp_path / "eventlog_v2_app", log.content, [])
    written(folder / "events_1_app.compact", b"an older compaction\n")
    (folder / "events_1_app").rename(folder / "events_3_app.compact")
    written(folder / "events_2_app", b"compacted since\n")
    written(folder / "events_3_app", b"compacted since\n")
    written(folder / "events_4_app", b'{"Event":"SparkListenerLogStart"}\n')

    assert changes(folder) == expected


def test_each_application_in_a_folder_is_replayed_on_its_own(tmp_path, log, expected):
    log.write(tmp_path / "2026" / "application_1_1")
    rolled(tmp_path / "2026" / "eventlog_v2_application_2_1", log.content, [], ".zstd")
    rolled(tmp_path / "eventlog_v2_application_2_2", log.content, [], ".zstd")
    written(tmp_path / "local-1.zstd.inprogress", zstandard.compress(log.content))
    written(tmp_path / ".local-1.crc", b"crc")
    written(tmp_path / "_SUCCESS", b"")
    written(tmp_path / ".hidden" / "log", log.content)
    (tmp_path / "circle").symlink_to(tmp_path)

    alerts = replayed(tmp_path)
    assert [Path(replay.path).name for _, replay in alerts] == [
        "application_1_1",
        "eventlog_v2_application_2_1",
        "eventlog_v2_application_2_2",
        "local-1.zstd.inprogress",
    ]
    assert all(alert == expected for alert, _ in alerts)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("local-1", "local-1"),
        ("local-1.zstd.inprogress", "local-1"),
        ("application_1_2.lz4", "application_1_2"),
        ("events.jsonl", "events.jsonl"),
        ("events.jsonl.gz", "events.jsonl"),
    ],
)
def test_recording_without_app_name_is_labelled_by_its_file(tmp_path, name, label):
    (application,) = find_applications([str(written(tmp_path / name, b""))])

    assert application.label == label


def test_log_given_twice_is_evaluated_once(tmp_path, log):
    path = log.write(tmp_path / "log")

    assert len(find_applications([str(path), str(tmp_path), path.as_uri()])) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3a://bucket/logs", "s3a://bucket/logs: only local"),
        ("hdfs:///logs", "hdfs:///logs: only local"),
        ("{}/nowhere", "nowhere: no such file or folder"),
        ("{}", "no event log in this folder"),
    ],
)
def test_error_names_a_path_that_is_not_local_or_has_no_log(tmp_path, text, message):
    with pytest.raises(ReplayError, match=message):
        find_applications([text.format(tmp_path)])


def test_error_names_a_file_that_cannot_be_opened(tmp_path, log):
    log.write(tmp_path / "good")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    (_, good), (_, lost) = replayed(tmp_path)

    assert good.error is None
    assert lost.error == f"{tmp_path}/lost: No such file or directory"


def test_files_that_continue_a_recording_follow_the_first(tmp_path):
    names = ["A.jsonl", *(f"A.{number}.jsonl" for number in range(2, 12)), "B.jsonl"]
    for name in names:
        (tmp_path / name).write_text("{}")

    applications = find_applications([str(tmp_path)])
    assert [Path(application.path).name for application in applications] == names
