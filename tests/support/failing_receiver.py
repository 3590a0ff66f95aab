"""A webhook receiver in an outage: 500 for a while, then 429 with Retry-After, then healthy."""

from __future__ import annotations

import json
import time

from support.http_double import DoubleHandler, HttpDouble, RecordedRequest, reply

PATIENCE_ASKED_FOR = 3


class FailingReceiver(HttpDouble):
    """Answers 500 for ``outage`` seconds from the first request on, then 429 once, then 202."""

    def __init__(self, outage: float) -> None:
        super().__init__()
        self.taken: list[tuple[str, str, str]] = []
        """The accepted alerts: status, alert name and query."""
        self.refused = 0
        self.asked_at: float | None = None
        self.waited: float | None = None
        """Seconds from the 429 to the next request."""
        self._outage = outage
        self._failing_until: float | None = None

    def handle(self, request: RecordedRequest, handler: DoubleHandler) -> None:
        now = time.monotonic()
        self._failing_until = self._failing_until or now + self._outage
        if now < self._failing_until:
            self.refused += 1
            reply(500)(handler)
        elif self.asked_at is None:
            self.asked_at = now
            reply(429, {"Retry-After": str(PATIENCE_ASKED_FOR)})(handler)
        else:
            self.waited = self.waited or now - self.asked_at
            for alert in json.loads(request.body)["alerts"]:
                labels = alert["labels"]
                self.taken.append((alert["status"], labels["alertname"], labels["query"]))
            reply(202)(handler)
