"""Files are read in threads of their own: on a mount that hangs, a read may never return."""

from __future__ import annotations

from collections.abc import Callable

from ..listener.guard import Guard
from ..listener.loop import Loop


def file_loop(name: str, read: Callable[[], object], seconds: float, guard: Guard) -> Loop:
    """A thread, not started, that calls ``read`` every ``seconds``; do not wait for its end."""

    def step() -> None:
        guard.attempt(name, read)
        loop.stopping.wait(seconds)

    loop = Loop(name, step, guard)
    return loop
