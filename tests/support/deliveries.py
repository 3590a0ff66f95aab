"""Incidents made by hand, errors of every kind, and a receiver that fails on demand."""

from __future__ import annotations

import threading

from msgspec.structs import replace
from support import receiver_incidents
from support.patience import PATIENCE_SECONDS, WALL

from querypulse.alerting.alert import End, Incident, incident_key
from querypulse.alerting.delivery.outbox import OutboxRow
from querypulse.alerting.delivery.spool import Kept
from querypulse.alerting.receivers.http import GONE_WAIT_SECONDS
from querypulse.alerting.receivers.receiver import DeliveryError, ReceiverCapabilities
from querypulse.core.states import DeliveryOutcome


def incident(*queries, revision=0, muted="", starts_at=WALL, **words) -> Incident:
    """An incident of these queries, by default of ``a``."""
    made = receiver_incidents.incident(*(queries or ("a",)), starts_at=starts_at, **words)
    return replace(made, revision=revision, muted=muted)


def stale(query="a", severity="critical") -> Incident:
    labels = {"app": "etl", "query": query}
    return Incident(incident_key(labels, severity), labels, severity, ())


def over(incident: Incident, ends_at: float) -> Incident:
    """The incident with all its alerts ended."""
    return replace(
        incident, alerts=tuple(replace(alert, end=End(ends_at)) for alert in incident.alerts)
    )


def outage(retry_after=None) -> DeliveryError:
    return DeliveryError("down", DeliveryOutcome.TRANSIENT, retry_after=retry_after)


def lost_answer() -> DeliveryError:
    return DeliveryError("no answer", DeliveryOutcome.TRANSIENT, may_have_arrived=True)


def wrong_token(text="answered 401") -> DeliveryError:
    return DeliveryError(text, DeliveryOutcome.MISCONFIGURED)


def poison() -> DeliveryError:
    return DeliveryError("answered 400", DeliveryOutcome.REJECTED)


def gone() -> DeliveryError:
    return DeliveryError(
        "answered 410", DeliveryOutcome.MISCONFIGURED, retry_after=GONE_WAIT_SECONDS
    )


def said(incident: Incident) -> tuple[str, str]:
    """The content of a notification: the queries, and whether they fire."""
    queries = "+".join(alert.query for alert in incident.alerts) or incident.query
    return queries, "firing" if incident.ends_at is None else "resolved"


class Recorder:
    """A receiver that records what it receives, and fails as ``failures`` say, by query."""

    def __init__(self, name="recorder", capabilities=None, **failures: list[Exception]) -> None:
        self.name = name
        self.capabilities = capabilities if capabilities is not None else ReceiverCapabilities()
        self.incidents: list[Incident] = []
        self.failures = failures
        self.always: Exception | None = None
        self.closed = 0
        self.free = threading.Event()
        self.free.set()
        self._changed = threading.Condition()

    @property
    def sent(self) -> list[tuple[str, str]]:
        return [said(incident) for incident in self.incidents]

    def send(self, incident: Incident, wall: float) -> None:
        with self._changed:
            self.incidents.append(incident)
            self._changed.notify_all()
        assert self.free.wait(PATIENCE_SECONDS), "nobody lets the receiver answer"
        query = said(incident)[0].split("+")[0]
        if self.always is not None:
            raise self.always
        if self.failures.get(query):
            raise self.failures[query].pop(0)

    def close(self) -> None:
        self.closed += 1
        self.free.set()

    def wait_for(self, count: int) -> list[tuple[str, str]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.incidents) >= count, PATIENCE_SECONDS)
        return self.sent[:count]


class MemorySpool:
    """A spool that keeps every offer; ``rows`` has each receiver's newest."""

    def __init__(self, **rows: tuple[OutboxRow, ...]) -> None:
        self.offers: list[tuple[str, tuple[OutboxRow, ...]]] = []
        self.left = Kept(rows=rows) if rows else None

    @property
    def rows(self) -> dict[str, tuple[OutboxRow, ...]]:
        return dict(self.offers)

    def offer_rows(self, receiver: str, rows: tuple[OutboxRow, ...]) -> None:
        self.offers.append((receiver, rows))

    is_taken = False

    def load(self, timeout: float = 0.0) -> Kept | None:
        """What an earlier process left: ``left``, once."""
        left, self.left = self.left, None
        return left

    def write_ahead(self) -> None:
        """Nothing to wait for."""
