"""Runs every benchmark, one process each: a folder here that holds a ``__main__.py``.

``python -m benchmarks.run`` runs them all and ends with one table; ``python -m
benchmarks.<folder>`` runs one of them.
"""

import subprocess
import sys
import time
from pathlib import Path

from .common.result import lines, read

HERE = Path(__file__).parent


def main() -> int:
    """Run them in turn, each to its end; 1 when one of them broke, whatever it measured."""
    began = time.monotonic()
    names = sorted(file.parent.name for file in HERE.glob("*/__main__.py"))
    broken = [name for name in names if not _runs(name)]
    rows = [row for name in names for row in read(name)]
    print(*lines("All of it", rows), sep="\n")
    print(f"\n{time.monotonic() - began:.0f} s; broken: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


def _runs(name: str) -> bool:
    print(f"\n== {name}", flush=True)
    return subprocess.call([sys.executable, "-m", f"benchmarks.{name}"], cwd=HERE.parent) == 0


if __name__ == "__main__":
    sys.exit(main())
