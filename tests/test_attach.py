"""``attach`` makes one sidecar for a SparkContext, whole or not at all, and never ends the job."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from support.fake_driver import FakeDriver, python_jvm
from support.queries import until

from querypulse.listener.event_paths import open_path
from querypulse.listener.loop import Loop
from querypulse.listener.probing import Context, ProbeReport
from querypulse.sidecar import (
    Settings,
    SettingsError,
    Sidecar,
    attach,
    observers,
    parts,
    session,
    starting,
)
from querypulse.sidecar.sidecar import SIDECARS

PATIENCE_SECONDS = 10.0
QUIET = {"http_port": -1, "source_interval_seconds": 0}
"""Neither a port nor brokers."""


class Probe:
    """Polls a driver that has no queries, and takes the listener out at the end."""

    def __init__(self, spark, path, *_):
        spark.require("probe")
        self.path = path

    def context(self):
        return Context.RUNNING

    def look(self, clock):
        return ProbeReport(clock(), clock(), runs=())

    def release(self):
        self.path.release()


@pytest.fixture(autouse=True)
def fakes(clean_environment, monkeypatch):
    """All of a sidecar but what asks a real JVM; whatever ran is closed in the end."""
    monkeypatch.setattr(session, "_known_session", lambda: None)
    monkeypatch.setattr(SparkContext, "_jvm", python_jvm())
    monkeypatch.setattr(observers, "SparkProbe", Probe)
    monkeypatch.setattr(
        observers, "SparkSources", lambda spark: SimpleNamespace(close=lambda: None)
    )
    made = []
    init = Sidecar.__init__

    def remember(self, *args, **kwargs):
        init(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(Sidecar, "__init__", remember)
    yield made
    for sidecar in made:
        sidecar.close()
    assert our_threads() == []


@pytest.fixture
def driver():
    return FakeDriver()


def our_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("querypulse-")]


# -- one sidecar --------------------------------------------------------------------------------


def test_it_watches_at_once_and_nothing_is_left_after_closing(driver):
    sidecar = attach(driver, **QUIET)

    assert SIDECARS.find(driver.sparkContext) is sidecar
    assert driver.bus.queues == [driver.queue]
    assert sidecar.flush()
    sidecar.close()
    assert SIDECARS.find(driver.sparkContext) is None
    assert driver.bus.queues == []
    assert our_threads() == []


@pytest.mark.contains_errors
def test_a_last_flush_that_fails_keeps_nothing_running(driver, monkeypatch):
    sidecar = attach(driver, **QUIET)
    monkeypatch.setattr(parts.Parts, "flush", fail)
    sidecar.close()

    assert driver.bus.queues == []
    assert our_threads() == []


def test_a_second_attach_returns_the_same_sidecar(driver, fakes):
    first = attach(driver, **QUIET)

    assert attach(driver) is first
    assert attach(driver, **QUIET) is first
    assert (fakes, len(driver.queues)) == ([first], 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"stall_floor_seconds": 5}, {"stall_floor_seconds": 5.0}),
        ({"expected_queries": ["a", "b"]}, {"expected_queries": ("a", "b")}),
        ({"queries": {"a": {"ignore": True}}}, {"queries": {"a": {"ignore": True}}}),
        ({}, {"stall_floor_seconds": Settings().stall_floor_seconds}),
    ],
    ids=["number", "list", "table", "default"],
)
def test_the_same_settings_in_other_words_are_the_same(driver, first, second):
    assert attach(driver, **QUIET, **first) is attach(driver, **second)


def test_a_second_attach_with_other_settings_is_an_error_that_names_them(driver):
    """A13: silently, the second call's receiver would never receive an alert."""
    first = attach(driver, **QUIET, app_name="etl")
    with pytest.raises(SettingsError, match="'webhook_url', 'stall_floor_seconds'") as raised:
        attach(driver, app_name="etl", webhook_url="https://h/secret-path", stall_floor_seconds=5)

    assert "app_name" not in str(raised.value)
    assert "secret-path" not in str(raised.value)
    assert not first.closed
    assert attach(driver) is first


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"http_prot": 1}, "argument http_prot.*did you mean 'http_port'"),
        ({"http_port": "x"}, "argument http_port"),
    ],
)
def test_a_mistake_in_the_second_call_is_an_error_too(driver, arguments, named):
    first = attach(driver, **QUIET)
    with pytest.raises(SettingsError, match=named):
        attach(driver, **arguments)

    assert attach(driver) is first


def test_after_closing_other_settings_make_another_sidecar(driver):
    first = attach(driver, **QUIET)
    first.close()
    second = attach(driver, **QUIET, stall_floor_seconds=5)

    assert second is not first
    assert second.settings.stall_floor_seconds == 5


def test_a_sidecar_that_was_added_by_hand_is_the_one_that_attach_finds(driver):
    sidecar = Sidecar(spark=driver, **QUIET)
    driver.manager.addListener(sidecar.listener._jlistener)

    assert attach(driver) is sidecar


def test_a_listener_that_was_added_by_hand_can_be_removed_after_closing(driver):
    sidecar = Sidecar(spark=driver, **QUIET)
    driver.manager.addListener(sidecar.listener._jlistener)
    sidecar.close()
    driver.manager.removeListener(sidecar.listener._jlistener)

    assert len(driver.manager.listeners) == 1
    assert our_threads() == []


def test_each_context_has_a_sidecar_of_its_own(driver):
    other = FakeDriver()

    assert attach(driver, **QUIET) is not attach(other, **QUIET)


def test_two_threads_that_attach_make_one_sidecar(driver, fakes, monkeypatch):
    """L13"""
    opening, second_opening = threading.Event(), threading.Event()
    open_path = starting.open_path

    def slowly(*args, **kwargs):
        if opening.is_set():
            second_opening.set()
        opening.set()
        # Longer than the other thread needs to get here, if nothing holds it.
        second_opening.wait(0.3)
        return open_path(*args, **kwargs)

    monkeypatch.setattr(starting, "open_path", slowly)
    attached = []
    threads = [
        threading.Thread(target=lambda: attached.append(attach(driver, **QUIET))) for _ in range(2)
    ]
    threads[0].start()
    assert opening.wait(PATIENCE_SECONDS)
    threads[1].start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)

    assert len(attached) == 2
    assert len(set(map(id, attached))) == len(fakes) == len(driver.queues) == 1
    assert not second_opening.is_set()


# -- an internal error ----------------------------------------------------------------------------


def fail(*_):
    raise RuntimeError("an error of ours")


def refuse_everything(driver, patch):
    driver.refusals["janino"] = driver.manager.refusal = Py4JError("refused")
    patch.setattr("pyspark.java_gateway.ensure_callback_server_started", lambda gateway: None)


def refuse_a_thread(driver, patch):
    """The other threads run already, as where the system has no more for us."""
    start = Loop.start
    patch.setattr(Loop, "start", lambda self: fail() if self.name == "worker" else start(self))


BREAK = {
    "another Spark": lambda driver, patch: driver.refusals.update(janino=AttributeError("_jvm")),
    "a lost JVM": lambda driver, patch: driver.refusals.update(bus=Py4JNetworkError("no answer")),
    "no way in": refuse_everything,
    "the probe": lambda driver, patch: driver.refusals.update(probe=RuntimeError("of ours")),
    "the worker": lambda driver, patch: patch.setattr(parts.Parts, "_make_worker", fail),
    "the server": lambda driver, patch: patch.setattr(parts.Parts, "_listens", fail),
    "a thread": refuse_a_thread,
}


@pytest.mark.contains_errors
@pytest.mark.parametrize("break_it", BREAK.values(), ids=BREAK.keys())
def test_an_internal_error_ends_no_job_and_leaves_nothing_behind(driver, monkeypatch, break_it):
    """L13"""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    break_it(driver, monkeypatch)
    sidecar = attach(driver, **QUIET | {"http_port": port})

    assert (sidecar.closed, sidecar.url) == (True, None)
    assert SIDECARS.find(driver.sparkContext) is None
    assert our_threads() == []
    assert driver.bus.queues == []
    assert len(driver.manager.listeners) == 1
    with closing(socket.socket()) as again:
        again.bind(("127.0.0.1", port))


@pytest.mark.contains_errors
def test_a_job_goes_on_to_wait_where_its_sidecar_could_not_start(driver):
    driver.refusals["probe"] = RuntimeError("an error of ours")
    sidecar = attach(driver, **QUIET)
    sidecar.await_any_failure()
    sidecar.await_any_failure(timeout=2.0)

    assert driver.waits == [(), (2.0,)]


@pytest.mark.contains_errors
def test_a_sidecar_that_could_not_start_says_so_without_secrets(driver, caplog):
    driver.refusals["probe"] = RuntimeError("password=hunter2hunter")
    with caplog.at_level(logging.WARNING, "querypulse"):
        attach(driver, **QUIET)
    logged = "\n".join(record.getMessage() for record in caplog.records)

    assert "this job is not watched" in logged
    assert "hunter2hunter" not in logged


@pytest.mark.contains_errors
def test_a_second_try_after_an_internal_error_watches(driver):
    driver.refusals["probe"] = RuntimeError("an error of ours")
    first = attach(driver, **QUIET)
    del driver.refusals["probe"]
    second = attach(driver, **QUIET)

    assert second is not first
    assert SIDECARS.find(driver.sparkContext) is second
    assert second.flush()


def test_an_interrupt_is_passed_on_and_leaves_nothing_behind(driver):
    """Ctrl-C in a notebook."""
    driver.refusals["probe"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        attach(driver, **QUIET)

    assert SIDECARS.find(driver.sparkContext) is None
    assert driver.bus.queues == []
    assert our_threads() == []


def test_an_interrupt_while_the_listener_is_added_leaves_none_behind(driver, monkeypatch):
    def waits():
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame is not None and frame.f_code is not Future.result.__code__:
            frame = frame.f_back
        return frame is not None

    def interrupted(*arguments, **options):
        until(waits, "the application waits for it")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return open_path(*arguments, **options)

    monkeypatch.setattr(starting, "open_path", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attach(driver, **QUIET)

    until(lambda: not our_threads(), "the thread that was adding it has ended")
    assert driver.bus.queues == []


# -- what the user must know ----------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{"http_prot": 1}, {"webhook_url": "nowhere"}])
def test_a_mistake_in_the_settings_is_raised_and_nothing_starts(driver, arguments):
    with pytest.raises(SettingsError):
        attach(driver, **arguments)

    assert SIDECARS.find(driver.sparkContext) is None
    assert driver.queues == []


def test_a_session_of_spark_connect_is_refused():
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})

    with pytest.raises(RuntimeError, match="Spark Connect is not supported"):
        attach(connect())


def test_a_second_sidecar_on_one_spark_context_is_an_error_on_the_users_own_line(driver):
    """It would watch the same queries, and be the one that reports none of them."""
    first = attach(driver, **QUIET)
    with pytest.raises(SettingsError, match="another sidecar watches this SparkContext"):
        driver.manager.addListener(
            Sidecar(Settings(http_port=-1), spark=driver).listener._jlistener
        )

    assert attach(driver) is first
