"""What the lines of a recording show of the queries: their runs, and batches that took long.

Events say when a run began and ended. States say it where an event was lost, and what held a batch.
States may be of a newer version: what they lack, or have in another form, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

import msgspec

from ..alerting.facts import Slots
from ..alerting.words.reasons import long_task_text, slots_text
from ..listener.events import DecodeError, EventKind, Progress, Started, Terminated, decode
from ..listener.failure import Failure, describe_failure
from ..listener.probe_report import UNOWNED, JobActivity
from ..listener.state.run import Delay, Outcome, delay_of, holder_of_slots
from .lines import END_OF_TIME, Event, Patch, Recording, State, patched
from .states import ENDING


class RunStory(msgspec.Struct, kw_only=True):
    """One run of a query; times are Unix seconds, None where the recording does not show them."""

    query: str
    run_id: str
    started_at: float | None = None
    is_restart: bool = False
    """Whether an earlier run of the query is in the recording."""
    is_supervised: bool = False
    """Whether querypulse started it again."""
    ended_at: float | None = None
    outcome: Outcome | None = None
    """None while it is not known how it ended."""
    has_vanished: bool = False
    with_process: bool = False
    """Whether its process ended first, without a word."""
    was_expected: bool = False
    """Whether its end was announced."""
    failure: Failure | None = None
    exception: str = ""
    failed_batch: int | None = None
    """The batch in flight when it failed."""
    first_commit: Commit | None = None


class Commit(msgspec.Struct, frozen=True):
    """A batch was committed at Unix time ``at``."""

    at: float
    batch_id: int


class Hold(msgspec.Struct):
    """What held a batch from ``at`` on: its kind, the words, and the thread's stack then."""

    at: float
    kind: str
    text: str
    newest: str
    """The words when it was seen last: a task runs for longer."""
    stack: tuple[str, ...] = ()


class FlightStory(msgspec.Struct, kw_only=True):
    """One batch in flight, or with ``batch_id`` None its planning."""

    query: str
    run_id: str
    batch_id: int | None
    since: float
    until: float | None = None
    is_committed: bool = False
    seen_at: float
    """When a state last showed it."""
    holds: list[Hold] = msgspec.field(default_factory=list)

    @property
    def seconds(self) -> float:
        """For how long it was in flight, as far as states show it."""
        until = self.seen_at if self.until is None else self.until
        return max(0.0, until - self.since)


def observe(parts: Sequence[Recording]) -> Observed:
    """Read the events and the states of all parts; sort runs and flights by their beginning."""
    observer = Observed()
    for part in parts:
        for line in part.lines:
            if isinstance(line, Event):
                observer.read_event(line)
            elif isinstance(line, State):
                observer.read_state(line)
        if part is not parts[-1]:
            observer.end_process(part.ends_at)
    observer.runs.sort(key=lambda run: run.started_at or 0.0)
    observer.flights.sort(key=lambda flight: flight.since)
    return observer


class Observed:
    """All that the lines show of the queries, as they are read in order."""

    def __init__(self) -> None:
        self.runs: list[RunStory] = []
        self.flights: list[FlightStory] = []
        self.contexts: list[tuple[float, str]] = []
        """When the probe first saw the SparkContext in another state, and that state."""
        self.program_ends: list[tuple[float, str]] = []
        """When the main program ended, which nobody had announced, and how, in words."""
        self.commits: list[tuple[str, Event, Progress]] = []
        """The query, the line and the decoded progress of each committed batch."""
        self.unread = 0
        """Events and states of a form that could not be read."""
        self._run_of: dict[tuple[str, str], RunStory] = {}
        self._driver: Patch = {}
        self._queries: Patch = {}
        self._flying: dict[str, FlightStory] = {}
        self._restarts: dict[str, float] = {}

    def end_process(self, at: float) -> None:
        """End what the process leaves, and forget its state."""
        for run in self.runs:
            if run.ended_at is None:
                run.ended_at = at
                run.with_process = True
        for flight in self._flying.values():
            flight.until = at if flight.until is None else flight.until
        self._driver = {}
        self._queries = {}
        self._flying = {}
        self._restarts = {}

    # Events

    def read_event(self, line: Event) -> None:
        """Add an event of Spark."""
        try:
            kind = EventKind(line.event)
            event = decode(kind, _text_of(line))
        except (DecodeError, ValueError, RecursionError):
            self.unread += 1
            return
        run = self._run(line.query, event.run_id)
        if isinstance(event, Started):
            run.started_at = line.at
        elif isinstance(event, Terminated):
            _note_end(run, line.at, event)
            self._end_flight(run)
        elif isinstance(event, Progress) and event.committed:
            self.commits.append((line.query, line, event))
            self._note_commit(run, Commit(line.at, event.batch_id))

    def _run(self, query: str, run_id: str) -> RunStory:
        run = self._run_of.get((query, run_id))
        if run is None:
            is_restart = any(other == query for other, _ in self._run_of)
            run = RunStory(query=query, run_id=run_id, is_restart=is_restart)
            self._run_of[query, run_id] = run
            self.runs.append(run)
        return run

    def _note_commit(self, run: RunStory, commit: Commit) -> None:
        if run.first_commit is None:
            run.first_commit = commit
        flight = self._flying.get(run.query)
        if flight is not None and flight.run_id == run.run_id:
            self._land(flight, commit)

    @staticmethod
    def _land(flight: FlightStory, commit: Commit) -> None:
        is_done = flight.batch_id is not None and commit.batch_id >= flight.batch_id
        if is_done and not flight.is_committed:
            flight.until = commit.at
            flight.is_committed = True

    def _end_flight(self, run: RunStory) -> None:
        flight = self._flying.get(run.query)
        if flight is not None and flight.run_id == run.run_id and flight.until is None:
            flight.until = run.ended_at

    # States

    def read_state(self, line: State) -> None:
        """Add what was new in a state."""
        try:
            self._driver = patched(self._driver, line.driver)
            self._queries = patched(self._queries, line.queries)
        except (TypeError, RecursionError):
            self.unread += 1
            return
        self._read_driver(line)
        for label in line.queries:
            query = self._queries.get(label)
            if isinstance(query, dict):
                self._read_query(label, query, line)

    def _read_driver(self, line: State) -> None:
        context = _inside(self._driver, "probe", "context")
        before = self.contexts[-1][1] if self.contexts else "running"
        if isinstance(context, str) and context != before:
            self.contexts.append((line.at, context))
        how = _inside(line.driver, ENDING, "program", "how")
        if isinstance(how, str):
            self.program_ends.append((line.at, how))

    def _read_query(self, label: str, query: Patch, line: State) -> None:
        state = query.get("run")
        run_id = _inside(state, "run_id")
        if not isinstance(state, dict) or not isinstance(run_id, str):
            return
        run = self._run(label, run_id)
        if run.started_at is None:
            run.started_at = _wall(state.get("started_at"), line)
        batch = _whole(state.get("last_commit_batch"))
        committed_at = _wall(state.get("last_commit_at"), line)
        if batch is not None and committed_at is not None:
            self._note_commit(run, Commit(committed_at, batch))
        self._follow_flight(label, run, state, line)
        _note_ended_state(run, state, line)
        if run.ended_at is not None:
            self._end_flight(run)
        self._note_supervised(label, run)

    def _note_supervised(self, label: str, run: RunStory) -> None:
        """A run is ours if the count of our restarts has grown since the run before it ended."""
        restarts = _number(_inside(self._driver, "supervised", label, "restarts")) or 0.0
        before = self._restarts.setdefault(label, restarts)
        if run.ended_at is None:
            run.is_supervised = run.is_supervised or restarts > before
            self._restarts[label] = restarts

    def _follow_flight(self, label: str, run: RunStory, state: Patch, line: State) -> None:
        seen = state.get("in_flight")
        since = _wall(_inside(seen, "since"), line)
        flight = self._flying.get(label)
        if not isinstance(seen, dict) or since is None:
            self._flying.pop(label, None)
            if flight is not None and flight.until is None:
                flight.until = line.at
            return
        batch_id = _whole(seen.get("batch_id"))
        same = flight is not None and (flight.run_id, flight.batch_id) == (run.run_id, batch_id)
        if flight is None or not same:
            if flight is not None and flight.until is None:
                flight.until = since
            flight = FlightStory(
                query=label, run_id=run.run_id, batch_id=batch_id, since=since, seen_at=line.at
            )
            self._flying[label] = flight
            self.flights.append(flight)
        flight.seen_at = line.at
        hold = _hold_of(_inside(state, "probed", "work"), line.at, self._labels())
        if hold is None:
            return
        if flight.holds and flight.holds[-1].kind == hold.kind:
            flight.holds[-1].newest = hold.text
        else:
            flight.holds.append(hold)

    def _labels(self) -> dict[str, str]:
        """The labels of the queries by their ids."""
        return {
            query_id: label
            for label, query in self._queries.items()
            if isinstance(query_id := _inside(query, "query_id"), str)
        }


def _text_of(line: Event) -> bytes:
    """Spark's JSON; that of a progress event may lack the object around it."""
    is_bare = line.event == EventKind.PROGRESS.value and "progress" not in line.data
    return msgspec.json.encode({"progress": line.data} if is_bare else line.data)


def _note_end(run: RunStory, at: float, event: Terminated) -> None:
    run.ended_at = at
    if event.exception is None:
        return
    run.outcome = Outcome.FAILED
    run.failure = describe_failure(event.exception, event.error_class)
    run.exception = event.exception


def _note_ended_state(run: RunStory, state: Patch, line: State) -> None:
    run.was_expected = run.was_expected or state.get("stop_expected") is True
    vanished_at = _wall(state.get("vanished_at"), line)
    ended = state.get("ended")
    if isinstance(ended, dict):
        run.has_vanished = False
        with suppress(ValueError):
            run.outcome = Outcome(ended.get("outcome"))
        if run.ended_at is None or run.outcome is Outcome.FAILED:
            run.failed_batch = _whole(_inside(state, "in_flight", "batch_id"))
        if run.ended_at is None:
            run.ended_at = _wall(ended.get("at"), line)
        if run.failure is None and ended.get("failure") is not None:
            with suppress(msgspec.ValidationError):
                run.failure = msgspec.convert(ended["failure"], Failure, strict=False)
    elif vanished_at is not None and run.ended_at is None:
        run.ended_at = vanished_at
        run.has_vanished = True


# -- what held a batch --------------------------------------------------------------------------


def _hold_of(work: Any, at: float, labels: dict[str, str]) -> Hold | None:
    """What the newest poll of a batch's jobs shows; None without one."""
    if not isinstance(work, dict):
        return None
    try:
        activity = msgspec.convert(work, JobActivity, strict=False)
        delay = delay_of(activity)
        text = _delay_text(delay, activity, labels)
    except (msgspec.ValidationError, OverflowError):
        return None
    kind = _place(activity) if delay is None else delay.value
    return Hold(at, kind, text, text, activity.jvm_stack) if text else None


def _delay_text(delay: Delay | None, work: JobActivity, labels: dict[str, str]) -> str:
    if delay is Delay.TASK_RUNNING:
        count = work.jobs.tasks_active
        tasks = "1 task runs" if count == 1 else f"{count} tasks run"
        longest = work.jobs.longest
        return tasks if longest is None else f"{tasks} ({long_task_text(longest)})"
    if delay is Delay.NO_EXECUTORS:
        return "no executor is available to run its tasks"
    if delay is Delay.WAITING_FOR_SLOTS and work.slots is not None:
        holder = holder_of_slots(work)
        name = None if holder == UNOWNED else labels.get(holder, holder)
        slots = Slots(work.slots.total, work.slots.taken, work.slots.held, name)
        return f"none of its tasks runs: {slots_text(slots)}"
    if work.waits_for_log:
        return "it waits for the commit log"
    place = _place(work)
    thread = "Python thread" if work.python_line else "thread in Spark"
    return f"no task of its own runs, its {thread} is at {place}" if place else ""


def _place(work: JobActivity) -> str:
    """The line at which the thread is that runs the batch."""
    return work.python_line or next(iter(work.jvm_stack), "")


# -- values of states ---------------------------------------------------------------------------


def _inside(value: Any, *names: str) -> Any:
    """A member of a member; None where it is missing."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and abs(value) < END_OF_TIME and isfinite(value) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _wall(value: Any, line: State) -> float | None:
    """The Unix time of a monotonic time in a state; None without one."""
    number = _number(value)
    if number is None:
        return None
    wall = line.at - line.now + number
    return wall if 0.0 <= wall < END_OF_TIME else None
