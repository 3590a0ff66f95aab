"""SIGTERM: the open sidecars announce it, and then its default action ends the process."""

from __future__ import annotations

import os
import signal
import threading
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

ANNOUNCE_SECONDS = 1.5
"""How long the end by SIGTERM may wait for its announcement."""


class AtTermination(msgspec.Struct, frozen=True, kw_only=True):
    """What one open sidecar does when SIGTERM comes; other threads call it, and none of it raises.

    ``has_lost_jvm``: whether the JVM has died, which makes the end a crash; asks no JVM.
    ``announce`` takes a moment, ``report_death`` as long as the end of a process may take.
    """

    has_lost_jvm: Callable[[], bool]
    announce: Callable[[], None]
    report_death: Callable[[], None]


class Termination:
    """Handles SIGTERM while a sidecar is open, if it has its default action.

    Only the main thread can set a handler; a handler of the application is left alone.
    """

    def __init__(self) -> None:
        self.was_signalled = False
        """Whether SIGTERM has come, as far as our handler knows."""
        self.handles_signals = False
        """Whether the application has had a handler of its own for the end of the process."""
        self._open: dict[object, AtTermination] = {}
        """By sidecar."""
        self._forks = threading.local()
        self._reports_death = False
        """Whether a thread reports that the JVM has died; once it has, the process ends."""
        self._has_reported = False

    def add(self, sidecar: object, at_termination: AtTermination) -> None:
        """Announce SIGTERM for a sidecar that has started."""
        self._open[sidecar] = at_termination
        self._set_handler()

    def remove(self, sidecar: object) -> None:
        """Leave SIGTERM alone after the last sidecar; one that was not added is none of them."""
        self._open.pop(sidecar, None)
        self._set_handler()

    def _set_handler(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if self._open and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)
        elif not self._open and self._is_handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    @property
    def _is_handler(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._terminate

    def note_handlers(self) -> None:
        """Note a handler of the application: it may be gone before the process ends.

        ``asyncio`` takes its handlers back when its loop ends, and so do context managers.
        """
        terminates = signal.getsignal(signal.SIGTERM)
        interrupts = signal.getsignal(signal.SIGINT)
        is_foreign = callable(terminates) and not self._is_handler
        # PySpark's cancels the jobs, and raises KeyboardInterrupt as Python's does.
        of_pyspark = getattr(interrupts, "__module__", "").startswith("pyspark.")
        is_default = interrupts is signal.default_int_handler or of_pyspark
        self.handles_signals |= is_foreign or (callable(interrupts) and not is_default)

    def _terminate(self, number: int, _frame: object) -> None:
        """Announce the end, and then let the default action end the process.

        Where the JVM is dead already, as when YARN cleans up behind it, the end is not planned: the
        application goes on until that is reported.

        A handler of the application that calls this one, which it found in its place, decides the
        end itself.

        The main thread may hold any lock now, also one of ``threading``: so another thread works, a
        bare one, and the wait for it is short.
        """
        if self._reports_death:
            if self._has_reported:
                self._end_by(number)
            return
        self.was_signalled = True
        announced = allocate_lock()
        announced.acquire()
        start_new_thread(self._announce, (number, announced.release))
        announced.acquire(timeout=ANNOUNCE_SECONDS)
        if not self._reports_death:
            self._end_by(number)

    def _end_by(self, number: int) -> None:
        if signal.getsignal(number) == self._terminate:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _announce(self, number: int, announced: Callable[[], None]) -> None:
        sidecars = list(self._open.values())
        try:
            # A lock that the main thread holds must not keep the report of a death from leaving.
            self._reports_death = any(sidecar.has_lost_jvm() for sidecar in sidecars)
            for sidecar in () if self._reports_death else sidecars:
                sidecar.announce()
        finally:
            announced()
        if self._reports_death:
            self._report_death(number, sidecars)

    def _report_death(self, number: int, sidecars: Sequence[AtTermination]) -> None:
        """Report that the JVM has died, and let the signal end the process."""
        try:
            for sidecar in sidecars:
                sidecar.report_death()
        finally:
            self._has_reported = True
            if self._is_handler:
                os.kill(os.getpid(), number)

    def before_fork(self) -> None:
        """Hold SIGTERM back: a child would lose one that comes before its Python runs."""
        signals = {signal.SIGTERM}
        self._forks.holds = self._is_handler and not (
            signals & signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        )

    def after_fork(self, *, child: bool) -> None:
        """Let SIGTERM through; in a child it has its default action again."""
        if self._forks.holds and child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._forks.holds:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


TERMINATION = Termination()
os.register_at_fork(
    before=TERMINATION.before_fork,
    after_in_parent=partial(TERMINATION.after_fork, child=False),
    after_in_child=partial(TERMINATION.after_fork, child=True),
)
