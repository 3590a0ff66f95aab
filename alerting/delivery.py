"""Delivers alerts to one receiver, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from ..listener.guard import Guard
from ..listener.loop import Loop
from .alert import Alert
from .ledger import Ledger
from .receivers.receiver import DeliveryError, Receiver

log = logging.getLogger("querypulse")

OUTCOMES = ("delivered", "transient", "refused", "failed")


class Delivery:
    """Tells one receiver what changed in the set of firing alerts.

    ``outcomes`` counts attempts: ``delivered``, ``transient`` (an outage), ``refused`` (kept,
    and tried again slowly) and ``failed`` (an unexpected exception, contained). One request
    is in flight at a time, so a resolve never overtakes its trigger.
    """

    def __init__(
        self,
        receiver: Receiver,
        guard: Guard,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = receiver.name
        self.outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._receiver = receiver
        self._guard = guard
        self._clock = clock
        self._wall = wall
        self._loop = Loop(f"deliver-{receiver.name}", self._step, guard)
        self._ledger = Ledger()
        self._round = 0
        self._in_flight = False
        # Guards the ledger and the two above; never held while sending.
        self._changed = threading.Condition()

    @property
    def pending(self) -> int:
        """How many differences the receiver has not been told yet."""
        with self._changed:
            return len(self._ledger.differences())

    def start(self) -> None:
        """Begin delivering."""
        self._loop.start()

    def offer(self, firing: tuple[Alert, ...]) -> None:
        """Hand over all alerts that fire now; the newest set wins. Never waits for a receiver."""
        with self._changed:
            self._ledger.offer(firing, self._wall())
            self._changed.notify_all()

    def flush(self, deadline_seconds: float) -> bool:
        """Attempt all that is pending at once, whatever its backoff; True when nothing is left.

        Returns as soon as each difference was delivered, or attempted and failed, since the
        call began, and at the latest after ``deadline_seconds``.
        """
        with self._changed:
            self._round += 1
            this_round = self._round
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_flushed(this_round), deadline_seconds)
            return not self._in_flight and not self._ledger.differences()

    def close(self, timeout: float) -> None:
        """Stop at once, cutting a request under way; call ``flush`` first for a gentle end."""
        self._loop.stop()
        with self._changed:
            self._changed.notify_all()
        self._guard.attempt(f"close-{self.name}", self._receiver.close)
        self._loop.join(timeout)

    def _is_flushed(self, this_round: int) -> bool:
        if self._loop.stopping.is_set():
            return True
        return not self._in_flight and self._ledger.attempted(this_round)

    def _step(self) -> None:
        """Send the most urgent alert that is due, or wait until one may be."""
        with self._changed:
            if self._loop.stopping.is_set():
                return
            now = self._clock()
            due = self._ledger.due(now, self._round)
            if not due:
                retry_at = self._ledger.next_retry()
                self._changed.wait(None if retry_at is None else retry_at - now)
                return
            this_round = self._round
            self._in_flight = True
        self._record(due[0], self._send(due[0]), this_round)

    def _send(self, alert: Alert) -> DeliveryError | None:
        try:
            self._receiver.send(alert, self._wall())
        except DeliveryError as error:
            self.outcomes["transient" if error.transient else "refused"] += 1
            return error
        except Exception as error:  # noqa: BLE001 - a receiver's bug must not end the telling
            self.outcomes["failed"] += 1
            self._guard.report(f"deliver-{self.name}", error)
            return DeliveryError(type(error).__name__, transient=True, may_have_arrived=True)
        self.outcomes["delivered"] += 1
        return None

    def _record(self, alert: Alert, error: DeliveryError | None, this_round: int) -> None:
        """Book the outcome; an error is logged when it is news."""
        now, wall = self._clock(), self._wall()
        with self._changed:
            self._in_flight = False
            self._changed.notify_all()
            if error is None:
                self._ledger.delivered(alert, wall)
                return
            known = self._ledger.knows_error(str(error)) or self._loop.stopping.is_set()
            retry = self._ledger.failed(alert, error, now, wall, this_round)
        if not known:
            log.log(
                logging.WARNING if error.transient else logging.ERROR,
                "querypulse: %s did not take %s of %s: %s; kept, next attempt in %.0f s",
                *(self.name, alert.name, alert.labels["query"], error, retry.at - now),
            )
