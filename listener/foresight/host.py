"""Reads what the machine gives the driver: the memory of its container, and its disks.

A file system may hang for ever, so this has a thread of its own, and no disk is waited for long.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from msgspec.structs import replace

from ...core.threads import TimedCall, TimedCalls
from ..stores import store_of
from .resources import Container, Disk, Resources

READ_SECONDS = 10.0
PATIENCE_SECONDS = 1.0
"""A disk that answers later is left out of the reading."""
MAX_HELD = 5
MAX_FOLDERS = 100
"""Of more folders, most are on the same disks."""
NO_LIMIT = 1 << 60
"""Version 1 has no word for no limit, but a number near 2**63."""
_LOCAL = re.compile(r"(?:file:/*(?=/)|(?![\w+.-]+:))(/.*)", re.DOTALL)

Folders = dict[str, str]
"""What is in each folder, by its path or URI."""


class HostReader:
    """Reads the container and the disks every ``READ_SECONDS``; ``latest`` is the newest reading.

    ``folders`` names the folders whose disks count; those that are not local are left out.
    """

    def __init__(
        self,
        folders: Callable[[], Folders],
        on_reading: Callable[[], object],
        *,
        clock: Callable[[], float] = time.monotonic,
        root: Path = Path("/"),
    ) -> None:
        self.latest: Resources | None = None
        self._folders = folders
        self._on_reading = on_reading
        self._clock = clock
        self._root = root
        self._calls = TimedCalls("disks")
        self._calls_to: dict[str, TimedCall[tuple[int, Disk] | None]] = {}
        self._stopped = threading.Event()

    def step(self) -> None:
        """Read once, then wait until the next reading is due."""
        try:
            disks = self._read_disks()
            container = read_container(self._root)
            self.latest = Resources(self._clock(), container=container, disks=disks)
            self._on_reading()
        finally:
            self._stopped.wait(READ_SECONDS)

    def stop(self) -> None:
        """End the pause."""
        self._stopped.set()

    def close(self) -> None:
        """End the thread that asks disks."""
        self._calls.close()

    def _read_disks(self) -> tuple[Disk, ...]:
        """One entry for each file system that has some of the folders."""
        wanted = local_folders(self._folders())
        self._calls_to = {path: self._calls_to.get(path) or self._call_to(path) for path in wanted}
        disks: dict[int, Disk] = {}
        for path, call in self._calls_to.items():
            answer = None
            # One that hangs, or is gone, is missing in this reading.
            with suppress(OSError, ValueError, TimeoutError):
                answer = call.run(partial(read_disk, path))
            if answer is None:
                continue
            device, disk = answer
            before = disks.get(device)
            holds = (wanted[path],) if before is None else (*before.holds, wanted[path])
            disks[device] = replace(disk, holds=holds[:MAX_HELD])
        return tuple(disks.values())

    def _call_to(self, path: str) -> TimedCall[tuple[int, Disk] | None]:
        return TimedCall(self._calls, store_of(path), PATIENCE_SECONDS)


def local_folders(folders: Folders) -> dict[str, str]:
    """Return those that are on disks of this machine, by path."""
    local: dict[str, str] = {}
    for place, what in folders.items():
        matched = _LOCAL.fullmatch(place)
        if matched is not None and len(local) < MAX_FOLDERS:
            local.setdefault(os.path.normpath(matched.group(1)), what)
    return local


def read_disk(path: str) -> tuple[int, Disk] | None:
    """Return the device number and the file system of a folder; None if that does not exist.

    A checkpoint is named by a path, or by a URI in which Hadoop has escaped characters.

    Raises:
        OSError: it cannot be read.
        ValueError: no path has such characters.

    """
    names = (path, unquote(path))
    folder = next((Path(name) for name in names if Path(name).exists()), None)
    if folder is None:
        return None
    device = folder.stat().st_dev
    system = os.statvfs(folder)
    size = system.f_frsize
    while folder != folder.parent and folder.parent.stat().st_dev == device:
        folder = folder.parent
    return device, Disk(str(folder), (), system.f_bavail * size, system.f_blocks * size)


# -- the container --------------------------------------------------------------------------------


def read_container(root: Path = Path("/")) -> Container | None:
    """Return the control group of this process, or the one above it, that has the least room left.

    The JVM is in the same one: it started this process, or this process started it. None without a
    limit, and where there are no control groups (``cgroups(7)``, of version 1 or 2).
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    mounts = root / "sys/fs/cgroup"
    groups = [line.partition(":")[2].partition(":") for line in lines]
    paths = {controllers: path for controllers, _, path in groups}
    in_memory = [path for controllers, path in paths.items() if "memory" in controllers.split(",")]
    if in_memory:
        read = [_version_1(folder) for folder in _folders(mounts / "memory", in_memory[0])]
    else:
        read = [_version_2(folder) for folder in _folders(mounts, paths.get("", "/"))]
    limited = [group for group in read if group is not None]
    return min(limited, key=_room, default=None)


def _room(group: Container) -> int:
    return group.limit_bytes - group.working_set_bytes


def _folders(mount: Path, path: str) -> Iterable[Path]:
    """The folders of a group and of those above it: in a container, only its own may be mounted."""
    folder = mount / path.lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(mount))]


def _version_2(folder: Path) -> Container | None:
    return _group(folder, "memory.max", "memory.current", "inactive_file")


def _version_1(folder: Path) -> Container | None:
    return _group(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _group(folder: Path, limit_name: str, usage_name: str, inactive_name: str) -> Container | None:
    try:
        limit = int((folder / limit_name).read_text(encoding="ascii"))
        usage = int((folder / usage_name).read_text(encoding="ascii"))
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        stat = dict(line.split(" ", 1) for line in lines if " " in line)
        inactive = int(stat.get(inactive_name, 0))
    except (OSError, ValueError):
        # The root has no limit, and "max" is none.
        return None
    return Container(max(0, usage - inactive), limit) if 0 < limit < NO_LIMIT else None
