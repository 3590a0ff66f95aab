"""The demo in a process of its own, as users start it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

DEMO_SECONDS = 540.0
"""It has limits of its own; pytest ends a test after ten minutes."""
QUERYPULSE = [
    sys.executable,
    "-Ic",
    "import sys; from querypulse.commands.cli import main; sys.exit(main())",
]
COMMAND = [*QUERYPULSE, "demo"]
ON_DELTA = [sys.executable, "-Im", "querypulse.examples.delta"]


def demo(*arguments, command=COMMAND, **environment):
    return subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def querypulse(*arguments):
    return demo(*arguments, command=QUERYPULSE)


def unwrapped(text):
    """The text of the pages without line wraps, which depend on the path of the checkout."""
    return re.sub(r"\n  \| {14}", " ", text)
