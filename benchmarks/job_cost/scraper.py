"""A Prometheus of sorts in a process of its own: one scrape a second, a line for each answered."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def scraping(url: str) -> Iterator[Callable[[], int]]:
    """Scrape within the block; what it yields stops that and tells how many were answered."""
    command = [sys.executable, "-m", "benchmarks.job_cost.scraper", url]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def stop() -> int:
        process.terminate()
        return len(process.communicate()[0].splitlines())

    try:
        yield stop
    finally:
        process.kill()
        process.wait()


def _scrape(url: str) -> None:
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                print(len(answer.read()), flush=True)
        except urllib.error.URLError:
            # Nobody listens there while others have their turn.
            pass
        time.sleep(1)


if __name__ == "__main__":
    _scrape(sys.argv[1])
