"""Simulated receivers that behave like real ones, and what they show and notify."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from random import Random

import msgspec
from msgspec.structs import replace

from querypulse.alerting.alert import Alert, Incident
from querypulse.alerting.receivers.alertmanager import Alertmanager, Shown, api_alerts, left_open
from querypulse.alerting.receivers.http import GONE_WAIT_SECONDS
from querypulse.alerting.receivers.pagerduty import PagerDuty, resolve_event, trigger_event
from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.alerting.receivers.webhook import Webhook, message_id
from querypulse.core.states import DeliveryOutcome

from .clock import Time

# -- messages ------------------------------------------------------------------------------------


Named = frozenset[tuple[str, str]]
"""The content of a message: the firing queries and their alerts."""
About = Callable[[Alert], Named]


class Notification(msgspec.Struct, frozen=True):
    """A receiver notified a person: the first time, or again."""

    at: float
    key: str
    driver: str
    named: Named
    severity: str
    starts_at: float
    doubted: bool


class Open(msgspec.Struct):
    """An incident that is open at a receiver, with its present content."""

    key: str
    driver: str
    opened_at: float
    shown: Named
    held: bool
    severity: str
    starts_at: float


class Closed(msgspec.Struct, frozen=True):
    """An incident that ended, with its last content."""

    at: float
    incident: Open
    by: str
    """The process that resolved it; empty if it expired."""


class Rejected(msgspec.Struct, frozen=True):
    """A message that the receiver answered with 400."""

    at: float
    key: str
    over: bool
    named: Named


# -- receivers -----------------------------------------------------------------------------------


KEY = "0" * 32
CAPABILITIES = {
    "pagerduty": PagerDuty.capabilities,
    "alertmanager": Alertmanager.capabilities,
    "webhook": Webhook.capabilities,
}
PER_MINUTE = 120
PENALTIES = {"wrong token": 320.0, "slow": 60.0, "gone": 5.0, "poison": math.inf}
"""How long a delivery may wait after an outage: it is retried after 300 s for a misconfiguration,
after pauses of up to 300 s otherwise; some messages are never retried. After a 410, tried messages
wait for an hour (``gone_until``), new ones do not.
"""


class SimReceiver:
    """One receiver. ``mode`` is how it misbehaves now, until ``until``."""

    def __init__(self, name: str, kind: str, time: Time, rng: Random) -> None:
        self.name = name
        self.kind = kind
        self.capabilities = CAPABILITIES[kind]
        self.mode = "up"
        self.until = 0.0
        self._trouble_began_at = 0.0
        self.trouble_ended_at = float("-inf")
        self.trouble_seconds = 0.0
        self.gone_until = float("-inf")
        """Until when it answered 410: messages tried by then may wait for an hour."""
        self.is_up_from = float("-inf")
        """From when on every delivery that had to wait has been retried."""
        self.acknowledged_at = float("-inf")
        self.poison_next = False
        """Whether it rejects the next message for good."""
        self.rejected: list[Rejected] = []
        self.open: dict[str, Open] = {}
        self.notifications: list[Notification] = []
        self.closed: list[Closed] = []
        self.vain_resolves: list[tuple[float, str, str]] = []
        """Resolves of incidents that were never open here: time, key, driver."""
        self._time = time
        self._rng = rng
        self._known: set[str] = set()
        self._doubted: set[str] = set()
        self._posted: set[str] = set()
        self.lapsed: list[tuple[float, str]] = []
        """Alerts that it ended by itself: time, key."""
        self._lapses: dict[str, float] = {}
        self._posted_at: dict[str, float] = {}
        self._recent: list[float] = []

    def misbehave(self, mode: str, seconds: float) -> None:
        self.mode, self.until = mode, self._time.now + seconds
        if self.is_up_from < self._time.now:
            self._trouble_began_at = self._time.now
        # A delivery that still waits because of the trouble before waits longer after this one.
        seconds = self.until - self._trouble_began_at
        self.trouble_ended_at, self.trouble_seconds = self.until, seconds
        if mode == "gone":
            self.gone_until = self.until
        usual = min(330.0, max(70.0, seconds))
        self.is_up_from = max(self.is_up_from, self.until + PENALTIES.get(mode, usual))

    @property
    def now(self) -> float:
        return self._time.now

    @property
    def present_mode(self) -> str:
        return self.mode if self._time.now < self.until else "up"

    @property
    def latency(self) -> float:
        return {"slow": 8.0, "cut": 5.0, "cut before": 5.0}.get(self.present_mode, 0.2)

    def refusal(self) -> DeliveryError | None:
        """The error that answers a request sent now, or None for acceptance."""
        answers = {
            "down": DeliveryError("down", DeliveryOutcome.TRANSIENT),
            "busy": DeliveryError("answered 429", DeliveryOutcome.TRANSIENT, retry_after=5.0),
            "cut": DeliveryError("cut", DeliveryOutcome.TRANSIENT, may_have_arrived=True),
            "cut before": DeliveryError("cut", DeliveryOutcome.TRANSIENT, may_have_arrived=True),
            "wrong token": DeliveryError("answered 401", DeliveryOutcome.MISCONFIGURED),
            "gone": DeliveryError(
                "answered 410", DeliveryOutcome.MISCONFIGURED, retry_after=GONE_WAIT_SECONDS
            ),
            "poison": DeliveryError("answered 400", DeliveryOutcome.REJECTED),
        }
        if self.present_mode == "up" and self.kind == "pagerduty":
            self._recent = [at for at in self._recent if self._time.now - at < 60.0]
            if len(self._recent) >= PER_MINUTE:
                return answers["busy"]
            self._recent.append(self._time.now)
        return answers.get(self.present_mode)

    def reject(self, incident: Incident, about: About) -> DeliveryError | None:
        """The rejection of this message; None for nearly all messages."""
        if not self.poison_next or self.present_mode != "up":
            return None
        self.poison_next = False
        over = incident.ends_at is not None
        named = frozenset[tuple[str, str]]().union(*map(about, incident.alerts))
        self.rejected.append(Rejected(self._time.now, incident.key, over, named))
        self.trouble_ended_at = self._time.now
        return DeliveryError("answered 400", DeliveryOutcome.REJECTED)

    @property
    def takes(self) -> bool:
        """Whether a request sent now arrives, whatever the answer."""
        return self.present_mode in ("up", "slow", "cut")

    def accept(self, incident: Incident, driver: str, about: About, *, doubted: bool) -> None:
        """A message arrived; ``doubted`` when its sender will not learn of it."""
        if self.kind == "alertmanager":
            alerts = self._left_open(incident) if incident.is_orphan else incident.alerts
            self._alerts(incident, alerts, driver, about, doubted=doubted)
            return
        firing = [about(alert) for alert in incident.alerts if alert.ends_at is None]
        named = frozenset[tuple[str, str]]().union(*firing)
        take = self._page if self.kind == "pagerduty" else self._post
        take(incident, driver, named, doubted=doubted)

    def _left_open(self, incident: Incident) -> list[Alert]:
        """The ends of what an Alertmanager shows as open of a stale incident."""
        now, wall = self._time.now, self._time.wall()
        alerts = [
            Shown(
                json.loads(key), {}, _utc(held.starts_at), _utc(wall - now + self._posted_at[key])
            )
            for key, held in self.open.items()
        ]
        return left_open(alerts, incident.labels, wall)

    def lapse(self) -> None:
        """Expire alerts that were not posted for long, like Alertmanager."""
        for key, ends_at in list(self._lapses.items()):
            if ends_at <= self._time.now:
                del self._lapses[key]
                self.lapsed.append((self._time.now, key))
                self._close(key)

    def _page(self, incident: Incident, driver: str, named: Named, *, doubted: bool) -> None:
        """Events API v2: a trigger on an open key, acknowledged or not, notifies nobody."""
        if incident.ends_at is not None:
            self._close(resolve_event(incident, KEY)["dedup_key"], driver)
            return
        event = trigger_event(incident, KEY, "host", "")
        key = event["dedup_key"]
        if key not in self.open:
            self._open(key, incident, driver, named)
            self._notify(key, incident, driver, named, doubted=doubted)
        self.open[key].shown = named
        self.open[key].severity = incident.severity
        self.open[key].held |= _is_held(incident)

    def _post(self, incident: Incident, driver: str, named: Named, *, doubted: bool) -> None:
        """A webhook: each new message notifies; one with a known ``Idempotency-Key`` does not."""
        key, identity = incident.key, message_id(incident)
        if incident.ends_at is not None:
            self._close(key, driver)
        elif identity not in self._posted:
            if key not in self.open:
                self._open(key, incident, driver, named)
            held = self.open[key]
            held.shown, held.severity = named, incident.severity
            self._notify(key, incident, driver, named, doubted=doubted)
        self._posted.add(identity)

    def _alerts(
        self,
        incident: Incident,
        alerts: Iterable[Alert],
        driver: str,
        about: About,
        *,
        doubted: bool,
    ) -> None:
        """API v2: alerts are identified by labels; a repeated post of a firing alert is no news."""
        now_wall = self._time.wall()
        for alert in alerts:
            if not api_alerts([alert], now_wall):
                continue
            key = alertmanager_key(alert)
            if alert.ends_at is not None:
                self._lapses.pop(key, None)
                self._close(key, driver)
                continue
            mine = about(alert)
            if key not in self.open:
                alone = replace(incident, severity=alert.labels["severity"], alerts=(alert,))
                self._open(key, alone, driver, mine)
                self._notify(key, alone, driver, mine, doubted=doubted)
            self.open[key].shown = mine
            self._posted_at[key] = self._time.now
            self._lapses[key] = self._time.now + (24 * 3600.0 if alert.is_critical else 240.0)

    def _open(self, key: str, incident: Incident, driver: str, named: Named) -> None:
        held = _is_held(incident)
        self.open[key] = Open(
            key, driver, self._time.now, named, held, incident.severity, incident.starts_at
        )
        self._known.add(key)

    def _notify(
        self, key: str, incident: Incident, driver: str, named: Named, *, doubted: bool
    ) -> None:
        again = key in self._doubted
        (self._doubted.add if doubted else self._doubted.discard)(key)
        self.notifications.append(
            Notification(
                self._time.now,
                key,
                driver,
                named,
                incident.severity,
                incident.starts_at,
                doubted or again,
            )
        )

    def _close(self, key: str, driver: str = "") -> None:
        held = self.open.pop(key, None)
        if held is not None:
            self.closed.append(Closed(self._time.now, held, driver))
        elif key not in self._known and self.kind != "alertmanager":
            # An Alertmanager ignores the end of an alert that it does not know.
            self.vain_resolves.append((self._time.now, key, driver))


def alertmanager_key(alert: Alert) -> str:
    """What an Alertmanager identifies an alert by: its labels."""
    return json.dumps(alert.labels, sort_keys=True)


def _utc(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, timezone.utc)


def _is_held(incident: Incident) -> bool:
    return any(alert.calm_seconds for alert in incident.alerts)
