"""What a stranger asks about an incident, each answered in one sentence from its recording alone.

What the recording does not show, the answer says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from ..alerting.words.headlines import called
from ..core.text import duration, exact_duration, listed, utc
from ..listener.state.run import Delay, Outcome
from .alerts import (
    AlertStory,
    Attempts,
    SilenceStory,
    alert_name,
    alert_stories,
    attempts_of,
    outcomes_of,
    queries_in,
    silence_stories,
)
from .lines import AnyLine, End, How, Recording, Request, SeenFrom, Stack
from .observed import FlightStory, Hold, Observed, RunStory, observe

MOST = 5
"""So many things are named in one answer; the moments have all of them."""


DELAYS = frozenset(delay.value for delay in Delay)
_LINE = re.compile(r":\d+ in ")
LONG_SECONDS = 60.0
"""A batch that took as long is worth a mention, also if no alert names it."""


class Shown(msgspec.Struct, frozen=True):
    """What a recording shows, by subject."""

    parts: tuple[Recording, ...]
    observed: Observed
    alerts: tuple[AlertStory, ...]
    attempts: tuple[Attempts, ...]
    silences: tuple[SilenceStory, ...]
    queries: frozenset[str]
    """Those that the incident is about: its subject, and what its alerts name."""
    begins_at: float
    """When the oldest line was written, which may be an event from before the incident."""
    is_open: bool = False
    """Whether its process still records it, which the lines do not show."""

    @property
    def subject(self) -> str:
        """Whose incident it is."""
        return self.parts[0].begin.query

    @property
    def lines(self) -> Iterator[AnyLine]:
        """The lines of all parts."""
        return (line for part in self.parts for line in part.lines)

    @property
    def alerts_since(self) -> float:
        """When the first alert opened; without one, when the recording began."""
        first = min((alert.since for alert in self.alerts), default=None)
        return self.parts[0].begin.at if first is None else first

    @property
    def ends_at(self) -> float:
        """When the newest line was written."""
        return max(part.ends_at for part in self.parts)

    @property
    def long_flights(self) -> list[FlightStory]:
        """Its batches that took long, or that an alert names."""
        named = {
            (alert.query, batch)
            for alert in self.alerts
            for line in alert.firing
            if (batch := _batch_of(line.facts)) is not None
        }
        return [
            flight
            for flight in self.observed.flights
            if flight.query in self.queries
            and (flight.seconds >= LONG_SECONDS or (flight.query, flight.batch_id) in named)
        ]

    @property
    def seen_from(self) -> SeenFrom:
        """Who recorded it."""
        return self.parts[0].begin.seen_from

    @property
    def is_replay(self) -> bool:
        """Whether a replay recorded it, which notifies nobody."""
        return self.seen_from is SeenFrom.REPLAY


def shown_of(parts: Sequence[Recording], *, is_open: bool = False) -> Shown:
    """Read the parts, which are in order; ``is_open``: their process still records it."""
    alerts = tuple(alert_stories(parts))
    queries = {parts[0].begin.query, *(alert.query for alert in alerts)}
    for alert in alerts:
        queries.update(*(queries_in(line.facts) for line in alert.firing))
    return Shown(
        parts=tuple(parts),
        observed=observe(parts),
        alerts=alerts,
        attempts=tuple(attempts_of(parts)),
        silences=tuple(silence_stories(parts)),
        queries=frozenset(queries),
        begins_at=min(line.at for part in parts for line in (part.begin, *part.lines)),
        is_open=is_open,
    )


def _batch_of(found: dict[str, Any]) -> int | None:
    """The batch in flight that facts name."""
    flight = found.get("flight")
    batch_id = flight.get("batch_id") if isinstance(flight, dict) else None
    return batch_id if isinstance(batch_id, int) else None


def answers_of(shown: Shown) -> dict[str, str]:
    """Answer what happened first, what held it, who was notified, what was done, what ended it."""
    return {
        "first": _first(shown),
        "held_by": _held_by(shown),
        "notified": _notified(shown),
        "done": _done(shown),
        "ended": _ended(shown),
    }


def clock(at: float, day_of: float) -> str:
    """Return a time of day in UTC, with its date unless that is the day of ``day_of``."""
    text = utc(at)
    date = utc(day_of).partition(" ")[0]
    return text.removeprefix(f"{date} ")


# -- what happened first ------------------------------------------------------------------------


def _first(shown: Shown) -> str:
    events = [(run.ended_at, _end_text(run)) for run in _ends(shown) if run.ended_at]
    events += [(flight.since, _began_text(flight, shown)) for flight in shown.long_flights]
    events += [(at, context_text(context)) for at, context in shown.observed.contexts]
    if shown.alerts:
        alert = shown.alerts[0]
        reason = alert.lines[0].annotations.get("reason", "").rstrip(".")
        text = f"{alert_name(alert)} opened: {reason or alert.lines[0].code}"
        events.append((alert.since, text))
    if not events:
        return "The recording does not show what happened first: it has no alert and no failure."
    at, text = min(events, key=lambda event: event[0])
    return f"{utc(at)}: {text}."


def _ends(shown: Shown) -> list[RunStory]:
    """The runs that failed, or that had ended when an alert of their query opened, in order."""
    ends = [
        run
        for run in shown.observed.runs
        if run.ended_at is not None
        and run.query in shown.queries
        and not run.with_process
        and (run.outcome is Outcome.FAILED or _explains_an_alert(run, shown))
    ]
    return sorted(ends, key=lambda run: run.ended_at or 0.0)


def _explains_an_alert(run: RunStory, shown: Shown) -> bool:
    ended_at = run.ended_at or 0.0
    next_at = _next_start(run, shown)
    return any(
        ended_at <= alert.since and (next_at is None or next_at > alert.since)
        for alert in shown.alerts
        if alert.query == run.query
    )


def _next_start(run: RunStory, shown: Shown) -> float | None:
    """When the next run of the query began."""
    starts = (other.started_at for other in shown.observed.runs if other.query == run.query)
    after = (at for at in starts if at is not None and at > (run.ended_at or 0.0))
    return min(after, default=None)


def _end_text(run: RunStory) -> str:
    text = f"{called(run.query)} {how_ended(run)}"
    where = _raised_at(run)
    return f"{text}, raised at {where}" if where else text


def _raised_at(run: RunStory) -> str:
    return "" if run.failure is None else run.failure.raised_at.line


def how_ended(run: RunStory) -> str:
    """Return what became of a run that has ended."""
    if run.with_process:
        return "ended with its process"
    if run.has_vanished:
        return "disappeared without an event of its end"
    if run.outcome is Outcome.FAILED:
        batch = "" if run.failed_batch is None else f" in batch {run.failed_batch}"
        why = "" if run.failure is None else f": {run.failure.reason.rstrip('.')}"
        return f"failed{batch}{why}"
    if run.outcome is Outcome.COMPLETED:
        return "completed"
    announced = ", as announced" if run.was_expected else ""
    return f"was stopped{announced}" if run.outcome is Outcome.STOPPED else "ended without an error"


def flight_text(flight: FlightStory) -> str:
    """Return the name of a batch, or of its planning."""
    query = called(flight.query)
    is_planned = flight.batch_id is not None
    return f"batch {flight.batch_id} of {query}" if is_planned else f"the planning of {query}"


def _began_text(flight: FlightStory, shown: Shown) -> str:
    text = f"{flight_text(flight)} began"
    if flight.is_committed and flight.until is not None:
        return f"{text} and took {duration(flight.until - flight.since)}"
    if flight.until is None and shown.is_open:
        return f"{text} and has not finished"
    if flight.until is None:
        return f"{text} and had not finished when the recording ended"
    return f"{text} and did not finish"


CONTEXTS = {
    "running": "the SparkContext runs again",
    "stopped_by_application": "the job stopped its SparkContext",
    "stopped": "the SparkContext stopped by itself",
    "terminated": "a signal ended the driver",
    "jvm_gone": "the JVM of the driver ended",
    "session_ended": "the Spark Connect session ended",
}


def context_text(context: str) -> str:
    """Return what happened to the SparkContext."""
    return CONTEXTS.get(context, f"the SparkContext is {context.replace('_', ' ')}")


# -- what held it -------------------------------------------------------------------------------


def _held_by(shown: Shown) -> str:
    flights = shown.long_flights
    if flights:
        longest = max(flights, key=lambda flight: _end_of(flight, shown) - flight.since)
        return _flight_answer(longest, shown)
    ends = _ends(shown)
    if ends:
        often = sum(run.query == ends[0].query for run in ends)
        return f"No batch was held: {_brief_end(ends[0], often)}{_until_restart(ends[0], shown)}."
    if shown.alerts:
        reason = shown.alerts[0].reason.rstrip(".")
        more = "" if reason in _first(shown) else f"; the alert says: {reason}"
        return f"The recording shows no batch that was held{more}."
    return "The recording does not show what held it."


def _brief_end(run: RunStory, often: int) -> str:
    """How a run ended, the first of so many, without its error, which is said already."""
    if run.outcome is not Outcome.FAILED:
        return f"{called(run.query)} {how_ended(run)}"
    times = "" if often == 1 else f" {often} times, first"
    batch = "" if run.failed_batch is None else f" in batch {run.failed_batch}"
    where = _raised_at(run)
    return f"{called(run.query)} failed{times}{batch}{f' at {where}' if where else ''}"


def _until_restart(run: RunStory, shown: Shown) -> str:
    """For how long a query did not run, after a run."""
    next_at = _next_start(run, shown)
    if next_at is None:
        return (
            ", and has not run since" if shown.is_open else ", and the recording shows no restart"
        )
    lasted = exact_duration(next_at - (run.ended_at or 0.0))
    return f", and did not run until {clock(next_at, shown.alerts_since)} ({lasted})"


def _end_of(flight: FlightStory, shown: Shown) -> float:
    return shown.ends_at if flight.until is None else flight.until


def _flight_answer(flight: FlightStory, shown: Shown) -> str:
    until = _end_of(flight, shown)
    times = f"from {clock(flight.since, shown.alerts_since)} to {clock(until, shown.alerts_since)}"
    lasted = f"{times} ({duration(until - flight.since)})"
    name = flight_text(flight)
    text = f"{name[0].upper()}{name[1:]} was in flight {lasted}"
    if flight.until is None:
        text = f"{text}, and still is{'' if shown.is_open else ' where the recording ends'}"
    # Where no cause was seen all the time, the rules may know more: they compare the batch with
    # those before.
    said = _said_of(flight, shown, "reason")
    is_explained = bool(flight.holds) and all(_explains(hold, said) for hold in flight.holds)
    said = "" if is_explained else said
    # A line of the same function is no news here; the moments have each.
    seen = {_LINE.sub("", hold.newest): hold.newest for hold in reversed(flight.holds)}
    held = "; then ".join([*seen.values()][::-1][:MOST])
    if held:
        text = f"{text}: {held}"
    if said:
        text = f"{text}; the alert says: {said}"
    cause = _said_of(flight, shown, "likely_cause")
    if cause:
        text = f"{text}; likely cause: {cause}"
    if not (held or said or cause):
        text = f"{text}; the recording does not show what held it"
    line = _stack_line(flight, shown)
    return f"{text}." if _is_in(line, text) else f"{text}; its thread was at {line}."


def _explains(hold: Hold, said: str) -> bool:
    """Whether the alert's words add nothing to what held the batch."""
    return hold.kind in DELAYS or _is_in(hold.kind, said)


def _is_in(place: str, text: str) -> bool:
    """Whether a text names the function of a line, or there is no line."""
    return _LINE.sub("", place) in _LINE.sub("", text)


def _said_of(flight: FlightStory, shown: Shown, annotation: str) -> str:
    """The newest words of an alert about the batch, under the name of an annotation."""
    texts = [
        (line.at, line.annotations.get(annotation, ""))
        for alert in shown.alerts
        if alert.query == flight.query
        for line in alert.firing
        if flight.batch_id is not None and _batch_of(line.facts) == flight.batch_id
    ]
    return max(texts, default=(0.0, ""))[1].rstrip(".")


def _stack_line(flight: FlightStory, shown: Shown) -> str:
    """Where the thread of the batch was."""
    for line in shown.lines:
        if isinstance(line, Stack) and line.query == flight.query:
            return place_of(line)
    stacks = [hold.stack[0] for hold in flight.holds if hold.stack]
    return next(iter(stacks), "")


def place_of(line: Stack) -> str:
    """Return the line at which a thread is, first of the job's own code; empty without one."""
    own = line.python.strip().splitlines()
    return own[0].strip() if own else next(iter(line.jvm), "")


# -- who was notified ---------------------------------------------------------------------------


def _notified(shown: Shown) -> str:
    accepted = [attempts for attempts in shown.attempts if attempts.is_delivered]
    failed = [attempts for attempts in shown.attempts if not attempts.is_delivered]
    if not shown.attempts:
        return _nobody(shown)
    if shown.is_replay:
        times = [clock(attempts.since, shown.alerts_since) for attempts in accepted]
        sent = f"{_messages_text(accepted)}: at {listed(times, MOST)}"
        return f"A replay notifies nobody; a driver would have sent {sent}."
    if not accepted:
        return f"Nobody was notified: no receiver accepted a message; {_failures_text(failed)}."
    first: dict[str, Attempts] = {}
    for attempts in accepted:
        first.setdefault(attempts.receiver, attempts)
    texts = [_receiver_text(attempts, shown) for attempts in first.values()]
    text = f"{listed(texts, MOST)}; receivers accepted {_messages_text(accepted)}"
    return f"{text}; {_failures_text(failed)}." if failed else f"{text}."


def _nobody(shown: Shown) -> str:
    """Why the recording shows no attempt."""
    lines = (line for alert in shown.alerts for line in alert.lines)
    muted = next((line.muted for line in lines if line.muted), "")
    if muted:
        return f"Nobody was notified: {muted}."
    if shown.is_open:
        return "Nobody has been notified yet."
    if end_of(shown.parts[-1]) is None:
        return "The recording shows no attempt to notify anybody before it breaks off."
    who = "A replay notifies nobody" if shown.is_replay else "Nobody was notified"
    return f"{who}; the recording shows no attempt."


def _messages_text(messages: Sequence[Attempts]) -> str:
    """Of a problem, and of its end: the first are the notifications that a summary counts."""
    ends = sum(attempts.is_of_end for attempts in messages)
    count = len(messages) - ends
    problems = "1 notification" if count == 1 else f"{count} notifications"
    resolved = f"{ends} messages" if ends > 1 else f"{ends or 'no'} message"
    return f"{problems} and {resolved} of its end"


def _receiver_text(attempts: Attempts, shown: Shown) -> str:
    text = f"{attempts.receiver} was notified at {clock(attempts.since, shown.alerts_since)}"
    if not shown.alerts:
        return text
    late = attempts.since - shown.alerts_since
    return f"{text} ({exact_duration(max(0.0, late))} after the first alert opened)"


def _failures_text(failed: Sequence[Attempts]) -> str:
    count = sum(attempts.count for attempts in failed)
    attempts_text = "1 attempt" if count == 1 else f"{count} attempts"
    why = dict.fromkeys(f"{attempts.receiver}: {attempts.error}" for attempts in failed)
    return f"{attempts_text} failed ({listed(list(why), MOST)})"


# -- what was done ------------------------------------------------------------------------------


class Step(NamedTuple):
    """Something that was done at Unix time ``at``; ``is_ours``: by querypulse itself."""

    at: float
    text: str
    is_ours: bool = False


def _done(shown: Shown) -> str:
    steps = sorted(_steps(shown), key=lambda step: step.at)
    if not steps:
        return "The recording shows nothing that was done."
    times: dict[str, list[float]] = {}
    for step in steps:
        times.setdefault(step.text, []).append(step.at)
    texts = [_step_text(text, at, shown) for text, at in times.items()]
    more = f"; and {len(texts) - MOST} more" if len(texts) > MOST else ""
    by_whom = "" if all(step.is_ours for step in steps) else " The recording does not show by whom."
    text = f"{'; '.join(texts[:MOST])}{more}.{by_whom}"
    # The name of a query stays as it is.
    begins_with_name = text.startswith(tuple(called(query) for query in shown.queries))
    return text if begins_with_name else text[:1].upper() + text[1:]


def _step_text(text: str, times: Sequence[float], shown: Shown) -> str:
    first = f"{text} at {clock(times[0], shown.alerts_since)}"
    if len(times) == 1:
        return first
    return f"{first} and {len(times) - 1} times more until {clock(times[-1], shown.alerts_since)}"


def _steps(shown: Shown) -> Iterator[Step]:
    """What people, or querypulse for them, did once the first alert had opened."""
    for line in shown.lines:
        if isinstance(line, Request):
            yield Step(line.at, request_text(line))
    for silence in shown.silences:
        # What was in force when the recording began, nobody did then.
        if silence.since > max(shown.alerts_since, shown.parts[0].begin.at):
            yield Step(silence.since, f"a silence of {silence.queries} began")
    for part, successor in pairwise(shown.parts):
        how = "was killed" if end_of(part) is None else "ended"
        yield Step(part.ends_at, f"{WHO[shown.seen_from]} {how}")
        yield Step(successor.begin.at, "the next process began")
    for run in shown.observed.runs:
        if run.query in shown.queries:
            yield from _run_steps(run, shown.alerts_since)


def _run_steps(run: RunStory, opened_at: float) -> Iterator[Step]:
    is_stop = run.outcome is Outcome.STOPPED and not run.has_vanished
    if is_stop and run.ended_at is not None and run.ended_at >= opened_at:
        yield Step(run.ended_at, f"{called(run.query)} {how_ended(run)}")
    if run.is_restart and run.started_at is not None:
        yield Step(run.started_at, restart_text(run), is_ours=run.is_supervised)


def restart_text(run: RunStory) -> str:
    """Return that a run began, and whether querypulse began it."""
    by = " by querypulse (supervise)" if run.is_supervised else ""
    return f"{called(run.query)} was started again{by}"


REQUESTS = {
    "expect_stop": "the stop of {} was announced",
    "expect_end": "the end of the driver was announced",
    "forget": "querypulse was asked to forget {}",
}


def request_text(line: Request) -> str:
    """Return what somebody announced."""
    text = REQUESTS.get(line.request, f"{line.request} of {{}} was requested")
    return text.replace("{}", called(line.query))


# -- what ended it ------------------------------------------------------------------------------


def end_of(part: Recording) -> End | None:
    """Return the last line of a part, unless it breaks off."""
    return next((line for line in reversed(part.lines) if isinstance(line, End)), None)


WHO = {
    SeenFrom.DRIVER: "its process",
    SeenFrom.WATCH: "querypulse watch",
    SeenFrom.REPLAY: "the log",
}
"""What ends, or is killed, where a recording ends before its incident."""


def how_process_ended(part: Recording, shown: Shown) -> str:
    """Return how the process of a part ended that was not killed, as a clause."""
    ends = [how for at, how in shown.observed.program_ends if part.begin.at <= at <= part.ends_at]
    text = f"{WHO[shown.seen_from]} ended"
    return f"{text} because {ends[-1]}" if ends else text


def _ended(shown: Shown) -> str:
    end = end_of(shown.parts[-1])
    if end is None and shown.is_open:
        names = [alert_name(alert) for alert in shown.alerts if alert.until is None]
        return f"It is still open{': ' if names else ''}{listed(names, MOST)}."
    if end is None:
        at = clock(shown.ends_at, shown.alerts_since)
        killed = f"it breaks off at {at}, where {WHO[shown.seen_from]} was killed, or still runs"
        return f"The recording does not show an end: {killed}."
    at = clock(end.at, shown.alerts_since)
    if end.how is How.CLOSED:
        return f"It was still open at {at}, when {how_process_ended(shown.parts[-1], shown)}."
    lasted = f"{at}, {exact_duration(end.at - shown.alerts_since)} after the first alert opened"
    outcomes = outcomes_of(shown.alerts)
    why = f": {outcomes}" if outcomes else ""
    return f"The last alert ended at {lasted}{why}."
