"""Everything by which a driver tells: the deliveries, the spool behind them, the heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..alerting.alert import Incident
from ..alerting.dispatch import Dispatch
from ..alerting.outbox import Row
from ..alerting.receivers.heartbeat import Heartbeat
from ..alerting.receivers.receiver import Receiver
from ..listener.guard import Guard
from . import wiring
from .deadline import Deadline
from .settings import Settings


class Telling:
    """Takes the open incidents after each judging; starts, flushes and ends what tells them.

    ``inherited`` is what an earlier driver of the same app left to be told, or to be ended.
    """

    def __init__(
        self,
        settings: Settings,
        app: str,
        guard: Guard,
        *,
        receivers: Sequence[Receiver],
        heartbeat: Heartbeat | None,
    ) -> None:
        self._spool = wiring.spool(settings, app, guard)
        self.deliveries = wiring.deliveries(settings, guard, receivers=receivers, spool=self._spool)
        self._dispatch = Dispatch(self.deliveries)
        self._heartbeat = heartbeat
        self.inherited = self._adopt()

    @property
    def spool_problem(self) -> str:
        """Why nothing would outlive the driver, though it should."""
        return self._spool.problem if self._spool is not None else ""

    @property
    def outcomes(self) -> dict[str, Mapping[str, int]]:
        """How attempts went, by the name of a receiver, or of the heartbeat."""
        tellers = [*self.deliveries, *([self._heartbeat] if self._heartbeat is not None else [])]
        return {teller.name: teller.outcomes for teller in tellers}

    def start(self) -> None:
        """Begin to tell."""
        if self._spool is not None:
            self._spool.start()
        for delivery in self.deliveries:
            delivery.start()
        if self._heartbeat is not None:
            self._heartbeat.start()

    def offer(self, incidents: tuple[Incident, ...], closings: tuple[Incident, ...]) -> None:
        """Hand over all open incidents, and what may be ended; never waits."""
        self._dispatch.offer(incidents, closings)
        if self._heartbeat is not None:
            self._heartbeat.beat(incidents)

    def flush(self, deadline: Deadline) -> bool:
        """Attempt all that is pending, each receiver within its share of the time.

        A receiver that hangs must not keep a page from the others.
        """
        waiting = range(len(self.deliveries), 0, -1)
        delivered = [
            delivery.flush(deadline.left / left)
            for delivery, left in zip(self.deliveries, waiting, strict=True)
        ]
        kept = self._spool is None or self._spool.flush(deadline.left)
        return all(delivered) and kept

    def close(self, deadline: Deadline) -> None:
        """End every thread; what was not told stays in the spool, if there is one."""
        for delivery in self.deliveries:
            delivery.close(deadline.left)
        if self._heartbeat is not None:
            self._heartbeat.close(deadline.left)
        if self._spool is not None:
            self._spool.close(deadline.left)

    def _adopt(self) -> tuple[Incident, ...]:
        """Hand each delivery the rows that the spool has kept for it."""
        kept = self._spool.load() if self._spool is not None else {}
        found: list[Row] = []
        for delivery in self.deliveries:
            rows = kept.get(delivery.name, ())
            delivery.adopt(rows)
            found += rows
        return tuple(row.incident for row in found)
