"""The headline of an alert or an incident: job, query and cause in one line. Pure.

``[orders] billing failed: ValueError: negative amount`` while it fires, and
``Resolved: [orders] billing commits again after 4 min`` when it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..core.durations import duration
from ..core.listing import listed
from ..listener.labels import RESERVED, UNNAMED
from .alert import FIRING, RESOLVED, Alert, Incident
from .finding import WHOLE_DRIVER, Finding

MAX_CAUSE_CHARACTERS = 200


class _Words(msgspec.Struct, frozen=True):
    """Verbs: of several queries while an alert fires, of one and of several when it has ended."""

    several: str
    one_recovered: str
    all_recovered: str


_COMMITS = ("commits again", "commit again")
_WORDS = {
    "StreamingQueryFailed": _Words("failed", *_COMMITS),
    "StreamingQueryGivenUp": _Words("are not restarted any more", *_COMMITS),
    "StreamingQueryStopped": _Words("are not running", *_COMMITS),
    "StreamingQueryMissing": _Words("are missing", "is running and commits", "run and commit"),
    "StreamingQueryStalled": _Words("are stalled", *_COMMITS),
    "StreamingBatchSlow": _Words("are slow", "is no longer slow", "are no longer slow"),
    "StreamingOffsetsStalled": _Words("do not advance", "advances again", "advance again"),
    "StreamingOffsetsRewound": _Words(
        "have rewound offsets", "no longer reads old offsets", "no longer read old offsets"
    ),
    "StreamingQueryLagging": _Words(
        "fall behind", "no longer falls behind", "no longer fall behind"
    ),
    "StreamingInputMissing": _Words("get no data", "reads rows again", "read rows again"),
    "StreamingQueryFlapping": _Words("keep failing", "no longer fails", "no longer fail"),
    "StreamingWatermarkStuck": _Words(
        "have a stuck watermark", "advances its watermark again", "advance their watermarks again"
    ),
    "StreamingDataLossRisk": _Words(
        "may lose data", "is no longer about to lose data", "are no longer about to lose data"
    ),
}
_OF_DRIVER = {
    "StreamingDriverDown": "driver is up again",
    "QuerypulseEventsMissing": "querypulse receives Spark's events again",
    "QuerypulseMonitoringDegraded": "querypulse sees every query again",
}
HEALTHY = ("is healthy again", "are healthy again")
IDLE = ("is healthy again and idle", "are healthy again and idle")
STOPPED = ("was stopped", "were stopped")
COMPLETED = ("has completed", "have completed")
UNWATCHED = ("is no longer watched", "are no longer watched")
UNSEEN = ("was not seen for a day", "were not seen for a day")
_PLURALS = dict(
    [
        HEALTHY,
        IDLE,
        STOPPED,
        COMPLETED,
        UNWATCHED,
        UNSEEN,
        *((words.one_recovered, words.all_recovered) for words in _WORDS.values()),
    ]
)


def headline(finding: Finding, app: str) -> str:
    """The headline of a finding: what is wrong now."""
    return f"[{app}] {finding.summary}"


def recovered(alertname: str, *, of_one_query: bool = True) -> str:
    """The outcome for a query that commits again; for several queries, that they are healthy."""
    if alertname in _OF_DRIVER:
        return _OF_DRIVER[alertname]
    words = _WORDS.get(alertname) if of_one_query else None
    return words.one_recovered if words is not None else HEALTHY[0]


def resolved_headline(alert: Alert) -> str:
    """How an alert ended, and how long it fired.

    Its annotation ``superseded_by`` says how, or ``outcome``, which is what its query does now.
    """
    return _resolved([alert])


def summary_of(alert: Alert) -> str:
    """The headline of one alert, firing or resolved."""
    if alert.ends_at is not None:
        return resolved_headline(alert)
    return alert.annotations.get("summary") or (
        f"[{alert.labels['app']}] {_subject([alert])}: {alert.name}"
    )


def headline_of(incident: Incident) -> str:
    """The headline of an incident, firing or resolved: one line, even for several alerts."""
    alerts = incident.alerts
    if len(alerts) == 1:
        return summary_of(alerts[0])
    if incident.ends_at is not None:
        return f"{_resolved(alerts)} ({listed(queries(incident))})"
    words = _WORDS.get(incident.name)
    does = words.several if words is not None else f"have {incident.name}"
    text = f"[{alerts[0].labels['app']}] {_subject(alerts)} {does}"
    cause = _common_cause(alerts)
    text += f": {cause}" if cause else ""
    text += f" ({listed(queries(incident))})"
    ended = [one.labels["query"] for one in alerts if one.ends_at is not None]
    return f"{text}; recovered: {listed(ended)}" if ended else text


def several_do(alertname: str, cause: str, names: Sequence[str]) -> str:
    """The summary of one finding about all queries that share a cause."""
    if len(names) == 1:
        return f"{names[0]}: {cause}"
    return f"{len(names)} queries {_WORDS[alertname].several}: {cause} ({listed(names)})"


def code_last(reason: str) -> str:
    """Move a code to the end: ``batch_hung: no task done`` -> ``no task done (batch_hung)``."""
    code, colon, text = reason.partition(": ")
    is_code = bool(colon) and code.replace("_", "").isalpha() and code == code.lower()
    return f"{text} ({code})" if is_code and " " not in code else reason


def called(query: str) -> str:
    """A readable name for the value of the label ``query``."""
    return {WHOLE_DRIVER: "all queries", UNNAMED: "queries without a name"}.get(query, query)


def status(incident: Incident | Alert) -> str:
    """``firing`` or ``resolved``."""
    return FIRING if incident.ends_at is None else RESOLVED


def queries(incident: Incident) -> list[str]:
    """The names of the queries, in the order in which they joined."""
    return [alert.labels["query"] for alert in incident.alerts]


def cut(text: str) -> str:
    """The first line of a cause, cut to the length that a headline allows."""
    line = text.partition("\n")[0]
    if len(line) <= MAX_CAUSE_CHARACTERS:
        return line
    return line[: MAX_CAUSE_CHARACTERS - 1].rstrip() + "…"


def _resolved(alerts: Sequence[Alert]) -> str:
    first = alerts[0]
    lasted = max(one.ends_at or one.starts_at for one in alerts) - min(
        one.starts_at for one in alerts
    )
    app, after = f"[{first.labels['app']}]", f"after {duration(lasted)}" if lasted else ""
    by = {one.annotations.get("superseded_by", "") for one in alerts}
    if len(by) == 1 and "" not in by:
        return f"Replaced by {by.pop()}: {app} {_subject(alerts)} {after}".rstrip()
    outcomes = {_outcome(one) for one in alerts}
    if outcomes.isdisjoint(_PLURALS) and first.labels["query"] == WHOLE_DRIVER:
        return f"Resolved: {app} {outcomes.pop()} {after}".rstrip()
    if len(outcomes) > 1 or by != {""}:
        return f"Resolved: {app} {first.name} of {_subject(alerts)} is over {after}".rstrip()
    (outcome,) = outcomes
    is_one = len(alerts) == 1 and first.labels["query"] not in RESERVED
    does = outcome if is_one else _PLURALS.get(outcome, outcome)
    return f"Resolved: {app} {_subject(alerts)} {does} {after}".rstrip()


def _outcome(alert: Alert) -> str:
    is_one = alert.labels["query"] not in RESERVED
    return alert.annotations.get("outcome") or recovered(alert.name, of_one_query=is_one)


def _subject(alerts: Sequence[Alert]) -> str:
    if len(alerts) > 1:
        return f"{len(alerts)} queries"
    return called(alerts[0].labels["query"])


def _common_cause(alerts: Sequence[Alert]) -> str:
    """The reason that all firing alerts share, or else the beginning that all reasons share."""
    reasons = {one.annotations.get("reason", "") for one in alerts if one.ends_at is None}
    if len(reasons) == 1:
        return cut(code_last(reasons.pop()))
    begins = {reason.partition(": ")[0] for reason in reasons if ": " in reason}
    whole = len(begins) == 1 and all(": " in reason for reason in reasons)
    return cut(begins.pop()) if whole else ""
