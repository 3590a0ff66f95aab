"""Every link in the project has a target, and every alert a runbook."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from support.repository import (
    DASHBOARDS,
    METRIC,
    ROOT,
    grafana,
    markdown,
    own_alerts,
    prometheus_alerts,
    runbooks,
)

from querypulse.alerting.alert_text import alert_of
from querypulse.alerting.finding import Finding, Severity
from querypulse.core.states import QueryState
from querypulse.settings.links import guidance
from querypulse.settings.settings import DEFAULT_RUNBOOKS, Settings

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

MARKDOWN = markdown()
TEXTS = {".md", ".py", ".yaml", ".yml", ".json", ".toml", ".js", ".html", ".css"}


def home():
    """The repository address in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["urls"]["Repository"]


# -- Markdown ---------------------------------------------------------------------------------------


def without_code(text):
    return re.sub(
        r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    )


def links(text):
    """The targets of links and pictures, in Markdown and in HTML."""
    found = re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", without_code(text))
    return found + re.findall(r"<(?:a|img|source)\b[^>]*\b(?:href|src|srcset)=\"([^\"]+)\"", text)


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def anchors(path):
    return {slug(found) for found in re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)}


def target_of(name, link):
    """(path, anchor) of a link into the project; None for an external link."""
    ours = f"{home()}/blob/main/"
    if link.startswith(ours):
        path, _, anchor = link.removeprefix(ours).partition("#")
        return ROOT / unquote(path), anchor
    if re.match(r"[a-z]+:", link):
        return None
    path, _, anchor = link.partition("#")
    return (ROOT / name).parent / unquote(path) if path else ROOT / name, anchor


def has_target(name, link):
    found = target_of(name, link)
    if found is None:
        return True
    path, anchor = found
    return path.exists() and (not anchor or anchor in anchors(path))


@pytest.mark.parametrize("name", MARKDOWN)
def test_every_link_has_a_target(name):
    assert [link for link in links(MARKDOWN[name]) if not has_target(name, link)] == []


def test_links_are_found_and_checked():
    """The test above depends on these functions."""
    text = 'See [a](docs/rules.md#terms "t") and ![b](no.png), `[c](d)`; <img src="e.svg" alt="">'

    assert links(text) == ["docs/rules.md#terms", "no.png", "e.svg"]
    assert has_target("README.md", "docs/rules.md#terms")
    assert has_target("docs/watch.md", "../README.md")
    assert has_target("README.md", f"{home()}/blob/main/docs/watch.md")
    assert not has_target("README.md", "README.md#nothing-of-the-kind")
    assert not has_target("README.md", f"{home()}/blob/main/docs/nothing.md")
    assert not has_target("docs/watch.md", "CHANGELOG.md")
    assert sum(len(links(text)) for text in MARKDOWN.values()) > 50


@pytest.mark.parametrize("name", [name for name in MARKDOWN if name.startswith("dashboards/")])
def test_exported_files_link_only_to_exported_files_or_to_the_web(name):
    found = [target_of(name, link) for link in links(MARKDOWN[name]) if "://" not in link]

    assert [path for path, _ in found if not path.resolve().is_relative_to(DASHBOARDS)] == []


# -- alerts and their runbooks ----------------------------------------------------------------------


def test_alerts_and_runbooks_match():
    assert set(runbooks()) == own_alerts() | set(prometheus_alerts())


def test_prometheus_has_a_rule_for_every_alert_of_ours():
    assert own_alerts() <= set(prometheus_alerts())


def test_alert_of_the_driver_links_to_its_runbook():
    for name in own_alerts():
        finding = Finding(name, "q", Severity.CRITICAL, QueryState.FAILED, "reason", "summary", {})
        shown = alert_of(finding, "app", guidance(Settings()), 0.0)

        assert shown.annotations["runbook_url"] == f"{DEFAULT_RUNBOOKS}/{name}.md"


def test_alert_of_prometheus_links_to_its_runbook():
    linked = {
        name: rule["annotations"]["runbook_url"] for name, rule in prometheus_alerts().items()
    }

    assert linked == {name: f"{DEFAULT_RUNBOOKS}/{name}.md" for name in linked}


def test_runbook_address_matches_the_repository_address():
    assert f"{home()}/blob/main/dashboards/runbooks" == DEFAULT_RUNBOOKS


def test_every_link_into_the_repository_has_a_target():
    """Including those in rules, dashboards, code and the status page."""
    pattern = re.compile(re.escape(f"{home()}/blob/main/") + r"[\w./-]*[\w]")
    lost = {}
    for folder in ("dashboards", "exporter", "alerting", "sidecar", "listener", "docs"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in TEXTS and path.is_file():
                for link in pattern.findall(path.read_text()):
                    if not has_target("README.md", link):
                        lost[path.relative_to(ROOT).as_posix()] = link

    assert lost == {}


@pytest.mark.parametrize("document", ["docs/rules.md", "dashboards/runbooks/README.md"])
def test_every_alert_is_mentioned_in(document):
    expected = own_alerts() if document == "docs/rules.md" else set(runbooks())

    assert [name for name in sorted(expected) if name not in MARKDOWN[document]] == []


def test_dashboards_link_to_existing_runbooks():
    text = "".join(map(str, grafana().values()))
    linked = set(re.findall(re.escape(DEFAULT_RUNBOOKS) + r"/(\w+)\.md", text))

    assert linked <= set(runbooks())


def test_metric_names_are_recognised_in_text():
    """``support.repository`` depends on this pattern."""
    assert METRIC.findall("`spark_streaming_query_state{state}` of querypulse_x_total.") == [
        "spark_streaming_query_state",
        "querypulse_x_total",
    ]
