"""The results of a replay: alerts that open and resolve, and counts of what was read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import msgspec

from ..core.text import duration

# -- changes ----------------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True):
    """One alert opened or resolved; ``at`` is ISO 8601 in UTC, to the millisecond."""

    at: str
    status: str
    alertname: str
    query: str
    severity: str
    reason: str
    app: str


class Stall(msgspec.Struct, frozen=True):
    """A query that was running and sent no event for ``seconds``."""

    query: str
    seconds: float


def longer(first: Stall | None, second: Stall | None) -> Stall | None:
    """The longer of two stalls; None if there is none."""
    if first is None or second is None:
        return first or second
    return second if second.seconds > first.seconds else first


class Replayed(msgspec.Struct):
    """One application, while it is evaluated and after; times in Unix seconds, None if unknown.

    ``error`` says why the log could not be read to its end.
    """

    app: str
    path: str
    events: int = 0
    unread: int = 0
    began_at: float | None = None
    ended_at: float | None = None
    opened: int = 0
    longest_stall: Stall | None = None
    error: str | None = None


def iso(seconds: float) -> str:
    """Unix seconds as Spark writes times: ``2026-11-21T10:36:51.898Z``."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- output -----------------------------------------------------------------------------------
# The output of a replay: a line for each alert, and a summary.


def as_json(change: Change) -> str:
    """One line for a program."""
    return msgspec.json.encode(change).decode()


def as_text(change: Change) -> str:
    """One line for a person, with columns aligned for names of usual length."""
    when = change.at.replace("T", " ")
    what = f"{change.status:<8}  {change.severity:<8}  {change.alertname:<28}"
    return f"{when}  {what}  {change.app + '/' + change.query:<32}  {change.reason}"


def complaints(replayed: Replayed) -> list[str]:
    """Messages about what could not be read."""
    found = [replayed.error] if replayed.error is not None else []
    if replayed.unread and replayed.error is None:
        found.append(f"{replayed.path}: {replayed.unread} lines were not understood")
    return found


def summary(replays: Sequence[Replayed]) -> str:
    """How much was evaluated, and the result."""
    opened = sum(one.opened for one in replays)
    events = sum(one.events for one in replays)
    text = (
        f"{_count(len(replays), 'application')}, {_count(events, 'event')}{_span(replays)}: "
        f"{_count(opened, 'alert')}"
    )
    stalls = [(one.longest_stall, one.app) for one in replays if one.longest_stall is not None]
    if not stalls:
        return text
    stall, app = max(stalls, key=lambda pair: pair[0].seconds)
    return f"{text}; longest silent stall: {duration(stall.seconds)}, {app}/{stall.query}"


def _span(replays: Sequence[Replayed]) -> str:
    began = [one.began_at for one in replays if one.began_at is not None]
    ended = [one.ended_at for one in replays if one.ended_at is not None]
    if not began or not ended:
        return ""
    first, last = min(began), max(ended)
    return f" over {duration(last - first)} ({iso(first)[:10]} to {iso(last)[:10]})"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
