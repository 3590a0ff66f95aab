"""Rules -> YAML with comments, for people first. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from querypulse.sidecar.configuration.settings import DEFAULT_RUNBOOKS
from tools.rules.expressions import indented
from tools.rules.rule import Group, Rule

WIDTH = 100
ABOUT = """\
# Prometheus' alerts about Spark's streaming queries, for drivers with querypulse inside.
# Written by `python -m tools.rules`: change tools/rules, not this file.
#
# They are the second opinion: querypulse itself tells within seconds, Prometheus some minutes
# later, and also when querypulse cannot. Each alert has the name and the labels of querypulse's
# own (alertname, app, query, severity), so that Alertmanager holds one alert, whoever told it.
#
# The expressions are made of the same parts:
#
#   what is wrong       as querypulse has measured it; left out where only its judging can tell
#   ..._alerting_enabled == 1    nobody is told of queries under the setting `ignore`
#   or ..._alert        querypulse's own alert; for five minutes after the driver's last scrape,
#                       those that were open then: a scrape that fails resolves nothing, and
#                       what had resolved before stays resolved
#   unless ... offset   no heartbeat of the driver for five minutes: StreamingDriverDown covers all
#
# Ages are reckoned by the driver's own clock (its heartbeat), whatever Prometheus' clock says.
# Windows and graces are querypulse's settings, but for the numbers that are explained here.
# No keep_firing_for where querypulse tells the alert too: Alertmanager would open again what
# querypulse has just closed. Needs Prometheus 2.42 or newer, and a scrape every minute or oftener.
"""
MANIFEST = """\
# The same as rules.yaml, for the Prometheus Operator (and for VictoriaMetrics', Mimir's and others
# that read this kind). Your Prometheus selects rules by labels (ruleSelector): add what it wants.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: querypulse
  labels:
    app.kubernetes.io/name: querypulse
spec:
"""


def rule_file(groups: Sequence[Group]) -> str:
    """What Prometheus reads."""
    return ABOUT + _groups(groups)


def manifest(groups: Sequence[Group]) -> str:
    """What the Prometheus Operator reads."""
    return ABOUT + "#\n" + MANIFEST + indented(_groups(groups), 2)


def _groups(groups: Sequence[Group]) -> str:
    return "groups:\n" + "\n".join(map(_group, groups))


def _group(group: Group) -> str:
    rules = "\n".join(indented("\n".join(_rule(rule)) + "\n", 6) for rule in group.rules)
    return f"  - name: {group.name}\n    rules:\n{rules}"


def _rule(rule: Rule) -> Iterator[str]:
    yield from (f"# {line}" for line in textwrap.wrap(rule.comment, WIDTH - 8))
    yield f"- alert: {rule.name}"
    yield from ("  expr: |", indented(rule.expr, 4))
    yield from (f"  {name}: {time}" for name, time in _times(rule).items() if time)
    yield "  labels:"
    yield from (f'    {name}: "{value}"' for name, value in _labels(rule).items() if value)
    yield f"    severity: {_quoted(rule.severity)}"
    yield "  annotations:"
    yield from _folded("summary", rule.summary)
    yield from _folded("description", rule.description)
    yield from _folded("reason", rule.reason)
    yield f"    runbook_url: {DEFAULT_RUNBOOKS}/{rule.name}.md"


def _quoted(text: str) -> str:
    """A template is no plain word."""
    return text if text.isalpha() else f'"{text}"'


def _times(rule: Rule) -> dict[str, str]:
    return {"for": rule.wait, "keep_firing_for": rule.keep}


def _labels(rule: Rule) -> dict[str, str]:
    return {"app": rule.app, "query": rule.query}


def _folded(name: str, text: str) -> Iterator[str]:
    """A text over as many lines as it needs; a line of a template is never broken."""
    if not text:
        return
    yield f"    {name}: >-"
    lines = [text] if "|" in text else textwrap.wrap(text, WIDTH - 12, break_long_words=False)
    yield from (f"      {line}" for line in lines)
