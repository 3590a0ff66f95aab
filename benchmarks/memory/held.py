"""How much memory an object holds: itself and all that is only reached from it."""

import gc
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

SHARED = (type, ModuleType, FunctionType)
"""What the program holds anyway."""


def held(*roots: Any) -> int:
    """Bytes of the roots and of everything they refer to, each object counted once."""
    seen: set[int] = set()
    total, waiting = 0, list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, SHARED):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        waiting.extend(_parts(one))
    return total


def _parts(one: Any) -> Iterable[Any]:
    # Records without a part in garbage collection do not name their parts to it.
    fields = getattr(one, "__struct_fields__", None)
    if fields is not None:
        return [getattr(one, name) for name in fields]
    return gc.get_referents(one)
