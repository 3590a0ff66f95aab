"""The Compose stack, read without Docker."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
FOLDER = DASHBOARDS / "compose"
ANSWERS_WITHIN_SECONDS = 20


def compose() -> dict[str, Any]:
    return read(FOLDER / "compose.yaml")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def mounts(service: str) -> dict[str, Path]:
    """Path in the container -> the file or folder of ours that is mounted there."""
    places = {}
    for volume in compose()["services"][service].get("volumes", []):
        source, target, mode = volume.split(":")
        assert mode == "ro", volume
        places[target] = (FOLDER / source).resolve()
    return places


def on_host(service: str, path: str) -> Path:
    """The host path of a path in a service's container."""
    for target, source in mounts(service).items():
        if path == target or path.startswith(f"{target}/"):
            return Path(f"{source}{path.removeprefix(target)}")
    raise AssertionError(f"nothing of ours is mounted at {path} in {service}")


@lru_cache
def engine_trouble() -> str:
    """Why the stack cannot be started here; empty when it can."""
    for command in (["docker", "info"], ["docker", "compose", "version"]):
        try:
            done = subprocess.run(command, capture_output=True, timeout=ANSWERS_WITHIN_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return "no Docker engine answers"
        if done.returncode != 0:
            return f"{' '.join(command)} does not succeed"
    return ""
