"""Pushes the newest published state in a thread of its own, where nobody can scrape."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..alerting.receivers.http import HttpError, HttpPoster
from ..core.guard import Guard
from ..core.secret import Secret
from ..core.states import FAILED, OUTCOMES, DeliveryOutcome
from ..core.threads import Loop
from ..exporter import push
from ..exporter.published_state import PublishedState, Pushes
from ..settings.wiring import PushConnections

log = logging.getLogger("querypulse")


# -- publisher --------------------------------------------------------------------------------


MAX_PAUSE_SECONDS = 60.0
"""The longest pause after errors: a rule about a driver that is down waits two minutes."""


class PushTarget(Protocol):
    """Where figures are pushed to; every call is bounded in time and raises ``HttpError``."""

    name: str

    def push(self, published: PublishedState, wall: float) -> None:
        """Push all figures at Unix time ``wall``."""
        ...

    def end(self, wall: float) -> None:
        """The driver ends as intended: nothing of it should stay."""
        ...

    def close(self) -> None:
        """Close the connection; a request in flight ends at once."""
        ...


class Publisher:
    """Pushes to one target every ``interval_seconds``; a failed push is followed by the next one.

    Nothing is queued: each push has the newest figures. ``pushes`` says what became of them.
    """

    def __init__(
        self,
        target: PushTarget,
        published: Callable[[], PublishedState | None],
        guard: Guard,
        *,
        interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = target.name
        self._target = target
        self._published = published
        self._guard = guard
        self._interval = interval_seconds
        self._clock = clock
        self._wall = wall
        self._outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._problem = ""
        self._in_a_row = 0
        self._pushed_at: float | None = None
        self._is_planned = False
        self._ending = threading.Event()
        self._loop = Loop(f"push-{target.name}", self._step, guard, last=self._last)

    @property
    def pushes(self) -> Pushes:
        """What became of the pushes so far."""
        return Pushes(self._outcomes.copy(), self._problem, self._pushed_at)

    def start(self) -> None:
        """Start the thread."""
        self._loop.start()

    def stop(self, *, planned: bool) -> None:
        """Ask the thread to end; after a ``planned`` end nothing stays at the target."""
        self._is_planned = planned
        self._loop.stop()
        self._ending.set()

    def join(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for the end, then cut the connection."""
        if not self._loop.is_forked:
            self._loop.join(timeout)
            self._guard.attempt(f"close-push-{self.name}", self._target.close)

    @property
    def pause_seconds(self) -> float:
        """Until the next push: longer after errors in a row."""
        doubled = self._interval * 2.0 ** min(self._in_a_row, 10)
        return max(self._interval, min(doubled, MAX_PAUSE_SECONDS))

    def _step(self) -> None:
        try:
            published = self._published()
            if published is not None:
                self._push(lambda: self._target.push(published, self._wall()))
        finally:
            self._ending.wait(self.pause_seconds)

    def _last(self) -> None:
        """Leave nothing behind after a planned end, and the newest figures after a crash."""
        if self._pushed_at is None:
            return
        published = self._published()
        if self._is_planned:
            self._push(lambda: self._target.end(self._wall()))
        elif published is not None:
            self._push(lambda: self._target.push(published, self._wall()))

    def _push(self, call: Callable[[], None]) -> None:
        try:
            call()
        except HttpError as error:
            self._outcomes[error.answer.value] += 1
            self._note(str(error))
            self._in_a_row += 1
        except Exception as error:
            self._outcomes[FAILED] += 1
            self._problem = type(error).__name__
            self._in_a_row += 1
            raise
        else:
            self._outcomes[DeliveryOutcome.DELIVERED.value] += 1
            self._problem, self._in_a_row, self._pushed_at = "", 0, self._wall()

    def _note(self, problem: str) -> None:
        """Log a problem if it is new."""
        if problem != self._problem:
            self._problem = problem
            log.warning("querypulse: %s did not take the metrics: %s", self.name, problem)


class Publishers:
    """All publishers of one sidecar."""

    def __init__(self, publishers: Sequence[Publisher]) -> None:
        self._publishers = publishers

    @property
    def pushes(self) -> Mapping[str, Pushes]:
        """By target: what became of the pushes."""
        return {one.name: one.pushes for one in self._publishers}

    def start(self) -> None:
        """Start every thread."""
        for one in self._publishers:
            one.start()

    def stop(self, *, planned: bool) -> None:
        """Ask every thread to end."""
        for one in self._publishers:
            one.stop(planned=planned)

    def join(self, seconds_left: Callable[[], float]) -> None:
        """Wait for every thread, together as long as ``seconds_left`` allows."""
        for one in self._publishers:
            one.join(seconds_left())


# -- publishing -------------------------------------------------------------------------------
# The targets that metrics are pushed to, and their publishers.


class PushgatewayTarget:
    """A Pushgateway: a push replaces all figures of this app, and the end deletes them."""

    name = "pushgateway"

    def __init__(self, app: str, poster: HttpPoster) -> None:
        self._app = app
        self._poster = poster

    def push(self, published: PublishedState, wall: float) -> None:
        """Replace the group with the newest figures."""
        self._send("PUT", push.group_body(published), wall)

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
            lambda _: push.HEADERS,
            address=lambda url: push.group_url(url, self._app),
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
        headers = {"Content-Type": push.CONTENT_TYPE, **self._own_headers()}
        answer = self._poster.post(
            push.request_body(published, began=self._began, wall=wall),
            wall,
            lambda _: headers,
            address=push.metrics_url,
        )
        count = push.rejected(answer)
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
            return push.parse_headers(self._headers.reveal())
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
