"""``python -m tools.wording``: report each retired word in the checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.wording.words import EXCEPTIONS, unexpected

NOT_READ = {".png", ".svg", ".zstd"}
"""Pictures, and recordings of Spark's."""


def main() -> int:
    """Check every tracked text file; 1 if there is a retired word or an unused exception."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], text=True)  # noqa: S607 - git of the PATH, as people use it
    names = [name for name in listed.split("\0") if name and Path(name).is_file()]
    used: set[tuple[str, str]] = set()
    found = [
        message
        for name in names
        if Path(name).suffix not in NOT_READ
        for message in unexpected(
            name, Path(name).read_text(encoding="utf-8", errors="replace"), used
        )
    ]
    found += [f"{name}: {word!r} needs no exception" for name, word in EXCEPTIONS.keys() - used]
    sys.stdout.writelines(f"{message}\n" for message in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
