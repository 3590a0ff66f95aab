"""What people write themselves: a stock listener that pages, and a timer for missing events."""

import threading
import time
from typing import Any

import requests
from pyspark.sql.streaming.listener import StreamingQueryListener

from .page_receiver import DEATH, HANG

CHECK_SECONDS = 1.0


class EventOnly(StreamingQueryListener):
    """Pages for an exception at once, and for a query without events for ``window_seconds``."""

    def __init__(self, url: str, window_seconds: float) -> None:
        self._url = url
        self._window = window_seconds
        self._names: dict[str, str] = {}
        self._received_at: dict[str, float] = {}
        self._ended = threading.Event()
        self._timer = threading.Thread(target=self._watch, daemon=True)
        self._timer.start()

    def onQueryStarted(self, event: Any) -> None:
        self._names[str(event.runId)] = event.name
        self._received_at[str(event.runId)] = time.monotonic()

    def onQueryProgress(self, event: Any) -> None:
        run = str(event.progress.runId)
        self._names[run] = event.progress.name
        self._received_at[run] = time.monotonic()

    def onQueryIdle(self, event: Any) -> None:
        self._received_at[str(event.runId)] = time.monotonic()

    def onQueryTerminated(self, event: Any) -> None:
        run = str(event.runId)
        self._received_at.pop(run, None)
        if event.exception is not None:
            self._page(DEATH, self._names[run])

    def close(self) -> None:
        """Stop the timer."""
        self._ended.set()
        self._timer.join()

    def _watch(self) -> None:
        reported: set[str] = set()
        while not self._ended.wait(CHECK_SECONDS):
            now = time.monotonic()
            for run, received_at in list(self._received_at.items()):
                if now - received_at <= self._window:
                    reported.discard(run)
                elif run not in reported:
                    reported.add(run)
                    self._page(HANG, self._names[run])

    def _page(self, alertname: str, query: str) -> None:
        labels = {"alertname": alertname, "query": query}
        requests.post(self._url, json={"alerts": [{"labels": labels}]}, timeout=5)
