"""The details of an alert below its headline: each fact once, the most useful first. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.listing import MAX_NAMES
from .alert import Alert, Incident
from .headline import code_last, headline_of, queries, summary_of

LINKS = {"runbook_url": "Runbook", "dashboard_url": "Dashboard", "spark_ui_url": "Spark UI"}
"""Annotations that are links, with their titles; each receiver shows them in its own form."""
STATUS_PAGE = "Status page"
NEXT_STEPS = "next_steps"
"""Three lines, the same for all alerts with one name."""
WORDS = ("summary", "description", "reason", *LINKS)
"""Annotations that are not evidence."""
FIRST = (
    "error_message",
    "python_line",
    "traceback",
    "queries",
    "retention",
    "deaths",
    "downstream",
    "upstream",
    NEXT_STEPS,
    "table",
    "on_restart",
    "critical_after",
    "batch_in_flight",
    "last_commit",
    "tasks",
    "slots",
    "other_jobs",
    "spark_says",
    "lag",
    "backlog",
    "siblings",
    "flapping",
    "muted",
)
"""Evidence shown first; names neither here nor in ``LAST`` are shown in between."""
LAST = (
    "sources_unread",
    "commit_log",
    "stream_thread",
    "main_thread",
    "error_class",
    "exception",
    "window",
    "signals",
    "seen_by",
    "trigger",
    "sink",
    "committed_offsets",
    "checkpoint",
    "query_id",
    "run_id",
)
REPEATED = frozenset(
    {"error_class", "exception", "error_message", "table", "batch_in_flight", "queries", "drivers"}
)
"""Evidence that a headline or a reason may already contain."""
_RANKS = {name: rank for rank, name in enumerate(FIRST)} | {
    name: 1000 + rank for rank, name in enumerate(LAST)
}
_BETWEEN = 500


def ordered(evidence: Mapping[str, str]) -> dict[str, str]:
    """The evidence, the most useful first."""
    return {name: evidence[name] for name in sorted(evidence, key=_rank)}


def details(alert: Alert) -> dict[str, str]:
    """What the headline does not say; for a resolved alert, what it was about."""
    known = alert.annotations
    if alert.ends_at is not None:
        was = known.get("summary", "")
        return {"was": was} if was else {}
    return _not_shown(summary_of(alert), known.get("reason", ""), known)


def members(incident: Incident) -> list[Alert]:
    """The firing alerts of a group; none if the headline names all of them with their reasons."""
    headline = headline_of(incident)
    named = set(queries(incident)[:MAX_NAMES])
    firing = [alert for alert in incident.alerts if alert.ends_at is None]
    said = all(
        alert.labels["query"] in named and says(headline, alert.annotations.get("reason", ""))
        for alert in firing
    )
    return [] if said else firing


def next_steps(incident: Incident) -> str:
    """The next steps of the firing alerts, which share their name; empty if there are none."""
    steps = (a.annotations.get(NEXT_STEPS, "") for a in incident.alerts if a.ends_at is None)
    return next(steps, "")


def description(headline: str, reason: str, evidence: Mapping[str, str]) -> str:
    """The details as one text, line by line, without those that only an investigation needs."""
    facts = _not_shown(headline, reason, evidence)
    return _text({name: text for name, text in facts.items() if name not in LAST}) or reason


def shown_annotations(alert: Alert) -> dict[str, str]:
    """The annotations for receivers of whole alerts; a resolved one says that it ended."""
    if alert.ends_at is None:
        return alert.annotations
    words = {"summary": summary_of(alert), "description": _text(details(alert))}
    return {**alert.annotations, **words}


def links(alert: Alert, external_url: str = "") -> dict[str, str]:
    """The links, that of the status page last: the title of each, and its URL."""
    found = {text: alert.annotations.get(name, "") for name, text in LINKS.items()}
    return {text: url for text, url in {**found, STATUS_PAGE: external_url}.items() if url}


def _not_shown(headline: str, reason: str, annotations: Mapping[str, str]) -> dict[str, str]:
    """The reason if the headline does not contain it, and the evidence that neither contains."""
    shown = {} if not reason or says(headline, reason) else {"reason": reason}
    known = (headline, reason)
    evidence = {name: text for name, text in annotations.items() if name not in WORDS}
    return shown | {
        name: text
        for name, text in ordered(evidence).items()
        if name not in REPEATED or not any(text in one for one in known)
    }


def says(headline: str, reason: str) -> bool:
    """Whether the headline contains the reason, possibly in two pieces."""
    begin, _, rest = reason.partition(": ")
    if reason in headline or code_last(reason) in headline:
        return True
    return bool(rest) and begin in headline and (rest in headline or code_last(rest) in headline)


def _text(facts: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {text}" for name, text in facts.items())


def _rank(name: str) -> int:
    return _RANKS.get(name, _BETWEEN)
