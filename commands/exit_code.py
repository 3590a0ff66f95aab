"""How a command that cannot begin, or is interrupted, ends."""

from __future__ import annotations

import sys
from collections.abc import Callable

COULD_NOT_BEGIN = 2
INTERRUPTED = 130


def exit_code(command: Callable[[], int], cannot_begin: tuple[type[Exception], ...]) -> int:
    """What ``command`` returns; 2 and one line if it raises one of these, 130 if interrupted."""
    try:
        return command()
    except cannot_begin as error:
        sys.stderr.write(f"querypulse: {error}\n")
        return COULD_NOT_BEGIN
    except KeyboardInterrupt:
        return INTERRUPTED
