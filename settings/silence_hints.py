"""Which patterns of a silence match nothing now: a typo, or a query that starts later. Pure."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.rules import (
    batch_slow,
    data_loss_risk,
    driver_down,
    events_missing,
    monitoring_degraded,
    offsets_rewound,
    offsets_stalled,
    query_failed,
    query_flapping,
    query_lagging,
    query_missing,
    query_stalled,
    query_stopped,
    streaming_input_missing,
    watermark_stuck,
)
from .mistakes import suggestion
from .silence_settings import SilenceSettings

ALERTS = tuple(
    rule.NAME
    for rule in (
        batch_slow,
        query_stalled,
        data_loss_risk,
        driver_down,
        events_missing,
        monitoring_degraded,
        offsets_rewound,
        offsets_stalled,
        query_failed,
        query_flapping,
        query_stopped,
        query_lagging,
        query_missing,
        streaming_input_missing,
        watermark_stuck,
    )
)


def unmatched(silence: SilenceSettings, queries: Collection[str] | None) -> str:
    """Which patterns match nothing now, with suggestions; empty when all match.

    ``queries`` are the known names, or None where they are not known.
    """
    notes = [_note("alert", silence.alertname, ALERTS)]
    if queries is not None:
        notes.append(_note("query", silence.queries, [*queries, WHOLE_DRIVER]))
    return "; ".join(filter(None, notes))


def _note(kind: str, pattern: str, names: Collection[str]) -> str:
    if any(fnmatchcase(name, pattern) for name in names):
        return ""
    hint = suggestion(pattern, names)
    return f"{kind} {pattern!r} matches nothing now" + (f"; {hint}" if hint else "")
