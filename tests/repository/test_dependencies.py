"""``requirements/`` has the versions of ``constraints.txt``, each with its hashes, and no address."""

from __future__ import annotations

import re
import runpy
import sys
from functools import cache
from types import SimpleNamespace

import pytest
from support.repository import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = ROOT / "requirements"
PINNED = re.compile(r"([\w.-]+)==(\S+)(?: ; [^\\]+)? \\")
NAME = re.compile(r"[\w.-]+")
HASH = "    --hash=sha256:" + "0" * 64
OTHER_ENVIRONMENTS = {"pyspark-prometheus"}
"""Installed by version only."""


@cache
def layers():
    """The module of the generator; the tests' path has no ``tools``."""
    path = ROOT / "tools" / "dependencies" / "layers.py"
    return SimpleNamespace(**runpy.run_path(str(path)))


def text_of(name):
    return (FOLDER / f"{name}.txt").read_text()


def plain(name):
    """A name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {plain(name): version for name, version in pairs}


def versions(name):
    """Name and version of each requirement of a file."""
    found = [PINNED.match(line).groups() for line in layers().requirements(text_of(name))]
    return {plain(package): version for package, version in found}


def declared(names):
    return {plain(NAME.match(name).group()) for name in names}


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def required(*, layer):
    """What ``pyproject.toml`` asks for in a step."""
    found = project()
    groups = found["dependency-groups"]
    asked = {
        "build": ["pip", *found["build-system"]["requires"]],
        "spark": found["project"]["dependencies"]
        + found["project"]["optional-dependencies"]["spark"],
        "tests": groups["tests"],
        "lint": groups["lint"],
        "fuzz": groups["fuzz"],
    }
    return declared(text for text in asked[layer] if "python_version < '3.11'" not in text)


def test_there_is_a_file_for_each_step_and_no_other():
    assert {path.stem for path in FOLDER.glob("*.txt")} == layers().LAYERS.keys()


def test_every_line_is_a_pinned_version_with_hashes_or_a_comment():
    """``requirements`` raises otherwise."""
    for name in layers().LAYERS:
        pinned = layers().requirements(text_of(name))

        assert pinned, name
        assert [line for line in pinned if not PINNED.match(line)] == [], name


def test_versions_are_those_of_the_constraints():
    expected = constraints()

    for name in layers().LAYERS:
        found = versions(name)
        assert found == {package: expected.get(package) for package in found}, name


def test_every_constraint_is_used():
    used = set().union(*(versions(name) for name in layers().LAYERS))

    assert constraints().keys() - used - OTHER_ENVIRONMENTS == set()


def test_everything_asked_for_is_installed_in_its_step_or_before():
    missing = {
        name: required(layer=name) - set().union(*map(versions, [*layer.after, name]))
        for name, layer in layers().LAYERS.items()
    }

    assert {name: lacking for name, lacking in missing.items() if lacking} == {}


def test_no_file_names_an_address():
    address = re.compile(r"https?:|://|--(?:extra-)?index|--find-links|\w\.(?:org|com|net)\b|@")

    assert [path.name for path in FOLDER.glob("*.txt") if address.search(path.read_text())] == []


def test_the_environment_of_the_checkout_is_installed_with_hashes():
    makefile = (ROOT / "Makefile").read_text()

    assert re.search(r"^HASHED := .*--require-hashes", makefile, re.MULTILINE)
    assert (
        set(re.findall(r"\$\(HASHED\) requirements/(\w+)\.txt", makefile)) == layers().LAYERS.keys()
    )
    assert re.findall(r"^\t\$\(PIP\) (.*)$", makefile, re.MULTILINE) == ["--editable ."]


# -- the generator ----------------------------------------------------------------------------


def test_a_step_does_not_repeat_what_an_earlier_one_installs():
    one, two = (f"{name}==1 \\\n{HASH}\n" for name in "ab")
    found = layers().files(
        dict.fromkeys(layers().LAYERS, one) | {"tests": one + two, "lint": one + two}
    )

    assert [layers().requirements(found[name]) for name in layers().LAYERS] == [
        [one],
        [],
        [two],
        [],
        [],
    ]


def test_a_requirement_with_another_condition_is_not_the_same():
    narrow, wide = f"a==1 ; os_name == 'nt' \\\n{HASH}\n", f"a==1 \\\n{HASH}\n"
    found = layers().files(dict.fromkeys(layers().LAYERS, narrow) | {"tests": wide})

    assert layers().requirements(found["tests"]) == [wide]


@pytest.mark.parametrize(
    "text",
    [
        "a==1\n",
        f"a==1 \\\n{HASH}\nb==1\n",
        f"a @ https://h.example/a.whl \\\n{HASH}\n",
        f"--index-url https://h.example\na==1 \\\n{HASH}\n",
        "a==1 \\\n    --hash=md5:00\n",
    ],
)
def test_what_is_no_requirement_with_hashes_is_refused(text):
    with pytest.raises(ValueError, match="hashes"):
        layers().requirements(text)
