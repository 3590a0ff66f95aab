"""``querypulse test-alert`` sends to every receiver and prints each result."""

from __future__ import annotations

import json

import pytest
from support.http_double import HttpDouble, raw, reply

from querypulse.commands import cli
from querypulse.commands.check import TEST_NAME

KEY = "R0123456789abcdefghijklmnopqrstu"
COULD_NOT_BEGIN = 2


pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def run_test_alert(monkeypatch, capsys):
    """Run ``querypulse test-alert`` with settings; returns exit code, output and errors."""

    def run(*arguments, **settings):
        for name, value in settings.items():
            text = value if isinstance(value, str) else json.dumps(value)
            monkeypatch.setenv(f"QUERYPULSE_{name.upper()}", text)
        return cli.main(["test-alert", *arguments]), *capsys.readouterr()

    return run


@pytest.fixture
def server():
    with HttpDouble(otherwise=reply(202, body=b"ok")) as double:
        yield double


def reported(server):
    """The alerts that a webhook received: (status, name, severity)."""
    alerts = [alert for request in server.requests for alert in json.loads(request.body)["alerts"]]
    return [(a["status"], a["labels"]["alertname"], a["labels"]["severity"]) for a in alerts]


def test_test_alert_is_a_warning_that_resolves_at_once(run_test_alert, server):
    assert run_test_alert(webhook_url=server.url)[0] == 0
    assert reported(server) == [
        ("firing", TEST_NAME, "warning"),
        ("resolved", TEST_NAME, "warning"),
    ]
    (alert,) = json.loads(server.requests[0].body)["alerts"]
    assert "nothing is wrong" in alert["annotations"]["summary"]


@pytest.mark.parametrize(
    ("arguments", "app_name", "app"),
    [((), None, "querypulse"), ((), "etl", "etl"), (("--app", "nightly"), "etl", "nightly")],
)
def test_test_alert_has_the_app_and_the_labels_of_the_job(
    run_test_alert, server, arguments, app_name, app
):
    named = {} if app_name is None else {"app_name": app_name}
    run_test_alert(*arguments, webhook_url=server.url, labels={"env": "prod"}, **named)

    own = {"app": app, "query": "*", "env": "prod"}
    for request in server.requests:
        sent = json.loads(request.body)
        assert sent["groupLabels"] == own
        assert own.items() <= sent["alerts"][0]["labels"].items()
        assert sent["groupKey"] == f"querypulse/{app};alertname=QuerypulseTest;env=prod/*/warning"


@pytest.mark.parametrize(
    ("answer", "result", "code"),
    [(202, "accepted the ping", 0), (404, "did NOT accept the ping: ", 1)],
)
def test_heartbeat_is_pinged_once_without_changing_its_state(run_test_alert, answer, result, code):
    with HttpDouble(otherwise=reply(answer)) as server:
        ended, output, _ = run_test_alert(heartbeat_url=f"{server.url}/hidden")
        (ping,) = server.requests

    assert ping.path.startswith("/hidden/log?rid=")
    assert (ended, output.split(maxsplit=1)[1][: len(result)]) == (code, result)
    assert str(answer) in output or code == 0
    assert "hidden" not in output


def test_every_receiver_gets_the_test_alert_despite_its_route(run_test_alert, server):
    tables = [
        {"type": "webhook", "name": "oncall", "url": server.url, "severities": ["critical"]},
        {"type": "slack", "name": "team", "url": server.url, "queries": ["bronze*"]},
        {"type": "pagerduty", "name": "pd", "routing_key": KEY, "url": server.url},
        {"type": "alertmanager", "name": "am", "urls": [server.url]},
    ]
    code, output, _ = run_test_alert(receivers=tables, webhook_url=server.url)

    assert code == 0
    assert len(server.requests) == 10
    lines = output.splitlines()
    assert [line.split()[0] for line in lines] == ["webhook", "oncall", "team", "pd", "am"]
    assert all(line.endswith("accepted the test alert and its end") for line in lines)


PROBLEMS = [
    (reply(403), "misconfigured", "403"),
    (reply(404), "misconfigured", "404"),
    (reply(302, {"Location": "http://127.0.0.1:1/"}), "misconfigured", "302"),
    (reply(400), "rejected", "400"),
    (reply(410), "misconfigured", "removed there (410)"),
    (reply(429, {"Retry-After": "90"}), "transient", "Retry-After 90 s"),
]


@pytest.mark.parametrize(("answer", "word", "more"), PROBLEMS)
def test_refusal_is_printed_with_its_status_and_meaning(run_test_alert, answer, word, more):
    with HttpDouble(otherwise=answer) as server:
        code, output, _ = run_test_alert(webhook_url=f"{server.url}/hidden")
        assert {status for status, *_ in reported(server)} == {"firing"}

    assert code == 1
    assert output.startswith("webhook  did NOT accept the test alert: ")
    assert word in output
    assert more in output
    assert output.count("\n") == 1
    assert "hidden" not in output


def test_test_alert_that_may_have_arrived_is_resolved(run_test_alert):
    with HttpDouble(raw(), raw(), raw(), otherwise=reply(200)) as server:
        code, output, _ = run_test_alert(webhook_url=server.url)

        assert reported(server)[-1][0] == "resolved"
    assert code == 1
    assert "may NOT have accepted" in output


def test_failing_receiver_does_not_stop_the_others(run_test_alert, server):
    urls = {"bad": "http://127.0.0.1:1/hidden", "good": server.url}
    tables = [{"type": "webhook", "name": name, "url": url} for name, url in urls.items()]
    code, output, _ = run_test_alert(receivers=tables)

    assert (code, len(reported(server))) == (1, 2)
    bad, good = output.splitlines()
    assert bad.startswith("bad   did NOT accept the test alert")
    assert "hidden" not in bad
    assert good == "good  accepted the test alert and its end"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "no receiver is configured"),
        ({"webhook_url": "HERE", "pagerduty_routing_key": "short"}, "pagerduty_routing_key"),
        (
            {"webhook_url": "HERE", "spool_dir": "/proc/spool"},
            "'spool_dir': /proc/spool: No such file or directory",
        ),
    ],
)
def test_unusable_settings_are_refused_before_sending(run_test_alert, server, settings, message):
    settings = {key: server.url if text == "HERE" else text for key, text in settings.items()}
    code, output, errors = run_test_alert(**settings)

    assert (code, output, server.requests) == (COULD_NOT_BEGIN, "", [])
    assert message in errors
