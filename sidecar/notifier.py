"""Everything by which a driver tells: the deliveries, the spool behind them, the heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..alerting.alert import Incident
from ..alerting.outbox.dispatch import Dispatch
from ..alerting.outbox.entry import OutboxEntry
from ..alerting.receivers.heartbeat import Heartbeat
from ..alerting.receivers.receiver import Receiver
from ..listener.guard import Guard
from .configuration import wiring
from .configuration.settings import Settings
from .deadline import Deadline
from .query_heartbeats import QueryHeartbeats
from .remembering import Remembering


class Notifier:
    """Takes the open incidents after each judging; starts, flushes and ends what tells them.

    ``restored`` is what an earlier process of the same app left open. Where the spool cannot
    be read at once, ``restore`` is given that later, by the thread that offers.
    """

    def __init__(
        self,
        settings: Settings,
        app: str,
        guard: Guard,
        *,
        receivers: Sequence[Receiver],
        heartbeat: Heartbeat | None,
        query_heartbeats: QueryHeartbeats | None = None,
        restore: Callable[[tuple[Incident, ...]], None] = lambda _: None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._spool = wiring.spool(settings, app, guard)
        self.deliveries = wiring.deliveries(settings, guard, receivers=receivers, spool=self._spool)
        self.remembering = Remembering(self._spool, redact)
        self._dispatch = Dispatch(self.deliveries, spool=self._spool)
        self._heartbeat = heartbeat
        self.query_heartbeats = query_heartbeats or QueryHeartbeats({})
        self._restore_later = restore
        self.restored = self._restore(self._spool.load()) if self._spool is not None else ()

    @property
    def names(self) -> tuple[str, ...]:
        """The receivers."""
        return tuple(one.name for one in self.deliveries)

    @property
    def spool_problem(self) -> str:
        """Why nothing would outlive the driver, though it should."""
        return self._spool.problem if self._spool is not None else ""

    @property
    def outcomes(self) -> dict[str, Mapping[str, int]]:
        """How attempts went, by the name of a receiver, or of the heartbeat."""
        found: dict[str, Mapping[str, int]] = {one.name: one.outcomes for one in self.deliveries}
        if self._heartbeat is not None:
            found[self._heartbeat.name] = self._heartbeat.outcomes
        return found | self.query_heartbeats.outcomes

    def start(self) -> None:
        """Begin to tell."""
        for delivery in self.deliveries:
            delivery.start()
        if self._heartbeat is not None:
            self._heartbeat.start()
        self.query_heartbeats.start()

    def offer(self, incidents: tuple[Incident, ...], stale_resolves: tuple[Incident, ...]) -> None:
        """Hand over all open incidents, and what may be ended; never waits.

        While another process of the same app lives, what is open may be its own.
        """
        late = self._restore(self._spool.load(0.0)) if self._spool is not None else ()
        if late:
            self._restore_later(late)
            incidents += _others(late, incidents)
        is_alone = self._spool is None or not self._spool.is_taken
        self._dispatch.offer(incidents, stale_resolves if is_alone else ())
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
        if self._spool is not None and not self._spool.problem:
            # Killed after this, the driver's successor knows what was told.
            self._spool.flush(deadline.left)
        return all(delivered)

    def close(self, deadline: Deadline) -> None:
        """End every thread; what was not told stays in the spool, if there is one."""
        self._ask_fallbacks(deadline)
        for delivery in self.deliveries:
            delivery.close(deadline.left)
        if self._spool is not None:
            self._spool.close(deadline.left)
        if self._heartbeat is not None:
            self._heartbeat.close(deadline.left)
        self.query_heartbeats.close(deadline)

    def _ask_fallbacks(self, deadline: Deadline) -> None:
        """Let them have what was not taken: there will be no later."""
        self._dispatch.escalate_to_fallback()
        fallbacks = {delivery.route.fallback for delivery in self.deliveries}
        for delivery in self.deliveries:
            if delivery.name in fallbacks and delivery.pending:
                delivery.flush(deadline.left / 2)

    def _restore(
        self, entries: Mapping[str, tuple[OutboxEntry, ...]] | None
    ) -> tuple[Incident, ...]:
        """Go on with the rows that the spool has kept; the incidents among them still open."""
        return self._dispatch.restore(entries) if entries is not None else ()


def _others(found: Iterable[Incident], known: Iterable[Incident]) -> tuple[Incident, ...]:
    keys = {one.key for one in known}
    return tuple(one for one in found if one.key not in keys)
