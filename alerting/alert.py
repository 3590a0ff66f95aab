"""Alerts: findings with a beginning, ready to be told."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from .finding import Finding

PREFIX_CHARACTERS = 190
MAX_KEY_CHARACTERS = 255
"""PagerDuty's limit for a ``dedup_key``."""


class Alert(msgspec.Struct, frozen=True):
    """One alert as receivers tell it; ``starts_at`` and ``ends_at`` are Unix seconds."""

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: float
    ends_at: float | None = None

    @property
    def name(self) -> str:
        """The alert's name, which is also its rule's and its runbook's."""
        return self.labels["alertname"]

    @property
    def key(self) -> str:
        """What the alert is known by everywhere: ``querypulse/<app>/<query>/<alertname>``."""
        labels = self.labels
        key = f"querypulse/{labels['app']}/{labels['query']}/{labels['alertname']}"
        if len(key) <= MAX_KEY_CHARACTERS:
            return key
        return f"{key[:PREFIX_CHARACTERS]}/{sha256(key.encode()).hexdigest()[:40]}"


class Alerts:
    """Remembers when each alert began, so that it begins once."""

    def __init__(self, app: str, runbook_base_url: str) -> None:
        self._app = app
        self._runbooks = runbook_base_url.rstrip("/")
        self._firing: dict[str, Alert] = {}

    def update(self, findings: Iterable[Finding], wall: float) -> tuple[Alert, ...]:
        """The alerts firing now, given the present findings and Unix time."""
        firing: dict[str, Alert] = {}
        for finding in findings:
            alert = self._alert(finding, wall)
            before = self._firing.get(alert.key)
            if before is not None:
                alert = msgspec.structs.replace(alert, starts_at=before.starts_at)
            firing[alert.key] = alert
        self._firing = firing
        return tuple(firing.values())

    def _alert(self, finding: Finding, wall: float) -> Alert:
        return Alert(
            labels={
                "alertname": finding.alertname,
                "app": self._app,
                "query": finding.query,
                "severity": finding.severity.value,
            },
            annotations={
                "summary": finding.summary,
                "description": describe(finding),
                "reason": finding.reason,
                "runbook_url": f"{self._runbooks}/{finding.alertname}.md",
                **finding.evidence,
            },
            starts_at=wall,
        )


def describe(finding: Finding) -> str:
    """The whole story in one text: the reason, then the evidence line by line."""
    lines = [f"{name}: {text}" for name, text in finding.evidence.items()]
    return "\n".join([finding.reason, *lines])
