"""How the process ends: closed, terminated or crashed; ``docs/ends.md`` has the table."""

from __future__ import annotations

import sys
from enum import Enum

from ..exporter.shutdown_notice import Notice
from ..listener.probing import Context


class ProcessEnd(Enum):
    """What ``querypulse watch`` is told of it, and whether graces still hold."""

    CLOSED = "closed"
    """As the application wants it: nobody waits for it to come back."""
    TERMINATED = "terminated"
    """By a signal: whoever sent it is likely to start it again."""
    CRASHED = "crashed"
    """Everything else: what is wrong is reported at once, and nobody is told that it is planned."""

    @property
    def notice(self) -> Notice | None:
        """What those who watch from outside receive."""
        return _NOTICES.get(self)


_NOTICES = {ProcessEnd.CLOSED: Notice.STOPPED, ProcessEnd.TERMINATED: Notice.TERMINATED}


def end_of(context: Context, uncaught: type[BaseException] | None = None) -> ProcessEnd:
    """How a process ends whose SparkContext is in this state; ``uncaught`` is what ends Python."""
    if context in (Context.JVM_GONE, Context.STOPPED):
        return ProcessEnd.CRASHED
    if context is Context.TERMINATED or uncaught is KeyboardInterrupt:
        return ProcessEnd.TERMINATED
    return ProcessEnd.CLOSED if uncaught is None else ProcessEnd.CRASHED


def uncaught_exception() -> type[BaseException] | None:
    """The class of the exception that ends this process; for its exit handlers.

    The interpreter keeps it when it prints a traceback (``sys.last_type``), and a notebook does so
    for every cell that fails: there it says nothing.
    """
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive) or "IPython" in sys.modules
    return None if interactive else getattr(sys, "last_type", None)
