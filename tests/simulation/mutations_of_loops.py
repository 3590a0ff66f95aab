"""Reverts of what makes a crash loop over processes one incident that says so."""

from __future__ import annotations

from querypulse.alerting import over_restarts
from querypulse.alerting.lifecycle import inhibition

from .mutating import Mutation
from .scenarios import plan_of

LOOPS = (
    Mutation("nobody reads how old the batch is that fails", "P9",
             over_restarts, "unfinished", lambda _: None, finding="S1", plan=plan_of("S1")),
    Mutation("a stall over restarts ends when the query fails", "P9",
             inhibition, "ANNOTATION", "no such annotation", finding="S1", plan=plan_of("S1", 1)),
)  # fmt: skip
