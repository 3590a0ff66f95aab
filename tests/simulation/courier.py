"""A delivery whose requests take simulated time."""

from __future__ import annotations

from collections.abc import Callable

from querypulse.alerting.alert import Incident
from querypulse.alerting.delivery import Delivery, Route
from querypulse.alerting.outbox import OutboxRow
from querypulse.alerting.receivers.receiver import DeliveryError
from querypulse.core.guard import Guard

from .clock import Time
from .messages import About
from .receivers import SimReceiver
from .spool import SimSpool


class Killed(BaseException):
    """The process is killed at this moment; nothing in it handles that."""


class NoNetwork:
    """A placeholder for a receiver: a courier sends by itself."""

    def __init__(self, receiver: SimReceiver) -> None:
        self.name = receiver.name
        self.capabilities = receiver.capabilities

    def send(self, incident: Incident, wall: float) -> None:
        """Never called."""
        raise NotImplementedError

    def close(self) -> None:
        """There is nothing to close."""


class Courier(Delivery):
    """The product's delivery, with its step split in two: the request and the answer."""

    def __init__(
        self,
        receiver: SimReceiver,
        guard: Guard,
        *,
        time: Time,
        driver: str,
        about: About,
        is_alive: Callable[[], bool],
        between: Callable[[], None] = lambda: None,
        kill: Callable[[], None] = lambda: None,
        spool: SimSpool | None = None,
        route: Route | None = None,
    ) -> None:
        super().__init__(
            NoNetwork(receiver), guard, route=route, spool=spool, clock=time, wall=time.wall
        )
        self.receiver = receiver
        self._time = time
        self._driver = driver
        self._about = about
        self._is_alive = is_alive
        self._between = between
        self._kill = kill

    @property
    def rows(self) -> tuple[OutboxRow, ...]:
        """The outbox rows of the receiver."""
        return self._outbox.rows

    def pump(self) -> None:
        """Send what is due; the next request follows the answer to this one."""
        now, wall = self._time.now, self._time.wall()
        if self._outbox.is_sending or not self._is_alive():
            return
        next_at = self._outbox.next_at(now, wall)
        if next_at is None or next_at > now:
            return
        incident = self._outbox.begin(now, wall)
        if incident is None:
            return
        with self._changed:
            self._save()
        if self._spool is not None and not incident.is_over:
            self._spool.write_ahead()
        self._between()
        rejected = self.receiver.reject(incident, self._driver, self._about)
        refusal, takes = rejected or self.receiver.refusal(), self.receiver.takes and not rejected
        latency = self.receiver.latency
        if takes:
            doubted = refusal is not None
            self._time.after(latency / 2, lambda: self._arrive(incident, doubted=doubted))
        self._time.after(latency, lambda: self._answered(incident, refusal))
        self._between()

    def _arrive(self, incident: Incident, *, doubted: bool) -> None:
        # A request on its way arrives even if its sender is killed meanwhile.
        doubted = doubted or not self._is_alive()
        self.receiver.accept(incident, self._driver, self._about, doubted=doubted)

    def _answered(self, incident: Incident, refusal: DeliveryError | None) -> None:
        if not self._is_alive():
            return
        try:
            self._between()
            self.outcomes["delivered" if refusal is None else refusal.answer.value] += 1
            self._record(incident, refusal)
            self._between()
            self.pump()
        except Killed:
            self._kill()
