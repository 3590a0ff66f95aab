"""``querypulse replay``: evaluates recorded events as if live."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..core.files import write_whole
from ..core.installed import require_spark
from ..recording.page import page_of
from ..recording.timeline import timeline_of
from ..settings.settings import Settings
from .engine import Change, Replayed, replay_application
from .log_files import Application, ReplayError, find_applications
from .recorded import is_recording, replay_recording
from .recordings import Recordings
from .report import as_json, as_text, complaints, exit_code, extent, summary
from .terms import chosen_settings, parse_choices, terms_of

DEFAULT_TABLE = "querypulse-replay.parquet"
PAGE_MODE = 0o644


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
    parser.add_argument(
        "--html",
        metavar="OUT",
        help="also write a page of the incidents: who would have been notified, and why",
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
    html: str | None = None,
) -> int:
    """Replay; 0 when everything was evaluated, 2 when something could not be read.

    Raises:
        NotInstalledError: the package of a codec, or Spark, is not installed.
        SettingsError: a setting is unknown or not allowed.
        ReplayError: a path does not exist or contains no log, or the table exists already, or the
            page cannot be written.

    """
    chosen = parse_choices(choices)
    settings = chosen_settings(chosen)
    applications = find_applications(paths)
    if spark:
        if html is not None:
            raise ReplayError("--html: not with --spark, which writes a table")
        _refuse_recordings(applications, "--spark", "replay it without")
        require_spark("replay --spark")
        from .fleet import replay_fleet

        return replay_fleet(applications, terms_of(settings), out)
    shown = as_json if json else as_text
    if html is None:
        replays = _replay_here(applications, settings, chosen, shown)
    else:
        page = _free_page(html, applications)
        with TemporaryDirectory(prefix="querypulse-replay-") as folder:
            recordings = Recordings(Path(folder), settings)
            replays = _replay_here(applications, settings, chosen, shown, recordings)
            _write_page(page, recordings, f"Replay of {extent(replays)}")
    return exit_code(replays)


def _free_page(html: str, applications: Sequence[Application]) -> Path:
    """Where the page is written; checked before a replay that may take long."""
    page = Path(html)
    if page.is_dir() or not page.parent.is_dir():
        raise ReplayError(f"--html {html}: give a file in a folder that exists")
    _refuse_recordings(applications, "--html", f"draw it by querypulse incident FILE --html {html}")
    return page


def _refuse_recordings(applications: Sequence[Application], option: str, advice: str) -> None:
    for application in applications:
        if is_recording(application):
            raise ReplayError(f"{option}: {application.path} is a recording: {advice}")


def _write_page(page: Path, recordings: Recordings, title: str) -> None:
    if recordings.dropped:
        left_out = f"{recordings.dropped:,} older incidents"
        sys.stderr.write(f"querypulse: {page}: left out {left_out}: it shows the newest\n")
    timelines = [timeline_of([recording]) for recording in recordings.read()]
    try:
        write_whole(page, page_of(timelines, title).encode(), PAGE_MODE)
    except OSError as error:
        raise ReplayError(f"--html {page}: {error.strerror}") from None
    sys.stderr.write(f"page: {page}\n")


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
    applications: Sequence[Application],
    settings: Settings,
    chosen: Mapping[str, Any],
    shown: Callable[[Change], str],
    recordings: Recordings | None = None,
) -> list[Replayed]:
    terms = terms_of(settings)
    replays = [Replayed(settings.app_name or entry.label, entry.path) for entry in applications]
    progress = Progress(applications)
    for application, replayed in zip(applications, replays, strict=True):
        if is_recording(application):
            changes = replay_recording(application, chosen, replayed, progress.add)
        else:
            changes = replay_application(application, terms, replayed, progress.add, recordings)
        for change in changes:
            progress.clear()
            sys.stdout.write(f"{shown(change)}\n")
        progress.clear()
        sys.stderr.writelines(f"querypulse: {text}\n" for text in complaints(replayed))
    sys.stdout.flush()
    sys.stderr.write(f"{summary(replays)}\n")
    return replays
