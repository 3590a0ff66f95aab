"""Alerts lead to the status page, a dashboard, the Spark UI and a runbook that can be reached."""

from __future__ import annotations

import json
import time

import pytest
from support.exporter_boards import full_board
from support.exporter_http import get, serving
from support.http_double import HttpDouble
from support.pagerduty_double import PagerDutyDouble
from support.receiver_incidents import ONE
from support.repository import runbooks

from querypulse.alerting.finding import Finding, QueryState, Severity
from querypulse.alerting.lifecycle.guidance import ALL_QUERIES, Guidance
from querypulse.alerting.lifecycle.wording import alert_of
from querypulse.listener.guard import Guard
from querypulse.sidecar import Settings, SettingsError
from querypulse.sidecar.configuration.components import make_components
from querypulse.sidecar.configuration.links import guidance, guidance_from_outside
from querypulse.sidecar.configuration.receivers_from_settings import receivers
from querypulse.sidecar.configuration.settings import DEFAULT_RUNBOOKS
from querypulse.sidecar.runbooks import runbook
from querypulse.sidecar.session import spark_ui_url

HOME = "https://driver.example/orders"
BOARD = "https://grafana.example/d/q?var-app={app}&var-query={query}"


def annotations(guide: Guidance, *, app="orders", query="billing") -> dict[str, str]:
    found = Finding(
        "StreamingQueryFailed", query, Severity.CRITICAL, QueryState.FAILED, "why", "a failed", {}
    )
    return alert_of(found, app, guide, 0.0).annotations


# -- links ------------------------------------------------------------------------------------------


def test_without_settings_an_alert_leads_to_the_published_runbook_alone():
    shown = annotations(guidance(Settings()))

    assert shown["runbook_url"] == f"{DEFAULT_RUNBOOKS}/StreamingQueryFailed.md"
    assert not {"dashboard_url", "spark_ui_url"} & set(shown)


def test_with_an_external_url_the_driver_has_the_runbook_itself():
    shown = annotations(guidance(Settings(external_url=f"{HOME}/")))

    assert shown["runbook_url"] == f"{HOME}/runbooks/StreamingQueryFailed"


def test_runbooks_of_ones_own_stay_where_they_are():
    own = Settings(external_url=HOME, runbook_base_url="https://wiki.example/pulse/")

    assert (
        annotations(guidance(own))["runbook_url"]
        == "https://wiki.example/pulse/StreamingQueryFailed.md"
    )


def test_a_driver_that_is_down_is_not_asked_for_its_runbook():
    shown = annotations(guidance_from_outside(Settings(external_url=HOME, dashboard_url=BOARD)))

    assert shown["runbook_url"] == f"{DEFAULT_RUNBOOKS}/StreamingQueryFailed.md"
    assert shown["dashboard_url"].startswith("https://grafana.example")


@pytest.mark.parametrize(
    ("app", "query", "url"),
    [
        ("orders", "billing", "https://grafana.example/d/q?var-app=orders&var-query=billing"),
        ("a b", "c&d/é", "https://grafana.example/d/q?var-app=a%20b&var-query=c%26d%2F%C3%A9"),
        ("{query}", "x", "https://grafana.example/d/q?var-app=%7Bquery%7D&var-query=x"),
        ("orders", "*", f"https://grafana.example/d/q?var-app=orders&var-query={ALL_QUERIES}"),
        ("o", "unnamed", f"https://grafana.example/d/q?var-app=o&var-query={ALL_QUERIES}"),
    ],
)
def test_a_dashboard_is_opened_at_the_query(app, query, url):
    shown = annotations(guidance(Settings(dashboard_url=BOARD)), app=app, query=query)

    assert shown["dashboard_url"] == url


def test_the_spark_ui_is_linked_where_there_is_one():
    assert annotations(guidance(Settings(), "http://d:4040"))["spark_ui_url"] == "http://d:4040"


@pytest.mark.parametrize("name", ["external_url", "dashboard_url", "runbook_base_url"])
@pytest.mark.parametrize(
    "url",
    [
        "driver:9719",
        "ftp://driver",
        "javascript:alert(1)",
        "https://",
        "https:///path",
        "https://driver/a b",
        'https://driver/"onclick',
        "https://driver/<x>",
        "https://driver|x",
        "https://[driver",
        "https://u:hidden@driver/",
        "https://hidden@driver/",
        "https://hidden@driver/d?a=b@c",
        "https://@driver/",
        "https://u:hid/hidden@driver/",
        "https://u:hid?hidden@driver/",
        "https://u:hidden@hidden@driver/",
        "https://u:hidden hidden@driver/",
        "https://u:hid#hidden@driver/",
        "https://driver:70000/",
        "u:hidden@driver",
        "https://driver/{job}",
    ],
)
def test_what_is_no_address_to_follow_is_refused_by_its_name(name, url):
    with pytest.raises(SettingsError) as error:
        make_components(Settings(**{name: url}), Guard())

    assert f"setting '{name}'" in str(error.value)
    assert "http or https" in str(error.value)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("name", ["external_url", "dashboard_url", "runbook_base_url"])
@pytest.mark.parametrize(
    "url",
    [
        "http://driver",
        "https://driver:9719/a/b",
        "https://[::1]:9719/",
        "https://driver/d/%40team",
        "https://driver/%3Fto/%23panel/",
    ],
)
def test_an_address_to_follow_is_taken_as_it_is(name, url):
    make_components(Settings(**{name: url}), Guard())


@pytest.mark.parametrize("name", ["dashboard_url", "runbook_base_url"])
@pytest.mark.parametrize(
    "url", ["https://driver/d?owner=a@b", "https://driver/d?to=now#panel", "https://wiki/#/pulse"]
)
def test_a_dashboard_or_a_wiki_may_have_a_query_string_and_a_fragment(name, url):
    make_components(Settings(**{name: url}), Guard())


@pytest.mark.parametrize(
    "rest", ["?token=hidden", "?", "/?a=b#hidden", "#hidden", "/#", "/orders?to=/hidden"]
)
def test_an_external_url_with_more_than_a_path_is_refused_for_paths_are_added_to_it(rest):
    with pytest.raises(SettingsError) as error:
        make_components(Settings(external_url=f"{HOME}{rest}"), Guard())

    assert "setting 'external_url'" in str(error.value)
    assert "without spaces, quotes, user name, password, token, query string" in str(error.value)
    assert f"given: '{HOME}" in str(error.value)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("url", ["https://u:part#rest@driver/", "https://u:part?rest@driver/"])
def test_no_part_of_a_password_is_shown_where_it_polls_like_a_query_string(url):
    with pytest.raises(SettingsError) as error:
        make_components(Settings(external_url=url), Guard())

    assert "part" not in str(error.value).partition("given")[2]


@pytest.mark.parametrize("outside", [guidance, guidance_from_outside])
def test_a_password_in_the_address_of_the_runbooks_never_gets_into_an_alert(outside):
    with pytest.raises(SettingsError, match="'runbook_base_url'"):
        outside(Settings(external_url=HOME, runbook_base_url="https://u:hidden@wiki.example/"))


def test_only_a_dashboards_address_has_places_to_fill():
    make_components(Settings(dashboard_url=BOARD), Guard())
    with pytest.raises(SettingsError, match="external_url"):
        make_components(Settings(external_url="https://d/{app}"), Guard())


class NoUi:
    @property
    def uiWebUrl(self):
        raise TypeError("'JavaPackage' object is not callable")


@pytest.mark.parametrize(
    ("context", "url"),
    [
        (type("Context", (), {"uiWebUrl": "http://d:4040"})(), "http://d:4040"),
        (type("Context", (), {"uiWebUrl": None})(), ""),
        (type("Context", (), {"uiWebUrl": "d:4040"})(), ""),
        (type("Context", (), {})(), ""),
        (NoUi(), ""),
    ],
)
def test_a_spark_without_ui_is_no_error(context, url):
    assert spark_ui_url(type("Spark", (), {"sparkContext": context})()) == url


# -- in each receiver's own form --------------------------------------------------------------------


def sent(**settings: str) -> dict:
    """What the receiver of these settings is sent."""
    with HttpDouble() as double:
        known = {name: value.format(url=double.url) for name, value in settings.items()}
        (receiver,) = receivers(Settings(external_url=f"{HOME}/", **known))
        receiver.send(ONE, time.time())
        receiver.close()
    return json.loads(double.requests[0].body)


def test_a_webhook_leads_to_the_status_page():
    body = sent(webhook_url="{url}")

    assert (body["externalURL"], body["alerts"][0]["generatorURL"]) == (HOME, HOME)


def test_alertmanager_leads_to_the_status_page():
    with HttpDouble() as double:
        (receiver,) = receivers(Settings(external_url=HOME, alertmanager_urls=(double.url,)))
        receiver.send(ONE, time.time())
        receiver.close()

    assert json.loads(double.requests[0].body)[0]["generatorURL"] == HOME


def test_pagerduty_leads_to_the_status_page_and_everywhere_else():
    with PagerDutyDouble() as double:
        settings = Settings(
            external_url=HOME,
            pagerduty_routing_key="k" * 32,
            pagerduty_url=double.enqueue_url,
        )
        (receiver,) = receivers(settings)
        receiver.send(ONE, time.time())
        receiver.close()

    assert double.events[0]["client_url"] == HOME
    assert double.events[0]["links"] == [
        {"href": "https://x/StreamingQueryFailed.md", "text": "Runbook"}
    ]


# -- runbooks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(runbooks()))
def test_the_driver_serves_every_runbook(name):
    with serving(full_board(), runbook=runbook) as server:
        answer = get(server, f"/runbooks/{name}")

    assert (answer.status_code, answer.text) == (200, runbooks()[name])
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


def test_a_link_from_one_runbook_to_another_can_be_followed():
    with serving(full_board(), runbook=runbook) as server:
        assert (
            get(server, "/runbooks/StreamingQueryFailed.md").text
            == runbooks()["StreamingQueryFailed"]
        )


@pytest.mark.parametrize(
    "path", ["/runbooks", "/runbooks/", "/runbooks/NoSuchAlert", "/runbooks/README",
             "/runbooks/../prometheus/rules.yaml", "/runbooks/StreamingQueryFailed.md/x"]
)  # fmt: skip
def test_nothing_else_is_served_as_a_runbook(path):
    with serving(full_board(), runbook=runbook) as server:
        assert get(server, path).status_code == 404


def test_an_alert_brings_the_next_steps_of_its_runbook():
    steps = annotations(guidance(Settings()))["next_steps"]

    assert steps.splitlines()[0].startswith("1. ")
    assert steps in runbooks()["StreamingQueryFailed"]


def test_an_alert_without_a_runbook_brings_no_steps():
    assert "next_steps" not in annotations(Guidance("https://r/{alertname}"))


def test_a_proxy_may_pass_the_name_of_the_external_url_on():
    with serving(full_board(), external_name="driver.example") as server:
        assert get(server, "/livez", Host="driver.example").status_code == 200
        assert get(server, "/livez", Host="stranger.example").status_code != 200
