"""``querypulse replay``: evaluates recorded events as if live."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..core.installed import require_spark
from ..settings.loading import load_strictly
from ..settings.settings import Settings, SettingsError
from ..settings.wiring import policy
from .engine import Replay
from .log_files import Application, find_applications
from .results import Change, as_json, as_text, complaints, summary

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
        _merge(values, _parsed(choice))
    return load_strictly(values, os.environ).settings


def _parsed(choice: str) -> dict[str, Any]:
    name, equals, value = choice.partition("=")
    text = value.strip().strip("\"'")
    if not equals or not name.strip():
        raise SettingsError(f"--set {choice}: give NAME=VALUE, such as gone_grace_seconds=30")
    try:
        return tomllib.loads(choice)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(
            f'--set {choice}: the value is not TOML ({error}); write a text as {name}="{text}"'
        ) from None


def _merge(values: dict[str, Any], more: dict[str, Any]) -> None:
    """Merge tables recursively, so that ``queries."a".ignore=true`` and ``queries."b"...`` add."""
    for name, value in more.items():
        earlier = values.get(name)
        if isinstance(earlier, dict) and isinstance(value, dict):
            _merge(earlier, value)
        else:
            values[name] = value


LONG_BYTES = 64 * 1024 * 1024
EVERY_SECONDS = 0.2
MEGABYTE = 1024 * 1024


class ProgressBar:
    """Counts the bytes read; silent for short inputs, and if standard error is no terminal."""

    def __init__(self, applications: Iterable[Application]) -> None:
        files = {Path(file) for application in applications for file in application.files}
        # Reading a file that does not exist reports the error.
        self._total = sum(file.stat().st_size for file in files if file.exists())
        self._shown = self._total >= LONG_BYTES and sys.stderr.isatty()
        self._read = 0
        self._due = 0.0

    def add(self, size: int) -> None:
        """Add the bytes of one read."""
        self._read += size
        if self._shown and time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            percent = 100 * self._read / self._total
            megabytes = f"{self._read // MEGABYTE} of {self._total // MEGABYTE} MB"
            sys.stderr.write(f"\r\x1b[K{percent:3.0f}%  {megabytes}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Clear the line for other output."""
        if self._shown:
            self._due = 0.0
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


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
        try:
            return _replay_here(applications, settings, as_json if json else as_text)
        except BrokenPipeError:
            # The reader closed the pipe, as ``head`` does: flush nothing at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
    require_spark("replay --spark")
    from .fleet import replay_fleet

    return replay_fleet(applications, policy(settings), settings.app_name, out)


def _replay_here(
    applications: Sequence[Application], settings: Settings, shown: Callable[[Change], str]
) -> int:
    progress = ProgressBar(applications)
    replays = []
    for application in applications:
        running = Replay(application, policy(settings), settings.app_name)
        for change in running.changes(progress.add):
            progress.clear()
            sys.stdout.write(f"{shown(change)}\n")
        replays.append(running.replayed)
        progress.clear()
        sys.stderr.writelines(f"querypulse: {text}\n" for text in complaints(running.replayed))
    sys.stdout.flush()
    sys.stderr.write(f"{summary(replays)}\n")
    return UNREADABLE if any(replay.error is not None for replay in replays) else 0
