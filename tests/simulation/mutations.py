"""Small reverts of fixes, each with the property that must detect it.

A property that no mutation breaks is useless. Each entry replaces one attribute of the product, and
names the terms under which, and the number of seeds within which, the simulator must fail.
``mutations_of_identity`` has the mutations of query identity, ``mutations_of_batches`` those of a
batch in flight.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from msgspec.structs import replace

from querypulse.alerting import (
    active_alert,
    failure_history,
    grouping,
    incidents,
    inhibition,
    lifecycle,
    outbox,
    silences,
    spool,
)
from querypulse.alerting.recovery import DriverHealth
from querypulse.alerting.retries import GONE_WAIT_SECONDS
from querypulse.alerting.rules import (
    monitoring_degraded,
    offsets_rewound,
    offsets_stalled,
    query_lagging,
    query_stalled,
    query_stopped,
    streaming_input_missing,
)
from querypulse.listener import event_reader, fold, identity, probe, query, state, trends
from querypulse.listener.mailbox import Mailbox
from querypulse.listener.probe import Context
from querypulse.listener.snapshot import Snapshot
from querypulse.sidecar.runtime import ProcessEnd
from querypulse.watch.tracker import TargetTracker

from . import driver
from .mutating import Mutation, only
from .mutations_of_batches import BATCHES
from .mutations_of_identity import IDENTITY
from .mutations_of_keys import KEYS
from .mutations_of_loops import LOOPS
from .scenarios import plan_of

EVALUATION = import_module("querypulse.alerting.evaluate")
_gather = incidents.gather
_covers = silences.Silence.covers
_why_muted, _fold_log = grouping.why_muted, fold.fold_log
_add_poll = state.add_poll
_poll, _poll_known = state.State.apply_probe, state.State._apply_known
_succeed, _reported, _failed = identity.succeed, grouping._revised, outbox.Outbox.failed
_suppressor = inhibition.Inhibition.suppressor


def _any_run_is_new(_: Any, event: Any, at: float, *__: Any, **___: Any) -> Any:
    return identity.Newcomer(event.query_id, event.run_id, at)


def _poll_living_only(self: state.State, run: Any, report: Any) -> None:
    if run.active:
        _poll_known(self, run, report)


def _counts_again(old: Any, query_id: str, run_id: str, at: float) -> Any:
    return replace(_succeed(old, query_id, run_id, at), totals=query.Totals())


def _reminds_always(page: Any, now: float, repeat_after: float) -> Any:
    return _reported(page, now, min(repeat_after, 30.0))


def _doubt_is_success(self: Any, sent: Any, error: Any, now: float, wall: float, _: int = 0) -> Any:
    if not error.may_have_arrived:
        return _failed(self, sent, error, now, wall)
    self.delivered(sent, wall)
    return None


def _never_again(*_: Any) -> float:
    return 3600.0


def _never_sends(self: Any) -> None:
    self._wants = lambda _: []


def _gone_is_for_ever(self: Any, sent: Any, error: Any, *others: Any) -> Any:
    if error.retry_after == GONE_WAIT_SECONDS:
        _never_sends(self)
    return _failed(self, sent, error, *others)


def _resolve_at_once(self: DriverHealth, label: str, recovery: Any, seconds: float) -> bool:
    return bool(self.lasted(recovery) >= seconds / 10.0)


def _poll_and_never_vanish(self: state.State, report: Any) -> None:
    _poll(self, report)
    for key, known in self._queries.items():
        self._queries[key] = replace(known, vanished_at=None)


def _once_muted(alerts: Any, silences: Any, wall: float) -> str:
    return str(_why_muted(alerts, silences, min([wall, *(one.until - 1.0 for one in silences)])))


def _empty_log_is_ignored(query: Any, log: Any, at: float) -> Any:
    return query if log.committed is None else _fold_log(query, log, at)


def _one_silent_query_is_a_silent_driver(findings: Any, *others: Any) -> Any:
    return _gather(
        [
            incidents._incident([one]) if one.reason.startswith("silent: ") else one
            for one in findings
        ],
        *others,
    )


def _counts_old_drops(known: Any, report: Any) -> Any:
    if known.probe is None and report.listener.dropped_events:
        known = replace(known, events_dropped_at=report.at)
    return _add_poll(known, report)


def _raises(_self: Any, _stage: Any, error: Exception) -> None:
    raise error


def _of_any_app(self: silences.Silence, alert: Any, wall: float) -> bool:
    return _covers(replace(self, app="*"), alert, wall)


HUNGRY = only(
    "dry", "restart", "hang", minutes=(8.0,), steps=(4,), declares=1.0, expected_input=(70.0,)
)
UNREPORTED = only("drop", "dry", minutes=(8.0,), steps=(4,), declares=1.0, expected_input=(70.0,))
OF_NOTIFYING = (
    Mutation("every end of a driver counts as planned", "P1",
             driver, "end_of", lambda *_: ProcessEnd.CLOSED,
             only(around=("context_dies",), around_share=1.0), 60, essential=True),
    Mutation("an alert of the whole driver suppresses a failure", "P4",
             inhibition, "FACTS", frozenset(), plan=plan_of("a query that fails while it is stalled with all others"), essential=True),
    Mutation("a silenced alert of the whole driver suppresses others", "P4",
             lifecycle.Lifecycle, "_is_silenced", lambda *_, **__: False, plan=plan_of("a silenced stall of the whole driver suppresses that a query has stopped")),
    Mutation("a silence covers the alerts of every app", "P1|P4",
             silences.Silence, "covers", _of_any_app, only("die")),
    Mutation("the end of the application explains no end of a query", "P2",
             Context, "explains_ends", property(lambda _: False), plan=plan_of("the application stops its SparkContext, which takes longer than the grace")),
    Mutation("events that Spark dropped before the attach count", "P2",
             state, "add_poll", _counts_old_drops, plan=plan_of("Spark dropped events before the attach")),
    Mutation("an error in one rule ends the evaluation", "P1|P8",
             EVALUATION.Stages, "note", _raises,
             plan=plan_of("a rule raises, and a query fails"), essential=True),
    Mutation("a silent probe alone counts as a silent JVM", "P4|P5",
             EVALUATION, "gather", _one_silent_query_is_a_silent_driver,
             plan=plan_of("a stalled query, and a probe that is refused for minutes: a page each time"), essential=True),
    Mutation("a failure that repeatedly recovers by itself notifies each time", "P5",
             active_alert.FlapGuard, "fires", lambda *_: 0.0, plan=plan_of("a failure that recovers by itself, three times an hour: a page each time"), essential=True),
    Mutation("the next process does not know how often an alert has fired", "P5",
             failure_history.Remembering, "restore_flaps", lambda *_: None, plan=plan_of("the same in a new process each time, with a spool")),
    Mutation("an alert that an earlier process left open is not held open", "P5",
             lifecycle.Lifecycle, "restore_flaps",
             lambda self, found, now: self._flaps.restore(found, now), plan=plan_of("a planned restart of the driver while the alert is held open")),
    Mutation("a failure that lasts is no news while its alert is held open", "P1",
             lifecycle, "is_news", lambda *_: False, plan=plan_of("a failure no longer recovers by itself, and its alert is held open")),
    Mutation("every stopped query counts as stopped with its SparkContext", "P5",
             query_stopped, "_ended_with_context", lambda case, _: case.snapshot.context is Context.STOPPED,
             only("stop", around=("context_dies",), around_share=0.5, steps=(6,)), 60),
    Mutation("a single poll without a run is enough to report it as stopped", "P2",
             query_stopped, "_is_unconfirmed", lambda _: False,
             plan=plan_of("a single poll lacks a running query, and the probe is refused afterwards")),
    Mutation("an event of a past run replaces the present run", "P1|P2|P3|P5|P8",
             identity.Identity, "met_by_event", _any_run_is_new, only("late", "restart", "die and restart",
                                                         steps=(8,)), first=24, essential=True),
    Mutation("probe reports of ended runs are ignored", "P1",
             state.State, "_apply_known", _poll_living_only, only("die unreported")),
    Mutation("a run that is missing in a poll does not count as vanished", "P1",
             state.State, "apply_probe", _poll_and_never_vanish, only("die unseen"), essential=True),
    Mutation("a repeated event is applied twice", "P8",
             event_reader.EventReader, "_is_known", lambda *_: False, only("repeat"), essential=True),
    Mutation("an incident resolves at the first sign of health", "P3",
             DriverHealth, "has_recovered", _resolve_at_once, only("die and restart"), essential=True),
    Mutation("events that a full mailbox drops are not counted", "P8",
             Mailbox, "drops", property(lambda _: {}), only("repeat", mailboxes=(1,))),
    Mutation("idleness is no activity", "P2",
             fold, "_idle", lambda query, _: query, only("dry")),
    Mutation("time without monitoring counts", "P2",
             Snapshot, "watched", lambda _, since, now: max(0.0, now - since),
             only(around=("pause",), around_share=1.0, every=(20.0,), takes=(8.0,)), 150, first=11, essential=True),
    Mutation("a failure waits for thirty evaluations", "P1",
             active_alert.ActiveAlert, "is_ripe", property(lambda one: not one.begun and one.polls >= 30),
             only("die"), essential=True),
    Mutation("each run counts from zero", "P6",
             identity, "succeed", _counts_again, only("restart")),
    Mutation("nothing that ended is ever forgotten", "P7",
             state.State, "forget", lambda *_: None,
             only("repeat", finite=1.0, queries=(6,), small_memory=1.0, memory=1), essential=True),
    Mutation("a cut connection counts as delivered", "P1",
             outbox.Outbox, "failed", _doubt_is_success,
             only("die in outage", steps=(1,), minutes=(8.0,), outages=("cut before",)), essential=True),
    Mutation("a firing alert sends two reminders a minute", "P5",
             grouping, "_revised", _reminds_always, only("die", "stop"), essential=True),
    Mutation("a warning becomes critical under the alert of its whole driver", "P5",
             inhibition.Inhibition, "suppressor",
             lambda self, new: None if new.begun else _suppressor(self, new),
             plan=plan_of("a warning that becomes critical as the JVM answers again")),
    Mutation("a late poll makes a delayed batch critical", "P5",
             query_stalled, "_is_blind", lambda context: context.probe_is_stale,
             plan=plan_of("batches that wait for an executor, and then a pause of the JVM")),
    Mutation("a page is sent before the spool has stored it", "P3",
             spool.Spool, "write_ahead", lambda _: None,
             plan=plan_of("a process that is killed as it sends, before its spool has stored it"), essential=True),
    Mutation("any alert of a query suppresses all its other alerts", "P1",
             inhibition.Inhibition, "suppressor",
             lambda self, new: next(
                 (one for one in self._known.values() if one.begun and one.query == new.query),
                 None),
             only("crawl", "die", "hang", steps=(6,)), 60),
    Mutation("a failed attempt is retried after an hour", "P1",
             outbox, "pause_seconds", _never_again, only("die in outage", steps=(1,), minutes=(8.0,)), first=5),
    Mutation("incidents that an earlier driver left open are forgotten", "P3|P5",
             lifecycle.Lifecycle, "restore", lambda *_: None,
             only("die", around=("kill",), steps=(4,)), 40, first=16, essential=True),
    Mutation("watch never treats a silent driver as down", "P1",
             TargetTracker, "is_gone", lambda *_: False, only(around=("kill",), around_share=1.0), 40, essential=True),
    Mutation("silences are ignored", "P2",
             grouping, "_muted", lambda page, *_: page, only("die in silence")),
    Mutation("a muted incident stays muted after its silence", "P1",
             grouping, "why_muted", _once_muted, only("die in silence", minutes=(8.0,)), essential=True),
    Mutation("one rejected message stops all messages to a receiver", "P1",
             outbox.Outbox, "_bury", lambda self, *_: _never_sends(self),
             only("die", around=("poison",), steps=(6,)), 60),
    Mutation("one 410 stops all messages to a receiver", "P1",
             outbox.Outbox, "failed", _gone_is_for_ever,
             only("die", "die in outage", steps=(4, 6), outages=("gone",), minutes=(8.0,)), 60),
    Mutation("a commit log that was never written is not reported as a stall", "P1",
             fold, "fold_log", _empty_log_is_ignored, only("log_stuck", "new", logs_rarely=1.0, steps=(6,)), 60),
    Mutation("a checkpoint that cannot be read is not reported", "P1",
             monitoring_degraded, "_is_unread", lambda *_: False,
             only("unreadable", logs_rarely=1.0, minutes=(8.0,))),
    Mutation("every other point of a long lag history is dropped", "P1",
             trends, "_thinned", lambda rise: (*rise[:-1:2], rise[-1]),
             only("lag", every=(1.0, 2.0), minutes=(12.0,), steps=(3,))),
    Mutation("stuck offsets are not reported", "P1",
             offsets_stalled, "_stuck", lambda *_: {}, only("stall", minutes=(8.0,)), essential=True),
    Mutation("rewound offsets are not reported", "P1",
             offsets_rewound, "_went_back", lambda _: iter(()), only("rewind", minutes=(8.0,))),
    Mutation("one batch with more than the allowed lag is reported as lagging", "P2",
             query_lagging, "_beginning", lambda rise, _: rise[0], only("lag", "stall", "hang")),
    Mutation("missing input is not reported", "P1",
             streaming_input_missing, "has_uncounted_rows", lambda _: True, HUNGRY, first=8),
    Mutation("rows of batches that only the probe saw do not count", "P2",
             streaming_input_missing, "has_uncounted_rows", lambda _: False, UNREPORTED, 60, first=16),
    Mutation("jobs of a thread pool belong to no query", "P2",
             probe.JobActivity, "moved_since", lambda now, before: now.own != before.own,
             only("fan_out"), essential=True),
    Mutation("jobs of a thread pool belong to every query", "P1",
             probe.JobActivity, "moved_since", lambda now, before: now != before,
             only("fan_out", "hang", queries=(3,), minutes=(8.0,), steps=(9,)), 60),
    Mutation("expect_stop is ignored", "P2",
             state.State, "expect_stop", lambda *_: None, only("plan_stop"), essential=True),
)  # fmt: skip

MUTATIONS = OF_NOTIFYING + BATCHES + IDENTITY + KEYS + LOOPS
