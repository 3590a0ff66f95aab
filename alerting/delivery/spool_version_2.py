"""Reads the spool of the version before: there, the state of an alert was in its annotations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..alert import AlertOutcome, GoesOn
from ..incidents.lifecycle import Opened
from ..kinds import SHOWN_CODES

OLD_VERSION = 2
# The sentences as that version wrote them, whatever is said today.
OUTCOMES = {
    "commits again": AlertOutcome.COMMITS,
    "is healthy again": AlertOutcome.HEALTHY,
    "is healthy again and idle": AlertOutcome.IDLE,
    "was stopped": AlertOutcome.STOPPED,
    "has completed": AlertOutcome.COMPLETED,
    "is no longer watched": AlertOutcome.UNWATCHED,
    "driver is up again": AlertOutcome.RECOVERED,
    "querypulse receives Spark's events again": AlertOutcome.RECOVERED,
    "querypulse sees every query again": AlertOutcome.RECOVERED,
    "driver answers again": AlertOutcome.ANSWERS,
    "driver was shut down gracefully": AlertOutcome.SHUT_DOWN,
    "driver is down again, which is critical": AlertOutcome.DOWN_AGAIN,
    "driver was forgotten (--forget)": AlertOutcome.FORGOTTEN,
    "driver is no longer watched": AlertOutcome.DRIVER_UNWATCHED,
    "every driver that answers accepts the watcher": AlertOutcome.ACCEPTED,
}
SUCCESSORS = {
    "the critical alert": GoesOn.CRITICAL_ALERT,
    "the critical incident": GoesOn.CRITICAL_INCIDENT,
    "the warning": GoesOn.WARNING,
    "another incident": GoesOn.ANOTHER_INCIDENT,
}
CODES = frozenset(code.value for code in SHOWN_CODES)


def upgrade(document: dict[str, Any]) -> dict[str, Any]:
    """Change a decoded document of version 2 into one of version 3.

    Raises:
        ValueError: it has not the form of version 2.

    """
    try:
        calm = {
            (entry["alertname"], entry["query"]): _calm_seconds(entry)
            for entry in document.get("opened", ())
        }
        for alert in _alerts(document):
            _upgrade_alert(alert, calm)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError("it has not the form of version 2") from error
    return document | {"version": 3}


def _calm_seconds(entry: dict[str, Any]) -> float:
    times = tuple(float(at) for at in entry["at"])
    return Opened(entry["alertname"], entry["query"], times).calm_seconds


def _alerts(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for rows in document.get("rows", {}).values():
        for row in rows:
            yield from row["incident"]["alerts"]


def _upgrade_alert(alert: dict[str, Any], calm: Mapping[tuple[str, str], float]) -> None:
    notes = alert["annotations"]
    ends_at = alert.pop("ends_at", None)
    outcome = OUTCOMES.get(notes.pop("outcome", ""))
    successor = notes.pop("superseded_by", "")
    # What goes on somewhere must not count as resolved.
    goes_on = SUCCESSORS.get(successor, GoesOn.ANOTHER_INCIDENT) if successor else None
    if ends_at is not None:
        alert["end"] = {"at": ends_at, "outcome": outcome, "goes_on": goes_on}
    alert["incident"] = notes.pop("incident", "")
    alert["muted"] = notes.pop("muted", "")
    if notes.pop("flapping", ""):
        labels = alert["labels"]
        alert["calm_seconds"] = calm.get((labels["alertname"], labels["query"]), 0.0)
    code, _, _ = notes.get("reason", "").partition(": ")
    alert["code"] = code if code in CODES else ""
