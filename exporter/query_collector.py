"""The board as a Prometheus collector."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from .board import Board
from .monitor_families import build_info, monitor_families
from .query_families import query_families
from .row import rows


class QueryCollector(Collector):
    """Builds all families from the newest board at every scrape, and keeps nothing between."""

    def __init__(self, board: Callable[[], Board | None]) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        """All families; before the first board only ``querypulse_build_info``."""
        yield build_info()
        board = self._board()
        if board is None:
            return
        yield from query_families(board.app, rows(board))
        yield from monitor_families(board.monitor, board.alerts)


def own_registry(board: Callable[[], Board | None]) -> CollectorRegistry:
    """A registry of its own: the process-wide one belongs to the host."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(QueryCollector(board))
    return registry
