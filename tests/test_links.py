"""Every link of ours leads somewhere, and every alert to its runbook."""

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

from querypulse.alerting.finding import Finding, QueryState, Severity
from querypulse.alerting.lifecycle.wording import alert_of
from querypulse.sidecar.configuration.links import guidance
from querypulse.sidecar.configuration.settings import DEFAULT_RUNBOOKS, Settings

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

MARKDOWN = markdown()
TEXTS = {".md", ".py", ".yaml", ".yml", ".json", ".toml", ".js", ".html", ".css"}


def home():
    """Where the project says that it lives."""
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
    """(path, anchor) of a link that is ours to keep; None of one that leads away."""
    ours = f"{home()}/blob/main/"
    if link.startswith(ours):
        path, _, anchor = link.removeprefix(ours).partition("#")
        return ROOT / unquote(path), anchor
    if re.match(r"[a-z]+:", link):
        return None
    path, _, anchor = link.partition("#")
    return (ROOT / name).parent / unquote(path) if path else ROOT / name, anchor


def leads_somewhere(name, link):
    found = target_of(name, link)
    if found is None:
        return True
    path, anchor = found
    return path.exists() and (not anchor or anchor in anchors(path))


@pytest.mark.parametrize("name", MARKDOWN)
def test_every_link_leads_somewhere(name):
    assert [link for link in links(MARKDOWN[name]) if not leads_somewhere(name, link)] == []


def test_links_are_found_and_evaluated():
    """The test above is only as good as this."""
    text = 'See [a](docs/rules.md#terms "t") and ![b](no.png), `[c](d)`; <img src="e.svg" alt="">'

    assert links(text) == ["docs/rules.md#terms", "no.png", "e.svg"]
    assert leads_somewhere("README.md", "docs/rules.md#terms")
    assert leads_somewhere("docs/watch.md", "../README.md")
    assert leads_somewhere("README.md", f"{home()}/blob/main/docs/watch.md")
    assert not leads_somewhere("README.md", "README.md#nothing-of-the-kind")
    assert not leads_somewhere("README.md", f"{home()}/blob/main/docs/nothing.md")
    assert not leads_somewhere("docs/watch.md", "CHANGELOG.md")
    assert sum(len(links(text)) for text in MARKDOWN.values()) > 50


@pytest.mark.parametrize("name", [name for name in MARKDOWN if name.startswith("dashboards/")])
def test_what_is_exported_links_only_to_what_is_exported_or_to_the_web(name):
    found = [target_of(name, link) for link in links(MARKDOWN[name]) if "://" not in link]

    assert [path for path, _ in found if not path.resolve().is_relative_to(DASHBOARDS)] == []


# -- alerts and their runbooks ----------------------------------------------------------------------


def test_every_alert_has_its_runbook_and_every_runbook_its_alert():
    assert set(runbooks()) == own_alerts() | set(prometheus_alerts())


def test_prometheus_reports_every_alert_that_we_report():
    assert own_alerts() <= set(prometheus_alerts())


def test_an_alert_of_the_driver_leads_to_its_runbook():
    for name in own_alerts():
        finding = Finding(name, "q", Severity.CRITICAL, QueryState.FAILED, "reason", "summary", {})
        reported = alert_of(finding, "app", guidance(Settings()), 0.0)

        assert reported.annotations["runbook_url"] == f"{DEFAULT_RUNBOOKS}/{name}.md"


def test_an_alert_of_prometheus_leads_to_its_runbook():
    led = {name: rule["annotations"]["runbook_url"] for name, rule in prometheus_alerts().items()}

    assert led == {name: f"{DEFAULT_RUNBOOKS}/{name}.md" for name in led}


def test_runbooks_lie_where_the_project_says_that_it_lives():
    assert f"{home()}/blob/main/dashboards/runbooks" == DEFAULT_RUNBOOKS


def test_every_address_below_our_home_is_a_file_of_ours():
    """Also in rules, dashboards, code and the status page."""
    pattern = re.compile(re.escape(f"{home()}/blob/main/") + r"[\w./-]*[\w]")
    lost = {}
    for folder in ("dashboards", "exporter", "alerting", "sidecar", "listener", "docs"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in TEXTS and path.is_file():
                for link in pattern.findall(path.read_text()):
                    if not leads_somewhere("README.md", link):
                        lost[path.relative_to(ROOT).as_posix()] = link

    assert lost == {}


@pytest.mark.parametrize("document", ["docs/rules.md", "dashboards/runbooks/README.md"])
def test_no_alert_is_forgotten_in(document):
    reported = own_alerts() if document == "docs/rules.md" else set(runbooks())

    assert [name for name in sorted(reported) if name not in MARKDOWN[document]] == []


def test_dashboards_link_to_runbooks_that_there_are():
    text = "".join(map(str, grafana().values()))
    linked = set(re.findall(re.escape(DEFAULT_RUNBOOKS) + r"/(\w+)\.md", text))

    assert linked <= set(runbooks())


def test_a_name_of_a_metric_is_reported_from_a_word():
    """``support.repository`` is only as good as this."""
    assert METRIC.findall("`spark_streaming_query_state{state}` of querypulse_x_total.") == [
        "spark_streaming_query_state",
        "querypulse_x_total",
    ]
