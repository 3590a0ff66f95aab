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
from querypulse.listener.connect.client import CallFailure, ConnectClient, ServerSilentError
from querypulse.listener.connect.event_path import ConnectPath, trigger_text
from querypulse.listener.events import Started, decode
from querypulse.listener.probe_report import Context, ProbeReport, RunFacts, parse_trigger
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

    def __init__(self, start=None, asked=None):
        self.write_stream_operation_start = start
        self.streaming_query_command = asked

    def HasField(self, name):
        return getattr(self, name) is not None


class JobClient:
    """The job's client: its methods are real methods, which the path wraps."""

    sends_event = False
    """From Spark 4.0 on."""
    is_closed = False
    error = None

    def release_session(self):
        """The server answers."""

    def close(self):
        self.is_closed = True

    def execute_command(self, command):
        if self.error is not None:
            raise self.error
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


class QueryCommand(SimpleNamespace):
    """As ``StreamingQueryCommand``."""

    query_id = SimpleNamespace(id="q", run_id="r")

    def WhichOneof(self, name):
        return self.kind


START = JobCommand(WriteStart(once=True, format="delta", options={"checkpointLocation": "/c"}))


@pytest.fixture
def job(monkeypatch):
    monkeypatch.setattr(event_path, "ConnectClient", OurClient)
    monkeypatch.setattr(JobClient, "error", None)
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


@pytest.mark.parametrize("method", ["execute_command", "release_session", "close"])
@pytest.mark.parametrize("wrapped", ["by nobody else", "before us", "since"])
def test_release_leaves_the_jobs_client_as_others_left_it(job, wrapped, method):
    theirs = partial(getattr(job.client, method))
    if wrapped == "before us":
        setattr(job.client, method, theirs)
    path = ConnectPath(job)
    if wrapped == "since":
        theirs = partial(getattr(job.client, method))
        setattr(job.client, method, theirs)

    path.release()

    others = {} if wrapped == "by nobody else" else {method: theirs}
    assert vars(job.client) == others
    assert job.client.execute_command(None)[1]
    assert path.client.closed


@pytest.mark.parametrize(("kind", "stopped"), [("stop", ["r"]), ("status", []), (None, [])])
def test_run_that_the_job_stops_is_known_to_the_probe(job, kind, stopped):
    path = ConnectPath(job)
    stop = JobCommand(asked=QueryCommand(kind=kind))
    job.client.execute_command(stop)
    JobClient.error = RuntimeError("not now")
    with pytest.raises(RuntimeError, match="not now"):
        job.client.execute_command(stop)

    assert list(path.stopped) == stopped


SESSION_CLOSED = RuntimeError("[INVALID_HANDLE.SESSION_CLOSED] The handle 1 is invalid.")
SESSION_CHANGED = RuntimeError("(..) [INVALID_HANDLE.SESSION_CHANGED] The handle 1 is invalid.")


@pytest.mark.parametrize(
    ("ends", "context"),
    [
        ([], None),
        (["release_session"], Context.STOPPED_BY_APPLICATION),
        (["close"], Context.STOPPED_BY_APPLICATION),
        (["release_session", "close", "close"], Context.STOPPED_BY_APPLICATION),
    ],
)
@pytest.mark.parametrize("error", [None, RuntimeError("unreachable"), SESSION_CLOSED])
def test_job_has_left_its_session_unless_its_calls_found_it_lost_before(job, ends, context, error):
    path = ConnectPath(job)
    if error is not None:
        JobClient.error = error
        with pytest.raises(RuntimeError):
            job.client.execute_command(START)
    for method in ends:
        getattr(job.client, method)()

    is_lost = error is SESSION_CLOSED
    assert path.left is (context and (Context.SESSION_ENDED if is_lost else context))
    assert path.lost is (CallFailure.SESSION_CLOSED if is_lost else None)
    assert job.client.is_closed == ("close" in ends)


def test_client_that_pyspark_closes_as_its_session_is_lost_was_not_left_by_the_job(job):
    """It does so where a call is answered with SESSION_CHANGED."""
    path = ConnectPath(job)
    JobClient.error, job.client.is_closed = SESSION_CHANGED, True
    with pytest.raises(RuntimeError):
        job.client.execute_command(START)
    assert (path.left, path.lost) == (None, CallFailure.SESSION_LOST)

    job.client.close()

    assert path.left is Context.SESSION_ENDED


def test_client_of_spark_3_5_releases_no_session(job, monkeypatch):
    monkeypatch.delattr(JobClient, "release_session")
    path = ConnectPath(job)

    path.release()

    assert vars(job.client) == {}


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
