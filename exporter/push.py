"""What is pushed where nobody can scrape: payloads, without sockets."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..core.installed import VERSION
from .exposition import TEXT, Family, Labels, as_text, base_name, printable
from .metrics import all_families
from .published_state import PublishedState

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, Metric


# -- otlp -------------------------------------------------------------------------------------
# What an OpenTelemetry receiver gets: our families as OTLP metrics, in protobuf.
#
# The records and the encoder are the OpenTelemetry SDK's (the extra ``otlp``); its exporter, which
# retries and logs in the job, is not used. Names are those of OpenMetrics: a conversion of a
# monotonic sum for Prometheus adds ``_total`` again. See
# https://opentelemetry.io/docs/specs/otlp/#otlphttp.


PATH = "/v1/metrics"
CONTENT_TYPE = "application/x-protobuf"
MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.common")
PACKAGES = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-common")
"""What to install for them: those of the extra ``otlp``."""


def is_installed() -> bool:
    """Whether the packages of the extra ``otlp`` are there."""
    try:
        return all(find_spec(name) is not None for name in MODULES)
    except ModuleNotFoundError:
        return False


def metrics_url(endpoint: str) -> str:
    """The URL for metrics of an OTLP endpoint, as ``OTEL_EXPORTER_OTLP_ENDPOINT`` is read."""
    return f"{endpoint.rstrip('/')}{PATH}"


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
    resource = Resource({"service.name": printable(published.app)})
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


# -- pushgateway ------------------------------------------------------------------------------
# What a Prometheus Pushgateway gets.
#
# The group of a driver is ``{job="querypulse", instance="<app>"}``, and has no part that changes
# from one process to the next: the figures of a new driver replace those that a crashed one left
# behind. See https://github.com/prometheus/pushgateway, "API".


JOB = "querypulse"
HEADERS = {"Content-Type": TEXT}


def group_url(base: str, app: str) -> str:
    """The URL of a driver's group at the gateway ``base``; any app name has one."""
    encoded = urlsafe_b64encode(app.encode("utf-8", "replace")).decode("ascii")
    return f"{base.rstrip('/')}/metrics/job/{JOB}/instance@base64/{encoded}"


def group_body(published: PublishedState) -> bytes:
    """All metrics of a driver, as the gateway reads them."""
    return as_text(all_families(published))
