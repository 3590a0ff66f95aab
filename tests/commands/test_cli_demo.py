"""The command line of the demo: valid arguments, invalid ones, and requirements."""

from __future__ import annotations

import pytest

from querypulse.commands import cli
from querypulse.commands.demo.scenarios import DemoSettings
from querypulse.core import installed
from querypulse.core.installed import require_spark

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


WRONG = [
    ([], "required: command"),
    (["dance"], "'dance' (choose from"),
    (["check", "--scenario", "failure"], "unrecognized arguments: --scenario failure"),
    (["demo", "failure"], "unrecognized arguments: failure"),
    (["demo", "--scenario", "flies"], "--scenario: invalid choice: 'flies'"),
    (["demo", "--scenario"], "--scenario: expected one argument"),
    (["demo", "--queries", "1"], "--queries: 2 queries or more, given '1'"),
    (["demo", "--queries", "-8"], "--queries: 2 queries or more, given '-8'"),
    (["demo", "--queries", "eight"], "--queries: 2 queries or more, given 'eight'"),
    (["demo", "--queries", "2.5"], "--queries: 2 queries or more, given '2.5'"),
    (["demo", "--after", "-1"], "--after: seconds, 0 or more, given '-1'"),
    (["demo", "--after", "soon"], "--after: seconds, 0 or more, given 'soon'"),
    (["demo", "--after", "nan"], "--after: seconds, 0 or more, given 'nan'"),
    (["demo", "--after", "inf"], "--after: seconds, 0 or more, given 'inf'"),
    (["demo", "--duration", "-0.1"], "--duration: seconds, 0 or more, given '-0.1'"),
    (["demo", "--duration", ""], "--duration: seconds, 0 or more, given ''"),
    (["demo", "--http-port", "http"], "--http-port: invalid int value: 'http'"),
    (["demo", "--pipeline", "delta"], "unrecognized arguments: --pipeline delta"),
    (["demo", "--supervised", "yes"], "unrecognized arguments: yes"),
]


def test_wrong_arguments_exit_with_2_and_a_message(scripts, capsys):
    for arguments, message in WRONG:
        with pytest.raises(SystemExit) as left:
            cli.main(arguments)
        output, errors = capsys.readouterr()

        assert (left.value.code, output, scripts) == (USAGE_ERROR, "", [])
        assert message in errors
        assert " _" not in errors, "no internal name"


# -- requirements -------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch):
    """A machine with or without Java, JAVA_HOME and PySpark."""

    def have(*, java=True, java_home=None, pyspark=True):
        monkeypatch.setattr(installed.shutil, "which", lambda _: "/java" if java else None)
        monkeypatch.setattr(installed, "find_spec", lambda _: object() if pyspark else None)
        monkeypatch.delenv("JAVA_HOME", raising=False)
        if java_home is not None:
            monkeypatch.setenv("JAVA_HOME", java_home)

    return have


@pytest.mark.parametrize(
    ("has", "words"),
    [
        ({"java": False}, ["needs Java", "JAVA_HOME"]),
        ({"pyspark": False}, ["PySpark", "pip install"]),
        ({"java": False, "pyspark": False}, ["needs Java"]),
    ],
)
def test_demo_that_cannot_start_says_what_to_install(machine, capsys, has, words):
    machine(**has)
    code = cli.main(["demo"])
    output, errors = capsys.readouterr()

    assert (code, output) == (USAGE_ERROR, "")
    assert errors.startswith("querypulse: the demo needs ")
    assert errors.count("\n") == 1
    assert all(word in errors for word in words)


@pytest.mark.parametrize("has", [{}, {"java": False, "java_home": "/jdk"}])
def test_java_on_the_path_or_in_java_home_is_enough(machine, has):
    machine(**has)

    require_spark()
