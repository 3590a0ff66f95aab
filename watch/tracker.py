"""The expected drivers, and what the polls say about each. No clock, no socket.

All times are monotonic seconds of the watcher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

import msgspec

from ..exporter.pages import Notice
from .client import Endpoint, Poll, Said

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
    def may_expire(self) -> bool:
        """Whether it may never come back: only DNS named it, or another driver took its place."""
        replaced = self.last is not None and self.last.said is Said.REPLACED
        return bool(self.endpoint.group) or replaced

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


NEVER_SEEN_FACTOR = 4
"""How many times longer a driver may be down that was never seen: it may still be starting."""
TERMINATED_AFTER_SECONDS = 300.0
"""How long a driver that was ended by a signal may take to come back."""
LONGEST_POLL_SECONDS = 10.0
"""A poll that took longer was slowed by the watcher and proves nothing about the driver."""
SLACK_SECONDS = 5.0
"""How much later than the interval a poll or a network proof may come."""

Key = tuple[str, str]
"""A URL or a DNS name, and an app; the first app seen there keeps the key with an empty app."""


class TargetTracker:
    """Remembers what was seen of each driver; ``drivers`` are the expected ones.

    ``endpoint_states`` has the endpoints to poll: those listed, and those that left DNS without a
    notice. ``is_listed`` says whether the targets have been read; a driver is polled once in each
    ``interval_seconds``.
    """

    def __init__(
        self,
        gone_after_seconds: float,
        interval_seconds: float,
        terminated_after_seconds: float = TERMINATED_AFTER_SECONDS,
    ) -> None:
        self._gone_after = gone_after_seconds
        self._terminated_after = max(gone_after_seconds, terminated_after_seconds)
        self.interval_seconds = interval_seconds
        self._longest_pause = interval_seconds + SLACK_SECONDS
        self.endpoint_states: dict[Endpoint, EndpointState] = {}
        self._listed: frozenset[Endpoint] = frozenset()
        self.is_listed = False
        self._proof_at: float | None = None
        self.drivers: dict[Key, WatchedDriver] = {}

    def listed(self, endpoints: Iterable[Endpoint]) -> None:
        """Watch these endpoints from now on; a driver that is no longer listed is not expected.

        A driver whose address left DNS stays expected, until ``forget``: it may have been killed.
        """
        self._listed = frozenset(endpoints)
        self.is_listed = True
        for endpoint in self._listed - self.endpoint_states.keys():
            self.endpoint_states[endpoint] = EndpointState()
            if not any(key[0] == endpoint.listed_as for key in self.drivers):
                self.drivers[endpoint.listed_as, ""] = WatchedDriver(endpoint)
        names = {endpoint.listed_as for endpoint in self._listed}
        for key in [key for key in self.drivers if key[0] not in names]:
            del self.drivers[key]
        self._drop_endpoint_states()

    def forget(self, key: Key) -> None:
        """Stop expecting a driver, and stop polling the endpoints that only it had."""
        del self.drivers[key]
        self._drop_endpoint_states()

    def expect(self, shown: str, name: str) -> Key | None:
        """Expect the app of ``name`` at the listed URL ``shown``; returns the driver's key.

        None if no such URL is listed, or another app is known there.
        """
        for endpoint in self._listed:
            driver = self.drivers.get((endpoint.listed_as, ""))
            if driver is not None and not endpoint.group and endpoint.shown == shown:
                known = name != driver.address
                app = name.removesuffix(f"@{driver.address}") if known else driver.app
                if not driver.app:
                    driver.app = self.endpoint_states[endpoint].app = app
                return (endpoint.listed_as, "") if driver.app == app else None
        return None

    def is_down(self, shown: str) -> bool:
        """Whether the listed endpoint ``shown`` is down, but not after a graceful shutdown."""
        return any(
            endpoint.shown == shown
            and (endpoint_state := self.endpoint_states[endpoint]).poll is not None
            and endpoint_state.stopped_at is None
            and not endpoint_state.lives
            for endpoint in self._listed
        )

    def polled(self, endpoint: Endpoint, poll: Poll) -> None:
        """Apply one poll."""
        endpoint_state = self.endpoint_states.get(endpoint)
        if endpoint_state is None or (
            endpoint_state.stopped_at is not None and poll.began_at <= endpoint_state.stopped_at
        ):
            return
        if poll.at - poll.began_at > LONGEST_POLL_SECONDS:
            for driver in self._under(endpoint.listed_as):
                driver.forgive()
            return
        if poll.said is not Said.UNREACHABLE and not endpoint.loopback:
            self.proved(poll.at)
        poll = endpoint_state.take(poll)
        self._know_app(endpoint, endpoint_state.app)
        for driver in self._under(endpoint.listed_as):
            self._report(driver, endpoint, poll)
        self._drop_endpoint_states()

    def closes(self, endpoint: Endpoint, at: float, notice: Notice) -> None:
        """Apply the shutdown notice of the driver at ``endpoint``, received at ``at``."""
        endpoint_state = self.endpoint_states.get(endpoint)
        if endpoint_state is None:
            return
        endpoint_state.stopped_at = at
        for driver in self._under(endpoint.listed_as):
            if endpoint in self._endpoints_of(driver) and not self._lives(driver):
                (driver.stop if notice is Notice.STOPPED else driver.terminate)()

    def names(self) -> dict[Key, str]:
        """Each driver's name; one app at two endpoints is two drivers, ``app@host:port``."""
        apps = Counter(one.app for one in self.drivers.values() if not one.stopped)
        return {
            key: one.full_name if apps[one.app] > (not one.stopped) else one.name
            for key, one in self.drivers.items()
        }

    def proved(self, at: float) -> None:
        """Record that a host answered over the network at ``at``.

        After a time without such a proof, every unreachable driver starts over.
        """
        lost = self._proof_at is None or at - self._proof_at > self._longest_pause
        self._proof_at = at
        for driver in self.drivers.values():
            if lost and driver.unsure:
                driver.forgive()

    def is_gone(self, driver: WatchedDriver) -> bool:
        """Whether it has been down long enough for an alert."""
        if driver.last is None or driver.bad_since is None or driver.bad_polls < 2:  # noqa: PLR2004 - one is ignored
            return False
        needed = self._gone_after * (1 if driver.seen else NEVER_SEEN_FACTOR)
        if driver.terminated:
            needed = self._terminated_after
        return driver.last.at - driver.bad_since >= needed

    def network_works(self, driver: WatchedDriver) -> bool:
        """Whether another host has answered recently, and after this driver went down."""
        if self._proof_at is None or driver.last is None or driver.bad_since is None:
            return False
        just_now = driver.last.at - self._proof_at <= self._longest_pause
        return just_now and self._proof_at >= driver.bad_since

    def _report(self, driver: WatchedDriver, endpoint: Endpoint, poll: Poll) -> None:
        """Apply a poll of ``endpoint`` to one driver of its target."""
        own = self._endpoints_of(driver)
        if self._lives(driver):
            if endpoint in own and self.endpoint_states[endpoint].lives:
                driver.note_healthy(endpoint, poll)
        elif endpoint in own:
            driver.note_failing(endpoint, poll, self._longest_pause)
        elif not own:
            if poll.said is Said.HEALTHY:
                detail = f"{poll.app or 'another driver'} answers there now"
                poll = msgspec.structs.replace(poll, said=Said.REPLACED, detail=detail)
            driver.note_failing(endpoint, poll, self._longest_pause)

    def _know_app(self, endpoint: Endpoint, app: str) -> None:
        """Add a driver for each new app.

        A driver that shut down gracefully is forgotten when another app appears in its place.
        """
        name = endpoint.listed_as
        if not app or any(driver.app == app for driver in self._under(name)):
            return
        unnamed = self.drivers.get((name, ""))
        if unnamed is not None and not unnamed.app:
            unnamed.app = app
            return
        for key in [key for key, one in self.drivers.items() if key[0] == name and one.stopped]:
            del self.drivers[key]
        self.drivers[name, app] = WatchedDriver(endpoint, app)

    def _under(self, name: str) -> list[WatchedDriver]:
        return [driver for key, driver in self.drivers.items() if key[0] == name]

    def _endpoints_of(self, driver: WatchedDriver) -> list[Endpoint]:
        """The endpoints where it was last seen; if never seen, all endpoints of its target."""
        name = driver.endpoint.listed_as
        return [
            endpoint
            for endpoint, endpoint_state in self.endpoint_states.items()
            if endpoint.listed_as == name and driver.app in ("", endpoint_state.app)
        ]

    def _lives(self, driver: WatchedDriver) -> bool:
        return any(self.endpoint_states[endpoint].lives for endpoint in self._endpoints_of(driver))

    def _drop_endpoint_states(self) -> None:
        """Stop polling endpoints that are not listed and whose driver is not down."""
        wanted = self._listed | set(self._endpoints_down())
        for endpoint in [one for one in self.endpoint_states if one not in wanted]:
            del self.endpoint_states[endpoint]

    def _endpoints_down(self) -> Iterator[Endpoint]:
        """The last endpoints of expected drivers that are not up at a listed endpoint."""
        for driver in self.drivers.values():
            if driver.app and not driver.stopped:
                own = self._endpoints_of(driver)
                if not any(
                    endpoint in self._listed and self.endpoint_states[endpoint].lives
                    for endpoint in own
                ):
                    yield from own
