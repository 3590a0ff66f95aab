"""The targets that metrics are pushed to, and their publishers."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..alerting.receivers.http import HttpError, HttpPoster
from ..core.guard import Guard
from ..core.outcomes import DeliveryOutcome
from ..core.secret import Secret
from ..exporter.published_state import PublishedState
from ..exporter.push import otlp, pushgateway
from ..settings.pushing import PushConnections
from .publisher import Publisher, Publishers, PushTarget


class PushgatewayTarget:
    """A Pushgateway: a push replaces all figures of this app, and the end deletes them."""

    name = "pushgateway"

    def __init__(self, app: str, poster: HttpPoster) -> None:
        self._app = app
        self._poster = poster

    def push(self, published: PublishedState, wall: float) -> None:
        """Replace the group with the newest figures."""
        self._send("PUT", pushgateway.group_body(published), wall)

    def end(self, wall: float) -> None:
        """Delete the group."""
        self._send("DELETE", b"", wall)

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    def _send(self, method: str, body: bytes, wall: float) -> None:
        self._poster.post(
            body,
            wall,
            lambda _: pushgateway.HEADERS,
            address=lambda url: pushgateway.group_url(url, self._app),
            method=method,
        )


class OtlpTarget:
    """An OpenTelemetry receiver. It has no way to delete: at the end the figures only stop."""

    name = "otlp"

    def __init__(self, poster: HttpPoster, headers: Secret | None, began: float) -> None:
        self._poster = poster
        self._headers = headers
        self._began = began

    def push(self, published: PublishedState, wall: float) -> None:
        """Push all figures."""
        headers = {"Content-Type": otlp.CONTENT_TYPE, **self._own_headers()}
        answer = self._poster.post(
            otlp.request_body(published, began=self._began, wall=wall),
            wall,
            lambda _: headers,
            address=otlp.metrics_url,
        )
        count = otlp.rejected(answer)
        if count:
            place = self._poster.place
            raise HttpError(f"{place} refused {count} figures", DeliveryOutcome.REJECTED)

    def end(self, wall: float) -> None:
        """Nothing to do: what an OpenTelemetry receiver keeps is its own affair."""

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    def _own_headers(self) -> dict[str, str]:
        if self._headers is None:
            return {}
        try:
            return otlp.parse_headers(self._headers.reveal())
        except ValueError as error:
            raise HttpError(f"otlp_headers_file: {error}", DeliveryOutcome.MISCONFIGURED) from None


def make_publishers(
    app: str,
    connections: PushConnections,
    published: Callable[[], PublishedState | None],
    guard: Guard,
) -> Publishers:
    """One unstarted publisher for each target that is configured.

    ``published`` returns what to push, None while there is nothing.
    """
    targets: list[PushTarget] = []
    if connections.pushgateway is not None:
        targets.append(PushgatewayTarget(app, connections.pushgateway))
    if connections.otlp is not None:
        targets.append(OtlpTarget(connections.otlp, connections.otlp_headers, time.time()))
    interval = connections.interval_seconds
    return Publishers(
        [Publisher(one, published, guard, interval_seconds=interval) for one in targets]
    )
