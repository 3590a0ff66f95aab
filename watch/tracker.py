"""The expected drivers, and what the polls say about each. No clock, no socket.

All times are monotonic seconds of the watcher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ..alerting.kinds import QUERY_MISSING
from ..exporter.pages import Notice
from .client import DriverAlert, DriverQuery, Endpoint, OpenAlerts, Poll, Said


class EndpointState(msgspec.Struct):
    """One endpoint: the newest poll, and the app that was last seen there."""

    poll: Poll | None = None
    app: str = ""
    closed_at: float | None = None
    """When its driver announced its end; None again once a driver is seen there."""
    refused_since: float | None = None
    """Since when its driver refuses the watcher."""

    def take(self, poll: Poll) -> None:
        """Store a poll."""
        self.poll = poll
        if poll.said is not Said.BARRED:
            self.refused_since = None
        elif self.refused_since is None:
            self.refused_since = poll.at
        if poll.said is Said.HEALTHY:
            self.closed_at = None
            self.app = poll.app or self.app

    @property
    def is_up(self) -> bool | None:
        """Whether a driver is up; one that refuses the watcher is. None if it has ended."""
        return self.poll.is_up if self.poll is not None and self.closed_at is None else None


class WatchedDriver(msgspec.Struct, eq=False):
    """One expected driver: an app at a listed URL, or under a DNS name.

    Without an app it represents the URL or name itself, until a driver has been seen there.
    """

    endpoint: Endpoint
    """The endpoint of the newest poll."""
    app: str = ""
    labels: dict[str, str] = {}
    """The labels of its settings."""
    seen: bool = False
    healthy_since: float | None = None
    """None while it reports that it is down itself."""
    bad_since: float | None = None
    bad_polls: int = 0
    """Failed polls in a row; a single one is ignored."""
    last: Poll | None = None
    last_seen: Poll | None = None
    """The newest poll that found it healthy."""
    notice: Notice | None = None
    """How it has announced its end; None again once it is back."""
    queries: tuple[DriverQuery, ...] = ()
    alerts: tuple[DriverAlert, ...] = ()
    """What it has shown last."""
    reported: OpenAlerts = ()
    """The critical alerts that its own receivers know of, as far as it has said last."""
    holds_key: bool = False
    """Whether an incident about it is open that it has opened itself, under the watcher's key."""
    has_resolved: bool = False
    """Whether it has resolved such an incident since it answers."""
    polls_awake: int = 0
    """Failed polls since its process answered, still stuck, after a pause. What waited to be sent
    goes out then; but the first answer may only have come before the worker's first round.
    """

    @property
    def address(self) -> str:
        """Its name before its app is known: host and port."""
        return urlsplit(self.endpoint.url).netloc

    @property
    def name(self) -> str:
        """Its name in alerts and the log."""
        return self.app or self.address

    @property
    def full_name(self) -> str:
        """Its name when another driver has the same app."""
        return f"{self.app}@{self.address}" if self.app else self.address

    @property
    def is_stopped(self) -> bool:
        """Whether it has shut down gracefully, and need not come back."""
        return self.notice is Notice.STOPPED

    @property
    def may_restart(self) -> bool:
        """Whether it has ended by a signal, its main program or as announced, or had reported a
        failure itself.

        A frozen process has not ended.
        """
        is_frozen = self.last is not None and self.last.said in (Said.SILENT, Said.STUCK)
        has_said_why = bool(self.reported) or self.end_expected
        return self.notice is not None or (has_said_why and not is_frozen)

    def overdue(self, wall: float) -> dict[str, float]:
        """By query: by when its run should have completed, of those for which nobody did.

        What it has reported itself is known.
        """
        return {
            query: due
            for query, due in self.due.items()
            if due < wall and (query, QUERY_MISSING) not in self.reported
        }

    @property
    def due(self) -> dict[str, float]:
        """By when the next run of each query must complete, as of when it was last seen."""
        return {} if self.last_seen is None else self.last_seen.due

    @property
    def end_expected(self) -> bool:
        """Whether its end was announced when it was last seen."""
        return self.last_seen is not None and self.last_seen.end_expected

    @property
    def is_healthy(self) -> bool:
        """Whether the last poll found it healthy."""
        return self.last is not None and self.last.said is Said.HEALTHY

    @property
    def is_unsure(self) -> bool:
        """Whether the last poll proves nothing, unless the network is known to work."""
        unreached = self.last is not None and self.last.said is Said.UNREACHABLE
        return unreached and self.bad_since is not None and not self.endpoint.loopback

    @property
    def healthy_seconds(self) -> float | None:
        """For how long it has been healthy; None if it is not."""
        if self.healthy_since is None or self.last is None:
            return None
        return self.last.at - self.healthy_since

    def note_healthy(self, endpoint: Endpoint, poll: Poll) -> None:
        """Record that ``poll`` found it up at ``endpoint``."""
        if poll.holds_key is not None:
            self.has_resolved |= self.holds_key and not poll.holds_key
            self.holds_key = poll.holds_key
            self.reported = poll.reported
            self.labels = poll.labels
            self.queries = poll.queries
            self.alerts = poll.alerts
        self.endpoint = endpoint
        self.last = poll
        self.notice = None
        self.seen = True
        self.polls_awake = 0
        self.forgive()
        if self.holds_key:
            self.healthy_since = None
        elif self.healthy_since is None:
            self.healthy_since = poll.at
        if poll.said is Said.HEALTHY:
            self.last_seen = poll

    def note_failing(self, endpoint: Endpoint, poll: Poll, longest_pause: float) -> None:
        """Record a failed poll; after a long pause between polls, earlier failures do not count."""
        if self.is_stopped:
            return
        if self.last is not None and poll.began_at - self.last.at > longest_pause:
            self.forgive()
        was_silent = self.last is not None and self.last.said is Said.SILENT
        if self.polls_awake or (was_silent and poll.said is Said.STUCK):
            self.polls_awake += 1
        self.endpoint = endpoint
        self.last = poll
        self.healthy_since = None
        self.holds_key = self.has_resolved = False
        if self.bad_since is None:
            self.bad_since = poll.began_at
        self.bad_polls += 1

    def forgive(self) -> None:
        """Start over: the failed polls so far prove nothing."""
        self.bad_since = None
        self.bad_polls = 0

    def close(self, notice: Notice, reported: OpenAlerts) -> None:
        """Record the notice of its end."""
        self.forgive()
        self.notice = notice
        self.healthy_since = None
        self.reported = reported or self.reported


NEVER_SEEN_FACTOR = 4
"""How many times longer a driver may be down that was never seen: it may still be starting."""
TERMINATED_AFTER_SECONDS = 300.0
"""How long a driver may take to come back that may restart."""
LEAST_POLLS = 2
LONGEST_POLL_SECONDS = 10.0
"""A poll that took longer was slowed by the watcher and proves nothing about the driver."""
SLACK_SECONDS = 5.0
"""How much later than the interval a poll or a network proof may come."""


class TargetTracker:
    """Remembers what was seen of each driver; ``drivers`` are the expected ones.

    ``endpoint_states`` has the endpoints to poll: those listed, and those that left DNS without a
    notice. A driver is polled once in each ``interval_seconds``, and has ``labels`` until it has
    said which are its own.
    """

    def __init__(
        self,
        gone_after_seconds: float,
        interval_seconds: float,
        terminated_after_seconds: float = TERMINATED_AFTER_SECONDS,
        labels: Mapping[str, str] = {},
    ) -> None:
        self._gone_after = gone_after_seconds
        self._terminated_after = max(gone_after_seconds, terminated_after_seconds)
        self._labels = dict(labels)
        self.interval_seconds = interval_seconds
        self._longest_pause = interval_seconds + SLACK_SECONDS
        self.endpoint_states: dict[Endpoint, EndpointState] = {}
        self._listed: frozenset[Endpoint] | None = None
        self._proof_at: float | None = None
        self.drivers: list[WatchedDriver] = []

    def listed(self, endpoints: Iterable[Endpoint]) -> None:
        """Watch these endpoints from now on; a driver that is no longer listed is not expected.

        A driver whose address left DNS stays expected, until ``forget``: it may have been killed.
        """
        # In the order of the list, so that incidents have one order, too.
        listed = tuple(dict.fromkeys(endpoints))
        self._listed = frozenset(listed)
        for endpoint in listed:
            if endpoint in self.endpoint_states:
                continue
            self.endpoint_states[endpoint] = EndpointState()
            if not self._under(endpoint.url):
                self.drivers.append(WatchedDriver(endpoint, labels=self._labels))
        self.forget(driver for driver in self.drivers if not self.is_watched(driver.endpoint.url))

    def forget(self, drivers: Iterable[WatchedDriver]) -> None:
        """Stop expecting drivers, and stop polling the endpoints that only they had."""
        gone = list(drivers)
        self.drivers = [driver for driver in self.drivers if driver not in gone]
        self._drop_endpoint_states()

    def is_watched(self, url: str) -> bool:
        """Whether ``url`` is listed, or is not yet known not to be."""
        return self._listed is None or any(endpoint.url == url for endpoint in self._listed)

    def polled(self, endpoint: Endpoint, poll: Poll) -> None:
        """Apply one poll."""
        state = self.endpoint_states.get(endpoint)
        if state is None or (state.closed_at is not None and poll.began_at <= state.closed_at):
            return
        if poll.at - poll.began_at > LONGEST_POLL_SECONDS:
            for driver in self._under(endpoint.url):
                driver.forgive()
            return
        if poll.said is not Said.UNREACHABLE and not endpoint.loopback:
            self.proved(poll.at)
        state.take(poll)
        self._know_app(endpoint, state.app)
        for driver in self._under(endpoint.url):
            self._report(driver, endpoint, poll)
        self._drop_endpoint_states()

    def closes(
        self, endpoint: Endpoint, at: float, notice: Notice, reported: OpenAlerts = ()
    ) -> None:
        """Apply the shutdown notice of the driver at ``endpoint``, received at ``at``."""
        state = self.endpoint_states.get(endpoint)
        if state is None:
            return
        state.closed_at = at
        for driver in self._under(endpoint.url):
            own = self._endpoints_of(driver)
            if endpoint in own and not self._is_up(own):
                driver.close(notice, reported)

    def names(self) -> list[tuple[WatchedDriver, str]]:
        """Each driver's name; one app at two endpoints is two drivers, ``app@host:port``."""
        names = []
        apps = Counter(driver.app for driver in self.drivers if not driver.is_stopped)
        for driver in self.drivers:
            is_shared = apps[driver.app] > (not driver.is_stopped)
            names.append((driver, driver.full_name if is_shared else driver.name))
        return names

    def proved(self, at: float) -> None:
        """Record that a host answered over the network at ``at``.

        After a time without such a proof, every unreachable driver starts over.
        """
        lost = self._proof_at is None or at - self._proof_at > self._longest_pause
        self._proof_at = at
        for driver in self.drivers:
            if lost and driver.is_unsure:
                driver.forgive()

    def is_gone(self, driver: WatchedDriver) -> bool:
        """Whether it has been down long enough for an alert, if the network works."""
        if driver.last is None or driver.bad_since is None or driver.bad_polls < LEAST_POLLS:
            return False
        needed = self._gone_after * (1 if driver.seen else NEVER_SEEN_FACTOR)
        if driver.may_restart:
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
        if self._is_up(own):
            if endpoint in own and self.endpoint_states[endpoint].is_up:
                driver.note_healthy(endpoint, poll)
        elif endpoint in own or not own:
            if endpoint not in own and poll.said is Said.HEALTHY:
                detail = f"{poll.app or 'another driver'} answers there now"
                poll = replace(poll, said=Said.REPLACED, detail=detail)
            driver.note_failing(endpoint, poll, self._longest_pause)

    def _know_app(self, endpoint: Endpoint, app: str) -> None:
        """Add a driver for each new app.

        A driver that shut down gracefully is forgotten when another app appears in its place, but
        not while a run of it is due.
        """
        drivers = self._under(endpoint.url)
        if not app or any(driver.app == app for driver in drivers):
            return
        unnamed = next((driver for driver in drivers if not driver.app), None)
        if unnamed is not None:
            unnamed.app = app
            return
        self.drivers.append(WatchedDriver(endpoint, app))
        self.forget(driver for driver in drivers if driver.is_stopped and not driver.due)

    def _under(self, url: str) -> list[WatchedDriver]:
        return [driver for driver in self.drivers if driver.endpoint.url == url]

    def _endpoints_of(self, driver: WatchedDriver) -> list[Endpoint]:
        """The endpoints where it was last seen; if never seen, all endpoints of its target."""
        return [
            endpoint
            for endpoint, state in self.endpoint_states.items()
            if endpoint.url == driver.endpoint.url and driver.app in ("", state.app)
        ]

    def _is_up(self, endpoints: Iterable[Endpoint]) -> bool:
        return any(self.endpoint_states[endpoint].is_up for endpoint in endpoints)

    def _drop_endpoint_states(self) -> None:
        """Poll only what is listed, and the last endpoints of drivers that are not up there."""
        listed = self._listed or frozenset()
        unlisted = self.endpoint_states.keys() - listed
        urls = {endpoint.url for endpoint in unlisted}
        for driver in self.drivers:
            if driver.endpoint.url in urls and driver.app and not driver.is_stopped:
                own = self._endpoints_of(driver)
                if not self._is_up(listed.intersection(own)):
                    unlisted.difference_update(own)
        for endpoint in unlisted:
            del self.endpoint_states[endpoint]
