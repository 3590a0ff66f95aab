"""Reverts of fixes that make a crash loop over processes one incident that says so."""

from __future__ import annotations

from querypulse.alerting import failure_history, grouping, inhibition, restarts
from querypulse.listener import past_failures

from .mutating import Mutation
from .scenarios import plan_of

LOOPS = (
    Mutation("the age of the failing batch is not read", "P9",
             restarts, "unfinished", lambda _: None, finding="S1", plan=plan_of("S1")),
    Mutation("a stall over restarts resolves when the query fails", "P9",
             inhibition, "ANNOTATION", "no such annotation", finding="S1", plan=plan_of("S1", 1)),
    Mutation("the next process knows no earlier failure, and counts from zero", "P9",
             failure_history.Remembering, "restore", lambda *_: None, finding="S1", plan=plan_of("S1", 3)),
    Mutation("the batch in which a process failed is not kept", "P9",
             failure_history.Remembering, "keep", lambda *_: None, finding="S1", plan=plan_of("S1", 5)),
    Mutation("a failure keeps its time although the clock was set since", "P9",
             failure_history, "CLOCK_SET_SECONDS", 1e9, finding="S1", plan=plan_of("S1", 4)),
    Mutation("a failure with a time in the future does not count", "P9",
             past_failures, "CLOCKS_DIFFER_SECONDS", 0.0, finding="S1", plan=plan_of("S1", 4)),
    Mutation("an open incident is not updated when one batch fails repeatedly", "P9",
             grouping, "_more", lambda _: frozenset(), plan=plan_of("S1", 6)),
)  # fmt: skip
