"""Reads the session's event stream in a thread of our own, and opens it again when it is cut.

``StreamingQueryListenerBusCommand`` adds one listener to the session on the server, whose events
come back as the answers of a call that goes on. The server keeps the listener of a call that was
cut, and a second one would wait for ever; so each opening removes before it adds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ..events import EventKind
from ..mailbox import Mailbox, Received
from ..probe import ListenerHealth, RunFacts
from ..spark.event_paths import EventPath
from ..spark.jvm import is_before, require_supported
from .client import (
    CallFailure,
    ConnectCallError,
    ConnectClient,
    EventCall,
    SeenBatches,
    ServerSilentError,
    received_events,
    started_run,
)

log = logging.getLogger("querypulse")


# -- event stream -----------------------------------------------------------------------------


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


# -- tap --------------------------------------------------------------------------------------
# What the job does with its own client: the runs it starts, and its use of the event stream.
#
# Two methods of the client object are wrapped, and unwrapped at the end. Spark Connect reports a
# query's trigger, checkpoint and start nowhere else. A session has one event stream: as soon as the
# job adds a listener of its own, the stream is the job's, and we read along.


KEPT_STARTS = 1000


class ClientTap:
    """Watches one session's client. ``make_way`` is called before the job opens the stream.

    ``pass_on`` takes events in the job's threads, so it must not wait.
    """

    def __init__(
        self,
        spark: Any,
        pass_on: Callable[[Received], object],
        make_way: Callable[[], object],
    ) -> None:
        self._client = spark.client
        self._session_id: str = self._client._session_id  # noqa: SLF001 - public only from 4.0
        self._spark = spark
        self._pass_on = pass_on
        self._make_way = make_way
        self._starts: deque[RunFacts] = deque(maxlen=KEPT_STARTS)
        self._wrappers = {
            "execute_command": self._execute_command,
            "execute_command_as_iterator": self._execute_command_as_iterator,
        }
        self._originals: dict[str, Callable[..., Any]] = {}

    def wrap(self) -> None:
        """Start watching."""
        for name, wrapper in self._wrappers.items():
            # Spark 3.5 has no event stream, and not the method that opens it.
            original = getattr(self._client, name, None)
            if original is not None:
                self._originals[name] = original
                setattr(self._client, name, wrapper)

    def release(self) -> None:
        """Restore the client's methods, unless somebody else has wrapped ours meanwhile."""
        for name, wrapper in self._wrappers.items():
            if vars(self._client).get(name) == wrapper:
                delattr(self._client, name)
                # Somebody else may have wrapped it before us.
                if self._originals[name] != getattr(self._client, name):
                    setattr(self._client, name, self._originals[name])

    @property
    def job_listens(self) -> bool:
        """Whether the job has listeners of its own, and with them the session's event stream."""
        bus = getattr(getattr(self._spark, "_sqm", None), "_sqlb", None)
        return bool(getattr(bus, "_listener_bus", None))

    def take_starts(self) -> list[RunFacts]:
        """The runs that the job has started since the last call."""
        return [self._starts.popleft() for _ in range(len(self._starts))]

    def _execute_command(self, command: Any, *args: Any, **kwargs: Any) -> Any:
        answer = self._originals["execute_command"](command, *args, **kwargs)
        with suppress(Exception):
            if command.HasField("write_stream_operation_start"):
                facts, event = started_run(
                    command.write_stream_operation_start,
                    answer[1]["write_stream_operation_start_result"],
                    time.monotonic(),
                    self._session_id,
                )
                self._starts.append(facts)
                self._pass_on(event)
        return answer

    def _execute_command_as_iterator(self, command: Any, *args: Any, **kwargs: Any) -> Any:
        opens_stream = False
        with suppress(Exception):
            bus = command.streaming_query_listener_bus_command
            opens_stream = bus.add_listener_bus_listener
            if opens_stream:
                self._make_way()
        answers = self._originals["execute_command_as_iterator"](command, *args, **kwargs)
        return self._read_along(answers) if opens_stream else answers

    def _read_along(self, answers: Iterator[Any]) -> Iterator[Any]:
        for answer in answers:
            with suppress(Exception):
                message = answer["streaming_query_listener_events_result"]
                for event in received_events(message, time.monotonic(), self._session_id):
                    self._pass_on(event)
            yield answer


# -- path -------------------------------------------------------------------------------------
# The event path of Spark Connect: the session's event stream, or polling where there is none.


CAPACITY = 2000
STREAM_SINCE = 4
"""The major version of Spark whose Connect server has an event stream for clients."""
NO_STREAM = (
    "events: Spark {version} has no event stream for Spark Connect clients; querypulse polls"
)
MISSING = (
    "jobs and tasks of a batch, and the stack of one that hangs",
    "checkpoints: commits of a continuous query, and of earlier processes",
    "the lag that sources report themselves (Kafka, Delta)",
    "queries of other sessions",
    "triggers of queries that another client, or this one before attach, has started",
)
POLLED_NOW = "events: the stream is not open; querypulse polls"
LOST = "events while the connection was cut; cuts so far: {times}"
JOB_LISTENS = "events of short batches: the job added listeners before attach; querypulse polls"


class ConnectPath(EventPath):
    """Receives the events of one Spark Connect session, which has one stream."""

    source: Mailbox[Received]

    def __init__(self, spark: Any) -> None:
        self.source = Mailbox(CAPACITY)
        self.client = ConnectClient(spark)
        try:
            self.version = self.client.version()
            require_supported(self.version)
            self._tap = ClientTap(spark, self._pass_on, self._make_way)
        except BaseException:
            self.client.close()
            raise
        self.new_starts = self._tap.take_starts
        self._seen = SeenBatches()
        self._reads_along = False
        self._held: list[Received] = []
        self.stream = EventStream(self.client, lambda: self._tap.job_listens, self._pass_on)
        self.has_stream = not is_before(STREAM_SINCE, self.version) and hasattr(
            self.client.pb2, "StreamingQueryListenerBusCommand"
        )
        self.name = "connect_stream" if self.has_stream else "connect_polling"

    def listen(self, *, by_hand: bool) -> None:
        """Watch what the job starts; the stream's own thread opens the stream."""
        del by_hand
        self._tap.wrap()
        if not self.has_stream:
            log.warning("querypulse: %s", NO_STREAM.format(version=self.version))

    def check(self, now: float) -> ListenerHealth:
        """Whether events arrive, how often the stream was opened again, and what is missing."""
        del now
        return ListenerHealth(
            registered=self.has_events,
            reregistrations=max(0, self.stream.opened - 1),
            missing=self.missing,
            checkpoints_visible=False,
        )

    @property
    def has_events(self) -> bool:
        """Whether events arrive by themselves now."""
        return self.stream.is_open or (self._tap.job_listens and self._reads_along)

    @property
    def missing(self) -> tuple[str, ...]:
        """What cannot be seen, now and in principle."""
        if not self.has_stream:
            return (NO_STREAM.format(version=self.version), *MISSING)
        lost = (LOST.format(times=self.stream.lost),) if self.stream.lost else ()
        if self.has_events:
            return (*lost, *MISSING)
        return (JOB_LISTENS if self._tap.job_listens else POLLED_NOW, *lost, *MISSING)

    def pass_on_polled(self, text: str) -> None:
        """Take a progress that the probe has read.

        A stream may still bring it, and batches before it, so it then waits for the next poll.
        """
        event = Received(EventKind.PROGRESS, text, time.monotonic())
        if self.has_events:
            self._held.append(event)
        else:
            self._pass_on(event)

    def pass_on_held(self) -> None:
        """Pass on what the stream has not brought since the last poll: its reader may hang."""
        held, self._held = self._held, []
        for event in held:
            self._pass_on(event)

    def release(self) -> None:
        """Leave the job's client as it was; the stream's thread closes the connection."""
        self._tap.release()
        if not self.stream.has_begun:
            self.client.close()

    def _make_way(self) -> None:
        self._reads_along = True
        self.stream.make_way()

    def _pass_on(self, event: Received) -> None:
        if event.kind is EventKind.PROGRESS and not self._seen.is_new(event.payload):
            return
        self.source.put(event, lifecycle=event.kind.is_lifecycle)


def open_connect_path(spark: Any) -> ConnectPath:
    """Listen to a Spark Connect session.

    Raises:
        ServerSilentError: its server does not answer.
        ConnectCallError: its server refuses us.
        UnsupportedSparkError: its server's Spark is too old.

    """
    path = ConnectPath(spark)
    path.listen(by_hand=False)
    return path
