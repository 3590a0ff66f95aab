"""Queries that read what others write, as stories."""

from __future__ import annotations

from support.story import Story, progress

from querypulse.listener.events import SourceProgress


def folder(name):
    return SourceProgress(f"FileStreamSource[file:/lake/{name}]", None)


class Lake(Story):
    """Each query writes the folder of its name; ``reads`` names the folders that it reads."""

    def __init__(self, **reads) -> None:
        super().__init__()
        self.reads = {name: folders.split() for name, folders in reads.items()}
        for name in self.reads:
            self.started(name, at=0)

    def batch(self, name, number, *, at, **fields):
        sources = tuple(map(folder, self.reads[name]))
        event = progress(name, batch=number, sources=sources, sink=f"FileSink[/lake/{name}]", **fields)  # fmt: skip
        self.state.apply_event(event, at)
        return self

    def batches(self, number, *, at):
        for name in self.reads:
            self.batch(name, number, at=at)
        return self

    def waits(self, *names, at):
        for name in names:
            self.idle(name, at=at)
        return self
