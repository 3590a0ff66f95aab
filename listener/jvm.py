"""Detects whether the driver's JVM has ended."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JNetworkError

from .probing import Context, Probe, ProbeReport

NETWORK_ERRORS = (Py4JNetworkError, ConnectionError, EOFError)
"""Raised by a command to a JVM that has ended or cannot be reached."""
CONNECT_SECONDS = 1.0


def is_gone(gateway: Any) -> bool:
    """Whether the JVM behind a Py4J gateway has ended.

    A JVM that this process started has ended when its process has (``gateway.proc``, set by
    PySpark's ``launch_gateway``); any other JVM when its gateway refuses a connection. A slow
    JVM has not ended.
    """
    # Use vars(): a gateway returns a Java member for every attribute that it does not have.
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


class ProbeOfLivingJvm:
    """Polls through ``probe``, and reports the end of the JVM once it has ended.

    ``context`` returns whether the application had stopped its SparkContext, ``terminated``
    whether the JVM reported that a signal ends it. A JVM that has ended is not polled again.
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
            Py4JNetworkError: the JVM does not answer but may not have ended.

        """
        began_at = clock()
        if self._last is None:
            try:
                report = self._probe.poll(clock)
            except NETWORK_ERRORS:
                if not self._gone():
                    raise
                self._last = self._context_at_end()
            else:
                self._seen = report.context
                return report
        return ProbeReport(began_at, clock(), runs=(), context=self._last)

    def _context_at_end(self) -> Context:
        try:
            if self._context() is Context.STOPPED_BY_APPLICATION:
                return Context.STOPPED_BY_APPLICATION
        except NETWORK_ERRORS:
            pass
        terminated = self._seen is Context.TERMINATED or self._terminated()
        return Context.TERMINATED if terminated else Context.JVM_GONE
