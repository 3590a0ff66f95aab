"""What Python imports first under ``querypulse run``; it undoes what ``run`` changed.

The environment's own ``sitecustomize`` follows, where there is one. Processes that the job starts
inherit nothing of this.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

FOLDER = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is costly, and may lie in an archive


def _undo() -> None:
    first, _, rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if first == FOLDER:
        os.environ["PYTHONPATH"] = rest
        if not rest:
            del os.environ["PYTHONPATH"]
    while FOLDER in sys.path:
        sys.path.remove(FOLDER)


_undo()
import_module("querypulse.launch.startup").start()
# An ImportError means that there is no other; site.py expects it.
del sys.modules["sitecustomize"]
import_module("sitecustomize")
