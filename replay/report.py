"""What a replay prints: a line for each alert that opens or ends, and a summary."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ..core.text import duration
from .engine import Change, Replayed, iso

UNREADABLE = 2
WEEK_SECONDS = 7 * 24 * 3600.0
LEAST_SECONDS = 3600.0
"""A shorter log says nothing about a week."""


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
    messages += replayed.notes
    if replayed.unread and (replayed.error is None or replayed.is_recording):
        messages.append(f"{replayed.path}: {replayed.unread} lines were not understood")
    return messages


def extent(replays: Sequence[Replayed]) -> str:
    """How much was evaluated."""
    noun = "recording" if _are_recordings(replays) else "application"
    events = _count(sum(replay.events for replay in replays), "event")
    text = f"{_count(len(replays), noun)}, {events}"
    times = _times(replays)
    if times:
        began, ended = iso(times[0])[:10], iso(times[-1])[:10]
        text += f" over {duration(times[-1] - times[0])} ({began} to {ended})"
    return text


def summary(replays: Sequence[Replayed]) -> str:
    """How much was evaluated, what it found, and how many notifications that means."""
    opened = sum(replay.opened for replay in replays)
    notifications = sum(replay.notifications for replay in replays)
    times = _times(replays)
    seconds = times[-1] - times[0] if times else 0.0
    text = f"{extent(replays)}: {_count(opened, 'alert')}"
    if notifications:
        text += f" in {_count(notifications, 'notification')}"
    if notifications and seconds >= LEAST_SECONDS and not _are_recordings(replays):
        week = math.ceil(notifications * WEEK_SECONDS / seconds)
        text += f", at this rate {_count(week, 'notification')} a week"
    return text


def _are_recordings(replays: Sequence[Replayed]) -> bool:
    return all(replay.is_recording for replay in replays)


def _times(replays: Sequence[Replayed]) -> list[float]:
    """When the first one began and the last one ended; empty if one of them is not known."""
    began = [replay.began_at for replay in replays if replay.began_at is not None]
    ended = [replay.ended_at for replay in replays if replay.ended_at is not None]
    return [min(began), max(ended)] if began and ended else []


def exit_code(replays: Sequence[Replayed]) -> int:
    """0 when everything was evaluated, 2 when something could not be read."""
    return UNREADABLE if any(replay.error is not None for replay in replays) else 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
