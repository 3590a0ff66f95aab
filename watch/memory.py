"""The state of each endpoint and of each driver. No clock, no socket.

All times are monotonic seconds of the watcher.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from .poll import Endpoint, Poll, Said

HEARTBEAT_SECONDS = 5.0
"""How long a heartbeat may not advance; a worker evaluates about once a second."""


class EndpointState(msgspec.Struct):
    """One endpoint: the newest poll, and the app that was last seen there."""

    poll: Poll | None = None
    app: str = ""
    stopped_at: float | None = None
    """When its driver shut down gracefully; None again once a driver is seen there."""
    beat: float | None = None
    beat_since: float = 0.0

    def take(self, poll: Poll) -> Poll:
        """Store a poll and return it; ``STUCK`` if the heartbeat does not advance."""
        if poll.heartbeat is None or poll.heartbeat != self.beat:
            self.beat, self.beat_since = poll.heartbeat, poll.at
        stuck = poll.at - self.beat_since
        if poll.said is Said.HEALTHY and stuck >= HEARTBEAT_SECONDS:
            detail = f"its worker's heartbeat has not advanced for {stuck:.0f} s"
            poll = msgspec.structs.replace(poll, said=Said.STUCK, detail=detail)
        if poll.said is Said.HEALTHY:
            self.stopped_at = None
            self.app = poll.app or self.app
        self.poll = poll
        return poll

    @property
    def lives(self) -> bool:
        """Whether a driver is up; one that refuses the watcher is."""
        if self.poll is None or self.stopped_at is not None:
            return False
        return self.poll.is_up

    @property
    def readable(self) -> bool:
        """Whether the newest poll was accepted, or the driver has shut down gracefully."""
        if self.poll is None or self.poll.said is Said.BARRED:
            return False
        return self.poll.said is Said.HEALTHY or self.stopped_at is not None


class WatchedDriver(msgspec.Struct):
    """One expected driver: an app at a listed URL, or under a DNS name.

    Without an app it represents the URL or name itself, until a driver has been seen there.
    """

    endpoint: Endpoint
    """The endpoint of the newest poll."""
    app: str = ""
    seen: bool = False
    healthy_since: float | None = None
    bad_since: float | None = None
    bad_polls: int = 0
    """Failed polls in a row; a single one is ignored."""
    last: Poll | None = None
    last_seen: Poll | None = None
    """The newest poll that found it healthy."""
    stopped: bool = False
    terminated: bool = False
    """Whether a signal has ended it and it is not back yet."""
    reports_gone: bool = False
    """Whether it fires ``StreamingDriverDown`` itself, as far as its newest readable page says."""
    resolved_own: bool = False
    """Whether it has reported its own ``StreamingDriverDown``, and has resolved it since."""
    ended: bool = False
    """Whether one of the failed polls in a row shows that its process had ended."""
    resumed: bool = False
    """Whether the process that answers may be the one from before those polls."""

    @property
    def address(self) -> str:
        """Its name before its app is known: host and port."""
        return urlsplit(self.endpoint.group or self.endpoint.url).netloc

    @property
    def name(self) -> str:
        """Its name in alerts and the log."""
        return self.app or self.address

    @property
    def full_name(self) -> str:
        """Its name when another driver has the same app."""
        return f"{self.app}@{self.address}" if self.app else self.address

    @property
    def replaced(self) -> bool:
        """Whether another driver was found in its place."""
        return self.last is not None and self.last.said is Said.REPLACED

    @property
    def may_expire(self) -> bool:
        """Whether it may never come back: only DNS named it, or another driver took its place."""
        return bool(self.endpoint.group) or self.replaced

    @property
    def unsure(self) -> bool:
        """Whether the last poll proves nothing, unless the network is known to work."""
        unreached = self.last is not None and self.last.said is Said.UNREACHABLE
        return unreached and self.bad_since is not None and not self.endpoint.loopback

    def note_healthy(self, endpoint: Endpoint, poll: Poll) -> None:
        """Record that ``poll`` found it up at ``endpoint``."""
        if self.last is not None and not self.last.is_up:
            self.resumed, self.ended = not self.ended, False
        if poll.reports_gone is not None:
            self.resolved_own |= self.reports_gone and not poll.reports_gone
            self.reports_gone = poll.reports_gone
        self.endpoint, self.last = endpoint, poll
        self.bad_since, self.bad_polls = None, 0
        self.stopped = self.terminated = False
        self.seen = True
        if self.reports_gone:
            # Its JVM has ended: it runs no queries and is not healthy.
            self.healthy_since = None
        elif self.healthy_since is None:
            self.healthy_since = poll.at
        if poll.said is Said.HEALTHY:
            self.last_seen = poll

    def note_failing(self, endpoint: Endpoint, poll: Poll, longest_pause: float) -> None:
        """Record a failed poll; after a long pause between polls, earlier failures do not count."""
        if self.stopped:
            return
        if self.last is not None and poll.began_at - self.last.at > longest_pause:
            self.forgive()
        self.endpoint, self.last = endpoint, poll
        self.healthy_since = None
        self.reports_gone = self.resolved_own = self.resumed = False
        self.ended |= poll.said in (Said.REFUSED, Said.REPLACED)
        if self.bad_since is None:
            self.bad_since = poll.began_at
        self.bad_polls += 1

    def forgive(self) -> None:
        """Start over: the failed polls so far prove nothing."""
        self.bad_since, self.bad_polls = None, 0

    def stop(self) -> None:
        """Record a graceful shutdown: it may be down until it is seen again."""
        self.forgive()
        self.stopped, self.terminated, self.healthy_since = True, False, None

    def terminate(self) -> None:
        """Record an end by a signal: it may come back, and its alert fires later than a crash."""
        self.forgive()
        self.terminated, self.healthy_since = True, None
