"""The smaller commands of ``querypulse``; demo, replay and watch have packages of their own."""

from __future__ import annotations

import sys

from ..core import COULD_NOT_BEGIN
from ..core.installed import explained_imports


def main() -> int:
    """Run the console script; 2 and one line where a package is missing or too old."""
    try:
        with explained_imports():
            from .cli import main as run
    except ImportError as error:
        sys.stderr.write(f"querypulse: {error}\n")
        return COULD_NOT_BEGIN
    return run()
