"""``querypulse replay``: evaluates recorded events as if live."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

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


# -- choices ----------------------------------------------------------------------------------
# ``--set NAME=VALUE``: settings to try, with the value as in TOML.


def chosen_settings(choices: Iterable[str]) -> Settings:
    """The settings in force, overridden by ``choices``; a later one wins.

    Raises:
        SettingsError: a choice is not ``NAME=VALUE``, or its setting is unknown or not allowed.

    """
    values: dict[str, Any] = {}
    for choice in choices:
        _merge(values, _parsed(choice))
    return load_strictly(values, os.environ).settings


def _parsed(choice: str) -> dict[str, Any]:
    name, equals, value = choice.partition("=")
    if not equals or not name.strip():
        raise SettingsError(f"--set {choice}: give NAME=VALUE, such as gone_grace_seconds=30")
    try:
        return tomllib.loads(choice)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(
            f"--set {choice}: the value is not TOML ({error}); "
            f"write a text as {name}={_quoted(value)}"
        ) from None


def _quoted(value: str) -> str:
    return '"' + value.strip().strip("\"'") + '"'


def _merge(values: dict[str, Any], more: dict[str, Any]) -> None:
    """Merge tables recursively, so that ``queries."a".ignore=true`` and ``queries."b"...`` add."""
    for name, value in more.items():
        known = values.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        else:
            values[name] = value


# -- progress bar -----------------------------------------------------------------------------
# Shows the progress of a long replay on a terminal.


LONG_BYTES = 64 * 1024 * 1024
EVERY_SECONDS = 0.2
MEGABYTE = 1024 * 1024


class ProgressBar:
    """Counts the bytes read; silent for short inputs, and if standard error is no terminal."""

    def __init__(self, applications: Iterable[Application]) -> None:
        files = {file for application in applications for file in application.files}
        self._total = sum(_size(Path(file)) for file in files)
        self._shown = self._total >= LONG_BYTES and sys.stderr.isatty()
        self._read = 0
        self._due = 0.0

    def add(self, size: int) -> None:
        """Add the bytes of one read."""
        self._read += size
        if self._shown and time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY_SECONDS
            percent = 100 * self._read / self._total
            self._write(
                f"{percent:3.0f}%  {self._read // MEGABYTE} of {self._total // MEGABYTE} MB"
            )

    def clear(self) -> None:
        """Clear the line for other output."""
        if self._shown:
            self._due = 0.0
            self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        # Reading the file reports the error.
        return 0


# -- command ----------------------------------------------------------------------------------


UNREADABLE = 2
DEFAULT_TABLE = "querypulse-replay.parquet"


class ReplayRequest(msgspec.Struct, frozen=True):
    """The arguments of the command line."""

    paths: tuple[str, ...]
    choices: tuple[str, ...] = ()
    json: bool = False
    spark: bool = False
    out: str = DEFAULT_TABLE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the fields of a ``ReplayRequest``."""
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


def replay(request: ReplayRequest) -> int:
    """Replay; 0 when everything was evaluated, 2 when something could not be read.

    Raises:
        NotInstalledError: the package of a codec, or Spark, is not installed.
        SettingsError: a setting is unknown or not allowed.
        ReplayError: a path does not exist or contains no log, or the table exists already.

    """
    settings = chosen_settings(request.choices)
    applications = find_applications(request.paths)
    if not request.spark:
        try:
            return _replay_here(applications, settings, as_json if request.json else as_text)
        except BrokenPipeError:
            # The reader closed the pipe, as ``head`` does: flush nothing at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
    require_spark("replay --spark")
    from .fleet import replay_fleet

    return replay_fleet(applications, policy(settings), settings.app_name, request.out)


def _replay_here(
    applications: Sequence[Application], settings: Settings, shown: Callable[[Change], str]
) -> int:
    progress = ProgressBar(applications)
    replays = []
    for application in applications:
        replay = Replay(application, policy(settings), settings.app_name)
        for change in replay.changes(progress.add):
            progress.clear()
            sys.stdout.write(f"{shown(change)}\n")
        replays.append(replay.replayed)
        progress.clear()
        sys.stderr.writelines(f"querypulse: {text}\n" for text in complaints(replay.replayed))
    sys.stdout.flush()
    sys.stderr.write(f"{summary(replays)}\n")
    return UNREADABLE if any(one.error is not None for one in replays) else 0
