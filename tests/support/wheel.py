"""The wheel as users build it, and a virtual environment that has nothing of ours but the wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from support.repository import ROOT, files


def run_python(*arguments: object) -> None:
    """Run this Python with arguments such as ``-m pip``; it must succeed."""
    command = [sys.executable, "-I", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def build_wheel(folder: Path) -> Path:
    """Build it from a copy of the checkout, because a build writes into its source folder.

    Without isolation: it needs no network.
    """
    for name in files():
        copy = folder / "source" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
    options = ("--quiet", "--no-deps", "--no-build-isolation")
    run_python("-m", "pip", "wheel", *options, "-w", folder, folder / "source")
    (wheel,) = folder.glob("querypulse-*.whl")
    return wheel


def install_alone(wheel: Path, folder: Path) -> Path:
    """Install a wheel into a new virtual environment; returns the folder of its programs.

    A ``.pth`` file adds this environment's packages, without its editable install of querypulse:
    Python does not read the ``.pth`` files of a folder that is itself added by one.
    """
    venv.create(folder)
    programs = folder / "bin"
    run_python("-m", "pip", "--python", programs / "python", "install", "-q", "--no-deps", wheel)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))
    return programs
