"""``querypulse run``, ``querypulse launcher`` and ``querypulse auto-attach``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..launch.auto_attach import site_packages, status_lines, switch_off, switch_on
from ..launch.process import launcher, run_job

RUN_USAGE = "querypulse run job.py ARGS...\n       querypulse run -m MODULE ARGS..."


def is_run(words: Sequence[str]) -> bool:
    """Whether the command is ``run``, whose words belong to the job, and not its help."""
    return words[:1] == ["run"] and words[1:2] not in (["-h"], ["--help"])


def run(words: Sequence[str]) -> int:
    """Become the job.

    Raises:
        LaunchError: no job is named, or Python cannot be started.

    """
    run_job(words)


def show_launcher() -> int:
    """Print the path of the script for spark-submit.

    Raises:
        LaunchError: querypulse is imported from an archive.

    """
    sys.stdout.write(f"{launcher()}\n")
    return 0


def add_auto_attach_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``querypulse auto-attach``."""
    parser.add_argument("action", choices=("on", "off", "status"), help="write, remove or show it")


def auto_attach(action: str) -> int:
    """Switch, and print what is in force.

    Raises:
        AutoAttachError: the file cannot be read, written or removed.

    """
    folder = site_packages()
    if action == "on":
        switch_on(folder)
    if action == "off":
        switch_off(folder)
    sys.stdout.write("".join(f"{line}\n" for line in status_lines(folder, os.environ)))
    return 0
