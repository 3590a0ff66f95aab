"""Files are read in threads of their own: on a mount that hangs, a read may never return."""

from __future__ import annotations

from collections.abc import Callable

from ..listener.guard import Guard
from ..listener.loop import Loop

END_SECONDS = 0.2


def file_loop(name: str, read: Callable[[], object], seconds: float, guard: Guard) -> Loop:
    """A thread, not started, that calls ``read`` every ``seconds``; end it by ``end_file_loop``."""

    def step() -> None:
        guard.attempt(name, read)
        loop.stopping.wait(seconds)

    loop = Loop(name, step, guard)
    return loop


def end_file_loop(loop: Loop) -> None:
    """Stop it, and wait a moment: a read that hangs does not hold up a close."""
    loop.stop()
    loop.join(END_SECONDS)
