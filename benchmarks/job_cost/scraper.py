"""A Prometheus of sorts in a process of its own: one scrape a second, a line for each answered."""

import select
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def scraping(url: str) -> Iterator[Callable[[], int]]:
    """Scrape within the block; what it yields stops that and returns how many were answered."""
    command = [sys.executable, "-m", "benchmarks.job_cost.scraper", url]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        yield lambda: len(process.communicate()[0].splitlines())


def _scrape(url: str) -> None:
    # The parent process closes our input, or exits, which closes it, too.
    while not select.select([sys.stdin], [], [], 1.0)[0]:
        _scrape_once(url)


def _scrape_once(url: str) -> None:
    # Nobody listens there while others have their turn, and a busy driver may answer too late.
    with suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
        print(len(answer.read()), flush=True)


if __name__ == "__main__":
    _scrape(sys.argv[1])
