"""``querypulse replay``: evaluates recorded events as if live."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

import msgspec

from ..core.installed import require_spark
from ..settings.settings import Settings
from ..settings.wiring import policy
from .applications import Application, find_applications
from .changes import Change
from .choices import chosen_settings
from .output import as_json, as_text, complaints, summary
from .progress_bar import ProgressBar
from .replaying import Replay

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
        one = Replay(application, policy(settings), settings.app_name)
        for change in one.changes(progress.add):
            progress.clear()
            sys.stdout.write(f"{shown(change)}\n")
        replays.append(one.replayed)
        progress.clear()
        sys.stderr.writelines(f"querypulse: {text}\n" for text in complaints(replays[-1]))
    sys.stdout.flush()
    sys.stderr.write(f"{summary(replays)}\n")
    return UNREADABLE if any(one.error is not None for one in replays) else 0
