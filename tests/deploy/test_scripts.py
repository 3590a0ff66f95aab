"""The scripts of ``deploy/`` install, switch auto-attach on, and never stop a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from support.repository import ROOT

from querypulse.commands import cli

SCRIPTS = {path.parent.name: path for path in sorted((ROOT / "deploy").glob("*/*.sh"))}
WHEEL = "querypulse-0.1.0-py3-none-any.whl"
WHEELS = {
    "databricks": f"/Volumes/main/tools/{WHEEL}",
    "emr": f"s3://bucket/{WHEEL}",
    "dataproc": f"gs://bucket/{WHEEL}",
}
PYTHON = {"databricks": "", "emr": "python3", "dataproc": "/opt/conda/default/bin/python"}
"""The Python that a script uses by default."""
FAKE = """#!/bin/bash
echo "$(basename "$0") $*" >> "$LOG"
case "$*" in
  *sysconfig*) dirname "$0" ;;
  *version_info*) exit "${OLD:-0}" ;;
esac
[[ "$*" != *"${BROKEN:-nothing}"* ]]
"""
METADATA = """#!/bin/bash
[ "$1" = attributes/querypulse-wheel ] && echo "$WHEEL_METADATA"
"""
SUDO = '#!/bin/bash\nexec "$@"\n'
COPY = """#!/bin/bash
echo "$(basename "$0") $*" >> "$LOG"
[[ "$*" != *"${BROKEN:-nothing}"* ]] || exit 1
for word in "$@"; do [[ "$word" = *:* ]] && from=$word; done
touch "${!#}${from##*/}"
"""


@pytest.fixture
def run(tmp_path):
    """Run a script among programs that only write down how they are called.

    Returns what was called, with the folder of this run as ``TMP``, and the script's errors.
    """
    folder, log = tmp_path / "bin", tmp_path / "log"
    folder.mkdir()
    programs = dict.fromkeys(("python3", "python", "pip", "querypulse", "python3.11"), FAKE)
    programs |= {"aws": COPY, "gcloud": COPY, "get_metadata_value": METADATA, "sudo": SUDO}
    for name, content in programs.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)

    def run_script(place, *words, wheel="", **environment):
        # The platforms' own paths lead to the fakes.
        text = SCRIPTS[place].read_text()
        for path in ("/databricks/python/bin", "/opt/conda/default/bin", "/usr/share/google"):
            text = text.replace(path, str(folder))
        log.write_text("")
        done = subprocess.run(
            ["bash", "-c", text, place, *words],
            env={
                "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
                "TMPDIR": str(tmp_path),
                "LOG": str(log),
                "WHEEL_METADATA": wheel,
                **environment,
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0
        called = re.sub(rf"{re.escape(str(tmp_path))}/tmp\.\w+", "TMP", log.read_text())
        return called.splitlines(), done.stderr

    return run_script


def words_of(place):
    """The arguments, and the metadata, with which a page starts a script."""
    return ((), {"wheel": WHEELS[place]}) if place == "dataproc" else ((WHEELS[place],), {})


def start(run, place, **environment):
    words, metadata = words_of(place)
    return run(place, *words, **metadata, **environment)


@pytest.mark.parametrize("place", WHEELS)
def test_script_can_be_parsed_and_started(place):
    done = subprocess.run(["bash", "-n", SCRIPTS[place]], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert os.access(SCRIPTS[place], os.X_OK)
    assert SCRIPTS[place].read_text().startswith("#!/bin/bash\n")


@pytest.mark.parametrize("place", SCRIPTS)
def test_script_installs_the_wheel_and_switches_auto_attach_on(run, place):
    called, errors = start(run, place)
    installs = [line for line in called if " install " in line]

    assert errors == ""
    assert len(installs) == 1
    assert installs[0].endswith(WHEEL)
    assert called[-1] == "querypulse auto-attach on"


@pytest.mark.parametrize(
    ("place", "copy"), [("emr", "aws s3 cp"), ("dataproc", "gcloud storage cp")]
)
def test_wheel_is_copied_before_it_is_installed(run, place, copy):
    called, _ = start(run, place)
    commands = [line for line in called if "-c" not in line.split()]

    assert commands[0] == f"{copy} {WHEELS[place]} TMP/"
    assert commands[1].endswith(f" -m pip install --disable-pip-version-check TMP/{WHEEL}")


def test_databricks_installs_the_path_in_the_script_without_an_argument(run):
    called, _ = run("databricks")

    assert called[0].endswith(WHEELS["databricks"])


def test_databricks_executors_get_nothing(run):
    assert run("databricks", DB_IS_DRIVER="FALSE") == ([], "")
    assert len(run("databricks", DB_IS_DRIVER="TRUE")[0]) == 2


def test_another_python_can_be_named(run):
    called, _ = run("emr", WHEELS["emr"], "python3.11")

    assert [line for line in called if line.startswith("python3 ")] == []
    assert called[-1] == "querypulse auto-attach on"


@pytest.mark.parametrize("place", SCRIPTS)
def test_a_failure_is_named_and_the_cluster_starts(run, place):
    # On Databricks, pip itself reads the volume: nothing is copied.
    of_copy = WHEEL if place == "databricks" else " cp "
    for broken in ("install", "auto-attach", of_copy):
        called, errors = start(run, place, BROKEN=broken)

        assert f"not installed from {WHEELS[place]}; jobs start without it" in errors
        assert called[-1:] != ["querypulse auto-attach on"] or broken == "auto-attach"


@pytest.mark.parametrize("place", ["emr", "dataproc"])
def test_an_old_python_is_named_and_nothing_is_installed(run, place):
    called, errors = start(run, place, OLD="1")

    assert "is older than 3.10" in errors
    assert len(called) == 1


def test_missing_metadata_are_named(run):
    _, errors = run("dataproc", BROKEN=" cp ")

    assert "not installed from the metadata querypulse-wheel" in errors


@pytest.mark.parametrize("place", ["emr", "dataproc"])
def test_the_check_of_the_version_is_right(place):
    (code,) = re.findall(r"-c '(import sys; [^']*)'", SCRIPTS[place].read_text())

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    for version, expected in [((3, 9, 18), True), ((3, 10, 0), False), ((3, 11, 2), False)]:
        found = []
        fake = type("sys", (), {"version_info": version, "exit": staticmethod(found.append)})
        exec(code.removeprefix("import sys; "), {"sys": fake})
        assert found == [expected]


@pytest.mark.parametrize("place", SCRIPTS)
def test_commands_of_ours_exist(place):
    for words in re.findall(r'querypulse" ([a-z -]+)$', SCRIPTS[place].read_text(), re.MULTILINE):
        assert cli._parser().parse_args(words.split())
