"""What people write themselves: a stock listener that pages, and a timer for silence."""

import threading
import time
from typing import Any

import requests
from pyspark.sql.streaming.listener import StreamingQueryListener

from .desk import DEATH, HANG

CHECK_SECONDS = 1.0


class EventOnly(StreamingQueryListener):
    """Pages at once for an exception, and for no progress in ``window_seconds``."""

    def __init__(self, url: str, window_seconds: float) -> None:
        self._url = url
        self._window = window_seconds
        self._names: dict[str, str] = {}
        self._heard_at: dict[str, float] = {}
        self._ended = threading.Event()
        self._timer = threading.Thread(target=self._watch, daemon=True)
        self._timer.start()

    def onQueryStarted(self, event: Any) -> None:
        self._names[str(event.runId)] = event.name
        self._heard_at[str(event.runId)] = time.monotonic()

    def onQueryProgress(self, event: Any) -> None:
        run = str(event.progress.runId)
        self._names[run] = event.progress.name
        self._heard_at[run] = time.monotonic()

    def onQueryIdle(self, event: Any) -> None:
        self._heard_at[str(event.runId)] = time.monotonic()

    def onQueryTerminated(self, event: Any) -> None:
        run = str(event.runId)
        self._heard_at.pop(run, None)
        if event.exception is not None:
            self._page(DEATH, self._names[run])

    def close(self) -> None:
        """Stop the timer."""
        self._ended.set()
        self._timer.join()

    def _watch(self) -> None:
        told: set[str] = set()
        while not self._ended.wait(CHECK_SECONDS):
            now = time.monotonic()
            for run, heard_at in list(self._heard_at.items()):
                if now - heard_at <= self._window:
                    told.discard(run)
                elif run not in told:
                    told.add(run)
                    self._page(HANG, self._names[run])

    def _page(self, alertname: str, query: str) -> None:
        labels = {"alertname": alertname, "query": query}
        requests.post(self._url, json={"alerts": [{"labels": labels}]}, timeout=5)
