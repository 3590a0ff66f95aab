"""What the demo plays: its scenarios, and the arguments that choose one."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from .pipeline import ALERTS, BRONZE, Pipeline

# -- scenarios --------------------------------------------------------------------------------
# The scenarios: what goes wrong with query 8, or with the first one.


NONE = "healthy"


class Scenario(msgspec.Struct, frozen=True):
    """One way to go wrong: its trigger, the expected alert, and how soon it must fire (seconds)."""

    name: str
    event: str
    alertname: str | None
    description: str
    within_seconds: float
    ends_supervised: bool
    """Whether it ends ``await_any_failure``; a query that hangs has not failed."""
    strike: Callable[[Pipeline], float]
    """Triggers the scenario; returns the Unix time at which it happened."""
    query: str = ALERTS
    """What goes wrong."""

    @property
    def waits_for(self) -> str:
        """The query that the job's main thread waits for: one that does not end by itself."""
        return ALERTS if self.query == BRONZE else BRONZE


def _fails(pipeline: Pipeline) -> float:
    """A second writer commits to alert_resolution's table until that query fails."""
    return pipeline.conflict()


def _hangs(pipeline: Pipeline) -> float:
    """Another writer takes the table's lock and never releases it."""
    pipeline.lock.take()
    return time.time()


def _stops(pipeline: Pipeline) -> float:
    """Somebody stops the query and does not start it again."""
    pipeline.stop_query(ALERTS)
    return time.time()


def _starves(pipeline: Pipeline) -> float:
    """Bronze can no longer write its checkpoint; seven queries read what it writes."""
    pipeline.block_commits(BRONZE)
    return time.time()


def _nothing(_pipeline: Pipeline) -> float:
    return time.time()


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "failure",
            "death",
            "StreamingQueryFailed",
            "a second writer commits to the table that alert_resolution is merging into",
            30.0,
            True,
            _fails,
        ),
        Scenario(
            "hang",
            "hang",
            "StreamingQueryStalled",
            "a second writer takes the lock of alert_resolution's table and keeps it",
            120.0,
            False,
            _hangs,
        ),
        Scenario(
            "stop",
            "stop",
            "StreamingQueryStopped",
            "somebody calls stop() on alert_resolution",
            60.0,
            True,
            _stops,
        ),
        Scenario(
            "upstream",
            "failure",
            "StreamingQueryFailed",
            "bronze can no longer write its checkpoint; the others read what bronze writes",
            60.0,
            True,
            _starves,
            BRONZE,
        ),
        Scenario(NONE, "nothing", None, "nothing happens", 0.0, False, _nothing),
    )
}


# -- demo arguments ---------------------------------------------------------------------------
# The arguments of ``querypulse demo``, and the record they become.


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
