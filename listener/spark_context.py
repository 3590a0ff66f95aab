"""Whether the SparkContext runs, and if not, whether the application stopped it."""

from __future__ import annotations

import inspect
from typing import Any

from .java_errors import THROWN
from .jvm import NETWORK_ERRORS
from .probing import Context
from .python_frames import is_running

SHUTDOWN_HOOKS = "org.apache.spark.util.ShutdownHookManager"


class SparkContextState:
    """The state of one classic SparkContext; any thread may call it, also after ``release``."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._java: Any = context._jsc.sc()  # noqa: SLF001 - no public way to ask
        self._stop = inspect.unwrap(type(context).stop).__code__
        self._hooks: Any = getattr(context._jvm, SHUTDOWN_HOOKS)  # noqa: SLF001 - no public way

    def ask(self, *, stopped: bool | None = None) -> Context:
        """The current state; ``stopped`` is what Spark reports, None to ask Spark.

        PySpark's ``stop()`` drops its reference to the Java context at its end. Until then, while
        queues drain and the event log is written, a thread is inside ``stop()``. A context that
        stopped by itself leaves the reference in place.

        Raises:
            Py4JError: the JVM is gone or refuses to answer.

        """
        if self._is_dropped():
            return Context.STOPPED_BY_APPLICATION
        if not (self._is_stopped() if stopped is None else stopped):
            return Context.RUNNING
        # stop() may end between the two checks.
        if is_running(self._stop) or self._is_dropped():
            return Context.STOPPED_BY_APPLICATION
        return Context.TERMINATED if self._jvm_shuts_down() else Context.STOPPED

    def release(self) -> None:
        """Release the Java context."""
        self._java = self._hooks = None

    def _jvm_shuts_down(self) -> bool:
        """Whether the JVM's shutdown hooks run, which SIGTERM and SIGINT start."""
        if self._hooks is None:
            return False
        try:
            return bool(self._hooks.inShutdown())
        except NETWORK_ERRORS:
            raise
        except THROWN:
            return False

    def _is_stopped(self) -> bool:
        java = self._java
        if java is None:
            owner = self._context._jsc  # noqa: SLF001 - no public way to ask
            java = None if owner is None else owner.sc()
        return java is None or bool(java.isStopped())

    def _is_dropped(self) -> bool:
        return self._context._jsc is None  # noqa: SLF001 - no public way to ask
