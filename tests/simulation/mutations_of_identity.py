"""Reverts of fixes to query identity: which query an observation belongs to, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from querypulse.alerting import incidents, recovery
from querypulse.alerting.recovery import DriverHealth, RecoveryWindow
from querypulse.listener import fold, identity, state
from querypulse.listener.events import Started
from querypulse.listener.identity import began_after
from querypulse.listener.query import Totals

from .mutating import Mutation, only
from .scenarios import plan_of

_forget = state.to_forget
_met_by_probe, _met_by_event = identity.Identity.met_by_probe, identity.Identity.met_by_event
_remains = identity._remains
_introduce, _named = identity.Identity.introduce, identity.Identity.named


def _no_namesakes(*_: Any) -> Iterator[Any]:
    return iter(())


def _newest_bearer(self: identity.Identity, new: Any, queries: Any, *, wait: bool) -> Any:
    known = queries.get(self.label(new.query_id) or "")
    namesakes = list(self._namesakes(new.name, queries)) if new.name else []
    return known or (namesakes[-1] if namesakes else None)


def _beside_none(self: identity.Identity, new: Any, queries: Any, *, wait: bool) -> Any:
    return _introduce(self, replace(new, beside=frozenset()), queries, wait=wait)


def _base_label(_: Any, new: Any, __: Any) -> str:
    return identity.base_label(new.name, new.query_id)


def _sixteen_past_runs(self: Any, event: Any, at: float, queries: Any, *, wait: bool) -> Any:
    if event.run_id in list(self._past._runs)[-16:] or isinstance(event, Started):
        return _met_by_event(self, event, at, queries, wait=wait)
    return identity.Newcomer(event.query_id, event.run_id, at)


def _memory_introduces(self: Any, run: Any, report: Any, queries: Any) -> Any:
    facts = run.facts
    known = self.present(facts.query_id, queries)
    if run.active or (known is not None and known.query_id == facts.query_id):
        return _met_by_probe(self, run, report, queries)
    return identity.Newcomer(facts.query_id, facts.run_id, report.at)


def _any_called(self: state.State, name: str) -> None:
    for one in [one for one in self._queries.values() if state.has_name(one, name)]:
        self._put(replace(one, stop_expected=True))


def _by_its_own_time(event: Any, at: float, present: Any, *, wait: bool) -> bool:
    known = present.start.timestamp if present.start is not None else None
    return known is not None and event.timestamp is not None and event.timestamp < known


def _named_apart(self: identity.Identity, query: Any, queries: Any) -> Any:
    if began_after(query, queries.values()) is not None:
        return _named(self, query, queries)
    new = identity.Newcomer(query.query_id, query.run_id, query.started_at, query.name)
    named = replace(query, label=self._free_label(new, queries))
    self._past.rename(query.label, named.label)
    self._labels[named.query_id] = named.label
    return named


def _only_failures_count(query: Any) -> int:
    return 0 if query.failure is None else 2


def _remains_without_counters(query: Any) -> Any:
    return replace(_remains(query), totals=Totals())


def _starting_is_calm(
    self: DriverHealth, label: str, severity: str, before: RecoveryWindow | None
) -> Any:
    if self._is_unhealthy(label, severity):
        return None
    known = self.queries.get(label)
    return before or RecoveryWindow(self.now, known.totals.commits if known is not None else 0)


def _calm_while_one_starts(
    self: DriverHealth, label: str, severity: str, before: RecoveryWindow | None
) -> RecoveryWindow | None:
    own = [label for label in self.queries if self.is_unnamed(label)]
    if any(label not in self._listed and self._is_unhealthy(label, severity) for label in own):
        return None
    return before or RecoveryWindow(self.now, 0)


def _forget_expected(queries: Any, now: float, _: Any, supervised: Any) -> Any:
    return _forget(queries, now, (), supervised)


IDENTITY = (
    Mutation("a new checkpoint under the same name is another query", "P3|P4",
             identity.Identity, "_namesakes", _no_namesakes, only("new", named=1.0), first=10, essential=True),
    Mutation("expect_stop, stop and a new checkpoint: the probe's memory brings the old one back", "P2|P5|P6",
             identity.Identity, "met_by_probe", _memory_introduces,
             only("new", "plan_stop", named=1.0), 60),
    Mutation("two running queries of one name share a label", "P4|P6",
             identity.Identity, "_free_label", _base_label, only("die", named=1.0, twins=1.0)),
    Mutation("running namesakes merge: the commit of one recovers the other", "P4|P6",
             identity.Identity, "_predecessor", _newest_bearer, only("die", named=1.0, twins=1.0, steps=(1,))),
    Mutation("a query continues the one that a poll shows active beside it", "P4|P6",
             identity.Identity, "introduce", _beside_none,
             plan=plan_of("a namesake that a slow poll shows first, after the other one failed")),
    Mutation("a query keeps the label of its id although its name is known", "P2",
             identity.Identity, "named", lambda _, query, __: query, plan=plan_of("the name of a query is known only from its second run: a silence of the name")),
    Mutation("a query whose name is shown only after a new checkpoint is another query", "P6",
             identity, "began_after", lambda _, __: None, plan=plan_of("the first poll takes 3 s: the query fails and has a new checkpoint when it shows the name")),
    Mutation("a label is as long as the name", "P7",
             identity, "base_label", lambda name, query_id="": name or query_id[:8],
             plan=plan_of("a query has a name of 10,000 characters, and fails")),
    Mutation("a run of unknown origin is never held until a poll", "P2|P4|P6",
             state, "UNDECIDED_SECONDS", 0.0, plan=plan_of("a new checkpoint, while the session of the first run is not known yet")),
    Mutation("an event of a run more than sixteen runs ago replaces the present run", "P1|P2|P3",
             identity.Identity, "met_by_event", _sixteen_past_runs,
             plan=plan_of("a late event of a run more than sixteen runs ago replaces a failure")),
    Mutation("a crash loop without a fixed checkpoint is a new query each time", "P5|P6|P7",
             identity.Identity, "_namesakes", _no_namesakes,
             only("crash_loop", kept=0.0, named=1.0)),
    Mutation("a forgotten query reappears through the probe's memory", "P2|P5|P6",
             identity.Identity, "met_by_probe", _memory_introduces,
             only("die and restart", "plan_stop", named=1.0, small_memory=1.0, memory=0, steps=(6,))),
    Mutation("the counters of a forgotten query restart from zero", "P6",
             identity, "_remains", _remains_without_counters,
             only("restart", "plan_stop", small_memory=1.0, memory=0, steps=(6,)), essential=True),
    Mutation("a run that completes does not recover an earlier failure", "P3",
             fold, "recovered", lambda query: query,
             only("fail_first", "dry", finite=1.0, steps=(6,))),
    Mutation("an expected query is forgotten", "P2|P6",
             state, "to_forget", _forget_expected,
             only("restart", finite=1.0, expected=1.0, queries=(6,), small_memory=1.0, minutes=(8.0,))),
    Mutation("each unnamed query has an alert of its own", "P5|P7",
             incidents, "_of_unnamed", lambda found, _: list(found),
             only("crash_loop", named=0.0, kept=0.0)),
    Mutation("the time in which a query starts counts as health", "P3",
             DriverHealth, "recovery", _starting_is_calm,
             plan=plan_of("a stalled query restarts, stalls, and commits: resolved at once")),
    Mutation("expect_stop excuses a namesake that ended before", "P1|P4",
             state.State, "expect_stop", _any_called,
             only("stop", "plan_stop", named=1.0, twins=1.0, steps=(4,)), 60, first=13),
    Mutation("a late start event replaces a run that the probe sees running", "P1|P2|P3|P4|P5",
             identity, "_is_older", _by_its_own_time,
             plan=plan_of("a late start event of a run that failed at once replaces the running one")),
    Mutation("the alert of unnamed queries resolves while one of them is starting", "P3",
             DriverHealth, "_recovery_of_all", _calm_while_one_starts,
             plan=plan_of("a failed unnamed query whose next process only starts it")),
    Mutation("an alert of a namesake waits for its label, which no query has now", "P3",
             recovery, "is_of_namesake", lambda *_: False,
             plan=plan_of("a failed namesake whose label the next process gives to no query")),
    Mutation("a query whose name is shown late never continues an ended one", "P6",
             identity.Identity, "named", _named_apart,
             plan=plan_of("a failure without a known start, of a query that failed before and is known by its name")),
    Mutation("an earlier stop that nobody expected is forgotten before a planned one", "P1",
             state, "_worth", _only_failures_count, plan=plan_of("memory for one ended query: one stops by surprise, and another as planned")),
)  # fmt: skip
