"""Checkpoints in memory that count their calls, and a reader of them on a fake clock."""

from __future__ import annotations

from msgspec.structs import replace

from querypulse.listener.checkpoints import LogReader
from querypulse.listener.commit_log import COMMITS, OFFSETS, LogReport, StorageError
from querypulse.listener.probe import ProbeReport

from .clock import Clock
from .story import run


class MemoryCheckpoint:
    """The ids in both logs, and every call: ``ids`` or ``times``."""

    def __init__(self, offsets=(), commits=()) -> None:
        self.logs = {OFFSETS: set(offsets), COMMITS: set(commits)}
        self.written = {OFFSETS: dict.fromkeys(offsets), COMMITS: dict.fromkeys(commits)}
        """When the initial files were written, in Unix seconds."""
        self.asked: list[str] = []
        self.refusal = ""

    def ids(self, log):
        return self._answer("ids", self.logs[log])

    def times(self, log):
        return self._answer("times", self.written[log])

    def _answer(self, question, answer):
        self.asked.append(question)
        if self.refusal:
            raise StorageError(self.refusal)
        return answer

    def plan(self, *batches):
        self.logs[OFFSETS].update(batches)

    def commit(self, *batches):
        self.plan(*batches)
        self.logs[COMMITS].update(batches)


class MemoryStorage:
    """Opens checkpoints by their location; records each location."""

    def __init__(self, **checkpoints) -> None:
        self.checkpoints = checkpoints
        self.opened: list[str] = []

    def open(self, location, query_id):
        self.opened.append(location)
        if location not in self.checkpoints:
            raise StorageError(f"No FileSystem for {location}")
        return self.checkpoints[location]


def continuous(query, number=1):
    seen = run(query, number, trigger="ContinuousTrigger(1000)", message="Running")
    return replace(seen, facts=replace(seen.facts, checkpoint=query))


class LogReaderHarness:
    """A reader on a fake clock, with scripted probe reports."""

    def __init__(self, floor=60.0, **checkpoints):
        self.storage = MemoryStorage(**checkpoints)
        self.clock = Clock()
        self.probe = None
        self.ahead = 0.0
        """How far the wall clock is ahead of the monotonic one."""
        self.announced = []
        self.reader = LogReader(
            self.storage.open,
            lambda: self.probe,
            lambda: self.announced.append(self.reader.latest),
            stall_floor_seconds=floor,
            interval_seconds=0,
            clock=self.clock,
            wall=lambda: self.clock.now + self.ahead,
        )

    def read(self, *runs, at) -> LogReport:
        self.clock.now = at
        self.probe = ProbeReport(began_at=at, at=at, runs=runs)
        self.reader.step()
        return self.reader.latest
