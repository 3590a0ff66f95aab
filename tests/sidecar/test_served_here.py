"""A Spark Connect session whose driver is this very process: all of the driver is watched."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from support.fake_driver import FakeDriver, python_jvm

from querypulse.listener.probe_report import Context, ProbeReport
from querypulse.sidecar import Settings, SettingsError, Sidecar, attach, observers
from querypulse.sidecar import session as session_module
from querypulse.sidecar.session import CONNECT_SERVICE, driver_session
from querypulse.sidecar.sidecar import SIDECARS, attach_automatically

OURS = "76de0652-4946-4f61-b630-6bf63202c3f3"
OTHER = "5bc5ab4c-1c7e-4a35-9d63-1a0d8e6a2a44"
QUIET = {"http_port": -1, "source_interval_seconds": 0}


class ConnectSession(SimpleNamespace):
    """A client's session, as far as it is looked at."""

    __module__ = "pyspark.sql.connect.session"
    __hash__ = object.__hash__


def client(session_id=OURS):
    return ConnectSession(_session_id=session_id, client=SimpleNamespace(is_closed=False))


def serve(driver, *session_ids, raises=None):
    """Let the driver have Spark's Connect server, which knows these sessions."""

    def listed():
        if raises is not None:
            raise raises
        return ", ".join(f"SessionHolderInfo(user,{session_id},...)" for session_id in session_ids)

    sessions = SimpleNamespace(toString=listed)
    manager = SimpleNamespace(listActiveSessions=lambda: sessions)
    module = SimpleNamespace(**{"MODULE$": SimpleNamespace(sessionManager=lambda: manager)})
    setattr(driver.sparkContext._jvm, CONNECT_SERVICE, module)


class IdleProbe:
    """Polls a driver that has no queries."""

    def __init__(self, spark, path, *_):
        self.path = path

    def context(self):
        return Context.RUNNING

    def poll(self, clock):
        return ProbeReport(clock(), clock(), runs=())

    def has_lost_jvm(self):
        return False

    def release(self):
        self.path.release()


@pytest.fixture
def driver(clean_environment, monkeypatch):
    """The driver in this process, whose server knows the session ``OURS``."""
    driver = FakeDriver()
    serve(driver, OURS)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", driver)
    monkeypatch.setattr(SparkContext, "_jvm", python_jvm())
    monkeypatch.setattr(session_module, "_known_session", lambda: None)
    monkeypatch.setattr(
        session_module, "conf_of", lambda spark, prefix: spark.__dict__.get("conf", {})
    )
    monkeypatch.setattr(observers, "SparkProbe", IdleProbe)
    monkeypatch.setattr(
        observers, "SparkSources", lambda spark, active: SimpleNamespace(close=lambda: None)
    )
    yield driver
    sidecar = SIDECARS.find(driver.sparkContext)
    if sidecar is not None:
        sidecar.close()


def test_driver_of_a_session_that_is_served_here_is_the_classic_session(driver):
    assert driver_session(client()) is driver
    serve(driver, OTHER, OURS)
    assert driver_session(client()) is driver


def test_classic_session_is_its_own_driver_and_nothing_is_asked(driver, monkeypatch):
    monkeypatch.delattr(SparkSession, "_instantiatedSession")
    assert driver_session(driver) is driver


NOT_SERVED = {
    "another server, or another port": lambda driver: serve(driver, OTHER),
    "a server without sessions": serve,
    "a stopped context": lambda driver: driver.sparkContext.stop(),
    "no server in this driver": lambda driver: delattr(driver.sparkContext._jvm, CONNECT_SERVICE),
    "a server that cannot say": lambda driver: serve(driver, raises=Py4JError("no such method")),
    "a class that is a package to Py4J": lambda driver: serve(driver, raises=TypeError("package")),
    "a JVM that is gone": lambda driver: serve(driver, raises=Py4JNetworkError("no answer")),
    "a refused connection": lambda driver: serve(driver, raises=ConnectionRefusedError()),
}


@pytest.mark.parametrize("change", NOT_SERVED.values(), ids=NOT_SERVED)
def test_session_that_is_not_served_here_stays_a_client(driver, change):
    session = client()
    change(driver)
    assert driver_session(session) is session


def test_session_stays_a_client_where_this_process_has_no_driver(driver, monkeypatch):
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    session = client()
    assert driver_session(session) is session


def test_attaching_to_the_client_watches_the_driver_and_twice_is_the_same_sidecar(driver):
    sidecar = attach(client(), **QUIET)

    assert SIDECARS.find(driver.sparkContext) is sidecar
    assert driver.bus.queues == [driver.queue]
    assert attach(client()) is sidecar
    assert attach(driver) is sidecar
    with pytest.raises(SettingsError, match="another sidecar"):
        Sidecar(spark=client())._start_or_stand_by()


def test_attaching_to_the_driver_first_covers_its_clients(driver):
    sidecar = attach(driver, **QUIET)
    assert attach(client()) is sidecar


def test_own_attach_of_a_client_replaces_the_automatic_sidecar_of_its_driver(driver):
    attach_automatically(driver)
    automatic = SIDECARS.find(driver.sparkContext)
    own = attach(client(), **QUIET, app_name="flows")

    assert automatic.closed
    assert SIDECARS.find(driver.sparkContext) is own


def test_settings_come_from_the_conf_of_the_session_that_was_given(driver):
    session = client()
    session.conf = {"spark.querypulse.stall_floor_seconds": "5"}
    assert attach(session, **QUIET).settings.stall_floor_seconds == 5


def test_disabled_sidecar_waits_in_the_session_that_was_given(driver):
    session = client()
    sidecar = attach(session, settings=Settings(enabled=False))
    assert sidecar._unwatched is session
    assert driver.bus.queues == []
