"""A webhook receiver on loopback that keeps the alerts that it receives."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass

from support.http_double import DoubleHandler, HttpDouble, RecordedRequest
from support.queries import SPARK_PATIENCE_SECONDS


@dataclass(frozen=True, repr=False)
class ReceivedPage:
    """One alert of one POST; ``at`` is when it arrived, in monotonic seconds."""

    at: float
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]

    def __repr__(self) -> str:
        return f"<{self.status} {self.what}: {self.annotations['reason']}>"

    @property
    def what(self) -> tuple[str, str]:
        return self.labels["alertname"], self.labels["query"]


class PageRecorder(HttpDouble):
    """Decodes the alerts that arrive while it ``takes`` them, and can wait for one."""

    takes = True

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        super().__init__(address=address)
        self.pages: list[ReceivedPage] = []
        self._reported = threading.Condition()

    def handle(self, request: RecordedRequest, handler: DoubleHandler) -> None:
        now = time.monotonic()
        with self._reported:
            for alert in json.loads(request.body)["alerts"] if self.takes else ():
                page = ReceivedPage(now, alert["status"], alert["labels"], alert["annotations"])
                self.pages.append(page)
            self._reported.notify_all()
        super().handle(request, handler)

    def wait_for(
        self, alertname, query, *, status="firing", timeout=SPARK_PATIENCE_SECONDS
    ) -> ReceivedPage:
        """The first page of that alert, once it has arrived."""

        def found():
            wanted = (alertname, query)
            return [page for page in self.pages if page.what == wanted and page.status == status]

        with self._reported:
            assert self._reported.wait_for(found, timeout), (
                f"not reported: {alertname} of {query}; reported: {self.reported}"
            )
        return found()[0]

    @property
    def reported(self) -> list[tuple[str, str, str]]:
        return [(page.status, *page.what) for page in self.pages]


def error_of(annotations: dict[str, str]) -> str:
    """The whole error of an alert: its message is separate where the reason cuts it."""
    return annotations["reason"] + annotations.get("error_message", "")
