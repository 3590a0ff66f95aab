"""How a driver notifies: the deliveries, the spool behind them, the heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..core.threads import Deadline
from .alert import Incident
from .delivery import Delivery, Dispatch
from .failure_history import Remembering
from .heartbeat import Heartbeat, QueryHeartbeats, ping_of
from .spool import LOAD_SECONDS, Spool


class Notifier:
    """Receives the open incidents after each evaluation; starts, flushes and ends deliveries.

    ``restored`` are the incidents that an earlier process of the same app left open. Where the
    spool cannot be read at once, the thread that calls ``offer`` passes them to ``restore`` later.
    """

    def __init__(
        self,
        deliveries: Sequence[Delivery],
        spool: Spool | None = None,
        *,
        heartbeat: Heartbeat | None = None,
        query_heartbeats: QueryHeartbeats | None = None,
        restore: Callable[[tuple[Incident, ...]], None] = lambda _: None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.deliveries = deliveries
        self._spool = spool
        self.remembering = Remembering(spool, redact)
        self._dispatch = Dispatch(deliveries, spool=spool)
        self._heartbeat = heartbeat
        self.query_heartbeats = query_heartbeats or QueryHeartbeats({})
        self._restore_later = restore
        self.restored = self._restore()

    @property
    def names(self) -> tuple[str, ...]:
        """The receivers' names."""
        return tuple(delivery.name for delivery in self.deliveries)

    @property
    def spool_problem(self) -> str:
        """Why the configured spool does not work; empty while it does."""
        return self._spool.problem if self._spool is not None else ""

    @property
    def outcomes(self) -> dict[str, Mapping[str, int]]:
        """Counts of attempts by outcome, by the name of a receiver or heartbeat."""
        outcomes: dict[str, Mapping[str, int]] = {
            delivery.name: delivery.outcomes for delivery in self.deliveries
        }
        if self._heartbeat is not None:
            outcomes[self._heartbeat.name] = self._heartbeat.outcomes
        return outcomes | self.query_heartbeats.outcomes

    def start(self) -> None:
        """Start deliveries and heartbeats."""
        for delivery in self.deliveries:
            delivery.start()
        if self._heartbeat is not None:
            self._heartbeat.start()
        self.query_heartbeats.start()

    def offer(self, incidents: tuple[Incident, ...]) -> None:
        """Hand over all open incidents, and stale ones; never waits.

        While another process of the same app runs, what is open may be its own: then no stale
        incident is sent.
        """
        late = self._restore(0.0)
        if late:
            self._restore_later(late)
            keys = {incident.key for incident in incidents if not incident.is_stale}
            incidents += tuple(incident for incident in late if incident.key not in keys)
        if self._spool is not None and self._spool.is_taken:
            incidents = tuple(incident for incident in incidents if not incident.is_stale)
        self._dispatch.offer(incidents)
        if self._heartbeat is not None:
            self._heartbeat.offer(ping_of(incidents))

    def flush(self, deadline: Deadline) -> bool:
        """Attempt all pending deliveries, each receiver within its share of the time.

        A receiver that hangs must not keep a page from the others.
        """
        waiting = range(len(self.deliveries), 0, -1)
        delivered = [
            delivery.flush(deadline.left / left)
            for delivery, left in zip(self.deliveries, waiting, strict=True)
        ]
        if self._spool is not None and not self._spool.problem:
            # If the driver is killed after this, its successor knows what was sent.
            self._spool.flush(deadline.left)
        return all(delivered)

    def close(self, deadline: Deadline) -> None:
        """End every thread; what was not sent stays in the spool, if there is one."""
        self._flush_fallbacks(deadline)
        for delivery in self.deliveries:
            delivery.close(deadline.left)
        if self._spool is not None:
            self._spool.close(deadline.left)
        if self._heartbeat is not None:
            self._heartbeat.close(deadline.left)
        self.query_heartbeats.close(deadline)

    def _flush_fallbacks(self, deadline: Deadline) -> None:
        """Give fallbacks the undelivered incidents now: there is no later attempt."""
        self._dispatch.escalate_to_fallback()
        fallbacks = {delivery.route.fallback for delivery in self.deliveries}
        for delivery in self.deliveries:
            if delivery.name in fallbacks and delivery.pending:
                delivery.flush(deadline.left / 2)

    def _restore(self, timeout: float = LOAD_SECONDS) -> tuple[Incident, ...]:
        """Restore what the spool holds, once; returns the incidents that are still open."""
        kept = self._spool.load(timeout) if self._spool is not None else None
        if kept is None:
            return ()
        self.remembering.left = kept
        return self._dispatch.restore(kept.rows)
