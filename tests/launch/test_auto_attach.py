"""``querypulse auto-attach`` writes, shows and removes one ``.pth`` file, off unless asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import venv

import pytest
from support.repository import ROOT

from querypulse.commands import cli
from querypulse.launch import auto_attach
from querypulse.launch.auto_attach import CONTENT, MARK, NAME, status_lines

LOADED = "import sys; print('querypulse.launch.startup' in sys.modules)"
pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def run_auto_attach(monkeypatch, tmp_path, capsys):
    """Run the command on a folder; returns exit code, output and errors."""
    monkeypatch.setattr(cli, "site_packages", lambda: tmp_path)

    def run(action):
        code = cli.main(["auto-attach", action])
        return code, *capsys.readouterr()

    return run


def test_on_and_off(run_auto_attach, tmp_path):
    for action, expected in [("on", [NAME]), ("on", [NAME]), ("off", []), ("off", [])]:
        code, output, errors = run_auto_attach(action)
        assert (code, errors) == (0, "")
        assert output.startswith(f"file      {action}")
        assert [path.name for path in tmp_path.iterdir()] == expected


@pytest.mark.parametrize(
    ("content", "value", "shown"),
    [
        (None, None, ["off, there is no file", "not set", "on` and set QUERYPULSE_AUTO_ATTACH=1"]),
        (None, "1", ["off", "'1'", "to attach, run `querypulse auto-attach on`"]),
        (CONTENT, None, ["on:", "not set", "to attach, set QUERYPULSE_AUTO_ATTACH=1"]),
        (CONTENT, "0", ["on:", "'0'", "nothing is attached"]),
        (
            CONTENT,
            "ja",
            ["on:", "'ja'; allowed: 1, true", "to attach, set QUERYPULSE_AUTO_ATTACH=1"],
        ),
        (CONTENT, "1", ["on:", "'1'", "drivers that start here are attached"]),
        (f"{MARK}, version 9\nimport x\n", "1", ["of another version", "'1'", "drivers"]),
        ("import x\n", "1", ["not ours", "'1'", "nothing is attached"]),
    ],
)
def test_status(content, value, shown, tmp_path):
    if content is not None:
        (tmp_path / NAME).write_text(content)
    environment = {} if value is None else {"QUERYPULSE_AUTO_ATTACH": value}
    file, variable, _, result = status_lines(tmp_path, environment)

    lines = (file, variable, result)
    assert [part for part, line in zip(shown, lines, strict=True) if part not in line] == []


def test_status_names_the_python_and_its_pyspark(tmp_path, monkeypatch):
    line = status_lines(tmp_path, {})[2]
    assert line.startswith("pyspark   found in ")
    monkeypatch.setattr(auto_attach, "find_spec", lambda _: None)
    line = status_lines(tmp_path, {})[2]

    assert f"not found by {sys.executable}" in line
    assert "spark-submit" in line


@pytest.mark.parametrize("action", ["on", "off"])
def test_a_file_of_another_version_is_replaced_and_one_that_is_not_ours_is_kept(
    run_auto_attach, tmp_path, action
):
    file = tmp_path / NAME
    file.write_text(f"{MARK}, version 0\n")
    assert run_auto_attach(action)[0] == 0
    assert (file.read_text() if file.exists() else None) == (CONTENT if action == "on" else None)
    file.write_text("import other\n")
    code, output, errors = run_auto_attach(action)

    assert (code, output) == (2, "")
    assert "is not ours" in errors
    assert file.read_text() == "import other\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Python of a new environment in which auto-attach is on; ``folder`` is its site-packages."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home)
    (folder,) = home.glob("lib/python*/site-packages")
    (folder / NAME).write_text(CONTENT)
    links = folder / "querypulse"
    links.mkdir()
    for entry in ("__init__.py", "core", "launch"):
        (links / entry).symlink_to(ROOT / entry)

    def run(*words, **environment):
        ran = subprocess.run(
            [home / "bin" / "python", *words],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )
        assert ran.stderr == ""
        return ran.stdout.strip()

    run.folder = folder
    return run


def test_python_starts_without_us_until_the_variable_is_set_and_silently_without_querypulse(python):
    assert python("-c", LOADED) == "False"
    assert python("-c", LOADED, QUERYPULSE_AUTO_ATTACH="0") == "True"
    assert python("-c", LOADED, QUERYPULSE_AUTO_ATTACH="1") == "True"
    (python.folder / "querypulse").rename(python.folder / "away")
    assert python("-c", LOADED, QUERYPULSE_AUTO_ATTACH="1") == "False"
