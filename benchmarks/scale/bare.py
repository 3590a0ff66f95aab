"""The least that the same work can cost: what a typed reader and a plain exposition take."""

from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client.core import CollectorRegistry
from prometheus_client.exposition import generate_latest

from querypulse.exporter.published_state import PublishedState
from querypulse.exporter.query_collector import QueryCollector
from querypulse.listener.decode import _PROGRESS  # its own decoder, without what follows


def bare_decode(texts: Sequence[str]) -> None:
    """Read the same fields of the same texts."""
    for text in texts:
        _PROGRESS.decode(text)


def bare_exposition(board: PublishedState) -> Callable[[], bytes]:
    """Write the same samples, which are there already."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(board))
    return lambda: generate_latest(registry)


class _Ready:
    """A collector that has nothing to do any more: what is left is the writing."""

    def __init__(self, board: PublishedState) -> None:
        self._families = list(QueryCollector(lambda: board).collect())

    def collect(self) -> list[Any]:
        return self._families
