"""A job whose processes run one after the other; each one reads the spool of the last one."""

from __future__ import annotations

import msgspec
from support.story import CONFLICT, Story, processing

from querypulse.alerting.failure_history import kept_failures
from querypulse.listener.past_failures import FailedQuery, PastFailures, shifted

WALL = 1_700_000_000.0
EVERY_SECONDS = 120.0
OOM = "java.lang.OutOfMemoryError: Java heap space"


class Process(Story):
    """One process; its own clock starts at 0, ``born`` seconds after the first process began.

    ``ahead``: by how many seconds its wall clock is fast.
    """

    def __init__(self, *, born=0.0, kept=(), ahead=0.0):
        super().__init__()
        self.born = born
        self.wall = WALL + born + ahead
        self.past = PastFailures()
        self.read(kept)

    def read(self, kept, *, at=0.0):
        """The spool returns kept failures, perhaps late."""
        self.past.add(kept, now=at, wall=self.wall + at, began_at=0.0)
        return self

    def evaluate(self, now, **settings):
        self.state.restore(self.past)
        return super().evaluate(now, **settings)

    def kept(self, at):
        """The failures on disk when the process ends at ``at``."""
        self.state.restore(self.past)
        snapshot = self.state.snapshot(at)
        kept = kept_failures(snapshot.queries, self.past.unmet, at)
        text = msgspec.json.encode([shifted(one, self.wall) for one in kept])
        return msgspec.json.decode(text, type=tuple[FailedQuery, ...])

    def next(self, *, after=EVERY_SECONDS, ahead=0.0):
        """The next process, which begins ``after`` seconds after this one; this one has ended."""
        kept = self.kept(after)
        return Process(born=self.born + after, kept=kept, ahead=ahead)

    def fails(self, query="a", run=1, *, at=60, batch=None, exception=CONFLICT):
        """A run fails: in ``batch``, or without it after one commit."""
        self.started(query, run, at=at - 8)
        if batch is None:
            self.commit(query, run, batch=int(self.born) + run, at=at - 5)
        else:
            self.probe(processing(query, run, batch=batch), at=at - 5)
        return self.ended(query, run, at=at, exception=exception)


def failing(count, *, every=EVERY_SECONDS, limits=None, **how):
    """The last of ``count`` processes, each of which fails once."""
    process = Process().fails(**how)
    for _ in range(count - 1):
        process = process.next(after=every, **(limits or {})).fails(**how)
    return process
