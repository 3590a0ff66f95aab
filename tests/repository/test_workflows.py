"""The workflows: CI runs ``.ci/run``, and only the job that publishes may prove who it is."""

from __future__ import annotations

import re

import yaml
from support.repository import ROOT


def workflow(name):
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())


def commands(job):
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_each_action_is_pinned_by_its_commit():
    for name in ("ci", "release"):
        steps = [step for job in workflow(name)["jobs"].values() for step in job["steps"]]
        actions = [step["uses"] for step in steps if "uses" in step]

        assert actions, name
        assert [action for action in actions if not re.search(r"@[0-9a-f]{40}$", action)] == []


def test_only_the_publishing_job_has_an_identity():
    release = workflow("release")
    jobs = release["jobs"]

    assert release["permissions"] == {}
    assert jobs["build"]["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    assert jobs["publish"]["needs"] == "build"
    assert commands(jobs["publish"]).strip() == ""


def test_the_wheel_is_checked_before_it_is_published():
    checked = commands(workflow("release")["jobs"]["build"])

    assert [
        word for word in ("--version", "querypulse check", "mypy --strict") if word not in checked
    ] == []
    assert (ROOT / re.search(r"mypy --strict (\S+)", checked).group(1)).is_file()
