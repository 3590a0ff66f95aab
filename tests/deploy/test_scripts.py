"""The scripts of ``deploy/`` install from a folder of wheels, or fail and say so."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from support.repository import ROOT

SCRIPTS = {path.parent.name: path for path in sorted((ROOT / "deploy").glob("*/*.sh"))}
WHEELS = {
    "databricks": "/Volumes/main/tools/querypulse",
    "emr": "s3://bucket/querypulse",
    "dataproc": "gs://bucket/querypulse",
}
COPY = {
    "emr": ["aws s3 cp --recursive s3://bucket/querypulse TMP/"],
    "dataproc": ["gcloud storage cp gs://bucket/querypulse/* TMP/"],
}
FAKE = """#!/bin/bash
echo "$(basename "$0") $*" >> "$LOG"
case "$*" in
  *sysconfig*) dirname "$0" ;;
  *version_info*) exit "${OLD:-0}" ;;
esac
[[ "$*" != *"${BROKEN:-nothing}"* ]]
"""
METADATA = """#!/bin/bash
[ "$1" = attributes/querypulse-wheels ] && echo "$WHEELS"
"""
SUDO = '#!/bin/bash\nexec "$@"\n'


@pytest.fixture
def run(tmp_path):
    """Run a script among programs that only write down how they are called.

    Returns its exit code, what was called, with the folder of this run as ``TMP``, and its errors.
    """
    folder, log = tmp_path / "bin", tmp_path / "log"
    folder.mkdir()
    programs = dict.fromkeys(
        ("python3", "python", "pip", "querypulse", "python3.11", "aws", "gcloud"), FAKE
    )
    for name, content in (programs | {"get_metadata_value": METADATA, "sudo": SUDO}).items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)

    def run_script(place, *words, **environment):
        # The platforms' own paths lead to the fakes.
        text = SCRIPTS[place].read_text()
        for path in ("/databricks/python/bin", "/opt/conda/default/bin", "/usr/share/google"):
            text = text.replace(path, str(folder))
        if not words and place != "dataproc":
            words = (WHEELS[place],)
        log.write_text("")
        done = subprocess.run(
            ["bash", "-c", text, place, *words],
            env={
                "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
                "TMPDIR": str(tmp_path),
                "LOG": str(log),
                "WHEELS": WHEELS["dataproc"],
                **environment,
            },
            capture_output=True,
            text=True,
        )
        called = re.sub(rf"{re.escape(str(tmp_path))}/tmp\.\w+", "TMP", log.read_text())
        return done.returncode, called.splitlines(), done.stderr

    return run_script


@pytest.mark.parametrize("place", WHEELS)
def test_script_installs_from_the_folder_and_switches_auto_attach_on(run, place):
    code, called, errors = run(place)
    commands = [line for line in called if "-c" not in line.split()]

    assert (code, errors) == (0, "")
    assert commands[:-2] == COPY.get(place, [])
    source = "TMP" if place in COPY else WHEELS[place]
    assert commands[-2].endswith(f" --no-index --find-links {source} querypulse")
    assert commands[-1] == "querypulse auto-attach on"


@pytest.mark.parametrize(
    ("place", "broken"),
    [(place, broken) for place in WHEELS for broken in ("--no-index", "auto-attach")]
    + [(place, " cp ") for place in COPY],
)
def test_a_failure_is_named_and_stops_the_cluster(run, place, broken):
    code, called, errors = run(place, BROKEN=broken)

    assert code == 1
    assert f"not installed from {WHEELS[place]}" in errors
    assert called[-1:] != ["querypulse auto-attach on"] or broken == "auto-attach"


def test_databricks_executors_get_nothing(run):
    assert run("databricks", DB_IS_DRIVER="FALSE") == (0, [], "")
    assert len(run("databricks", DB_IS_DRIVER="TRUE")[1]) == 2


def test_another_python_can_be_named(run):
    _, called, _ = run("emr", WHEELS["emr"], "python3.11")

    assert [line for line in called if line.startswith("python3 ")] == []


def test_missing_metadata_are_named(run):
    code, _, errors = run("dataproc", WHEELS="", BROKEN=" cp ")

    assert code == 1
    assert "not installed from the metadata querypulse-wheels" in errors


@pytest.mark.parametrize("place", COPY)
def test_an_old_python_is_named_and_nothing_is_installed(run, place):
    code, called, errors = run(place, OLD="1")

    assert (code, len(called)) == (1, 1)
    assert "is older than 3.10" in errors
