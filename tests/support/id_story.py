"""Queries by name, id, run and session, for tests of query identity."""

from __future__ import annotations

from msgspec.structs import replace
from support.story import CONFLICT, Story, progress, run

from querypulse.listener.events import Idle, Started, Terminated


class IdStory(Story):
    """A story whose queries may share a name: a test chooses ids, runs, names and sessions."""

    def start(self, query_id, run_id, name="q", *, at, session="", timestamp=None, trigger=""):
        self.state.apply_event(
            Started(query_id, run_id, name, session=session, trigger=trigger, timestamp=timestamp),
            at,
        )
        return self

    def commits(self, query_id, run_id, name="q", *, at, batch, **fields):
        done = progress(batch=batch, **fields)
        event = replace(done, query_id=query_id, run_id=run_id, name=name)
        self.state.apply_event(event, at)
        return self

    def idles(self, query_id, run_id, *, at):
        self.state.apply_event(Idle(query_id, run_id), at)
        return self

    def ends(self, query_id, run_id, *, at, exception=None):
        self.state.apply_event(Terminated(query_id, run_id, exception, None), at)
        return self

    def fails(self, query_id, run_id, *, at):
        return self.ends(query_id, run_id, at=at, exception=CONFLICT)

    def crash_loop(self, runs, *, query_id="id", name="q"):
        """``runs`` runs that all fail, one per second from second 0."""
        for number in range(runs):
            self.start(query_id, f"run-{number}", name, at=number)
            self.fails(query_id, f"run-{number}", at=number + 0.5)
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


def polled(query_id, run_id, name="q", *, session="", active=True, exception=None, **fields):
    """A probed run."""
    seen = run(active=active, exception=exception, **fields)
    facts = replace(seen.facts, query_id=query_id, run_id=run_id, name=name, session=session)
    return replace(seen, facts=facts)
