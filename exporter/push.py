"""Pushes the newest published state where nobody can scrape: to a Pushgateway, or as OTLP."""

from __future__ import annotations

import threading
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..alerting.receivers.http import HttpPoster
from ..alerting.receivers.receiver import DeliveryError
from ..core.guard import Guard, Problem
from ..core.installed import VERSION
from ..core.secret import Secret
from ..core.states import FAILED, OUTCOMES, DeliveryOutcome
from ..core.threads import Loop
from .exposition import TEXT, Family, as_text, base_name, printable
from .metrics import all_families
from .published_state import Labels, PublishedState, Pushes

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, Metric

PUSH_SECONDS = 15.0
MAX_PAUSE_SECONDS = 60.0
"""The longest pause after errors: a rule about a driver that is down waits five minutes."""


class Pushgateway:
    """A Prometheus Pushgateway: a push replaces all figures of this app, and the end deletes them.

    The group of a driver is ``{job="querypulse", instance="<app>"}``, with the labels of its
    settings, and has no part that changes from one process to the next: the figures of a new driver
    replace those that a crashed one left behind. See "API" in
    https://github.com/prometheus/pushgateway.
    """

    name = "pushgateway"

    def __init__(self, poster: HttpPoster) -> None:
        self.poster = poster

    def push(self, published: PublishedState, _wall: float) -> None:
        """Replace the group with the newest figures.

        Raises:
            DeliveryError: they were not taken.

        """
        self._send("PUT", as_text(all_families(published)), published)

    def end(self, published: PublishedState, _wall: float) -> None:
        """Delete the group.

        Raises:
            DeliveryError: it may still be there.

        """
        self._send("DELETE", b"", published)

    def _send(self, method: str, body: bytes, published: PublishedState) -> None:
        group = {**published.labels, "instance": published.app}
        self.poster.post(
            body,
            {"Content-Type": TEXT},
            address=lambda url: group_url(url, group),
            method=method,
        )


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

    def push(self, published: PublishedState, wall: float) -> None:
        """Push all figures, at Unix time ``wall``.

        Raises:
            DeliveryError: some were not taken.

        """
        headers = {"Content-Type": "application/x-protobuf", **self._own_headers()}
        body = request_body(published, began=self._began, wall=wall)
        answer = self.poster.post(body, headers, address=_metrics_url)
        if count := rejected(answer):
            text = f"{self.poster.place} refused {count} figures"
            raise DeliveryError(text, DeliveryOutcome.REJECTED)

    def end(self, published: PublishedState, wall: float) -> None:
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
        self._in_a_row = 0
        self._last: tuple[PublishedState, float] | None = None
        """What was pushed last, and when (Unix seconds)."""
        self._is_planned = False
        self._ending = threading.Event()
        self._loop = Loop(f"push-{target.name}", self._step, guard, last=self._end)

    @property
    def pushes(self) -> Pushes:
        """What became of the pushes so far."""
        pushed_at = None if self._last is None else self._last[1]
        return Pushes(self._outcomes.copy(), self._problem.text, pushed_at)

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
            self._guard.attempt(f"close-push-{self.name}", self._target.poster.close)

    def _step(self) -> None:
        try:
            published = self._published()
            if published is not None:
                self._send(self._target.push, published)
        finally:
            doubled = PUSH_SECONDS * 2.0 ** min(self._in_a_row, 10)
            self._ending.wait(min(doubled, MAX_PAUSE_SECONDS))

    def _end(self) -> None:
        """Leave nothing behind after a planned end, and the newest figures after a crash."""
        if self._last is None:
            return
        published = self._published()
        if self._is_planned:
            self._send(self._target.end, self._last[0])
        elif published is not None:
            self._send(self._target.push, published)

    def _send(
        self, send: Callable[[PublishedState, float], None], published: PublishedState
    ) -> None:
        try:
            send(published, time.time())
        except DeliveryError as error:
            self._outcomes[error.answer.value] += 1
            self._in_a_row += 1
            self._problem.note(str(error))
        except Exception as error:
            self._outcomes[FAILED] += 1
            self._in_a_row += 1
            self._problem.text = type(error).__name__
            raise
        else:
            self._outcomes[DeliveryOutcome.DELIVERED.value] += 1
            self._problem.note("")
            self._in_a_row, self._last = 0, (published, time.time())


# -- otlp -------------------------------------------------------------------------------------
# Our families as OTLP metrics, in protobuf.
#
# The records and the encoder are the OpenTelemetry SDK's (the extra ``otlp``); its exporter, which
# retries and logs in the job, is not used. Names are those of OpenMetrics: a conversion of a
# monotonic sum for Prometheus adds ``_total`` again. See
# https://opentelemetry.io/docs/specs/otlp/#otlphttp.


MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.common")
PACKAGES = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-common")
"""What to install for them: those of the extra ``otlp``."""


def is_installed() -> bool:
    """Whether the packages of the extra ``otlp`` are there."""
    try:
        return all(find_spec(name) is not None for name in MODULES)
    except ModuleNotFoundError:
        return False


def _metrics_url(endpoint: str) -> str:
    """As ``OTEL_EXPORTER_OTLP_ENDPOINT`` is read."""
    return f"{endpoint.rstrip('/')}/v1/metrics"


def parse_headers(text: str) -> dict[str, str]:
    """Headers as ``OTEL_EXPORTER_OTLP_HEADERS`` has them: ``api-key=abc,other=d%20e``.

    Raises:
        ValueError: it is something else; the message does not quote it.

    """
    pairs = [part.partition("=") for part in text.replace("\n", ",").split(",") if part.strip()]
    headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
    if not headers or not all(map(_is_header, headers.items())):
        raise ValueError("write headers as name=value, separated by commas")
    return headers


def request_body(published: PublishedState, *, began: float, wall: float) -> bytes:
    """All metrics at Unix time ``wall`` as an ``ExportMetricsServiceRequest``.

    ``began`` is when the counters began, in Unix seconds.
    """
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    times: dict[str, Any] = {
        "start_time_unix_nano": int(began * 1e9),
        "time_unix_nano": int(wall * 1e9),
    }
    metrics = [_metric(family, times) for family in all_families(published) if family.samples]
    scope = ScopeMetrics(InstrumentationScope("querypulse", VERSION), metrics, schema_url="")
    resource = Resource(
        {name: printable(value) for name, value in published.labels.items()}
        | {"service.name": printable(published.app)}
    )
    data = MetricsData([ResourceMetrics(resource, [scope], schema_url="")])
    encoded: bytes = encode_metrics(data).SerializeToString()
    return encoded


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


def _is_header(header: tuple[str, str]) -> bool:
    name, value = header
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return plain and value.isascii() and value.isprintable() and bool(value)


def _metric(family: Family, times: Mapping[str, Any]) -> Metric:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        Metric,
        NumberDataPoint,
        Sum,
    )

    cumulative = AggregationTemporality.CUMULATIVE
    data: Any
    if family.kind == "histogram":
        data = Histogram(list(_histogram_points(family, times)), cumulative)
        return Metric(family.name, family.documentation, "", data)
    points = [
        NumberDataPoint(attributes=_attributes(names, values), value=float(figure), **times)
        for _, names, values, figure in family.samples
    ]
    if family.kind == "counter":
        return Metric(base_name(family), family.documentation, "", Sum(points, cumulative, True))
    return Metric(family.name, family.documentation, "", Gauge(points))


def _histogram_points(family: Family, times: Mapping[str, Any]) -> Iterator[HistogramDataPoint]:
    """One point of each histogram, whose counts are not cumulative over its buckets."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    bounds: list[float] = []
    counts: list[int] = []
    seen = 0
    for name, names, values, figure in family.samples:
        if name.endswith("_bucket"):
            bounds.append(float(values[-1]))
            counts.append(int(figure) - sum(counts))
        elif name.endswith("_count"):
            seen = int(figure)
        else:
            yield HistogramDataPoint(
                attributes=_attributes(names, values),
                count=seen,
                sum=float(figure),
                bucket_counts=counts,
                explicit_bounds=bounds[:-1],
                min=None,  # type: ignore[arg-type] # unknown: the encoder leaves them out
                max=None,  # type: ignore[arg-type]
                **times,
            )
            bounds, counts = [], []


def _attributes(names: Labels, values: Labels) -> dict[str, str]:
    return dict(zip(names, map(printable, values), strict=True))
