"""`querypulse watch` in the simulated world: its polls of each driver, and its notifications."""

from __future__ import annotations

from urllib.parse import urlsplit

from querypulse.alerting.alert import Alert
from querypulse.alerting.delivery.deliveries import Notifier
from querypulse.alerting.kinds import DRIVER_DOWN
from querypulse.alerting.words.messages import Guidance
from querypulse.exporter.pages import ALIVE_SECONDS
from querypulse.watch import alerts
from querypulse.watch.alerts import DriverAlerts
from querypulse.watch.client import Endpoint, Poll, Said, holds_key
from querypulse.watch.tracker import TargetTracker

from .driver import Courier, SimDriver
from .receivers import Named
from .stage import WorldView

POLL_SECONDS = 5.0
GONE_AFTER_SECONDS = 15.0
"""The defaults of the command."""
EVALUATE_SECONDS = 1.0
"""The command evaluates twice as often."""


class SimWatch:
    """A process beside the drivers that never ends."""

    name = "watch"
    alive = True

    def __init__(self, world: WorldView) -> None:
        self.time = world.time
        self._world = world
        self._endpoints: dict[str, Endpoint] = {}
        self._tracker = TargetTracker(GONE_AFTER_SECONDS, POLL_SECONDS)
        self._evaluate = DriverAlerts(
            self._tracker,
            resolve_after_seconds=30.0,
            repeat_interval_seconds=4 * 3600.0,
            guidance=Guidance("https://runbooks.example/{alertname}.md"),
        )
        self.couriers = [Courier(receiver, self, world.guard) for receiver in world.receivers]
        self._notifier = Notifier(self.couriers, wall=self.time.wall)

    def begin(self) -> None:
        for name in self._world.drivers:
            self._endpoints[name] = Endpoint(f"http://{name}:9719", loopback=True)
        self._tracker.listed(self._endpoints.values())
        self._poll()
        self._evaluate_all()

    def _poll(self) -> None:
        for name, endpoint in self._endpoints.items():
            driver = self._world.drivers[name]
            if driver.announced is not None:
                self._tracker.closes(endpoint, self.time.now, driver.announced)
                driver.announced = None
            self._tracker.polled(endpoint, self._see(driver))
        self.time.after(POLL_SECONDS, self._poll)

    def _evaluate_all(self) -> None:
        self._notifier.offer(self._evaluate.update(self.time.now, self.time.wall()))
        for courier in self.couriers:
            courier.pump()
        self.time.after(EVALUATE_SECONDS, self._evaluate_all)

    def _see(self, driver: SimDriver) -> Poll:
        now = self.time.now
        if not driver.attached:
            return Poll(began_at=now, at=now, said=Said.REFUSED, detail="refused")
        if not driver.awake:
            return Poll(began_at=now, at=now, said=Said.SILENT, detail="no answer")
        beat = driver.worker.beat_at + self.time.wall() - now
        return Poll(
            began_at=now,
            at=now,
            said=Said.HEALTHY if now - driver.worker.beat_at < ALIVE_SECONDS else Said.STUCK,
            app=driver.app,
            heartbeat=beat,
            holds_key=holds_key(driver.lifecycle.alerts),
        )

    def about(self, alert: Alert) -> Named:
        """The queries of the driver whose URL the alert has."""
        endpoint = alert.annotations.get(alerts.ADDRESS, "")
        driver = urlsplit(endpoint).hostname
        name = DRIVER_DOWN
        keys = (query.key for query in self._world.queries.values() if query.spec.driver == driver)
        return frozenset({("*", name), *((key, name) for key in keys)})

    def between(self) -> None:
        """Nobody kills it."""

    def kill(self) -> None:
        """Nobody kills it."""
