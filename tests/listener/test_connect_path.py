"""What Spark Connect shows of the job's own client, and what our connection sends."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import pytest
from pyspark.sql.connect.client import DefaultChannelBuilder
from support.story import policy, run

from querypulse.alerting.evaluate import evaluate
from querypulse.listener.connect import event_path
from querypulse.listener.connect.client import ConnectClient, ServerSilentError
from querypulse.listener.connect.event_path import ConnectPath, trigger_text
from querypulse.listener.events import Started, decode
from querypulse.listener.probe import ProbeReport, RunFacts, parse_trigger
from querypulse.listener.state.state import State


class WriteStart(SimpleNamespace):
    """As ``WriteStreamOperationStart``."""

    def WhichOneof(self, name):
        kinds = ("processing_time_interval", "available_now", "once")
        kinds += ("continuous_checkpoint_interval", "real_time_batch_duration", "later_kind")
        return next((kind for kind in kinds if hasattr(self, kind)), None)

    def HasField(self, name):
        return hasattr(self, name)


class JobCommand:
    """As ``Command``."""

    def __init__(self, start=None):
        self.write_stream_operation_start = start

    def HasField(self, name):
        return getattr(self, name) is not None


class JobClient:
    """The job's client: its methods are real methods, which the path wraps."""

    sends_event = False
    """From Spark 4.0 on."""

    def execute_command(self, command):
        query = SimpleNamespace(id="q", run_id="r")
        text = json.dumps({"id": "q", "runId": "r", "name": "bronze", "timestamp": None})
        result = SimpleNamespace(query_id=query, name="bronze")
        if self.sends_event:
            result.query_started_event_json = text
        return None, {"write_stream_operation_start_result": result}, None


class OurClient:
    session_id = "session"

    def __init__(self, spark):
        self.closed = False

    def version(self):
        return "3.5.9"

    def close(self):
        self.closed = True


START = JobCommand(WriteStart(once=True, format="delta", options={"checkpointLocation": "/c"}))


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(event_path, "ConnectClient", OurClient)
    return SimpleNamespace(client=JobClient())


@pytest.mark.parametrize("sends_event", [True, False])
def test_start_by_the_job_is_an_event_and_known_to_the_probe(job, sends_event):
    job.client.sends_event = sends_event
    path = ConnectPath(job)

    assert job.client.execute_command(START)[1]

    (event,), (facts,) = path.source.take(0), path.starts
    assert decode(event.kind, event.payload) == Started("q", "r", "bronze")
    assert (event.trigger, event.session) == ("OneTimeTrigger", "session")
    once = parse_trigger("OneTimeTrigger")
    assert facts == RunFacts("q", "r", "bronze", once, "delta", "/c", session="session")


@pytest.mark.parametrize("command", [JobCommand(), JobCommand(WriteStart()), None])
def test_error_of_ours_does_not_reach_the_job(job, command):
    path = ConnectPath(job)

    assert job.client.execute_command(command)[1]
    assert path.source.depth == 0


def test_error_of_spark_reaches_the_job(job):
    def fails(command):
        raise RuntimeError("analysis failed")

    job.client.execute_command = fails
    path = ConnectPath(job)

    with pytest.raises(RuntimeError, match="analysis failed"):
        job.client.execute_command(START)
    assert not path.starts


def test_continuous_query_needs_no_checkpoint_where_none_can_be_read(job):
    path, state = ConnectPath(job), State(0.0)
    seen = run(trigger="ContinuousTrigger(1000)", message="Running", busy=True)
    for at in range(0, 600, 5):
        state.apply_probe(ProbeReport(at, at, (seen,), listener=path.check(at)))

    assert evaluate(state.snapshot(600), 600, policy(probe_expected=True)).findings == ()


def test_connection_is_closed_where_the_path_cannot_be_made(job, monkeypatch):
    clients = []
    monkeypatch.setattr(OurClient, "version", lambda self: clients.append(self) or "3.4.1")

    with pytest.raises(RuntimeError, match=r"needs 3\.5"):
        ConnectPath(job)
    assert clients[0].closed


@pytest.mark.parametrize("wrapped", ["by nobody else", "before us", "since"])
def test_release_leaves_the_jobs_client_as_others_left_it(job, wrapped):
    theirs = partial(job.client.execute_command)
    if wrapped == "before us":
        job.client.execute_command = theirs
    path = ConnectPath(job)
    if wrapped == "since":
        theirs = job.client.execute_command = partial(job.client.execute_command)

    path.release()

    others = {} if wrapped == "by nobody else" else {"execute_command": theirs}
    assert vars(job.client) == others
    assert job.client.execute_command(None)[1]
    assert path.client.closed


def test_trigger_is_written_as_spark_prints_it_or_unknown():
    """By the field of the request that holds it, and its value."""
    texts = {
        ("processing_time_interval", "1 second"): "ProcessingTime(1 s)",
        ("processing_time_interval", "INTERVAL 1 minute 30 SECONDS"): "ProcessingTime(90 s)",
        ("processing_time_interval", "1 day 2 hours"): "ProcessingTime(93600 s)",
        ("available_now", True): "AvailableNow",
        ("once", True): "Once",
        ("continuous_checkpoint_interval", "500 milliseconds"): "Continuous(0.5 s)",
        ("real_time_batch_duration", "5 minutes"): "RealTime(300 s)",
        ("later_kind", "1 second"): "",
        **{
            ("processing_time_interval", odd): ""
            for odd in ("1 month", "", "1", "1 second or so", "1.5 seconds")
        },
    }
    written = {(kind, text): trigger_text(WriteStart(**{kind: text})) for kind, text in texts}

    assert {key: text and str(parse_trigger(text)) for key, text in written.items()} == texts
    assert str(parse_trigger(trigger_text(WriteStart()))) == "ProcessingTime"


class Rotating(DefaultChannelBuilder):
    """The job's channel builder, with a token for each request."""

    tokens = ()

    def metadata(self):
        token, *self.tokens = self.tokens
        return [("authorization", token)]


def test_each_request_has_the_metadata_that_the_jobs_builder_returns_then():
    builder, sent = Rotating("sc://127.0.0.1:1"), []
    job = SimpleNamespace(_builder=builder, _session_id="s", _user_id="u")

    def execute(request, *, metadata, timeout):
        sent.append(metadata)
        none = SimpleNamespace(active=SimpleNamespace(active_queries=[]))
        result = {"streaming_query_manager_command_result": none}
        return [SimpleNamespace(HasField=lambda kind: True, **result)]

    with closing(ConnectClient(SimpleNamespace(client=job))) as client:
        client._stub = SimpleNamespace(ExecutePlan=execute)
        builder.tokens = ["first", "second"]
        assert client.active() == client.active() == []
        with pytest.raises(ServerSilentError, match="metadata: not enough values"):
            client.active()

    assert sent == [[("authorization", "first")], [("authorization", "second")]]
