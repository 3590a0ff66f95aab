"""Which patterns of a silence match nothing now: a typo, or a query that starts later. Pure."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.rules import ALERT_NAMES
from .mistakes import suggestion
from .silence_settings import SilenceSettings


def unmatched(silence: SilenceSettings, queries: Collection[str] | None) -> str:
    """Which patterns match nothing now, with suggestions; empty when all match.

    ``queries`` are the known names, or None where they are not known.
    """
    notes = [_note("alert", silence.alertname, ALERT_NAMES)]
    if queries is not None:
        notes.append(_note("query", silence.queries, [*queries, WHOLE_DRIVER]))
    return "; ".join(filter(None, notes))


def _note(kind: str, pattern: str, names: Collection[str]) -> str:
    if any(fnmatchcase(name, pattern) for name in names):
        return ""
    hint = suggestion(pattern, names)
    return f"{kind} {pattern!r} matches nothing now" + (f"; {hint}" if hint else "")
