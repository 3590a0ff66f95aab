"""A real Grafana accepts the shipped dashboards unchanged and answers all their panels.

Runs where a Docker engine answers or GRAFANA_HOME names an installation.
"""

import json
import re
from pathlib import Path

import pytest
from support import grafana as grafanas
from support.exporter_http import serving
from support.patience import until
from support.prometheus import RealPrometheus
from support.published_states import full_published

import querypulse.dashboards

pytestmark = [
    pytest.mark.grafana,
    pytest.mark.prometheus,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the image may have to be pulled
]

SHIPPED = Path(querypulse.dashboards.__file__).parent / "grafana"
UIDS = ("querypulse-fleet", "querypulse-query")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    with serving(full_published()) as exporter, RealPrometheus(folder, [exporter.url]) as real:
        until(lambda: real.query("spark_streaming_query_state"), "the exporter is scraped")
        yield real


@pytest.fixture(scope="module", params=grafanas.places())
def grafana(request, prometheus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("grafana")
    with grafanas.running(request.param, folder, SHIPPED, prometheus.url) as real:
        until(lambda: real.dashboards() >= set(UIDS), "both dashboards are listed")
        yield real


def shipped(uid):
    dashboards = [json.loads(path.read_text()) for path in SHIPPED.glob("*.json")]
    return next(dashboard for dashboard in dashboards if dashboard["uid"] == uid)


def panels(dashboard):
    """All panels, including those inside collapsed rows."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def requests_of(dashboard, panel):
    """A panel's targets as the browser sends them, with the variables filled in."""
    text = json.dumps(panel["targets"]).replace("${datasource}", grafanas.DATASOURCE)
    for variable in dashboard["templating"]["list"]:
        name = re.escape(variable["name"])
        text = re.sub(rf"\$(\{{{name}(:\w+)?\}}|{name}\b)", ".+", text)
    common = {"intervalMs": 15_000, "maxDataPoints": 100}
    return [{**common, **target} for target in json.loads(text)]


def answers(grafana, dashboard):
    """For each panel with targets: its title, a target's letter, Grafana's answer."""
    for panel in panels(dashboard):
        if panel.get("targets"):
            for letter, answer in grafana.ask(requests_of(dashboard, panel)).items():
                yield panel["title"], letter, answer


def rows(answer):
    """The number of points in all series of an answer."""
    return sum(
        len(frame["data"]["values"][0]) for frame in answer["frames"] if frame["data"]["values"]
    )


@pytest.mark.parametrize("uid", UIDS)
def test_grafana_serves_every_shipped_panel(grafana, uid):
    def described(dashboard):
        return {(panel["id"], panel["type"], panel.get("title", "")) for panel in panels(dashboard)}

    served = grafana.get(f"dashboards/uid/{uid}")

    assert served["meta"]["provisioned"]
    assert described(served["dashboard"]) == described(shipped(uid))


@pytest.mark.parametrize("uid", UIDS)
def test_grafana_answers_the_targets_of_every_panel(grafana, uid):
    given = list(answers(grafana, shipped(uid)))
    failed = [
        (title, letter, answer)
        for title, letter, answer in given
        if "error" in answer or answer.get("status", 200) != 200
    ]

    assert failed == []
    assert any(rows(answer) for _, _, answer in given)


def test_provisioning_reports_no_error(grafana):
    assert grafana.faults() == []
