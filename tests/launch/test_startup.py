"""In which processes querypulse waits for a SparkSession, and what it does with one."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
import traceback
from types import ModuleType, SimpleNamespace

import pytest

from querypulse.launch import sessions, startup
from querypulse.launch.startup import ImportHook
from querypulse.sidecar import sidecar

# -- which processes --------------------------------------------------------------------------


def test_a_process_that_may_become_a_driver_waits():
    processes = [
        ["job.py"],
        ["-u", "job.py"],
        ["-X", "dev", "-W", "error", "job.py", "-m", "pyspark.daemon"],
        ["-Xdev", "-Werror", "/jobs/pipeline.py"],
        ["-m", "jobs.main"],
        ["-Im", "jobs.main"],
        ["-c", "import jobs"],
        ["--check-hash-based-pycs", "always", "job.py"],
        ["-m", "ipykernel_launcher", "-f", "connection.json"],
        ["-m", "pyspark_jobs"],
        [],
        ["-i"],
        ["-"],
    ]

    assert [words for words in processes if not startup.may_be_driver(["python", *words], {})] == []


def test_a_process_that_is_no_driver_does_not_wait():
    processes = [
        ["-m", "pyspark.daemon", "pyspark.worker"],
        ["-m", "pyspark.worker"],
        ["-um", "pyspark.daemon"],
        ["-m", "pyspark.sql.connect.streaming.worker.foreach_batch_worker"],
        [
            "-c",
            "from multiprocessing.spawn import spawn_main; spawn_main()",
            "--multiprocessing-fork",
        ],
        ["-Ic", "from multiprocessing.resource_tracker import main;main(7)"],
        ["-m", "pip", "install", "x"],
        ["/venv/bin/pip", "install", "x"],
        ["/venv/bin/pip3.11", "install", "x"],
    ]

    assert [words for words in processes if startup.may_be_driver(["python", *words], {})] == []


def test_only_a_plain_yes_asks_for_it():
    values = {"1": True, "true": True, " ON ": True, "0": False, "": False, "maybe": False}

    assert {text: startup.is_asked({"QUERYPULSE_AUTO_ATTACH": text}) for text in values} == values
    assert not startup.is_asked({})


def test_the_start_imports_little(tmp_path):
    script = "import sys, querypulse.launch.startup as s; s.start(); print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-Ic", script], cwd=tmp_path, capture_output=True, text=True
    )
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}

    assert "querypulse.launch.startup" in ran.stdout.split()
    assert loaded.isdisjoint({"pyspark", "py4j", "msgspec", "requests", "logging", "json"})
    assert "querypulse.sidecar" not in ran.stdout.split()


# -- waiting for a module ---------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module that can be imported; returns its name."""
    monkeypatch.syspath_prepend(tmp_path)
    waiting = [entry for entry in sys.meta_path if not isinstance(entry, ImportHook)]
    monkeypatch.setattr(sys, "meta_path", waiting)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def write(text, name="awaited_module"):
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return name

    return write


def test_the_action_follows_the_import(module):
    name, seen = module("value = 1\n"), []
    ImportHook({name: lambda module: seen.append(module.value)}).install()
    assert seen == []
    imported = importlib.import_module(name)

    assert seen == [1]
    assert type(imported.__loader__).__name__ == "SourceFileLoader"
    assert imported.__spec__.loader is imported.__loader__


def test_a_module_that_cannot_be_imported_raises_its_own_error(module):
    name, seen = module("raise ImportError('half')\n"), []
    ImportHook({name: seen.append}).install()

    with pytest.raises(ImportError, match="half"):
        importlib.import_module(name)
    assert seen == []
    assert name not in sys.modules


def test_a_second_hook_is_not_installed(module):
    name, seen = module("value = 1\n"), []
    for _ in range(2):
        ImportHook({name: seen.append}).install()
    importlib.import_module(name)

    assert seen == [sys.modules[name]]


def test_an_action_that_fails_ends_no_import(module, capsys):
    name = module("value = 1\n")
    ImportHook({name: lambda module: module.missing}).install()

    assert importlib.import_module(name).value == 1
    assert capsys.readouterr().err.count("\n") == 1


# -- sessions ---------------------------------------------------------------------------------


class SparkContextDouble:
    _jsc = object()


def pyspark_module():
    """A module such as pyspark.sql.session; its session raises for the context None."""

    class ClassicSession:
        def __init__(self, context):
            if context is None:
                raise ValueError("no context")
            self.sparkContext = context

    module = ModuleType("pyspark.sql.session")
    module.SparkSession = ClassicSession
    sessions.attach_to_classic(module)
    return module


@pytest.fixture
def attached(monkeypatch):
    """The sessions that were attached; ``error`` makes the next fail."""
    seen = SimpleNamespace(sessions=[], error=None)

    def attach(spark):
        seen.sessions.append(spark)
        if seen.error:
            raise seen.error

    monkeypatch.setattr(sidecar, "attach_automatically", attach)
    monkeypatch.setattr(sessions, "_ATTACHED", type(sessions._ATTACHED)())
    return seen


def test_each_context_is_attached_with_its_first_session(attached):
    make, first, second = pyspark_module().SparkSession, SparkContextDouble(), SparkContextDouble()
    created = [make(first), make(first), make(second)]

    assert attached.sessions == [created[0], created[2]]


def test_a_failing_attach_is_one_line_and_ends_nothing(attached, caplog):
    attached.error = RuntimeError("first line\nsecond line")
    caplog.set_level(logging.INFO, "querypulse")
    make, context = pyspark_module().SparkSession, SparkContextDouble()

    assert make(context).sparkContext is context
    make(context)
    (record,) = caplog.records
    assert record.getMessage() == (
        "querypulse: not attached, the job continues without it: RuntimeError: first line second line"
    )


def test_an_interrupt_during_the_attach_reaches_the_job(attached):
    attached.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        pyspark_module().SparkSession(SparkContextDouble())


def test_a_session_that_cannot_be_created_shows_no_frame_of_ours(attached):
    with pytest.raises(ValueError, match="no context") as failure:
        pyspark_module().SparkSession(None)

    frames = [frame.filename for frame in traceback.extract_tb(failure.value.__traceback__)]
    # Python 3.10 keeps the frame.
    assert set(frames) - {__file__} == (
        {sessions.__file__} if sys.version_info < (3, 11) else set()
    )
    assert attached.sessions == []


def test_a_child_of_multiprocessing_attaches_nothing(attached, monkeypatch):
    process = SimpleNamespace(parent_process=object)
    monkeypatch.setitem(sys.modules, "multiprocessing.process", process)
    pyspark_module().SparkSession(SparkContextDouble())

    assert attached.sessions == []


def connect_module():
    """A module such as pyspark.sql.connect.session."""

    class SessionOfConnect:
        __module__ = "pyspark.sql.connect.session"
        client = SimpleNamespace(is_closed=False)

        class Builder:
            options = ()

            def create(self):
                session = SessionOfConnect()
                session.options = self.options
                return session

            def getOrCreate(self):
                return self.create()

    module = ModuleType("pyspark.sql.connect.session")
    module.SparkSession = SessionOfConnect
    sessions.attach_to_connect(module)
    return module


def test_the_first_connect_session_is_attached_once(attached):
    builder = connect_module().SparkSession.Builder()
    created = [builder.getOrCreate(), builder.create()]

    assert attached.sessions == created[:1]


def test_beside_a_watched_context_a_connect_session_is_not_attached(attached):
    context = SparkContextDouble()
    first = pyspark_module().SparkSession(context)
    connect_module().SparkSession.Builder().getOrCreate()

    assert attached.sessions == [first]
