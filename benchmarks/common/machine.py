"""What a benchmark ran on."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path


def machine() -> dict[str, str]:
    """Its cores and how busy they were, and the versions that matter."""
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
