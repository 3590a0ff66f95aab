"""The exposition of a published state, read back by Prometheus' own parsers."""

from __future__ import annotations

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from querypulse.exporter.exposition import as_openmetrics, as_text, base_name, printable
from querypulse.exporter.metrics import all_families


class Collector:
    """All families as ``prometheus_client`` has them."""

    def __init__(self, shown):
        self._shown = shown

    def collect(self):
        for family in all_families(self._shown):
            metric = Metric(base_name(family), family.documentation, family.kind)
            for name, names, values, figure in family.samples:
                labels = dict(zip(names, map(printable, values), strict=True))
                metric.add_sample(name, labels, figure)
            yield metric


def text(shown) -> str:
    return as_text(all_families(shown)).decode()


def om_text(shown) -> str:
    return as_openmetrics(all_families(shown)).decode()


def samples(shown, parse=parse_text, render=text):
    return [sample for family in parse(render(shown)) for sample in family.samples]


FORMATS = [(parse_text, text), (parse_openmetrics, om_text)]


def values(shown, name, **labels):
    """Values of one metric, by the labels that are not in ``labels``."""
    result = {}
    for sample in samples(shown):
        if sample.name == name and labels.items() <= sample.labels.items():
            rest = tuple(v for k, v in sorted(sample.labels.items()) if k not in labels)
            assert rest not in result
            result[rest] = sample.value
    return result


def of_query(shown, query, name):
    return values(shown, f"spark_streaming_query_{name}", app="shop", query=query)
