"""``querypulse test-alert`` tells every receiver, and tells people what came of it."""

from __future__ import annotations

import json

import pytest
from support.http_double import HttpDouble, raw, reply

from querypulse.sidecar import cli
from querypulse.sidecar.commands.try_receivers import TEST_NAME

KEY = "R0123456789abcdefghijklmnopqrstu"
COULD_NOT_BEGIN = 2


pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def try_them(monkeypatch, capsys):
    """Runs ``querypulse test-alert`` under settings; the answer is exit code, output, errors."""

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
    """What a webhook was told: (status, name, severity) of each alert."""
    alerts = [alert for one in server.requests for alert in json.loads(one.body)["alerts"]]
    return [(a["status"], a["labels"]["alertname"], a["labels"]["severity"]) for a in alerts]


def test_a_test_alert_wakes_nobody_and_ends_at_once(try_them, server):
    assert try_them(webhook_url=server.url)[0] == 0
    assert reported(server) == [
        ("firing", TEST_NAME, "warning"),
        ("resolved", TEST_NAME, "warning"),
    ]


@pytest.mark.parametrize("severity", ["warning", "critical"])
def test_it_has_the_severity_that_was_asked_for(try_them, server, severity):
    """B12"""
    assert try_them("--severity", severity, webhook_url=server.url)[0] == 0
    assert {found for _, _, found in reported(server)} == {severity}


def test_another_severity_is_refused(try_them, server, capsys):
    with pytest.raises(SystemExit):
        try_them("--severity", "info", webhook_url=server.url)

    assert "warning" in capsys.readouterr().err
    assert server.requests == []


@pytest.mark.parametrize(
    ("arguments", "settings", "app"),
    [
        ((), {}, "querypulse"),
        ((), {"app_name": "etl"}, "etl"),
        (("--app", "nightly"), {}, "nightly"),
        (("--app", "nightly"), {"app_name": "etl"}, "nightly"),
    ],
)
def test_it_goes_under_the_jobs_own_name(try_them, server, arguments, settings, app):
    """B12"""
    try_them(*arguments, webhook_url=server.url, **settings)

    assert json.loads(server.requests[0].body)["alerts"][0]["labels"]["app"] == app


def test_the_heartbeat_is_pinged_once_and_its_state_is_left_alone(try_them, server):
    code, output, _ = try_them(heartbeat_url=f"{server.url}/check", webhook_url=server.url)
    (ping,) = [one for one in server.requests if one.path.startswith("/check")]

    assert code == 0
    assert ping.path.startswith("/check/log?rid=")
    assert output.splitlines()[-1].split(maxsplit=1) == ["heartbeat", "accepted the ping"]


def test_a_heartbeat_alone_is_tried_too(try_them, server):
    assert try_them(heartbeat_url=server.url)[:2] == (0, "heartbeat  accepted the ping\n")


def test_a_heartbeat_that_is_not_taken_is_a_failure(try_them):
    with HttpDouble(otherwise=reply(404)) as server:
        code, output, _ = try_them(heartbeat_url=f"{server.url}/hidden")

    assert code == 1
    assert output.startswith("heartbeat  did NOT accept the ping: ")
    assert "404" in output
    assert "hidden" not in output


def test_a_spool_that_cannot_be_is_reported_before_anything_is_sent(try_them, server):
    """B6"""
    code, _, errors = try_them(webhook_url=server.url, spool_dir="/proc/spool")

    assert (code, server.requests) == (COULD_NOT_BEGIN, [])
    assert "'spool_dir': /proc/spool: No such file or directory" in errors


def test_it_says_that_nothing_is_wrong(try_them, server):
    try_them(webhook_url=server.url, app_name="etl")
    (alert,) = json.loads(server.requests[0].body)["alerts"]

    assert "nothing is wrong" in alert["annotations"]["summary"]
    assert alert["labels"]["app"] == "etl"


def test_every_receiver_is_reported_whatever_its_route(try_them, server):
    tables = [
        {"type": "webhook", "name": "oncall", "url": server.url, "severities": ["critical"]},
        {"type": "slack", "name": "team", "url": server.url, "queries": ["bronze*"]},
        {"type": "pagerduty", "name": "pd", "routing_key": KEY, "url": server.url},
        {"type": "alertmanager", "name": "am", "urls": [server.url]},
    ]
    code, output, _ = try_them(receivers=tables, webhook_url=server.url)

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
def test_it_says_in_plain_words_what_was_answered(try_them, answer, word, more):
    with HttpDouble(otherwise=answer) as server:
        code, output, _ = try_them(webhook_url=f"{server.url}/hidden")

    assert code == 1
    assert output.startswith("webhook  did NOT accept the test alert: ")
    assert word in output
    assert more in output
    assert output.count("\n") == 1
    assert "hidden" not in output


def test_nobody_there_is_an_answer_too(try_them):
    code, output, _ = try_them(webhook_url="http://127.0.0.1:1/hidden")

    assert code == 1
    assert "did NOT accept the test alert" in output
    assert "hidden" not in output


def test_what_was_not_taken_is_not_ended(try_them):
    with HttpDouble(otherwise=reply(403)) as server:
        try_them(webhook_url=server.url)

        assert {status for status, *_ in reported(server)} == {"firing"}


def test_what_may_have_arrived_is_ended_all_the_same(try_them):
    with HttpDouble(raw(), raw(), raw(), otherwise=reply(200)) as server:
        code, output, _ = try_them(webhook_url=server.url)

        assert reported(server)[-1][0] == "resolved"
    assert code == 1
    assert "may NOT have accepted" in output


def test_an_end_that_is_not_taken_is_reported(try_them):
    with HttpDouble(reply(202), otherwise=reply(403)) as server:
        code, output, _ = try_them(webhook_url=server.url)

    assert code == 1
    assert "accepted the test alert, but NOT its end" in output


def test_one_that_fails_keeps_no_other_from_being_reported(try_them, server):
    tables = [
        {"type": "webhook", "name": "bad", "url": "http://127.0.0.1:1"},
        {"type": "webhook", "name": "good", "url": server.url},
    ]
    code, output, _ = try_them(receivers=tables)

    assert code == 1
    assert len(reported(server)) == 2
    assert output.splitlines()[1] == "good  accepted the test alert and its end"


def test_without_a_receiver_there_is_nothing_to_try(try_them):
    code, output, errors = try_them()

    assert (code, output) == (COULD_NOT_BEGIN, "")
    assert "no receiver is configured" in errors


def test_a_password_in_the_address_of_the_runbooks_is_not_sent(try_them, server):
    code, _, errors = try_them(
        webhook_url=server.url, runbook_base_url="https://u:hidden@wiki.example/pulse"
    )

    assert code == COULD_NOT_BEGIN
    assert "'runbook_base_url'" in errors
    assert "hidden" not in errors
    assert server.requests == []


def test_settings_that_cannot_be_used_are_refused_before_anybody_is_reported(try_them, server):
    code, _, errors = try_them(webhook_url=server.url, slack_webhook_url="nowhere")

    assert code == COULD_NOT_BEGIN
    assert "slack_webhook_url" in errors
    assert server.requests == []
