"""Runs every benchmark, one process each: a folder here that holds a ``__main__.py``.

``python -m benchmarks.run`` runs them all and ends with one table; ``python -m
benchmarks.<folder>`` runs one of them. What a run has left in ``build/benchmarks`` is put into
``docs/benchmarks.md`` by ``python -m benchmarks.page``.
"""

import json
import os
import platform
import re
import subprocess
import sys
import time
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from .common.result import FOLDER, forget, lines, sections


def machine() -> dict[str, str]:
    """The machine: its cores and how busy they were, and the versions that matter."""
    return {
        "cores": f"{len(os.sched_getaffinity(0))} ({_processor()})",
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "Java": _java(),
        "Spark": version("pyspark"),
    }


def _processor() -> str:
    try:
        found = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        )
    except OSError:
        return platform.processor()
    return found.group(1) if found else platform.processor()


def _java() -> str:
    text = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'"(.+?)"', text)
    return found.group(1) if found else "unknown"


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
