"""Threads that read files: on a hanging mount, a read may never return."""

from __future__ import annotations

from collections.abc import Callable

from .guard import Guard
from .loop import Loop

END_SECONDS = 0.2


def file_loop(name: str, read: Callable[[], object], seconds: float, guard: Guard) -> Loop:
    """An unstarted thread that calls ``read`` every ``seconds``; ``end_file_loop`` stops it."""

    def step() -> None:
        guard.attempt(name, read)
        loop.stopping.wait(seconds)

    loop = Loop(name, step, guard)
    return loop


def end_file_loop(loop: Loop) -> None:
    """Stop the thread and wait briefly: a hanging read must not delay a close."""
    loop.stop()
    loop.join(END_SECONDS)
