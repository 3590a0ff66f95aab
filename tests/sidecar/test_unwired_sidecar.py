"""A sidecar that is not started or already closed, its settings, and the registry."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.sql.connect.streaming.query import StreamingQueryManager
from support.fake_driver import FakeDriver, python_jvm
from support.patience import ended

from querypulse.listener.probe_report import Context
from querypulse.sidecar import Settings, SettingsError, Sidecar, session
from querypulse.sidecar.session import NoSessionError
from querypulse.sidecar.sidecar import SIDECARS, Registry

HOOK = "https://hooks.example.com/services/hidden-path"


@pytest.fixture(autouse=True)
def no_session(clean_environment, monkeypatch):
    """No Spark session of another test and no settings of the machine."""
    monkeypatch.setattr(session, "_known_session", lambda: None)


@pytest.fixture
def jvm(monkeypatch):
    """A JVM in which PySpark can make listeners."""
    monkeypatch.setattr(SparkContext, "_jvm", python_jvm())


@pytest.mark.parametrize(
    "settings",
    [
        {"webhook_url": "nowhere"},
        {"pagerduty_routing_key": "short"},
        {"http_tls_key_file": "/k"},
        {"http_token_file": "/nowhere"},
    ],
)
def test_invalid_settings_raise_in_the_constructor(settings):
    with pytest.raises(SettingsError):
        Sidecar(Settings(**settings))
    with pytest.raises(SettingsError):
        Sidecar(**settings)


def test_constructor_starts_nothing():
    before = set(threading.enumerate())
    sidecar = Sidecar(Settings(webhook_url=HOOK))

    assert (sidecar.url, sidecar.alerts(), sidecar.closed) == (None, (), False)
    assert not sidecar.flush(0.01)
    assert set(threading.enumerate()) == before
    with pytest.raises(RuntimeError, match="has not started"):
        sidecar.snapshot()
    with pytest.raises(ValueError, match="no query is named 'bronse'; known: \\[\\]"):
        sidecar.expect_stop("bronse")


def test_closed_sidecar_does_not_start_when_its_listener_is_removed(jvm):
    """PySpark also reads the JVM listener in order to remove it."""
    driver = FakeDriver()
    sidecar = Sidecar(Settings(), spark=driver)
    sidecar.close()

    assert sidecar.listener._jlistener is not None
    assert (sidecar.url, driver.bus.queues, driver.manager.added) == (None, [], [])
    assert SIDECARS.find(driver.sparkContext) is None


@pytest.mark.parametrize("method", ["flush", "close", "await_any_failure"])
@pytest.mark.parametrize("timeout", ["5", float("nan"), True, timedelta(seconds=5), [5]])
def test_timeout_that_is_no_number_is_refused(method, timeout):
    sidecar = Sidecar(Settings(http_port=-1))
    with pytest.raises(ValueError, match="a timeout must be a number of seconds, given "):
        ended(lambda: getattr(sidecar, method)(timeout))

    assert not sidecar.closed


def test_sidecar_that_watches_nothing_says_so():
    sidecar = Sidecar(Settings(http_port=-1))
    assert (repr(sidecar), "not started" in sidecar._repr_html_()) == (
        "<Sidecar not started>",
        True,
    )
    sidecar.close()
    assert (repr(sidecar), "closed" in sidecar._repr_html_()) == ("<Sidecar closed>", True)


# -- addListener with the sidecar's listener ------------------------------------------------------


def test_listener_without_a_spark_session_raises():
    with pytest.raises(NoSessionError, match="no active SparkSession"):
        _ = Sidecar(Settings()).listener._jlistener


@pytest.mark.contains_errors
def test_internal_error_still_gives_pyspark_a_listener(jvm):
    """``addListener`` must not fail the job when the monitor cannot start."""
    driver = FakeDriver(janino=AttributeError("an unknown Spark"))
    sidecar = Sidecar(Settings(http_port=-1), spark=driver)

    assert sidecar.listener._jlistener.proxy is not None
    assert sidecar.closed
    assert SIDECARS.find(driver.sparkContext) is None
    assert sidecar.await_any_failure() == "completed"
    assert driver.waits


def test_listener_added_to_a_connect_session_starts_for_that_session_in_the_jobs_thread(
    monkeypatch, caplog
):
    """Spark Connect asks for no JVM listener, and other threads do not know the session."""
    started = []
    monkeypatch.setattr(
        Sidecar,
        "_start_or_stand_by",
        lambda _, spark: started.append((spark, threading.current_thread())),
    )
    client = SimpleNamespace(execute_command_as_iterator=lambda command: iter(()))
    first, second = (SimpleNamespace(client=client) for _ in range(2))
    listener = Sidecar(Settings()).listener

    StreamingQueryManager(first).addListener(listener)
    assert started == [(first, threading.current_thread())]
    assert caplog.text == ""
    StreamingQueryManager(second).addListener(listener)
    assert started[1:] == [(first, threading.current_thread())]
    assert "one Spark Connect session" in caplog.text


# -- settings -------------------------------------------------------------------------------------


def test_settings_come_from_arguments_environment_and_file(config, monkeypatch):
    """``spark.streams.addListener(Sidecar().listener)`` reads the same origins as ``attach``."""
    file = 'app_name = "of the file"\nstall_floor_seconds = 11\nhttp_port = 1'
    for name, value in config(file).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("QUERYPULSE_STALL_FLOOR_SECONDS", "22")
    monkeypatch.setenv("QUERYPULSE_HTTP_PORT", "2")

    settings = Sidecar(http_port=-1).settings
    assert settings == Settings(app_name="of the file", stall_floor_seconds=22.0, http_port=-1)


# -- the registry ---------------------------------------------------------------------------------


class FakeJavaContext:
    """PySpark drops ``_jsc`` in ``stop()``."""

    def __init__(self):
        self._jsc = object()


def test_registry_finds_the_open_sidecar_of_a_context_and_closes_those_of_stopped_ones():
    registry, stopped, living = Registry(), FakeJavaContext(), FakeJavaContext()
    sidecars = {context: Sidecar(Settings()) for context in (stopped, living)}
    for context, sidecar in sidecars.items():
        registry.remember(context, sidecar)
    assert registry.find(living) is sidecars[living]
    assert registry.find(FakeJavaContext()) is None
    stopped._jsc = None
    registry.require_none(FakeJavaContext())

    assert [sidecar.closed for sidecar in sidecars.values()] == [True, False]
    assert registry.find(stopped) is None
    assert registry.find(living) is sidecars[living]


def test_registry_closes_the_sidecar_of_a_session_that_has_ended(monkeypatch):
    """The next session takes over its incidents, and its port."""
    registry, lost, living = Registry(), FakeJavaContext(), FakeJavaContext()
    sidecars = {context: Sidecar(Settings()) for context in (lost, living)}
    for context, sidecar in sidecars.items():
        registry.remember(context, sidecar)
    ends = {sidecars[lost]: Context.SESSION_ENDED, sidecars[living]: Context.RUNNING}
    monkeypatch.setattr(
        Sidecar,
        "_evaluated",
        lambda sidecar: SimpleNamespace(snapshot=SimpleNamespace(context=ends[sidecar])),
    )
    registry.require_none(FakeJavaContext())

    assert [sidecar.closed for sidecar in sidecars.values()] == [True, False]
