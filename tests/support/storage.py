"""Checkpoints in memory that count their calls."""

from __future__ import annotations

from querypulse.listener.commit_log import COMMITS, OFFSETS, StorageError


class MemoryCheckpoint:
    """The ids in both logs, and every call: ``list``, ``has`` or ``times``."""

    def __init__(self, offsets=(), commits=()) -> None:
        self.logs = {OFFSETS: set(offsets), COMMITS: set(commits)}
        self.written = {OFFSETS: dict.fromkeys(offsets), COMMITS: dict.fromkeys(commits)}
        """When the initial files were written, in Unix seconds."""
        self.asked: list[str] = []
        self.refusal = ""

    def ids(self, log):
        return self._answer("list", self.logs[log])

    def has(self, log, batch_id):
        return self._answer("has", batch_id in self.logs[log])

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

    def purge(self, below):
        for log in self.logs.values():
            log -= {batch for batch in log if batch < below}

    def questions(self):
        """The calls by kind since the last call of this method."""
        asked, self.asked = self.asked, []
        return {"list": asked.count("list"), "has": asked.count("has")}


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
