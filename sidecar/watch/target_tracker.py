"""The roll of drivers that are to be there, and what the looks say of each. Pure.

All times are monotonic seconds of the watcher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ...exporter.shutdown_notice import Notice
from .memory import EndpointState, WatchedDriver
from .poll import Endpoint, Poll, Said

NEVER_SEEN_FACTOR = 4
"""How much longer one may be silent that was never seen: it may still be starting."""
TERMINATED_AFTER_SECONDS = 300.0
"""So long a driver that a signal has ended may take to be back."""
LONGEST_POLL_SECONDS = 10.0
"""A look that took longer tells of the watcher, not of the driver."""
SLACK_SECONDS = 5.0
"""By how much looks, and proofs that the network works, may come later than the interval."""

Key = tuple[str, str]
"""A URL or a DNS name, and an app; the first app seen there keeps the key without one."""


class TargetTracker:
    """Remembers what was seen of each driver; ``drivers`` are those that are to be there.

    ``is_listed`` says whether it is known by now where to look.
    """

    def __init__(
        self,
        gone_after_seconds: float,
        interval_seconds: float,
        terminated_after_seconds: float = TERMINATED_AFTER_SECONDS,
    ) -> None:
        self._gone_after = gone_after_seconds
        self._terminated_after = max(gone_after_seconds, terminated_after_seconds)
        self._longest_pause = interval_seconds + SLACK_SECONDS
        self._endpoint_states: dict[Endpoint, EndpointState] = {}
        self._listed: frozenset[Endpoint] = frozenset()
        self.is_listed = False
        self._proof_at: float | None = None
        self.drivers: dict[Key, WatchedDriver] = {}

    @property
    def endpoints(self) -> frozenset[Endpoint]:
        """Where to look: what is listed, and addresses that left DNS without a farewell."""
        return frozenset(self._endpoint_states)

    @property
    def endpoint_states(self) -> Mapping[Endpoint, EndpointState]:
        """What is remembered of each place where to look."""
        return self._endpoint_states

    @property
    def unsure(self) -> bool:
        """Whether a proof that the network works is needed, for a driver cannot be reached."""
        return any(driver.unsure for driver in self.drivers.values())

    def listed(self, endpoints: Iterable[Endpoint]) -> None:
        """Watch these places from now on; who is listed no more is missed no more.

        An address that left DNS is: its driver may have been killed. ``forget`` ends that.
        """
        self._listed = frozenset(endpoints)
        self.is_listed = True
        for endpoint in self._listed - self._endpoint_states.keys():
            self._endpoint_states[endpoint] = EndpointState()
            if not any(key[0] == endpoint.listed_as for key in self.drivers):
                self.drivers[endpoint.listed_as, ""] = WatchedDriver(endpoint)
        names = {endpoint.listed_as for endpoint in self._listed}
        for key in [key for key in self.drivers if key[0] not in names]:
            del self.drivers[key]
        self._drop_endpoint_states()

    def forget(self, key: Key) -> None:
        """Miss this one no more, and look no more where only it was."""
        del self.drivers[key]
        self._drop_endpoint_states()

    def expect(self, shown: str, name: str) -> Key | None:
        """Who was called ``name`` at the listed URL ``shown`` is known by that app from now on.

        None where no such URL is listed, or another app is known there.
        """
        for endpoint in self._listed:
            driver = self.drivers.get((endpoint.listed_as, ""))
            if driver is not None and not endpoint.group and endpoint.shown == shown:
                known = name != driver.address
                app = name.removesuffix(f"@{driver.address}") if known else driver.app
                if not driver.app:
                    driver.app = self._endpoint_states[endpoint].app = app
                return (endpoint.listed_as, "") if driver.app == app else None
        return None

    def is_down(self, shown: str) -> bool:
        """Whether nothing answers at the listed place ``shown``, and nobody closed there."""
        return any(
            endpoint.shown == shown
            and (endpoint_state := self._endpoint_states[endpoint]).poll is not None
            and endpoint_state.stopped_at is None
            and not endpoint_state.lives
            for endpoint in self._listed
        )

    def polled(self, endpoint: Endpoint, poll: Poll) -> None:
        """Take one look into account."""
        endpoint_state = self._endpoint_states.get(endpoint)
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
        """The driver at ``endpoint`` gave notice at ``at`` that it closes."""
        endpoint_state = self._endpoint_states.get(endpoint)
        if endpoint_state is None:
            return
        endpoint_state.stopped_at = at
        for driver in self._under(endpoint.listed_as):
            if endpoint in self._endpoints_of(driver) and not self._lives(driver):
                (driver.stop if notice is Notice.STOPPED else driver.terminate)()

    def names(self) -> dict[Key, str]:
        """What each driver is called: one app at two places is two drivers, ``app@host:port``."""
        apps = Counter(one.app for one in self.drivers.values() if not one.stopped)
        return {
            key: one.full_name if apps[one.app] > (not one.stopped) else one.name
            for key, one in self.drivers.items()
        }

    def proved(self, at: float) -> None:
        """Something answered over the network at ``at``.

        After a time without any proof, everything that could not be reached is looked at afresh.
        """
        lost = self._proof_at is None or at - self._proof_at > self._longest_pause
        self._proof_at = at
        for driver in self.drivers.values():
            if lost and driver.unsure:
                driver.forgive()

    def is_gone(self, driver: WatchedDriver) -> bool:
        """Whether it has not been found for so long that somebody should know."""
        if driver.last is None or driver.bad_since is None or driver.bad_polls < 2:  # noqa: PLR2004 - one is a glitch
            return False
        needed = self._gone_after * (1 if driver.seen else NEVER_SEEN_FACTOR)
        if driver.terminated:
            needed = self._terminated_after
        return driver.last.at - driver.bad_since >= needed

    def network_works(self, driver: WatchedDriver) -> bool:
        """Whether something else has answered since this one does not, and just now."""
        if self._proof_at is None or driver.last is None or driver.bad_since is None:
            return False
        just_now = driver.last.at - self._proof_at <= self._longest_pause
        return just_now and self._proof_at >= driver.bad_since

    def _report(self, driver: WatchedDriver, endpoint: Endpoint, poll: Poll) -> None:
        """Let one subject know of a look under its name."""
        own = self._endpoints_of(driver)
        if self._lives(driver):
            if endpoint in own and self._endpoint_states[endpoint].lives:
                driver.note_healthy(endpoint, poll)
        elif endpoint in own:
            driver.note_failing(endpoint, poll, self._longest_pause)
        elif not own:
            if poll.said is Said.HEALTHY:
                detail = f"{poll.app or 'another driver'} answers there now"
                poll = msgspec.structs.replace(poll, said=Said.REPLACED, detail=detail)
            driver.note_failing(endpoint, poll, self._longest_pause)

    def _know_app(self, endpoint: Endpoint, app: str) -> None:
        """Each app is a driver of its own from when it is first seen.

        One that closed in good order is forgotten when another app is there.
        """
        name = endpoint.listed_as
        if not app or any(driver.app == app for driver in self._under(name)):
            return
        waited_for = self.drivers.get((name, ""))
        if waited_for is not None and not waited_for.app:
            waited_for.app = app
            return
        for key in [key for key, one in self.drivers.items() if key[0] == name and one.stopped]:
            del self.drivers[key]
        self.drivers[name, app] = WatchedDriver(endpoint, app)

    def _under(self, name: str) -> list[WatchedDriver]:
        return [driver for key, driver in self.drivers.items() if key[0] == name]

    def _endpoints_of(self, driver: WatchedDriver) -> list[Endpoint]:
        """Where it was seen last; of one never seen, all places of its name."""
        name = driver.endpoint.listed_as
        return [
            endpoint
            for endpoint, endpoint_state in self._endpoint_states.items()
            if endpoint.listed_as == name and driver.app in ("", endpoint_state.app)
        ]

    def _lives(self, driver: WatchedDriver) -> bool:
        return any(self._endpoint_states[endpoint].lives for endpoint in self._endpoints_of(driver))

    def _drop_endpoint_states(self) -> None:
        """Look no more where nothing is listed and nobody is missed."""
        missed = set(self._missed_endpoints())
        for endpoint in [
            endpoint for endpoint in self._endpoint_states if endpoint not in self._listed | missed
        ]:
            del self._endpoint_states[endpoint]

    def _missed_endpoints(self) -> Iterator[Endpoint]:
        for driver in self.drivers.values():
            if driver.app and not driver.stopped:
                own = self._endpoints_of(driver)
                if not any(
                    endpoint in self._listed and self._endpoint_states[endpoint].lives
                    for endpoint in own
                ):
                    yield from own
