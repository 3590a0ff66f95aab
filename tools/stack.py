"""``python -m tools.stack [FOLDER]``: write the Alertmanager configuration of the demo stack.

It is the shipped one, whose receivers have names and nothing else: they notify nobody.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

DASHBOARDS = Path(__file__).parents[1] / "dashboards"
HEADER = """\
# Made by `make dashboards` from ../alertmanager/alertmanager.yaml: the same routes, groups and
# inhibitions. The receivers notify nobody: see http://localhost:9093/ instead.
"""

if __name__ == "__main__":
    shipped = (DASHBOARDS / "alertmanager" / "alertmanager.yaml").read_text(encoding="utf-8")
    config = yaml.safe_load(shipped)
    config["receivers"] = [{"name": receiver["name"]} for receiver in config["receivers"]]
    folder = Path(sys.argv[1]) if sys.argv[1:] else DASHBOARDS / "compose"
    text = HEADER + yaml.safe_dump(config, sort_keys=False)
    (folder / "alertmanager.yaml").write_text(text, encoding="utf-8")
