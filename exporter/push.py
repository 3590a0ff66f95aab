"""Pushes the newest published state where nobody can scrape: to a Pushgateway, or as OTLP."""

from __future__ import annotations

import socket
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from ..alerting.receivers.http import HttpPoster
from ..alerting.receivers.receiver import DeliveryError
from ..core.guard import Guard, Problem
from ..core.installed import VERSION
from ..core.secret import Secret, parse_headers
from ..core.states import FAILED, OUTCOMES, DeliveryOutcome
from ..core.threads import Loop
from .exposition import TEXT, Family, as_text, base_name, printable
from .metrics import all_families
from .published_state import PublishedState, Pushes

PUSH_SECONDS = 15.0
MAX_PAUSE_SECONDS = 60.0
"""The longest pause after errors: a rule about a driver that is down waits five minutes."""


class Pushgateway:
    """A Prometheus Pushgateway: a push replaces all figures of a driver, and the end deletes them.

    The group of a driver is ``{job="querypulse", app="<app>", instance="<host>:<port>"}``, with the
    labels of its settings. Two drivers of one app that run at the same time have two groups; one
    that follows at the same address replaces what a crashed one left behind. See "API" in
    https://github.com/prometheus/pushgateway.
    """

    name = "pushgateway"

    def __init__(self, poster: HttpPoster) -> None:
        self.poster = poster

    def push(self, published: PublishedState) -> None:
        """Replace the group with the newest figures.

        Raises:
            DeliveryError: they were not taken.

        """
        self._send("PUT", as_text(all_families(published)), published)

    def end(self, published: PublishedState) -> None:
        """Delete the group.

        Raises:
            DeliveryError: it may still be there.

        """
        self._send("DELETE", b"", published)

    def _send(self, method: str, body: bytes, published: PublishedState) -> None:
        group = {**published.labels, "app": published.app, "instance": published.instance}
        self.poster.post(
            body,
            {"Content-Type": TEXT},
            address=lambda url: group_url(url, group),
            method=method,
        )


def instance_of(url: str | None) -> str:
    """The host of this driver, with the port of its server at ``url``, if it has one.

    As ``instance`` of a scrape: the OpenTelemetry receiver for Prometheus makes it
    ``service.instance.id``, which must be unique among the instances of a service.
    """
    host = socket.gethostname() or "unknown"
    port = None if url is None else urlsplit(url).port
    return host if port is None else f"{host}:{port}"


def group_url(base: str, group: Mapping[str, str]) -> str:
    """The URL of a driver's group at the gateway ``base``; any text is a value."""
    parts = (
        f"/{name}@base64/{urlsafe_b64encode(value.encode('utf-8', 'replace')).decode('ascii')}"
        for name, value in sorted(group.items())
    )
    return f"{base.rstrip('/')}/metrics/job/querypulse{''.join(parts)}"


class Otlp:
    """An OpenTelemetry receiver. It has no way to delete: at the end the figures only stop.

    ``headers`` are a secret file's; see ``parse_headers``.
    """

    name = "otlp"

    def __init__(self, poster: HttpPoster, headers: Secret | None) -> None:
        self.poster = poster
        self._headers = headers
        self._began = time.time()

    def push(self, published: PublishedState) -> None:
        """Push all figures.

        Raises:
            DeliveryError: some were not taken, or a package is missing.

        """
        if not is_installed():
            raise DeliveryError(NOT_INSTALLED, DeliveryOutcome.MISCONFIGURED)
        headers = {"Content-Type": "application/x-protobuf", **self._own_headers()}
        body = request_body(published, began=self._began, wall=time.time())
        answer = self.poster.post(body, headers, address=_metrics_url)
        if count := rejected(answer):
            text = f"{self.poster.place} refused {count} figures"
            raise DeliveryError(text, DeliveryOutcome.REJECTED)

    def end(self, published: PublishedState) -> None:
        """Nothing to do: what an OpenTelemetry receiver keeps is its own affair."""

    def _own_headers(self) -> dict[str, str]:
        if self._headers is None:
            return {}
        try:
            return parse_headers(self._headers.reveal())
        except ValueError as error:
            raise DeliveryError(
                f"otlp_headers_file: {error}", DeliveryOutcome.MISCONFIGURED
            ) from None


PushTarget = Pushgateway | Otlp


class Publisher:
    """Pushes to one target every ``PUSH_SECONDS``; a failed push is followed by the next one.

    Nothing is queued: each push has what ``published`` returns then, unless that is None.
    """

    def __init__(
        self,
        target: PushTarget,
        published: Callable[[], PublishedState | None],
        guard: Guard,
    ) -> None:
        self.name = target.name
        self._target = target
        self._published = published
        self._guard = guard
        self._outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self._problem = Problem("querypulse: %s did not take the metrics: %s", target.name)
        self._failures_in_a_row = 0
        self._pushed_at: float | None = None
        self._is_planned = False
        self._loop = Loop(f"push-{target.name}", self._step, guard, last=self._end)

    @property
    def pushes(self) -> Pushes:
        """What became of the pushes so far."""
        return Pushes(self._outcomes.copy(), self._problem.text or None, self._pushed_at)

    def start(self) -> None:
        """Start the thread."""
        self._loop.start()

    def stop(self, *, planned: bool) -> None:
        """Ask the thread to end; after a ``planned`` end nothing stays at the target."""
        self._is_planned = planned
        self._loop.stop()

    def join(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for the end, then cut the connection."""
        if not self._loop.is_forked:
            self._loop.join(timeout)
            self._guard.attempt(f"close-push-{self.name}", self._target.poster.close)

    def _step(self) -> None:
        self._send(self._target.push)
        doubled = PUSH_SECONDS * 2.0 ** min(self._failures_in_a_row, 10)
        self._loop.stopping.wait(min(doubled, MAX_PAUSE_SECONDS))

    def _end(self) -> None:
        """Leave nothing behind after a planned end, and the newest figures after a crash."""
        if self._pushed_at is not None:
            self._send(self._target.end if self._is_planned else self._target.push)

    def _send(self, send: Callable[[PublishedState], None]) -> None:
        published = self._published()
        if published is None:
            return
        outcome = DeliveryOutcome.DELIVERED.value
        problem = ""
        try:
            send(published)
            self._pushed_at = time.time()
        except DeliveryError as error:
            outcome = error.answer.value
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - such as a package that another one has broken
            outcome = FAILED
            problem = type(error).__name__
            self._guard.report(f"push-{self.name}", error)
        self._outcomes[outcome] += 1
        self._problem.note(problem)
        self._failures_in_a_row = self._failures_in_a_row + 1 if problem else 0


# -- otlp -------------------------------------------------------------------------------------
# Our families as OTLP metrics, in protobuf, whose classes the extra ``otlp`` brings. Names are
# those of OpenMetrics: a conversion of a monotonic sum for Prometheus adds ``_total`` again. See
# https://opentelemetry.io/docs/specs/otlp/#otlphttp.


NOT_INSTALLED = "setting 'otlp_endpoint' needs the extra otlp: pip install 'querypulse[otlp]'"
Fields = dict[str, Any]
"""Fields of a protobuf message; its constructor takes dictionaries for the messages in it."""
_CUMULATIVE: Fields = {"aggregation_temporality": "AGGREGATION_TEMPORALITY_CUMULATIVE"}


def is_installed() -> bool:
    """Whether the package of the extra ``otlp`` is there."""
    return all(map(find_spec, ("opentelemetry", "opentelemetry.proto")))


def _metrics_url(endpoint: str) -> str:
    """As ``OTEL_EXPORTER_OTLP_ENDPOINT`` is read."""
    return f"{endpoint.rstrip('/')}/v1/metrics"


def request_body(published: PublishedState, *, began: float, wall: float) -> bytes:
    """All metrics at Unix time ``wall`` as an ``ExportMetricsServiceRequest``.

    ``began`` is when the counters began, in Unix seconds.
    """
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    names = {
        **published.labels,
        "service.name": published.app,
        "service.instance.id": published.instance,
    }
    resource: Fields = {"resource": {"attributes": _attributes(names.items())}}
    scope: Fields = {"scope": {"name": "querypulse", "version": VERSION}}
    times = {"start_time_unix_nano": int(began * 1e9), "time_unix_nano": int(wall * 1e9)}
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add(**resource).scope_metrics.add(**scope).metrics
    for family in all_families(published):
        if family.samples:
            metrics.add(**_metric(family, times))
    body: bytes = request.SerializeToString()
    return body


def rejected(answer: bytes) -> int:
    """How many data points the receiver has not taken, from its answer."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceResponse,
    )

    try:
        response = ExportMetricsServiceResponse.FromString(answer)
    except DecodeError:
        return 0
    return int(response.partial_success.rejected_data_points)


def _metric(family: Family, times: Fields) -> Fields:
    about: Fields = {"name": family.name, "description": family.documentation}
    if family.kind == "histogram":
        buckets = [
            {
                "attributes": _attributes(zip(family.labels, labels, strict=False)),
                "count": sum(buckets.counts),
                "sum": buckets.sum,
                "bucket_counts": buckets.counts,
                "explicit_bounds": buckets.bounds,
                **times,
            }
            for labels, buckets in family.histograms
        ]
        return {**about, "histogram": {"data_points": buckets, **_CUMULATIVE}}
    if family.kind != "counter":
        # A gauge has no beginning.
        times = {"time_unix_nano": times["time_unix_nano"]}
    points = [
        {"attributes": _attributes(zip(names, values, strict=True)), "as_double": figure, **times}
        for _, names, values, figure in family.samples
    ]
    if family.kind == "counter":
        about["name"] = base_name(family)
        return {**about, "sum": {"data_points": points, "is_monotonic": True, **_CUMULATIVE}}
    return {**about, "gauge": {"data_points": points}}


def _attributes(labels: Iterable[tuple[str, str]]) -> list[Fields]:
    return [{"key": name, "value": {"string_value": printable(text)}} for name, text in labels]
