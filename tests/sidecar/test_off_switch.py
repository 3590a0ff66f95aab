"""With ``enabled`` false nothing of ours runs, and the job's main program works unchanged."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from support.fake_driver import FakeDriver, python_jvm
from support.patience import ended

from querypulse.exporter.status import Status
from querypulse.launch.sessions import attach_to_sessions
from querypulse.sidecar import (
    QueryFailure,
    Settings,
    SettingsError,
    Sidecar,
    attach,
    session,
    unwatched,
)
from querypulse.sidecar import sidecar as sidecar_module
from querypulse.sidecar.sidecar import SIDECARS, attach_automatically

PRODUCTION = {
    "webhook_url_file": "/run/secrets/nowhere",
    "http_tls_cert_file": "/run/secrets/nowhere",
    "otlp_headers_file": "/run/secrets/nowhere",
    "expected_queries": ["bronze"],
}
"""What a test environment does not have."""
WAYS = {
    "an argument": lambda driver: attach(driver, enabled=False, **PRODUCTION),
    "the record": lambda driver: attach(driver, settings=Settings(enabled=False, **PRODUCTION)),
    "by hand": lambda driver: by_hand(Sidecar(enabled=False, spark=driver, **PRODUCTION), driver),
}


def by_hand(sidecar, driver):
    driver.manager.addListener(sidecar.listener._jlistener)
    return sidecar


@pytest.fixture(autouse=True)
def fakes(clean_environment, monkeypatch):
    monkeypatch.setattr(session, "_known_session", lambda: None)
    monkeypatch.setattr(SparkContext, "_jvm", python_jvm())
    session.warn_once.cache_clear()


@pytest.fixture
def driver():
    return FakeDriver()


@pytest.fixture
def switched_off(monkeypatch):
    monkeypatch.setenv("QUERYPULSE_ENABLED", "false")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_nothing_runs_and_nothing_is_added_to_spark(driver, way):
    before = set(threading.enumerate())
    sidecar = way(driver)

    assert set(threading.enumerate()) == before
    assert driver.bus.queues == []
    assert SIDECARS.find(driver.sparkContext) is None
    assert (sidecar.url, sidecar.closed) == (None, False)


def test_attach_compiles_no_java_and_asks_no_jvm(driver):
    driver.java_errors["janino"] = AssertionError("compiled")
    attach(driver, enabled=False)

    assert (driver.queues, driver.sources, driver.manager.added) == ([], [], [])


@pytest.mark.parametrize("refused", [{}, {"janino": Py4JError("refused")}], ids=["java", "proxy"])
def test_listener_that_is_off_can_be_removed_and_is_compiled_once(driver, streams, refused):
    driver.java_errors.update(refused)
    sidecar = Sidecar(enabled=False, spark=driver)
    before = driver.manager.listListeners()
    for _ in range(3):
        streams().removeListener(sidecar.listener)
        streams().addListener(sidecar.listener)
        streams().addListener(sidecar.listener)
        streams().removeListener(sidecar.listener)
        streams().removeListener(sidecar.listener)

    assert driver.manager.listListeners() == before
    assert len(driver.sources) == (0 if refused else 1)
    assert sidecar.listener.closed, "nobody reads its events"


@pytest.mark.usefixtures("switched_off")
def test_environment_switches_off_every_way(driver):
    for sidecar in (
        attach(driver, **PRODUCTION),
        attach(driver, settings=Settings(**PRODUCTION)),
        by_hand(Sidecar(spark=driver, **PRODUCTION), driver),
        by_hand(Sidecar(Settings(**PRODUCTION), spark=driver), driver),
    ):
        assert not sidecar.settings.enabled
    attach_automatically(driver)

    assert driver.bus.queues == []
    assert SIDECARS.find(driver.sparkContext) is None


@pytest.mark.parametrize("text", ["off", "no", "FALSE", "0", " false ", "Off"])
@pytest.mark.parametrize("given", [{}, {"settings": Settings(http_port=-1)}])
def test_each_word_for_no_switches_it_off(driver, monkeypatch, caplog, text, given):
    monkeypatch.setenv("QUERYPULSE_ENABLED", text)
    with caplog.at_level(logging.WARNING, "querypulse"):
        sidecar = attach(driver, **given)

    assert not sidecar.settings.enabled
    assert "(from environment variable QUERYPULSE_ENABLED)" in caplog.text


@pytest.mark.parametrize("text", ["disabled", "f", "n", "", "nein", "0.0"])
@pytest.mark.parametrize("given", [None, Settings(http_port=-1)])
def test_text_that_is_no_word_for_yes_or_no_is_named(monkeypatch, caplog, text, given):
    """A user who meant to switch it off must find out why it still notifies people."""
    monkeypatch.setenv("QUERYPULSE_ENABLED", text)
    with caplog.at_level(logging.WARNING, "querypulse"):
        sidecar = Sidecar(given)

    assert sidecar.settings.enabled
    (record,) = caplog.records
    assert "setting 'enabled' from environment variable QUERYPULSE_ENABLED" in record.getMessage()
    assert "QUERYPULSE_ENABLED=false" in record.getMessage()


@pytest.mark.parametrize("text", ["true", "1", "on", " Yes "])
def test_each_word_for_yes_leaves_it_on(monkeypatch, caplog, text):
    monkeypatch.setenv("QUERYPULSE_ENABLED", text)
    with caplog.at_level(logging.WARNING, "querypulse"):
        assert Sidecar().settings.enabled
        assert Sidecar(Settings(http_port=-1)).settings.enabled
        assert not Sidecar(Settings(enabled=False)).settings.enabled

    assert caplog.records == []


@pytest.mark.usefixtures("switched_off")
def test_auto_attach_does_nothing(driver):
    class FakeSession:
        def __init__(self):
            self.__dict__.update(vars(driver))

    module = SimpleNamespace(__name__="pyspark.sql.session", SparkSession=FakeSession)
    attach_to_sessions(module)
    FakeSession()

    assert driver.queues == []


@pytest.mark.usefixtures("switched_off")
def test_argument_counts_more_than_the_environment(driver):
    driver.version = "3.4"
    sidecar = attach(driver, enabled=True, http_port=-1)

    assert sidecar.settings.enabled
    assert Sidecar(enabled=True).settings.enabled


def test_every_method_is_harmless(driver):
    sidecar = attach(driver, enabled=False, app_name="orders")
    sidecar.expect_stop("bronze")
    sidecar.forget("bronze")
    sidecar.silence("bronze*", minutes=30)

    snapshot = sidecar.snapshot()
    assert isinstance(snapshot, Status)
    assert (snapshot.app, snapshot.queries, snapshot.alerts) == ("orders", (), ())
    assert sidecar.alerts() == ()
    assert sidecar.flush()
    assert repr(sidecar) == "<Sidecar off: 'enabled' is false>"
    assert "off" in sidecar._repr_html_()
    sidecar.close()
    sidecar.close()
    assert sidecar.closed


def test_mistakes_of_the_job_are_found_also_where_it_is_off(driver):
    """The job's tests are where they should be found."""
    with pytest.raises(SettingsError, match="stall_flor_seconds"):
        attach(driver, enabled=False, stall_flor_seconds=5)
    sidecar = attach(driver, enabled=False)
    with pytest.raises(ValueError, match="expect_stop: give a query's name"):
        sidecar.expect_stop(None)
    with pytest.raises(ValueError, match="silence"):
        sidecar.silence("bronze")
    with pytest.raises(ValueError, match="a timeout must be a number"):
        sidecar.await_any_failure(timeout="5")


def test_main_program_waits_in_spark(driver):
    sidecar = attach(driver, enabled=False)
    assert ended(sidecar.await_any_failure) == "completed"

    driver.has_ended = False
    assert ended(lambda: sidecar.await_any_failure(timeout=0)) == "timeout"
    sidecar.close()
    assert ended(sidecar.await_any_failure) == "closed"
    driver.sparkContext.stop()
    assert ended(sidecar.await_any_failure) == "stopped"


def query(end):
    """A query whose ``awaitTermination`` returns, raises or calls ``end``."""

    def wait(_):
        if isinstance(end, Exception):
            raise end
        return end() if callable(end) else end

    return SimpleNamespace(runId="1", awaitTermination=wait)


def test_supervise_starts_each_query_once_and_restarts_none(driver, monkeypatch):
    """All others run to their end, and then the first failure is raised."""
    monkeypatch.setattr(unwatched, "PAUSE_SECONDS", 0.0)
    calls, ended_queries = [], []

    def broken():
        calls.append("broken")
        raise RuntimeError("password=hunter2")

    starts = {
        "broken": broken,
        "failing": lambda: calls.append("failing") or query(ValueError("later")),
        "finite": lambda: query(lambda: ended_queries.append("finite") or True),
    }
    with pytest.raises(QueryFailure, match="RuntimeError") as raised:
        attach(driver, enabled=False).supervise(starts)

    assert calls == ["broken", "failing"]
    assert ended_queries == ["finite"]
    assert raised.value.query == "broken"
    assert "hunter2" not in str(raised.value)
    assert isinstance(raised.value.__cause__, RuntimeError)


@pytest.mark.parametrize("nothing", [None, "a text", 7])
def test_start_function_that_returns_no_query_fails_as_where_it_is_on(driver, nothing):
    ended_queries = []
    starts = {
        "a": lambda: nothing,
        "b": lambda: query(lambda: ended_queries.append("b") or True),
    }
    with pytest.raises(QueryFailure, match="its start function returned no query, but") as raised:
        attach(driver, enabled=False).supervise(starts)

    assert raised.value.query == "a"
    assert ended_queries == ["b"], "the others run to their end"


def test_supervise_ends_when_the_application_stops_spark_or_closes_the_sidecar(driver):
    sidecar = attach(driver, enabled=False)
    closes = query(sidecar.close)
    assert (
        ended(lambda: sidecar.supervise({"a": lambda: closes, "b": lambda: query(False)})) is None
    )

    stopped = PySparkException("[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid")
    sidecar = attach(driver, enabled=False)
    assert ended(lambda: sidecar.supervise({"a": lambda: query(stopped)})) is None


def test_each_job_of_a_shared_test_session_may_have_its_own_settings(driver):
    first = attach(driver, enabled=False, app_name="a")

    assert attach(driver, enabled=False, app_name="b").settings.app_name == "b"
    assert first.settings.app_name == "a"


def test_it_is_said_once_where_the_switch_is(driver, caplog, monkeypatch):
    """A job that runs unmonitored by mistake should find out why."""
    monkeypatch.setenv("QUERYPULSE_ENABLED", "0")
    with caplog.at_level(logging.WARNING, "querypulse"):
        for _ in range(3):
            attach(driver)

    (record,) = caplog.records
    assert record.getMessage() == (
        "querypulse: off, 'enabled' is false (from environment variable QUERYPULSE_ENABLED): "
        "nothing is watched, nobody is notified"
    )


def test_automatic_sidecar_makes_way_for_one_that_is_off(driver, monkeypatch):
    present = Sidecar(Settings(http_port=-1), spark=driver)
    SIDECARS.remember(driver.sparkContext, present)
    SIDECARS.automatic.add(present)
    attach(driver, enabled=False)

    assert present.closed
    assert driver.queues == []


def test_sidecar_of_another_enabled_attach_is_not_switched_off_silently(driver):
    present = Sidecar(Settings(http_port=-1), spark=driver)
    SIDECARS.remember(driver.sparkContext, present)

    with pytest.raises(SettingsError, match="'enabled'"):
        attach(driver, enabled=False)
    assert not present.closed
    present.close()
    assert sidecar_module.SIDECARS.find(driver.sparkContext) is None
