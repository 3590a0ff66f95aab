"""The results of a replay: alerts that open and resolve, and counts of what was read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone

import msgspec

from ..core.text import duration

WEEK_SECONDS = 7 * 24 * 3600.0
LEAST_SECONDS = 3600.0
"""A shorter log says nothing about a week."""


class Change(msgspec.Struct, frozen=True):
    """One alert opened or resolved; ``at`` is ISO 8601 in UTC, to the millisecond."""

    at: str
    status: str
    alertname: str
    query: str
    severity: str
    reason: str
    app: str


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
    notifications: int = 0
    """How often an incident opened, or became critical."""
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
    messages = [replayed.error] if replayed.error is not None else []
    if replayed.unread and replayed.error is None:
        messages.append(f"{replayed.path}: {replayed.unread} lines were not understood")
    return messages


def summary(replays: Sequence[Replayed]) -> str:
    """How much was evaluated, what it found, and how many notifications that means."""
    opened = sum(replay.opened for replay in replays)
    notifications = sum(replay.notifications for replay in replays)
    text = (
        f"{_count(len(replays), 'application')}, "
        f"{_count(sum(replay.events for replay in replays), 'event')}"
    )
    began = [replay.began_at for replay in replays if replay.began_at is not None]
    ended = [replay.ended_at for replay in replays if replay.ended_at is not None]
    seconds = max(ended) - min(began) if began and ended else 0.0
    if began and ended:
        text += f" over {duration(seconds)} ({iso(min(began))[:10]} to {iso(max(ended))[:10]})"
    text += f": {_count(opened, 'alert')}"
    if notifications:
        text += f" in {_count(notifications, 'notification')}"
    if notifications and seconds >= LEAST_SECONDS:
        week = math.ceil(notifications * WEEK_SECONDS / seconds)
        text += f", at this rate {_count(week, 'notification')} a week"
    return text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
