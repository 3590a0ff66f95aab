"""Alerts link to the status page, a dashboard, the Spark UI and a runbook, all reachable."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support.exporter_http import get, serving
from support.published_states import full_published
from support.repository import runbooks

from querypulse.alerting.facts import Reported
from querypulse.alerting.finding import Finding, Severity, finding_about
from querypulse.alerting.words.messages import ALL_QUERIES, Guidance, alert_of
from querypulse.core.guard import Guard
from querypulse.core.redaction import Redactor
from querypulse.core.states import QueryState
from querypulse.settings.links import guidance, runbook
from querypulse.settings.settings import DEFAULT_RUNBOOKS
from querypulse.sidecar import Settings, SettingsError
from querypulse.sidecar.assemble import Components
from querypulse.sidecar.session import spark_ui_url

HOME = "https://driver.example/orders"
BOARD = "https://grafana.example/d/q?var-app={app}&var-query={query}"


def annotations(guide: Guidance, *, app="orders", query="billing") -> dict[str, str]:
    finding = Finding(
        "StreamingQueryFailed",
        query,
        Severity.CRITICAL,
        QueryState.FAILED,
        Reported(reason="why", summary="a failed"),
    )
    return alert_of(finding, app, guide, 0.0).annotations


def refusal(**settings):
    """The error of settings; empty if they are accepted."""
    try:
        Components(Settings(**settings), Guard())
    except SettingsError as error:
        return str(error)
    return ""


def test_runbook_outlives_the_driver():
    """Also with ``external_url``, which leads to the driver."""
    by_default = annotations(guidance(Settings()))
    of_driver = annotations(guidance(Settings(external_url=f"{HOME}/", dashboard_url=BOARD)))
    elsewhere = annotations(guidance(Settings(external_url=HOME, runbooks_url="https://wiki/r/")))

    published = f"{DEFAULT_RUNBOOKS}/StreamingQueryFailed.md"
    assert by_default["runbook_url"] == of_driver["runbook_url"] == published
    assert elsewhere["runbook_url"] == "https://wiki/r/StreamingQueryFailed.md"
    assert not {"dashboard_url", "spark_ui_url"} & set(by_default)
    assert of_driver["dashboard_url"].startswith("https://grafana.example")


HINTS = {
    "restart_hint": "kubectl rollout restart deploy/orders",
    "queries": {
        "nightly*": {"restart_hint": "airflow dags trigger nightly"},
        "nightly_b": {"restart_hint": "ask Kim"},
        "other": {"stall_floor_seconds": 9.0},
    },
}


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("billing", HINTS["restart_hint"]),
        ("other", HINTS["restart_hint"]),
        ("*", HINTS["restart_hint"]),
        ("unnamed", HINTS["restart_hint"]),
        ("nightly_a", "airflow dags trigger nightly"),
        ("nightly_b", "ask Kim"),
    ],
)
def test_restart_hint_of_the_query_counts_else_that_of_the_job(query, hint):
    own = replace(guidance(Settings(**HINTS)), next_steps={"StreamingDriverDown": "1. Restart it."})
    finding = finding_about(
        query, "StreamingDriverDown", Severity.CRITICAL, Reported(reason="why", summary="a")
    )

    steps = alert_of(finding, "orders", own, 0.0).annotations["next_steps"]
    assert steps == f"1. Restart it.\nTo restart it here: {hint}"


def test_restart_hint_is_redacted_and_one_that_is_too_long_is_refused():
    secret = guidance(Settings(restart_hint="curl -H 'Authorization: Bearer abcdefgh12345678' x"))

    assert "abcdefgh" not in str(secret.redacted(Redactor().text))
    assert "restart_hint" in refusal(restart_hint="x" * 501)
    assert "restart_hint" in refusal(restart_hint="")
    assert "restart_hint" in refusal(queries={"a": {"restart_hint": "x" * 501}})
    assert refusal(restart_hint="x" * 500) == ""


def test_dashboard_link_selects_the_query():
    links = {
        ("orders", "billing"): "var-app=orders&var-query=billing",
        ("a b", "c&d/é"): "var-app=a%20b&var-query=c%26d%2F%C3%A9",
        ("{query}", "x"): "var-app=%7Bquery%7D&var-query=x",
        ("orders", "*"): f"var-app=orders&var-query={ALL_QUERIES}",
        ("o", "unnamed"): f"var-app=o&var-query={ALL_QUERIES}",
    }
    guide = guidance(Settings(dashboard_url=BOARD))
    shown = {
        (app, query): annotations(guide, app=app, query=query)["dashboard_url"]
        for app, query in links
    }

    assert shown == {key: f"https://grafana.example/d/q?{link}" for key, link in links.items()}


UNUSABLE = """driver:9719 ftp://driver javascript:alert(1) https:// https:///path https://driver/"onclick
https://driver/<x> https://driver|x https://[driver https://u:hidden@driver/ https://hidden@driver/
https://hidden@driver/d?a=b@c https://@driver/ https://u:hid/hidden@driver/ https://u:hid?hidden@driver/
https://u:hidden@hidden@driver/ https://u:hid#hidden@driver/ https://driver:70000/ u:hidden@driver
https://driver/{job}"""
USABLE = """http://driver https://driver:9719/a/b https://[::1]:9719/ https://driver/d/%40team
https://driver/%3Fto/%23panel/"""


@pytest.mark.parametrize("name", ["external_url", "dashboard_url", "runbooks_url"])
def test_address_that_is_no_link_is_refused_by_its_setting_name(name):
    urls = [*UNUSABLE.split(), "https://driver/a b", "https://u:hidden hidden@driver/"]
    messages = {url: refusal(**{name: url}) for url in urls}

    assert {
        url: text
        for url, text in messages.items()
        if f"setting '{name}'" not in text or "http or https" not in text or "hidden" in text
    } == {}
    assert [text for url in USABLE.split() if (text := refusal(**{name: url}))] == []


class NoUi:
    @property
    def uiWebUrl(self):
        raise TypeError("'JavaPackage' object is not callable")


@pytest.mark.parametrize(
    ("context", "url"),
    [
        (SimpleNamespace(uiWebUrl="http://d:4040"), "http://d:4040"),
        (SimpleNamespace(uiWebUrl=None), ""),
        (SimpleNamespace(uiWebUrl="d:4040"), ""),
        (SimpleNamespace(), ""),
        (NoUi(), ""),
    ],
)
def test_spark_without_ui_is_no_error(context, url):
    context._conf = {}
    assert spark_ui_url(SimpleNamespace(sparkContext=context)) == url


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.hadoop.yarn.server.webproxy.amfilter.AmIpFilter",
        "org.apache.spark.deploy.yarn.AmIpFilter",
    ],
    ids=["Spark 3.5", "Spark 4"],
)
@pytest.mark.parametrize("others", ["", ",http://rm-2:8088/proxy/application_1"])
def test_spark_ui_on_yarn_is_at_the_first_of_its_proxies(name, others):
    proxy = "http://rm:8088/proxy/application_1"
    conf = {
        "spark.ui.filters": f"com.acme.Login, {name}",
        f"spark.{name}.param.PROXY_URI_BASES": proxy + others,
    }
    context = SimpleNamespace(uiWebUrl="http://d:4040", _conf=conf)
    assert spark_ui_url(SimpleNamespace(sparkContext=context)) == proxy


def test_spark_ui_with_other_filters_is_at_its_own_address():
    conf = {"spark.ui.filters": "com.acme.Login"}
    context = SimpleNamespace(uiWebUrl="http://d:4040", _conf=conf)
    assert spark_ui_url(SimpleNamespace(sparkContext=context)) == "http://d:4040"


def test_driver_serves_every_runbook():
    """Also under the name of its file, which links between runbooks use."""
    with serving(full_published(), runbook=runbook) as server:
        answers = {name: get(server, f"/runbooks/{name}") for name in runbooks()}
        linked = get(server, "/runbooks/StreamingQueryFailed.md")

    assert {name: answer.text for name, answer in answers.items()} == runbooks()
    assert {answer.status_code for answer in answers.values()} == {200}
    assert {answer.headers["Content-Type"] for answer in answers.values()} == {
        "text/plain; charset=utf-8"
    }
    assert linked.text == runbooks()["StreamingQueryFailed"]


def test_alert_contains_the_next_steps_of_its_runbook():
    steps = annotations(guidance(Settings()))["next_steps"]

    assert steps.splitlines()[0].startswith("1. ")
    assert steps in runbooks()["StreamingQueryFailed"]
