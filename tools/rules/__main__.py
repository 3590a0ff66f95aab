"""``python -m tools.rules [FOLDER]``: write both files; by default where they are shipped."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.rules.drivers import DRIVERS, WATCHDOG
from tools.rules.queries import QUERIES
from tools.rules.rendering import manifest, rule_file
from tools.rules.rule import RuleGroup

FOLDER = Path(__file__).parents[2] / "dashboards" / "prometheus"
GROUPS = (
    RuleGroup("querypulse-queries", QUERIES),
    RuleGroup("querypulse-drivers", DRIVERS),
    RuleGroup("querypulse-watchdog", WATCHDOG),
)


def main(folder: Path) -> None:
    """Write both files."""
    (folder / "rules.yaml").write_text(rule_file(GROUPS), encoding="utf-8")
    (folder / "prometheus-rule.yaml").write_text(manifest(GROUPS), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
