"""The threads of a watcher: polls of each driver, and the one that owns what they have found."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from ..alerting.alert import Alert
from ..alerting.delivery.deliveries import Notifier
from ..alerting.evaluate import Evaluation
from ..alerting.incidents.lifecycle import Evaluated
from ..core.guard import Guard
from ..core.threads import Loop
from ..exporter.pages import ALIVE_SECONDS, RETURN_SECONDS, WAIT_SECONDS, Notice
from ..listener.state.snapshot import Snapshot
from ..settings.settings import SettingsError
from .alerts import DriverAlerts
from .client import Access, Client, Endpoint, NoAnswer, await_notice, poll, reported
from .fleet import Seen
from .peers import Leadership, PeerPage
from .targets import Host, Targets, answers, polled
from .tracker import TargetTracker

log = logging.getLogger("querypulse")


# -- driver poller ----------------------------------------------------------------------------
# Polls one endpoint: one thread polls, another waits for the shutdown notice.


REST_SECONDS = 1.0
DISPLACED_SECONDS = RETURN_SECONDS / 2
"""How soon to ask again after another watcher took this one's place."""


Observation = Callable[[TargetTracker], None]
"""What a thread has found out, for the thread that owns the tracker to apply."""


class DriverPoller:
    """Passes every poll and the shutdown notice to ``report``, from its own threads, at once."""

    def __init__(
        self,
        endpoint: Endpoint,
        access: Access,
        interval_seconds: float,
        report: Callable[[Observation], None],
        guard: Guard,
    ) -> None:
        self._endpoint = endpoint
        self._interval = interval_seconds
        self._report = report
        self._polling = Client(endpoint, access)
        self._waiting = Client(endpoint, access)
        self._poll_now = threading.Event()
        self._loops = [
            Loop("poll", self._poll, guard),
            Loop("await", self._await_shutdown_notice, guard),
        ]
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """End soon; running requests are cut."""
        for loop in self._loops:
            loop.stop()
        self._poll_now.set()
        self._polling.cut()
        self._waiting.cut()

    def _poll(self) -> None:
        seen = poll(self._polling)
        self._report(lambda tracker: tracker.polled(self._endpoint, seen))
        self._poll_now.wait(self._interval)
        self._poll_now.clear()

    def _await_shutdown_notice(self) -> None:
        began = time.monotonic()
        pause = self._interval
        try:
            page = await_notice(self._waiting)
        except NoAnswer:
            # The connection broke, or there is none: the driver may have been killed.
            self._poll_now.set()
            page = None
            pause = REST_SECONDS
        if page is not None and page.status != "running":
            at = time.monotonic()
            notice = Notice(page.status)
            open_alerts = reported(page.alerts)
            self._report(lambda tracker: tracker.closes(self._endpoint, at, notice, open_alerts))
        elif page is not None:
            is_displaced = time.monotonic() - began < WAIT_SECONDS / 2
            pause = DISPLACED_SECONDS if is_displaced else 0.0
        self._loops[1].stopping.wait(pause)


# -- watcher ----------------------------------------------------------------------------------


ALONE = (
    "querypulse: no receiver on another machine: an unreachable driver is reported only "
    "while another driver on the network answers"
)
TICK_SECONDS = 0.5
PROOF_SECONDS = 1.0


class Watcher:
    """Watches until it is closed; connects to ``hosts`` when its own network is in doubt.

    ``muted`` returns why an alert is silenced now, or nothing; ``record`` gets each evaluation.
    """

    def __init__(
        self,
        targets: Targets,
        evaluate: DriverAlerts,
        leadership: Leadership,
        sink: Notifier,
        guard: Guard,
        *,
        access: Access,
        hosts: Sequence[Host],
        muted: Callable[[Alert], str] = lambda _: "",
        record: Callable[[Evaluated], object] = lambda _: None,
    ) -> None:
        self._targets = targets
        self._evaluate = evaluate
        self._tracker = evaluate.tracker
        self._access = access
        self._interval = evaluate.tracker.interval_seconds
        self._hosts = hosts
        self._sink = sink
        self._leadership = leadership
        self._guard = guard
        self._muted = muted
        self._record = record
        self._observations: SimpleQueue[Observation] = SimpleQueue()
        self._pollers: dict[Endpoint, DriverPoller] = {}
        self._is_unsure = False
        self._problem = ""
        self._warned = False
        self.seen = Seen(at=time.time())
        """What was seen up to the newest evaluation, for readers."""
        self.beat_at = time.monotonic()
        """When that was, in monotonic seconds."""
        self._loops = [
            Loop("targets", self._list, guard),
            Loop("network", self._prove, guard),
            Loop("watch", self._step, guard, last=self._stop_pollers),
        ]

    def start(self) -> None:
        """Start watching."""
        for loop in self._loops:
            loop.start()

    def is_alive(self) -> bool:
        """Whether its evaluation advances."""
        return time.monotonic() - self.beat_at < ALIVE_SECONDS

    def close(self, timeout: float) -> None:
        """Stop polling. Alerts stay open: closing the watcher brings no driver back."""
        for loop in self._loops:
            loop.stop()
        self._loops[-1].join(timeout)

    def _step(self) -> None:
        """Apply the observations so far, evaluate, and hand over the incidents."""
        with suppress(Empty):
            self._observations.get(timeout=TICK_SECONDS)(self._tracker)
            # What comes meanwhile waits: there must be an evaluation, too.
            for _ in range(self._observations.qsize()):
                self._observations.get_nowait()(self._tracker)
        now = time.monotonic()
        wall = time.time()
        incidents = self._evaluate.update(now, wall, self._muted)
        self._sink.offer(incidents)
        nothing = Snapshot(at=now, began_at=now)
        self._record(Evaluated(nothing, Evaluation(), (), wall=wall, incidents=incidents))
        is_open = tuple(incident for incident in incidents if not incident.is_over)
        drivers = self._evaluate.seen(now, wall)
        self.seen = Seen(
            at=wall,
            drivers=drivers,
            incidents=is_open,
            notifies=self._leadership.leads(now),
            peers=self._leadership.seen(now),
        )
        self.beat_at = now
        for line in self._evaluate.news():
            log.info("%s", line)
        self._is_unsure = any(driver.is_unsure for driver in self._tracker.drivers)
        self._update_pollers()

    def hear(self, url: str, began_at: float, at: float, page: PeerPage | None) -> None:
        """Take the answer of a peer, from any thread."""
        self._observations.put(lambda _: self._mirror(url, began_at, at, page))

    def _mirror(self, url: str, began_at: float, at: float, page: PeerPage | None) -> None:
        """Take over what a peer has sent, and continue what it has opened."""
        rank = None if page is None else page.rank
        self._leadership.polled(url, began_at, at, rank, () if page is None else page.failing)
        if page is not None and rank != self._leadership.rank:
            is_leader = self._leadership.is_led_by(url)
            unknown = self._sink.mirror(page.rows, is_leader=is_leader)
            self._evaluate.restore(unknown, time.monotonic())

    def _update_pollers(self) -> None:
        """Run exactly one poller for each endpoint."""
        wanted = self._tracker.endpoint_states.keys()
        for endpoint in self._pollers.keys() - wanted:
            self._pollers.pop(endpoint).stop()
        for endpoint in wanted - self._pollers.keys():
            log.info("querypulse: polls %s", polled(endpoint))
            self._pollers[endpoint] = DriverPoller(
                endpoint, self._access, self._interval, self._observations.put, self._guard
            )

    def _stop_pollers(self) -> None:
        for poller in self._pollers.values():
            poller.stop()

    def _list(self) -> None:
        """Read the targets again; an error is logged once, and the last good list stays."""
        try:
            endpoints = self._targets.now()
            if not (self._hosts or self._warned or all(e.loopback for e in endpoints)):
                self._warned = True
                log.warning(ALONE)
            self._observations.put(lambda tracker: tracker.listed(endpoints))
            self._problem = ""
        except SettingsError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.error("querypulse: %s; keeping the last list", error)  # noqa: TRY400 - one line
        self._loops[0].stopping.wait(self._interval)

    def _prove(self) -> None:
        """While a driver is unreachable, find out whether any host is reachable."""
        self._loops[1].stopping.wait(PROOF_SECONDS)
        if self._is_unsure and answers(self._hosts):
            at = time.monotonic()
            self._observations.put(lambda tracker: tracker.proved(at))
