"""The figures in words: by how much each listener makes ``start()`` longer."""

from collections.abc import Iterator
from statistics import median

from ..common.difference import Difference, difference
from ..common.interpreter import IDLE
from ..common.listeners import NONE, NOTHING, OURS, PEER, STOCK
from ..common.result import Row, percentile, short
from .clock import Start

ALLOWED_MS = 0.3
PEER_SLOW = f"{PEER}, slow gateway"
LISTENERS, JVM, PYTHON = Start._fields

Starts = dict[str, list[Start]]
"""Each start by candidate; equal indexes were the same turn of their rounds."""


def rows(starts: dict[str, Starts]) -> list[Row]:
    """What is allowed of ours, the others beside it, and the whole of ``start()``."""
    return [*_allowed(starts), *_others(starts), *_whole(starts)]


def _allowed(starts: dict[str, Starts]) -> Iterator[Row]:
    for state, found in starts.items():
        above = _above(found, OURS, LISTENERS)
        yield above.at_most(f"{state}: {OURS}", ALLOWED_MS, " ms")


def _others(starts: dict[str, Starts]) -> Iterator[Row]:
    for state, found in starts.items():
        for name in (NOTHING, STOCK, PEER):
            yield _above(found, name, LISTENERS).row(f"{state}: {name}", " ms")
    slow, nobody = (starts[IDLE][name] for name in (PEER_SLOW, NONE))
    above = median(one.listeners for one in slow) - median(one.listeners for one in nobody)
    yield Row(f"{IDLE}: {PEER_SLOW}", f"{short(above)} ms")


def _whole(starts: dict[str, Starts]) -> Iterator[Row]:
    """All of ``start()``, which differs from one to the next by more than what is allowed."""
    for state, found in starts.items():
        for clock in (JVM, PYTHON):
            question = f"{state}: {OURS}, all of start(), {_SEEN[clock]}"
            yield _above(found, OURS, clock).row(question, " ms")


_SEEN = {JVM: "JVM's clock", PYTHON: "Python's"}


def _above(starts: Starts, name: str, clock: str) -> Difference:
    """Milliseconds above the same starts with no listener."""
    return difference(*([getattr(one, clock) for one in starts[who]] for who in (name, NONE)))


def details(starts: dict[str, Starts]) -> list[str]:
    """Milliseconds of all starts as a small table."""
    columns = "".join(f"{clock:>12}{'p99':>10}" for clock in Start._fields)
    head = f"  {'milliseconds of start(): medians':40}{'starts':>8}{columns}"
    body = [
        _detail(f"{state}: {name}", found)
        for state, by_name in starts.items()
        for name, found in by_name.items()
    ]
    return ["", head, *body]


def _detail(title: str, found: list[Start]) -> str:
    figures = "".join(
        f"{median(times):>12,.3f}{percentile(times, 99):>10,.3f}"
        for times in zip(*found, strict=True)
    )
    return f"  {title:40}{len(found):>8}{figures}"
