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
from .judge import Judge
from .look import Place
from .network import Host, answers
from .post import Closing, Looked, Post, Sign
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

    places: tuple[Place, ...]


class Proved(msgspec.Struct, frozen=True):
    """Somebody answered over the network at ``at``, in monotonic seconds."""

    at: float


class Teller(Protocol):
    """Who brings incidents to the receivers."""

    def offer(self, incidents: tuple[Incident, ...], closings: tuple[Incident, ...]) -> None:
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
        judge: Judge,
        access: Access,
        interval_seconds: float,
        hosts: Iterable[Host],
        teller: Teller,
        guard: Guard,
        muted: Callable[[Alert], str] = lambda _: "",
    ) -> None:
        self._targets = targets
        self._judge = judge
        self._roll = judge.roll
        self._access = access
        self._interval = interval_seconds
        self._hosts = tuple(hosts)
        self._teller = teller
        self._guard = guard
        self._muted = muted
        self._signs: SimpleQueue[Sign | Listed | Proved] = SimpleQueue()
        self._posts: dict[Place, Post] = {}
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
        told = self._judge.update(time.monotonic(), time.time(), self._muted)
        for line in told.news:
            log.info("%s", line)
        self._teller.offer(told.incidents, told.closings)
        if self._roll.unsure:
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
        if isinstance(sign, Looked):
            self._roll.looked(sign.place, sign.look)
        elif isinstance(sign, Closing):
            self._roll.closes(sign.place, sign.at, sign.notice)
        elif isinstance(sign, Listed):
            self._warn_if_alone(sign.places)
            self._roll.listed(sign.places)
        else:
            self._roll.proved(sign.at)

    def _warn_if_alone(self, places: Iterable[Place]) -> None:
        if not (self._hosts or self._warned or all(place.loopback for place in places)):
            self._warned = True
            log.warning(ALONE)

    def _mind_posts(self) -> None:
        """One post for each place, no more and no less."""
        wanted = self._roll.places
        for place in self._posts.keys() - wanted:
            self._posts.pop(place).stop()
        for place in wanted - self._posts.keys():
            post = Post(place, self._access, self._interval, self._signs.put, self._guard)
            self._posts[place] = post
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
