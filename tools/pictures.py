"""``python -m tools.pictures [FOLDER]``: take every picture, by default for the docs.

They are screenshots of the status page during the incident of ``querypulse demo``, its output
as it came, in a picture that moves, the page of an incident of a recorded event log, and that of
five hundred drivers that the tests make up.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from typing import IO, Any

from playwright.sync_api import Browser, Page, sync_playwright

from .terminal import Line, picture

ROOT = Path(__file__).parents[1]
HOME = ROOT / "docs" / "pictures"
LOG = ROOT / "tests" / "fixtures" / "orders.zstd"
TITLE = "querypulse demo: one of eight queries fails, and within a second the page arrives"
AFTER_SECONDS = 60
"""How long all queries are healthy first: sparklines need batches."""
COMMAND = f"querypulse demo --after {AFTER_SECONDS}"
PATIENCE_MILLISECONDS = 180_000.0
MAX_BYTES = 200_000
DEMO = "import sys; from querypulse.commands.cli import main; sys.exit(main())"
ADDRESS = re.compile(r"status page: (\S+)")
INCIDENT = "text=7 of 8 queries are healthy; alert_resolution has failed."
REPORTED = "#receivers td:text-is('1')"
WINDOWS: dict[str, dict[str, Any]] = {
    "status-page-light": {"viewport": {"width": 1280, "height": 1110}, "color_scheme": "light"},
    "status-page-dark": {"viewport": {"width": 1280, "height": 1110}, "color_scheme": "dark"},
    "status-page-phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 1.5},
}


def take(folder: Path) -> None:
    """Run the demo and take each picture while its query 8 has failed."""
    with _demo() as (address, recording), _chromium() as browser:
        pages = {name: _open(browser, address, options) for name, options in WINDOWS.items()}
        for name, page in pages.items():
            page.wait_for_selector(INCIDENT)
            page.wait_for_selector(REPORTED)
            path = folder / f"{name}.png"
            page.screenshot(path=path, animations="disabled")
            _check_size(path)
        recording.finished.wait(PATIENCE_MILLISECONDS / 1000)
    path = folder / "demo.svg"
    path.write_text(picture(TITLE, COMMAND, recording.shown()), encoding="utf-8")
    _check_size(path)


def take_incident(folder: Path) -> None:
    """Replay an event log of the tests, and take the first incident of its page."""
    with TemporaryDirectory() as temporary, _chromium() as browser:
        page = Path(temporary) / "page.html"
        command = [sys.executable, "-Ic", DEMO, "replay", str(LOG), "--html", str(page)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own
        shown = _open(browser, page.as_uri(), WINDOWS["status-page-light"])
        shown.evaluate("scrollTo(0, document.querySelector('#i1 header').offsetTop - 8)")
        path = folder / "incident.png"
        shown.screenshot(path=path)
        _check_size(path)


def take_fleet(folder: Path) -> None:
    """Draw the page of five hundred drivers of the tests, and take its beginning."""
    with TemporaryDirectory() as temporary, _chromium() as browser:
        page = Path(temporary) / "page.html"
        command = [sys.executable, "-m", "support.fleets", "page", str(page)]
        subprocess.run(command, check=True, cwd=ROOT / "tests")  # noqa: S603 - our own
        shown = _open(browser, page.as_uri(), {"viewport": {"width": 1100, "height": 640}})
        path = folder / "fleet.png"
        shown.screenshot(path=path)
        _check_size(path)


def _open(browser: Browser, address: str, options: dict[str, Any]) -> Page:
    page = browser.new_page(**options)
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    page.goto(address)
    return page


class Recording(threading.Thread):
    """Reads the demo's output, line by line, with the time at which each came."""

    def __init__(self, output: IO[str]) -> None:
        super().__init__(daemon=True)
        self._output = output
        self._lines: list[Line] = []
        self._began = time.monotonic()
        self.address: Queue[str] = Queue()
        self.finished = threading.Event()
        self.start()

    def run(self) -> None:
        """Read until the demo ends."""
        for line in self._output:
            self._lines.append(Line(time.monotonic() - self._began, line.rstrip("\n")))
            if match := ADDRESS.search(line):
                self.address.put(match[1])
        self.finished.set()

    def shown(self) -> list[Line]:
        """The lines, with no path of the machine that took them."""
        lines = [line._replace(text=line.text.replace(str(ROOT), "...")) for line in self._lines]
        if any(str(ROOT.parent) in line.text for line in lines):
            raise SystemExit(f"the demo's output holds a path below {ROOT.parent}")
        return lines


@contextmanager
def _demo() -> Iterator[tuple[str, Recording]]:
    command = [sys.executable, "-Iuc", DEMO, "demo", "--after", str(AFTER_SECONDS)]
    labels = {"QUERYPULSE_LABELS": "{env = 'prod', team = 'fleet'}"}
    with subprocess.Popen(  # noqa: S603 - our own
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **labels}
    ) as process:
        try:
            assert process.stdout is not None
            recording = Recording(process.stdout)
            yield recording.address.get(timeout=PATIENCE_MILLISECONDS / 1000), recording
        finally:
            # Like Ctrl-C: the demo stops its queries and its JVM gracefully.
            process.send_signal(signal.SIGINT)
            process.communicate()


@contextmanager
def _chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def _check_size(path: Path) -> None:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{path}: {size} bytes, {MAX_BYTES} are allowed")


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if sys.argv[1:] else HOME
    take_incident(chosen)
    take_fleet(chosen)
    take(chosen)
