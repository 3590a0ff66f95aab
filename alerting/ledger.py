"""One receiver's account: what it should know, what it knows, and when to try again. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from .alert import Alert
from .finding import Severity
from .receivers.receiver import DeliveryError

FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0
REFUSED_RETRY_SECONDS = 300.0
MAX_DOUBLINGS = 6


class Told(msgspec.Struct, frozen=True):
    """An alert the receiver holds for firing; ``ends_at`` is set once it should not.

    Not ``sure`` when the last attempt, to trigger or to resolve, may or may not have arrived.
    """

    alert: Alert
    sure: bool


class Retry(msgspec.Struct, frozen=True):
    """After a failure: the next attempt is due ``at`` (monotonic seconds)."""

    at: float
    failures: int
    round: int
    error: str


class Ledger:
    """Compares the alerts that fire with what one receiver was told.

    The difference is what to send: triggers the receiver does not surely know, and resolves
    of what it may hold for firing. So a lost hand-off heals, nothing is dropped while it
    fires, and no resolve can come before its trigger. Touches no clock, thread or socket.
    """

    def __init__(self) -> None:
        self._firing: dict[str, Alert] = {}
        self._told: dict[str, Told] = {}
        self._retries: dict[str, Retry] = {}

    def offer(self, firing: Iterable[Alert], wall: float) -> None:
        """Replace the set of alerts that fire at Unix time ``wall``."""
        self._firing = {alert.key: alert for alert in firing}
        self._settle(wall)

    def differences(self) -> list[Alert]:
        """What is still to be told, ``ends_at`` set on resolves.

        New ones before those that failed, then critical ones, then the oldest.
        """
        told = self._told
        triggers = [a for key, a in self._firing.items() if key not in told or not told[key].sure]
        resolves = [one.alert for one in told.values() if one.alert.ends_at is not None]
        return sorted(triggers + resolves, key=self._urgency)

    def due(self, now: float, urgent_round: int) -> list[Alert]:
        """The differences to send at ``now``: not waiting for a retry, or not yet attempted
        in ``urgent_round``.
        """
        return [
            alert
            for alert in self.differences()
            if (retry := self._retries.get(alert.key)) is None
            or retry.at <= now
            or retry.round < urgent_round
        ]

    def attempted(self, urgent_round: int) -> bool:
        """Whether every difference has failed in ``urgent_round`` already."""
        retries = self._retries
        return all(
            alert.key in retries and retries[alert.key].round >= urgent_round
            for alert in self.differences()
        )

    def next_retry(self) -> float | None:
        """When the first failed one is due again."""
        return min((retry.at for retry in self._retries.values()), default=None)

    def delivered(self, alert: Alert, wall: float) -> None:
        """The receiver accepted ``alert``."""
        self._retries.pop(alert.key, None)
        if alert.ends_at is None:
            self._told[alert.key] = Told(alert, sure=True)
        else:
            self._told.pop(alert.key, None)
        self._settle(wall)

    def failed(
        self, alert: Alert, error: DeliveryError, now: float, wall: float, urgent_round: int
    ) -> Retry:
        """The receiver did not accept ``alert``; returns when it is tried again."""
        before = self._retries.get(alert.key)
        failures = before.failures + 1 if before is not None else 1
        retry = Retry(now + _pause(error, failures), failures, urgent_round, str(error))
        self._retries[alert.key] = retry
        if error.may_have_arrived:
            self._told[alert.key] = Told(alert, sure=False)
        self._settle(wall)
        return retry

    def knows_error(self, text: str) -> bool:
        """Whether something still to be told has failed with this very error."""
        return any(retry.error == text for retry in self._retries.values())

    def _settle(self, wall: float) -> None:
        """Note which told alerts have ended, and forget retries of what needs no telling."""
        self._told = {key: self._told_now(key, told, wall) for key, told in self._told.items()}
        pending = {alert.key for alert in self.differences()}
        self._retries = {key: retry for key, retry in self._retries.items() if key in pending}

    def _told_now(self, key: str, told: Told, wall: float) -> Told:
        alert = told.alert
        if key in self._firing:
            alert = replace(alert, ends_at=None)
        elif alert.ends_at is None:
            alert = replace(alert, ends_at=max(wall, alert.starts_at))
        return Told(alert, told.sure)

    def _urgency(self, alert: Alert) -> tuple[bool, bool, float]:
        critical = alert.labels["severity"] == Severity.CRITICAL.value
        return alert.key in self._retries, not critical, alert.starts_at


def _pause(error: DeliveryError, failures: int) -> float:
    """Seconds until the next attempt, given how many have failed."""
    if not error.transient:
        return REFUSED_RETRY_SECONDS
    doubled = FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, MAX_DOUBLINGS)
    return max(min(doubled, MAX_RETRY_SECONDS), error.retry_after or 0.0)
