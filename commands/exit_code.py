"""How a command ends that cannot begin, is interrupted, or cannot write its output."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from ..core import COULD_NOT_BEGIN, CommandError
from ..launch.launcher import LaunchError
from ..settings.settings import SettingsError

INTERRUPTED = 130
READER_GONE = 141
OUTPUT_LOST = 1
_UNWRITTEN = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def exit_code(command: Callable[[], int]) -> int:
    """What ``command`` returns; 2 and one line if it cannot begin, 130 if interrupted.

    Into a closed pipe, as of ``head``: its own code if it had finished, else 141 (128 + SIGPIPE).
    Into a file on a full disk: 1 and one line.
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
    except OSError as error:
        if error.errno not in _UNWRITTEN:
            raise
        # The flush at the interpreter's exit must not fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            sys.stderr.write(f"querypulse: cannot write: {error.strerror}\n")
            return OUTPUT_LOST
    return code
