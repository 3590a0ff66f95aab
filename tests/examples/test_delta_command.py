"""The command of the example on Delta Lake: its arguments, and how it ends if it cannot begin."""

from __future__ import annotations

import pytest

from querypulse.commands.demo.scenarios import DemoSettings
from querypulse.core.installed import NotInstalledError
from querypulse.examples.delta import __main__ as command
from querypulse.examples.delta.artifacts import ArtifactsError
from querypulse.examples.delta.broker import BrokerError
from querypulse.examples.delta.delta_pipeline import DeltaPipeline


def ending_with(monkeypatch, error):
    """The exit code of the command if this error is raised instead of running the demo."""

    def cannot(_):
        raise error

    monkeypatch.setattr(command, "_demo", cannot)
    return command.main([])


@pytest.mark.parametrize("error", [ArtifactsError, BrokerError, NotInstalledError])
def test_pipeline_error_exits_with_2_and_one_line(monkeypatch, capsys, error):
    code = ending_with(monkeypatch, error("no Delta Lake connector is known for Spark 9.9"))

    assert code == 2
    assert capsys.readouterr() == (
        "",
        "querypulse: no Delta Lake connector is known for Spark 9.9\n",
    )


def test_interrupted_download_exits_with_130(monkeypatch, capsys):
    assert ending_with(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "")


def test_arguments_of_the_demo_run_the_pipeline_on_delta_lake(monkeypatch):
    asked = []
    monkeypatch.setattr(command, "require_spark", lambda: None)
    monkeypatch.setattr(command, "run", lambda *given: asked.append(given) or 7)

    code = command.main(["--supervised"])

    assert code == 7
    assert asked == [(DemoSettings(supervised=True), DeltaPipeline)]
