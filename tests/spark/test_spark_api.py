"""The Python API on real Spark: off, added and removed as a listener, and in the job's registry."""

from __future__ import annotations

import re
import threading

import pytest
import requests
from prometheus_client import CollectorRegistry, generate_latest
from support.queries import SPARK_PATIENCE_SECONDS, Trap, commits, rate, start, until

from querypulse.listener.spark import jvm as jvm_module
from querypulse.sidecar import QueryFailure, Sidecar, attach

pytestmark = [pytest.mark.spark, pytest.mark.every_spark]


def bus_listeners(spark):
    bus = spark._jsc.sc().listenerBus().listeners()
    return [listener for listener in bus if listener.getClass().getName() == "QuerypulseListener"]


def our_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("querypulse")]


@pytest.fixture
def files(spark, tmp_path):
    """A stream of one file."""
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.json").write_text('{"a": 1}\n')
    return spark.readStream.schema("a long").json(str(tmp_path / "rows"))


def run_once(stream, name, sink):
    writer = stream.writeStream.queryName(name).foreachBatch(sink)
    return writer.trigger(availableNow=True).start()


@pytest.fixture
def off(spark):
    """A sidecar that is off, in a session that remembers no failure of another test."""
    spark.streams.resetTerminated()
    yield attach(spark, enabled=False)
    for query in spark.streams.active:
        query.stop()
    spark.streams.resetTerminated()


def test_off_adds_nothing_to_spark_and_waits_for_each_query(spark, off, files):
    """Also for the one that goes on after the first has completed."""
    second = threading.Event()
    run_once(files, "first", lambda batch, _: None).awaitTermination(SPARK_PATIENCE_SECONDS)
    slow = run_once(files, "second", lambda batch, _: second.wait(SPARK_PATIENCE_SECONDS))

    assert (bus_listeners(spark), our_threads()) == ([], [])
    assert off.await_any_failure(timeout=0.5) == "timeout"
    second.set()
    assert off.await_any_failure(SPARK_PATIENCE_SECONDS) == "completed"
    assert not slow.isActive


def test_off_raises_when_one_query_of_several_fails(spark, off):
    trap = Trap()
    start(rate(spark), "healthy")
    start(rate(spark), "fails", trap)
    trap.die.set()

    with pytest.raises(QueryFailure, match="Boom"):
        off.await_any_failure(SPARK_PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "path", ["bus_queue", pytest.param("python_proxy", marks=pytest.mark.thorough)]
)
def test_removed_listener_closes_the_sidecar_that_adding_it_started(spark, path, monkeypatch):
    if path == "python_proxy":
        monkeypatch.setattr(jvm_module, "COMPILER", "no.such.Compiler")
    before = len(spark.streams._jsqm.listListeners())
    sidecar = Sidecar(http_port=-1)
    spark.streams.addListener(sidecar.listener)
    try:
        query = start(rate(spark), "watched")
        commits(sidecar, "watched")
        assert sidecar.snapshot().monitor.listener_path == path
        assert len(spark.streams._jsqm.listListeners()) == before + 1
        query.stop()
    finally:
        spark.streams.removeListener(sidecar.listener)

    assert sidecar.closed
    assert our_threads() == []
    assert len(spark.streams._jsqm.listListeners()) == before
    assert bus_listeners(spark) == []
    assert sidecar.await_any_failure() == "closed"


def test_registry_of_the_job_serves_what_metrics_has(spark, watch):
    sidecar = watch()
    registry = CollectorRegistry(auto_describe=True)
    registry.register(sidecar.collector)
    start(rate(spark), "served")
    commits(sidecar, "served")

    labels = {"query": "served", "app": sidecar.snapshot().app}
    commits_total = "spark_streaming_query_commits_total"
    until(lambda: registry.get_sample_value(commits_total, labels), "the commit is there")
    name = re.compile(r"^(\w+)", re.MULTILINE)
    served = requests.get(f"{sidecar.url}/metrics", timeout=SPARK_PATIENCE_SECONDS).text
    assert set(name.findall(generate_latest(registry).decode())) == set(name.findall(served))
