"""What is shown of an alert below its headline: each fact once, the most useful first. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .alert import Alert
from .headline import code_last, summary_of

LINKS = {"runbook_url": "Runbook", "dashboard_url": "Dashboard", "spark_ui_url": "Spark UI"}
"""Annotations that lead somewhere; each receiver shows them in its own form, by these words."""
NEXT_STEPS = "next_steps"
"""Three lines, the same for all alerts of one name."""
WORDS = ("summary", "description", "reason", *LINKS)
"""Annotations that are no evidence."""
FIRST = (
    "error_message",
    "python_line",
    "traceback",
    "queries",
    "retention",
    "deaths",
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
"""What a person reads first; what is named neither here nor in ``LAST`` comes in between."""
LAST = (
    "sources_unread",
    "commit_log",
    "stream_thread",
    "main_thread",
    "error_class",
    "exception",
    "window",
    "witnesses",
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
"""Evidence that a headline or a reason may give already."""
_RANKS = {name: rank for rank, name in enumerate(FIRST)} | {
    name: 1000 + rank for rank, name in enumerate(LAST)
}
_BETWEEN = 500


def ordered(evidence: Mapping[str, str]) -> dict[str, str]:
    """The same evidence, the most useful first."""
    return {name: evidence[name] for name in sorted(evidence, key=_rank)}


def details(alert: Alert) -> dict[str, str]:
    """What a reader of the headline does not know yet; of an alert that is over, what it was."""
    known = alert.annotations
    if alert.ends_at is not None:
        was = known.get("summary", "")
        return {"was": was} if was else {}
    return _unsaid(summary_of(alert), known.get("reason", ""), known)


def description(headline: str, reason: str, evidence: Mapping[str, str]) -> str:
    """The same as one text, line by line, without what only an investigation needs."""
    facts = _unsaid(headline, reason, evidence)
    return _text({name: text for name, text in facts.items() if name not in LAST}) or reason


def shown_annotations(alert: Alert) -> dict[str, str]:
    """The annotations as receivers of whole alerts get them; once it is over they say so."""
    if alert.ends_at is None:
        return alert.annotations
    words = {"summary": summary_of(alert), "description": _text(details(alert))}
    return {**alert.annotations, **words}


def links(alert: Alert) -> dict[str, str]:
    """The links: the words of each, and its address."""
    return {text: url for name, text in LINKS.items() if (url := alert.annotations.get(name))}


def _unsaid(headline: str, reason: str, annotations: Mapping[str, str]) -> dict[str, str]:
    """The reason where the headline does not give it, and the evidence that neither gives."""
    shown = {} if not reason or says(headline, reason) else {"reason": reason}
    said = (headline, reason)
    evidence = {name: text for name, text in annotations.items() if name not in WORDS}
    return shown | {
        name: text
        for name, text in ordered(evidence).items()
        if name not in REPEATED or not any(text in one for one in said)
    }


def says(headline: str, reason: str) -> bool:
    """Whether the headline gives the reason, though it may have it in two pieces."""
    begin, _, rest = reason.partition(": ")
    if reason in headline or code_last(reason) in headline:
        return True
    return bool(rest) and begin in headline and (rest in headline or code_last(rest) in headline)


def _text(facts: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {text}" for name, text in facts.items())


def _rank(name: str) -> int:
    return _RANKS.get(name, _BETWEEN)
