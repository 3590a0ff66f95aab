"""Headlines: who does what, and why; of a finding, an alert, an incident."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch

from ...core.text import MAX_NAMES, duration, listed
from ...listener.state.identity import RESERVED, UNNAMED
from .. import facts
from ..alert import (
    FIRING,
    RESOLVED,
    Alert,
    AlertOutcome,
    End,
    GoesOn,
    Incident,
    recovered,
)
from ..facts import Facts
from ..finding import WHOLE_DRIVER
from ..kinds import SHOWN_CODES, kind_of
from .reasons import cause_of, count_unnamed, text_of, who_waits, with_addition

# -- of a finding -----------------------------------------------------------------------------


def finding_headline(subject: str, alertname: str, found: Facts) -> str:
    """Return what the subject does, and why; a code goes to the end."""
    if isinstance(found, facts.Reported):
        return found.summary
    if isinstance(found, facts.ProgramEnded):
        return text_of(found)
    if isinstance(found, facts.ShareCause):
        return _several_do(alertname, found)
    if isinstance(found, facts.Unnamed):
        newest = found.newest
        return count_unnamed(found) + finding_headline(newest.query, alertname, newest.facts)
    kind = kind_of(alertname)
    verb = _verb(found)
    if kind.is_of_driver:
        does = f"driver {verb}" if verb else kind.does
    else:
        does = f"{subject} {verb or kind.does}"
    why = with_addition(found, _text(found))
    code = f" ({found.code.value})" if found.code in SHOWN_CODES else ""
    return f"{does}: {why}{code}{who_waits(found)}"


def _several_do(alertname: str, found: facts.ShareCause) -> str:
    names = sorted(member.query for member in found.members)
    cause = cause_of(found)
    if len(names) == 1:
        return f"{names[0]}: {cause}"
    do = kind_of(alertname).do
    return f"{len(names)} queries {do}: {cause} ({listed(names, MAX_NAMES)})"


def _text(found: Facts) -> str:
    if not isinstance(found, facts.Failed):
        return text_of(found)
    headline = found.failure.headline
    if found.expected_within is None:
        return headline
    why = "this error is expected" if found.is_expected_error else "the process ends"
    return f"{headline}; {why}, and a restart is expected within {duration(found.expected_within)}"


@singledispatch
def _verb(_: Facts) -> str:
    """What its subject does, where the facts say more than the kind of alert; else empty."""
    return ""


@_verb.register
def _not_completed(_: facts.NotCompleted) -> str:
    return "has not completed in time"


@_verb.register
def _attempt_lost(_: facts.AttemptLost) -> str:
    return "has died"


@_verb.register
def _open_transaction(_: facts.OpenTransaction) -> str:
    return "waits for a commit"


@_verb.register
def _slots_held(_: facts.SlotsHeld) -> str:
    return "keeps others from running"


@_verb.register
def _offsets_went_back(found: facts.OffsetsWentBack) -> str:
    return "" if found.has_gone_back else "may have written a batch twice"


@_verb.register
def _skipped_by_sink(_: facts.SkippedBySink) -> str:
    return "does not write what it reads"


@_verb.register
def _sink_remembers(_: facts.SinkRemembers) -> str:
    return "may not write what it reads"


@_verb.register
def _passed_over(found: facts.PassedOver) -> str:
    return "has lost data" if found.is_lost else "has skipped data"


@_verb.register
def _retention_used(found: facts.RetentionUsed) -> str:
    worst = found.risks[0]
    if worst.gone:
        return "cannot read on"
    return "has lost data" if worst.lost else ""


# -- of an alert or an incident ----------------------------------------------------------------
# ``[orders] billing failed: ValueError: negative amount`` while it fires, and
# ``Resolved: [orders] billing commits again after 4 min`` when it has ended.

MAX_CAUSE_CHARACTERS = 200
QUERY_OUTCOMES = {
    AlertOutcome.COMMITS: ("commits again", "commit again"),
    AlertOutcome.HEALTHY: ("is healthy again", "are healthy again"),
    AlertOutcome.IDLE: ("is healthy again and idle", "are healthy again and idle"),
    AlertOutcome.STOPPED: ("was stopped", "were stopped"),
    AlertOutcome.COMPLETED: ("has completed", "have completed"),
    AlertOutcome.UNWATCHED: ("is no longer watched", "are no longer watched"),
}
"""What one query, or several, do now."""
OTHER_OUTCOMES = {
    AlertOutcome.ANSWERS: "driver answers again",
    AlertOutcome.SHUT_DOWN: "driver was shut down gracefully",
    AlertOutcome.DOWN_AGAIN: "driver is down again, which is critical",
    AlertOutcome.FORGOTTEN: "driver was forgotten (--forget)",
    AlertOutcome.DRIVER_UNWATCHED: "driver is no longer watched",
    AlertOutcome.ACCEPTED: "every driver that answers accepts the watcher",
    AlertOutcome.TEST_OVER: "test alert of querypulse has ended",
}
GOES_ON = {
    GoesOn.CRITICAL_ALERT: "the critical alert",
    GoesOn.CRITICAL_INCIDENT: "the critical incident",
    GoesOn.WARNING: "the warning",
    GoesOn.ANOTHER_INCIDENT: "another incident",
}


def goes_on_text(end: End | None) -> str:
    """Where an alert goes on after its end in its incident; empty if nowhere."""
    return "" if end is None or end.goes_on is None else GOES_ON[end.goes_on]


def outcome_text(alertname: str, outcome: AlertOutcome, *, is_of_one: bool = True) -> str:
    """What the query of an alert, or several, or the driver, do now."""
    if outcome is AlertOutcome.RECOVERED:
        return kind_of(alertname).recovers
    if outcome not in QUERY_OUTCOMES:
        return OTHER_OUTCOMES[outcome]
    one, several = QUERY_OUTCOMES[outcome]
    return one if is_of_one else several


def summary_of(alert: Alert) -> str:
    """The headline of one alert: what is wrong now, or how it ended and how long it fired."""
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
    does = kind_of(first.name).do or f"have {first.name}"
    text = f"[{first.labels['app']}] {_subject(group)} {does}"
    cause = _common_cause(group)
    text += f": {cause}" if cause else ""
    text += f" ({listed(names)})"
    ended = [alert.query for alert in group if alert.ends_at is not None]
    return f"{text}; recovered: {listed(ended)}" if ended else text


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
    app = f"[{alerts[0].labels['app']}]"
    after = f"after {duration(lasted)}" if lasted else ""
    last = _by_query(sorted(alerts, key=lambda alert: alert.ends_at or 0.0, reverse=True))
    subject = _subject(last)
    successors = {goes_on_text(alert.end) for alert in last}
    if "" not in successors:
        return f"Replaced by {min(successors)}: {app} {subject} {after}".rstrip()
    outcomes = {_outcome(alert) for alert in last}
    if last[0].query == WHOLE_DRIVER and outcomes.isdisjoint(QUERY_OUTCOMES):
        text = outcome_text(last[0].name, _outcome(last[0]))
        return f"Resolved: {app} {text} {after}".rstrip()
    if len(outcomes) > 1 or successors != {""}:
        return f"Resolved: {app} {last[0].name} of {subject} is over {after}".rstrip()
    is_one = len(last) == 1 and last[0].query not in RESERVED
    does = outcome_text(last[0].name, _outcome(last[0]), is_of_one=is_one)
    return f"Resolved: {app} {subject} {does} {after}".rstrip()


def _by_query(alerts: Iterable[Alert]) -> list[Alert]:
    """The first alert of each query."""
    first: dict[str, Alert] = {}
    for alert in alerts:
        first.setdefault(alert.query, alert)
    return list(first.values())


def _outcome(alert: Alert) -> AlertOutcome:
    outcome = None if alert.end is None else alert.end.outcome
    return outcome or recovered(alert.name, of_one_query=alert.query not in RESERVED)


def _subject(alerts: Sequence[Alert]) -> str:
    if len(alerts) > 1:
        return f"{len(alerts)} queries"
    return called(alerts[0].labels["query"])


def code_last(reason: str, code: str) -> str:
    """Move the code to the end: ``batch_hung: no task done`` -> ``no task done (batch_hung)``."""
    begin = f"{code}: "
    return f"{reason.removeprefix(begin)} ({code})" if reason.startswith(begin) else reason


def _common_cause(alerts: Sequence[Alert]) -> str:
    """The reason that all firing alerts share, or else the beginning that all reasons share."""
    firing = [alert for alert in alerts if alert.ends_at is None]
    reasons = {alert.annotations.get("reason", "") for alert in firing}
    if len(reasons) == 1:
        return cut(code_last(reasons.pop(), firing[0].code))
    begins = {reason.partition(": ")[0] for reason in reasons if ": " in reason}
    whole = len(begins) == 1 and all(": " in reason for reason in reasons)
    return cut(begins.pop()) if whole else ""
