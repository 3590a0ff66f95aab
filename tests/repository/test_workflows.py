"""The workflows: CI runs ``.ci/run``, and only the job that publishes may prove who it is."""

from __future__ import annotations

import re

import pytest
import yaml
from support.repository import ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in FOLDER.glob("*.yml")}


def commands(job):
    return "\n".join(step.get("run", "") for step in job["steps"])


def actions(name):
    steps = [step for job in WORKFLOWS[name]["jobs"].values() for step in job["steps"]]
    return [step["uses"] for step in steps if "uses" in step]


def test_ci_runs_what_people_run():
    assert ".ci/run" in commands(WORKFLOWS["ci"]["jobs"]["checks"]).splitlines()


def test_only_the_publishing_job_has_an_identity():
    jobs = WORKFLOWS["release"]["jobs"]

    assert WORKFLOWS["release"]["permissions"] == {}
    assert jobs["build"]["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    assert jobs["publish"]["needs"] == "build"
    assert commands(jobs["publish"]).strip() == ""


def test_the_wheel_is_checked_before_it_is_published():
    checked = commands(WORKFLOWS["release"]["jobs"]["build"])

    assert [
        word for word in ("--version", "querypulse check", "mypy --strict") if word not in checked
    ] == []
    assert (ROOT / re.search(r"mypy --strict (\S+)", checked).group(1)).is_file()


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflows_name_no_address_and_pin_their_actions(name):
    assert "://" not in (FOLDER / f"{name}.yml").read_text()
    assert [one for one in actions(name) if not re.fullmatch(r"[\w./-]+@[\w./]+", one)] == []
