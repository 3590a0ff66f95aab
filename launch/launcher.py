"""What spark-submit runs: ``spark-submit $(querypulse launcher) job.py ARGS...``."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> int:
    """Run the job; returns 2 if no job is named."""
    # spark-submit runs this file, or a copy of it, as a script outside the package.
    process = import_module("querypulse.launch.process")
    try:
        process.run_job(sys.argv[1:])
    except process.LaunchError as error:
        sys.stderr.write(f"querypulse: launcher: {error}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
