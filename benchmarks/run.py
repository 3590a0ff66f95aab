"""Runs every benchmark, one process each: a folder here that holds a ``__main__.py``.

``python -I benchmarks/run.py`` runs them all, ``python -I benchmarks/<folder>`` one of them:
Python puts a folder it is told to run on ``sys.path``, even in isolated mode.
"""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run them in turn, each to its end; 1 when one of them failed."""
    folders = sorted(file.parent for file in Path(__file__).parent.glob("*/__main__.py"))
    return max(subprocess.call([sys.executable, "-I", str(folder)]) != 0 for folder in folders)


if __name__ == "__main__":
    sys.exit(main())
