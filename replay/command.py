"""``querypulse replay``: evaluates recorded events as if live."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..core.installed import require_spark
from ..core.text import duration
from ..settings.loading import load_strictly
from ..settings.settings import Settings, SettingsError
from ..sidecar.assemble import make_policy
from .engine import Change, Replayed, iso, replay_application
from .log_files import Application, find_applications

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def chosen_settings(choices: Iterable[str]) -> Settings:
    """The settings in force, overridden by ``choices``, ``NAME=VALUE`` as in TOML.

    A later one wins.

    Raises:
        SettingsError: a choice is not ``NAME=VALUE``, or its setting is unknown or not allowed.

    """
    values: dict[str, Any] = {}
    for choice in choices:
        name, equals, value = map(str.strip, choice.partition("="))
        if not equals or not name:
            raise SettingsError(f"--set {choice}: give NAME=VALUE, such as gone_grace_seconds=30")
        try:
            _merge(values, tomllib.loads(choice))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            text = value.strip("\"'")
            raise SettingsError(
                f'--set {choice}: the value is not TOML ({error}); write a text as {name}="{text}"'
            ) from None
    return load_strictly(values, os.environ)


def _merge(values: dict[str, Any], more: dict[str, Any]) -> None:
    """Add ``more``, also to the tables of tables that earlier choices have given."""
    for name, value in more.items():
        earlier = values.get(name)
        if isinstance(earlier, dict) and isinstance(value, dict):
            _merge(earlier, value)
        else:
            values[name] = value


UNREADABLE = 2
DEFAULT_TABLE = "querypulse-replay.parquet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``replay``."""
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="event logs, recordings, or folders of them"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="choices",
        help="try a setting, VALUE as in TOML: --set 'expected_queries=[\"bronze\"]'",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON lines")
    form.add_argument("--spark", action="store_true", help="replay as a Spark job, into a table")
    parser.add_argument(
        "--out",
        default=DEFAULT_TABLE,
        metavar="DIR",
        help="the Parquet table that --spark writes; it must not exist (%(default)s)",
    )


def replay(
    paths: Sequence[str],
    choices: Sequence[str] = (),
    *,
    json: bool = False,
    spark: bool = False,
    out: str = DEFAULT_TABLE,
) -> int:
    """Replay; 0 when everything was evaluated, 2 when something could not be read.

    Raises:
        NotInstalledError: the package of a codec, or Spark, is not installed.
        SettingsError: a setting is unknown or not allowed.
        ReplayError: a path does not exist or contains no log, or the table exists already.

    """
    settings = chosen_settings(choices)
    applications = find_applications(paths)
    if not spark:
        return _replay_here(applications, settings, as_json if json else as_text)
    require_spark("replay --spark")
    from .fleet import replay_fleet

    return replay_fleet(applications, make_policy(settings), settings.app_name, out)


LONG_BYTES = 64 * 1024 * 1024
"""Shorter logs take less than a few seconds."""
EVERY_SECONDS = 0.2


class Progress:
    """Shows on a terminal how much of long logs has been read."""

    def __init__(self, applications: Sequence[Application]) -> None:
        files = {Path(file) for application in applications for file in application.files}
        # Reading a file that does not exist reports the error.
        self._total = sum(file.stat().st_size for file in files if file.exists())
        self._is_shown = self._total >= LONG_BYTES and sys.stderr.isatty()
        self._read = 0
        self._due = 0.0

    def add(self, size: int) -> None:
        """Add the bytes of one read."""
        self._read += size
        if self._is_shown and time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            sys.stderr.write(f"\r\x1b[K{self._read / self._total:4.0%}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Clear the line for other output."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _replay_here(
    applications: Sequence[Application], settings: Settings, shown: Callable[[Change], str]
) -> int:
    replays = [Replayed(settings.app_name or entry.label, entry.path) for entry in applications]
    progress = Progress(applications)
    for application, replayed in zip(applications, replays, strict=True):
        for change in replay_application(
            application, make_policy(settings), settings.app_name, replayed, progress.add
        ):
            progress.clear()
            sys.stdout.write(f"{shown(change)}\n")
        progress.clear()
        sys.stderr.writelines(f"querypulse: {text}\n" for text in complaints(replayed))
    sys.stdout.flush()
    sys.stderr.write(f"{summary(replays)}\n")
    return UNREADABLE if any(replay.error is not None for replay in replays) else 0


# -- output -----------------------------------------------------------------------------------
# A line for each alert, and a summary.


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
