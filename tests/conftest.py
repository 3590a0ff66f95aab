"""Fixtures of all tests: no hidden errors, and one real Spark for the tests that need it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from functools import partial

import pytest
from hypothesis import HealthCheck, settings
from support import needs
from support.class_archive import driver_options

from querypulse.core.guard import Guard

DUMP_SECONDS = 580
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so; tests send SIGINT to themselves and to their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SPARK_FOLDERS = ("commands", "connectors", "examples", "faults", "spark")
"""Where tests with Spark are: a run of these does not import the others."""

# A busy machine is slow, not wrong, and chance decides no run: `make nightly` looks for new examples.
settings.register_profile(
    "querypulse",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("NEW_EXAMPLES") != "1",
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
    if "spark" not in request.keywords:
        yield
        return
    timer = threading.Timer(DUMP_SECONDS, dump_threads)
    timer.daemon = True
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
def spark(request, tmp_path_factory):
    """One Spark for all tests that need one, with the connectors that these name."""
    from pyspark.sql import SparkSession
    from support import connectors

    builder = SparkSession.builder.master(f"local[{CORES}]").appName("tests")
    users = [item for item in request.session.items if "spark" in item.fixturenames]
    wanted = {marker for item in users for marker in needed(item)}
    of_connectors = connectors.spark_conf(tmp_path_factory.mktemp("warehouse"), wanted)
    for key, value in (SPARK_CONF | of_connectors).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """One broker for all tests that need one; each test has topics of its own."""
    from support import connectors

    # The default is to compact every 15 s.
    settings = {"log.cleaner.backoff.ms": "200"}
    broker = connectors.Kafka(tmp_path_factory.mktemp("kafka"), settings)
    yield broker
    broker.close()


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


@pytest.fixture
def harness(spark, watch, tmp_path):
    """Starts workloads; depends on ``watch``, so that the sidecar closes before its queries stop."""
    from support.spark_harness import SparkHarness

    harness = SparkHarness(spark, tmp_path)
    yield harness
    harness.close()


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


@pytest.fixture
def measured(record_property):
    """Add a figure to the test's row of docs/internals/faults.md."""
    return partial(record_property, "measured")


# -- what runs, and where ---------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def pytest_mark_thorough(items):
    """Leave to ``make test-all`` what needs more than Python and Java."""
    for item in items:
        if needed(item) & needs.IN_TEST_ALL:
            item.add_marker(pytest.mark.thorough)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out tests whose needs are missing, and say how to get them; under CI, this fails."""
    on_spark = [item for item in items if "spark" in needed(item)]
    misplaced = {str(item.path) for item in on_spark if item.path.parent.name not in SPARK_FOLDERS}
    if misplaced:
        raise pytest.UsageError(f"tests with Spark belong into one of {SPARK_FOLDERS}: {misplaced}")
    missing = needs.missing({marker for item in items for marker in needed(item)})
    config.stash[LEFT_OUT] = Counter()
    for marker, reason in missing.items():
        lacking = [item for item in items if marker in needed(item)]
        must = f": {MUST_RUN}" if is_required(marker) else ""
        config.stash[LEFT_OUT][reason + must] += len(lacking)
        config.hook.pytest_deselected(items=lacking)
        items[:] = [item for item in items if marker not in needed(item)]
    # The processes of this fixture keep the machine busy.
    items.sort(key=lambda item: "observed" in item.fixturenames)


LEFT_OUT = pytest.StashKey()
"""How many tests were left out, by reason."""
MUST_RUN = "every test must run here"


def is_required(marker):
    """Whether it is an error that tests with this marker cannot run."""
    if marker in {"docker", "grafana"}:
        return os.environ.get("REQUIRE_DOCKER") == "1"
    return os.environ.get("REQUIRE_ALL_TESTS") == "1" and marker not in needs.OPT_IN


def needed(item):
    """The markers of a test. Its keywords would also hold the names of its parameters."""
    return {marker.name for marker in item.iter_markers()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take over what a process of a parallel run left out; all of them left out the same.

    A process that crashed says nothing.
    """
    output = getattr(node, "workeroutput", {})
    node.config.stash[LEFT_OUT] = output.get("left out") or node.config.stash.get(LEFT_OUT, {})


def pytest_sessionfinish(session):
    left_out = session.config.stash.get(LEFT_OUT, {})
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left out"] = dict(left_out)
    elif any(reason.endswith(MUST_RUN) for reason in left_out):
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(terminalreporter, config):
    for reason, count in config.stash.get(LEFT_OUT, {}).items():
        terminalreporter.write_line(f"left out {count} tests: {reason}")
