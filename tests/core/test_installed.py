"""A package that is missing or too old is named, with what to install, in place of a traceback."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from querypulse import commands
from querypulse.core import installed
from querypulse.core.installed import explained_imports, why_not_imported


@pytest.fixture
def versions(monkeypatch):
    """Pretend that these versions are installed; None is not installed."""
    pretended = {}
    real = installed.version

    def version(name):
        there = pretended[name] if name in pretended else real(name)
        if there is None:
            raise PackageNotFoundError(name)
        return there

    monkeypatch.setattr(installed, "version", version)
    return pretended


@pytest.mark.parametrize("module", ["py4j", "py4j.protocol", "pyspark", "pyspark.sql"])
def test_missing_pyspark_is_named_with_the_python_that_lacks_it(module, monkeypatch):
    monkeypatch.setattr(installed.sys, "executable", "/opt/python3")

    assert why_not_imported(module) == (
        "querypulse needs PySpark, which this Python (/opt/python3) does not have: install "
        "querypulse in the Python that runs the driver, or: pip install 'pyspark>=3.5'"
    )


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("1.24.3", "1.24.3 is installed"),
        (None, "not installed"),
        ("1.26.4.post1", "1.26.4.post1 is"),
    ],
)
def test_package_that_is_missing_or_too_old_is_named_with_what_is_needed(versions, there, said):
    versions["urllib3"] = there
    why = why_not_imported("collections")

    assert why.startswith("querypulse needs urllib3 1.26.5 or newer, ")
    assert said in why
    assert why.endswith(": pip install --upgrade querypulse")


@pytest.mark.parametrize("there", ["1.26.5", "1.26.20", "2.0", "10.0.dev1"])
def test_package_that_is_new_enough_is_not_named(versions, there):
    versions["urllib3"] = there

    assert why_not_imported("urllib3") == ""


def test_import_of_attach_without_pyspark_says_what_to_install():
    script = (
        "import sys\n"
        "sys.modules['py4j'] = None\n"
        "try:\n"
        "    from querypulse import attach\n"
        "except ImportError as error:\n"
        "    print(error)"
    )
    done = subprocess.run([sys.executable, "-Ic", script], capture_output=True, text=True)

    assert done.stdout.startswith("querypulse needs PySpark, which this Python"), done.stderr


def test_error_for_another_reason_stays_what_it_is():
    with pytest.raises(ZeroDivisionError), explained_imports():
        raise ZeroDivisionError


def test_program_ends_with_2_and_one_line(versions, monkeypatch, capsys):
    versions["msgspec"] = "0.17.0"
    monkeypatch.setitem(commands.sys.modules, "querypulse.commands.cli", None)

    assert commands.main() == commands.COULD_NOT_BEGIN
    assert capsys.readouterr().err == (
        "querypulse: querypulse needs msgspec 0.18.6 or newer, and 0.17.0 is installed: "
        "pip install --upgrade querypulse\n"
    )
