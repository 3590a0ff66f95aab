"""Whether the JVM of the driver still exists."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol

from py4j.protocol import Py4JNetworkError

from .probing import Context, ProbeReport

NETWORK_ERRORS = (Py4JNetworkError, ConnectionError, EOFError)
"""What a command to a JVM that is gone, or out of reach, raises."""
CONNECT_SECONDS = 1.0


def is_gone(gateway: Any) -> bool:
    """Whether the JVM behind a Py4J gateway has ended.

    A JVM that this process started has ended with its process (``gateway.proc``, set by
    PySpark's ``launch_gateway``); any other when its gateway refuses a connection. A JVM that
    is only slow is not gone.
    """
    # A gateway makes a Java member of every name that it does not know.
    process = vars(gateway).get("proc")
    if process is not None and process.poll() is not None:
        return True
    parameters = gateway.gateway_parameters
    try:
        with socket.create_connection((parameters.address, parameters.port), CONNECT_SECONDS):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


class Probe(Protocol):
    """Anything that polls all queries at once."""

    def poll(self, clock: Callable[[], float]) -> ProbeReport:
        """Poll; ``clock`` gives monotonic seconds. Raises ``NETWORK_ERRORS``."""
        ...


class ProbeOfLivingJvm:
    """Polls through ``probe``, and reports the end of the JVM where that cannot answer any more.

    ``context`` says whether the application has stopped its SparkContext before, ``terminated``
    whether the JVM has said that a signal ends it. A JVM that has ended is asked no more.
    """

    def __init__(
        self,
        probe: Probe,
        gone: Callable[[], bool],
        context: Callable[[], Context],
        terminated: Callable[[], bool] = lambda: False,
    ) -> None:
        self._probe = probe
        self._gone = gone
        self._context = context
        self._terminated = terminated
        self._seen = Context.RUNNING
        self._last: Context | None = None

    @property
    def ended(self) -> bool:
        """Whether the JVM is known to have ended."""
        return self._last is not None

    def poll(self, clock: Callable[[], float]) -> ProbeReport:
        """Poll.

        Raises:
            Py4JNetworkError: the JVM does not answer, and is not known to have ended.

        """
        began_at = clock()
        if self._last is None:
            try:
                report = self._probe.poll(clock)
            except NETWORK_ERRORS:
                if not self._gone():
                    raise
                self._last = self._how()
            else:
                self._seen = report.context
                return report
        return ProbeReport(began_at, clock(), runs=(), context=self._last)

    def _how(self) -> Context:
        try:
            if self._context() is Context.STOPPED_BY_APPLICATION:
                return Context.STOPPED_BY_APPLICATION
        except NETWORK_ERRORS:
            pass
        terminated = self._seen is Context.TERMINATED or self._terminated()
        return Context.TERMINATED if terminated else Context.JVM_GONE
