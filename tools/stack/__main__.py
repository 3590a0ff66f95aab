"""``python -m tools.stack [FOLDER]``: write it, by default where it belongs."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.stack.alertmanager import quiet

DASHBOARDS = Path(__file__).parents[2] / "dashboards"


def write(folder: Path) -> None:
    """Write the stack's Alertmanager configuration; the bytes are reproducible."""
    shipped = (DASHBOARDS / "alertmanager" / "alertmanager.yaml").read_text(encoding="utf-8")
    (folder / "alertmanager.yaml").write_text(quiet(shipped), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if sys.argv[1:] else DASHBOARDS / "compose")
