"""The runs of a Spark Connect session, from fake answers of its server."""

from __future__ import annotations

import json
from collections import deque
from types import SimpleNamespace

import pytest

from querypulse.listener.connect.client import CallFailure, ConnectCallError, ServerSilentError
from querypulse.listener.connect.probe import END_POLLS, RUN_LOST, ConnectRuns
from querypulse.listener.probe import RunFacts, Trigger
from querypulse.listener.spark.jvm import OptionalCalls


class EndedWith(SimpleNamespace):
    """As ``ExceptionResult``."""

    def HasField(self, name):
        return bool(self.exception_message)


class Server:
    """Answers as ``ConnectClient`` does; ``error`` is raised for every question about a run."""

    session_id = "session"

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
        client=state.server, starts=state.starts, receive_progress=state.events.append
    )
    state.runs = ConnectRuns(path, state.details)
    return state


def polled(world, now=0.0):
    world.runs.poll(now)
    return {seen.facts.run_id: seen for seen in world.runs.report(now)}


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


@pytest.mark.parametrize(
    ("is_new", "polls", "events"),
    [
        (False, [[1], [1], [1, 2]], [1, 2]),
        (False, [[7, 8, 9], [7, 8, 9, 10, 11, 12]], [9, 10, 11, 12]),
        (False, [[8, 9], [9, 10, (11,)], [10, (11,), 11]], [9, 10, 11]),
        (False, [[(9,)], [(9,), 9, 10, (11,)]], [9, 10]),
        (True, [[0, 1, 2], [0, 1, 2, 3]], [0, 1, 2, 3]),
        (True, [[(0,)], [(0,)]], []),
    ],
    ids=[
        "each batch is an event once",
        "batches between two polls are not lost, those before attach are no events",
        "triggers without a batch are no events",
        "batches before such a trigger are not lost",
        "all batches of a run that the job has started",
        "no batch yet",
    ],
)
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


def test_run_that_the_job_started_has_its_trigger(world):
    facts = RunFacts("q", "r", "q", Trigger("AvailableNow"), "noop", "/c")
    world.starts.append(facts)
    world.server.running = {"r": "q"}

    assert polled(world)["r"].facts == facts


def test_run_that_ended_before_the_first_poll_is_reported(world):
    world.starts.append(RunFacts("q", "r", "q", Trigger("AvailableNow"), "noop", "/c"))

    run = polled(world)["r"]

    assert (run.active, run.exception) == (False, None)


def test_run_that_failed_is_reported_with_its_exception(world):
    world.server.running = {"r": "q"}
    world.runs.poll(0.0)
    world.server.running = {}
    world.server.ends["r"] = "org.apache.spark.SparkException: boom"

    run = polled(world)["r"]

    assert not run.active
    assert run.exception == "org.apache.spark.SparkException: boom\nat x"


def test_query_started_again_ends_its_old_run(world):
    world.server.running = {"one": "q"}
    world.runs.poll(0.0)
    world.server.running = {"two": "q"}

    runs = polled(world)

    assert {run: seen.active for run, seen in runs.items()} == {
        "one": False,
        "two": True,
    }


def test_run_that_cannot_be_polled_does_not_affect_the_others(world):
    world.server.running = {"bad": "b", "good": "g"}
    world.server.errors["bad"] = ConnectCallError("no")
    world.server.statuses["good"] = ("Processing new data", True)

    assert polled(world)["good"].processing


def test_refused_details_do_not_grow_with_the_number_of_runs(world):
    for number in range(200):
        world.server.running = {f"r{number}": f"q{number}"}
        world.server.errors[f"r{number}"] = ConnectCallError("no")
        world.runs.poll(0.0)

    assert len(world.details.missing) <= 2
    assert len(world.runs._living) <= END_POLLS


def test_run_whose_end_is_unknown_is_not_reported_as_stopped(world):
    world.server.running = {"r": "q"}
    world.runs.poll(0.0)
    world.server.running = {}
    world.server.errors["r"] = ConnectCallError("no such query")

    assert [list(polled(world)) for _ in range(END_POLLS)] == [["r"], ["r"], []]


@pytest.mark.parametrize(
    ("running", "answer"),
    [
        ({}, "Streaming query 51ca48ec is not found"),
        ({"new": "q"}, "Run id mismatch for query id 51ca48ec. Run id in request r does not match"),
    ],
    ids=["lost", "lost and started again"],
)
def test_run_that_the_server_no_longer_knows_has_failed(world, running, answer):
    world.server.running = {"r": "q"}
    world.runs.poll(0.0)
    world.server.running = running
    world.server.errors["r"] = ConnectCallError(answer)

    run = polled(world)["r"]
    assert (run.active, run.exception) == (False, RUN_LOST)


def test_end_that_could_not_be_read_is_read_later(world):
    world.server.running = {"r": "q"}
    world.runs.poll(0.0)
    world.server.running = {}
    world.server.errors["r"] = ConnectCallError("interrupted")
    assert polled(world)["r"].active
    del world.server.errors["r"]

    assert not polled(world)["r"].active


def test_poll_without_the_active_queries_is_no_poll(world, monkeypatch):
    def interrupted():
        raise ConnectCallError("the operation was cancelled")

    monkeypatch.setattr(world.server, "active", interrupted)

    with pytest.raises(ServerSilentError):
        world.runs.poll(0.0)


def test_silent_server_fails_the_whole_poll(world):
    world.server.running = {"r": "q"}
    world.server.errors["r"] = ServerSilentError(CallFailure.LATE)

    with pytest.raises(ServerSilentError):
        world.runs.poll(0.0)
