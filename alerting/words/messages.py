"""The text of an alert below its headline: details, links, next steps; and alerts of findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from ...core.text import MAX_NAMES, duration, encodable, listed
from ...listener.state.identity import RESERVED
from .. import facts
from ..alert import FLAP_WINDOW_SECONDS, FLAPS, Alert, Incident
from ..finding import Finding, Words
from .evidence import DRIVER_ENDS, DRIVER_MEMORY, evidence_texts
from .headlines import (
    called,
    code_last,
    finding_headline,
    goes_on_text,
    headline_of,
    outcome_text,
    queries,
    summary_of,
)
from .next_steps import NAMED_BY_STEPS, NEXT_STEPS, has_restart
from .reasons import code_of, reason_of

# -- details ----------------------------------------------------------------------------------
# The details of an alert below its headline: each fact once, the most useful first.

INCIDENT_URL = "incident_url"
LINKS = {
    "runbook_url": "Runbook",
    "dashboard_url": "Dashboard",
    "spark_ui_url": "Spark UI",
    INCIDENT_URL: "Incident",
}
"""Annotations that are links, with their titles; each receiver shows them in its own form."""
STATUS_PAGE = "Status page"
MAX_LINES = 20
"""The most alerts that a message lists below its headline."""
INCIDENT = "incident"
"""The annotation of an alert in the incident of another subject: which, such as ``*``."""
RECORDING = "recording"
"""The annotation that names the file in which the incident is recorded."""
MUTED = "muted"
"""The annotation that says why nobody is notified of an alert."""
CAUGHT_UP = "caught_up"
"""The annotation that says when the query has read all that has arrived."""
HERE = "\nTo restart it here: "
"""Between the next steps and the hint how such a query is restarted."""
REASON = "reason"
WORDS = ("summary", "description", REASON, INCIDENT, *LINKS)
"""Annotations that are not evidence."""
WHERE = "where"
RESTARTED_BY = "restarted_by"
FIRST = (
    # What to do comes before an error, whose length nobody knows: chats cut what is long.
    NEXT_STEPS,
    DRIVER_ENDS,
    RESTARTED_BY,
    WHERE,
    REASON,
    "likely_cause",
    "python_line",
    "error_message",
    "traceback",
    "queries",
    "retention",
    "not_read",
    "connect_session",
    "deaths",
    DRIVER_MEMORY,
    "downstream",
    "upstream",
    "table",
    "on_restart",
    "critical_after",
    "batch_in_flight",
    "batch_rows",
    "batch_ids",
    "last_commit",
    "tasks",
    "slots",
    "other_jobs",
    "spark_says",
    CAUGHT_UP,
    "lag",
    "backlog",
    "all_queries",
    "flapping",
    MUTED,
    "stream_thread",
    "main_thread",
    "checkpoint",
)
"""Evidence shown first; names neither here nor in ``LAST`` are shown in between."""
LAST = (
    "sources_unread",
    "commit_log",
    "error_class",
    "exception",
    "time_allowed",
    "signals",
    "trigger",
    "sink",
    "committed_offsets",
    "query_id",
    "run_id",
)
OF_GROUPS = frozenset({NEXT_STEPS, *NAMED_BY_STEPS, DRIVER_ENDS, RESTARTED_BY, WHERE})
"""Evidence that the message of a group shows."""
REPEATED = frozenset(
    {"error_class", "exception", "error_message", "table", "batch_in_flight", "queries", "drivers"}
)
"""Evidence that a headline or a reason may already contain."""
_RANKS = {name: rank for rank, name in enumerate(FIRST)} | {
    name: 1000 + rank for rank, name in enumerate(LAST)
}
_BETWEEN = 500
LONG_REASON = 300
"""Characters. A longer reason, such as that of an exception, comes after the next steps."""


def ordered(evidence: Mapping[str, str]) -> dict[str, str]:
    """The evidence, the most useful first."""
    return dict(sorted(evidence.items(), key=lambda fact: _RANKS.get(fact[0], _BETWEEN)))


def annotations_of(alert: Alert) -> dict[str, str]:
    """The words of its finding, and what is said of the alert itself."""
    words = dict(alert.annotations)
    notes = {INCIDENT: alert.incident, "flapping": _held_open(alert), MUTED: alert.muted}
    end = alert.end or alert.later_end
    if end is not None:
        notes["outcome"] = outcome_text(alert.name, end.outcome) if end.outcome else ""
        notes["superseded_by"] = goes_on_text(end)
        # What was expected while it was open is out of date.
        words.pop(CAUGHT_UP, None)
        notes[CAUGHT_UP] = end.caught_up
    if alert.late_seconds:
        notes["delivery_delay_seconds"] = f"{alert.late_seconds:.0f}"
    return words | {name: text for name, text in notes.items() if text}


def _held_open(alert: Alert) -> str:
    if not alert.calm_seconds:
        return ""
    return (
        f"it has fired {FLAPS} times within {duration(FLAP_WINDOW_SECONDS)}: "
        f"held open until {duration(alert.calm_seconds)} of calm"
    )


def details(alert: Alert) -> dict[str, str]:
    """What the headline does not say; for a resolved alert, what it was about."""
    notes = alert.annotations
    if alert.ends_at is not None:
        caught_up = "" if alert.end is None else alert.end.caught_up
        shown = {"was": notes.get("summary", ""), CAUGHT_UP: caught_up}
        return {name: text for name, text in shown.items() if text}
    reason = notes.get("reason", "")
    return _not_shown(summary_of(alert), reason, alert.code, annotations_of(alert))


def incident_details(incident: Incident) -> dict[str, str]:
    """What its headline does not say: the details of its first alert, or what a group shares.

    Of a group: the next steps of its first alert, what they name, and where the driver is.
    """
    if len(queries(incident)) == 1:
        return details(incident.alerts[0])
    if not incident.firing:
        return {}
    first = incident.firing[0]
    names = [name for name in ordered(first.annotations) if name in OF_GROUPS]
    return {name: _of_group(name, incident.firing) for name in names}


def _of_group(name: str, alerts: Sequence[Alert]) -> str:
    """The text that all share, else that of the first with its query's name."""
    if name == NEXT_STEPS:
        return _steps_of_group(alerts)
    text = alerts[0].annotations[name]
    is_shared = all(alert.annotations.get(name) == text for alert in alerts)
    return text if is_shared else f"{called(alerts[0].query)}: {text}"


def _steps_of_group(alerts: Sequence[Alert]) -> str:
    """The next steps of the first; where its queries are restarted differently, how each is."""
    text = alerts[0].annotations[NEXT_STEPS]
    steps, _, own = text.partition(HERE)
    if not own:
        return text
    by_hint: dict[str, list[str]] = {}
    for alert in alerts:
        hint = alert.annotations.get(NEXT_STEPS, "").partition(HERE)[2]
        if hint:
            by_hint.setdefault(hint, []).append(called(alert.query))
    if len(by_hint) == 1:
        return text
    lines = [f"To restart {listed(names)} here: {hint}" for hint, names in by_hint.items()]
    return "\n".join([steps, *lines[:MAX_LINES]])


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
        and says_reason(headline, alert)
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


def description(headline: str, reason: str, code: str, evidence: Mapping[str, str]) -> str:
    """The details as one text, line by line, without those that only an investigation needs."""
    texts = _not_shown(headline, reason, code, evidence)
    return as_lines({name: text for name, text in texts.items() if name not in LAST}) or reason


def shown_annotations(alert: Alert) -> dict[str, str]:
    """The annotations for receivers of whole alerts; a resolved one says that it ended."""
    annotations = annotations_of(alert)
    if alert.ends_at is None:
        return annotations
    words = {"summary": summary_of(alert), "description": as_lines(details(alert))}
    return {**annotations, **words}


def links(alert: Alert, external_url: str = "") -> dict[str, str]:
    """The links, that of the status page last: the title of each, and its URL."""
    urls = {title: alert.annotations.get(name, "") for name, title in LINKS.items()}
    return {title: url for title, url in {**urls, STATUS_PAGE: external_url}.items() if url}


def _not_shown(
    headline: str, reason: str, code: str, annotations: Mapping[str, str]
) -> dict[str, str]:
    """The reason if the headline does not contain it, and the evidence that neither contains."""
    shown = {} if not reason or contains(headline, reason, code) else {REASON: reason}
    evidence = {
        name: text
        for name, text in annotations.items()
        if name not in WORDS and not (name in REPEATED and (text in headline or text in reason))
    }
    if len(reason) > LONG_REASON:
        return ordered(shown | evidence)
    return shown | ordered(evidence)


def says_reason(headline: str, alert: Alert) -> bool:
    """Whether the headline contains the reason, so that a message need not repeat it."""
    return contains(headline, alert.annotations.get("reason", ""), alert.code)


def contains(headline: str, reason: str, code: str) -> bool:
    """Whether the headline contains the reason, possibly in two pieces."""
    if reason in headline or code_last(reason, code) in headline:
        return True
    begin, _, rest = reason.partition(": ")
    has_rest = bool(rest) and (rest in headline or code_last(rest, code) in headline)
    return has_rest and begin in headline


def as_lines(details: Mapping[str, str]) -> str:
    """The details, line by line."""
    return "\n".join(f"{name}: {text}" for name, text in details.items())


# -- from a finding to an alert ---------------------------------------------------------------

ALL = "*"
"""The name pattern of the hint that holds for the whole job."""
ALL_QUERIES = "$__all"
"""The query in a dashboard URL if an alert is about several queries: Grafana's value for all."""


class Guidance(msgspec.Struct, frozen=True):
    """Links and steps for all alerts of one driver; empty ones are left out.

    ``runbook_url`` holds ``{alertname}``; ``dashboard_url`` may hold ``{app}`` and ``{query}``.
    ``next_steps`` are short lines by alert name, of kinds that have one code. ``restart_hints`` say
    how to restart a query, by name pattern; the last one that matches counts. ``place`` is where
    the driver runs, ``restarted_by`` who starts it again; empty if that is not known.
    ``recordings`` is the folder in which incidents are recorded, ``external_url`` where their
    timelines are shown; empty without one.
    """

    runbook_url: str
    dashboard_url: str = ""
    spark_ui_url: str = ""
    next_steps: Mapping[str, str] = {}
    restart_hints: tuple[tuple[str, str], ...] = ()
    place: str = ""
    restarted_by: str = ""
    recordings: str = ""
    external_url: str = ""

    def redacted(self, redact: Callable[[str], str]) -> Guidance:
        """The same without secrets in what people have written."""
        hints = tuple((pattern, redact(hint)) for pattern, hint in self.restart_hints)
        return replace(self, restart_hints=hints)

    def steps(self, finding: Finding, own: str) -> str:
        """The next steps of a finding, which may have its ``own``, and how to restart here."""
        steps = own or self.next_steps.get(finding.alertname, "")
        hint = self._restart_hint(finding.query)
        return f"{steps}{HERE}{hint}" if hint and has_restart(steps) else steps

    def _restart_hint(self, query: str) -> str:
        """The hint for a query; that of the job, ``*``, for the whole driver."""
        matches = [
            hint
            for pattern, hint in self.restart_hints
            if pattern == ALL or (query not in RESERVED and fnmatchcase(query, pattern))
        ]
        return matches[-1] if matches else ""

    def whereabouts(self, *, is_ending: bool) -> dict[str, str]:
        """Where the driver runs and, if it ends, who starts it again; without empty ones."""
        texts = {WHERE: self.place, RESTARTED_BY: self.restarted_by if is_ending else ""}
        return {name: text for name, text in texts.items() if text}

    def recorded(self, alerts: Iterable[Alert], recording: str) -> tuple[Alert, ...]:
        """The alerts of one incident with the file and the link that lead to its recording."""
        texts = {}
        if not (self.recordings or self.external_url):
            return tuple(alerts)
        if self.recordings:
            texts[RECORDING] = f"{self.recordings}/{recording}.jsonl"
        more = "".join(f"\n{name}: {text}" for name, text in texts.items())
        if self.external_url:
            texts[INCIDENT_URL] = f"{self.external_url}/incidents/{recording}.html"
        return (
            tuple(_with_texts(alert, texts, more) for alert in alerts) if texts else tuple(alerts)
        )

    def links(self, alertname: str, app: str, query: str) -> dict[str, str]:
        """The annotations that are links."""
        names = {"app": app, "query": ALL_QUERIES if query in RESERVED else query}
        urls = {
            "runbook_url": _filled(self.runbook_url, {"alertname": alertname}),
            "dashboard_url": _filled(self.dashboard_url, names),
            "spark_ui_url": self.spark_ui_url,
        }
        return {name: url for name, url in urls.items() if url}


def _with_texts(alert: Alert, texts: Mapping[str, str], more: str) -> Alert:
    """The alert with more annotations, and with more in its description."""
    before = alert.annotations
    description = f"{before.get('description', '')}{more}"
    return replace(alert, annotations={**before, "description": description, **texts})


def ends_driver(finding: Finding) -> bool:
    """Whether the driver has ended, or ends because of this."""
    found = finding.facts
    return finding.evidence.ends_driver or isinstance(found, (facts.JvmEnded, facts.ProgramEnded))


def _filled(template: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        template = template.replace(f"{{{name}}}", quote(value, safe="$", errors="replace"))
    return template


def say(finding: Finding) -> Words:
    """Return what a finding says."""
    return Words(
        reason_of(finding.facts),
        finding_headline(finding.query, finding.alertname, finding.facts),
        evidence_texts(finding.facts, finding.evidence),
    )


def labels_of(finding: Finding, app: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of the alert of a finding; ``labels`` are those of the settings."""
    return {
        "alertname": finding.alertname,
        "app": app,
        "query": finding.query,
        "severity": finding.severity.value,
        **labels,
    }


def alert_of(
    finding: Finding,
    app: str,
    guidance: Guidance,
    wall: float,
    *,
    labels: Mapping[str, str] | None = None,
) -> Alert:
    """Return the alert of a finding; it begins at Unix time ``wall``.

    ``labels`` are those of the settings.
    """
    words = finding.words or say(finding)
    code = code_of(finding.facts).value
    summary = f"[{app}] {words.summary}"
    steps = guidance.steps(finding, words.evidence.get(NEXT_STEPS, ""))
    texts = words.evidence | ({NEXT_STEPS: steps} if steps else {})
    is_ending = ends_driver(finding)
    evidence = ordered(texts | guidance.whereabouts(is_ending=is_ending))
    links = guidance.links(finding.alertname, app, finding.query)
    if is_ending:
        # Nothing answers there any more when somebody reads this.
        links.pop("spark_ui_url", None)
    annotations = {
        "summary": summary,
        "description": description(summary, words.reason, code, evidence),
        "reason": words.reason,
        **links,
        **evidence,
    }
    return Alert(
        labels=labels_of(finding, app, labels or {}),
        # A path of the job may not be valid text, which no JSON can hold.
        annotations={name: encodable(text) for name, text in annotations.items()},
        starts_at=wall,
        code=code,
        outage=finding.outage,
    )
