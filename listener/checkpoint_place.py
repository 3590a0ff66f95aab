"""Whether the next start of a query can find its checkpoint again. Pure."""

from __future__ import annotations

import re

_TEMPORARY = re.compile(r"/temporary-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
"""``Utils.createTempDir(namePrefix = "temporary")``, where no ``checkpointLocation`` is set."""
_OF_THE_MACHINE = re.compile(r"file:/+(tmp|var/tmp|dev/shm)(?:/|$)")
TEMPORARY = "temporary: no checkpointLocation is set, so each start of the query loses its progress"


def checkpoint_problem(checkpoint: str) -> str:
    """Why a checkpoint (``resolvedCheckpointRoot``) may be lost; empty when nothing is wrong."""
    if _TEMPORARY.search(checkpoint):
        return TEMPORARY
    found = _OF_THE_MACHINE.match(checkpoint)
    if found is None:
        return ""
    return f"under /{found.group(1)} on the driver's machine: another machine cannot read it"
