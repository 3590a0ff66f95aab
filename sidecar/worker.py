"""The one thread that owns all state. It applies what arrives, evaluates, hands incidents over, and
only then publishes. It never calls the JVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf

import msgspec
from msgspec.structs import replace

from ..alerting.delivery.deliveries import Notifier
from ..alerting.delivery.spool import FailureHistory
from ..alerting.evaluate import Evaluation, evaluate, retired
from ..alerting.incidents.lifecycle import Evaluated, Lifecycle
from ..alerting.policy import Policy, is_remembered
from ..alerting.silences import Silence
from ..listener.commit_log import LogReport
from ..listener.events import Terminated
from ..listener.foresight.resources import Resources
from ..listener.mailbox import (
    Arrived,
    Ending,
    ExpectEnd,
    ExpectStop,
    Forget,
    Inbox,
    Item,
    Marker,
)
from ..listener.probe_report import ProbeReport
from ..listener.python_frames import MainThread
from ..listener.source_polls import SourceReport
from ..listener.state.end_to_end import EndToEnd
from ..listener.state.freshness import Freshness, FreshnessCounts, Promise
from ..listener.state.identity import base_label
from ..listener.state.snapshot import ALONE, Ownership, Snapshot, SupervisedQuery
from ..listener.state.state import State

TICK_SECONDS = 1.1
"""A little longer than the pause between calm polls: each poll evaluates by itself."""
LATE_SECONDS = 2.0
POLL_AGAIN_SECONDS = 5.0
FORGET_EVERY_SECONDS = 60.0


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker reads: other threads fill the inbox and renew what the functions return.

    The functions never wait. The first four return None until their thread has a report.
    """

    inbox: Inbox
    report: Callable[[], ProbeReport | None]
    log: Callable[[], LogReport | None] = lambda: None
    sources: Callable[[], SourceReport | None] = lambda: None
    host: Callable[[], Resources | None] = lambda: None
    ownership: Callable[[], Ownership] = lambda: ALONE
    silences: Callable[[], Sequence[Silence]] = tuple
    supervised: Callable[[], Mapping[str, SupervisedQuery]] = dict
    """By label: the queries that the application lets querypulse restart."""
    main_thread: Callable[[], MainThread] = MainThread
    """Where the main thread is; called at most once in an evaluation."""


class Worker:
    """Applies what arrived, evaluates, hands the incidents over and then calls ``on_evaluated``.

    An evaluation passes through ``redact`` before anything else sees it.
    """

    def __init__(
        self,
        inputs: Inputs,
        policy: Policy,
        lifecycle: Lifecycle,
        dispatch: Notifier,
        *,
        failure_history: FailureHistory | None = None,
        redact: Callable[[Evaluation], Evaluation],
        on_error: Callable[[str, Exception], None],
        on_evaluated: Callable[[Evaluated], None],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.policy = policy
        """The policy in force: a forgotten query is no longer expected."""
        self.state = State(clock(), policy.expected, partial(is_remembered, policy))
        self.evaluated = Evaluated(self.state.snapshot(clock()), Evaluation(), (), wall=wall())
        self.beat_at = clock()
        self._inputs = inputs
        self._lifecycle = lifecycle
        self._dispatch = dispatch
        self._failure_history = failure_history or FailureHistory()
        self._redact = redact
        self._on_error = on_error
        self._on_evaluated = on_evaluated
        self._clock = clock
        self._wall = wall
        self._report: ProbeReport | None = None
        self._log: LogReport | None = None
        self._sources: SourceReport | None = None
        self._host: Resources | None = None
        self._resumed_at: float | None = None
        self._evaluated_at = 0.0
        self._woke_at = clock()
        self._waiting: list[Marker] = []
        self._requests: list[ExpectStop | ExpectEnd | Forget] = []
        """What was announced since the last evaluation."""
        self._ending: Ending | None = None
        self._forgot_at = clock()
        self._end_to_end = EndToEnd()
        self._freshness = FreshnessCounts()

    def step(self) -> None:
        """One round: wait at most ``TICK_SECONDS``, apply what arrived, evaluate when due."""
        items = self._inputs.inbox.take(TICK_SECONDS)
        now = self._clock()
        self._note_pause(now)
        for item in items:
            self._take(item)
        polled = self._take_reports()
        events = [item.event for item in items if isinstance(item, Arrived)]
        ended = any(isinstance(event, Terminated) for event in events)
        due = bool(self._waiting) or polled or ended or now - self._evaluated_at >= TICK_SECONDS
        if due and not self._waits_for_poll(now):
            self._resumed_at = None
            self._evaluate(now)
            for marker in self._waiting:
                marker.set()
            self._waiting.clear()
        self.beat_at = self._clock()

    def _note_pause(self, now: float) -> None:
        """Exclude the time in which this process did not run: nothing was observed then.

        If two polls were reported meanwhile, it ran, and only this thread was slow.
        """
        woke_at, self._woke_at = self._woke_at, now
        report, late = self._inputs.report(), now - woke_at - TICK_SECONDS
        polled_at = None if report is None else report.previous_at
        if late > LATE_SECONDS and (polled_at is None or polled_at <= woke_at):
            self.state.pause(now, late)
            if self._resumed_at is None:
                self._resumed_at = now

    def _take(self, item: Item) -> None:
        if isinstance(item, Arrived):
            self.state.apply_event(item.event, item.at, item.context)
            return
        if isinstance(item, (ExpectStop, ExpectEnd, Forget)):
            self._requests.append(item)
        if isinstance(item, ExpectStop):
            self.state.expect_stop(item.name, is_label=item.is_label, until=item.until)
        elif isinstance(item, ExpectEnd):
            self.state.expect_end(item.until)
        elif isinstance(item, Forget):
            self._forget(item)
        elif isinstance(item, Ending):
            self._ending = item
            crashed, program = item.crashed, item.program
            self.policy = replace(self.policy, ends=True, crashed=crashed, program=program)
        else:
            self._waiting.append(item)

    def _forget(self, request: Forget) -> None:
        self.state.forget_name(request.name, is_label=request.is_label)
        self._lifecycle.forget(request.name)
        self._freshness.forget(request.name if request.is_label else base_label(request.name))
        expected = tuple(name for name in self.policy.expected if name in self.state.expected)
        self.policy = replace(self.policy, expected=expected)

    def _take_reports(self) -> bool:
        """Apply the newest reports; returns whether the probe has polled since the last round."""
        report, log, sources = self._inputs.report(), self._inputs.log(), self._inputs.sources()
        polled = report is not None and report is not self._report
        if report is not None and polled:
            self._report = report
            self.state.apply_probe(report)
        if log is not None and log is not self._log:
            self._log = log
            self.state.apply_commit_log(log)
        if sources is not None and sources is not self._sources:
            self._sources = sources
            self.state.apply_sources(sources)
        host = self._inputs.host()
        if host is not None and host is not self._host:
            self._host = host
            self.state.apply_reading(host)
        return polled

    def _evaluate(self, now: float) -> None:
        self.state.supervised = self._inputs.supervised()
        if now - self._forgot_at >= FORGET_EVERY_SECONDS:
            self._forgot_at = now
            self.state.forget(now)
        self._evaluated_at = now
        self.state.own(self._inputs.ownership())
        # The process may have been frozen since ``now``.
        wall = self._wall() - (self._clock() - now)
        silences = self._inputs.silences()
        self._failure_history.restore(self.state, self._lifecycle, now, wall)
        snapshot = replace(self.state.snapshot(now), wall=wall)
        is_silenced = partial(self._lifecycle.is_silenced, silences=silences, wall=wall)
        main_thread = self._inputs.main_thread
        evaluation = self._redact(evaluate(snapshot, now, self.policy, is_silenced, main_thread))
        for rule, error in evaluation.errors:
            self._on_error(f"rule {rule}", error)
        before = self._lifecycle.held
        incidents = self._lifecycle.update(
            evaluation, snapshot, now, wall, silences, is_last=self.policy.ends
        )
        for stage, error in self._lifecycle.errors.items():
            self._on_error(stage, error)
        freshness = self._fresh(snapshot, evaluation, silences, wall)
        self._failure_history.keep(snapshot, self._lifecycle, wall, self.policy)
        self.evaluated = Evaluated(
            snapshot,
            evaluation,
            self._lifecycle.alerts,
            self._lifecycle.inhibited,
            self._passed(snapshot, evaluation),
            wall,
            incidents,
            tuple(silences),
            self._lifecycle.opened,
            tuple(self._requests),
            self._ending,
            before,
            freshness,
        )
        self._requests.clear()
        try:
            # The page goes first: it waits for nobody who only looks.
            self._dispatch.offer(incidents)
        finally:
            self._on_evaluated(self.evaluated)

    def _passed(self, snapshot: Snapshot, evaluation: Evaluation) -> dict[str, float]:
        """How new the data is at the end of each chain; an error in it affects nothing else."""
        over = retired(evaluation.health)
        try:
            return self._end_to_end.update(snapshot.labels(), evaluation.flow, over)
        except Exception as error:  # noqa: BLE001 - alerts do not depend on it
            self._on_error("end_to_end", error)
            return {}

    def _fresh(
        self,
        snapshot: Snapshot,
        evaluation: Evaluation,
        silences: Sequence[Silence],
        wall: float,
    ) -> Mapping[str, Freshness]:
        """How fresh the data of the queries is; an error in it affects nothing else."""
        counts, history = self._freshness, self._failure_history
        try:
            counts.restore(history.take_freshness(), snapshot.at, wall - snapshot.at)
            promises = promises_of(self.policy, snapshot, evaluation)
            planned = planned_until(snapshot, promises, silences, self._lifecycle, wall)
            freshness = counts.update(snapshot, promises, planned, wall)
            history.keep_freshness(counts, snapshot.at, wall, is_last=self.policy.ends)
        except Exception as error:  # noqa: BLE001 - alerts do not depend on it
            self._on_error("freshness", error)
            return {}
        return history.as_stored(freshness)

    def _waits_for_poll(self, now: float) -> bool:
        """Whether all data is older than a pause: so it is up to ``POLL_AGAIN_SECONDS`` after one.

        At the end no poll may follow, and nothing may be left out.
        """
        if self._resumed_at is None or self._report is None or self.policy.ends:
            return False
        is_old = self._report.began_at < self._resumed_at
        return is_old and now - self._resumed_at <= POLL_AGAIN_SECONDS


# -- freshness --------------------------------------------------------------------------------


def promises_of(policy: Policy, snapshot: Snapshot, evaluation: Evaluation) -> dict[str, Promise]:
    """How fresh the data of each query is to be, by label; nothing of what is ignored here."""
    if not policy.has_promises:
        return {}
    names = {query.label: query.base_name for query in snapshot.queries}
    names = {base_label(name): name for name in policy.expected} | names
    promises = {
        label: promise
        for label, name in names.items()
        if (promise := policy.limits(name).promise) is not None
    }
    return {
        label: promise
        for label, promise in promises.items()
        if (health := evaluation.health.get(label)) is not None and not health.ignored
    }


def planned_until(
    snapshot: Snapshot,
    labels: Iterable[str],
    silences: Sequence[Silence],
    lifecycle: Lifecycle,
    wall: float,
) -> dict[str, float]:
    """Until when the time of a query is planned, by label, of those of which it is.

    A silence has an end. An announced stop has none: it is over when the next run begins.
    """
    queries = snapshot.labels()
    planned = {}
    for label in labels:
        query = queries.get(label)
        is_stopped = query is not None and query.run.stop_expected
        until = lifecycle.planned_until(label, silences, wall)
        if is_stopped or snapshot.end_expected:
            planned[label] = inf
        elif until is not None:
            planned[label] = until - wall + snapshot.at
    return planned
