"""A watcher without threads and sockets; the test controls its clock and its polls."""

from __future__ import annotations

from support.patience import WALL

from querypulse.alerting.alert import Alert, Incident, incident_key, incident_labels
from querypulse.alerting.words.messages import Guidance
from querypulse.exporter.pages import Notice
from querypulse.watch.alerts import APP, DriverAlerts
from querypulse.watch.client import Endpoint, Poll, Said
from querypulse.watch.tracker import TargetTracker

BEAT = 1_600_000_000.0
DAY = 24 * 3600.0
A = Endpoint("http://a:9719")
B = Endpoint("http://b:9719")
HERE = Endpoint("http://127.0.0.1:9719", loopback=True)
NAME = Endpoint("http://drivers:9719")
"""A DNS name without an address."""
BAD = (Said.REFUSED, Said.SILENT, Said.STUCK, Said.BROKEN, Said.REPLACED)


def pod(number: int) -> Endpoint:
    """An address that the name ``drivers`` may have."""
    return Endpoint("http://drivers:9719", f"10.0.0.{number}")


ENDPOINTS = {
    "A": A,
    "B": B,
    "HERE": HERE,
    "NAME": NAME,
    "ONE": pod(1),
    "TWO": pod(2),
    "THREE": pod(3),
}

FLAGS = {"holds": "holds_key", "ends": "end_expected"}
"""What the words of a story say of a poll."""


class WatchHarness:
    """``reported`` is what is open after the newest poll; an evaluation follows every poll."""

    def __init__(
        self, *endpoints: Endpoint, gone_after=15.0, resolve_after=0.0, forgotten=()
    ) -> None:
        self.now = 1000.0
        self.muted = ""
        self.tracker = TargetTracker(gone_after, 5.0)
        self.evaluate = DriverAlerts(
            self.tracker,
            resolve_after_seconds=resolve_after,
            repeat_interval_seconds=3600.0,
            guidance=Guidance("https://runbooks.example/{alertname}.md"),
            forgotten=forgotten,
        )
        if endpoints != (None,):
            self.tracker.listed(endpoints or (A,))
        self.all: list[tuple[Incident, ...]] = [()]
        self.news: list[str] = []

    def play(self, story: str) -> WatchHarness:
        """Play a story, such as ``healthy, B refused 17 app=other + proved, stopped, list B``.

        An answer comes once a second for as many seconds, at A or at a named endpoint; what is
        joined by ``+`` alternates. Other steps: ``stopped``, ``terminated`` (notices), ``proved``
        (the network works), ``list`` with endpoints, ``wait`` with seconds.
        """
        for part in filter(None, map(str.strip, story.split(","))):
            steps = [step.split() for step in part.split("+")]
            times = max(int(words[-1]) if words[-1].isdigit() else 1 for words in steps)
            if steps[0][0] == "wait":
                self.update(float(times))
                continue
            for _ in range(times):
                for words in steps:
                    self._do(*words)
        return self

    def _do(self, *words: str) -> None:
        endpoint = ENDPOINTS.get(words[0])
        what, *more = words[endpoint is not None :]
        endpoint = endpoint or A
        if what in ("stopped", "terminated"):
            self.stopped(endpoint, notice=Notice(what))
        elif what == "proved":
            self.proved()
        elif what == "list":
            self.listed(*(ENDPOINTS[name] for name in more))
        else:
            fields = dict(pair.split("=") for pair in more if "=" in pair)
            times = {name: float(fields.pop(name)) for name in ("after", "took") if name in fields}
            fields |= {field: True for word, field in FLAGS.items() if word in more}
            self.poll(endpoint, Said(what), **times, **fields)

    def poll(
        self, endpoint=A, said=Said.HEALTHY, *, app="etl", after=1.0, took=0.0, **fields
    ) -> WatchHarness:
        """Poll ``after`` seconds later, for ``took`` seconds; by default the heartbeat is recent."""
        self.now += after
        began = self.now
        self.now += took
        if said is Said.HEALTHY:
            fields = {"heartbeat": BEAT + self.now, "holds_key": False, **fields}
        else:
            app = ""
        seen = Poll(began_at=began, at=self.now, said=said, detail=said.value, app=app, **fields)
        self.tracker.polled(endpoint, seen)
        return self.update()

    def polls(self, said, seconds, endpoint=A, **fields) -> WatchHarness:
        """Polls with one answer, one a second."""
        for _ in range(round(seconds)):
            self.poll(endpoint, said, **fields)
        return self

    def stopped(self, endpoint=A, after=0.0, notice=Notice.STOPPED, reported=()) -> WatchHarness:
        self.now += after
        self.tracker.closes(endpoint, self.now, notice, reported)
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
        self.news += self.evaluate.news()
        return self

    def restored(self, *incidents) -> WatchHarness:
        self.evaluate.restore(incidents, self.now)
        return self

    @property
    def open(self) -> list[Incident]:
        return [incident for incident in self.all[-1] if not incident.is_over]

    @property
    def reported(self) -> list[str]:
        """The apps whose ``StreamingDriverDown`` is open now."""
        return [app for app in map(_app, self.open) if app != APP]

    @property
    def blind(self) -> list[Alert]:
        """The open alerts about the watcher itself."""
        return [incident.alerts[0] for incident in self.open if _app(incident) == APP]

    @property
    def ended(self) -> list[str]:
        """The apps whose alerts ended with the newest evaluation."""
        newest = self.all[-1]
        return [
            _app(incident) for incident in newest if incident.is_over and not incident.is_orphan
        ]

    @property
    def ever_reported(self) -> set[str]:
        every = (
            incident for incidents in self.all for incident in incidents if not incident.is_orphan
        )
        return {_app(incident) for incident in every} - {APP}

    @property
    def page(self) -> dict[str, str]:
        """The annotations of the one open alert."""
        (incident,) = [incident for incident in self.open if _app(incident) != APP]
        return incident.alerts[0].annotations

    @property
    def stale(self) -> list[str]:
        """The apps of critical stale incidents; each has one for warnings, too."""
        return [
            _app(incident)
            for incidents in self.all
            for incident in incidents
            if incident.is_orphan and incident.is_critical
        ]


def _app(incident: Incident) -> str:
    return incident.labels["app"]


def left_open(app: str, endpoint: Endpoint, revision: int = 0) -> Incident:
    """An incident that an earlier watcher has left open for the driver at ``endpoint``."""
    labels = incident_labels(app, "*", {})
    named = {"alertname": "StreamingDriverDown", "severity": "critical", **labels}
    alert = Alert(named, {"summary": "gone", "address": endpoint.shown}, WALL)
    return Incident(incident_key(labels, "critical"), labels, "critical", (alert,), revision)
