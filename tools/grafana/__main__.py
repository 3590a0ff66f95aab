"""``python -m tools.grafana [FOLDER]``: write the dashboards, by default where they belong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools.grafana.fleet import fleet_dashboard
from tools.grafana.query import query_dashboard

HOME = Path(__file__).parents[2] / "dashboards" / "grafana"

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else HOME
    for name, dashboard in (("fleet", fleet_dashboard()), ("query", query_dashboard())):
        text = json.dumps(dashboard, indent=2, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
