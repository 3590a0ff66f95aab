"""``python -m tools.kubernetes``: writes Prometheus' rules and Alertmanager's routes of
``dashboards/`` as the resources of the Prometheus Operator, into ``deploy/kubernetes/base/``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
BASE = ROOT / "deploy" / "kubernetes" / "base"
RULES = ROOT / "dashboards" / "prometheus" / "drivers.yaml"
ROUTES = ROOT / "dashboards" / "alertmanager" / "alertmanager.yaml"
SECRET = "querypulse-alertmanager"  # noqa: S105 - the name of a Secret
"""Its keys are the files' names that ``ROUTES`` gives."""

MATCHER = re.compile(r'\s*(?P<name>\w+)\s*(?P<matchType>=~|!~|!=|=)\s*"(?P<value>.*)"\s*')
NAMES = {"source_matchers": "sourceMatch", "target_matchers": "targetMatch"}
SECRET_FILES = {
    "api_url_file": "apiURL",
    "routing_key_file": "routingKey",
    "url_file": "urlSecret",
    "webhook_url_file": "webhookURL",
}
LISTS_OF_PAIRS = frozenset({"details", "headers"})
LINKS = "links"
"""Of PagerDuty; their text is called ``alt`` in the operator's ``PagerDutyLinkConfig``."""


def prometheus_rule() -> str:
    """The rules, in a PrometheusRule."""
    head = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "querypulse-drivers"},
    }
    rules = RULES.read_text(encoding="utf-8")
    groups = rules[rules.index("groups:") :].splitlines()
    body = "\n".join(f"  {line}".rstrip() for line in groups)
    return f"{_written_by(RULES)}{_dump(head)}spec:\n{body}\n"


def alertmanager_config() -> str:
    """Routes, inhibition and receivers, in an AlertmanagerConfig."""
    config = yaml.safe_load(ROUTES.read_text(encoding="utf-8"))
    resource = {
        "apiVersion": "monitoring.coreos.com/v1alpha1",
        "kind": "AlertmanagerConfig",
        "metadata": {"name": "querypulse"},
        "spec": {
            "route": _converted(config["route"]),
            "inhibitRules": _converted(config["inhibit_rules"]),
            "receivers": _converted(config["receivers"]),
        },
    }
    return f"{_written_by(ROUTES)}{_dump(resource)}"


def _converted(value: Any) -> Any:
    """The same with the operator's names, matchers, pairs, and keys of the Secret for files."""
    if isinstance(value, list):
        return [_converted(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    converted: dict[str, Any] = {}
    table: dict[str, Any] = value
    for name, entry in table.items():
        if name in SECRET_FILES:
            converted[SECRET_FILES[name]] = {"name": SECRET, "key": Path(entry).name}
        elif name.endswith("matchers"):
            converted[NAMES.get(name, name)] = [_matcher(text) for text in entry]
        elif name in LISTS_OF_PAIRS:
            converted[name] = [{"key": key, "value": text} for key, text in entry.items()]
        elif name == LINKS:
            links = [{"href": link["href"], "alt": link["text"]} for link in entry]
            converted["pagerDutyLinkConfigs"] = links
        else:
            converted[_camel(name)] = _converted(entry)
    return converted


def _matcher(text: str) -> dict[str, str]:
    """One matcher.

    Raises:
        ValueError: it is none, or not written with quotes.

    """
    match = MATCHER.fullmatch(text)
    if match is None:
        raise ValueError(f"not a matcher: {text}")
    return match.groupdict()


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.upper() if word == "url" else word.title() for word in others)


def _dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=1000, allow_unicode=True)


def _written_by(source: Path) -> str:
    return f"# `make dashboards` writes this file from {source.relative_to(ROOT).as_posix()}.\n"


def main() -> None:
    """Write both files."""
    (BASE / "prometheusrule.yaml").write_text(prometheus_rule(), encoding="utf-8")
    (BASE / "alertmanagerconfig.yaml").write_text(alertmanager_config(), encoding="utf-8")


if __name__ == "__main__":
    main()
