"""The arguments of ``querypulse demo``, and the record they become."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import msgspec

from .scenarios import SCENARIOS

AFTERMATH_SECONDS = 5.0


class DemoSettings(msgspec.Struct, frozen=True):
    """How to run the demo; times in seconds."""

    scenario: str = "failure"
    queries: int = 8
    after: float = 20.0
    duration: float | None = None
    """How long to run at least, once every query has committed."""
    webhook_url: str | None = None
    http_port: int = 0
    supervised: bool = False
    """Whether the job waits for any failure and ends with it, as jobs should."""
    folder: str | None = None
    """Keeps the job's tables, topics and checkpoints; by default they are deleted at the end."""
    event_log: str | None = None
    """The folder for Spark's own event log, as in production; none by default."""

    def remaining(self, elapsed: float) -> float:
        """How long to go on after the report; ``elapsed`` counts from the commits, as above."""
        return max(AFTERMATH_SECONDS, (self.duration or 0.0) - elapsed)


MIN_QUERIES = 2


def add_demo_arguments(demo: argparse.ArgumentParser) -> None:
    """Declare what ``DemoSettings`` contains."""
    add = demo.add_argument
    add(
        "--scenario",
        choices=tuple(SCENARIOS),
        default="failure",
        help="what happens to query 8, or to bronze, which the others read (%(default)s)",
    )
    add(
        "--supervised",
        action="store_true",
        help="end with 3 when a query fails, so that a scheduler restarts the job",
    )
    add("--queries", type=_query_count, default=8, metavar="N")
    add("--after", type=_seconds, default=20.0, metavar="SECONDS", help="how long all are healthy")
    add(
        "--duration",
        type=_seconds,
        default=None,
        metavar="SECONDS",
        help="the shortest time that the demo runs",
    )
    add("--webhook-url", default=None)
    add("--http-port", type=int, default=0)
    add(
        "--folder",
        type=_folder,
        default=None,
        metavar="DIR",
        help="keep tables and checkpoints here; the next start continues from them",
    )
    add(
        "--event-log", type=_folder, default=None, metavar="DIR", help="keep Spark's event log here"
    )


def _query_count(text: str) -> int:
    if not text.isdecimal() or int(text) < MIN_QUERIES:
        raise argparse.ArgumentTypeError(f"{MIN_QUERIES} queries or more, given {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"seconds, 0 or more, given {text!r}")
    return seconds


def _folder(text: str) -> str:
    if Path(text).exists() and not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"a folder, given the file {text!r}")
    return text
