"""Reverts of fixes that make a crash loop over processes one incident that says so."""

from __future__ import annotations

from querypulse.alerting import failure_history, grouping, inhibition, restarts
from querypulse.listener import past_failures

from .mutating import Mutation
from .scenarios import plan_of

LOOPS = (
    Mutation("the age of the failing batch is not read", "P9",
             restarts, "unfinished", lambda _: None, plan=plan_of("a batch fails after two minutes in process after process, without a spool")),
    Mutation("a stall over restarts resolves when the query fails", "P9",
             inhibition, "ANNOTATION", "no such annotation", plan=plan_of("a batch hangs for longer than the window, and then fails, in each process")),
    Mutation("the next process knows no earlier failure, and counts from zero", "P9",
             failure_history.Remembering, "restore", lambda *_: None, plan=plan_of("a job commits and fails after 85 s, in process after process, with a spool"), essential=True),
    Mutation("the batch in which a process failed is not kept", "P9",
             failure_history.Remembering, "keep", lambda *_: None, plan=plan_of("a batch fails in process after process, with a spool: it is named")),
    Mutation("a failure keeps its time although the clock was set since", "P9",
             failure_history, "CLOCK_SET_SECONDS", 1e9, plan=plan_of("a job commits and fails after 85 s in each process, and the clock is set in between")),
    Mutation("a failure with a time in the future does not count", "P9",
             past_failures, "CLOCKS_DIFFER_SECONDS", 0.0, plan=plan_of("a job commits and fails after 85 s in each process, and the clock is set in between")),
    Mutation("an open incident is not updated when one batch fails repeatedly", "P9",
             grouping, "_more", lambda _: frozenset(), plan=plan_of("two failures in other batches, then one batch fails repeatedly")),
)  # fmt: skip
