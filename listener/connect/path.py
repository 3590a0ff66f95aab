"""The event path of Spark Connect: the session's event stream, or polling where there is none."""

from __future__ import annotations

import logging
import time
from typing import Any

from ..events import EventKind
from ..job_counts import CountedJobs
from ..mailbox import Mailbox
from ..ownership import ALONE
from ..probing import ListenerHealth, RunFacts
from ..received import Received
from ..spark_versions import is_before, require_supported
from .client import ConnectClient
from .event_stream import EventStream
from .tap import ClientTap
from .wire import SeenBatches

log = logging.getLogger("querypulse")

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


class ConnectPath:
    """Receives the events of one Spark Connect session."""

    ownership = ALONE
    shows_shutdown = terminated = False
    java_listener: Any = None

    def __init__(self, spark: Any) -> None:
        self.source: Mailbox[Received] = Mailbox(CAPACITY)
        self.client = ConnectClient(spark)
        try:
            self.version = self.client.version()
            require_supported(self.version)
            self._tap = ClientTap(spark, self._pass_on)
        except BaseException:
            self.client.close()
            raise
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
        self._tap.wrap(self._make_way)
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

    def new_starts(self) -> list[RunFacts]:
        """The runs that the job has started since the last call."""
        return [run.facts for run in self._tap.take_starts()]

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

    def cover(self, execution: Any) -> None:
        """Nothing: a session has one stream."""

    def job_counts(self) -> CountedJobs | None:
        """None: Spark Connect reports no jobs."""
        return None

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
