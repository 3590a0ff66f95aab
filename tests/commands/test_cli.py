"""The command line prints the effective settings, rejects invalid ones, and sets its exit code."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points, version

import pytest

from querypulse import sidecar
from querypulse.commands import cli
from querypulse.settings.settings import TYPES

KEY = "R0123456789abcdefghijklmnopqrstu"
USAGE_ERROR = 2
TEAM = "[{name = 'team', type = 'webhook', url = 'https://h.example/x', match = {team = 'pay*'}}]"


pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def check(monkeypatch, capsys):
    """Run ``querypulse check`` with settings; returns exit code, output and errors."""

    def run(**settings):
        for name, value in settings.items():
            monkeypatch.setenv(f"QUERYPULSE_{name.upper()}", value)
        code = cli.main(["check"])
        return code, *capsys.readouterr()

    return run


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
    ("settings", "summary"),
    [
        ({}, "These settings can be used, but no receiver is configured, so nobody is notified"),
        (
            {"webhook_url": "https://h.example/x", "alertmanager_urls": "https://am.example"},
            "These settings can be used: 2 receivers (webhook, alertmanager).",
        ),
        (
            {"receivers": TEAM, "app_name": "etl", "labels": "{env = 'prod', team = 'risk'}"},
            "These settings can be used, but no receiver takes critical incidents of this job "
            "(app=etl, env=prod, team=risk): see `match` and `severities`; nobody is notified",
        ),
        (
            {"receivers": TEAM, "labels": "{env = 'prod', team = 'payments-eu'}"},
            "These settings can be used: 1 receiver (team).",
        ),
    ],
)
def test_check_ends_with_a_summary(check, settings, summary):
    code, output, _ = check(**settings)

    assert code == 0
    assert output.splitlines()[-1].startswith(summary)


@pytest.mark.parametrize(
    ("app_name", "note"),
    [
        (None, "note: app_name is not set"),
        ("pyspark-shell", "note: the app is called 'pyspark-shell', and other drivers may be too"),
        ("Databricks Shell", "note: the app is called 'Databricks Shell'"),
    ],
)
def test_check_explains_the_cost_of_a_generic_app_name(check, app_name, note):
    code, output, _ = check(**({} if app_name is None else {"app_name": app_name}))

    assert code == 0
    assert any(line.startswith(note) for line in output.splitlines())
    assert "left open are not resolved at the start" in output


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
    ({"http_host": "0.0.0.0"}, "http_allow_anonymous"),
    ({"redact_patterns": "acct-("}, "redact_patterns"),
    ({"http_tls_cert_file": "/nowhere"}, "http_tls_key_file"),
]


def test_check_rejects_unusable_settings_in_one_line(check, monkeypatch):
    for settings, word in REJECTED:
        with monkeypatch.context() as changed:
            for name, value in settings.items():
                changed.setenv(f"QUERYPULSE_{name.upper()}", value)
            code, output, errors = check()

        assert (code, output) == (USAGE_ERROR, ""), settings
        assert errors.startswith("querypulse: ")
        assert errors.count("\n") == 1
        assert word in errors
        assert "hidden" not in errors


def test_installed_command_is_this_one():
    (script,) = entry_points(group="console_scripts", name="querypulse")

    assert script.load() is cli.main


@pytest.mark.slow
def test_settings_can_be_checked_without_pyspark():
    """The package is blocked, as if it were not installed."""
    script = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        "from querypulse.commands.cli import main\n"
        "sys.exit(main(['check']))"
    )
    done = subprocess.run([sys.executable, "-Ic", script], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert "stall_floor_seconds" in done.stdout
