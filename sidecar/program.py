"""How the main program ends, as far as Python says, and whether anybody meant that.

A signal with its default action, ``spark.stop()`` and ``sidecar.close()`` announce an end; the rule
``program_ended`` reports one that nobody announced. The code of ``sys.exit`` is not known: CPython
keeps it from exit handlers, in a local variable of ``_Py_HandleSystemExit``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..core.redaction import redact
from ..listener.mailbox import ProgramEnd
from .failure import QueryFailure

LINE_CHARACTERS = 200
ENDED = "the main program ended"


def uncaught_exception() -> type[BaseException] | None:
    """The class of the exception that ends this process; for its exit handlers.

    The interpreter sets ``sys.last_type`` when it prints a traceback. A notebook does so for
    every failed cell, so there the value means nothing.
    """
    return None if is_interactive() else getattr(sys, "last_type", None)


def is_interactive() -> bool:
    """Whether a person types the program: in a shell of Python, or in a notebook."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "IPython" in sys.modules


def program_end(
    handler: Callable[..., Any] | int | None, *, is_explained: bool = False
) -> ProgramEnd | None:
    """How the main program ends; None where it is interrupted, or a person types it.

    ``handler`` is the application's own for SIGTERM: it may be what ends the program, with
    ``sys.exit``. Test runners set ``sys.last_type`` for each failed test, and end with the queries
    of the last one. Neither is known to be a failure. A ``QueryFailure`` was reported, as was one
    that the application has just caught (``is_explained``).
    """
    uncaught = uncaught_exception()
    is_test = "pytest" in sys.modules
    if is_interactive() or uncaught is KeyboardInterrupt:
        return None
    is_explained |= uncaught is QueryFailure
    if uncaught is None or is_test:
        is_meant = is_test or callable(handler)
        return ProgramEnd(ENDED, may_be_meant=is_meant, is_explained=is_explained)
    how = f"{ENDED} with {line_of(uncaught, getattr(sys, 'last_value', None))}"
    return ProgramEnd(how, has_failed=True, is_explained=is_explained)


def line_of(kind: type[BaseException], error: BaseException | None) -> str:
    """The last line of a traceback: the class and what the exception says, redacted."""
    try:
        text = "" if error is None else str(error).strip().partition("\n")[0]
    except Exception:  # noqa: BLE001 - an exception of the application that cannot be printed
        text = ""
    return redact(f"{kind.__name__}: {text}" if text else kind.__name__)[:LINE_CHARACTERS]
