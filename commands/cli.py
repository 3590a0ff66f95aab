"""The console script ``querypulse``."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Any

from ..core.installed import VERSION, require_spark
from ..core.text import suggest
from ..launch.auto_attach import site_packages, status_lines, switch
from ..launch.launcher import launcher_script, run_job
from ..replay.command import add_arguments, replay
from ..settings.mistakes import mask_mistake
from ..watch.command import WatchRequest, add_watch_arguments, watch
from .check import add_test_arguments, check, try_receivers
from .connect_server import add_connect_server_arguments, connect_server
from .demo.scenarios import DemoSettings, add_demo_arguments
from .exit_code import exit_code
from .export_dashboards import add_dashboards_arguments, export_dashboards
from .incidents import (
    add_incident_arguments,
    add_incidents_arguments,
    list_incidents,
    show_incident,
)
from .silence import SilenceRequest, add_silence_arguments, silence

_OPTION = re.compile(r"--[a-z][a-z-]*")
RUN_USAGE = "querypulse run job.py ARGS...\n       querypulse run -m MODULE ARGS..."

CONNECT_SERVER_USAGE = "querypulse connect-server [--port N] [OPTIONS OF SPARK-SUBMIT]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (2: it could not begin)."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["run"] and words[1:2] not in (["-h"], ["--help"]):
        # The words belong to the job.
        return exit_code(lambda: run_job(words[1:]))
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal in ASCII shows an escape of a name that it cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    arguments = vars(_parser().parse_args(words))
    command = arguments.pop("command")
    return exit_code(lambda: _COMMANDS[command](**arguments))


class _Parser(argparse.ArgumentParser):
    """Says what a word may mean that its command does not take, and shows no value: a secret."""

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        arguments, rest = super().parse_known_args(*args, **kwargs)
        if rest:
            self.error(_unrecognized(rest, _OPTION.findall(self.format_help())))
        return arguments, rest


def _unrecognized(rest: Sequence[str], options: Sequence[str]) -> str:
    name = next((word for word in rest if word.startswith("--")), "").partition("=")[0]
    what = f"unrecognized arguments: {name or mask_mistake(rest[0])}"
    if f"{name}-file" in options:
        return f"{what}; ps shows a secret in the command line: give {name}-file FILE"
    return f"{what}; {suggest(name, options) or '--help lists what is allowed'}"


def _show_launcher() -> int:
    sys.stdout.write(f"{launcher_script()}\n")
    return 0


def _auto_attach(action: str) -> int:
    """Switch, and print what is in force."""
    folder = site_packages()
    if action != "status":
        switch(folder, on=action == "on")
    sys.stdout.write("".join(f"{line}\n" for line in status_lines(folder, os.environ)))
    return 0


def _demo(settings: DemoSettings) -> int:
    require_spark()
    from .demo.demo import run

    return run(settings)


_COMMANDS: dict[str, Callable[..., int]] = {
    "demo": lambda **arguments: _demo(DemoSettings(**arguments)),
    "launcher": _show_launcher,
    "auto-attach": _auto_attach,
    "connect-server": lambda **arguments: connect_server(os.environ, **arguments),
    "replay": replay,
    "check": lambda: check(os.environ),
    "test-alert": lambda **arguments: try_receivers(os.environ, **arguments),
    "watch": lambda **arguments: watch(WatchRequest(**arguments), os.environ),
    "silence": lambda **arguments: silence(SilenceRequest(**arguments), os.environ),
    "incidents": lambda **arguments: list_incidents(os.environ, **arguments),
    "incident": lambda **arguments: show_incident(os.environ, **arguments),
    "dashboards": lambda **arguments: export_dashboards(os.environ, **arguments),
}


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="querypulse",
        description="Health monitor for the queries of a Spark Structured Streaming job.",
    )
    parser.add_argument("--version", action="version", version=f"querypulse {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)
    add_demo_arguments(
        commands.add_parser("demo", help="run eight queries, let one fail, and show the alert")
    )
    commands.add_parser("run", usage=RUN_USAGE, help="run a job, unchanged, and attach to it")
    commands.add_parser("launcher", help="print the script with which spark-submit attaches")
    attaching = commands.add_parser("auto-attach", help="attach to all drivers of this environment")
    attaching.add_argument(
        "action", choices=("on", "off", "status"), help="write, remove or show it"
    )
    serving = commands.add_parser(
        "connect-server",
        usage=CONNECT_SERVER_USAGE,
        help="start a driver that serves Spark Connect, and attach to it",
        allow_abbrev=False,
    )
    add_connect_server_arguments(serving)
    add_arguments(commands.add_parser("replay", help="evaluate recorded events as if live"))
    commands.add_parser("check", help="print the settings in force and where each came from")
    add_test_arguments(
        commands.add_parser("test-alert", help="send a test alert to every receiver")
    )
    # No abbreviations: "--webhook-url URL" or "--token T" would read a secret as a file name,
    # and show it in an error.
    watching = commands.add_parser(
        "watch", help="page when a driver goes down; runs outside the drivers", allow_abbrev=False
    )
    add_watch_arguments(watching)
    silencing = commands.add_parser(
        "silence", help="suppress matching alerts for a time", allow_abbrev=False
    )
    add_silence_arguments(silencing)
    add_incidents_arguments(
        commands.add_parser(
            "incidents", help="list the incidents that were recorded", allow_abbrev=False
        )
    )
    add_incident_arguments(
        commands.add_parser(
            "incident", help="show what happened in one of them", allow_abbrev=False
        )
    )
    add_dashboards_arguments(
        commands.add_parser("dashboards", help="export rules, dashboards and runbooks as files")
    )
    return parser
