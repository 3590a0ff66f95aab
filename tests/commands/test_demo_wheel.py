"""The demo as people run it who have only the wheel."""

from __future__ import annotations

import subprocess

import pytest
from support.demo import demo, unwrapped
from support.wheel import build_wheel, install_alone

pytestmark = pytest.mark.spark


def test_demo_of_an_installed_wheel_shows_its_page_without_the_checkout(tmp_path):
    programs = install_alone(build_wheel(tmp_path), tmp_path / "venv")
    where = subprocess.run(
        [programs / "python", "-Ic", "import querypulse; print(querypulse.__file__)"],
        capture_output=True,
        text=True,
    )
    command = [programs / "querypulse", "demo"]
    failure = ["--scenario", "failure", "--after", "0", "--queries", "2"]

    result = demo(*failure, command=command)

    assert where.stdout.startswith(str(tmp_path / "venv")), where.stderr
    assert result.returncode == 0, result.stdout + result.stderr
    assert "alertname    StreamingQueryFailed" in unwrapped(result.stdout)
    assert "result             as expected" in result.stdout
