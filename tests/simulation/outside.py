"""`querypulse watch` in the simulated world: what it sees of each driver, and whom it notifies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from querypulse.alerting.alert import Alert
from querypulse.alerting.lifecycle.guidance import Guidance
from querypulse.alerting.outbox.dispatch import Dispatch
from querypulse.alerting.rules import driver_down
from querypulse.listener.guard import Guard
from querypulse.sidecar.watch import story
from querypulse.sidecar.watch.judge import Judge, Terms
from querypulse.sidecar.watch.look import Look, Place, Said
from querypulse.sidecar.watch.roll import Roll

from .clock import Time
from .courier import Courier
from .driver import SimDriver
from .messages import Named
from .queries import SimQuery
from .receivers import SimReceiver

LOOK_SECONDS = 5.0
GONE_AFTER_SECONDS = 15.0
"""The command's defaults."""
JUDGE_SECONDS = 1.0
"""The command takes half of that."""


class SimWatch:
    """A process beside the drivers, which never ends."""

    def __init__(
        self,
        time: Time,
        guard: Guard,
        drivers: Callable[[], Mapping[str, SimDriver]],
        queries: list[SimQuery],
        receivers: list[SimReceiver],
    ) -> None:
        self._time = time
        self._drivers = drivers
        self._queries = queries
        self._places: dict[str, Place] = {}
        self._roll = Roll(GONE_AFTER_SECONDS, LOOK_SECONDS)
        terms = Terms(
            resolve_after_seconds=30.0,
            repeat_interval_seconds=4 * 3600.0,
            guidance=Guidance("https://runbooks.example/{alertname}.md"),
        )
        self._judge = Judge(self._roll, terms)
        self.couriers = [
            Courier(one, guard, time=time, driver="watch", about=self._about,
                    is_alive=lambda: True)
            for one in receivers
        ]  # fmt: skip
        self._dispatch = Dispatch(self.couriers, wall=time.wall)

    def begin(self) -> None:
        """Look again and again."""
        for name in self._drivers():
            self._places[name] = Place(f"http://{name}:9719", loopback=True)
        self._roll.listed(self._places.values())
        self._look()
        self._judge_all()

    def _look(self) -> None:
        for name, place in self._places.items():
            driver = self._drivers()[name]
            if driver.announced is not None:
                self._roll.closes(place, self._time.now, driver.announced)
                driver.announced = None
            self._roll.looked(place, self._see(driver))
        self._time.after(LOOK_SECONDS, self._look)

    def _judge_all(self) -> None:
        """More often than anybody looks."""
        told = self._judge.update(self._time.now, self._time.wall())
        self._dispatch.offer(told.incidents, told.closings)
        for courier in self.couriers:
            courier.pump()
        self._time.after(JUDGE_SECONDS, self._judge_all)

    def _see(self, driver: SimDriver) -> Look:
        now = self._time.now
        if not driver.attached:
            return Look(began_at=now, at=now, said=Said.REFUSED, detail="refused")
        if not driver.awake:
            return Look(began_at=now, at=now, said=Said.SILENT, detail="no answer")
        beat = driver.worker.beat_at + self._time.wall() - now
        gone = any(one.labels["alertname"] == driver_down.NAME for one in driver.lifecycle.alerts)
        return Look(
            began_at=now, at=now, said=Said.WELL, app=driver.app, heartbeat=beat, reports_gone=gone
        )

    def _about(self, alert: Alert) -> Named:
        """The queries of the driver that an alert names, by its URL."""
        place = alert.annotations.get(story.ADDRESS, "")
        driver = urlsplit(place).hostname
        name = driver_down.NAME
        keys = (query.key for query in self._queries if query.spec.driver == driver)
        return frozenset({("*", name), *((key, name) for key in keys)})
