"""An idle and a busy Python interpreter: what a listener in Python costs depends on it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

IDLE, BUSY = INTERPRETERS = ("idle", "busy")


@contextmanager
def interpreter(state: str) -> Iterator[None]:
    """Keep this process's interpreter idle or ``busy``: one thread that only computes.

    Any other Python thread then waits for the interpreter's lock, 5 ms at a time.
    """
    stop = threading.Event()
    computing = threading.Thread(target=_compute, args=(stop,), daemon=True)
    if state == BUSY:
        computing.start()
    try:
        yield
    finally:
        stop.set()
        if state == BUSY:
            computing.join()


def _compute(stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
