"""A call that must end by itself, and not because its timeout or a peer's answer comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from support.patience import PATIENCE_SECONDS

T = TypeVar("T")

NEVER = threading.TIMEOUT_MAX
"""A timeout that does not come while tests run."""


def ended(call: Callable[[], T]) -> T:
    """What the call returns or raises; fail if it does not end."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(PATIENCE_SECONDS)
