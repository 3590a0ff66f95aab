"""Runs every benchmark, one process each, and ends with one table: ``python -m benchmarks.run``.

``python -m benchmarks.NAME`` runs one alone. ``python -m benchmarks.run page`` puts what the last
run has left in ``build/benchmarks`` into ``docs/internals/benchmarks.md``.
"""

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from .harness import RESULTS, ROOT, Row, print_rows

NAMES = (
    "attach",
    "black_box",
    "fleet",
    "start_cost",
    "callback_cost",
    "job_cost",
    "memory",
    "replay",
    "scale",
    "task_cost",
    "time_to_page",
)
PAGE = ROOT / "docs" / "internals" / "benchmarks.md"
MARKED = re.compile(r"(<!-- the last table -->\n).*(<!-- end of it -->)", re.DOTALL)


def main() -> int:
    """Run them in turn, each to its end; 1 when one of them broke, whatever it measured."""
    if sys.argv[1:] == ["page"]:
        _write_page()
        return 0
    began = time.monotonic()
    machine = _machine()
    broken = [name for name in NAMES if not _succeeds(name)]
    ran = {
        "day": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "seconds": round(time.monotonic() - began),
        **machine,
    }
    (RESULTS / "machine.json").write_text(json.dumps(ran))
    for title, rows in _sections():
        print_rows(title, rows)
    print("\n" + ", ".join(f"{name} {value}" for name, value in ran.items()))
    print(f"broken: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


def _succeeds(name: str) -> bool:
    (RESULTS / f"{name}.json").unlink(missing_ok=True)
    print(f"\n== {name}", flush=True)
    began = time.monotonic()
    code = subprocess.call([sys.executable, "-m", f"benchmarks.{name}"], cwd=ROOT)
    print(f"\n  {name}: {time.monotonic() - began:.0f} s", flush=True)
    return code == 0


def _sections() -> Iterator[tuple[str, list[Row]]]:
    """The question of each benchmark that has run, and its rows."""
    for file in (RESULTS / f"{name}.json" for name in NAMES):
        if file.exists():
            result = json.loads(file.read_text())
            yield result["title"], [Row(**row) for row in result["rows"]]


def _write_page() -> None:
    ran = json.loads((RESULTS / "machine.json").read_text())
    day = ran.pop("day")
    seconds = ran.pop("seconds")
    machine = ", ".join(f"{name} {value}" for name, value in ran.items())
    text = [f"{day}, {seconds} s, {machine}."]
    outcomes = {None: "", True: "met", False: "**missed**"}
    for title, rows in _sections():
        text += ["", f"### {title}", "", "| | measured | target | |", "|---|---|---|---|"]
        text += [
            f"| {row.question} | {row.measured} | {row.target} | {outcomes[row.reached]} |"
            for row in rows
        ]
    body = "\n".join(text)
    PAGE.write_text(MARKED.sub(lambda mark: f"{mark[1]}{body}\n{mark[2]}", PAGE.read_text()))


def _machine() -> dict[str, str]:
    """The machine: its cores and how busy they were, and the versions that matter."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return {
        "cores": f"{len(os.sched_getaffinity(0))} ({_processor()})",
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        "Java": _first_group(r'"(.+?)"', java.stderr) or "unknown",
        "Spark": version("pyspark"),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    return _first_group(r"(?m)^model name\s*:\s*(.+)$", text) or platform.processor()


def _first_group(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


if __name__ == "__main__":
    sys.exit(main())
