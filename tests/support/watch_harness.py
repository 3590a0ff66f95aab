"""A watcher without threads and sockets; the test controls its clock and its polls."""

from __future__ import annotations

from querypulse.alerting.alert import Alert, Incident
from querypulse.alerting.alert_text import Guidance
from querypulse.exporter.pages import Notice
from querypulse.watch.alerts import APP, DriverAlerts, DriverIncidents
from querypulse.watch.client import Endpoint, Poll, Said
from querypulse.watch.tracker import TargetTracker

WALL = 1_700_000_000.0
"""Unix seconds when the clock shows 0."""
BEAT = 1_600_000_000.0
A = Endpoint("http://a:9719")
B = Endpoint("http://b:9719")
HERE = Endpoint("http://127.0.0.1:9719", loopback=True)
BAD = (Said.REFUSED, Said.SILENT, Said.STUCK, Said.BROKEN, Said.REPLACED)


def driver_alerts(tracker: TargetTracker, resolve_after: float = 0.0) -> DriverAlerts:
    return DriverAlerts(
        tracker,
        resolve_after_seconds=resolve_after,
        repeat_interval_seconds=3600.0,
        guidance=Guidance("https://runbooks.example/{alertname}.md"),
    )


def pod(number: int) -> Endpoint:
    """An address that the name ``drivers`` may have."""
    return Endpoint("http://drivers:9719", f"10.0.0.{number}", "http://drivers:9719")


class WatchHarness:
    """``reported`` is what is open after the newest poll; an evaluation follows every poll."""

    def __init__(
        self, *endpoints: Endpoint, gone_after=15.0, interval=5.0, resolve_after=0.0
    ) -> None:
        self.now = 1000.0
        self.muted = ""
        self.tracker = TargetTracker(gone_after, interval)
        self.evaluate = driver_alerts(self.tracker, resolve_after)
        self.tracker.listed(endpoints or (A,))
        self.all: list[DriverIncidents] = []

    def poll(
        self, endpoint=A, said=Said.HEALTHY, *, app="etl", after=1.0, took=0.0, **fields
    ) -> WatchHarness:
        """Poll ``after`` seconds later, for ``took`` seconds; by default the heartbeat is recent."""
        self.now += after
        began = self.now
        self.now += took
        if said is Said.HEALTHY:
            fields = {"heartbeat": BEAT + self.now, "reports_gone": False, **fields}
        else:
            app = ""
        seen = Poll(began_at=began, at=self.now, said=said, detail=said.value, app=app, **fields)
        self.tracker.polled(endpoint, seen)
        return self.update()

    def polls(self, said, seconds, endpoint=A, every=1.0, **fields) -> WatchHarness:
        """Polls with one answer, one per ``every`` seconds, for ``seconds``."""
        for _ in range(round(seconds / every)):
            self.poll(endpoint, said, after=every, **fields)
        return self

    def stopped(self, endpoint=A, after=0.0, notice=Notice.STOPPED) -> WatchHarness:
        self.now += after
        self.tracker.closes(endpoint, self.now, notice)
        return self.update()

    def proved(self, after=0.0) -> WatchHarness:
        self.now += after
        self.tracker.proved(self.now)
        return self.update()

    def listed(self, *endpoints) -> WatchHarness:
        self.tracker.listed(endpoints)
        return self.update()

    def update(self, after=0.0) -> WatchHarness:
        self.now += after
        self.all.append(self.evaluate.update(self.now, WALL + self.now, lambda _: self.muted))
        return self

    @property
    def reported(self) -> list[str]:
        """The apps whose ``StreamingDriverDown`` is open now."""
        return [one.alerts[0].labels["app"] for one in self._newest(APP) if one.ends_at is None]

    @property
    def blind(self) -> list[Alert]:
        """The open alerts about the watcher itself."""
        return [one.alerts[0] for one in self._newest() if one.ends_at is None and _is_own(one)]

    def _newest(self, but_of: str = "") -> list[Incident]:
        found = self.all[-1].incidents
        return [one for one in found if one.alerts[0].labels["app"] != but_of]

    @property
    def ended(self) -> list[str]:
        """The apps whose alerts ended with the newest evaluation."""
        return [
            one.alerts[0].labels["app"] for one in self.all[-1].incidents if one.ends_at is not None
        ]

    @property
    def ever_reported(self) -> set[str]:
        found = (one for reported in self.all for one in reported.incidents if not _is_own(one))
        return {one.alerts[0].labels["app"] for one in found}

    @property
    def page(self) -> dict[str, str]:
        """The annotations of the one open alert."""
        (one,) = [one for one in self._newest(APP) if one.ends_at is None]
        return one.alerts[0].annotations

    @property
    def news(self) -> list[str]:
        return [line for reported in self.all for line in reported.news]

    @property
    def stale_resolves(self) -> list[str]:
        """The apps of stale resolves, each once."""
        found = [
            one.alerts[0].labels["app"] for reported in self.all for one in reported.stale_resolves
        ]
        return list(dict.fromkeys(found))


def _is_own(one: Incident) -> bool:
    return one.alerts[0].labels["app"] == APP
