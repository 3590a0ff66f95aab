"""The next steps of each Prometheus rule, from its runbook; ``make dashboards`` writes them."""

from __future__ import annotations

import re
from textwrap import indent

from support.repository import RULES

from querypulse.settings.links import next_steps

OF_RULE = re.compile(
    r"^( +)next_steps: \|-\n(?:\1  .*\n)+(?=\1runbook_url: \S+/(\w+)\.md$)", re.MULTILINE
)
FILES = sorted(RULES.rglob("*.yaml"))
"""The rules, and what their promtool tests expect."""
ON_THE_STATUS_PAGE = "The driver's status page shows what these steps name."


def with_steps(rules: str) -> str:
    """The rules with the steps that their runbooks have now."""
    return OF_RULE.sub(
        lambda rule: f"{rule[1]}next_steps: |-\n{indent(steps_of(rule[2]), f'{rule[1]}  ')}\n",
        rules,
    )


def steps_of(alertname: str) -> str:
    """The steps of its runbook, and where the evidence is that they name, such as python_line."""
    steps = next_steps()[alertname]
    return f"{steps}\n{ON_THE_STATUS_PAGE}" if re.search(r"[a-z]_[a-z]", steps) else steps


if __name__ == "__main__":
    for path in FILES:
        path.write_text(with_steps(path.read_text()))
