"""What happened, in order, as a recording shows it: for the command, the page and JSON.

``timeline_of`` reads the parts of one recording (see ``Begin.continues``) as one story.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

import msgspec

from ..alerting.words.headlines import called
from ..core.text import duration, utc
from ..listener.events import Progress
from ..listener.state.run import Outcome
from .alerts import (
    AlertStory,
    Attempts,
    SilenceStory,
    alert_stories,
    attempts_text,
    headline,
    most_prominent,
    notifications_of,
    outcomes_of,
    silence_text,
    text_of,
)
from .answers import (
    WHO,
    Shown,
    answers_of,
    context_text,
    end_of,
    flight_text,
    how_ended,
    how_process_ended,
    place_of,
    request_text,
    restart_text,
    shown_of,
)
from .lines import (
    AnyLine,
    Begin,
    Change,
    End,
    How,
    Recording,
    Request,
    SeenFrom,
    Stack,
    Thinned,
    UnixSeconds,
    part_number,
)
from .observed import FlightStory, Observed, RunStory


class What(str, Enum):
    """What a moment is about; a page shows each with a mark of its own."""

    ALERT = "alert"
    NOTIFICATION = "notification"
    RUN = "run"
    """A query started, ended, failed, was restarted, or commits again."""
    BATCH = "batch"
    """What held a batch, or that it was committed or given up."""
    SILENCE = "silence"
    REQUEST = "request"
    RECORDING = "recording"
    """The recording began, was thinned, went on in another process, or ended."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened at ``at`` (Unix seconds), in one sentence without the time."""

    at: UnixSeconds
    what: What
    text: str
    query: str = ""
    severity: str = ""
    """``critical`` or ``warning`` of an alert that opens or changes; else empty."""
    detail: str = ""
    """More lines, such as a stack or an error; a page folds them."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Something that lasted: an alert, a run, a batch in flight, or a silence.

    ``until`` is None where the recording ends before it does.
    """

    what: What
    since: UnixSeconds
    until: UnixSeconds | None
    label: str
    query: str = ""
    severity: str = ""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch as its progress event shows it; None where the event does not say."""

    at: UnixSeconds
    """When its event arrived, in Unix seconds."""
    batch_id: int
    seconds: float | None = None
    input_rows: int | None = None
    lag_offsets: float | None = None
    state_memory_bytes: int | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One incident in one row of a table; times are Unix seconds."""

    id: str
    app: str
    query: str
    since: UnixSeconds
    until: UnixSeconds | None
    """None where it is open, or where its process ended first."""
    headline: str
    """The summary of its most prominent alert."""
    alertname: str
    severity: str
    """The highest one that it had."""
    cause: str
    """The error class, or the code, of its first cause; empty where only the headline says it."""
    how: str
    """How it ended, in words; ``open``, or that the process ended, while it has not."""
    notifications: int
    """How many messages about it receivers accepted; those of its end do not count."""
    receivers: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """The ids of its files, in order."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The whole story; ``answers`` are what a stranger asks, each in one sentence."""

    summary: Summary
    answers: dict[str, str]
    """``first``, ``held_by``, ``notified``, ``done``, ``ended``."""
    moments: tuple[Moment, ...]
    spans: tuple[Span, ...] = ()
    batches: dict[str, tuple[Batch, ...]] = {}
    """By query, in order."""
    unread: int = 0
    """Lines that could not be read."""


OPEN = "open"
BROKEN_OFF = "open where the recording breaks off"


def in_order(parts: Sequence[Recording]) -> tuple[Recording, ...]:
    """Return the parts in their order."""
    return tuple(sorted(parts, key=lambda part: (part_number(part.begin.id), part.begin.at)))


def summary_of(parts: Sequence[Recording]) -> Summary:
    """Return one incident as one row; its parts need only the lines of ``lines.OUTLINE``."""
    parts = in_order(parts)
    return _summary(parts, alert_stories(parts))


def _summary(
    parts: Sequence[Recording], alerts: Sequence[AlertStory], *, is_open: bool = False
) -> Summary:
    begin = parts[0].begin
    notified = notifications_of(parts)
    end = end_of(parts[-1])
    first = most_prominent(alerts) if alerts else None
    return Summary(
        id=begin.id,
        app=begin.app,
        query=begin.query,
        since=min((alert.since for alert in alerts), default=begin.at),
        until=end.at if end is not None and end.how is How.RESOLVED else None,
        headline=headline(begin, alerts) if alerts else "the recording has no alert",
        alertname=first.alertname if first is not None else "",
        severity=first.severity if first is not None else "",
        cause=alerts[0].cause if alerts else "",
        how=_how(begin, end, alerts, is_open=is_open),
        notifications=len(notified),
        receivers=tuple(dict.fromkeys(notified)),
        parts=tuple(part.begin.id for part in parts),
    )


def _how(begin: Begin, end: End | None, alerts: Sequence[AlertStory], *, is_open: bool) -> str:
    if end is None:
        return OPEN if is_open else BROKEN_OFF
    if end.how is How.CLOSED:
        return f"{OPEN} when {WHO[begin.seen_from]} ended"
    return outcomes_of(alerts) or end.how.value


def timeline_of(parts: Sequence[Recording], *, is_open: bool = False) -> Timeline:
    """Read the parts of one recording, in any order, as one story.

    ``parts`` has at least one; ``is_open``: their process still records it.
    """
    parts = in_order(parts)
    shown = shown_of(parts, is_open=is_open)
    return Timeline(
        summary=_summary(parts, shown.alerts, is_open=is_open),
        answers=answers_of(shown),
        moments=tuple(sorted(_moments(shown), key=lambda moment: moment.at)),
        spans=tuple(sorted(_spans(shown), key=lambda span: span.since)),
        batches=_batches(shown.observed),
        unread=sum(part.unread for part in parts) + shown.observed.unread,
    )


# -- moments ------------------------------------------------------------------------------------


def _moments(shown: Shown) -> Iterator[Moment]:
    """All moments; of those at the same time, in the order in which they should be read."""
    for number, part in enumerate(shown.parts):
        yield Moment(at=part.begin.at, what=What.RECORDING, text=_begin_text(part.begin, number))
    yield from _query_moments(shown)
    for alert in shown.alerts:
        yield from _alert_moments(alert)
    for attempts in shown.attempts:
        yield _attempts_moment(attempts, shown)
    for silence in shown.silences:
        yield from _silence_moments(silence)
    for part in shown.parts:
        yield from filter(None, map(_line_moment, part.lines))
        is_still_recorded = shown.is_open and part is shown.parts[-1]
        if end_of(part) is not None or not is_still_recorded:
            yield _end_moment(part, shown)


def _query_moments(shown: Shown) -> Iterator[Moment]:
    for run in shown.observed.runs:
        yield from _run_moments(run, shown)
    for at, context in shown.observed.contexts:
        yield Moment(at=at, what=What.RUN, text=_sentence(context_text(context)))
    for flight in shown.long_flights:
        yield from _flight_moments(flight)


_PLACES = {
    SeenFrom.DRIVER: "in the driver",
    SeenFrom.WATCH: "from outside of the driver (querypulse watch)",
    SeenFrom.REPLAY: "from an event log (querypulse replay)",
}


def _begin_text(begin: Begin, number: int) -> str:
    what = f"querypulse {begin.querypulse_version}".rstrip()
    spark = f", Spark {begin.spark_version}" if begin.spark_version else ""
    where = f"{_PLACES[begin.seen_from]}: {what}{spark}"
    if number or begin.continues:
        return f"The next process goes on recording {where}"
    return f"The recording begins {where}"


def _run_moments(run: RunStory, shown: Shown) -> Iterator[Moment]:
    """Its start, first commit and end; of a query that the incident is not about, what is news."""
    query = called(run.query)
    is_own = run.query in shown.queries
    is_start = run.started_at is not None and run.started_at >= shown.begins_at
    if run.started_at is not None and is_start and (is_own or run.is_restart):
        text = restart_text(run) if run.is_restart else f"{query} was started"
        yield Moment(at=run.started_at, what=What.RUN, text=text, query=run.query)
    if run.is_restart and run.first_commit is not None:
        text = f"{query} commits again: batch {run.first_commit.batch_id}"
        yield Moment(at=run.first_commit.at, what=What.RUN, text=text, query=run.query)
    is_end = run.ended_at is not None and (is_own or run.ended_at >= shown.begins_at)
    if run.ended_at is not None and is_end and not run.with_process:
        text = f"{query} {how_ended(run)}"
        yield Moment(
            at=run.ended_at,
            what=What.RUN,
            text=text,
            query=run.query,
            detail=_error_text(run),
        )


def _error_text(run: RunStory) -> str:
    """The traceback in the job's own code, and Spark's whole text."""
    if run.failure is None:
        return ""
    raised = run.failure.raised_at
    texts = (raised.line, raised.traceback, run.exception or run.failure.message)
    return "\n\n".join(filter(None, texts))


def _flight_moments(flight: FlightStory) -> Iterator[Moment]:
    name = _sentence(flight_text(flight))

    def moment(at: float, text: str, stack: Sequence[str] = ()) -> Moment:
        detail = "\n".join(stack)
        return Moment(at=at, what=What.BATCH, text=text, query=flight.query, detail=detail)

    yield moment(flight.since, f"{name} begins")
    for hold in flight.holds:
        yield moment(hold.at, f"{name} is held: {hold.text}", hold.stack)
    if flight.until is not None:
        how = "is committed" if flight.is_committed else "is given up"
        yield moment(flight.until, f"{name} {how} after {duration(flight.until - flight.since)}")


def _alert_moments(alert: AlertStory) -> Iterator[Moment]:
    before = None
    for line in alert.lines:
        text = text_of(line, before)
        before = line
        if text:
            severity = "" if line.change is Change.ENDED else line.severity
            yield Moment(
                at=line.at, what=What.ALERT, text=text, query=line.query, severity=severity
            )


def _attempts_moment(attempts: Attempts, shown: Shown) -> Moment:
    text = attempts_text(attempts, is_replay=shown.is_replay)
    if attempts.count > 1:
        text = f"{text}; the last one at {utc(attempts.until)}"
    return Moment(at=attempts.since, what=What.NOTIFICATION, text=text, query=shown.subject)


def _silence_moments(silence: SilenceStory) -> Iterator[Moment]:
    yield Moment(at=silence.since, what=What.SILENCE, text=silence_text(silence))
    if silence.until is not None:
        text = f"The silence of {silence.queries} ends"
        yield Moment(at=silence.until, what=What.SILENCE, text=text)


def _line_moment(line: AnyLine) -> Moment | None:
    """The moment of a line that needs no other line."""
    if isinstance(line, Stack):
        return _stack_moment(line)
    if isinstance(line, Request):
        until = "" if line.until is None else f", until {utc(line.until)}"
        text = _sentence(f"{request_text(line)}{until}")
        return Moment(at=line.at, what=What.REQUEST, text=text, query=line.query)
    if isinstance(line, Thinned):
        text = f"{line.lines:,} lines until {utc(line.until)} were left out, to save space"
        return Moment(at=line.at, what=What.RECORDING, text=text)
    return None


def _stack_moment(line: Stack) -> Moment:
    place = place_of(line)
    where = f" is at {place}" if place else " has moved"
    stacks = filter(None, (line.python.strip(), "\n".join(line.jvm)))
    return Moment(
        at=line.at,
        what=What.BATCH,
        text=f"The thread of {called(line.query)}{where}",
        query=line.query,
        detail="\n\n".join(stacks),
    )


def _end_moment(part: Recording, shown: Shown) -> Moment:
    end = end_of(part)
    if end is not None:
        text = "The recording ends: the last alert has ended"
        if end.how is How.CLOSED:
            text = f"The recording ends, and the incident is open: {how_process_ended(part, shown)}"
        return Moment(at=end.at, what=What.RECORDING, text=text)
    who = WHO[shown.seen_from]
    killed = f"{who} was killed{', or still runs' if part is shown.parts[-1] else ''}"
    return Moment(at=part.ends_at, what=What.RECORDING, text=f"The recording breaks off: {killed}")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# -- spans and batches --------------------------------------------------------------------------


def _spans(shown: Shown) -> Iterator[Span]:
    for alert in shown.alerts:
        yield from _alert_spans(alert)
    for run in shown.observed.runs:
        yield from _run_spans(run, shown.begins_at)
    for flight in shown.long_flights:
        yield Span(
            what=What.BATCH,
            since=flight.since,
            until=flight.until,
            label=_sentence(flight_text(flight)),
            query=flight.query,
        )
    for silence in shown.silences:
        label = f"silence of {silence.queries}"
        yield Span(what=What.SILENCE, since=silence.since, until=silence.until, label=label)


def _run_spans(run: RunStory, begins_at: float) -> Iterator[Span]:
    """The part of a run that is in the recording."""
    if run.ended_at is not None and run.ended_at < begins_at:
        return
    since = begins_at if run.started_at is None else max(begins_at, run.started_at)
    label = f"run {run.run_id}{', failed' if run.outcome is Outcome.FAILED else ''}"
    yield Span(what=What.RUN, since=since, until=run.ended_at, label=label, query=run.query)


def _alert_spans(alert: AlertStory) -> Iterator[Span]:
    """A span for each severity that it had in turn."""
    since = alert.since
    severity = alert.lines[0].severity
    for line in alert.firing:
        if line.severity != severity:
            yield _alert_span(alert, since, line.at, severity)
            since = line.at
            severity = line.severity
    yield _alert_span(alert, since, alert.until, severity)


def _alert_span(alert: AlertStory, since: float, until: float | None, severity: str) -> Span:
    return Span(
        what=What.ALERT,
        since=since,
        until=until,
        label=alert.alertname,
        query=alert.query,
        severity=severity,
    )


def _batches(observed: Observed) -> dict[str, tuple[Batch, ...]]:
    batches: dict[str, list[Batch]] = {}
    for query, line, progress in observed.commits:
        batches.setdefault(query, []).append(_batch(line.at, progress))
    return {
        query: tuple(sorted(entries, key=lambda batch: batch.at))
        for query, entries in batches.items()
    }


def _batch(at: float, progress: Progress) -> Batch:
    lags = [lag for source in progress.sources if (lag := source.lag_offsets) is not None]
    return Batch(
        at=at,
        batch_id=progress.batch_id,
        seconds=progress.batch_seconds,
        input_rows=progress.input_rows,
        lag_offsets=sum(lags) if lags else None,
        state_memory_bytes=progress.state_memory_bytes,
    )
