"""What hangs as one: the store that a path is in. A place in a store that hangs is not asked."""

from __future__ import annotations

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
"""Linux lists mounts here (``proc_mounts(5)``); reading it asks none of them."""
_DESCRIBED = re.compile(r"\w+\[(.+)\]", re.DOTALL)
_PLACE = re.compile(r"(?:([\w+.-]+):(?://([^/]*))?)?(.*)", re.DOTALL)
_FIRST = re.compile(r"/?[^/]*")
_ESCAPED = re.compile(r"\\(\d{3})")


def store_of(place: str) -> str:
    """The store of a path, or of the path that Spark describes as ``DeltaSource[path]``.

    Its scheme and authority. For a local path, where it is mounted; its first folder, if that is
    the root or unknown, because a link may lead to another mount. Asks no file system.
    """
    described = _DESCRIBED.fullmatch(place)
    matched = _PLACE.fullmatch(described.group(1) if described is not None else place)
    scheme, authority, path = matched.groups("") if matched is not None else ("", "", place)
    path = re.sub("^/+", "/", path)
    first = re.findall(_FIRST, path)[0]
    if scheme == "viewfs":
        # Each of its folders may be another file system.
        return f"viewfs://{authority}{first}"
    if scheme not in ("", "file"):
        return f"{scheme}://{authority}"
    within = (mount for mount in _mounts() if f"{path}/".startswith(f"{mount}/"))
    return max(within, key=len, default=first)


def _mounts() -> list[str]:
    """Where file systems are mounted, without the root; none where the system does not list it."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    points = (_ESCAPED.sub(lambda code: chr(int(code[1], 8)), line.split(" ")[1]) for line in lines)
    return [point for point in points if point != "/"]
