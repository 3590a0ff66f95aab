"""Small reverts of fixes, each with the property that must detect it.

A property that no mutation breaks is useless. Each entry replaces one attribute of the product, and
names the terms under which, and the number of seeds within which, the simulator must fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from querypulse.alerting.alert import CRITICAL, Alert, Incident
from querypulse.alerting.delivery import outbox, spool
from querypulse.alerting.delivery.outbox import Outbox
from querypulse.alerting.finding import Finding, Severity
from querypulse.alerting.incidents import lifecycle, recovery
from querypulse.alerting.incidents.lifecycle import Lifecycle
from querypulse.alerting.incidents.recovery import DriverHealth, FirstHealth, RecoveryWindow
from querypulse.alerting.kinds import Code, SharedCause
from querypulse.alerting.receivers import alertmanager
from querypulse.alerting.receivers.http import GONE_WAIT_SECONDS
from querypulse.alerting.receivers.webhook import message_id
from querypulse.alerting.rules import (
    data,
    losses,
    monitoring,
    progress,
    query_ends,
    stuck_batch,
)
from querypulse.alerting.rules.context import RuleContext
from querypulse.alerting.silences import Silence
from querypulse.core.states import DeliveryOutcome
from querypulse.exporter.pages import Notice
from querypulse.listener import event_reader, past_failures, probe_report
from querypulse.listener.probe_report import Context
from querypulse.listener.state import fold, identity, positions, state
from querypulse.listener.state.history import Totals
from querypulse.listener.state.identity import UNNAMED
from querypulse.listener.state.query import Query
from querypulse.listener.state.snapshot import Snapshot
from querypulse.watch import alerts as alerts_module
from querypulse.watch.tracker import TargetTracker, WatchedDriver

from . import driver, outside, receivers
from .generate import OWNED, PLAIN, Terms, generate
from .plan import Plan
from .scenarios import plan_of
from .world import PlanOutcome, run

EVALUATION = import_module("querypulse.alerting.evaluate")


class Mutation(msgspec.Struct, frozen=True):
    """Replaces ``owner.name`` by ``by``.

    It ``breaks`` one of these properties within ``seeds`` histories of ``terms``, or in ``plan``.
    """

    what: str
    breaks: str
    owner: Any
    name: str
    by: Any
    terms: Terms = OWNED
    seeds: int = 25
    first: int = 1
    """Where the search starts: at a seed that has shown the mutation before."""
    plan: Plan | None = None
    essential: bool = False
    """Whether no other one covers its decision; the rest are tried at night."""


def only(*kinds: str, around: tuple[str, ...] = (), **other: Any) -> Terms:
    """Short histories with little besides the named steps."""
    little: dict[str, Any] = {
        "minutes": (5.0,), "queries": (2,), "steps": (2, 3), "finite": 0.0, "declares": 0.0,
        "to_query": tuple((kind, 1.0) for kind in kinds or ("repeat",)),
        "around": tuple((kind, 1.0) for kind in around or ("acknowledge",)),
        "around_share": 0.5 if around else 0.0,
    }  # fmt: skip
    return replace(PLAIN, **{**little, **other})


def tried(mutation: Mutation) -> list[PlanOutcome]:
    """The histories up to the first that breaks the property, or all of them."""
    outcomes = []
    with patch.object(mutation.owner, mutation.name, mutation.by):
        for plan in _plans(mutation):
            outcomes.append(run(plan))
            if is_caught(mutation, outcomes[-1]):
                break
    return outcomes


def is_caught(mutation: Mutation, outcome: PlanOutcome) -> bool:
    """Whether the outcome breaks the property that must detect the mutation."""
    return outcome.violation in mutation.breaks.split("|")


def _plans(mutation: Mutation) -> Iterator[Plan]:
    if mutation.plan is not None:
        yield mutation.plan
        return
    for seed in range(mutation.first, mutation.first + mutation.seeds):
        yield generate(seed, mutation.terms)


# -- the product as it was -------------------------------------------------------------------------


_gather = EVALUATION.gather
_covers = Silence.covers
_why_muted, _fold_log = lifecycle.why_muted, fold.fold_log
_moved_since = probe_report.JobActivity.moved_since
_add_poll = state.add_poll
_poll, _poll_known = state.State.apply_probe, state.State._apply_known
_succeed, _failed, _restore = identity.succeed, Outbox.failed, Outbox.restore
_inhibitor, _present_open = Lifecycle._inhibitor, Lifecycle._present_open
_incident, _incident_key, _open = Lifecycle._incident, lifecycle.incident_key, Lifecycle._open
_first_health, _recovery = FirstHealth.update, DriverHealth.recovery
_forget = state.to_forget
_met_by_probe, _met_by_event = identity.Identity.met_by_probe, identity.Identity.met_by_event
_remains = identity.remains
_introduce = identity.Identity.introduce
_offer = driver.Courier.offer


def _reminds_always(self: Lifecycle, *others: Any) -> Any:
    terms, self._terms = self._terms, replace(self._terms, repeat_interval_seconds=30.0)
    try:
        return _present_open(self, *others)
    finally:
        self._terms = terms


def _id_without_revision(incident: Incident) -> str:
    return message_id(replace(incident, revision=0))


def _opens_late(self: Lifecycle, health: DriverHealth) -> None:
    if all(
        tracked.opened_at is not None or tracked.polls >= 30 for tracked in self._tracked.values()
    ):
        _open(self, health)


def _silenced_suppresses(self: Lifecycle, alert: Alert, health: DriverHealth) -> Any:
    alerts = list(self._tracked.values())
    reasons = [tracked.muted for tracked in alerts]
    for tracked in alerts:
        tracked.muted = ""
    suppressor = _inhibitor(self, alert, health)
    for tracked, muted in zip(alerts, reasons, strict=True):
        tracked.muted = muted
    return suppressor


def _end_is_never_muted(self: Lifecycle, *incident: Any) -> Any:
    shown = _incident(self, *incident)
    return replace(shown, muted="") if shown.is_over else shown


def _healthy_each_time(self: FirstHealth, *others: Any) -> list[str]:
    _first_health(self, *others)
    return list(self._healthy)


def _restored_rows_hide_nothing(self: Outbox, rows: Any, wall: float) -> None:
    _restore(self, rows, wall)
    self._knows_open = False


def _rejected_resolve_is_success(self: Outbox, error: Any, now: float, wall: float) -> Any:
    is_over = self._in_flight is not None and self._in_flight.message.is_over
    return self.delivered(wall) if is_over else _failed(self, error, now, wall)


def _ends_with(is_last: Callable[[Any], bool]) -> Callable[..., Any]:
    """What an outbox does that sends nothing any more after such an error."""

    def fails(self: Any, error: Any, *at: Any) -> Any:
        if is_last(error):
            self._waiting = lambda _: []
        return _failed(self, error, *at)

    return fails


def _poll_and_never_vanish(self: state.State, report: Any) -> None:
    _poll(self, report)
    for key, query in self._queries.items():
        self._queries[key] = replace(query, run=replace(query.run, vanished_at=None))


def _one_silent_query_is_a_silent_driver(findings: Any, *others: Any) -> Any:
    return _gather(
        [
            EVALUATION._of_driver([replace(finding, shared=SharedCause.JVM_SILENT)])
            if finding.code is Code.SILENT
            else finding
            for finding in findings
        ],
        *others,
    )


def _counts_old_drops(before: Any, report: Any) -> Any:
    if before.probe is None and report.listener.dropped_events:
        before = replace(before, events_dropped_at=report.at)
    return _add_poll(before, report)


def _raises(_self: Any, _stage: Any, error: Exception) -> None:
    raise error


def _fails_in_watcher(self: driver.Courier, incidents: Any) -> None:
    if self._sender.name == "watch":
        raise ZeroDivisionError
    _offer(self, incidents)


def _moves_by_tasks_only(self: probe_report.JobActivity, before: probe_report.JobActivity) -> Any:
    moves = _moved_since(self, before)
    return moves if moves is probe_report.Moves.TASKS else None


def _newest_bearer(self: identity.Identity, new: Any, *, wait: bool) -> Any:
    query = self.present(new.query_id)
    namesakes = self._namesakes(new.name)
    return query or (namesakes[-1] if namesakes else None)


def _memory_introduces(self: Any, run: Any, report: Any) -> Any:
    facts = run.facts
    query = self.present(facts.query_id)
    if run.active or (query is not None and query.query_id == facts.query_id):
        return _met_by_probe(self, run, report)
    return identity.Newcomer(facts.query_id, facts.run_id, report.at)


def _any_called(self: state.State, name: str, **_: bool) -> None:
    for query in [query for query in self._queries.values() if state.has_name(query, name)]:
        self._put(replace(query, run=replace(query.run, stop_expected=True)))


def _from_zero(query: Query) -> Query:
    return replace(query, history=replace(query.history, totals=Totals()))


def _by_its_own_time(event: Any, at: float, present: Any, *, wait: bool) -> bool:
    began = present.run.start.timestamp if present.run.start is not None else None
    return began is not None and event.timestamp is not None and event.timestamp < began


def _starting_is_calm(
    self: DriverHealth, label: str, severity: str, before: RecoveryWindow | None
) -> Any:
    if self._is_unhealthy(label, severity):
        return None
    query = self.queries.get(label)
    return before or RecoveryWindow(
        self.now, query.history.totals.commits if query is not None else 0
    )


def _calm_while_one_starts(
    self: DriverHealth, label: str, severity: str, before: RecoveryWindow | None
) -> RecoveryWindow | None:
    own = self._members(label)
    if label != UNNAMED:
        return _recovery(self, label, severity, before)
    if any(label not in self._listed and self._is_unhealthy(label, severity) for label in own):
        return None
    return before or RecoveryWindow(self.now, 0)


def _resolved_by_health(self: alerts_module.DriverAlerts, driver: WatchedDriver, _: object) -> bool:
    healthy, unseen = driver.healthy_seconds, 2 * self.tracker.interval_seconds
    return healthy is not None and healthy + unseen > self._resolve_after


OF_NOTIFYING = (
    Mutation("every end of a driver counts as planned", "P1",
             driver, "end_of", lambda *_: Notice.STOPPED,
             only(around=("context_dies",), around_share=1.0), 60, essential=True),
    Mutation("the end of the main program is not evaluated", "P1",
             EVALUATION, "program_ended", lambda *_: None,
             plan=plan_of("the main program ends with an exception while queries run"), essential=True),
    Mutation("a Spark Connect session that expires explains the end of its queries", "P1",
             fold, "died_of_stopped_context", lambda _: True,
             plan=plan_of("a Spark Connect session expires, and the client goes on"), essential=True),
    Mutation("a failure in a later batch is no news of an open incident", "P5",
             Lifecycle, "_failed_later", lambda *_: [],
             plan=plan_of("a query fails again in a later batch before it has recovered"), essential=True),
    Mutation("a topic with another id is the same topic", "P1",
             positions, "is_other_topic", lambda *_: False,
             plan=plan_of("a topic is deleted and created again, longer than the query has read"), essential=True),
    Mutation("a warning that is left of a critical incident has the message id of the first one", "P1",
             receivers, "message_id", _id_without_revision,
             plan=plan_of("input is missing before a failure and after it, at a webhook"), essential=True),
    Mutation("an alert of the whole driver suppresses a failure", "P4",
             lifecycle, "FACTS", frozenset(), plan=plan_of("a query that fails while it is stalled with all others"), essential=True),
    Mutation("a silenced alert of the whole driver suppresses others", "P4",
             Lifecycle, "_inhibitor", _silenced_suppresses,
             plan=plan_of("a silenced stall of the whole driver suppresses that a query has stopped")),
    Mutation("a silence covers the alerts of every app", "P1|P4",
             Silence, "covers", lambda self, *alert: _covers(replace(self, app="*"), *alert), only("die")),
    Mutation("the end of the application explains no end of a query", "P2",
             Context, "explains_ends", property(lambda _: False),
             plan=plan_of("the application stops its SparkContext, which takes longer than the grace")),
    Mutation("events that Spark dropped before the attach count", "P2",
             state, "add_poll", _counts_old_drops, plan=plan_of("Spark dropped events before the attach")),
    Mutation("an error in one rule ends the evaluation", "P1|P8",
             EVALUATION.Stages, "note", _raises,
             plan=plan_of("a rule raises, and a query fails"), essential=True),
    Mutation("a silent probe alone counts as a silent JVM", "P10",
             EVALUATION, "gather", _one_silent_query_is_a_silent_driver,
             plan=plan_of("a stalled query, and a probe that is refused for minutes: a page each time"), essential=True),
    Mutation("a failure that repeatedly recovers by itself notifies each time", "P5",
             Lifecycle, "_note_opened", lambda *_: 0.0, plan=plan_of("a failure that recovers by itself, three times an hour: a page each time"), essential=True),
    Mutation("the next process does not know how often an alert has fired", "P5",
             Lifecycle, "restore_opened", lambda *_: None, plan=plan_of("the same in a new process each time, with a spool")),
    Mutation("an alert that an earlier process left open is not held open", "P5",
             Lifecycle, "restore_opened",
             lambda self, found, _: self._opened.update({(one.alertname, one.query): one for one in found}),
             plan=plan_of("a planned restart of the driver while the alert is held open")),
    Mutation("every stopped query counts as stopped with its SparkContext", "P5",
             query_ends, "_ended_with_context", lambda case, _: case.snapshot.context is Context.STOPPED,
             only("stop", around=("context_dies",), around_share=0.5, steps=(6,)), 60),
    Mutation("a single poll without a run is enough to report it as stopped", "P2",
             query_ends, "_is_unconfirmed", lambda _: False,
             plan=plan_of("a single poll lacks a running query, and the probe is refused afterwards")),
    Mutation("an event of a past run replaces the present run", "P1|P2|P3|P5|P8",
             identity.Identity, "met_by_event", lambda _, event, at, *__, **___: identity.Newcomer(event.query_id, event.run_id, at),
             only("late", "restart", "die and restart",
                                                         steps=(8,)), first=24, essential=True),
    Mutation("probe reports of ended runs are ignored", "P1",
             state.State, "_apply_known", lambda self, run, report: run.active and _poll_known(self, run, report),
             only("die unreported")),
    Mutation("a run that is missing in a poll does not count as vanished", "P1",
             state.State, "apply_probe", _poll_and_never_vanish, only("die unseen"), essential=True),
    Mutation("the watcher cannot offer its incidents, and contains that", "P8",
             driver.Courier, "offer", _fails_in_watcher, only("repeat", around=("kill",), around_share=1.0, steps=(6,))),
    Mutation("a repeated event is applied twice", "P8",
             event_reader.EventReader, "_remember", lambda *_: True, only("repeat"), essential=True),
    Mutation("an incident resolves at the first sign of health", "P3",
             DriverHealth, "has_recovered", lambda self, _, recovery, seconds, *__: self.watched_since(recovery.since) >= seconds / 10.0,
             only("die and restart"), essential=True),
    Mutation("events that a full mailbox drops are not counted", "P8",
             event_reader.EventReader, "drops", property(lambda reader: dict(reader.dropped)),
             only("repeat", mailboxes=(1,))),
    Mutation("idleness is no activity", "P2",
             fold, "_idle", lambda query, _: query, only("dry")),
    Mutation("time without monitoring counts", "P2",
             Snapshot, "watched", lambda _, since, now: max(0.0, now - since),
             only(around=("pause",), around_share=1.0, every=(20.0,), takes=(8.0,)), 150, first=11, essential=True),
    Mutation("a failure waits for thirty evaluations", "P1",
             Lifecycle, "_open", _opens_late,
             only("die"), essential=True),
    Mutation("each run counts from zero", "P6",
             identity, "succeed", lambda *run: _from_zero(_succeed(*run)), only("restart")),
    Mutation("nothing that ended is ever forgotten", "P7",
             state.State, "forget", lambda *_: None,
             only("repeat", finite=1.0, queries=(6,), small_memory=1.0, memory=1), essential=True),
    Mutation("a cut connection counts as delivered", "P1",
             Outbox, "failed", lambda self, error, *at: self.delivered(at[1]) if error.may_have_arrived else _failed(self, error, *at),
             only("die in outage", steps=(1,), minutes=(8.0,), outages=("cut before",)), essential=True),
    Mutation("a firing alert sends two reminders a minute", "P10",
             Lifecycle, "_present_open", _reminds_always, only("die", "stop"), essential=True),
    Mutation("any alert that joins an open incident is news", "P10",
             lifecycle, "_news", lambda alerts: frozenset((alert.name, alert.query) for alert in alerts),
             plan=plan_of("a query fails, restarts, and hangs while its incident is open: another page"), essential=True),
    Mutation("queries that fail for different causes are one incident", "P11",
             Finding, "group", property(lambda _: ""), only(around=("die apart",), around_share=1.0, queries=(4, 6)), essential=True),
    Mutation("queries that fail for one cause are incidents of their own", "P11",
             lifecycle, "GROUP_SIZE", 1000, only(around=("die together",), around_share=1.0, queries=(4, 6))),
    Mutation("a cause is shared for a tenth of a second", "P11",
             lifecycle, "GROUP_SECONDS", 0.1, only(around=("die together",), around_share=1.0, queries=(4, 6)), 60),
    Mutation("a page is sent before the spool has stored it", "P3",
             spool.Spool, "write_ahead", lambda _: None,
             plan=plan_of("a process that is killed as it sends, before its spool has stored it"), essential=True),
    Mutation("a failed attempt is retried after an hour", "P1",
             outbox, "nth_wait", lambda *_: 3600.0, only("die in outage", steps=(1,), minutes=(8.0,)), first=5),
    Mutation("incidents that an earlier driver left open are forgotten", "P3|P5",
             Lifecycle, "restore", lambda *_: None,
             only("die", around=("kill",), steps=(4,)), 40, first=16, essential=True),
    Mutation("watch never treats a silent driver as down", "P1",
             TargetTracker, "is_gone", lambda *_: False, only(around=("kill",), around_share=1.0), 40, essential=True),
    Mutation("silences are ignored", "P2",
             lifecycle, "why_muted", lambda *_: "", only("die in silence")),
    Mutation("the end of a silenced incident is sent", "P2",
             Lifecycle, "_incident", _end_is_never_muted, only("die in silence", steps=(4,)), 60),
    Mutation("a muted incident stays muted after its silence", "P1",
             lifecycle, "why_muted", lambda alert, given, wall: _why_muted(alert, given, min([wall, *(one.until - 1.0 for one in given)])),
             only("die in silence", minutes=(8.0,)), essential=True),
    Mutation("one rejected message stops all messages to a receiver", "P1",
             Outbox, "failed", _ends_with(lambda error: error.answer is DeliveryOutcome.REJECTED),
             only("die", around=("poison",), steps=(6,)), 60),
    Mutation("one 410 stops all messages to a receiver", "P1",
             Outbox, "failed", _ends_with(lambda error: error.retry_after == GONE_WAIT_SECONDS),
             only("die", "die in outage", steps=(4, 6), outages=("gone",), minutes=(8.0,)), 60),
    Mutation("a commit log that was never written is not reported as a stall", "P1",
             fold, "fold_log", lambda query, log, at: query if log.committed is None else _fold_log(query, log, at),
             only("log_stuck", "new", logs_rarely=1.0, steps=(6,)), 60),
    Mutation("a checkpoint that cannot be read is not reported", "P1",
             monitoring, "_is_unread", lambda *_: False,
             plan=plan_of("a checkpoint that decides about the health of its query cannot be read")),
    Mutation("stuck offsets are not reported", "P1",
             progress, "_stuck", lambda *_: {}, only("stall", minutes=(8.0,)), essential=True),
    Mutation("rewound offsets are not reported", "P1",
             progress, "_went_back", lambda _: iter(()), only("rewind", minutes=(8.0,))),
    Mutation("any rise of the lag is reported", "P2",
             data, "rising", lambda _, points, __: points if points and points[-1].lag > points[0].lag else (),
             only("lag", "stall", "hang")),
    Mutation("missing input is not reported", "P1",
             losses, "has_uncounted_rows", lambda _: True,
             only("dry", "restart", "hang", minutes=(8.0,), steps=(4,), declares=1.0, expected_input=(70.0,)), first=8),
    Mutation("rows of batches that only the probe saw do not count", "P2",
             losses, "has_uncounted_rows", lambda _: False,
             only("drop", "dry", minutes=(8.0,), steps=(4,), declares=1.0, expected_input=(70.0,)), 60, first=16),
    Mutation("jobs of a thread pool belong to no query", "P2",
             probe_report.JobActivity, "moved_since", lambda now, before: probe_report.Moves.TASKS if now.own != before.own else None,
             only("fan_out"), essential=True),
    Mutation("jobs of a thread pool belong to every query", "P1",
             probe_report.JobActivity, "moved_since", lambda now, before: probe_report.Moves.TASKS if now != before else None,
             plan=plan_of("a batch hangs while the jobs of another query run in a pool of threads")),
    Mutation("expect_stop is ignored", "P2",
             state.State, "expect_stop", lambda *_, **__: None, only("plan_stop"), essential=True),
)  # fmt: skip

BATCHES = (
    Mutation("a slow batch is never critical", "P1",
             stuck_batch, "is_critical_by_time", lambda *_: False,
             plan=plan_of("the first batch of a run is retried for ever"), essential=True),
    Mutation("the trigger interval counts while a batch is in flight", "P1",
             RuleContext, "batch_window", property(lambda context: context.window),
             plan=plan_of("a batch hangs under a trigger of ten minutes")),
    Mutation("a delayed batch is critical after its window", "P2",
             stuck_batch, "stall_severity", lambda *_: Severity.CRITICAL,
             only("skew", "starve", minutes=(8.0,))),
    Mutation("the CPU time of a thread proves nothing: what works is hung", "P2",
             probe_report.JobActivity, "moved_since", _moves_by_tasks_only,
             plan=plan_of("the thread of a batch works for long: it is slow, and no page before it is critical")),
    Mutation("a delayed batch is never critical", "P1",
             stuck_batch, "stall_severity", lambda *_: Severity.WARNING,
             plan=plan_of("one task runs for twelve minutes")),
)  # fmt: skip

IDENTITY = (
    Mutation("a new checkpoint under the same name is another query", "P3|P4",
             identity.Identity, "_namesakes", lambda *_: [], only("new", named=1.0), first=10, essential=True),
    Mutation("expect_stop, stop and a new checkpoint: the probe's memory brings the old one back", "P2|P5|P6",
             identity.Identity, "met_by_probe", _memory_introduces,
             only("new", "plan_stop", named=1.0), 60),
    Mutation("two running queries of one name share a label", "P4|P6",
             identity.Identity, "_free_label", lambda _, *named: identity.base_label(*named),
             only("die", named=1.0, twins=1.0)),
    Mutation("running namesakes merge: the commit of one recovers the other", "P4|P6",
             identity.Identity, "_predecessor", _newest_bearer, only("die", named=1.0, twins=1.0, steps=(1,))),
    Mutation("a query continues the one that a poll shows active beside it", "P4|P6",
             identity.Identity, "introduce", lambda self, new, **wait: _introduce(self, replace(new, beside=frozenset()), **wait),
             plan=plan_of("a namesake that a slow poll shows first, after the other one failed")),
    Mutation("a query keeps the label of its id although its name is known", "P2",
             identity.Identity, "named", lambda _, query: query,
             plan=plan_of("the name of a query is known only from its second run: a silence of the name")),
    Mutation("a query whose name is shown only after a new checkpoint is another query", "P6",
             identity, "same_query", lambda _, __: None, plan=plan_of("the first poll takes 3 s: the query fails and has a new checkpoint when it shows the name")),
    Mutation("a label is as long as the name", "P7",
             identity, "base_label", lambda name, query_id="": name or query_id[:8],
             plan=plan_of("a query has a name of 10,000 characters, and fails")),
    Mutation("a run of unknown origin is never held until a poll", "P2|P4|P6",
             state, "UNDECIDED_SECONDS", 0.0, plan=plan_of("a new checkpoint, while the session of the first run is not known yet")),
    Mutation("the counters of a forgotten query restart from zero", "P6",
             identity, "remains", lambda query: _from_zero(_remains(query)),
             only("restart", "plan_stop", small_memory=1.0, memory=1, steps=(6,)), essential=True),
    Mutation("a run that completes does not recover an earlier failure", "P3",
             fold, "recovered", lambda history: history,
             only("fail_first", "dry", finite=1.0, steps=(6,))),
    Mutation("an expected query is forgotten", "P2|P6",
             state, "to_forget", lambda queries, now, _, *more: _forget(queries, now, (), *more),
             only("restart", finite=1.0, expected=1.0, queries=(6,), small_memory=1.0, minutes=(8.0,))),
    Mutation("each unnamed query has an alert of its own", "P5|P7",
             EVALUATION, "gather", lambda findings, labels, _: _gather(findings, labels),
             only("crash_loop", named=0.0, kept=0.0)),
    Mutation("the time in which a query starts counts as health", "P3",
             DriverHealth, "recovery", _starting_is_calm,
             plan=plan_of("a stalled query restarts, stalls, and commits: resolved at once")),
    Mutation("expect_stop excuses a namesake that ended before", "P1|P4",
             state.State, "expect_stop", _any_called,
             only("stop", "plan_stop", named=1.0, twins=1.0, steps=(4,)), 60, first=13),
    Mutation("a late start event replaces a run that the probe sees running", "P10",
             identity, "_is_older", _by_its_own_time,
             only("delay", "restart", "die and restart", "fail_first", "die", steps=(6,)), first=109),
    Mutation("the alert of unnamed queries resolves while one of them is starting", "P3",
             DriverHealth, "recovery", _calm_while_one_starts,
             plan=plan_of("a failed unnamed query whose next process only starts it")),
    Mutation("an alert of a namesake waits for its label, which no query has now", "P3",
             recovery, "is_of_namesake", lambda *_: False,
             plan=plan_of("a failed namesake whose label the next process gives to no query")),
    Mutation("an earlier stop that nobody expected is forgotten before a planned one", "P1",
             state, "_worth", lambda query: 0 if query.failure is None else 2,
             plan=plan_of("memory for one ended query: one stops by surprise, and another as planned")),
    Mutation("a run that takes a checkpoint continues the query that had it", "P1|P6",
             identity.Identity, "replaced_by", lambda *_: None,
             plan=plan_of("a query takes the checkpoint of another one, which takes it back"), essential=True),
    Mutation("a query whose checkpoint was taken has the usual grace", "P1",
             state, "replaced_by", lambda query, _, at: fold.end(query, None, None, at, signal="event"),
             plan=plan_of("a query takes the checkpoint of another one, which takes it back")),
)  # fmt: skip

KEYS = (
    Mutation("a warning has the key of the critical incident", "P1|P3|P5",
             lifecycle, "incident_key", lambda labels, _: _incident_key(labels, CRITICAL),
             plan=plan_of("a warning becomes critical, and its key is open")),
    Mutation("an alert that goes on in another incident ends at Alertmanager", "P3|P5",
             Alert, "is_superseded", property(lambda _: False),
             plan=plan_of("two queries fail together, one fails again: the other resolves at Alertmanager")),
    Mutation("a generic name is trusted: another driver's page is resolved", "P3|P4",
             recovery, "is_generic", lambda _: False, plan=plan_of("a second driver with the same app name resolves the page of the first"), essential=True),
    Mutation("an alert that another driver keeps posting is resolved at Alertmanager", "P3|P4",
             alertmanager, "ABANDONED_SECONDS", 0.0, plan=plan_of("at Alertmanager, a second driver with the same app name resolves the page of the first")),
    Mutation("watch treats two drivers of one app as one", "P1",
             WatchedDriver, "full_name", WatchedDriver.name, plan=plan_of("two drivers with one app name are killed, one after the other")),
    Mutation("watch ends what its driver may have opened under the same key", "P3",
             WatchedDriver, "full_name", WatchedDriver.name,
             plan=plan_of("a resolve of watch waits for its receiver, and closes what the driver reports meanwhile")),
    Mutation("watch does not see that a driver has a group of queries open", "P3",
             outside, "holds_key", lambda alerts: any(alert.query == "*" for alert in alerts),
             plan=plan_of("watch ends the incident of a driver that is back, with a group of queries still in it")),
    Mutation("stale incidents are ended again and again", "P5",
             FirstHealth, "update", _healthy_each_time, plan=plan_of("a start resolves all incidents at once, which were never open")),
    Mutation("a process that knows what is open ends what is not", "P5",
             Outbox, "restore", _restored_rows_hide_nothing, plan=plan_of("a process that is killed as it sends, before its spool has stored it")),
    Mutation("what an earlier driver left open stays open", "P3",
             Lifecycle, "_orphans", lambda *_: (), plan=plan_of("without a spool, a group stays open")),
    Mutation("the watcher does not believe a driver that resolves its own end", "P2",
             alerts_module.DriverAlerts, "_is_healthy", lambda self, driver: (driver.healthy_seconds or 0.0) >= self._resolve_after,
             plan=plan_of("an alert that the watcher repeats after its driver resolved it")),
    Mutation("a driver that was paused counts as healthy only from then on", "P1",
             alerts_module.DriverAlerts, "_may_have_resolved", _resolved_by_health,
             plan=plan_of("a driver that is killed just after its pause, with a late resolve")),
    Mutation("a rejected resolve is not sent again", "P3",
             Outbox, "failed", _rejected_resolve_is_success, plan=plan_of("a receiver answers 400 to a resolve")),
)  # fmt: skip

LOOPS = (
    Mutation("the age of the failing batch is not read", "P9",
             query_ends, "unfinished", lambda _: None, plan=plan_of("a batch fails after two minutes in process after process, without a spool")),
    Mutation("the next process knows no earlier failure, and counts from zero", "P9",
             spool.FailureHistory, "restore", lambda *_: None, plan=plan_of("a job commits and fails after 85 s, in process after process, with a spool"), essential=True),
    Mutation("the batch in which a process failed is not kept", "P9",
             spool.FailureHistory, "keep", lambda *_, **__: None, plan=plan_of("a batch fails in process after process, with a spool: it is named")),
    Mutation("a failure keeps its time although the clock was set since", "P9",
             spool, "CLOCK_SET_SECONDS", 1e9, plan=plan_of("a job commits and fails after 85 s in each process, and the clock is set in between")),
    Mutation("a failure with a time in the future does not count", "P9",
             past_failures, "CLOCKS_DIFFER_SECONDS", 0.0, plan=plan_of("a job commits and fails after 85 s in each process, and the clock is set in between")),
)  # fmt: skip

MUTATIONS = OF_NOTIFYING + BATCHES + IDENTITY + KEYS + LOOPS
