"""How the main program ends, as far as Python says, and whether anybody meant that.

A signal with its default action, ``spark.stop()`` and ``sidecar.close()`` announce an end; the rule
``program_ended`` reports one that nobody announced. The code of ``sys.exit`` is not known: CPython
keeps it from exit handlers, in a local variable of ``_Py_HandleSystemExit``.
"""

from __future__ import annotations

import sys

from ..core.redaction import redact
from ..listener.mailbox import ProgramEnd
from .failure import QueryFailure

LINE_CHARACTERS = 200
ENDED = "the main program ended"
OF_A_QUERY = frozenset({QueryFailure.__name__, "StreamingQueryException"})
"""Exceptions that say that a query has failed, which its own alert reports; PySpark's too."""


def uncaught_exception() -> type[BaseException] | None:
    """The class of the exception that ends this process; for its exit handlers.

    The interpreter sets ``sys.last_type`` when it prints a traceback. A notebook does so for
    every failed cell, so there the value means nothing.
    """
    return None if is_interactive() else getattr(sys, "last_type", None)


def is_interactive() -> bool:
    """Whether a person types the program: in a shell of Python, or in a notebook."""
    # A library of the job may import IPython; only a shell or a kernel has an instance of it.
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    is_ipython = get_ipython is not None and get_ipython() is not None
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or is_ipython


def program_end(*, handles_signals: bool, is_explained: bool = False) -> ProgramEnd | None:
    """How the main program ends; None where it is interrupted, or a person types it.

    ``handles_signals``: the application has had a handler of its own, which may be what ends the
    program, with ``sys.exit``. Test runners set ``sys.last_type`` for each failed test, and end
    with the queries of the last one. Neither is known to be a failure. The failure of a query was
    reported, as was one that the application has just caught (``is_explained``).
    """
    uncaught = uncaught_exception()
    is_test = "pytest" in sys.modules
    if is_interactive() or uncaught is KeyboardInterrupt:
        return None
    names = {kind.__name__ for kind in uncaught.__mro__} if uncaught is not None else set()
    is_explained |= not names.isdisjoint(OF_A_QUERY)
    if uncaught is None or is_test:
        may_be_meant = is_test or handles_signals
        return ProgramEnd(ENDED, may_be_meant=may_be_meant, is_explained=is_explained)
    how = f"{ENDED} with {line_of(uncaught, getattr(sys, 'last_value', None))}"
    return ProgramEnd(how, has_failed=True, is_explained=is_explained)


def line_of(kind: type[BaseException], error: BaseException | None) -> str:
    """The last line of a traceback: the class and what the exception says, redacted."""
    try:
        text = "" if error is None else str(error).strip().partition("\n")[0]
    except Exception:  # noqa: BLE001 - an exception of the application that cannot be printed
        text = ""
    return redact(f"{kind.__name__}: {text}" if text else kind.__name__)[:LINE_CHARACTERS]
