"""The shipped Alertmanager configuration, changed for the demo stack."""

from __future__ import annotations

import yaml

HEADER = """\
# Made by `make dashboards` from ../alertmanager/alertmanager.yaml: the same routes, groups and
# inhibitions. The receivers notify nobody: see http://localhost:9093/ instead.
"""


def quiet(shipped: str) -> str:
    """The text of a configuration whose receivers have names and nothing else."""
    config = yaml.safe_load(shipped)
    config["receivers"] = [{"name": receiver["name"]} for receiver in config["receivers"]]
    return HEADER + yaml.safe_dump(config, sort_keys=False)
