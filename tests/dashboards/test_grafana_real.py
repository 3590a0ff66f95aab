"""A real Grafana accepts the shipped dashboards unchanged and answers all their panels.

Runs where a Docker engine answers or GRAFANA_HOME names an installation.
"""

import json
import re

import pytest
from support import grafana as grafanas
from support.exporter_http import serving
from support.panels import DASHBOARDS, FOLDER, panels
from support.patience import until
from support.prometheus import RealPrometheus
from support.published_states import full_published

pytestmark = [
    pytest.mark.grafana,
    pytest.mark.prometheus,
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the image may have to be pulled
]

UIDS = {dashboard["uid"]: dashboard for dashboard in DASHBOARDS.values()}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    with serving(full_published()) as exporter, RealPrometheus(folder, [exporter.url]) as real:
        until(lambda: real.query("spark_streaming_query_state"), "the exporter is scraped")
        yield real


@pytest.fixture(scope="module", params=grafanas.places())
def grafana(request, prometheus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("grafana")
    with grafanas.running(request.param, folder, FOLDER, prometheus.url) as real:
        until(lambda: real.dashboards() >= set(UIDS), "both dashboards are listed")
        yield real


def requests_of(dashboard, panel):
    """A panel's targets as the browser sends them, with the variables filled in."""
    text = json.dumps(panel["targets"]).replace("${datasource}", grafanas.DATASOURCE)
    for variable in dashboard["templating"]["list"]:
        name = re.escape(variable["name"])
        text = re.sub(rf"\$(\{{{name}(:\w+)?\}}|{name}\b)", ".+", text)
    common = {"intervalMs": 15_000, "maxDataPoints": 100}
    return [{**common, **target} for target in json.loads(text)]


def points(answer):
    """The number of points in all series of an answer."""
    return sum(
        len(frame["data"]["values"][0]) for frame in answer["frames"] if frame["data"]["values"]
    )


@pytest.mark.parametrize("uid", UIDS)
def test_grafana_serves_every_shipped_panel_and_answers_its_targets(grafana, uid):
    def described(dashboard):
        return [
            (panel["id"], panel["type"], panel.get("title", "")) for panel in dashboard["panels"]
        ]

    shipped, served = UIDS[uid], grafana.get(f"dashboards/uid/{uid}")
    assert served["meta"]["provisioned"]
    assert described(served["dashboard"]) == described(shipped)

    answers = {
        (panel["title"], letter): answer
        for panel in panels(shipped)
        for letter, answer in grafana.ask(requests_of(shipped, panel)).items()
    }
    failed = [
        answer
        for answer in answers.items()
        if "error" in answer[1] or answer[1].get("status", 200) != 200
    ]
    assert failed == []
    assert any(map(points, answers.values()))


def test_provisioning_reports_no_error(grafana):
    assert grafana.faults() == []
