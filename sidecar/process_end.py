"""How the process ends: closed, terminated or crashed; ``docs/ends.md`` has the table."""

from __future__ import annotations

import sys
from enum import Enum

from ..exporter.shutdown_notice import Notice
from ..listener.probing import Context

SILENT_SECONDS = 5.0
"""A JVM that has not answered for so long, as in endless garbage collection, has crashed."""


class ProcessEnd(Enum):
    """Decides which notice ``querypulse watch`` receives, and whether grace periods apply."""

    CLOSED = "closed"
    """By the application: nobody expects it back."""
    TERMINATED = "terminated"
    """By a signal: the sender is likely to start it again."""
    CRASHED = "crashed"
    """Everything else: problems are reported at once, and no planned end is announced."""

    @property
    def notice(self) -> Notice | None:
        """The notice that ``querypulse watch`` receives; None for a crash."""
        return _NOTICES.get(self)


_NOTICES = {ProcessEnd.CLOSED: Notice.STOPPED, ProcessEnd.TERMINATED: Notice.TERMINATED}


def end_of(
    context: Context,
    uncaught: type[BaseException] | None = None,
    silent_seconds: float = 0.0,
) -> ProcessEnd:
    """How a process ends, from its SparkContext's state and an uncaught Python exception.

    ``silent_seconds``: for how long the JVM has not answered; 0 if it answered the last poll.
    """
    if context in (Context.JVM_GONE, Context.STOPPED):
        return ProcessEnd.CRASHED
    if context is Context.RUNNING and silent_seconds >= SILENT_SECONDS:
        return ProcessEnd.CRASHED
    if context is Context.TERMINATED or uncaught is KeyboardInterrupt:
        return ProcessEnd.TERMINATED
    return ProcessEnd.CLOSED if uncaught is None else ProcessEnd.CRASHED


def uncaught_exception() -> type[BaseException] | None:
    """The class of the exception that ends this process; for its exit handlers.

    The interpreter sets ``sys.last_type`` when it prints a traceback. A notebook does so for
    every failed cell, so there the value means nothing.
    """
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive) or "IPython" in sys.modules
    return None if interactive else getattr(sys, "last_type", None)
