"""``querypulse watch`` as users run it: a process of its own with real receivers and signals."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from itertools import count

import pytest
import requests
from support.http_double import HttpDouble, reply
from support.patience import PATIENCE_SECONDS, until
from support.watching import Running, ServedDriver, serving

from querypulse.alerting.silences import Silence, change_silences
from querypulse.commands import cli
from querypulse.recording.lines import SeenFrom, decode
from querypulse.recording.timeline import timeline_of
from querypulse.settings.settings import Settings
from querypulse.watch.targets import receiver_hosts

COULD_NOT_BEGIN = 2


@pytest.fixture
def run(tmp_path):
    names = (tmp_path / f"log-{number}" for number in count())
    return lambda *arguments, **settings: Running(next(names), *arguments, **settings)


# -- pages ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_driver_is_paged_and_its_restart_resolves(run, pages):
    with (
        ServedDriver() as driver,
        run(driver.url, webhook_url=pages.url, resolve_after_seconds="0") as watcher,
    ):
        watcher.wait_for("etl is up")
        driver.signal(signal.SIGKILL)
        page = pages.wait_for("StreamingDriverDown", "*")
        assert (page.labels["app"], page.labels["severity"]) == ("etl", "critical")
        assert page.annotations["runbook_url"].endswith("/StreamingDriverDown.md")
        with ServedDriver(port=driver.port):
            pages.wait_for("StreamingDriverDown", "*", status="resolved")
        assert watcher.end(signal.SIGINT) == 0
        assert "Traceback" not in watcher.log
    assert pages.reported == [
        ("firing", "StreamingDriverDown", "*"),
        ("resolved", "StreamingDriverDown", "*"),
    ]


@pytest.mark.slow
def test_recording_of_a_killed_driver_shows_its_end_and_who_was_notified(run, pages, tmp_path):
    settings = {"webhook_url": pages.url, "resolve_after_seconds": "0"}
    with (
        ServedDriver() as driver,
        run(driver.url, incidents_dir=str(tmp_path / "incidents"), **settings) as watcher,
    ):
        watcher.wait_for("etl is up")
        driver.signal(signal.SIGKILL)
        named = pages.wait_for("StreamingDriverDown", "*").annotations["recording"]
        with ServedDriver(port=driver.port):
            pages.wait_for("StreamingDriverDown", "*", status="resolved")
        assert watcher.end() == 0
    (file,) = (tmp_path / "incidents").iterdir()
    recording = decode(file.read_bytes(), file.name)
    answers = timeline_of([recording]).answers

    assert (named, recording.begin.seen_from) == (str(file), SeenFrom.WATCH)
    assert "driver was killed or has crashed: nothing listens" in answers["first"]
    assert "1 notification and 1 message of its end" in answers["notified"]
    assert "driver answers again" in answers["ended"]


@pytest.mark.slow
def test_graceful_shutdown_of_a_driver_is_not_paged(run, pages):
    with (
        ServedDriver() as driver,
        serving("control") as control,
        run(driver.url, control.url, "--gone-after", "5", webhook_url=pages.url) as watcher,
    ):
        watcher.wait_for("etl is up")
        watcher.wait_for("control is up")
        driver.shut_down()
        watcher.wait_for("etl shut down gracefully")
        control.close(notice=None)
        until(lambda: pages.pages, "the crash is paged")
        assert watcher.end() == 0
    assert [page.labels["app"] for page in pages.pages] == ["control"]


UNLABELLED = "no receiver takes critical incidents with only the labels"
PAYMENTS, ALL = {"match": {"team": "payments"}}, {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("routes", "warned"),
    [
        ([PAYMENTS], True),
        ([PAYMENTS, {"severities": ["warning"]}], True),
        ([ALL], False),
        ([PAYMENTS, ALL], False),
        ([PAYMENTS, {"queries": ["bronze*"], "match": {"app": "*"}}], False),
    ],
)
def test_the_watcher_warns_if_nobody_is_notified_of_drivers_that_never_answered(
    run, pages, routes, warned
):
    hooks = [
        {"type": "webhook", "name": f"hook{number}", "url": pages.url, **route}
        for number, route in enumerate(routes)
    ]
    with serving("etl") as driver, run(driver.url, receivers=json.dumps(hooks)) as watcher:
        watcher.wait_for("etl is up")
        assert (UNLABELLED in watcher.log) == warned


@pytest.mark.slow
def test_the_log_names_what_is_polled_and_labels_are_those_of_the_settings_until_it_answers(
    run, pages
):
    """So that Alertmanager's routes and groups take a driver that never answered, too."""
    labels = '{"namespace": "streaming"}'
    with run("127.0.0.1:1", labels=labels, webhook_url=pages.url) as watcher:
        watcher.wait_for("querypulse: polls http://127.0.0.1:1/status")
        until(lambda: pages.pages, "it is paged")

    assert pages.pages[0].labels["namespace"] == "streaming"


@pytest.mark.slow
def test_pending_alerts_are_sent_before_the_watcher_ends(run):
    with (
        HttpDouble(reply(503), reply(503), reply(503), otherwise=reply(200)) as receiver,
        ServedDriver() as driver,
        run(driver.url, webhook_url=receiver.url) as watcher,
    ):
        watcher.wait_for("etl is up")
        driver.signal(signal.SIGKILL)
        receiver.wait_for(3)
        assert watcher.end() == 0
        assert b"StreamingDriverDown" in receiver.wait_for(4)[3].body


@pytest.mark.slow
def test_the_next_watcher_restores_open_alerts_from_the_spool(run, pages, tmp_path):
    settings = {"spool_dir": str(tmp_path / "spool"), "resolve_after_seconds": "0"}
    with ServedDriver() as driver:
        with run(driver.url, webhook_url=pages.url, **settings) as first:
            first.wait_for("etl is up")
            driver.signal(signal.SIGKILL)
            pages.wait_for("StreamingDriverDown", "*")
            assert first.end() == 0
        with (
            serving("control") as control,
            run(driver.url, control.url, webhook_url=pages.url, **settings) as second,
        ):
            second.wait_for("control is up")
            control.close(notice=None)
            until(lambda: len(pages.pages) > 1, "the second watcher pages")
            with ServedDriver(port=driver.port):
                pages.wait_for("StreamingDriverDown", "*", status="resolved")
            assert second.end() == 0
    assert [(page.status, page.labels["app"]) for page in pages.pages] == [
        ("firing", "etl"),
        ("firing", "control"),
        ("resolved", "etl"),
    ]


@pytest.mark.slow
def test_a_silence_suppresses_the_page(run, pages, tmp_path):
    file = tmp_path / "silences"
    silence = Silence("*", time.time() + 3600.0, "StreamingDriverDown", app="etl")
    change_silences(file, 0.0, add=silence)
    settings = {"webhook_url": pages.url, "silence_file": str(file)}
    with ServedDriver() as driver, run(driver.url, **settings) as watcher:
        watcher.wait_for("etl is up")
        driver.signal(signal.SIGKILL)
        watcher.wait_for("StreamingDriverDown: [etl] driver")
        assert watcher.end() == 0
    assert pages.reported == []


@pytest.mark.slow
def test_secrets_do_not_reach_the_log(run, tmp_path):
    token = tmp_path / "token"
    token.write_text("the-token-of-drivers")
    with HttpDouble(otherwise=reply(500)) as receiver, ServedDriver() as driver:
        hook = tmp_path / "hook"
        hook.write_text(f"{receiver.url}/services/hidden-path")
        with run(driver.url, "--token-file", str(token), "--webhook-url-file", hook) as watcher:
            watcher.wait_for("etl is up")
            driver.signal(signal.SIGKILL)
            receiver.wait_for(3)
            watcher.wait_for("did not take StreamingDriverDown")
            assert watcher.end() == 0
            assert "hidden-path" not in watcher.log
            assert "the-token" not in watcher.log


@pytest.mark.slow
def test_the_watcher_uses_a_rotated_token(run, pages, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    with (
        serving("etl", token="new") as driver,
        run(driver.url, "--token-file", str(token), webhook_url=pages.url) as watcher,
    ):
        watcher.wait_for("refuses this watcher: GET /livez answered 401")
        token.write_text("new")
        watcher.wait_for("etl is up")


@pytest.mark.slow
def test_the_watcher_serves_the_page_of_all_drivers_with_the_token_of_the_settings(
    run, pages, tmp_path
):
    token = tmp_path / "token"
    token.write_text("secret")
    settings = {"webhook_url": pages.url, "http_token_file": str(token)}
    with serving("etl") as driver, run(driver.url, **settings) as watcher:
        watcher.wait_for("etl is up")
        (url,) = re.findall(r"the page of all drivers is (\S+)", watcher.log)

        def states(**headers):
            answer = requests.get(f"{url}/status", headers=headers, timeout=PATIENCE_SECONDS)
            return [driver["state"] for driver in answer.json()["drivers"]]

        until(lambda: states(Authorization="Bearer secret") == ["up"], "the driver is shown")
        assert requests.get(f"{url}/peer", timeout=PATIENCE_SECONDS).status_code == 401


# -- rejected arguments -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("http://a:9719", "--webhook-url-file"),
        ("--webhook-url-file HOOK", "--targets FILE"),
        ("--webhook-url-file HOOK ftp://a", "'ftp://a'"),
        ("--webhook-url-file HOOK --targets /nowhere", "--targets /nowhere"),
        ("--webhook-url-file HOOK a:1 --token-file /nowhere", "--token-file"),
        ("--webhook-url-file HOOK a:1 --ca-file /nowhere", "--ca-file /nowhere"),
        ("--webhook-url-file HOOK a:1 --client-cert-file /nowhere", "--client-cert-file /nowhere"),
        ("--webhook-url-file HOOK a:1 --client-key-file /nowhere", "needs --client-cert-file"),
        ("a:1 --webhook-url-file /nowhere", "webhook_url_file: cannot read /nowhere"),
        ("--webhook-url-file HOOK a:1 --peer ftp://b", "'ftp://b'"),
        ("--webhook-url-file HOOK a:1 --peer b --http-port -1", "--peer needs --http-port"),
        ("http://me:hidden@a:1 --webhook-url-file HOOK", "--token-file"),
    ],
)
def test_impossible_arguments_are_rejected_in_one_line(
    arguments, word, monkeypatch, capsys, tmp_path
):
    for key in filter(lambda key: key.startswith("QUERYPULSE_"), list(os.environ)):
        monkeypatch.delenv(key)
    hook = tmp_path / "hook"
    hook.write_text("http://127.0.0.1:1/hidden")

    assert cli.main(["watch", *arguments.replace("HOOK", str(hook)).split()]) == COULD_NOT_BEGIN
    errors = capsys.readouterr().err
    assert errors.startswith("querypulse: ")
    assert errors.count("\n") == 1
    assert word in errors
    assert "hidden" not in errors


@pytest.mark.parametrize(
    "argument",
    [
        "--gone-after 0.9",
        "--gone-after soon",
        "--interval 0",
        "--interval nan",
        "--colour",
        "--webhook-url https://hooks.example.com/x",
    ],
)
def test_an_invalid_argument_is_rejected(argument, capsys):
    name, *value = argument.split()
    with pytest.raises(SystemExit) as end:
        cli.main(["watch", "a:1", name, *value])
    assert end.value.code == COULD_NOT_BEGIN
    assert name in capsys.readouterr().err


# -- hosts that prove the network -------------------------------------------------------------

SLACK = {"type": "slack", "name": "team", "url": "https://hooks.slack.com/x"}
MAIL = {"type": "email", "name": "mail", "sender": "a@example.com", "to": ["b@example.com"]}
HOOKS = {"webhook_url": "https://hooks.example.com/x"}
DIRECT, PROXY = (("hooks.example.com", 443),), (("proxy", 3128),)
HOSTS = [
    ({}, {}, ()),
    ({"webhook_url": "http://127.0.0.1:5"}, {}, ()),
    (HOOKS, {}, DIRECT),
    ({"webhook_url": "http://hooks:8080/x", "allow_http": True}, {}, (("hooks", 8080),)),
    (
        {"pagerduty_routing_key": "R0123456789abcdefghijklmnopqrstu"},
        {},
        (("events.pagerduty.com", 443),),
    ),
    ({"alertmanager_urls": ("https://one", "https://two:9093")}, {}, (("one", 443), ("two", 9093))),
    ({"receivers": [{**SLACK, "proxy_url": "http://proxy:3128"}]}, {}, PROXY),
    ({"receivers": [{**MAIL, "host": "mail.example.com"}]}, {}, (("mail.example.com", 587),)),
    (HOOKS, {"HTTPS_PROXY": "http://proxy:3128"}, PROXY),
    (HOOKS, {"HTTPS_PROXY": "proxy:3128"}, PROXY),
    (HOOKS, {"HTTP_PROXY": "http://proxy:3128"}, DIRECT),
    (HOOKS, {"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "example.com"}, DIRECT),
]


@pytest.mark.parametrize(("settings", "variables", "hosts"), HOSTS)
def test_the_proof_hosts_are_those_of_receivers_and_proxies_on_other_machines(
    settings, variables, hosts, monkeypatch
):
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert receiver_hosts(Settings(**settings)) == hosts


def test_the_host_of_a_url_in_a_file_is_a_proof_host(tmp_path):
    file = tmp_path / "url"
    file.write_text("https://hooks.example.com/secret\n")
    settings = Settings(webhook_url_file=str(file))
    assert receiver_hosts(settings) == (("hooks.example.com", 443),)
