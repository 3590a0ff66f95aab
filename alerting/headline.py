"""The one line by which people know an alert or an incident: job, query and cause. Pure.

``[orders] billing failed: ValueError: negative amount`` while it fires, and when it is over
``Resolved: [orders] billing commits again after 4 min``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..listener.identity import RESERVED, UNNAMED
from .alert import Alert, Incident
from .finding import WHOLE_DRIVER, Finding

MAX_NAMED = 10
"""So many queries are named in a headline."""
MAX_CAUSE_CHARACTERS = 200


class _Words(msgspec.Struct, frozen=True):
    """What several queries do while an alert fires, and what one and several do once it is over."""

    several: str
    one_recovered: str
    all_recovered: str


_COMMITS = ("commits again", "commit again")
_WORDS = {
    "StreamingQueryFailed": _Words("failed", *_COMMITS),
    "StreamingQueryStopped": _Words("ended and are not back", *_COMMITS),
    "StreamingQueryMissing": _Words("are missing", "is there and commits", "are there and commit"),
    "StreamingQueryStalled": _Words("are stalled", *_COMMITS),
    "StreamingBatchSlow": _Words("are slow", "is no longer slow", "are no longer slow"),
    "StreamingOffsetsStalled": _Words("do not advance", "advances again", "advance again"),
    "StreamingOffsetsRewound": _Words(
        "went back", "no longer reads old offsets", "no longer read old offsets"
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
    """What is wrong, as long as it is."""
    return f"[{app}] {finding.summary}"


def recovered(alertname: str, *, of_one_query: bool = True) -> str:
    """What is said of a query that commits again; of more than one, that they are healthy."""
    if alertname in _OF_DRIVER:
        return _OF_DRIVER[alertname]
    words = _WORDS.get(alertname) if of_one_query else None
    return words.one_recovered if words is not None else HEALTHY[0]


def resolved_headline(alert: Alert) -> str:
    """How an alert that is over has ended, and how long it fired.

    Its annotations say how: ``superseded_by``, else ``outcome``, which is what its query does now.
    """
    return _resolved([alert])


def summary_of(alert: Alert) -> str:
    """The headline of one alert, firing or over."""
    if alert.ends_at is not None:
        return resolved_headline(alert)
    return alert.annotations.get("summary") or (
        f"[{alert.labels['app']}] {_subject([alert])}: {alert.name}"
    )


def headline_of(incident: Incident) -> str:
    """The headline of an incident, firing or over: of several alerts, one line for all."""
    alerts = incident.alerts
    if len(alerts) == 1:
        return summary_of(alerts[0])
    if incident.ends_at is not None:
        return f"{_resolved(alerts)} ({_named(queries(incident))})"
    words = _WORDS.get(incident.name)
    does = words.several if words is not None else f"have {incident.name}"
    text = f"[{alerts[0].labels['app']}] {_subject(alerts)} {does}"
    cause = _common_cause(alerts)
    text += f": {cause}" if cause else ""
    text += f" ({_named(queries(incident))})"
    recovered_ones = [one.labels["query"] for one in alerts if one.ends_at is not None]
    return f"{text}; recovered: {_named(recovered_ones)}" if recovered_ones else text


def several_do(alertname: str, cause: str, names: Sequence[str]) -> str:
    """The summary of a finding about all queries that share a cause."""
    if len(names) == 1:
        return f"{names[0]}: {cause}"
    return f"{len(names)} queries {_WORDS[alertname].several}: {cause} ({_named(names)})"


def code_last(reason: str) -> str:
    """``batch_hung: no task finished`` -> ``no task finished (batch_hung)``: words before codes."""
    code, colon, text = reason.partition(": ")
    is_code = bool(colon) and code.replace("_", "").isalpha() and code == code.lower()
    return f"{text} ({code})" if is_code and " " not in code else reason


def called(query: str) -> str:
    """How people call what the label ``query`` stands for."""
    return {WHOLE_DRIVER: "all queries", UNNAMED: "queries without a name"}.get(query, query)


def status(incident: Incident | Alert) -> str:
    """``firing`` or ``resolved``."""
    return "firing" if incident.ends_at is None else "resolved"


def queries(incident: Incident) -> list[str]:
    """The names of the queries, in the order in which they joined."""
    return [alert.labels["query"] for alert in incident.alerts]


def cut(text: str) -> str:
    """A cause in one line, as much of it as a headline takes."""
    line = text.partition("\n")[0]
    if len(line) <= MAX_CAUSE_CHARACTERS:
        return line
    return line[: MAX_CAUSE_CHARACTERS - 1].rstrip() + "…"


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``."""
    whole = max(0, round(seconds))
    if whole < 120:  # noqa: PLR2004 - two minutes
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


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


def _named(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    shown = ", ".join(names[:MAX_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


def _common_cause(alerts: Sequence[Alert]) -> str:
    """The reason, or what it begins with, where all that still fire give the same."""
    reasons = {one.annotations.get("reason", "") for one in alerts if one.ends_at is None}
    if len(reasons) == 1:
        return cut(code_last(reasons.pop()))
    begins = {reason.partition(": ")[0] for reason in reasons if ": " in reason}
    whole = len(begins) == 1 and all(": " in reason for reason in reasons)
    return cut(begins.pop()) if whole else ""
