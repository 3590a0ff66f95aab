"""The threads of ``querypulse watch`` and how they are joined: signs in, one judge, pages out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Protocol

import msgspec

from ...alerting.alert import Alert, Incident
from ...listener.guard import Guard
from ...listener.loop import Loop
from .client import Access
from .driver_alerts import DriverAlerts
from .driver_poller import Closing, DriverPoller, Polled, Sign
from .network import Host, answers
from .poll import Endpoint
from .targets import TargetError, Targets

log = logging.getLogger("querypulse")

ALONE = (
    "querypulse: no receiver on another machine: a driver that cannot be reached is told only "
    "while another driver on the network answers"
)
TICK_SECONDS = 0.5
PROOF_SECONDS = 1.0


class Listed(msgspec.Struct, frozen=True):
    """These places are to be watched from now on."""

    endpoints: tuple[Endpoint, ...]


class Proved(msgspec.Struct, frozen=True):
    """Somebody answered over the network at ``at``, in monotonic seconds."""

    at: float


class Teller(Protocol):
    """Who brings incidents to the receivers."""

    def offer(self, incidents: tuple[Incident, ...], stale_resolves: tuple[Incident, ...]) -> None:
        """Take over all that is open now; never waits."""
        ...


class Watcher:
    """Watches until it is closed; ``hosts`` are called when our own network is in doubt.

    ``muted`` says why nobody is to be told of an alert now, or nothing.
    """

    def __init__(
        self,
        *,
        targets: Targets,
        evaluate: DriverAlerts,
        access: Access,
        interval_seconds: float,
        hosts: Iterable[Host],
        teller: Teller,
        guard: Guard,
        muted: Callable[[Alert], str] = lambda _: "",
    ) -> None:
        self._targets = targets
        self._evaluate = evaluate
        self._tracker = evaluate.tracker
        self._access = access
        self._interval = interval_seconds
        self._hosts = tuple(hosts)
        self._teller = teller
        self._guard = guard
        self._muted = muted
        self._signs: SimpleQueue[Sign | Listed | Proved] = SimpleQueue()
        self._posts: dict[Endpoint, DriverPoller] = {}
        self._unsure = threading.Event()
        self._problem = ""
        self._warned = False
        self._loops = [
            Loop("targets", self._list, guard),
            Loop("network", self._prove, guard),
            Loop("watch", self._step, guard, last=self._stop_posts),
        ]

    def start(self) -> None:
        """Begin to watch."""
        for loop in self._loops:
            loop.start()

    def close(self, timeout: float) -> None:
        """Stop looking; what was told stays open, for a watcher that leaves has cured nobody."""
        for loop in self._loops:
            loop.stop()
        self._loops[-1].join(timeout)

    def _step(self) -> None:
        """Take all signs into account, judge, and tell."""
        for sign in self._waiting_signs():
            self._take(sign)
        reported = self._evaluate.update(time.monotonic(), time.time(), self._muted)
        for line in reported.news:
            log.info("%s", line)
        self._teller.offer(reported.incidents, reported.stale_resolves)
        if self._tracker.unsure:
            self._unsure.set()
        else:
            self._unsure.clear()
        self._mind_posts()

    def _waiting_signs(self) -> list[Sign | Listed | Proved]:
        signs: list[Sign | Listed | Proved] = []
        try:
            signs.append(self._signs.get(timeout=TICK_SECONDS))
            while True:
                signs.append(self._signs.get_nowait())
        except Empty:
            return signs

    def _take(self, sign: Sign | Listed | Proved) -> None:
        if isinstance(sign, Polled):
            self._tracker.polled(sign.endpoint, sign.poll)
        elif isinstance(sign, Closing):
            self._tracker.closes(sign.endpoint, sign.at, sign.notice)
        elif isinstance(sign, Listed):
            self._warn_if_alone(sign.endpoints)
            self._tracker.listed(sign.endpoints)
        else:
            self._tracker.proved(sign.at)

    def _warn_if_alone(self, endpoints: Iterable[Endpoint]) -> None:
        if not (self._hosts or self._warned or all(endpoint.loopback for endpoint in endpoints)):
            self._warned = True
            log.warning(ALONE)

    def _mind_posts(self) -> None:
        """One post for each place, no more and no less."""
        wanted = self._tracker.endpoints
        for endpoint in self._posts.keys() - wanted:
            self._posts.pop(endpoint).stop()
        for endpoint in wanted - self._posts.keys():
            post = DriverPoller(
                endpoint, self._access, self._interval, self._signs.put, self._guard
            )
            self._posts[endpoint] = post
            post.start()

    def _stop_posts(self) -> None:
        for post in self._posts.values():
            post.stop()

    def _list(self) -> None:
        """Read file and names anew; what is wrong is said once, and the last good list holds."""
        try:
            self._signs.put(Listed(tuple(self._targets.now())))
            self._problem = ""
        except TargetError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.error("querypulse: %s; the last list holds", error)  # noqa: TRY400 - one line
        self._loops[0].stopping.wait(self._interval)

    def _prove(self) -> None:
        """While a driver cannot be reached, find out whether anybody can."""
        self._loops[1].stopping.wait(PROOF_SECONDS)
        if self._unsure.is_set() and answers(self._hosts):
            self._signs.put(Proved(time.monotonic()))
