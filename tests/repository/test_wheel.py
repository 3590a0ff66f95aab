"""The wheel as users get it: installed in an empty environment, and imported from the archive."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from email import message_from_string
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
from support.repository import ROOT
from support.wheel import build_wheel, install_alone

import querypulse

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).with_name("typed_example.py")
DATA = {".java", ".tmpl", ".html", ".css", ".js", ".json", ".yaml", ".yml", ".md", ".typed"}
"""What the packages contain beside Python."""
FROM_ARCHIVE = """
import sys
sys.path.insert(0, sys.argv[1])
import querypulse
from querypulse import Settings, SettingsError
from querypulse.commands import cli
from querypulse.exporter import pages
from querypulse.launch import launcher, startup
from querypulse.listener.spark import jvm
from querypulse.settings import links
assert sys.argv[1] in querypulse.__file__, querypulse.__file__
assert "SparkListener" in jvm.java_source("")
assert pages.status_page().body
assert "StreamingQueryFailed" in links.runbook("StreamingQueryFailed")
assert "StreamingQueryFailed" in links.next_steps()
startup.start()
try:
    launcher.launcher_script()
except launcher.LaunchError as error:
    print(error)
assert cli.main(["dashboards", "export", sys.argv[2]]) == 0
cli.main(["run", sys.argv[3], "word"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run a program of an environment that has only the wheel and this one's dependencies."""
    programs = install_alone(wheel, tmp_path_factory.mktemp("alone") / "venv")

    def run(program, *words, **environment):
        return ran([programs / program, *words], tmp_path_factory.mktemp("empty"), **environment)

    return run


def ran(command, folder, **environment):
    kept = {key: text for key, text in os.environ.items() if not key.startswith("QUERYPULSE_")}
    done = subprocess.run(
        command, cwd=folder, env=kept | environment, capture_output=True, text=True
    )
    return SimpleNamespace(code=done.returncode, output=done.stdout, errors=done.stderr)


def names(wheel):
    return {name for name in ZipFile(wheel).namelist() if not name.endswith("/")}


# -- what it contains -------------------------------------------------------------------------


def test_its_only_package_is_querypulse(wheel):
    tops = {name.partition("/")[0] for name in names(wheel)}

    assert tops == {"querypulse", f"querypulse-{querypulse.__version__}.dist-info"}
    assert {"tests", "tools", "benchmarks", "examples"}.isdisjoint(
        name.split("/")[1] for name in names(wheel)
    )


def test_it_contains_every_file_of_its_packages(wheel):
    packages = {name.rsplit("/", 1)[0] for name in names(wheel) if name.endswith("/__init__.py")}
    folders = [ROOT / name.partition("/")[2] for name in packages - {"querypulse"}]
    files = {path for folder in folders for path in folder.iterdir() if path.is_file()}
    files |= {path for path in (ROOT / "dashboards").rglob("*") if path.is_file()}
    expected = {
        f"querypulse/{path.relative_to(ROOT).as_posix()}"
        for path in files
        if path.suffix in DATA | {".py"}
    }

    assert len(expected) > 100
    assert expected - names(wheel) == set()
    assert "querypulse/py.typed" in names(wheel)


def metadata_of(wheel):
    (name,) = (name for name in names(wheel) if name.endswith(".dist-info/METADATA"))
    return message_from_string(ZipFile(wheel).read(name).decode())


def test_its_page_on_an_index_has_no_link_that_needs_the_checkout(wheel):
    """An index shows the README beside nothing: each link and picture has a whole address."""
    metadata = metadata_of(wheel)
    page = metadata.get_payload()
    targets = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", page)
    relative = [link for pair in targets for link in pair if link and "://" not in link]
    pictures = re.findall(r"https?://\S+\.(?:svg|png)", page)

    assert metadata["Description-Content-Type"] == "text/markdown"
    assert len(targets) > 20
    assert relative == []
    assert len(pictures) > 2
    assert [link for link in pictures if "//raw.githubusercontent.com/" not in link] == []


def test_its_metadata_says_whose_it_is_and_where_things_are(wheel):
    metadata = metadata_of(wheel)
    links = dict(entry.split(", ") for entry in metadata.get_all("Project-URL"))

    assert set(links) == {"Repository", "Documentation", "Runbooks", "Changelog", "Issues"}
    assert {link.partition("/querypulse/querypulse")[0] for link in links.values()} == {
        "https://github.com"
    }
    assert f"## [{metadata['Version']}]" in (ROOT / "CHANGELOG.md").read_text()
    assert len(metadata["Keywords"].split(",")) > 5
    assert "Programming Language :: Python :: 3.13" in metadata.get_all("Classifier")


def test_it_has_its_extras_and_never_installs_pyspark(wheel):
    metadata = metadata_of(wheel)
    required = metadata.get_all("Requires-Dist")

    assert set(metadata.get_all("Provides-Extra")) == {"spark", "replay", "otlp"}
    assert [line for line in required if "spark" in line and "extra ==" not in line] == []
    assert any(line.startswith("pyspark") and 'extra == "spark"' in line for line in required)


# -- installed --------------------------------------------------------------------------------


def test_its_program_runs_where_nothing_else_is(installed):
    version = installed("querypulse", "--version")

    assert (version.code, version.output) == (0, f"querypulse {querypulse.__version__}\n")
    assert installed("querypulse", "check").output.endswith("queries.yaml (docs/prometheus.md).\n")
    assert installed("querypulse", "demo", "--help").code == 0
    assert Path(installed("querypulse", "launcher").output.strip()).is_file()


def test_it_runs_a_job(installed, tmp_path):
    job = tmp_path / "job.py"
    job.write_text("import sys\nprint(sys.argv[1:], __name__)\nsys.exit(3)\n")
    done = installed("querypulse", "run", job, "word")

    assert (done.code, done.output, done.errors) == (3, "['word'] __main__\n", "")


def test_auto_attach_is_off_until_it_is_switched_on(installed):
    hook = "import sys; print(any(type(one).__name__ == 'ImportHook' for one in sys.meta_path))"
    for action, shown in [("status", "off"), ("on", "on"), ("status", "on"), ("off", "off")]:
        done = installed("querypulse", "auto-attach", action)
        assert (done.code, done.errors) == (0, "")
        assert done.output.startswith(f"file      {shown}")
        waits = installed("python", "-c", hook, QUERYPULSE_AUTO_ATTACH="1").output.strip()
        assert waits == str(shown == "on")


# -- imported from the archive ----------------------------------------------------------------


def test_it_works_from_the_archive(wheel, tmp_path):
    script, job = tmp_path / "script.py", tmp_path / "job.py"
    script.write_text(FROM_ARCHIVE)
    job.write_text(
        "import os, sys, querypulse.launch.startup\n"
        "print(sys.argv[1:], sys.path[0], os.environ['PYTHONPATH'])\n"
    )
    # The base Python knows no editable install; a cluster may name the archive by a relative path.
    path = os.pathsep.join([wheel.name, sysconfig.get_path("purelib")])
    python = [sys._base_executable, script, wheel.name, tmp_path / "exported", job]
    done = ran(python, wheel.parent, PYTHONPATH=path)

    assert done.code == 0, done.errors
    assert "is not a file: install querypulse" in done.output
    assert done.output.splitlines()[-1] == f"['word'] {tmp_path} {path}"
    assert (tmp_path / "exported" / "prometheus" / "queries.yaml").is_file()


# -- types ------------------------------------------------------------------------------------


def test_the_typed_example_uses_every_public_name():
    spec = importlib.util.spec_from_file_location("typed_example", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    text = EXAMPLE.read_text()
    members = {name for name in dir(querypulse.Sidecar) if not name.startswith("_")}

    assert [name for name in querypulse.__all__ if not hasattr(example, name)] == []
    assert [name for name in members if f".{name}" not in text] == []
    assert f"mypy --strict {EXAMPLE.relative_to(ROOT)}" in (ROOT / "Makefile").read_text()
