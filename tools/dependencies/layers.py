"""What is installed in which step, and how the files say it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

HEAD = "# Written by `python -m tools.dependencies`; the versions are those of constraints.txt.\n"
BUILD = "pip\nsetuptools>=77\nwheel\n"
"""What builds the project itself, and PySpark, which has no wheels."""


class Layer(NamedTuple):
    """One step of an installation: its own packages, and the steps before it."""

    arguments: tuple[str, ...]
    after: tuple[str, ...] = ()


LAYERS: Mapping[str, Layer] = {
    "build": Layer(("-",)),
    "spark": Layer(("pyproject.toml", "--extra", "spark"), ("build",)),
    "tests": Layer(("--group", "tests"), ("build", "spark")),
    "lint": Layer(("--group", "lint"), ("build", "spark", "tests")),
    "fuzz": Layer(("--group", "fuzz"), ("build", "spark", "tests")),
}
_REQUIREMENT = re.compile(r"^\S.*\\\n(?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE)


def requirements(text: str) -> list[str]:
    """The requirements of a file, each with its hashes.

    Raises:
        ValueError: a line is not one, such as a URL, or a requirement without a hash.

    """
    lines = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    found = _REQUIREMENT.findall(lines)
    if "".join(found) != lines or "://" in lines:
        raise ValueError("not only requirements with hashes")
    return found


def files(compiled: Mapping[str, str]) -> dict[str, str]:
    """The files of all layers, each without what an earlier step has installed.

    ``compiled`` is what uv found for each layer, together with the layers before it.
    """
    found = {name: requirements(text) for name, text in compiled.items()}
    return {
        name: HEAD + "".join(one for one in found[name] if not _is_in(one, found, layer.after))
        for name, layer in LAYERS.items()
    }


def _is_in(requirement: str, found: Mapping[str, list[str]], layers: tuple[str, ...]) -> bool:
    return any(requirement in found[layer] for layer in layers)
