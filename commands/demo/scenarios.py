"""What the demo plays: its scenarios, and the arguments that choose one."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import msgspec

from ...watch.command import seconds_from
from .pipeline import ALERTS, BRONZE, Pipeline


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One way to go wrong, the expected alert, and how soon it must fire (seconds)."""

    event: str
    description: str
    strike: Callable[[Pipeline], float | None]
    """Triggers the scenario; returns the Unix time at which it happened, if that is not now."""
    query: str = ALERTS
    """What goes wrong."""
    alertname: str | None = None
    within_seconds: float = 0.0
    ends_supervised: bool = True
    """Whether it ends ``await_any_failure``; a query that hangs has not failed."""


SCENARIOS = {
    "failure": Scenario(
        event="death",
        description="a second writer commits to the table that alert_resolution is merging into",
        strike=lambda pipeline: pipeline.conflict(),
        alertname="StreamingQueryFailed",
        within_seconds=30.0,
    ),
    "hang": Scenario(
        event="hang",
        description="a second writer takes the lock of alert_resolution's table and keeps it",
        strike=lambda pipeline: pipeline.is_free.clear(),
        alertname="StreamingQueryStalled",
        within_seconds=120.0,
        ends_supervised=False,
    ),
    "stop": Scenario(
        event="stop",
        description="somebody calls stop() on alert_resolution",
        strike=lambda pipeline: pipeline.stop_query(ALERTS),
        alertname="StreamingQueryStopped",
        within_seconds=60.0,
    ),
    "upstream": Scenario(
        event="failure",
        description="bronze can no longer write its checkpoint; the others read what bronze writes",
        strike=lambda pipeline: pipeline.block_commits(BRONZE),
        query=BRONZE,
        alertname="StreamingQueryFailed",
        within_seconds=60.0,
    ),
    "healthy": Scenario(
        event="nothing",
        description="nothing happens",
        strike=lambda _: None,
        ends_supervised=False,
    ),
}

MIN_QUERIES = 2


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


def add_demo_arguments(demo: argparse.ArgumentParser) -> None:
    """Declare what ``DemoSettings`` contains."""
    add = demo.add_argument
    defaults = DemoSettings()
    add(
        "--scenario",
        choices=tuple(SCENARIOS),
        default=defaults.scenario,
        help="what happens to query 8, or to bronze, which the others read (%(default)s)",
    )
    add(
        "--supervised",
        action="store_true",
        help="end with 3 when a query fails, so that a scheduler restarts the job",
    )
    add("--queries", type=_query_count, default=defaults.queries, metavar="N")
    times = {
        "after": "how long all are healthy",
        "duration": "the shortest time that the demo runs",
    }
    for name, text in times.items():
        default = getattr(defaults, name)
        add(f"--{name}", type=seconds_from(0), default=default, metavar="SECONDS", help=text)
    add("--webhook-url")
    add("--http-port", type=int, default=defaults.http_port)


def _query_count(text: str) -> int:
    if not text.isdecimal() or int(text) < MIN_QUERIES:
        raise argparse.ArgumentTypeError(f"{MIN_QUERIES} queries or more, given {text!r}")
    return int(text)
