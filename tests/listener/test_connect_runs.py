"""The runs of a Spark Connect session, from fake answers of its server."""

from __future__ import annotations

import json
from collections import deque
from types import SimpleNamespace

import pytest

from querypulse.listener.connect.client import CallFailure, ConnectCallError, ServerSilentError
from querypulse.listener.connect.probe import END_POLLS, RUN_LOST, ConnectRuns
from querypulse.listener.probe_report import RunFacts, Trigger
from querypulse.listener.spark.jvm import OptionalCalls


class EndedWith(SimpleNamespace):
    """As ``ExceptionResult``."""

    def HasField(self, name):
        return bool(self.exception_message)


class Server:
    """Answers as ``ConnectClient`` does; ``error`` is raised for every question about a run."""

    session_id = "session"
    has_server_session = False

    def __init__(self):
        self.running = {}
        self.progress = {}
        self.statuses = {}
        self.ends = {}
        self.errors = {}
        self.refused = {}
        """By kind of question: the error of the next one."""

    def active(self):
        return [
            SimpleNamespace(id=SimpleNamespace(id=query, run_id=run), name=query)
            for run, query in self.running.items()
        ]

    def query(self, run, **what):
        _, run_id = run
        if run_id in self.errors:
            raise self.errors[run_id]
        for kind in what:
            if kind in self.refused:
                raise self.refused.pop(kind)
        if "status" in what:
            message, busy = self.statuses.get(run_id, ("Waiting for next trigger", False))
            return SimpleNamespace(
                status=SimpleNamespace(
                    status_message=message, is_trigger_active=busy, is_data_available=busy
                )
            )
        if "last_progress" in what or "recent_progress" in what:
            texts = self.progress.get(run_id, [])[-1 if "last_progress" in what else -100 :]
            return SimpleNamespace(recent_progress=SimpleNamespace(recent_progress_json=texts))
        message = self.ends.get(run_id, "")
        return SimpleNamespace(
            exception=EndedWith(exception_message=message, error_class="", stack_trace="at x")
        )


def progress(query, run, batch, *, committed=True):
    phases = {"addBatch": 5} if committed else {"latestOffset": 1}
    return json.dumps({"id": query, "runId": run, "batchId": batch, "durationMs": phases})


@pytest.fixture
def world():
    state = SimpleNamespace(server=Server(), starts=deque(), events=[], details=OptionalCalls())
    path = SimpleNamespace(
        client=state.server,
        starts=state.starts,
        stopped=(),
        receive_progress=state.events.append,
    )
    state.runs = ConnectRuns(path, state.details)
    return state


def polled(world):
    world.runs.poll(0.0)
    return {seen.facts.run_id: seen for seen in world.runs.report(0.0)}


def test_active_run_is_reported_with_its_status_and_next_batch(world):
    world.server.running = {"r": "q"}
    world.server.progress["r"] = [progress("q", "r", 4)]
    world.server.statuses["r"] = ("Processing new data", True)

    run = polled(world)["r"]

    assert (run.active, run.processing, run.batch_id) == (True, True, 5)
    assert run.facts.name == "q"
    assert not run.facts.trigger.is_known


def test_progress_without_a_batch_names_the_next_batch_and_is_no_event(world):
    world.server.running = {"r": "q"}
    world.server.progress["r"] = [progress("q", "r", 5, committed=False)]

    run = polled(world)["r"]

    assert run.batch_id == 5
    assert run.waiting_without_data
    assert world.events == []


POLLS = {
    "each batch is an event once": (False, [[1], [1], [1, 2]], [1, 2]),
    "batches between two polls, and none from before attach": (
        False,
        [[7, 8, 9], [7, 8, 9, 10, 11, 12]],
        [9, 10, 11, 12],
    ),
    "triggers without a batch are no events": (
        False,
        [[8, 9], [9, 10, (11,)], [10, (11,), 11]],
        [9, 10, 11],
    ),
    "batches before such a trigger are not lost": (False, [[(9,)], [(9,), 9, 10, (11,)]], [9, 10]),
    "all batches of a run that the job has started": (
        True,
        [[0, 1, 2], [0, 1, 2, 3]],
        [0, 1, 2, 3],
    ),
    "no batch yet": (True, [[(0,)], [(0,)]], []),
}


@pytest.mark.parametrize(("is_new", "polls", "events"), POLLS.values(), ids=POLLS)
def test_each_batch_is_an_event_once(world, is_new, polls, events):
    if is_new:
        world.starts.append(RunFacts("q", "r", "q", Trigger("AvailableNow"), "noop", "/c"))
    world.server.running = {"r": "q"}
    for batches in polls:
        world.server.progress["r"] = [
            progress("q", "r", *batch, committed=False)
            if isinstance(batch, tuple)
            else progress("q", "r", batch)
            for batch in batches
        ]
        world.runs.poll(0.0)

    assert [json.loads(event)["batchId"] for event in world.events] == events


@pytest.mark.parametrize("refused", ["status", "recent_progress", "exception"])
def test_batch_is_not_lost_where_another_call_of_its_poll_fails(world, refused):
    world.server.running = {"r": "q"}
    world.server.progress["r"] = [progress("q", "r", 0)]
    world.runs.poll(0.0)
    world.server.progress["r"] = [progress("q", "r", batch) for batch in range(3)]
    if refused == "exception":
        world.server.running = {}
    world.server.refused[refused] = ServerSilentError(CallFailure.UNREACHABLE)
    with pytest.raises(ServerSilentError):
        world.runs.poll(0.0)
    world.runs.poll(0.0)

    assert [json.loads(event)["batchId"] for event in world.events] == [0, 1, 2]


@pytest.mark.parametrize("running", [{"r": "q"}, {}], ids=["it runs", "it has ended already"])
def test_run_that_the_job_started_is_reported_with_its_trigger(world, running):
    facts = RunFacts("q", "r", "q", Trigger("AvailableNow"), "noop", "/c")
    world.starts.append(facts)
    world.server.running = running

    run = polled(world)["r"]
    assert (run.facts, run.active, run.exception) == (facts, bool(running), None)


@pytest.mark.parametrize("running", [{}, {"again": "q"}], ids=["ends", "runs again"])
@pytest.mark.parametrize(
    "says", ["Streaming query 51ca is not found", "Run id mismatch for query id"]
)
def test_flow_whose_end_the_server_hides_from_clients_has_completed(world, running, says):
    """The server forgets a declarative pipeline's flow at its end, and keeps the session."""
    world.server.has_server_session = True
    world.server.running = {"r": "q"}
    assert not polled(world)["r"].facts.trigger.is_known

    world.server.running = running
    world.server.errors["r"] = ConnectCallError(says)
    run = polled(world)["r"]
    assert (run.active, run.exception, run.error_class) == (False, None, None)
    assert run.facts.trigger.ends_by_itself


def test_run_that_the_job_started_itself_is_no_flow_and_its_hidden_end_a_loss(world):
    """Its trigger has no end, so that it has not completed."""
    world.server.has_server_session = True
    started = Trigger("ProcessingTime", interval_seconds=1.0)
    world.starts.append(RunFacts("q", "r", "q", started, "noop", "/c"))
    world.server.running = {"r": "q"}
    polled(world)

    world.server.running = {}
    world.server.errors["r"] = ConnectCallError("Streaming query 51ca is not found")
    run = polled(world)["r"]
    assert (run.active, run.exception, run.facts.trigger) == (False, RUN_LOST, started)


ENDS = {
    "stopped": ({}, "", "", None),
    "started again": ({"new": "q"}, "", "", None),
    "failed": (
        {},
        "org.apache.spark.SparkException: boom",
        "",
        "org.apache.spark.SparkException: boom\nat x",
    ),
    "lost": ({}, "", "Streaming query 51ca48ec is not found", RUN_LOST),
    "lost and started again": (
        {"new": "q"},
        "",
        "Run id mismatch for query id 51ca48ec. Run id in request",
        RUN_LOST,
    ),
}


@pytest.mark.parametrize(("running", "message", "answer", "exception"), ENDS.values(), ids=ENDS)
def test_run_that_has_ended_is_reported_with_its_exception(
    world, running, message, answer, exception
):
    world.server.running = {"r": "q"}
    world.runs.poll(0.0)
    world.server.running, world.server.ends["r"] = running, message
    if answer:
        world.server.errors["r"] = ConnectCallError(answer)

    runs = polled(world)
    assert (runs["r"].active, runs["r"].exception) == (False, exception)
    assert [name for name, run in runs.items() if run.active] == list(running)


def test_end_that_cannot_be_read_is_tried_again_and_is_not_reported_as_a_stop(world):
    world.server.running = {"later": "l", "never": "n"}
    world.runs.poll(0.0)
    world.server.running = {}
    world.server.errors = {run: ConnectCallError("interrupted") for run in ("later", "never")}
    assert all(run.active for run in polled(world).values())
    del world.server.errors["later"]

    assert {name: run.active for name, run in polled(world).items()} == {
        "later": False,
        "never": True,
    }
    assert [list(polled(world)) for _ in range(END_POLLS - 2)] == [["later"]]


def test_run_that_cannot_be_polled_affects_no_other_and_is_missed_once(world):
    for number in range(200):
        world.server.running = {f"r{number}": f"q{number}", "good": "g"}
        world.server.errors[f"r{number}"] = ConnectCallError("no")
        world.server.statuses["good"] = ("Processing new data", True)

        assert polled(world)["good"].processing
    assert len(world.details.missing) <= 2
    assert len(world.runs._living) <= END_POLLS + 1


@pytest.mark.parametrize("silent", ["the active queries", "a run"])
def test_poll_without_an_answer_is_no_poll(world, monkeypatch, silent):
    def interrupted():
        raise ConnectCallError("the operation was cancelled")

    world.server.running = {"r": "q"}
    if silent == "a run":
        world.server.errors["r"] = ServerSilentError(CallFailure.UNREACHABLE)
    else:
        monkeypatch.setattr(world.server, "active", interrupted)

    with pytest.raises(ServerSilentError):
        world.runs.poll(0.0)
