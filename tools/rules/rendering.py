"""Rules -> YAML with comments for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from querypulse.settings.settings import DEFAULT_RUNBOOKS
from tools.rules.expressions import indented
from tools.rules.rule import Rule, RuleGroup

WIDTH = 100
ABOUT = """\
# Prometheus' alerts about Spark's streaming queries, for drivers with querypulse inside.
# Written by `python -m tools.rules`: change tools/rules, not this file.
#
# They are the second line: querypulse itself alerts within seconds, Prometheus some minutes
# later, and also when querypulse cannot. Each alert has the name and the labels of querypulse's
# own (alertname, app, query, severity), so that Alertmanager holds one alert for both senders.
#
# The expressions have the same building blocks:
#
#   a measurement       in querypulse's metrics; absent if only querypulse's evaluation can find it
#   ..._alerting_enabled == 1    queries under the setting `ignore` never alert
#   or ..._alert        querypulse's own alert; for five minutes after the driver's last scrape,
#                       the alerts open at that scrape: a failed scrape resolves nothing, and
#                       an alert that resolved before stays resolved
#   unless ... offset   no heartbeat of the driver for five minutes: StreamingDriverDown covers all
#
# Ages use the driver's own clock (its heartbeat), not Prometheus' clock.
# Windows and grace periods are querypulse's settings, except for the numbers explained here.
# There is no keep_firing_for if querypulse sends the alert, too: Alertmanager would reopen an
# alert that querypulse has just resolved. Needs Prometheus 2.42 or newer, and a scrape at least
# every minute.
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


def rule_file(groups: Sequence[RuleGroup]) -> str:
    """The rule file for Prometheus."""
    return ABOUT + _groups(groups)


def manifest(groups: Sequence[RuleGroup]) -> str:
    """The manifest for the Prometheus Operator."""
    return ABOUT + "#\n" + MANIFEST + indented(_groups(groups), 2)


def _groups(groups: Sequence[RuleGroup]) -> str:
    return "groups:\n" + "\n".join(map(_group, groups))


def _group(group: RuleGroup) -> str:
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
    """Quoted, unless it is a plain word: a template needs quotes."""
    return text if text.isalpha() else f'"{text}"'


def _times(rule: Rule) -> dict[str, str]:
    return {"for": rule.wait, "keep_firing_for": rule.keep}


def _labels(rule: Rule) -> dict[str, str]:
    return {"app": rule.app, "query": rule.query}


def _folded(name: str, text: str) -> Iterator[str]:
    """A text on as many lines as it needs; a line with a template pipe is never broken."""
    if not text:
        return
    yield f"    {name}: >-"
    lines = [text] if "|" in text else textwrap.wrap(text, WIDTH - 12, break_long_words=False)
    yield from (f"      {line}" for line in lines)
