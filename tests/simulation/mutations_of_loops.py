"""Reverts of what makes a crash loop over processes one incident that says so."""

from __future__ import annotations

from querypulse.alerting import over_restarts
from querypulse.alerting.lifecycle import grouping, inhibition
from querypulse.listener import past_failures
from querypulse.sidecar import remembering

from .mutating import Mutation
from .scenarios import plan_of

LOOPS = (
    Mutation("nobody reads how old the batch is that fails", "P9",
             over_restarts, "unfinished", lambda _: None, finding="S1", plan=plan_of("S1")),
    Mutation("a stall over restarts ends when the query fails", "P9",
             inhibition, "ANNOTATION", "no such annotation", finding="S1", plan=plan_of("S1", 1)),
    Mutation("the next process knows of no failure, and counts from zero", "P9",
             remembering.Remembering, "restore", lambda *_: None, finding="S1", plan=plan_of("S1", 3)),
    Mutation("nobody keeps in which batch a process has failed", "P9",
             remembering.Remembering, "keep", lambda *_: None, finding="S1", plan=plan_of("S1", 5)),
    Mutation("a failure keeps the time of a clock that was set since", "P9",
             remembering, "CLOCK_SET_SECONDS", 1e9, finding="S1", plan=plan_of("S1", 4)),
    Mutation("a failure that the clock shows to come is no failure", "P9",
             past_failures, "CLOCKS_DIFFER_SECONDS", 0.0, finding="S1", plan=plan_of("S1", 4)),
    Mutation("an open incident does not learn that one batch fails again and again", "P9",
             grouping, "_more", lambda _: frozenset(), finding="S2", plan=plan_of("S2")),
)  # fmt: skip
