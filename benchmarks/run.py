"""Runs every benchmark, one process each: a folder here that holds a ``__main__.py``.

``python -m benchmarks.run`` runs them all and ends with one table; ``python -m
benchmarks.<folder>`` runs one of them. What a run has left in ``build/benchmarks`` is put into
``docs/benchmarks.md`` by ``python -m benchmarks.page``.
"""

import json
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from .common.machine import machine
from .common.result import FOLDER, forget, lines
from .common.table import sections

HERE = Path(__file__).parent


def main() -> int:
    """Run them in turn, each to its end; 1 when one of them broke, whatever it measured."""
    began, ran_on = time.monotonic(), machine()
    names = sorted(file.parent.name for file in HERE.glob("*/__main__.py"))
    broken = [name for name in names if not _runs(name)]
    took = time.monotonic() - began
    ran = {"day": f"{datetime.now(timezone.utc):%Y-%m-%d}", "seconds": round(took), **ran_on}
    (FOLDER / "machine.json").write_text(json.dumps(ran))
    for title, rows in sections(names):
        print(*lines(title, rows), sep="\n")
    print("\n" + ", ".join(f"{name} {value}" for name, value in ran.items()))
    print(f"broken: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


def _runs(name: str) -> bool:
    forget(name)
    print(f"\n== {name}", flush=True)
    began = time.monotonic()
    code = subprocess.call([sys.executable, "-m", f"benchmarks.{name}"], cwd=HERE.parent)
    print(f"\n  {name}: {time.monotonic() - began:.0f} s", flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main())
