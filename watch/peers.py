"""Several watchers of the same drivers: one of them notifies, the others hold what they would send.

The one that has run for longest sends. The others mirror what it has delivered, by receiver and
incident, from its page ``/peer``; once it has not answered for a while, the next one sends what it
had not delivered. To a receiver that does not take what it sends, the others send, too, as the
network between may be at fault. If watchers cannot reach each other, each of them sends: twice is
better than never.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ..alerting.delivery.deliveries import Notifier
from ..alerting.delivery.outbox import OutboxRow
from ..alerting.delivery.spool import Kept, complete
from ..core.guard import Guard
from ..core.threads import Loop
from ..exporter.pages import Reply, as_json
from .client import POLL_SECONDS, UNREADABLE, Access, Client, Endpoint, NoAnswer
from .fleet import SeenPeer

PEER = "/peer"
"""The page for other watchers."""
INTERVAL_SECONDS = 1.0
MISSED_POLLS = 5
"""A peer that is gone has missed at least as many."""
LEAST_FAILURES = 2
KEEP_ENDED_SECONDS = 600.0
"""How long a watcher remembers what it has resolved, for peers that were cut off."""
OK = 200
MAX_PAGE_BYTES = 64 * 1024 * 1024
"""Of a peer: an outage of 500 drivers is some MB for each receiver."""

Rank = tuple[float, str]
"""Since when a watcher runs, in Unix seconds, and its id: the least one sends."""
Rows = Mapping[str, Iterable[OutboxRow]]
"""What each receiver should know, and knows, by its name."""


class PeerPage(msgspec.Struct, frozen=True):
    """All of ``/peer``. ``has_peers``: a watcher without peers of its own holds nothing back."""

    id: str
    since: float
    has_peers: bool = True
    failing: list[str] = []
    """The names of the receivers that do not take what it sends."""
    rows: dict[str, tuple[OutboxRow, ...]] = {}

    @property
    def rank(self) -> Rank:
        """Its precedence."""
        return (self.since if self.has_peers else -math.inf, self.id)


def peer_page(
    leadership: Leadership, notifier: Notifier, is_alive: Callable[[], bool]
) -> dict[str, Callable[[], Reply]]:
    """What a watcher serves to its peers, by path; only while it evaluates."""

    def page() -> Reply:
        if not is_alive():
            return as_json(503, {"error": "the evaluation of this watcher does not advance"})
        since, own_id = leadership.rank
        own = (leadership.has_peers, notifier.failing(), notifier.rows())
        return as_json(OK, PeerPage(own_id, since, *own))

    return {PEER: page}


def decoded(body: bytes) -> PeerPage:
    """The page of a peer.

    Raises:
        msgspec.MsgspecError: it is no such page.
        ValueError: one of its rows lacks what the receivers rely on.

    """
    page = msgspec.json.decode(body, type=PeerPage)
    complete(Kept(rows=page.rows))
    return page


def new_rank() -> Rank:
    """The precedence of a watcher that starts now."""
    return time.time(), secrets.token_hex(8)


# -- leadership -------------------------------------------------------------------------------


class _Peer(msgspec.Struct):
    rank: Rank | None = None
    """As it has said last."""
    polled_at: float = -math.inf
    failing_since: float | None = None
    failures: int = 0
    failing: Mapping[str, float] = {}
    """By the name of a receiver that does not take what it sends: since when."""

    def is_gone(self, now: float, gone_after: float) -> bool:
        """Whether it has not answered for that long, and more than once."""
        since = self.failing_since
        return since is not None and self.failures >= LEAST_FAILURES and now - since >= gone_after


class Leadership:
    """Which of the watchers sends. Pure: times are monotonic seconds.

    Until it knows of each peer that it has less precedence or is gone, a watcher does not send,
    and then waits for two polls more: the other one has learned of it by then, and holds back. What
    it knew before a pause of its own, such as one of its machine, does not count.
    """

    def __init__(self, rank: Rank, urls: Iterable[str], gone_after_seconds: float) -> None:
        self.rank = rank
        self.gone_after = gone_after_seconds
        self.interval = min(INTERVAL_SECONDS, gone_after_seconds / MISSED_POLLS)
        self._current_seconds = gone_after_seconds / 2
        self._peers = {url: _Peer() for url in urls}
        self._entitled_since: float | None = None

    def polled(
        self,
        url: str,
        began_at: float,
        at: float,
        rank: Rank | None,
        failing: Iterable[str] = (),
    ) -> None:
        """Apply one poll of a peer; ``rank`` is None without an answer."""
        peer = self._peers[url]
        if began_at - peer.polled_at > self._current_seconds:
            peer.failing_since, peer.failures = None, 0
            self._entitled_since = None
        peer.polled_at = at
        if rank is None:
            peer.failing_since = began_at if peer.failing_since is None else peer.failing_since
            peer.failures += 1
        else:
            peer.rank, peer.failing_since, peer.failures = rank, None, 0
            peer.failing = {name: peer.failing.get(name, began_at) for name in failing}
        if not all(self._is_behind(other, at) for other in self._peers.values()):
            self._entitled_since = None
        elif self._entitled_since is None:
            self._entitled_since = at

    def leads(self, now: float, receiver: str = "") -> bool:
        """Whether this watcher sends; of a ``receiver``, whether to this one."""
        if not self._peers:
            return True
        oldest = min(peer.polled_at for peer in self._peers.values())
        if now - oldest > self._current_seconds:
            return False
        since = self._entitled_since
        is_entitled = since is not None and now - since >= 2 * self.interval
        return is_entitled or self._replaces(receiver, now)

    @property
    def has_peers(self) -> bool:
        """Whether there are others that it may leave the sending to."""
        return bool(self._peers)

    def is_led_by(self, url: str) -> bool:
        """Whether the peer sends, and not this watcher."""
        rank = self._peers[url].rank
        ranks = [
            peer.rank
            for peer in self._peers.values()
            if peer.rank is not None and peer.failing_since is None
        ]
        return rank is not None and rank < self.rank and rank == min(ranks, default=None)

    def seen(self, now: float) -> tuple[SeenPeer, ...]:
        """The peers, for people; not this watcher itself, where it is in the list."""
        return tuple(
            SeenPeer(url, self._words(peer, now))
            for url, peer in self._peers.items()
            if peer.rank != self.rank
        )

    def _is_behind(self, peer: _Peer, now: float) -> bool:
        """Whether it leaves the sending to this watcher, or is gone, or is this watcher itself."""
        if peer.rank == self.rank or peer.is_gone(now, self.gone_after):
            return True
        return peer.rank is not None and peer.rank > self.rank

    def _replaces(self, receiver: str, now: float) -> bool:
        """Whether no watcher before this one has reached the receiver for a while."""
        before = [peer for peer in self._peers.values() if not self._is_behind(peer, now)]
        failing = [peer.failing.get(receiver, math.inf) for peer in before]
        return bool(failing) and all(now - since >= self.gone_after for since in failing)

    def _words(self, peer: _Peer, now: float) -> str:
        if peer.failing_since is not None:
            return "is gone" if peer.is_gone(now, self.gone_after) else "does not answer"
        if peer.rank is None:
            return "not asked yet"
        return "sends" if peer.rank < self.rank else "holds back"


# -- polling ----------------------------------------------------------------------------------

Answer = Callable[[str, float, float, PeerPage | None], None]
"""Gets the address of a peer, when the poll began and ended, and its page."""


class PeerPoller:
    """Polls one peer in a thread of its own, and passes each answer on."""

    def __init__(
        self, endpoint: Endpoint, access: Access, interval: float, answer: Answer, guard: Guard
    ) -> None:
        self._endpoint = endpoint
        self._client = Client(endpoint, access)
        self._interval = interval
        self._answer = answer
        self._loop = Loop("peer", self._poll, guard)

    def start(self) -> None:
        """Begin polling."""
        self._loop.start()

    def stop(self) -> None:
        """End soon."""
        self._loop.stop()
        self._client.cut()

    def _poll(self) -> None:
        began = time.monotonic()
        page = self._read()
        self._answer(self._endpoint.url, began, time.monotonic(), page)
        self._loop.stopping.wait(self._interval)

    def _read(self) -> PeerPage | None:
        try:
            code, body = self._client.get(
                PEER, min(POLL_SECONDS, 2 * self._interval), MAX_PAGE_BYTES
            )
            return decoded(body) if code == OK else None
        except (NoAnswer, *UNREADABLE, ValueError):
            return None
