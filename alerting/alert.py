"""Alerts and incidents: what is sent to receivers."""

from __future__ import annotations

from hashlib import sha256

import msgspec
from msgspec.structs import replace

from .finding import WHOLE_DRIVER, Severity

PREFIX_CHARACTERS = 190
MAX_KEY_CHARACTERS = 255
"""PagerDuty's limit for a ``dedup_key``."""
FIRING = "firing"
RESOLVED = "resolved"
"""The status of an alert or an incident: without, and with an end."""
ESCALATED = "critical"
"""Ends the key of an alert that was a warning first, because the warning's key is still open."""
LASTING = "lasting"
"""Ends the key of an alert that was held open because it flapped, and then lasted: its usual key is
still open. Also the value of its label ``OCCURRENCE``, by which Alertmanager keeps both apart."""
OCCURRENCE = "occurrence"
DRIVER = "driver"
"""Ends the key of a whole driver's alert while a group of the same name uses the usual key."""


class Alert(msgspec.Struct, frozen=True):
    """One problem of one query; ``starts_at`` and ``ends_at`` are Unix seconds.

    ``members`` are the labels of the unnamed queries that the alert lists.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: float
    ends_at: float | None = None
    members: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The alert's name, which is also its rule's and its runbook's."""
        return self.labels["alertname"]

    @property
    def key(self) -> str:
        """The key that identifies the alert: ``querypulse/<app>/<query>/<alertname>``."""
        return self.key_ending()

    @property
    def is_lasting(self) -> bool:
        """Whether it was held open because it flapped, and then lasted longer than before."""
        return self.labels.get(OCCURRENCE) == LASTING

    def key_ending(self, *more: str) -> str:
        """The key with ``more`` appended, see ``alert_key``."""
        return alert_key(self.labels["app"], self.labels["query"], self.name, *more)

    def ended(self, wall: float, **notes: str) -> Alert:
        """The alert, ended at Unix time ``wall``, with annotations that say how."""
        return replace(
            self, annotations={**self.annotations, **notes}, ends_at=max(wall, self.starts_at)
        )


class Incident(msgspec.Struct, frozen=True):
    """One page: one alert, or several of one name that began together.

    ``opened_as`` is the key of a group, of a warning that has become critical, and of a flapping
    alert that lasts; otherwise it is empty and the key is that of the only alert. ``revision``
    grows with every reminder. ``muted`` says why no notification is sent now ("silenced until
    ..."); a page sent before stays open.
    ``silenced`` says the same of single alerts, by their keys: a receiver that groups by itself
    gets each alert separately. ``known`` are facts that were sent after they had become known
    later, so that no process sends one twice.
    """

    alerts: tuple[Alert, ...]
    revision: int = 0
    muted: str = ""
    opened_as: str = ""
    silenced: dict[str, str] = {}
    known: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """The ``dedup_key`` of the incident; it needs no stored state, see ``alert_key``."""
        return self.opened_as or self.alerts[0].key

    @property
    def is_escalated(self) -> bool:
        """Whether the incident was opened for a warning that had become critical."""
        first = self.alerts[0]
        queries = (first.labels["query"], WHOLE_DRIVER)
        app = first.labels["app"]
        return self.key in {alert_key(app, query, first.name, ESCALATED) for query in queries}

    @property
    def members(self) -> frozenset[str]:
        """The unnamed queries that its alerts list."""
        return frozenset(one for alert in self.alerts for one in alert.members)

    @property
    def name(self) -> str:
        """The name that all its alerts share."""
        return self.alerts[0].name

    @property
    def severity(self) -> str:
        """The severity of its most severe alert."""
        if len(self.alerts) == 1:
            return self.alerts[0].labels["severity"]
        found = {alert.labels["severity"] for alert in self.alerts}
        return next((one.value for one in Severity if one.value in found), min(found))

    @property
    def starts_at(self) -> float:
        """When the first alert began, in Unix seconds."""
        return min(alert.starts_at for alert in self.alerts)

    @property
    def ends_at(self) -> float | None:
        """When the last alert ended, in Unix seconds; None while any alert fires."""
        ends = [alert.ends_at for alert in self.alerts]
        known = [end for end in ends if end is not None]
        return max(known) if len(known) == len(ends) else None


def alert_key(app: str, query: str, name: str, *more: str) -> str:
    """``querypulse/<app>/<query>/<alertname>``, with a hash if longer than PagerDuty's limit.

    The query of a group is ``*``. ``more`` is appended: ``ESCALATED``, ``LASTING``, ``DRIVER``.
    """
    key = "/".join(("querypulse", app, query, name, *more))
    if len(key) <= MAX_KEY_CHARACTERS:
        return key
    return f"{key[:PREFIX_CHARACTERS]}/{sha256(key.encode()).hexdigest()[:40]}"
