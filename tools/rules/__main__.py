"""``python -m tools.rules``: write both files into ``dashboards/prometheus``."""

from __future__ import annotations

from pathlib import Path

from tools.rules.drivers import DRIVERS, WATCHDOG
from tools.rules.queries import QUERIES
from tools.rules.rendering import manifest, rule_file
from tools.rules.rule import Group

FOLDER = Path(__file__).parents[2] / "dashboards" / "prometheus"
GROUPS = (
    Group("querypulse-queries", QUERIES),
    Group("querypulse-drivers", DRIVERS),
    Group("querypulse-watchdog", WATCHDOG),
)


def files() -> dict[str, str]:
    """What is to be written, by file name."""
    return {"rules.yaml": rule_file(GROUPS), "prometheus-rule.yaml": manifest(GROUPS)}


def main() -> None:
    """Write them."""
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
