"""``attach`` makes one complete sidecar per SparkContext or none, and never ends the job."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from support.fake_driver import FakeDriver, python_jvm
from support.patience import PATIENCE_SECONDS, until

from querypulse.core.threads import Loop
from querypulse.listener.connect.client import CallFailure, ServerSilentError
from querypulse.listener.probe_report import Context, ProbeReport
from querypulse.listener.spark.event_paths import open_path
from querypulse.sidecar import (
    Settings,
    SettingsError,
    Sidecar,
    attach,
    observers,
    runtime,
    session,
)
from querypulse.sidecar.sidecar import SIDECARS, attach_automatically

QUIET = {"http_port": -1, "source_interval_seconds": 0}
"""Without a port and without brokers."""


class IdleDriverProbe:
    """Polls a driver that has no queries, and removes the listener at the end."""

    def __init__(self, spark, path, *_):
        spark.require("probe")
        self.path = path

    def context(self):
        return Context.RUNNING

    def poll(self, clock):
        return ProbeReport(clock(), clock(), runs=())

    def has_lost_jvm(self):
        return False

    def release(self):
        self.path.release()


@pytest.fixture(autouse=True)
def fakes(clean_environment, monkeypatch):
    """Fake everything that asks a real JVM; close all sidecars at the end."""
    monkeypatch.setattr(session, "_known_session", lambda: None)
    monkeypatch.setattr(SparkContext, "_jvm", python_jvm())
    monkeypatch.setattr(observers, "SparkProbe", IdleDriverProbe)
    monkeypatch.setattr(
        observers, "SparkSources", lambda spark, active: SimpleNamespace(close=lambda: None)
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
    until(lambda: not our_threads(), "every thread of ours has ended")


@pytest.fixture
def driver():
    return FakeDriver()


def our_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("querypulse-")]


# -- one sidecar --------------------------------------------------------------------------------


def test_sidecar_watches_at_once_and_leaves_nothing_after_closing(driver):
    sidecar = attach(driver, **QUIET | {"http_port": 0})

    assert requests.get(f"{sidecar.url}/livez", timeout=PATIENCE_SECONDS).ok
    assert SIDECARS.find(driver.sparkContext) is sidecar
    assert driver.bus.queues == [driver.queue]
    assert sidecar.flush(math.inf)
    sidecar.close(math.inf)
    sidecar.close(math.inf)
    assert sidecar.url is None
    assert SIDECARS.find(driver.sparkContext) is None
    assert driver.bus.queues == []
    assert our_threads() == []


def test_conf_of_the_session_is_read_with_its_mistakes_and_secrets(driver):
    floor, url = "spark.querypulse.stall_floor_seconds", "spark.querypulse.webhook_url"
    driver.spark_conf = {"spark.app.name": "a", floor: "5"}
    sidecar = attach(driver, **QUIET)
    sidecar.close()
    assert sidecar.settings.stall_floor_seconds == 5

    for wrong in ({floor: "soon"}, {url: "https://h/x?token=hidden"}):
        driver.spark_conf = wrong
        with pytest.raises(SettingsError, match=f"from Spark conf {next(iter(wrong))}"):
            attach(driver, **QUIET)


@pytest.mark.contains_errors
def test_files_and_host_that_cannot_be_used_stop_no_job_and_status_names_them(driver, tmp_path):
    silences = tmp_path / "silences.json"
    silences.write_text("{")
    places = {"spool_dir": "/dev/null/x", "silence_file": str(silences), "http_host": "192.0.2.1"}
    sidecar = attach(driver, **QUIET | places | {"http_port": 0})

    assert sidecar.url is None
    until(lambda: sidecar.snapshot().monitor.spool_problem, "the spool was tried")
    until(lambda: sidecar.snapshot().monitor.recordings.problem, "the recordings were tried")
    monitor = sidecar.snapshot().monitor
    assert "/dev/null/x" in monitor.spool_problem
    assert "/dev/null/x/incidents" in monitor.recordings.problem
    assert monitor.recordings.failures > 0
    assert "silences" in monitor.file_problems
    sidecar.close()


def test_second_attach_returns_the_same_sidecar(driver, fakes):
    first = attach(driver, **QUIET)

    assert attach(driver) is first
    assert attach(driver, **QUIET) is first
    assert (fakes, len(driver.queues)) == ([first], 1)


def test_attach_after_the_automatic_one_counts_what_the_conf_has_by_then(driver, monkeypatch):
    monkeypatch.setenv("QUERYPULSE_HTTP_PORT", "-1")
    attach_automatically(driver)
    automatic = SIDECARS.find(driver.sparkContext)
    driver.spark_conf = {"spark.querypulse.stall_floor_seconds": "5"}
    own = attach(driver)

    assert (automatic.closed, own.settings.stall_floor_seconds) == (True, 5)
    assert attach(driver) is own


def test_second_attach_with_other_settings_is_an_error_that_names_them(driver):
    first = attach(driver, **QUIET, app_name="etl")
    with pytest.raises(SettingsError, match="'webhook_url', 'stall_floor_seconds'") as raised:
        attach(driver, app_name="etl", webhook_url="https://h/secret-path", stall_floor_seconds=5)

    assert "app_name" not in str(raised.value)
    assert "secret-path" not in str(raised.value)
    assert not first.closed
    assert attach(driver) is first


@pytest.mark.contains_errors
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_close_that_fails_stops_everything_and_a_second_one_does_not_wait(
    driver, monkeypatch, error
):
    sidecar = attach(driver, **QUIET)

    def fails(deadline, program):
        raise error

    monkeypatch.setattr(sidecar._runtime, "_last_flush", fails)
    with pytest.raises(KeyboardInterrupt) if error is KeyboardInterrupt else nullcontext():
        sidecar.close()
    sidecar.close(timeout=3600.0)

    until(lambda: not our_threads(), "every thread of ours has ended")
    assert driver.bus.queues == []


@pytest.mark.fault("Ends and kills", "`attach` again after `close()`", "A new sidecar works")
def test_other_settings_after_closing_make_another_sidecar(driver):
    first = attach(driver, **QUIET)
    first.close()
    second = attach(driver, **QUIET, stall_floor_seconds=5)

    assert second is not first
    assert second.settings.stall_floor_seconds == 5


def test_manually_added_listener_can_be_removed_after_closing(driver):
    sidecar = Sidecar(spark=driver, **QUIET)
    driver.manager.addListener(sidecar.listener._jlistener)
    sidecar.close()
    driver.manager.removeListener(sidecar.listener._jlistener)

    assert len(driver.manager.listeners) == 1
    assert our_threads() == []


@pytest.mark.parametrize("refused", [{}, {"janino": Py4JError("refused")}], ids=["bus", "proxy"])
def test_removing_the_listener_closes_the_sidecar_that_adding_it_started(driver, streams, refused):
    driver.java_errors.update(refused)
    sidecar = Sidecar(spark=driver, **QUIET)
    streams().addListener(sidecar.listener)
    streams().addListener(sidecar.listener)
    assert attach(driver) is sidecar
    streams().removeListener(sidecar.listener)
    assert not sidecar.closed
    streams().removeListener(sidecar.listener)

    assert sidecar.closed
    assert our_threads() == []
    assert SIDECARS.find(driver.sparkContext) is None
    assert (driver.bus.queues, len(driver.manager.listeners)) == ([], 1)


def test_removing_the_listener_closes_no_sidecar_of_attach(driver, streams):
    sidecar = attach(driver, **QUIET)
    streams().addListener(sidecar.listener)
    for _ in range(2):
        streams().removeListener(sidecar.listener)

    assert not sidecar.closed
    assert attach(driver) is sidecar


@pytest.mark.parametrize("additions", [0, 1, 2])
@pytest.mark.parametrize("refused", [{}, {"janino": Py4JError("refused")}], ids=["bus", "proxy"])
def test_removing_the_listener_takes_no_event_from_a_sidecar_of_attach(
    driver, streams, refused, additions
):
    """Where Java is refused, the listener that ``attach`` has added is its only source."""
    driver.java_errors.update(refused)
    sidecar = attach(driver, **QUIET)
    before = driver.manager.listListeners()
    for _ in range(additions):
        streams().addListener(sidecar.listener)
    for _ in range(additions + 2):
        streams().removeListener(sidecar.listener)

    assert driver.manager.listListeners() == before
    assert not sidecar.closed


def test_removing_a_listener_that_was_never_added_starts_and_compiles_nothing(driver, streams):
    sidecar = Sidecar(spark=driver, **QUIET)
    streams().removeListener(sidecar.listener)

    assert driver.sources == []
    assert (repr(sidecar), our_threads(), driver.bus.queues) == ("<Sidecar not started>", [], [])


def test_adding_the_listener_of_a_closed_sidecar_says_that_nothing_is_watched(
    driver, streams, caplog
):
    sidecar = Sidecar(spark=driver, **QUIET)
    streams().addListener(sidecar.listener)
    streams().removeListener(sidecar.listener)
    with caplog.at_level(logging.WARNING, "querypulse"):
        streams().addListener(sidecar.listener)

    assert "this sidecar is closed, so its listener watches nothing" in caplog.text
    assert our_threads() == []


def test_two_threads_that_attach_make_one_sidecar(driver, fakes, monkeypatch):
    opening, second_asks = threading.Event(), threading.Event()
    open_path, lock, opened = runtime.open_path, SIDECARS.lock, []

    class NotedLock:
        """The lock of the registry, which notes that the second thread asks for it."""

        def __enter__(self):
            if threading.current_thread() is threads[1]:
                second_asks.set()
            lock.acquire()

        def __exit__(self, *_):
            lock.release()

    def slowly(*args, **kwargs):
        opened.append(opening.set())
        until(lambda: second_asks.is_set() or len(opened) > 1, "the other thread is here")
        return open_path(*args, **kwargs)

    monkeypatch.setattr(SIDECARS, "lock", NotedLock())
    monkeypatch.setattr(runtime, "open_path", slowly)
    attached = []
    attach_here = lambda: attached.append(attach(driver, **QUIET))
    threads = [threading.Thread(target=attach_here) for _ in range(2)]
    threads[0].start()
    assert opening.wait(PATIENCE_SECONDS)
    threads[1].start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)

    assert attached == [fakes[0]] * 2
    assert len(fakes) == len(driver.queues) == len(opened) == 1


# -- internal errors ------------------------------------------------------------------------------


def fail(*_, **__):
    raise RuntimeError("an error of ours")


def open_sockets():
    files = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return {str(entry.readlink()) for entry in files if entry.is_socket()}


def refuse_everything(driver, patch):
    driver.java_errors["janino"] = driver.manager.refusal = Py4JError("refused")
    patch.setattr("pyspark.java_gateway.ensure_callback_server_started", lambda gateway: None)


def refuse_a_thread(driver, patch):
    """Only the worker's thread fails to start, as if the system had no more threads."""
    start = Loop.start
    patch.setattr(Loop, "start", lambda self: fail() if self.name == "worker" else start(self))


BREAK = {
    "another Spark": lambda driver, patch: driver.java_errors.update(janino=AttributeError("_jvm")),
    "a lost JVM": lambda driver, patch: driver.java_errors.update(
        bus=Py4JNetworkError("no answer")
    ),
    "no event path": refuse_everything,
    "the probe": lambda driver, patch: driver.java_errors.update(probe=RuntimeError("of ours")),
    "the worker": lambda driver, patch: patch.setattr(runtime, "Worker", fail),
    "the server": lambda driver, patch: patch.setattr(runtime.Runtime, "_open_port", fail),
    "a thread": refuse_a_thread,
    "the settings": lambda driver, patch: patch.setattr(session, "settings_of", fail),
}


@pytest.mark.fault(
    "Ends and kills", "An error of ours in `attach`", "The job goes on; nothing is left behind"
)
@pytest.mark.contains_errors
@pytest.mark.parametrize("break_it", BREAK.values(), ids=BREAK.keys())
def test_internal_error_ends_no_job_and_leaves_nothing_behind(driver, monkeypatch, break_it):
    before = open_sockets()
    break_it(driver, monkeypatch)
    sidecar = attach(driver, **QUIET | {"http_port": 0})

    assert (sidecar.closed, sidecar.url) == (True, None)
    assert SIDECARS.find(driver.sparkContext) is None
    until(lambda: not our_threads(), "every thread of ours has ended")
    assert driver.bus.queues == []
    assert len(driver.manager.listeners) == 1
    assert open_sockets() <= before


def test_sidecar_closed_while_it_starts_leaves_nothing_behind(driver, monkeypatch):
    opening, closed = threading.Event(), threading.Event()
    open_path = runtime.open_path

    def waits(*arguments, **options):
        opening.set()
        assert closed.wait(PATIENCE_SECONDS)
        return open_path(*arguments, **options)

    monkeypatch.setattr(runtime, "open_path", waits)
    sidecar = Sidecar(Settings(**QUIET), spark=driver)
    attaching = threading.Thread(target=sidecar._start_or_stand_by)
    attaching.start()
    assert opening.wait(PATIENCE_SECONDS)
    sidecar.close()
    closed.set()
    attaching.join(PATIENCE_SECONDS)

    until(lambda: not our_threads(), "every thread of ours has ended")
    assert (sidecar.closed, driver.bus.queues) == (True, [])
    assert SIDECARS.find(driver.sparkContext) is None


@pytest.mark.parametrize(("app", "warned"), [("pyspark-shell", 1), ("orders", 0)])
def test_attach_warns_once_of_a_generic_app_name(driver, caplog, app, warned):
    driver.sparkContext.appName = app
    with caplog.at_level(logging.WARNING, "querypulse"):
        sidecar = attach(driver, **QUIET)
    logged = [record for record in caplog.records if "set app_name" in record.getMessage()]

    assert len(logged) == warned
    until(lambda: sidecar.snapshot().queries is not None, "it has evaluated")
    assert bool(sidecar.snapshot().monitor.app_name_problem) == bool(warned)


def test_older_spark_is_refused_in_one_sentence_and_the_job_waits_in_spark(driver, caplog):
    driver.version = "3.4.1"
    with caplog.at_level(logging.WARNING, "querypulse"):
        sidecar = attach(driver, **QUIET)

    assert "Spark 3.4.1 is too old: querypulse needs 3.5 or newer" in caplog.text
    assert "Traceback" not in caplog.text
    assert sidecar.await_any_failure() == "completed"
    driver.has_ended = False
    assert sidecar.await_any_failure(timeout=0.0) == "timeout"


def test_interrupt_while_the_listener_is_added_leaves_nothing_behind(driver, monkeypatch):
    def waits():
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame is not None and frame.f_code is not Future.result.__code__:
            frame = frame.f_back
        return frame is not None

    def interrupted(*arguments, **options):
        until(waits, "the application waits for the listener")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return open_path(*arguments, **options)

    monkeypatch.setattr(runtime, "open_path", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attach(driver, **QUIET)

    until(lambda: not our_threads(), "the thread that was adding the listener has ended")
    assert driver.bus.queues == []


@pytest.mark.parametrize(("interval", "polled"), [(0, set()), (15, {"sources"})])
def test_sources_are_polled_unless_the_settings_say_no(driver, interval, polled):
    attach(driver, **QUIET | {"source_interval_seconds": interval})

    loops = {thread.name.removeprefix("querypulse-") for thread in our_threads()}
    assert loops == {"reader", "probe", "commit-log", "host", "recording", "worker"} | polled


# -- mistakes of the user -------------------------------------------------------------------------


@pytest.mark.contains_errors
def test_spark_connect_server_that_does_not_answer_leaves_the_job_unmonitored(monkeypatch, caplog):
    class ConnectSession(SimpleNamespace):
        __module__ = "pyspark.sql.connect.session"
        __hash__ = object.__hash__

    def silent(spark, prefix):
        raise ServerSilentError(CallFailure.REFUSED)

    monkeypatch.setattr(session, "conf_of", silent)
    streams = SimpleNamespace(awaitAnyTermination=lambda timeout: True, active=[])
    client = SimpleNamespace(is_closed=False)

    sidecar = attach(ConnectSession(streams=streams, client=client), **QUIET)

    assert sidecar.closed
    assert "the Spark conf cannot be read" in caplog.text
    assert "this job is not monitored; it continues without querypulse" in caplog.text
    assert sidecar.await_any_failure(1) == "completed"


def test_second_sidecar_on_one_spark_context_is_an_error_at_the_users_line(driver):
    """The second one would watch the same queries without reporting any of them."""
    first = attach(driver, **QUIET)
    with pytest.raises(SettingsError, match="another sidecar watches this SparkContext"):
        driver.manager.addListener(
            Sidecar(Settings(http_port=-1), spark=driver).listener._jlistener
        )

    assert attach(driver) is first


# -- arguments and representation ---------------------------------------------------------------


def test_query_object_can_be_given_instead_of_a_name(driver):
    """The label of the query is found by its id."""
    sidecar = attach(driver, **QUIET)
    query = SimpleNamespace(id="7-7", name="bronse", runId="8-8")

    with pytest.raises(ValueError, match="no query is named 'bronse'"):
        sidecar.expect_stop(query)
    with pytest.raises(ValueError, match="no query is named '7-7'"):
        sidecar.forget(SimpleNamespace(id="7-7", name=None, runId="8-8"))
    with pytest.raises(ValueError, match="a query's name or a StreamingQuery, not NoneType"):
        sidecar.expect_stop(None)


def test_silence_can_be_posted_over_http(driver, tmp_path):
    (tmp_path / "token").write_text("t0ken")
    access = {"http_port": 0, "http_token_file": str(tmp_path / "token")}
    sidecar = attach(driver, **QUIET | access, expected_queries=["billing"])
    answer = requests.post(
        f"{sidecar.url}/silences",
        json={"queries": "bilingg", "minutes": 1},
        headers={"Authorization": "Bearer t0ken"},
        timeout=PATIENCE_SECONDS,
    )

    assert answer.status_code == 201
    assert "did you mean 'billing'?" in answer.json()["note"]
    assert [silence.queries for silence in sidecar._components.silencing()] == ["bilingg"]


# -- access -------------------------------------------------------------------------------------


def test_server_that_anybody_could_read_stays_off_and_the_job_goes_on(driver, caplog):
    sidecar = attach(driver, **QUIET | {"http_host": "0.0.0.0", "http_port": 0})
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]

    assert (sidecar.url, sidecar.snapshot().queries) == (None, ())
    assert "http_allow_anonymous" in line


def test_rotated_token_is_required_from_then_on(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(observers, "READ_SECONDS", 0.05)
    path = tmp_path / "token"
    path.write_text("old")
    sidecar = attach(driver, **QUIET | {"http_port": 0, "http_token_file": str(path)})

    def code(token):
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{sidecar.url}/livez"
        return requests.get(url, headers=headers, timeout=PATIENCE_SECONDS).status_code

    assert (code("old"), code("new")) == (200, 401)
    path.write_text("new")
    until(lambda: code("new") == 200, "the new token is known")
    assert code("old") == 401


@pytest.mark.slow
@pytest.mark.fault(
    "Disk, port and mounts", "Secret and silence files on a mount that hangs", "Evaluation goes on"
)
def test_files_on_a_hanging_mount_stop_no_evaluation(driver, tmp_path, monkeypatch):
    """Opening a FIFO without a writer blocks, like a file on a dead NFS server."""
    monkeypatch.setattr(observers, "READ_SECONDS", 0.05)
    silences, key = tmp_path / "silences", tmp_path / "key"
    os.mkfifo(silences)
    key.write_text("k" * 32)
    sidecar = attach(
        driver, **QUIET, silence_file=str(silences), pagerduty_routing_key_file=str(key)
    )
    key.unlink()
    os.mkfifo(key)

    until(lambda: is_reading("querypulse-secret-files"), "the thread is blocked by the FIFO")
    before = sidecar._runtime.evaluated.snapshot.at
    until(lambda: sidecar._runtime.evaluated.snapshot.at > before, "evaluation goes on")
    sidecar.close()
    assert is_reading("querypulse-secret-files"), "the end has waited for the file"
    until(lambda: not released(silences, key) and not our_threads(), "the readers have ended")


def is_reading(name):
    """Whether the thread of this name is inside ``read_text``."""
    (thread,) = [entry for entry in threading.enumerate() if entry.name == name]
    frame = sys._current_frames()[thread.ident]
    return "pathlib" in frame.f_code.co_filename or frame.f_code.co_name == "open"


def released(*fifos):
    """Release the threads that wait to open one of these."""
    for fifo in fifos:
        os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
