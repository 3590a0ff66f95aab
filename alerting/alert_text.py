"""The text of an alert: headline, details, links and next steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from ..core.text import MAX_NAMES, duration, encodable, listed
from ..listener.state.identity import RESERVED, UNNAMED
from .finding import (
    OF_QUERIES,
    QUERY_FAILED,
    QUERY_GIVEN_UP,
    QUERY_MISSING,
    QUERY_STALLED,
    QUERY_STOPPED,
    WHOLE_DRIVER,
    Finding,
    code_last,
)
from .incidents.alert import FIRING, INCIDENT, RESOLVED, Alert, Incident

# -- headline ---------------------------------------------------------------------------------
# ``[orders] billing failed: ValueError: negative amount`` while it fires, and
# ``Resolved: [orders] billing commits again after 4 min`` when it has ended.

MAX_CAUSE_CHARACTERS = 200
_OF_DRIVER = {
    "StreamingDriverDown": "driver is up again",
    "QuerypulseEventsMissing": "querypulse receives Spark's events again",
    "QuerypulseMonitoringDegraded": "querypulse sees every query again",
}
COMMITS = ("commits again", "commit again")
HEALTHY = ("is healthy again", "are healthy again")
IDLE = ("is healthy again and idle", "are healthy again and idle")
STOPPED = ("was stopped", "were stopped")
COMPLETED = ("has completed", "have completed")
UNWATCHED = ("is no longer watched", "are no longer watched")
_PLURALS = dict([COMMITS, HEALTHY, IDLE, STOPPED, COMPLETED, UNWATCHED])
_WITHOUT_COMMITS = frozenset(
    {QUERY_FAILED, QUERY_GIVEN_UP, QUERY_STOPPED, QUERY_MISSING, QUERY_STALLED}
)
"""Alerts of queries that commit nothing; those of others say that they are healthy again."""


def recovered(alertname: str, *, of_one_query: bool = True) -> str:
    """The outcome for a query that commits again; for several queries, that they are healthy."""
    if alertname in _OF_DRIVER:
        return _OF_DRIVER[alertname]
    return COMMITS[0] if of_one_query and alertname in _WITHOUT_COMMITS else HEALTHY[0]


def summary_of(alert: Alert) -> str:
    """The headline of one alert: what is wrong now, or how it ended and how long it fired.

    The annotation ``superseded_by`` says how it ended, or ``outcome``: what its query does now.
    """
    if alert.ends_at is not None:
        return _resolved([alert])
    return alert.annotations.get("summary") or (
        f"[{alert.labels['app']}] {_subject([alert])}: {alert.name}"
    )


def headline_of(incident: Incident) -> str:
    """The headline of an incident, firing or resolved: one line, even for several alerts.

    It is that of its first alert, or of all queries that have an alert of this name.
    """
    alerts = incident.alerts
    names = queries(incident)
    if incident.ends_at is not None:
        return _resolved(alerts) + (f" ({listed(names)})" if len(names) > 1 else "")
    first = alerts[0]
    if len(names) == 1:
        return summary_of(first)
    group = _by_query(alert for alert in alerts if alert.name == first.name)
    does = OF_QUERIES[first.name].do if first.name in OF_QUERIES else f"have {first.name}"
    text = f"[{first.labels['app']}] {_subject(group)} {does}"
    cause = _common_cause(group)
    text += f": {cause}" if cause else ""
    text += f" ({listed(names)})"
    ended = [alert.query for alert in group if alert.ends_at is not None]
    return f"{text}; recovered: {listed(ended)}" if ended else text


def several_do(alertname: str, cause: str, names: Sequence[str]) -> str:
    """The summary of one finding about all queries that share a cause."""
    if len(names) == 1:
        return f"{names[0]}: {cause}"
    return f"{len(names)} queries {OF_QUERIES[alertname].do}: {cause} ({listed(names)})"


def called(query: str) -> str:
    """A readable name for the value of the label ``query``."""
    return {WHOLE_DRIVER: "all queries", UNNAMED: "queries without a name"}.get(query, query)


def status(incident: Incident | Alert) -> str:
    """``firing`` or ``resolved``."""
    return FIRING if incident.ends_at is None else RESOLVED


def queries(incident: Incident) -> list[str]:
    """The names of the queries that its headline is about, in the order of their alerts."""
    alerts = incident.alerts
    if incident.ends_at is None:
        alerts = tuple(alert for alert in alerts if alert.name == alerts[0].name)
    return list(dict.fromkeys(alert.query for alert in alerts))


def cut(text: str) -> str:
    """The first line of a cause, cut to the length that a headline allows."""
    line = text.partition("\n")[0]
    is_short = len(line) <= MAX_CAUSE_CHARACTERS
    return line if is_short else line[: MAX_CAUSE_CHARACTERS - 1].rstrip() + "…"


def _resolved(alerts: Sequence[Alert]) -> str:
    """How alerts ended: what their queries do now, each query once, by its last alert."""
    ends = max(alert.ends_at or alert.starts_at for alert in alerts)
    lasted = ends - min(alert.starts_at for alert in alerts)
    app, after = f"[{alerts[0].labels['app']}]", f"after {duration(lasted)}" if lasted else ""
    last = _by_query(sorted(alerts, key=lambda alert: alert.ends_at or 0.0, reverse=True))
    by = {alert.annotations.get("superseded_by", "") for alert in last}
    subject = _subject(last)
    if "" not in by:
        return f"Replaced by {min(by)}: {app} {subject} {after}".rstrip()
    outcomes = {_outcome(alert) for alert in last}
    if outcomes.isdisjoint(_PLURALS) and last[0].query == WHOLE_DRIVER:
        return f"Resolved: {app} {outcomes.pop()} {after}".rstrip()
    if len(outcomes) > 1 or by != {""}:
        return f"Resolved: {app} {last[0].name} of {subject} is over {after}".rstrip()
    (outcome,) = outcomes
    is_one = len(last) == 1 and last[0].query not in RESERVED
    does = outcome if is_one else _PLURALS.get(outcome, outcome)
    return f"Resolved: {app} {subject} {does} {after}".rstrip()


def _by_query(alerts: Iterable[Alert]) -> list[Alert]:
    """The first alert of each query."""
    first: dict[str, Alert] = {}
    for alert in alerts:
        first.setdefault(alert.query, alert)
    return list(first.values())


def _outcome(alert: Alert) -> str:
    is_one = alert.labels["query"] not in RESERVED
    return alert.annotations.get("outcome") or recovered(alert.name, of_one_query=is_one)


def _subject(alerts: Sequence[Alert]) -> str:
    if len(alerts) > 1:
        return f"{len(alerts)} queries"
    return called(alerts[0].labels["query"])


def _common_cause(alerts: Sequence[Alert]) -> str:
    """The reason that all firing alerts share, or else the beginning that all reasons share."""
    reasons = {alert.annotations.get("reason", "") for alert in alerts if alert.ends_at is None}
    if len(reasons) == 1:
        return cut(code_last(reasons.pop()))
    begins = {reason.partition(": ")[0] for reason in reasons if ": " in reason}
    whole = len(begins) == 1 and all(": " in reason for reason in reasons)
    return cut(begins.pop()) if whole else ""


# -- details ----------------------------------------------------------------------------------
# The details of an alert below its headline: each fact once, the most useful first.

LINKS = {"runbook_url": "Runbook", "dashboard_url": "Dashboard", "spark_ui_url": "Spark UI"}
"""Annotations that are links, with their titles; each receiver shows them in its own form."""
STATUS_PAGE = "Status page"
MAX_LINES = 20
"""The most alerts that a message lists below its headline."""
NEXT_STEPS = "next_steps"
"""Three lines, the same for all alerts with one name."""
WORDS = ("summary", "description", "reason", INCIDENT, *LINKS)
"""Annotations that are not evidence."""
FIRST = (
    "error_message",
    "python_line",
    "traceback",
    "queries",
    "retention",
    "not_read",
    "deaths",
    "downstream",
    "upstream",
    NEXT_STEPS,
    "table",
    "on_restart",
    "critical_after",
    "batch_in_flight",
    "batch_ids",
    "last_commit",
    "tasks",
    "slots",
    "other_jobs",
    "spark_says",
    "lag",
    "backlog",
    "all_queries",
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
    return dict(sorted(evidence.items(), key=lambda fact: _RANKS.get(fact[0], _BETWEEN)))


def details(alert: Alert) -> dict[str, str]:
    """What the headline does not say; for a resolved alert, what it was about."""
    notes = alert.annotations
    if alert.ends_at is not None:
        return {"was": notes["summary"]} if notes.get("summary") else {}
    return _not_shown(summary_of(alert), notes.get("reason", ""), notes)


def facts(incident: Incident) -> dict[str, str]:
    """What its headline does not say: the details of its first alert, or a group's next steps."""
    if len(queries(incident)) == 1:
        return details(incident.alerts[0])
    steps = (alert.annotations.get(NEXT_STEPS, "") for alert in incident.firing)
    text = next(steps, "")
    return {NEXT_STEPS: text} if text else {}


def others(incident: Incident) -> dict[str, str]:
    """The reasons of the open alerts that its headline does not name, by what they are called."""
    firing = incident.firing
    if not firing:
        return {}
    lines = [
        (name, alert.annotations.get("reason", "")) for name, alert in by_difference(firing).items()
    ]
    headline, names = headline_of(incident), queries(incident)
    if len(names) == 1:
        del lines[0]
    elif all(
        alert.name == firing[0].name
        and alert.query in names[:MAX_NAMES]
        and says(headline, alert.annotations.get("reason", ""))
        for alert in firing
    ):
        return {}
    more = {f"and {len(lines) - MAX_LINES} more": ""} if len(lines) > MAX_LINES else {}
    return dict(lines[:MAX_LINES]) | more


def by_difference(alerts: Sequence[Alert]) -> dict[str, Alert]:
    """Alerts by what distinguishes them: their names, their queries, or both."""
    by_name: dict[str, Alert] = {}
    has_one_query = len({alert.query for alert in alerts}) == 1
    has_one_name = len({alert.name for alert in alerts}) == 1
    for alert in alerts:
        query = called(alert.query)
        other = query if has_one_name else f"{alert.name} of {query}"
        by_name.setdefault(alert.name if has_one_query else other, alert)
    return by_name


def line(name: str, reason: str) -> str:
    """One of the ``others``."""
    return f"{name}: {reason}" if reason else name


def more_labels(incident: Incident) -> dict[str, str]:
    """The labels of the settings."""
    return {name: value for name, value in incident.labels.items() if name not in {"app", "query"}}


def description(headline: str, reason: str, evidence: Mapping[str, str]) -> str:
    """The details as one text, line by line, without those that only an investigation needs."""
    facts = _not_shown(headline, reason, evidence)
    return as_lines({name: text for name, text in facts.items() if name not in LAST}) or reason


def shown_annotations(alert: Alert) -> dict[str, str]:
    """The annotations for receivers of whole alerts; a resolved one says that it ended."""
    if alert.ends_at is None:
        return alert.annotations
    words = {"summary": summary_of(alert), "description": as_lines(details(alert))}
    return {**alert.annotations, **words}


def links(alert: Alert, external_url: str = "") -> dict[str, str]:
    """The links, that of the status page last: the title of each, and its URL."""
    urls = {title: alert.annotations.get(name, "") for name, title in LINKS.items()}
    return {title: url for title, url in {**urls, STATUS_PAGE: external_url}.items() if url}


def _not_shown(headline: str, reason: str, annotations: Mapping[str, str]) -> dict[str, str]:
    """The reason if the headline does not contain it, and the evidence that neither contains."""
    shown = {} if not reason or says(headline, reason) else {"reason": reason}
    return shown | {
        name: text
        for name, text in ordered(annotations).items()
        if name not in WORDS and not (name in REPEATED and (text in headline or text in reason))
    }


def says(headline: str, reason: str) -> bool:
    """Whether the headline contains the reason, possibly in two pieces."""
    begin, _, rest = reason.partition(": ")
    if reason in headline or code_last(reason) in headline:
        return True
    return bool(rest) and begin in headline and (rest in headline or code_last(rest) in headline)


def as_lines(facts: Mapping[str, str]) -> str:
    """The facts, line by line."""
    return "\n".join(f"{name}: {text}" for name, text in facts.items())


# -- from a finding to an alert ---------------------------------------------------------------

ALL_QUERIES = "$__all"
"""The query in a dashboard URL if an alert is about several queries: Grafana's value for all."""


class Guidance(msgspec.Struct, frozen=True):
    """Links and steps for all alerts of one driver; empty ones are left out.

    ``runbook_url`` holds ``{alertname}``; ``dashboard_url`` may hold ``{app}`` and ``{query}``.
    ``next_steps`` are short lines by alert name.
    """

    runbook_url: str
    dashboard_url: str = ""
    spark_ui_url: str = ""
    next_steps: Mapping[str, str] = {}

    def links(self, alertname: str, app: str, query: str) -> dict[str, str]:
        """The annotations that are links."""
        names = {"app": app, "query": ALL_QUERIES if query in RESERVED else query}
        urls = {
            "runbook_url": _filled(self.runbook_url, {"alertname": alertname}),
            "dashboard_url": _filled(self.dashboard_url, names),
            "spark_ui_url": self.spark_ui_url,
        }
        return {name: url for name, url in urls.items() if url}


def _filled(template: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        template = template.replace(f"{{{name}}}", quote(value, safe="$", errors="replace"))
    return template


def alert_of(
    finding: Finding,
    app: str,
    guidance: Guidance,
    wall: float,
    labels: Mapping[str, str] | None = None,
) -> Alert:
    """The alert of a finding; it begins at Unix time ``wall``, with ``labels`` of the settings."""
    summary = f"[{app}] {finding.summary}"
    steps = guidance.next_steps.get(finding.alertname, "")
    evidence = ordered(({NEXT_STEPS: steps} if steps else {}) | finding.evidence)
    annotations = {
        "summary": summary,
        "description": description(summary, finding.reason, evidence),
        "reason": finding.reason,
        **guidance.links(finding.alertname, app, finding.query),
        **evidence,
    }
    return Alert(
        labels={
            "alertname": finding.alertname,
            "app": app,
            "query": finding.query,
            "severity": finding.severity.value,
            **(labels or {}),
        },
        # A path of the job may not be valid text, which no JSON can hold.
        annotations={name: encodable(text) for name, text in annotations.items()},
        starts_at=wall,
    )
