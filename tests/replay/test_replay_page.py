"""``querypulse replay LOGS --html OUT``: a page of what would have been notified."""

from __future__ import annotations

import pytest
from support.event_log import CONFLICT, FIXTURES, EventLog, recordings_of, replayed
from support.planted import PLANTED

from querypulse.commands import cli
from querypulse.recording.lines import Event, Notification, SeenFrom, State, decode
from querypulse.replay import recordings

pytestmark = pytest.mark.usefixtures("clean_environment")

UNREADABLE = 2
NO_INCIDENT = "No incident."


def failing(query="bronze", app="etl", exception=CONFLICT):
    """A query fails after 21 s."""
    log = EventLog(app).started(query, at=1).commits(query, since=3, until=21)
    return log.ended(query, exception=exception).work(at=60)


def healthy():
    return EventLog("quiet").started("gold", at=1).commits("gold", since=3, until=60)


@pytest.fixture
def replay(capsys, tmp_path):
    """Run the command; returns exit code, output, errors, and the page, if there is one."""

    def run(*arguments, page=tmp_path / "page.html"):
        code = cli.main(["replay", *map(str, arguments), "--html", str(page)])
        output, errors = capsys.readouterr()
        return code, output, errors, page.read_text() if page.is_file() else ""

    return run


# -- no incident, and no page -----------------------------------------------------------------


def test_healthy_log_gives_a_page_without_incidents(replay, tmp_path):
    code, output, _, page = replay(healthy().write(tmp_path / "log"))

    assert (code, output) == (0, "")
    assert NO_INCIDENT in page
    assert "Replay of 1 application, 30 events" in page


@pytest.mark.parametrize("place", ["missing/page.html", "."])
def test_place_that_cannot_be_a_file_is_refused_before_the_replay(replay, tmp_path, place):
    code, output, errors, _ = replay(failing().write(tmp_path / "log"), page=tmp_path / place)

    assert (code, output) == (UNREADABLE, "")
    assert f"--html {tmp_path / place}: give a file" in errors


@pytest.mark.parametrize("option", ["--html", "--spark"])
def test_recording_is_refused_with_what_to_do_instead(tmp_path, capsys, option):
    (path,) = recordings_of(failing().write(tmp_path / "log"), tmp_path / "incidents")
    value = [str(tmp_path / "page.html")] if option == "--html" else []

    code = cli.main(["replay", str(path), option, *value])

    assert code == UNREADABLE
    assert f"{option}: {path} is a recording" in capsys.readouterr().err


def test_page_of_a_spark_job_is_refused(replay, tmp_path):
    code, _, errors, page = replay(failing().write(tmp_path / "log"), "--spark")

    assert (code, page) == (UNREADABLE, "")
    assert "--spark" in errors


# -- the page ---------------------------------------------------------------------------------


def test_page_shows_each_incident_and_the_output_stays_the_same(replay, tmp_path, capsys):
    log = FIXTURES / "orders.zstd"
    cli.main(["replay", str(log)])
    before = capsys.readouterr()

    code, output, errors, page = replay(log)

    assert (code, output) == (0, before.out)
    assert errors == f"{before.err}page: {tmp_path / 'page.html'}\n"
    assert "[orders] gold failed: RuntimeError: Schema mismatch" in page
    assert "[orders] bronze is stalled" in page
    assert "2 incidents and 2 notifications" in page


def test_applications_share_one_page(replay, tmp_path):
    failing("bronze", "etl").write(tmp_path / "logs" / "one")
    failing("silver", "nightly").write(tmp_path / "logs" / "two")
    healthy().write(tmp_path / "logs" / "three")

    _, _, _, page = replay(tmp_path / "logs")

    assert "[etl] bronze failed" in page
    assert "[nightly] silver failed" in page
    assert "gold" not in page


def test_unreadable_log_leaves_the_page_of_the_others(replay, tmp_path):
    failing().write(tmp_path / "logs" / "one")
    (tmp_path / "logs" / "two.lz4").write_bytes(b"x")

    code, _, errors, page = replay(tmp_path / "logs")

    assert (code, "lz4" in errors, "[etl] bronze failed" in page) == (UNREADABLE, True, True)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "x" * 3000, "a\nb", "<script>alert(1)</script>"]
)
def test_hostile_name_stays_in_the_page(replay, tmp_path, name):
    log = tmp_path / "logs" / "log"
    code, _, _, page = replay(failing(name, app=name).write(log))

    assert code == 0
    assert "<script" not in page
    assert "failed" in page
    assert {path.name for path in tmp_path.iterdir()} == {"logs", "page.html"}


def test_secrets_of_a_log_are_not_in_the_page(replay, tmp_path):
    logs = [
        failing(f"q{number}", exception=f"java.io.IOException: {secret.text}")
        for number, secret in enumerate(PLANTED)
    ]
    for number, log in enumerate(logs):
        log.write(tmp_path / "logs" / f"log-{number}")

    _, _, _, page = replay(tmp_path / "logs")

    assert "IOException" in page
    assert [secret.secret for secret in PLANTED if secret.secret in page] == []


# -- recordings -------------------------------------------------------------------------------


def read(paths):
    return [decode(path.read_bytes(), path.name) for path in paths]


def test_notifications_of_the_recordings_are_those_of_the_summary(tmp_path):
    log = failing().work(at=10 * 3600).write(tmp_path / "log")
    ((_, replay),) = replayed(log)
    (recording,) = read(recordings_of(log, tmp_path / "incidents"))

    sent = [line for line in recording.lines if isinstance(line, Notification)]

    assert [(line.receiver, line.status, line.outcome) for line in sent] == [
        ("replay", "firing", "delivered")
    ] * replay.notifications
    assert replay.notifications == 3
    assert recording.begin.seen_from is SeenFrom.REPLAY


def test_events_are_in_a_recording_once_an_evaluation_has_seen_them(tmp_path):
    log = FIXTURES / "orders.zstd"
    for recording in read(recordings_of(log, tmp_path / "incidents")):
        first = next(line.at for line in recording.lines if isinstance(line, State))
        events = [line.at for line in recording.lines if isinstance(line, Event)]
        times = [line.at for line in recording.lines]

        assert events == sorted(events)
        assert events[0] < first
        assert times[1:] == sorted(times[1:])


def test_only_the_newest_incidents_are_kept(tmp_path, monkeypatch, replay):
    monkeypatch.setattr(recordings, "MOST_KEPT", 2)
    for hour in range(4):
        log = EventLog("etl").work(at=3600 * hour).started("a", at=3600 * hour + 1)
        log.commits("a", since=3600 * hour + 3, until=3600 * hour + 21)
        log.ended("a", exception=f"x.Error{hour}: no").write(tmp_path / "logs" / f"log-{hour}")

    _, _, errors, page = replay(tmp_path / "logs")

    assert "left out 2 older incidents" in errors
    assert [hour for hour in range(4) if f"Error{hour}" in page] == [2, 3]


def test_open_recordings_do_not_grow_with_the_log(tmp_path):
    """A query is silent for two days, beside one that commits every ten seconds."""
    log = EventLog().started("a", at=1).started("b", at=1).commit("b", batch=0, at=2)
    for batch, at in enumerate(range(3, 24 * 3600, 10)):
        log.commit("a", batch=batch, at=at)

    (path,) = recordings_of(log.write(tmp_path / "log"), tmp_path / "incidents")

    assert path.stat().st_size <= 1024 * 1024


def test_events_that_no_evaluation_has_reached_are_bounded_and_not_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "MOST_WAITING", 1)
    of_gold, of_bronze = read(recordings_of(FIXTURES / "orders.zstd", tmp_path / "incidents"))

    assert {"gold", "bronze"} == queries_of(of_gold) == queries_of(of_bronze)


def queries_of(recording):
    return {line.query for line in recording.lines if isinstance(line, Event)}
