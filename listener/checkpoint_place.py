"""Whether a checkpoint is where the next start of its query finds it again. Pure."""

from __future__ import annotations

import re

_TEMPORARY = re.compile(r"/temporary-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
"""``Utils.createTempDir(namePrefix = "temporary")``, where no ``checkpointLocation`` is set."""
_OF_THE_MACHINE = re.compile(r"file:/+(tmp|var/tmp|dev/shm)(?:/|$)")
TEMPORARY = "temporary: no checkpointLocation is set, so each start of the query begins anew"


def checkpoint_problem(checkpoint: str) -> str:
    """Why a checkpoint (``resolvedCheckpointRoot``) does not survive; empty where it may."""
    if _TEMPORARY.search(checkpoint):
        return TEMPORARY
    found = _OF_THE_MACHINE.match(checkpoint)
    if found is None:
        return ""
    return f"below /{found.group(1)} of the driver's machine: another machine or container lacks it"
