"""A story of queries on a fake clock, for tests of the state and of the rules."""

from __future__ import annotations

import math

from msgspec.structs import replace

from querypulse.alerting.evaluate import Evaluation, evaluate
from querypulse.alerting.policy import Limits, Policy
from querypulse.listener.commit_log import (
    LoggedBatches,
    LogReport,
    SinkLog,
    StartingPoint,
    Written,
)
from querypulse.listener.events import Idle, Progress, SourceProgress, Started, Terminated
from querypulse.listener.offsets import WHOLE, lag_between, parse_offsets
from querypulse.listener.past_failures import FailedQuery, PastFailures, mark_of
from querypulse.listener.probe_report import (
    NONE_LOST,
    Context,
    JobActivity,
    JobCounts,
    ListenerHealth,
    ProbedRun,
    ProbeReport,
    RunFacts,
    parse_trigger,
)
from querypulse.listener.source_polls import SourcePoll, SourceReport
from querypulse.listener.state.query import Query
from querypulse.listener.state.snapshot import SupervisedQuery
from querypulse.listener.state.state import State

CONFLICT = "io.delta.exceptions.ConcurrentAppendException: Files were added"


def progress(query="a", run=1, *, batch, seconds=1.0, committed=True, **fields) -> Progress:
    blank = {
        "phase_seconds": {"addBatch": seconds},
        "input_rows": 10,
        "output_rows": None,
        "input_rows_per_second": None,
        "processed_rows_per_second": None,
        "watermark_timestamp": None,
        "state_rows": None,
        "state_memory_bytes": None,
        "late_rows": 0,
        "sources": (),
    }
    return Progress(
        query_id=f"id-{query}",
        run_id=f"{query}-{run}",
        name=query,
        batch_id=batch,
        committed=committed,
        batch_seconds=seconds,
        **{**blank, **fields},
    )


def source(
    end, latest=None, *, rows=10, description="Kafka", start=None, **backlog
) -> SourceProgress:
    """One source of a batch, with offsets as Spark's JSON has them."""
    ended, newest = parse_offsets(end), parse_offsets(latest)
    lag, begun = lag_between(ended, newest), parse_offsets(start)
    return SourceProgress(description, lag, ended, newest, rows, start=begun, **backlog)


def run(
    query="a",
    number=1,
    *,
    trigger="ProcessingTimeTrigger(0)",
    active=True,
    message="Waiting for data to arrive",
    batch=None,
    busy=False,
    data=False,
    tasks=None,
    async_progress=False,
    log_interval=0.0,
    own=None,
    unowned=None,
    slots=None,
    lost=NONE_LOST,
    waits_for_log=False,
    line="",
    stack=(),
    python_cpu=None,
    jvm_cpu=None,
    phase=None,
    finished=None,
    sink="noop",
    session="",
    **fields,
) -> ProbedRun:
    """A poll of a run; ``tasks`` counts those of its jobs, ``finished`` is what they did."""
    facts = RunFacts(
        query_id=f"id-{query}",
        run_id=f"{query}-{number}",
        name=query,
        trigger=parse_trigger(trigger),
        sink=sink,
        checkpoint="/cp",
        async_progress=async_progress,
        log_interval_seconds=log_interval,
        session=session,
    )
    tracked = JobCounts(jobs_started=2, jobs_active=1, tasks_completed=tasks or 0)
    polled = JobActivity(
        own=own or tracked,
        unowned=unowned or JobCounts(),
        counted=own is not None,
        waits_for_log=waits_for_log,
        slots=slots,
        lost=lost,
        python_line=line,
        jvm_stack=stack,
        python_cpu_seconds=python_cpu,
        jvm_cpu_seconds=jvm_cpu,
        phase=phase,
    )
    return ProbedRun(
        facts=facts,
        active=active,
        message=message,
        trigger_active=busy,
        data_available=data,
        batch_id=batch,
        work=None if (tasks, own, jvm_cpu) == (None, None, None) else polled,
        tasks=finished,
        **fields,
    )


def processing(query="a", number=1, *, batch, **fields) -> ProbedRun:
    return run(
        query, number, message="Processing new data", busy=True, data=True, batch=batch, **fields
    )


def poll(
    *,
    at,
    committed,
    earliest=0,
    latest=1000,
    since=None,
    first_waiting=None,
    keeps=None,
    sized=False,
    log_end=None,
    topic_id="",
    written_since=None,
    system="broker:9092",
    at_rest=False,
) -> SourcePoll:
    """A poll of topic ``t`` at the broker; a number is a value of its only partition.

    ``since``: when the first unread record was written, on the story's clock; ``keeps``: the
    retention time in seconds.
    """
    offsets = {
        "committed": committed,
        "earliest": earliest,
        "latest": latest,
        "waiting_since": since,
        "first_waiting": first_waiting,
        "log_end": log_end,
        "written_since": written_since,
    }
    by_partition = {
        name: value if isinstance(value, dict) else {} if value is None else {"t/0": value}
        for name, value in offsets.items()
    }
    return SourcePoll(
        "Kafka",
        **by_partition,
        retention_seconds={} if keeps is None else {"t": keeps},
        at=at,
        wall=at,
        bounded_by_size=frozenset({"t"} if sized else ()),
        topic_ids={"t": topic_id} if topic_id else {},
        system=system,
        at_rest=at_rest,
    )


MONDAY = 1795392000.0
"""The Unix time of second 0 of a story: midnight of 2026-11-23, a Monday, in UTC."""


class Story:
    """Observations in the order of the calls; ``at`` is monotonic seconds on a clock from 0.

    A query that is started again without a ``run`` has its next one, which all later steps mean.
    """

    def __init__(self) -> None:
        self.state = State(0.0)
        self._past = PastFailures()
        self.ends_at = 0.0
        self.runs: dict[str, int] = {}

    def newest(self, query, run=None):
        """The run that a step means."""
        return self.runs.get(query, 1) if run is None else run

    def until(self, at):
        """The story goes on until then, at least."""
        self.ends_at = max(self.ends_at, at)
        return self

    def started(self, query="a", run=None, *, at):
        if run is None:
            run = self.runs[query] = self.runs.get(query, 0) + 1
        self.state.apply_event(Started(f"id-{query}", f"{query}-{run}", query), at)
        return self.until(at)

    def started_again(self, *, at):
        """The name of query a under a new id: its checkpoint was deleted."""
        self.state.apply_event(Started("id-new-a", "new-a", "a"), at)
        return self.until(at)

    def commit(self, query="a", run=None, *, batch, at, seconds=1.0, **fields):
        run = self.newest(query, run)
        self.state.apply_event(progress(query, run, batch=batch, seconds=seconds, **fields), at)
        return self.until(at)

    def idle(self, query="a", run=None, *, at):
        run = self.newest(query, run)
        self.state.apply_event(Idle(f"id-{query}", f"{query}-{run}"), at)
        return self.until(at)

    def ended(
        self, query="a", run=None, *, at, exception=None, error_class=None, context=Context.RUNNING
    ):
        run = self.newest(query, run)
        self.state.apply_event(
            Terminated(f"id-{query}", f"{query}-{run}", exception, error_class), at, context
        )
        return self.until(at)

    def failed(self, query="a", run=None, *, at):
        return self.ended(query, run, at=at, exception=CONFLICT)

    def takes(self, query="b", run=1, *, of="a", of_run=1, at, proven=True):
        """A query is started on the checkpoint of query a, while ``of`` runs on it; Spark stops that.

        Unless that is ``proven``, it may also have ended before.
        """
        self.state.apply_event(Terminated("id-a", f"{of}-{of_run}"), at)
        start = Started(
            "id-a",
            f"{query}-{run}",
            query,
            trigger="ProcessingTimeTrigger(0)",
            checkpoint="/cp",
            replaced=f"{of}-{of_run}" if proven else "",
        )
        self.state.apply_event(start, at)
        return self.until(at)

    def probe(self, *runs, at, **how):
        """A probe report that has polled each of these runs."""
        return self.report(*map(replace, runs), at=at, **how)

    def seen(self, query="a", number=None, *, at, **fields):
        """A probe report of one run."""
        return self.probe(run(query, self.newest(query, number), **fields), at=at)

    def works(self, query="a", number=None, *, at, batch, **fields):
        """A probe report of one run, which processes a batch."""
        seen = processing(query, self.newest(query, number), batch=batch, **fields)
        return self.probe(seen, at=at)

    def report(
        self,
        *runs,
        at,
        context=Context.RUNNING,
        scheduler=None,
        unowned=None,
        dropped=0,
        session_ends=None,
        **listener,
    ):
        """A probe report of these runs; a run object that was reported before was not polled now."""
        health = ListenerHealth(registered=True, dropped_events=dropped, **listener)
        report = ProbeReport(
            at, at, runs, context, health, scheduler, unowned, session_ends=session_ends
        )
        self.state.apply_probe(report)
        return self.until(at)

    def log(self, query="a", run=None, *, at, planned=None, committed=None, unreadable=None):
        """A reading of the checkpoint of a run."""
        run = self.newest(query, run)
        run_id = f"{query}-{run}"
        if unreadable is not None:
            self.state.apply_commit_log(LogReport(at, unreadable={run_id: unreadable}))
        else:
            self.state.apply_commit_log(LogReport(at, {run_id: LoggedBatches(planned, committed)}))
        return self.until(at)

    def began(self, query="a", run=None, *, at, unfinished=None, committed=None, usual=None):
        """The checkpoint when the run began: batch ids, and when they were written."""
        run = self.newest(query, run)
        point = StartingPoint(
            committed=Written(*committed) if committed else None,
            unfinished=Written(*unfinished) if unfinished else None,
            longest_seconds=(usual, usual) if usual else (),
        )
        self.state.apply_commit_log(LogReport(at, starts={f"{query}-{run}": point}))
        return self.until(at)

    def sink(self, query="a", run=None, *, at, **seen):
        """A reading of the log of a run's file sink."""
        run = self.newest(query, run)
        self.state.apply_commit_log(LogReport(at, sinks={f"{query}-{run}": SinkLog(**seen)}))
        return self.until(at)

    def folder(self, query="a", run=None, *, at, gone=False):
        """A poll of the folder that a run's file source reads."""
        run = self.newest(query, run)
        here = "file:/in" if gone else ""
        poll = SourcePoll(
            "FileStreamSource[file:/in]", {}, {}, {}, at=at, wall=at, missing_folder=here
        )
        self.state.apply_sources(SourceReport(at, {f"{query}-{run}": {0: poll}}))
        return self.until(at)

    def ask(self, query="a", run=None, *, at, **source):
        """A poll of the broker of a run's only source."""
        run = self.newest(query, run)
        polls = {f"{query}-{run}": {0: poll(at=at, **source)}}
        self.state.apply_sources(SourceReport(at, polls))
        return self.until(at)

    def table(
        self,
        query="a",
        run=None,
        *,
        at,
        read,
        end,
        kept_from=None,
        since=None,
        keeps=None,
        within=0,
        gone="",
        unit="version",
        setting="",
    ):
        """A poll of the Delta table that a run reads: how far it was read, and where it ends.

        ``kept_from``: the first version that can be read; ``since``: when the first unread one was
        written, on the story's clock; ``keeps``: the retention time in seconds.
        """
        run = self.newest(query, run)
        values = {
            "earliest": kept_from,
            "waiting_since": since,
            "retention_seconds": keeps,
            "within": within or None,
            "gone": gone or None,
        }
        known = {name: {} if value is None else {WHOLE: value} for name, value in values.items()}
        poll = SourcePoll(
            "DeltaSource[/t]",
            {WHOLE: read},
            latest={WHOLE: end},
            at=at,
            wall=at,
            unit=unit,
            retention_setting=setting,
            **known,
        )
        self.state.apply_sources(SourceReport(at, {f"{query}-{run}": {0: poll}}))
        return self.until(at)

    def expect_stop(self, query="a", until=math.inf):
        self.state.expect_stop(query, until=until)
        return self

    def evaluated(self, *, at):
        """In production, that is each second."""
        self.state.snapshot(at)
        return self.until(at)

    def completed_before(self, query="a", *, at):
        """An earlier process has kept when a run completed."""
        kept = FailedQuery(f"id-{query}", mark_of(query), completed_at=at)
        self._past.add([kept], now=0.0, wall=0.0, began_at=0.0)
        return self

    def expect_end(self, until):
        self.state.expect_end(until)
        return self

    def paused(self, *, at, seconds):
        self.state.pause(at, seconds)
        return self.until(at)

    def supervised(self, query="a", **fields):
        said = SupervisedQuery(**fields)
        self.state.supervised = {**self.state.supervised, query: said}
        return self

    def snapshot(self, now):
        self.state.restore(self._past)
        return replace(self.state.snapshot(now), wall=MONDAY + now)

    def query(self, name="a") -> Query:
        return self.state.snapshot(0.0).labels()[name]

    def evaluate(self, now, **settings) -> Evaluation:
        return evaluate(self.snapshot(now), now, policy(**settings))


def policy(
    *, expected=(), overrides=(), probe_expected=False, expected_errors=(), program=None, **limits
) -> Policy:
    return Policy(
        tuple(expected),
        tuple(expected_errors),
        Limits(**limits),
        tuple(overrides),
        probe_expected=probe_expected,
        ends=program is not None,
        program=program,
    )


class IdStory(Story):
    """A story whose queries may share a name: a test chooses ids, runs, names and sessions."""

    def start(self, query_id, run_id, name="q", *, at, **fields):
        self.state.apply_event(Started(query_id, run_id, name, **fields), at)
        return self.until(at)

    def commits(self, query_id, run_id, name="q", *, at, batch, **fields):
        done = progress(batch=batch, **fields)
        event = replace(done, query_id=query_id, run_id=run_id, name=name)
        self.state.apply_event(event, at)
        return self.until(at)

    def idles(self, query_id, run_id, *, at):
        self.state.apply_event(Idle(query_id, run_id), at)
        return self.until(at)

    def ends(self, query_id, run_id, *, at, exception=None):
        self.state.apply_event(Terminated(query_id, run_id, exception, None), at)
        return self.until(at)

    def fails(self, query_id, run_id, *, at):
        return self.ends(query_id, run_id, at=at, exception=CONFLICT)

    def crash_loop(self, runs):
        """``runs`` runs that all fail, one per second from second 0."""
        for number in range(runs):
            self.start("id", f"run-{number}", at=number)
            self.fails("id", f"run-{number}", at=number + 0.5)
        return self

    def shown(self, now=1e6):
        """The queries by label, late enough that each label is decided."""
        return self.state.snapshot(now).labels()

    def found(self, now, **settings):
        """The findings, as (alert name, query)."""
        return [
            (finding.alertname, finding.query)
            for finding in self.evaluate(now, **settings).findings
        ]


def polled(
    query_id,
    run_id,
    name="q",
    *,
    session="",
    active=True,
    exception=None,
    checkpoint=None,
    **fields,
):
    seen = run(active=active, exception=exception, **fields)
    facts = replace(
        seen.facts,
        query_id=query_id,
        run_id=run_id,
        name=name,
        session=session,
        checkpoint=f"/cp/{query_id}" if checkpoint is None else checkpoint,
    )
    return replace(seen, facts=facts)


def folder(name):
    return SourceProgress(f"FileStreamSource[file:/lake/{name}]", None)


class Lake(Story):
    """Each query writes the folder of its name; ``reads`` names the folders that it reads."""

    def __init__(self, **reads) -> None:
        super().__init__()
        self.reads = {name: folders.split() for name, folders in reads.items()}
        for name in self.reads:
            self.started(name, at=0)

    def batch(self, name, number, *, at, **fields):
        sources = tuple(map(folder, self.reads[name]))
        event = progress(
            name, batch=number, sources=sources, sink=f"FileSink[/lake/{name}]", **fields
        )
        self.state.apply_event(event, at)
        return self

    def batches(self, number, *, at):
        for name in self.reads:
            self.batch(name, number, at=at)
        return self

    def waits(self, *names, at):
        for name in names:
            self.idle(name, at=at)
        return self
