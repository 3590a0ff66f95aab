"""Fixtures of all tests: no hidden errors, and one real Spark for the tests that need it."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from datetime import datetime, timezone
from functools import cache, partial
from importlib.metadata import version

import pytest
from hypothesis import HealthCheck, settings
from support import connect_server, connectors, faults, grafana
from support.compose import engine_trouble
from support.java_options import driver_options
from support.minutes import summary
from support.scheduling import OBSERVED, ByFileAndObserved

from querypulse.core.guard import Guard

BEGAN = time.monotonic()
DUMP_SECONDS = 280
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so; tests send SIGINT to themselves and to their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)

REQUIRE_ALL = os.environ.get("REQUIRE_ALL_TESTS") == "1"
REQUIRE_DOCKER = os.environ.get("REQUIRE_DOCKER") == "1"
OPT_IN = {"docker", "grafana", "soak", "collector"}
"""Markers of what no system package provides, or takes too long: these tests run where they can."""

STAGES = (frozenset({"spark", "docker"}), frozenset({"kafka", "delta"}), frozenset({"iceberg"}))
"""The stages of ``make test`` that collect only files that name one of these markers."""

OVERLOOKED = pytest.StashKey()

SUMMARY = "summary"
"""A property of a test whose value is printed at the end of the run."""

# A busy CI machine is slow, not wrong; under CI, each run uses the same examples.
settings.register_profile(
    "querypulse",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=REQUIRE_ALL,
)
settings.load_profile("querypulse")

os.environ.setdefault("SPARK_SUBMIT_OPTS", driver_options())

# With pandas, PySpark runs Python functions in workers, which must be of the same Python.
os.environ["PYSPARK_PYTHON"] = sys.executable

CORES = 12
"""More than most tests need: a task under ``continuous`` or ``realTime`` holds one for good."""

SPARK_CONF = {
    "spark.default.parallelism": "4",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.noDataProgressEventInterval": "1s",
    # Without it, stopping a query that cannot be stopped blocks for ever.
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(autouse=True)
def no_contained_error(request, monkeypatch):
    """An error that the product's guard contains fails the test that caused it."""
    contained = []
    report = Guard.report

    def remember(self, where, error):
        contained.append((where, error))
        report(self, where, error)

    monkeypatch.setattr(Guard, "report", remember)
    yield contained
    if contained and "contains_errors" not in request.keywords:
        where, error = contained[0]
        raise AssertionError(f"contained {len(contained)} error(s), first in {where}") from error


@pytest.fixture(autouse=True)
def thread_dump(request):
    """Shortly before a test on Spark times out, its JVM dumps its threads."""
    timer = threading.Timer(DUMP_SECONDS, dump_threads)
    timer.daemon = True
    if "spark" in request.keywords:
        timer.start()
    yield
    timer.cancel()


def dump_threads():
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        os.kill(SparkContext._gateway.proc.pid, signal.SIGQUIT)


@pytest.fixture
def clean_environment(monkeypatch):
    """Remove the querypulse settings of the environment."""
    for key in os.environ:
        if key.startswith("QUERYPULSE_"):
            monkeypatch.delenv(key)


@pytest.fixture
def config(tmp_path):
    """Write the TOML settings file; return the environment that names it."""

    def write(content):
        path = tmp_path / "pulse.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return {"QUERYPULSE_CONFIG": str(path)}

    return write


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One Spark for all tests that need one, with the connectors that exist for its version."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{CORES}]").appName("tests")
    of_connectors = connectors.spark_conf(tmp_path_factory.mktemp("warehouse"))
    for key, value in (SPARK_CONF | of_connectors).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(
    scope="session", params=["process", pytest.param("container", marks=pytest.mark.docker)]
)
def kafka(request, tmp_path_factory):
    """One broker for all tests that need one; each test has topics of its own."""
    # The default is to compact every 15 s.
    settings = {"log.cleaner.backoff.ms": "200"}
    contained = request.param == "container"
    broker = connectors.Kafka(tmp_path_factory.mktemp("kafka"), settings, contained=contained)
    yield broker
    broker.close()


@pytest.fixture(scope="session")
def observed(tmp_path_factory):
    """A real Prometheus and Alertmanager that have observed the failing queries of a real driver.

    Its tests run last: its processes keep the machine busy.
    """
    from support.observed import observed

    with observed(tmp_path_factory.mktemp("observed")) as stage:
        yield stage


@pytest.fixture
def pages():
    """A webhook receiver that keeps the alerts that it receives."""
    from support.pages import PageRecorder

    with PageRecorder() as receiver:
        yield receiver


@pytest.fixture
def watch(spark, pages):
    """Attach to the tests' Spark; afterwards close every sidecar and stop every query."""
    from querypulse.sidecar import attach

    sidecars = []

    def attached(**settings):
        settings = {
            "http_port": 0,
            "webhook_url": pages.url,
            "resolve_after_seconds": 1,
            **settings,
        }
        sidecars.append(attach(spark, **settings))
        return sidecars[-1]

    yield attached
    for sidecar in sidecars:
        sidecar.close()
    executions = spark._jsparkSession.sharedState().activeStreamingQueries()
    for query_id in list(executions.keySet()):
        execution = executions.get(query_id)
        if execution is not None:
            execution.stop()


@pytest.fixture(scope="session")
def browser():
    """One headless Chromium for all tests that need one."""
    from support.browser import chromium

    with chromium() as started:
        yield started


@pytest.fixture
def windows(browser):
    """Opens browser windows; a complaint in their consoles fails the test."""
    from support.browser import Windows

    opened = Windows(browser)
    yield opened
    opened.close()
    assert opened.complaints == []


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "contains_errors: the test is about an error that is contained"
    )
    config.addinivalue_line("markers", "fault(subject, done, held): a row of docs/faults.md")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FaultRecorder())


class FaultRecorder:
    """Keeps what held in this run, for docs/faults.md."""

    def __init__(self):
        date = datetime.now(timezone.utc).date().isoformat()
        python = ".".join(platform.python_version_tuple()[:2])
        self._results = faults.Results(faults.SuiteRun(date, version("pyspark"), python))

    def pytest_runtest_logreport(self, report):
        self._results.add(report)

    def pytest_sessionfinish(self):
        self._results.write()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Skip tests whose needs are missing, and say how to get them; under CI, refuse to run."""
    wanted = {marker for item in items for marker in needed(item)}
    missing = {
        marker: reason
        for marker, (here, reason) in needs().items()
        if marker in wanted and not here
    }
    if REQUIRE_DOCKER and missing.keys() & {"docker", "grafana"}:
        raise pytest.UsageError(f"REQUIRE_DOCKER=1, but what needs it cannot run: {missing}")
    if REQUIRE_ALL:
        deselect(config, items, missing.keys() & OPT_IN)
        if missing.keys() - OPT_IN:
            raise pytest.UsageError(f"every test must run here, but some cannot: {missing}")
    for item in items:
        for marker in needed(item) & missing.keys():
            item.add_marker(pytest.mark.skip(reason=missing[marker]))
    of_observed = [item for item in items if "observed" in item.fixturenames]
    assert {item.location[0] for item in of_observed} <= set(OBSERVED)
    items.sort(key=lambda item: item in of_observed)


@pytest.hookimpl(specname="pytest_collection_modifyitems", tryfirst=True)
def pytest_note_cases(config, items):
    """Note the number of cases of a test about a fault, before any is deselected."""
    cases = Counter(item.nodeid.partition("[")[0] for item in items)
    for item in items:
        test = item.nodeid.partition("[")[0]
        is_whole = item.nodeid == test or not chooses_cases(config)
        if item.get_closest_marker("fault") and is_whole:
            item.user_properties.append((faults.CASES, cases[test]))


@pytest.hookimpl(specname="pytest_collection_modifyitems", tryfirst=True)
def pytest_find_overlooked(config, items):
    """Note the tests whose files ``make test`` does not find for their stage."""
    config.stash[OVERLOOKED] = [
        item.nodeid
        for item in items
        for markers in [needed(item)]
        for stage in STAGES
        if markers & stage and not names_one_of(item.path, stage)
    ]


@cache
def names_one_of(path, markers):
    """Whether a file names one of these markers, as the grep of ``make test`` sees it."""
    text = path.read_text("utf-8")
    return any(f"mark.{marker}" in text for marker in markers)


@pytest.fixture
def overlooked(pytestconfig):
    """The collected tests that no stage of ``make test`` runs."""
    return pytestconfig.stash[OVERLOOKED]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With ``--dist loadfile``, the files about the observed driver share one process as well."""
    return ByFileAndObserved(config, log) if config.getvalue("dist") == "loadfile" else None


def chooses_cases(config):
    """Whether pytest collects only some cases of a test."""
    return config.getoption("lf") or any("[" in argument for argument in config.args)


@pytest.fixture
def measured(record_property):
    """Add a figure to the test's row of docs/faults.md."""
    return partial(record_property, faults.MEASURED)


@pytest.fixture
def summarised(record_property):
    """Add a line to the summary of the run, also of a test that passes in another process."""
    return partial(record_property, SUMMARY)


def deselect(config, items, markers):
    out = [item for item in items if needed(item) & markers]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if not needed(item) & markers]


def needed(item):
    """The markers of a test. Its keywords would also hold the names of its parameters."""
    return {marker.name for marker in item.iter_markers()}


def pytest_terminal_summary(terminalreporter):
    for marker, (here, reason) in needs().items():
        if REQUIRE_ALL and marker in OPT_IN and not here:
            terminalreporter.write_line(f"deselected: tests of {marker}: {reason}")
    reports = [one for group in terminalreporter.stats.values() for one in group]
    took = [(one.nodeid, one.duration) for one in reports if isinstance(one, pytest.TestReport)]
    if line := summary(took, (time.monotonic() - BEGAN) / 60):
        terminalreporter.write_line(line)
    for report in terminalreporter.stats.get("passed", []):
        for name, line in report.user_properties:
            if name == SUMMARY:
                terminalreporter.write_line(line)


@cache
def needs():
    """By marker: whether the needs of its tests are met, and what they are."""
    java = has("java") or "JAVA_HOME" in os.environ
    return {
        "spark": (java, "needs Java, 17 or newer for Spark 4 (Debian: openjdk-17-jre-headless)"),
        "prometheus": (
            has("prometheus", "promtool"),
            "needs Prometheus and promtool (Debian: prometheus)",
        ),
        "pushgateway": (
            has("prometheus-pushgateway"),
            "needs the Pushgateway (Debian: prometheus-pushgateway)",
        ),
        "alertmanager": (
            has("prometheus-alertmanager"),
            "needs Alertmanager (Debian: prometheus-alertmanager)",
        ),
        "browser": (has("chromium"), "needs Chromium (Debian: chromium)"),
        **{name: (not trouble, trouble) for name, trouble in _from_maven().items()},
        "docker": (
            not engine_trouble(),
            f"needs a Docker engine with Compose: {engine_trouble()}",
        ),
        "soak": ("SOAK_MINUTES" in os.environ, "takes SOAK_MINUTES: make soak"),
        "collector": ("OTELCOL" in os.environ, "needs OTELCOL, an OpenTelemetry Collector"),
        "grafana": (
            grafana.is_here(),
            "needs a Docker engine, or GRAFANA_HOME (a folder with Grafana's bin, conf, public)",
        ),
    }


def _from_maven():
    """By marker: why it is not available; without Java, nothing is downloaded."""
    if not (has("java") or "JAVA_HOME" in os.environ):
        return dict.fromkeys(("connect", *connectors.KNOWN), "needs Java")
    known = {name: connectors.trouble(name) for name in connectors.KNOWN}
    return {"connect": connect_server.trouble(), **known}


def has(*commands):
    return all(shutil.which(command) for command in commands)
