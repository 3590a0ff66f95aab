"""Reads the spool of the version before: there, the state of an alert was in its annotations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..incidents.alert import Outcome
from ..kinds import KINDS, SHOWN_CODES
from ..words.headlines import GOES_ON, OTHER_OUTCOMES, QUERY_OUTCOMES

VERSION = 2
OUTCOMES = {
    **{text: outcome for outcome, (text, _) in QUERY_OUTCOMES.items()},
    **{text: outcome for outcome, text in OTHER_OUTCOMES.items()},
    **{kind.recovers: Outcome.RECOVERED for kind in KINDS.values() if kind.recovers},
}
SUCCESSORS = {text: goes_on for goes_on, text in GOES_ON.items()}
CODES = frozenset(code.value for code in SHOWN_CODES)


def upgrade(document: dict[str, Any]) -> dict[str, Any]:
    """Change a decoded document of version 2 into one of version 3.

    Raises:
        ValueError: it has not the form of version 2.

    """
    try:
        for alert in _alerts(document):
            _upgrade_alert(alert)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError("it has not the form of version 2") from error
    return document | {"version": 3}


def _alerts(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for rows in document.get("rows", {}).values():
        for row in rows:
            yield from row["incident"]["alerts"]


def _upgrade_alert(alert: dict[str, Any]) -> None:
    notes = alert["annotations"]
    outcome = OUTCOMES.get(notes.pop("outcome", ""))
    goes_on = SUCCESSORS.get(notes.pop("superseded_by", ""))
    ends_at = alert.pop("ends_at", None)
    if ends_at is not None:
        alert["end"] = {"at": ends_at, "outcome": outcome, "goes_on": goes_on}
    alert["incident"] = notes.pop("incident", "")
    alert["muted"] = notes.pop("muted", "")
    # How long it is held open follows from when it opened, which the spool keeps too.
    notes.pop("flapping", None)
    code, _, _ = notes.get("reason", "").partition(": ")
    alert["code"] = code if code in CODES else ""
