"""How a command that cannot begin, is interrupted, or whose reader has gone, ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ..core import CommandError
from ..launch.launcher import LaunchError
from ..settings.settings import SettingsError

COULD_NOT_BEGIN = 2
INTERRUPTED = 130
READER_GONE = 141


def exit_code(command: Callable[[], int]) -> int:
    """What ``command`` returns; 2 and one line if it cannot begin, 130 if interrupted.

    Into a closed pipe, as of ``head``: its own code if it had finished, else 141 (128 + SIGPIPE).
    """
    code = READER_GONE
    try:
        code = command()
        if sys.stdout is not None:  # as in a service that closes it
            sys.stdout.flush()
    except (CommandError, LaunchError, SettingsError) as error:
        sys.stderr.write(f"querypulse: {error}\n")
        return COULD_NOT_BEGIN
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The flush at the interpreter's exit must not fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
