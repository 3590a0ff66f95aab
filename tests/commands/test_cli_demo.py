"""The command line of the demo: valid arguments, invalid ones, and requirements."""

from __future__ import annotations

import pytest

from querypulse.commands import cli
from querypulse.commands.demo.scenarios import DemoSettings
from querypulse.core import installed
from querypulse.core.installed import NotInstalledError, require_spark

USAGE_ERROR = 2


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
    "check --scenario failure": "unrecognized arguments: --scenario failure",
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


def test_wrong_arguments_exit_with_2_and_a_message(scripts, capsys):
    for arguments, message in WRONG.items():
        with pytest.raises(SystemExit) as left:
            cli.main(arguments.split())
        output, errors = capsys.readouterr()

        assert (left.value.code, output, scripts) == (USAGE_ERROR, "", [])
        assert message in errors
        assert " _" not in errors, "no internal name"


# -- requirements -------------------------------------------------------------------------------


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
