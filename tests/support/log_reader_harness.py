"""A commit-log reader on a fake clock."""

from __future__ import annotations

from msgspec.structs import replace

from querypulse.listener.checkpoints import LogReader
from querypulse.listener.commit_log import LogReport
from querypulse.listener.probe import ProbeReport

from .clock import Clock
from .storage import MemoryStorage
from .story import run


def continuous(query, number=1):
    seen = run(query, number, trigger="ContinuousTrigger(1000)", message="Running")
    return replace(seen, facts=replace(seen.facts, checkpoint=query))


class LogReaderHarness:
    """A reader on a fake clock, with scripted probe reports."""

    def __init__(self, floor=60.0, **checkpoints):
        self.storage = MemoryStorage(**checkpoints)
        self.clock = Clock()
        self.probe = None
        self.announced = []
        self.reader = LogReader(
            self.storage.open,
            lambda: self.probe,
            lambda: self.announced.append(self.reader.latest),
            stall_floor_seconds=floor,
            interval_seconds=0,
            clock=self.clock,
        )

    def read(self, *runs, at) -> LogReport:
        self.clock.now = at
        self.probe = ProbeReport(began_at=at, at=at, runs=runs)
        self.reader.step()
        return self.reader.latest
