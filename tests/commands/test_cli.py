"""The command line: ``check``, ``test-alert``, the arguments of ``demo``, and exit codes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import entry_points, version
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from support.http_double import HttpDouble, raw, reply

from querypulse import commands, sidecar
from querypulse.alerting.alert import TEST_ALERT
from querypulse.commands import cli
from querypulse.commands.check import NO_PROMETHEUS, PROMETHEUS
from querypulse.commands.demo.scenarios import DemoSettings
from querypulse.core import installed
from querypulse.core.installed import NotInstalledError, require_spark
from querypulse.exporter import push
from querypulse.settings.settings import TYPES

KEY = "R0123456789abcdefghijklmnopqrstu"
USAGE_ERROR = 2
TEAM = "[{name = 'team', type = 'webhook', url = 'https://h.example/x', match = {team = 'pay*'}}]"


pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command with settings of the environment; returns exit code, output and errors."""

    def run(*arguments, **settings):
        for name, value in settings.items():
            text = value if isinstance(value, str) else json.dumps(value)
            monkeypatch.setenv(f"QUERYPULSE_{name.upper()}", text)
        return cli.main([*arguments]), *capsys.readouterr()

    return run


@pytest.fixture
def check(run):
    return partial(run, "check")


@pytest.fixture
def run_test_alert(run):
    return partial(run, "test-alert")


@pytest.fixture
def server():
    with HttpDouble(otherwise=reply(202, body=b"ok")) as double:
        yield double


def shown(output):
    """Setting -> (value, origin)."""
    lines = [line for line in output.splitlines()[:-2] if not line.startswith("note: ")]
    rows = [line.split(None, 1) for line in lines]
    return {name: tuple(part.strip() for part in rest.rsplit("  ", 1)) for name, rest in rows}


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])

    assert end.value.code == 0
    assert capsys.readouterr().out == f"querypulse {version('querypulse')}\n"
    assert sidecar.__version__ == version("querypulse")


@pytest.mark.parametrize(
    ("command", "code"), [("check", 1), ("launcher", 0), ("silence", 1), ("watch", 141)]
)
def test_closed_output_pipe_shows_no_traceback(run, monkeypatch, command, code):
    """Also if all output is written at the end; a command that had ended keeps its code."""
    monkeypatch.setitem(cli._COMMANDS, "silence", lambda **_: sys.stdout.write("refused\n") and 1)
    monkeypatch.setitem(cli._COMMANDS, "watch", lambda **_: print("up", flush=True))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)

        assert run(command) == (code, "", "")


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has it")
@pytest.mark.parametrize("buffering", [1, -1], ids=["while it runs", "at its end"])
@pytest.mark.parametrize("command", ["check", "launcher", "silence"])
def test_output_to_a_full_disk_ends_with_one_line_and_no_success(
    run, monkeypatch, command, buffering
):
    monkeypatch.setitem(cli._COMMANDS, "silence", lambda **_: sys.stdout.write("silenced\n") and 0)
    with FULL.open("w", buffering) as full:
        monkeypatch.setattr(sys, "stdout", full)

        assert run(command) == (1, "", "querypulse: cannot write: No space left on device\n")


def test_error_that_is_not_of_the_output_keeps_its_traceback(run, monkeypatch):
    def fail():
        raise PermissionError(errno.EACCES, "Permission denied", "/x")

    monkeypatch.setitem(cli._COMMANDS, "launcher", fail)

    with pytest.raises(PermissionError):
        run("launcher")


def test_command_without_a_standard_output_ends_as_with_one(run, monkeypatch):
    monkeypatch.setitem(cli._COMMANDS, "watch", lambda **_: 0)
    monkeypatch.setattr(sys, "stdout", None)

    assert run("watch")[0] == 0


# -- check ------------------------------------------------------------------------------------


def test_check_shows_every_setting_with_its_origin(check, tmp_path):
    _, output, errors = check()
    assert (list(shown(output)), errors) == (list(TYPES), "")
    assert {origin for _, origin in shown(output).values()} == {"default"}
    file = tmp_path / "pulse.toml"
    file.write_text('app_name = "etl"\nhttp_port = 1\n')
    _, output, _ = check(config=str(file), http_port="0", expected_queries="bronze,silver")

    rows = shown(output)
    assert rows["app_name"] == ('"etl"', f"file {file}")
    assert rows["http_port"] == ("0", "environment variable QUERYPULSE_HTTP_PORT")
    assert rows["expected_queries"][0] == '["bronze","silver"]'
    assert rows["http_host"] == ('"127.0.0.1"', "default")


@pytest.mark.parametrize(
    ("settings", "ends", "summary"),
    [
        ({}, 1, "These settings can be used, but no receiver is configured, so nobody is notified"),
        (
            {"webhook_url": "https://h.example/x", "alertmanager_urls": "https://am.example"},
            0,
            "These settings can be used: 2 receivers (webhook, alertmanager).",
        ),
        (
            {"receivers": TEAM, "app_name": "etl", "labels": "{env = 'prod', team = 'risk'}"},
            1,
            "These settings can be used, but no receiver takes critical incidents of this job "
            "(app=etl, env=prod, team=risk): see `match` and `severities`; nobody is notified",
        ),
        (
            {"receivers": TEAM, "labels": "{env = 'prod', team = 'payments-eu'}"},
            0,
            "These settings can be used: 1 receiver (team).",
        ),
    ],
)
def test_check_ends_with_a_summary_and_with_1_if_nobody_would_be_notified(
    check, settings, ends, summary
):
    code, output, _ = check(**settings)

    assert code == ends
    assert output.splitlines()[-1].startswith(summary)


@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        ({"http_host": "0.0.0.0", "http_allow_anonymous": "true"}, 0),
        ({"pushgateway_url": "https://gate.example"}, 0),
        ({"otlp_endpoint": "https://collector.example"}, 0),
        ({"http_host": "127.0.0.1"}, 1),
        ({"http_host": "0.0.0.0", "http_port": "-1", "http_allow_anonymous": "true"}, 1),
        ({"heartbeat_url": "https://hc.example/x"}, 1),
    ],
)
def test_prometheus_may_notify_where_it_gets_the_metrics(check, settings, ends):
    code, output, _ = check(**settings)

    assert code == ends
    assert "queries.yaml" in output.splitlines()[-1]


def test_prometheus_does_not_stand_in_for_receivers_that_take_nothing(check):
    labels = "{team = 'risk'}"
    settings = {"receivers": TEAM, "labels": labels, "pushgateway_url": "https://gate.example"}

    code, output, _ = check(**settings)

    assert code == 1
    assert output.splitlines()[-1].endswith(PROMETHEUS)


def test_check_shows_an_escape_where_the_output_has_no_such_character(monkeypatch):
    output = TextIOWrapper(BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setenv("QUERYPULSE_APP_NAME", "bestellungen-ü")
    code = cli.main(["check"])
    output.flush()

    assert code == 1
    assert b'"bestellungen-\\xfc"' in output.buffer.getvalue()


@pytest.mark.parametrize("served", [{}, {"http_host": "0.0.0.0", "http_allow_anonymous": "true"}])
def test_check_advises_no_prometheus_where_nothing_is_watched(check, served):
    code, output, _ = check(enabled="false", pushgateway_url="https://gate.example", **served)

    assert code == 1
    assert "setting 'enabled' is false, so nothing is watched" in output
    assert "Prometheus" not in output.splitlines()[-1]


@pytest.mark.parametrize("settings", [{}, {"receivers": TEAM, "labels": "{team = 'risk'}"}])
def test_check_says_how_prometheus_could_notify_where_it_gets_nothing(check, settings):
    assert check(**settings)[1].splitlines()[-1].endswith(NO_PROMETHEUS)


def test_check_says_that_an_optional_package_is_missing(check, monkeypatch):
    monkeypatch.setattr(push, "find_spec", lambda _: None)
    settings = {"otlp_endpoint": "https://collector.example"}
    code, output, errors = check(**settings, webhook_url="https://h.example/x")

    assert (code, errors) == (0, "")
    assert f"note: {push.NOT_INSTALLED}\n" in output
    monkeypatch.delenv("QUERYPULSE_WEBHOOK_URL")
    assert check(**settings)[0] == 1


def named(app_name):
    return {} if app_name is None else {"app_name": app_name}


@pytest.mark.parametrize(
    ("app_name", "note"),
    [
        (None, "note: app_name is not set"),
        ("pyspark-shell", "note: the app is called 'pyspark-shell', and other drivers may be too"),
        ("Databricks Shell", "note: the app is called 'Databricks Shell'"),
    ],
)
def test_check_explains_the_cost_of_a_generic_app_name(check, app_name, note):
    code, output, _ = check(**named(app_name), webhook_url="https://h.example/x")

    assert code == 0
    assert any(line.startswith(note) for line in output.splitlines())
    assert "left open are not resolved at the start" in output


@pytest.mark.parametrize(
    ("hint", "is_altered"),
    [
        ("kubectl -n shop rollout restart deployment/orders", False),
        ("Airflow, DAG nightly_orders: clear the task load", False),
        ("https://airflow.example.com/dags/orders", False),
        ("curl -H 'Authorization: Bearer $TOKEN' https://jobs.example.com/orders", True),
    ],
)
def test_check_says_when_a_restart_hint_is_not_shown_as_it_is(check, hint, is_altered):
    _, output, _ = check(restart_hint=hint)

    notes = [line for line in output.splitlines() if line.startswith("note: restart_hint of '*'")]
    assert len(notes) == is_altered
    assert all("[redacted]" in line for line in notes)


def test_check_masks_secrets_and_the_paths_of_webhooks(check, tmp_path):
    secret = tmp_path / "token"
    secret.write_text("content-of-the-file")
    code, output, errors = check(
        pagerduty_routing_key=KEY,
        webhook_url="https://user:word@hooks.example.com/services/hidden",
        http_token_file=str(secret),
    )

    assert (code, errors) == (0, "")
    for hidden in (KEY, "word", "hidden", "content-of-the-file"):
        assert hidden not in output
    assert shown(output)["webhook_url"][0] == '"https://hooks.example.com/..."'
    assert shown(output)["http_token_file"][0] == f'"{secret}"'


REJECTED = [
    ({"stall_flor_seconds": "1"}, "stall_floor_seconds"),
    ({"http_port": "70000"}, "65535"),
    ({"config": "/nowhere/pulse.toml"}, "/nowhere/pulse.toml"),
    ({"webhook_url": "http://alerts.example.com/hidden"}, "allow_http"),
    ({"webhook_url": "https://h/hidden", "webhook_url_file": "/u"}, "not both"),
    ({"pagerduty_routing_key_file": "/nowhere"}, "pagerduty_routing_key_file"),
    ({"heartbeat_url": "hidden"}, "heartbeat_url"),
    ({"receivers": '[{"type": "slack", "name": "a", "url": "hidden"}]'}, "receiver 'a': url"),
    ({"silence_file": "/"}, "silence_file"),
    ({"spool_dir": "/etc/hostname"}, "'spool_dir': /etc/hostname: Not a directory"),
    ({"spool_dir": "/proc/spool"}, "'spool_dir': /proc/spool: No such file or directory"),
    ({"spool_dir": "s3a:bucket/querypulse"}, "a local path, or a URI with a scheme"),
    ({"incidents_dir": "/etc/hostname"}, "'incidents_dir': /etc/hostname: Not a directory"),
    ({"incidents_dir": "/proc/x"}, "'incidents_dir': /proc/x: No such file or directory"),
    ({"incidents_dir": " "}, "a local path, or a URI with a scheme"),
    ({"http_host": "0.0.0.0"}, "http_allow_anonymous"),
    ({"redact_patterns": "acct-("}, "redact_patterns"),
    ({"http_tls_cert_file": "/nowhere"}, "http_tls_key_file"),
]


@pytest.mark.parametrize(("settings", "word"), REJECTED)
def test_check_rejects_unusable_settings_in_one_line(check, settings, word):
    code, output, errors = check(**settings)

    assert (code, output, errors.count("\n")) == (USAGE_ERROR, "", 1)
    assert errors.startswith("querypulse: ")
    assert word in errors
    assert "hidden" not in errors
    assert "QUERYPULSE_" in errors


def test_check_tries_local_folders_and_says_that_it_does_not_try_those_of_hadoop(check, tmp_path):
    store = "s3a://nobody.example/querypulse"
    _, output, errors = check(spool_dir=store, incidents_dir=str(tmp_path / "a" / "b"))

    assert errors == ""
    assert f"note: spool_dir: {store} is only tried in the driver, by its Hadoop\n" in output
    assert "note: incidents_dir" not in output
    assert list(tmp_path.iterdir()) == []


def test_installed_command_is_this_one():
    (script,) = entry_points(group="console_scripts", name="querypulse")

    assert script.load() is commands.main


@pytest.mark.slow
def test_settings_can_be_checked_without_pyspark():
    """The package is blocked, as if it were not installed."""
    script = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "from querypulse.commands.cli import main\n"
        "sys.exit(main(['check']))"
    )
    done = subprocess.run([sys.executable, "-Ic", script], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (1, "")
    assert "stall_floor_seconds" in done.stdout


# -- test-alert -----------------------------------------------------------------------------------


def reported(server):
    """The alerts that a webhook received: (status, name, severity)."""
    alerts = [alert for request in server.requests for alert in json.loads(request.body)["alerts"]]
    return [(a["status"], a["labels"]["alertname"], a["labels"]["severity"]) for a in alerts]


def test_test_alert_is_a_warning_that_resolves_at_once(run_test_alert, server):
    assert run_test_alert(webhook_url=server.url)[0] == 0
    assert reported(server) == [
        ("firing", TEST_ALERT, "warning"),
        ("resolved", TEST_ALERT, "warning"),
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
    labels = {"env": "prod"}
    run_test_alert(*arguments, webhook_url=server.url, labels=labels, **named(app_name))

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
    assert len(server.requests) == 9
    lines = output.splitlines()
    assert [line.split()[0] for line in lines] == ["webhook", "oncall", "team", "pd", "am"]
    assert all(line.endswith("accepted the test alert and its end") for line in lines[:-1])
    assert "accepted the test alert: it notifies after its group_wait" in lines[-1]


def test_alertmanager_ends_a_critical_test_alert_by_itself_after_its_group_wait(run_test_alert):
    with HttpDouble(otherwise=reply(200)) as server:
        run_test_alert("--severity", "critical", alertmanager_urls=[server.url])
        (posted,) = server.requests
    (alert,) = json.loads(posted.body)
    starts, ends = (datetime.fromisoformat(alert[at]) for at in ("startsAt", "endsAt"))

    assert timedelta(minutes=3) < ends - starts < timedelta(minutes=5)


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
            "'spool_dir': /proc/spool: No such file",
        ),
    ],
)
def test_unusable_settings_are_refused_before_sending(run_test_alert, server, settings, message):
    settings = {key: server.url if text == "HERE" else text for key, text in settings.items()}
    code, output, errors = run_test_alert(**settings)

    assert (code, output, server.requests) == (USAGE_ERROR, "", [])
    assert message in errors


# -- demo -----------------------------------------------------------------------------------------


@pytest.fixture
def scripts(monkeypatch):
    """The settings of the requested demos, which do not run."""
    asked = []
    play = lambda **arguments: asked.append(DemoSettings(**arguments)) or 7
    monkeypatch.setitem(cli._COMMANDS, "demo", play)
    return asked


def test_every_demo_setting_can_be_given(scripts):
    options = "--scenario hang --queries 2 --after 0 --duration 1.5 --http-port -1"
    cli.main(["demo", *options.split(), "--webhook-url", "http://localhost/x"])

    assert scripts == [DemoSettings("hang", 2, 0.0, 1.5, "http://localhost/x", -1)]


WRONG = {
    "": "required: command",
    "dance": "'dance' (choose from",
    "check --scenario failure": "unrecognized arguments: --scenario; --help lists",
    "demo failure": "unrecognized arguments: failure",
    "demo --scenario flies": "--scenario: invalid choice: 'flies'",
    "demo --scenario": "--scenario: expected one argument",
    "demo --queries 1": "--queries: 2 queries or more, given '1'",
    "demo --queries eight": "--queries: 2 queries or more, given 'eight'",
    "demo --queries 2.5": "--queries: 2 queries or more, given '2.5'",
    "demo --after -1": "--after: seconds, 0 or more, given '-1'",
    "demo --after nan": "--after: seconds, 0 or more, given 'nan'",
    "demo --duration soon": "--duration: seconds, 0 or more, given 'soon'",
    "demo --http-port http": "--http-port: invalid int value: 'http'",
    "demo --supervised yes": "unrecognized arguments: yes",
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.items())
def test_wrong_arguments_exit_with_2_and_a_message(scripts, capsys, arguments, message):
    with pytest.raises(SystemExit) as left:
        cli.main(arguments.split())
    output, errors = capsys.readouterr()

    assert (left.value.code, output, scripts) == (USAGE_ERROR, "", [])
    assert message in errors
    assert " _" not in errors, "no internal name"


MISSING = [
    ({"java": None}, ["needs Java", "JAVA_HOME"]),
    ({"pyspark": None}, ["PySpark", "pip install"]),
    ({"java": None, "pyspark": None}, ["needs Java"]),
    ({}, None),
    ({"java": None, "java_home": "/jdk"}, None),
]


@pytest.mark.parametrize(("machine", "words"), MISSING)
def test_demo_that_cannot_start_says_what_to_install(monkeypatch, machine, words):
    """Java on the path or in JAVA_HOME is enough."""
    machine = {"java": "/java", "pyspark": object(), "java_home": ""} | machine
    monkeypatch.setattr(installed.shutil, "which", lambda _: machine["java"])
    monkeypatch.setattr(installed, "find_spec", lambda _: machine["pyspark"])
    monkeypatch.setenv("JAVA_HOME", machine["java_home"])
    if words is None:
        require_spark()
        return
    with pytest.raises(NotInstalledError) as refused:
        require_spark()
    message = str(refused.value)

    assert message.startswith("the demo needs ")
    assert "\n" not in message
    assert all(word in message for word in words)
