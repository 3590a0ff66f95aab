"""What a Spark Connect path sees of the job's client, and what it says is missing."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from support.connect_job import JobClient, JobCommand, OurClient, WrittenStream, batch, bus, message
from support.story import policy, run

from querypulse.alerting.evaluate import evaluate
from querypulse.listener.connect import event_stream as paths
from querypulse.listener.connect.event_stream import MISSING, open_connect_path
from querypulse.listener.events import EventKind
from querypulse.listener.probe import ProbeReport
from querypulse.listener.state.state import State


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(paths, "ConnectClient", OurClient)
    return SimpleNamespace(client=JobClient())


def test_start_by_the_job_is_an_event_and_known_to_the_probe(job):
    path = open_connect_path(job)

    answer = job.client.execute_command(JobCommand(WrittenStream(format="noop", options={})))

    (event,) = path.source.take(0)
    assert (event.kind, event.trigger, event.session) == (
        EventKind.STARTED,
        "OneTimeTrigger",
        "session",
    )
    assert [facts.name for facts in path.new_starts()] == ["orders"]
    assert path.new_starts() == []
    assert answer[1]


@pytest.mark.parametrize("command", [JobCommand(), JobCommand(WrittenStream()), None])
def test_error_of_ours_does_not_reach_the_job(job, command):
    path = open_connect_path(job)

    assert job.client.execute_command(command)[1]
    assert list(job.client.execute_command_as_iterator(command)) == []
    assert path.source.depth == 0


def test_error_of_spark_reaches_the_job(job):
    def fails(command):
        raise RuntimeError("analysis failed")

    job.client.execute_command = fails
    path = open_connect_path(job)

    with pytest.raises(RuntimeError, match="analysis failed"):
        job.client.execute_command(JobCommand(WrittenStream()))
    assert path.new_starts() == []


def test_stream_of_the_job_is_read_along_after_ours_has_made_way(job, monkeypatch):
    path = open_connect_path(job)
    order = []
    monkeypatch.setattr(path.stream, "make_way", lambda: order.append("made way"))
    job.client.answers = [message(batch(1)), message(batch(1), batch(2)), {}]
    job._sqm = bus("a listener")

    answers = list(job.client.execute_command_as_iterator(JobCommand(adds=True)))

    assert order == ["made way"]
    assert answers == job.client.answers
    assert len(path.source.take(0)) == 2
    assert path.check(0.0).registered
    assert path.missing == MISSING


def test_listener_added_before_attach_keeps_the_stream_and_that_is_said(job):
    job._sqm = bus("a listener")
    path = open_connect_path(job)

    assert not path.check(0.0).registered
    assert "before attach" in path.check(0.0).missing[0]


def test_continuous_query_needs_no_checkpoint_where_none_can_be_read(job):
    path, state = open_connect_path(job), State(0.0)
    seen = run(trigger="ContinuousTrigger(1000)", message="Running", busy=True)
    for at in range(0, 600, 5):
        state.apply_probe(ProbeReport(at, at, (seen,), listener=path.check(at)))

    assert evaluate(state.snapshot(600), 600, policy(probe_expected=True)).findings == ()


def test_polled_batch_counts_once_and_at_once_while_no_stream_is_open(job):
    path = open_connect_path(job)
    path.pass_on_polled(batch(1).event_json)
    path.pass_on_polled(batch(1).event_json)

    assert len(path.source.take(0)) == 1


@pytest.mark.parametrize("brings", [(), (1, 2)])
def test_polled_batch_gives_an_open_stream_time_until_the_next_poll(job, monkeypatch, brings):
    """A listener of the job that hangs keeps its stream open, and brings nothing."""
    path = open_connect_path(job)
    monkeypatch.setattr(path.stream, "make_way", list)
    job._sqm = bus("a listener")
    job.client.answers = [message(*map(batch, brings))]
    stream = job.client.execute_command_as_iterator(JobCommand(adds=True))
    path.pass_on_polled(batch(2).event_json)
    assert path.source.depth == 0

    list(stream)
    path.pass_on_held()
    path.pass_on_held()

    assert [event.payload for event in path.source.take(0)] == [
        batch(number).event_json for number in brings or (2,)
    ]


@pytest.mark.parametrize("spark", ["3.5.9", "3.5.0"])
def test_spark_without_a_stream_is_polled_and_that_is_said_once(job, monkeypatch, caplog, spark):
    monkeypatch.setattr(OurClient, "spark", spark)

    path = open_connect_path(job)

    assert (path.name, path.has_stream) == ("connect_polling", False)
    assert caplog.text.count(f"Spark {spark} has no event stream") == 1
    assert spark in path.missing[0]
    path.pass_on_polled(batch(1).event_json)
    assert path.source.depth == 1


@pytest.mark.parametrize("spark", ["dbr-16.4", "", "v4.0.0"])
def test_stream_is_tried_where_the_version_is_not_understood(job, monkeypatch, spark):
    monkeypatch.setattr(OurClient, "spark", spark)

    assert open_connect_path(job).has_stream


def test_connection_is_closed_where_the_path_cannot_be_made(job, monkeypatch):
    clients = []
    monkeypatch.setattr(
        paths, "ConnectClient", lambda spark: clients.append(OurClient(spark)) or clients[0]
    )
    del job.client

    with pytest.raises(AttributeError):
        open_connect_path(job)
    assert clients[0].closed


def test_client_of_spark_3_5_is_watched_without_what_it_lacks(job, monkeypatch):
    class OlderClient:
        _session_id = "session"

        def execute_command(self, command):
            result = SimpleNamespace(query_id=SimpleNamespace(id="q", run_id="r"), name="orders")
            return None, {"write_stream_operation_start_result": result}

    monkeypatch.setattr(OurClient, "spark", "3.5.9")
    job.client = OlderClient()
    path = open_connect_path(job)
    job.client.execute_command(JobCommand(WrittenStream(format="noop", options={})))

    assert [facts.name for facts in path.new_starts()] == ["orders"]
    path.release()
    assert vars(job.client) == {}


def test_release_leaves_the_jobs_client_as_it_was(job):
    path = open_connect_path(job)
    assert vars(job.client).keys() > {"answers"}

    path.release()

    assert vars(job.client).keys() == {"answers"}
    assert path.client.closed


def test_release_leaves_an_earlier_wrapper_of_somebody_else(job):
    earlier = partial(job.client.execute_command)
    job.client.execute_command = earlier
    path = open_connect_path(job)

    path.release()

    assert job.client.execute_command is earlier


def test_release_leaves_a_later_wrapper_of_somebody_else(job):
    path = open_connect_path(job)
    ours = job.client.execute_command
    theirs = partial(ours)
    job.client.execute_command = theirs

    path.release()

    assert job.client.execute_command is theirs
    assert job.client.execute_command(None)[1]
