"""A real driver whose queries fail and recover. A real Prometheus with the shipped rules observes
it and notifies a real Alertmanager with the shipped configuration.

A second driver, ``doomed``, receives no events; two of its queries fail, one recovers, and then the
driver is killed. The shipped files are changed in two ways:

* a minute of the rules lasts ``MINUTE_SECONDS`` (``for``, ranges, steps and offsets alike);
* Alertmanager's waits are short, and its receivers are webhooks of one double.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import yaml
from support.driver import SHARES_THE_QUEUE, Driver
from support.prometheus import Notifications, RealAlertmanager, RealPrometheus
from support.queries import until

ROOT = Path(__file__).parents[2]
ALERTMANAGER = ROOT / "dashboards/alertmanager/alertmanager.yaml"
MINUTE_SECONDS = 3
GROUP_WAIT_SECONDS = 0.5
"""Shorter, and Alertmanager may send an inhibited alert before it knows the inhibiting one."""
GROUP_INTERVAL_SECONDS = 0.2
DOOMED = "doomed"
EVENTS_MISSING = ("QuerypulseEventsMissing", DOOMED)
HEALED = ("StreamingQueryFailed", "healed")
LOST = ("StreamingQueryFailed", "lost")
APP = "observed"
HEALTHY, IDLE, SLOW, HUNG, DEAD = "healthy", "idle", "slow", "hung", "dead"
BACK = {
    ("StreamingQueryFailed", DEAD),
    ("StreamingQueryStalled", HUNG),
    ("StreamingBatchSlow", SLOW),
}
"""Alerts that must resolve."""
FAILING = {*BACK, ("StreamingQueryMissing", "never_started")}
MUST_FIRE = {
    *FAILING,
    HEALED,
    LOST,
    # Of a whole driver, by its app.
    EVENTS_MISSING,
    ("StreamingDriverDown", DOOMED),
    ("QuerypulseDeliveryFailing", APP),
}
"""Alerts that Alertmanager must send, by name and query."""

PLAY = """
sys.path.insert(0, os.environ["TESTS"])
from support.observed_play import play
play(spark, attach, say, os.environ["FOLDER"])
"""
DOOMED_PLAY = (
    SHARES_THE_QUEUE
    + """
from pathlib import Path
folder = Path(os.environ["FOLDER"])
def fails_for_a_while(batch, batch_id):
    if (folder / "fail").exists() and not (folder / "heal").exists():
        raise ValueError("for a while")
sidecar = attach(
    spark, app_name="doomed", http_port=0, stall_floor_seconds=15, resolve_after_seconds=1
)
start("victim")
start("healed", fails_for_a_while)
start("lost", fails_for_a_while)
until_commits(sidecar, "victim", "healed", "lost")
# A removal without an addition takes nothing away.
spark.newSession().streams.addListener(sidecar.listener)
spark.streams.removeListener(sidecar.listener)
say(sidecar.url)
until((folder / "heal").exists)
start("healed", fails_for_a_while)
time.sleep(3600)
"""
)


class ObservedPlay:
    """Runs the play: all queries fail, three recover, and one driver is killed.

    Afterwards the driver of app ``APP``, Prometheus and Alertmanager keep running.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.began_at = time.time()
        self.receivers = stack.enter_context(Notifications())
        self._folder = folder
        self._stack = stack
        # One after the other: two Sparks that start at once slow each other down.
        doomed, self.doomed_url = self._driver(DOOMED, DOOMED_PLAY)
        self.driver, self.url = self._driver(APP, PLAY)
        # Alertmanager must run before Prometheus sends its first notification.
        self.alertmanager = stack.enter_context(
            RealAlertmanager(folder, self.receivers, shown_to(self.receivers.url))
        )
        self.prometheus = stack.enter_context(
            RealPrometheus(
                folder,
                [self.url, self.doomed_url],
                rules=quick_rules(folder),
                alertmanagers=[self.alertmanager.url],
            )
        )
        self._play(doomed)

    def _play(self, doomed: Driver) -> None:
        self.driver.wait_for_line("healthy")
        until(lambda: EVENTS_MISSING in self.received("firing"), f"reported: {EVENTS_MISSING}")
        (self._folder / DOOMED / "fail").touch()
        until(lambda: self.received("firing") >= {HEALED, LOST}, f"reported: {HEALED}, {LOST}")
        (self._folder / DOOMED / "heal").touch()
        until(lambda: HEALED in self.received("resolved"), f"resolved: {HEALED}")
        doomed.signal_all(signal.SIGKILL)
        self.driver.wait_for_line("failing")
        until(lambda: self.received("firing") >= MUST_FIRE, f"all reported: {MUST_FIRE}")
        (self._folder / APP / "come_back").touch()
        self.driver.wait_for_line("back")
        until(lambda: self.received("resolved") >= BACK, f"resolved: {BACK}")
        # Ten minutes after the end of its driver.
        until(lambda: EVENTS_MISSING in self.received("resolved"), f"resolved: {EVENTS_MISSING}")

    def received(self, status: str) -> set[tuple[str, str]]:
        return {
            what(alert["labels"]) for alert in self.receivers.alerts if alert["status"] == status
        }

    def _driver(self, app: str, script: str) -> tuple[Driver, str]:
        """A driver and its address, the first line that it prints."""
        folder = self._folder / app
        folder.mkdir()
        tests = str(Path(__file__).parents[1])
        driver = Driver(script, folder, TESTS=tests, FOLDER=str(folder))
        self._stack.enter_context(driver)
        return driver, driver.line("http://")


def what(labels: dict[str, str]) -> tuple[str, str]:
    """Name and query of an alert; of one about a whole driver, its app."""
    whole = labels["query"] == "*"
    return labels["alertname"], labels["app" if whole else "query"]


def quick_rules(
    folder: Path,
    minute: int = MINUTE_SECONDS,
    names: Sequence[str] = ("drivers.yaml", "queries.yaml"),
) -> list[Path]:
    """The shipped rules with minutes of so many seconds, written to ``folder``."""
    written = []
    for name in names:
        shipped = (ROOT / "dashboards" / "prometheus" / name).read_text()
        path = folder / name
        path.write_text(
            re.sub(r"\b(\d+)m\b", lambda minutes: f"{int(minutes[1]) * minute}s", shipped)
        )
        written.append(path)
    return written


def shown_to(url: str, shipped: Path = ALERTMANAGER) -> str:
    """A shipped configuration of Alertmanager, with short waits and all receivers at ``url``."""
    config = yaml.safe_load(shipped.read_text())
    config["templates"] = []
    names = [receiver["name"] for receiver in config["receivers"]]
    config["receivers"] = [
        {"name": name, "webhook_configs": [{"url": url, "send_resolved": name != "watchdog"}]}
        for name in names
    ]
    wait, interval = (f"{round(s * 1000)}ms" for s in (GROUP_WAIT_SECONDS, GROUP_INTERVAL_SECONDS))
    routes = [config["route"]]
    for route in routes:
        route.update(group_wait=wait, group_interval=interval, repeat_interval="1h")
        routes += route.get("routes", [])
    return yaml.safe_dump(config)
