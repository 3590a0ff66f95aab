"""The next steps of each Prometheus rule, from its runbook; ``make dashboards`` writes them."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

from support.repository import RULES

from querypulse.alerting.facts import NotCompleted
from querypulse.alerting.kinds import QUERY_MISSING
from querypulse.alerting.words.next_steps import own_steps
from querypulse.settings.links import next_steps

OF_RULE = re.compile(
    r"^( +)next_steps: \|-\n(?:\1  .*\n)+(?=\1runbook_url: \S+/(\w+)\.md$)", re.MULTILINE
)
FILES = sorted(RULES.rglob("*.yaml"))
"""The rules, and what their promtool tests expect."""
ON_THE_STATUS_PAGE = "The driver's status page shows what these steps name."


LATE = own_steps(NotCompleted(times="", due_at=0.0, completed_at=None))
"""Of a run that is late while no driver is there."""


def with_steps(path: Path) -> str:
    """The rules of the file with the steps that their runbooks have now."""
    without_driver = path.stem != "queries"
    return OF_RULE.sub(
        lambda rule: (
            f"{rule[1]}next_steps: |-\n"
            f"{indent(steps_of(rule[2], without_driver=without_driver), f'{rule[1]}  ')}\n"
        ),
        path.read_text(),
    )


def steps_of(alertname: str, *, without_driver: bool = False) -> str:
    """The steps of its runbook, and where the evidence is that they name, such as python_line.

    Without a driver, nothing but a late run is missing, and there is no status page.
    """
    if without_driver and alertname == QUERY_MISSING:
        return LATE
    steps = next_steps()[alertname]
    return f"{steps}\n{ON_THE_STATUS_PAGE}" if re.search(r"[a-z]_[a-z]", steps) else steps


if __name__ == "__main__":
    for path in FILES:
        path.write_text(with_steps(path))
