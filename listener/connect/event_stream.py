"""Reads the session's event stream in a thread of our own, and opens it again when it is cut.

``StreamingQueryListenerBusCommand`` adds one listener to the session on the server, whose events
come back as the answers of a call that goes on. The server keeps the listener of a call that was
cut, and a second one would wait for ever; so each opening removes before it adds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..received import Received
from .call_failure import CallFailure, ConnectCallError, ServerSilentError
from .client import ConnectClient, EventCall
from .wire import received_events

log = logging.getLogger("querypulse")

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
REMOVE_SECONDS = 2.0
OPEN_SECONDS = 20.0
"""A cold server needs some for a session's first listener."""
END_SECONDS = 2.0
"""How long an opening may go on after the thread was asked to stop."""
MAKE_WAY_SECONDS = 30.0
"""While our listener is on the server, the job's own ``addListener`` would wait for ever."""
NO_WAY_BACK = (CallFailure.SESSION_CLOSED, CallFailure.SESSION_LOST)


class EventStream:
    """One step opens the stream and reads it to its end; used by one thread.

    ``job_listens`` returns whether the stream is the job's now. Other threads may call
    ``make_way``, ``cut`` and ``hasten_end``.
    """

    def __init__(
        self,
        client: ConnectClient,
        job_listens: Callable[[], bool],
        pass_on: Callable[[Received], object],
    ) -> None:
        self.opened = 0
        """How often the stream was opened."""
        self.lost = 0
        """How often it was cut; the events of such a time are lost."""
        self.is_open = False
        self.has_begun = False
        """Whether its thread has begun, which then closes the client."""
        self._client = client
        self._job_listens = job_listens
        self._pass_on = pass_on
        self._opening = threading.Lock()
        self._call: EventCall | None = None
        self._ending = threading.Event()
        self._pause = FIRST_PAUSE_SECONDS
        self._session_over = False
        self._last_cut: threading.Timer | None = None

    def step(self) -> None:
        """Read the stream until it ends, or wait before the next attempt."""
        self.has_begun = True
        if self._session_over or self._job_listens():
            self._ending.wait(FIRST_PAUSE_SECONDS)
            return
        try:
            if self._open():
                self._read()
        except ServerSilentError as error:
            self._session_over = error.failure in NO_WAY_BACK
            if self.is_open and not (self._ending.is_set() or self._job_listens()):
                self.lost += 1
        except ConnectCallError as error:
            log.debug("querypulse: the event stream was refused: %s", error)
        finally:
            self.is_open = False
        self._ending.wait(self._pause)
        self._pause = min(LONGEST_PAUSE_SECONDS, self._pause * 2)

    def make_way(self) -> None:
        """Give the stream to the job: our listener has left the server when this returns.

        The job's thread calls this in ``addListener``, which needs the server's answer anyway.
        An opening is waited for: if it were cut, its listener could be added after the removal.
        """
        has_lock = self._opening.acquire(timeout=MAKE_WAY_SECONDS)
        try:
            self.cut()
            self._remove(MAKE_WAY_SECONDS)
        finally:
            if has_lock:
                self._opening.release()

    def cut(self) -> None:
        """End the call that is open; the next step opens another one."""
        call = self._call
        if call is not None:
            call.cancel()

    def hasten_end(self) -> None:
        """End the step that runs, after the thread was asked to stop.

        An opening may go on for a while: the listener of one that is cut could be added
        after we have removed ours.
        """
        if self.has_begun and not self.is_open:
            self._last_cut = _after(END_SECONDS, self.cut)
        self._ending.set()
        if self.is_open:
            self.cut()

    def close(self) -> None:
        """Remove our listener from the server, and close the connection."""
        if self._last_cut is not None:
            self._last_cut.cancel()
        if not self._session_over and not self._job_listens():
            self._remove()
        self._client.close()

    def _open(self) -> bool:
        with self._opening:
            if self._ending.is_set() or self._job_listens():
                return False
            self._client.execute(_bus_command(self._client, "remove"), REMOVE_SECONDS)
            if self._ending.is_set():
                return False
            self._call = self._client.open_stream(_bus_command(self._client, "add"))
            with _cancelled_after(OPEN_SECONDS, self._call):
                self.is_open = _is_added(self._call)
        self.opened += self.is_open
        return self.is_open

    def _read(self) -> None:
        self._pause = FIRST_PAUSE_SECONDS
        call, session = self._call, self._client.session_id
        while call is not None and not self._ending.is_set():
            answer = call.next()
            if answer is None:
                return
            message = answer.streaming_query_listener_events_result
            for event in received_events(message, time.monotonic(), session):
                self._pass_on(event)

    def _remove(self, timeout: float = REMOVE_SECONDS) -> None:
        with suppress(ServerSilentError, ConnectCallError):
            self._client.execute(_bus_command(self._client, "remove"), timeout)


def _is_added(call: EventCall) -> bool:
    """Wait until the server has added our listener; False if the call ends before."""
    while (answer := call.next()) is not None:
        if answer.streaming_query_listener_events_result.listener_bus_listener_added:
            return True
    return False


@contextmanager
def _cancelled_after(seconds: float, call: EventCall) -> Iterator[None]:
    """Cancel a call when the block lasts too long."""
    timer = _after(seconds, call.cancel)
    try:
        yield
    finally:
        timer.cancel()


def _after(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.name, timer.daemon = "querypulse-event-timer", True
    timer.start()
    return timer


def _bus_command(client: ConnectClient, what: str) -> Any:
    command = client.pb2.Command()
    setattr(command.streaming_query_listener_bus_command, f"{what}_listener_bus_listener", True)
    return command
