"""The demo as a process of its own, as people start it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

COMMAND = [
    sys.executable,
    "-Ic",
    "import sys; from querypulse.sidecar.cli import main; sys.exit(main())",
    "demo",
]


def demo(*arguments, timeout=170, **environment):
    """Play it to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def unwrapped(text):
    """What the pages say, however long the lines are that the checkout's path makes."""
    return re.sub(r"\n  \| {14}", " ", text)
