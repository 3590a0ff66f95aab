"""What the lines of a recording show of its alerts, and of who was notified of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ..alerting.alert import CRITICAL, RESOLVED, Alert, AlertOutcome, GoesOn, Incident
from ..alerting.finding import WHOLE_DRIVER
from ..alerting.kinds import KINDS, Code, kind_of
from ..alerting.words.headlines import GOES_ON, QUERY_OUTCOMES, called, headline_of, outcome_text
from ..core.states import DeliveryOutcome
from ..core.text import exact_duration, listed, utc
from ..listener.state.identity import RESERVED
from .lines import (
    END_OF_TIME,
    AlertChanged,
    Begin,
    Change,
    Notification,
    Recording,
    Silenced,
)

_NUMBERS = re.compile(r"\d+(?:[.,]\d+)*(?: (?:s|min|h|d)\b)?")
_RANKS = {name: rank for rank, name in enumerate(KINDS)}


class AlertStory(msgspec.Struct):
    """One alert from its opening to its end; ``lines`` are its lines, the first one opens it."""

    alertname: str
    query: str
    since: float
    lines: list[AlertChanged]
    until: float | None = None
    """None where the recording shows no end of it."""

    @property
    def firing(self) -> list[AlertChanged]:
        """Its lines without that of its end."""
        return [line for line in self.lines if line.change is not Change.ENDED]

    @property
    def severity(self) -> str:
        """The highest that it had."""
        severities = {line.severity for line in self.lines}
        return CRITICAL if CRITICAL in severities else self.lines[-1].severity

    @property
    def reason(self) -> str:
        """Why, in the newest words; empty if it has none."""
        reasons = [line.annotations.get("reason", "") for line in self.firing]
        return next(filter(None, reversed(reasons)), "")

    @property
    def cause(self) -> str:
        """The error class or the code of its opening; empty where only words say it."""
        opening = self.lines[0]
        code = "" if opening.code == Code.REPORTED.value else opening.code
        return error_class_of(opening.facts) or code


def alert_stories(parts: Sequence[Recording]) -> list[AlertStory]:
    """Return all alerts in the order of their opening.

    A later process opens again what an earlier one left open: that is one alert.
    """
    stories: list[AlertStory] = []
    is_open: dict[tuple[str, str], AlertStory] = {}
    lines = ((part.begin, line) for part in parts for line in part.lines)
    for begin, line in lines:
        if not isinstance(line, AlertChanged):
            continue
        identity = (line.alertname, line.query)
        story = is_open.get(identity)
        if story is None:
            # Where its opening was left out, or is in a part that is not there, it is older.
            is_opening = line.change is Change.OPENED and not begin.continues
            since = line.at if is_opening else min(line.at, line.starts_at)
            story = is_open[identity] = AlertStory(*identity, since, [])
            stories.append(story)
        story.lines.append(line)
        if line.change is Change.ENDED:
            story.until = line.at
            del is_open[identity]
    return stories


def most_prominent(stories: Sequence[AlertStory]) -> AlertStory:
    """Return the critical one, else the most prominent kind, else the first."""
    return min(
        stories,
        key=lambda story: (
            story.severity != CRITICAL,
            _RANKS.get(story.alertname, len(_RANKS)),
            story.since,
        ),
    )


def headline(begin: Begin, stories: Sequence[AlertStory]) -> str:
    """Return what was wrong, in the newest words; of several queries, as their message said it."""
    first = most_prominent(stories)
    alike = {(story.alertname, story.query): story for story in stories if story is not first}
    members = [first, *(alike[identity] for identity in alike)]
    alerts = tuple(_alert(begin, story) for story in members)
    labels = {"app": begin.app, "query": begin.query}
    return headline_of(Incident("", labels, first.severity, alerts))


def _alert(begin: Begin, story: AlertStory) -> Alert:
    newest = story.firing[-1] if story.firing else story.lines[-1]
    labels = {
        "app": begin.app,
        "query": story.query,
        "alertname": story.alertname,
        "severity": newest.severity,
    }
    return Alert(labels, newest.annotations, newest.starts_at, code=newest.code, cause=newest.cause)


def error_class_of(found: Any) -> str:
    """Return the error class of facts, as JSON; of several queries, of the first; else empty."""
    if not isinstance(found, dict):
        return ""
    failure = found.get("failure")
    named = failure if isinstance(failure, dict) else found
    error_class = named.get("error_class")
    if isinstance(error_class, str):
        return error_class
    members = found.get("members")
    first = members[0] if isinstance(members, list) and members else found.get("newest")
    return error_class_of(first.get("facts")) if isinstance(first, dict) else ""


def queries_in(found: Any) -> Iterator[str]:
    """The queries that facts name, as JSON: members of a shared cause, queries without a name."""
    if not isinstance(found, dict):
        return
    for name in ("queries", "members", "newest", "others"):
        value = found.get(name)
        for entry in value if isinstance(value, list) else [value]:
            query = entry.get("query") if isinstance(entry, dict) else entry
            if isinstance(query, str):
                yield query


# -- words ------------------------------------------------------------------------------------


def alert_name(line: AlertChanged | AlertStory) -> str:
    """Return what an alert is called: its name, and its query unless it is of the driver."""
    is_of_driver = line.query == WHOLE_DRIVER and kind_of(line.alertname).is_of_driver
    return line.alertname if is_of_driver else f"{line.alertname} of {called(line.query)}"


def text_of(line: AlertChanged, before: AlertChanged | None) -> str:
    """Return what has changed, as one sentence; empty if only its numbers have.

    ``before`` is the line before it of the same alert.
    """
    name = alert_name(line)
    if line.change is Change.ENDED:
        return f"{name} ends{_end_text(line)}"
    if before is None:
        words = _words(line)
        return f"{name} opens ({line.severity}){words and f': {words}'}{_muted_text(line.muted)}"
    if line.severity != before.severity:
        return f"{name} is now {line.severity}: {_words(line)}"
    if line.muted != before.muted:
        if line.muted:
            return f"Nobody is notified of {name} any more: {line.muted}"
        return f"People are notified of {name} again"
    is_same = (line.code, _wordless(line)) == (before.code, _wordless(before))
    return "" if is_same else f"{name} is now: {_words(line)}"


def _words(line: AlertChanged) -> str:
    return line.annotations.get("reason") or line.annotations.get("summary") or line.code


def _wordless(line: AlertChanged) -> str:
    """Its words without numbers, which change all the time."""
    return _NUMBERS.sub("", _words(line))


def _muted_text(muted: str) -> str:
    return f"; nobody is notified: {muted}" if muted else ""


def _end_text(line: AlertChanged) -> str:
    after = f" after {exact_duration(max(0.0, line.at - line.starts_at))}"
    successor = where_it_goes_on(line)
    if successor:
        return f"{after} and goes on in {successor}"
    outcome = _outcome([line.query], line)
    return f"{after}: {outcome}" if outcome else after


def where_it_goes_on(line: AlertChanged) -> str:
    """Return where an alert goes on that has ended; empty if nowhere."""
    if not line.goes_on:
        return ""
    try:
        return GOES_ON[GoesOn(line.goes_on)]
    except ValueError:
        return line.goes_on.replace("_", " ")


def outcomes_of(stories: Sequence[AlertStory]) -> str:
    """Return what the queries or the driver of ended alerts do in the end; empty if unknown."""
    last = {story.query: story.lines[-1] for story in stories if story.until is not None}
    alike: dict[tuple[str, str], list[str]] = {}
    for query, line in last.items():
        alike.setdefault((where_it_goes_on(line), line.outcome), []).append(query)
    texts = []
    for (successor, _), queries in alike.items():
        goes_on = f"{_names(queries)} {'go' if len(queries) > 1 else 'goes'} on in {successor}"
        texts.append(goes_on if successor else _outcome(queries, last[queries[0]]))
    return "; ".join(filter(None, texts))


def _outcome(queries: Sequence[str], line: AlertChanged) -> str:
    if not line.outcome:
        return ""
    try:
        outcome = AlertOutcome(line.outcome)
    except ValueError:
        return line.outcome.replace("_", " ")
    if outcome not in QUERY_OUTCOMES:
        return outcome_text(line.alertname, outcome)
    is_of_one = len(queries) == 1 and queries[0] not in RESERVED
    does = outcome_text(line.alertname, outcome, is_of_one=is_of_one)
    return f"{_names(queries)} {does}"


def _names(queries: Sequence[str]) -> str:
    return listed([called(query) for query in queries])


# -- notifications ------------------------------------------------------------------------------


class Attempts(msgspec.Struct):
    """Attempts in a row to send one receiver a message, with one answer; the first at ``since``."""

    receiver: str
    status: str
    outcome: str
    error: str
    alerts: tuple[str, ...]
    since: float
    until: float
    count: int = 1

    is_again: bool = False
    """Whether the receiver has accepted the same news before."""

    @property
    def is_delivered(self) -> bool:
        """Whether the receiver accepted it."""
        return self.outcome == DeliveryOutcome.DELIVERED.value

    @property
    def is_of_end(self) -> bool:
        """Whether the message says that the incident has ended."""
        return self.status == RESOLVED


def attempts_of(parts: Sequence[Recording]) -> list[Attempts]:
    """Return the attempts in order; those in a row that failed in one way are one."""
    result: list[Attempts] = []
    newest: dict[str, Attempts] = {}
    accepted: dict[str, tuple[str, list[str]]] = {}
    for line in (line for part in parts for line in part.lines):
        if not isinstance(line, Notification):
            continue
        last = newest.get(line.receiver)
        if last is not None and _goes_on(last, line):
            last.until = line.at
            last.count += 1
            continue
        attempts = Attempts(
            line.receiver, line.status, line.outcome, line.error, line.alerts, line.at, line.at
        )
        if attempts.is_delivered:
            news = line.status, sorted(line.alerts)
            attempts.is_again = accepted.get(line.receiver) == news
            accepted[line.receiver] = news
        newest[line.receiver] = attempts
        result.append(attempts)
    return result


def _goes_on(last: Attempts, line: Notification) -> bool:
    is_alike = (last.status, last.outcome, last.error) == (line.status, line.outcome, line.error)
    return is_alike and not last.is_delivered


_ANSWERS = {
    DeliveryOutcome.TRANSIENT.value: "it is tried again",
    DeliveryOutcome.MISCONFIGURED.value: "it is tried again slowly, until its settings are right",
    DeliveryOutcome.REJECTED.value: "the receiver refuses the message for good",
    "failed": "an unexpected error of the receiver's code",
}
"""What a failed attempt means, by outcome."""


def attempts_text(attempts: Attempts, *, is_replay: bool) -> str:
    """Return who was notified of what, or why not, as one sentence."""
    if attempts.is_delivered:
        who = "people would be" if is_replay else f"{attempts.receiver} is"
        again = " again" if attempts.is_again else ""
        return f"{who} notified{again} {_message(attempts)}"
    why = attempts.error or attempts.outcome
    answer = _ANSWERS.get(attempts.outcome, attempts.outcome)
    often = f" in {attempts.count} attempts" if attempts.count > 1 else ""
    return f"{attempts.receiver} is not notified{often}: {why} ({answer})"


def _message(attempts: Attempts) -> str:
    counts = Counter(attempts.alerts)
    alike = (f"{name} of {count} queries" for name, count in counts.items() if count > 1)
    names = ", ".join([*alike, *(name for name, count in counts.items() if count == 1)])
    if attempts.is_of_end:
        return f"that it has ended{names and f': {names}'}"
    return f"of {names}" if names else "that the incident is open"


def notifications_of(parts: Sequence[Recording]) -> list[str]:
    """Return the receiver of each message that was accepted, without those of the end."""
    return [
        attempts.receiver
        for attempts in attempts_of(parts)
        if attempts.is_delivered and not attempts.is_of_end
    ]


# -- silences -----------------------------------------------------------------------------------


class SilenceStory(msgspec.Struct):
    """A silence in force from ``since`` until ``until``; None where the recording ends first."""

    queries: str
    reason: str
    end: float | None
    """When it is to end, in Unix seconds; None without an end."""
    since: float
    until: float | None = None


def silence_stories(parts: Sequence[Recording]) -> list[SilenceStory]:
    """Return the silences that were in force, in the order of their beginning."""
    stories: list[SilenceStory] = []
    in_force: dict[str, SilenceStory] = {}
    newest = 0.0
    for line in (line for part in parts for line in part.lines):
        newest = max(newest, line.at)
        if not isinstance(line, Silenced):
            continue
        now = {repr(sorted(silence.items())): silence for silence in line.silences}
        for identity in [identity for identity in in_force if identity not in now]:
            in_force.pop(identity).until = line.at
        for identity, silence in now.items():
            if identity not in in_force:
                in_force[identity] = _silence(silence, line.at)
                stories.append(in_force[identity])
    for story in in_force.values():
        if story.end is not None and story.end <= newest:
            story.until = max(story.since, story.end)
    return stories


def _silence(silence: dict[str, Any], at: float) -> SilenceStory:
    end = silence.get("until")
    has_end = isinstance(end, (int, float)) and 0 <= end < END_OF_TIME
    return SilenceStory(
        queries=called(str(silence.get("queries", WHOLE_DRIVER))),
        reason=str(silence.get("reason") or ""),
        end=end if has_end else None,
        since=at,
    )


def silence_text(story: SilenceStory) -> str:
    """Return which queries are silenced, until when and why, as one sentence."""
    until = "" if story.end is None else f" until {utc(story.end)}"
    reason = f": {story.reason}" if story.reason else ""
    return f"A silence of {story.queries} is in force{until}{reason}"
