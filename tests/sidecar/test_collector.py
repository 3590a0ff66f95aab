"""``sidecar.collector`` gives a job's own registry what ``/metrics`` has."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from support.published_states import full_published, om_text, published, text

from querypulse.exporter.published_state import Monitor
from querypulse.sidecar import Sidecar
from querypulse.sidecar.publishing import MetricsCollector


class Driver:
    """What a collector asks: the published state, and whether the sidecar is closed."""

    def __init__(self, shown=None):
        self.shown = shown
        self.is_closed = False
        self.collector = MetricsCollector(lambda: self.shown, lambda: self.is_closed)


def registered(collector):
    # As ``prometheus_client.REGISTRY``, which a test must leave as it is.
    registry = CollectorRegistry(auto_describe=True)
    registry.register(collector)
    return registry


def named(families):
    return {family.name for family in families}


@pytest.mark.parametrize(
    "shown", [full_published(), published(), None], ids=["full", "new", "none"]
)
@pytest.mark.parametrize(
    ("render", "ours"), [(generate_latest, text), (generate_openmetrics, om_text)]
)
def test_job_serves_the_text_of_metrics_byte_for_byte(shown, render, ours):
    assert render(registered(Driver(shown).collector)).decode() == ours(shown)


def test_figures_are_those_of_the_newest_evaluation():
    driver = Driver(full_published())
    registry = registered(driver.collector)
    name = "querypulse_outbox_pending"
    labels = {"app": driver.shown.app, "receiver": "webhook"}
    before = registry.get_sample_value(name, labels)
    driver.shown = full_published(monitor=Monitor(receivers=("webhook",)))
    after = registry.get_sample_value(name, labels)

    assert (before, after) == (1, 0)


def test_the_jobs_own_metrics_stay_beside_it():
    registry = registered(Driver(full_published()).collector)
    Counter("orders", "The job's own.", registry=registry).inc()
    served = generate_latest(registry).decode()

    assert "orders_total 1.0" in served
    assert "spark_streaming_query" in served


@pytest.mark.parametrize("auto_describe", [True, False])
def test_registry_refuses_a_second_collector_with_its_own_error(auto_describe):
    registry = CollectorRegistry(auto_describe=auto_describe)
    registry.register(Driver().collector)
    for again in (Driver().collector, Driver(full_published()).collector):
        with pytest.raises(ValueError, match="Duplicated timeseries in CollectorRegistry"):
            registry.register(again)


def test_collector_that_left_its_registry_may_come_back():
    driver = Driver(full_published())
    registry = registered(driver.collector)
    registry.unregister(driver.collector)
    assert list(registry.collect()) == []
    registry.register(driver.collector)

    assert named(registry.collect()) == named(driver.collector.describe())


def test_before_the_start_and_after_the_close_it_is_safe():
    sidecar = Sidecar(http_port=-1)
    registry = registered(sidecar.collector)
    assert named(registry.collect()) == {"querypulse_build"}
    sidecar.close()
    assert list(registry.collect()) == []


def test_what_is_off_has_no_metrics():
    """A dashboard of a test environment must not show a driver that nobody watches."""
    assert list(registered(Sidecar(enabled=False).collector).collect()) == []
