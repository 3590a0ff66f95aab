"""One watcher of five hundred drivers with five thousand queries, and its page.

``python -m benchmarks.fleet``. The drivers are served on loopback by one other process, and
answer as real ones do: ``/livez``, ``/status`` with ten queries, ``/watch`` until it times out.
Ten of them accept connections and never answer. Measured: how far apart polls of a driver that
answers are, memory and CPU time of the watcher, and how long its page takes. No receiver is asked.
"""

import resource
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from querypulse.alerting.alert import Incident
from querypulse.alerting.words.messages import Guidance
from querypulse.core.guard import Guard
from querypulse.watch.alerts import DriverAlerts
from querypulse.watch.client import Access
from querypulse.watch.fleet import fleet_of
from querypulse.watch.page import page_of
from querypulse.watch.peers import Leadership, new_rank
from querypulse.watch.targets import Targets
from querypulse.watch.tracker import TargetTracker
from querypulse.watch.watcher import Watcher

from .harness import Row, at_most, report, short

DRIVERS = 500
HANGING = 10
INTERVAL_SECONDS = 5.0
GONE_AFTER_SECONDS = 15.0
WARM_UP_SECONDS = 20.0
MEASURED_SECONDS = 60.0
PAGES = 5
MEBIBYTE = 2**20
TESTS = Path(__file__).parents[1] / "tests"


class Sink:
    """A receiver of nothing."""

    def offer(self, incidents: tuple[Incident, ...]) -> None:
        """Keep the newest incidents."""
        self.incidents = incidents


def main() -> int:
    """Measure, print, write."""
    before = _resident()
    with subprocess.Popen(
        [sys.executable, "-m", "support.fleets", str(DRIVERS), str(HANGING)],
        cwd=TESTS,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as drivers:
        assert drivers.stdout is not None
        urls = [line.strip() for line in iter(drivers.stdout.readline, "\n")]
        try:
            rows, samples = _measure(urls, before)
        finally:
            drivers.kill()
    report("fleet", __doc__, rows, samples)
    return 0


def _measure(urls: list[str], before: float) -> tuple[list[Row], dict[str, list[float]]]:
    tracker = TargetTracker(GONE_AFTER_SECONDS, INTERVAL_SECONDS)
    alerts = DriverAlerts(
        tracker,
        resolve_after_seconds=30.0,
        repeat_interval_seconds=3600.0,
        guidance=Guidance("https://runbooks.example/{alertname}.md"),
    )
    polls: dict[str, list[float]] = {}
    polled = tracker.polled

    def record(endpoint, poll):  # type: ignore[no-untyped-def]  # as the method it replaces
        polls.setdefault(endpoint.url, []).append(poll.at)
        polled(endpoint, poll)

    tracker.polled = record  # type: ignore[method-assign]  # it counts the polls
    watcher = Watcher(
        Targets(urls, None, ()),
        alerts,
        Leadership(new_rank(), (), GONE_AFTER_SECONDS),
        Sink(),  # type: ignore[arg-type]  # all that is called of it
        Guard(),
        access=Access(),
        hosts=(),
    )
    watcher.start()
    time.sleep(WARM_UP_SECONDS)
    spent = time.process_time()
    time.sleep(MEASURED_SECONDS)
    share = (time.process_time() - spent) / MEASURED_SECONDS
    gaps = [
        later - earlier
        for url, times in polls.items()
        if url not in urls[:HANGING]
        for earlier, later in pairwise(times)
    ]
    threads, grown = threading.active_count(), (_resident() - before) / MEBIBYTE
    pages = [_page(watcher) for _ in range(PAGES)]
    watcher.close(5.0)
    made = [seconds for seconds, _ in pages]
    slowest = max(gaps) - INTERVAL_SECONDS
    rows = [
        Row(f"polls of {DRIVERS} drivers", f"every {short(median(gaps))} s"),
        at_most("the latest poll, beyond the interval", slowest, INTERVAL_SECONDS, " s"),
        Row("threads", str(threads)),
        at_most("memory for the drivers", grown, 250, " MiB"),
        at_most("CPU of the watcher", share, 0.5, " cores"),
        at_most("the page, made", median(made), 1, " s"),
        at_most("the page", pages[0][1] / 1e6, 1, " MB"),
    ]
    return rows, {"gaps": gaps, "page": made}


def _page(watcher: Watcher) -> tuple[float, int]:
    began = time.perf_counter()
    size = len(page_of(fleet_of(watcher.seen)).encode())
    return time.perf_counter() - began, size


def _resident() -> float:
    """Bytes of memory in use by this process."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return float(int(pages) * resource.getpagesize())


if __name__ == "__main__":
    sys.exit(main())
