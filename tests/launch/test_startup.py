"""In which processes querypulse waits for a SparkSession, and what it does with one."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
import traceback
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

from querypulse.launch import sessions, startup
from querypulse.launch.startup import ImportHook
from querypulse.sidecar import sidecar

NAME = "awaited_module"

# -- which processes --------------------------------------------------------------------------


DRIVERS = [
    "job.py",
    "-u job.py",
    "-X dev -W error job.py -m pyspark.daemon",
    "-Xdev -Werror /jobs/pipeline.py",
    "-m jobs.main",
    "-Im jobs.main",
    "-c import-jobs",
    "--check-hash-based-pycs always job.py",
    "-m ipykernel_launcher -f connection.json",
    "-m pyspark_jobs",
    "",
    "-i",
    "-",
]
OTHERS = [
    "-m pyspark.daemon pyspark.worker",
    "-um pyspark.daemon",
    "-m pyspark.sql.connect.streaming.worker.foreach_batch_worker",
    "-c from\0multiprocessing.spawn\0import\0spawn_main;spawn_main() --multiprocessing-fork",
    "-Ic from\0multiprocessing.resource_tracker\0import\0main;main(7)",
    "-m pip install x",
    "/venv/bin/pip install x",
    "/venv/bin/pip3.11 install x",
]


def test_only_a_process_that_may_become_a_driver_waits():
    command = {
        words: ["python", *(word.replace("\0", " ") for word in words.split())]
        for words in (*DRIVERS, *OTHERS)
    }
    assert [words for words in command if startup.may_be_driver(command[words], {})] == DRIVERS


def test_only_a_plain_yes_asks_for_it():
    texts = ["1", "true", " ON ", "0", "", "maybe"]
    asked = [text for text in texts if startup.is_asked({"QUERYPULSE_AUTO_ATTACH": text})]

    assert asked == texts[:3]
    assert not startup.is_asked({})


def test_only_a_plain_no_or_nothing_is_understood_as_no():
    texts = ["ja", "2", "enabled", "1;", "0", "false", " NO ", "off", "", "1", "true"]
    wrong = [text for text in texts if startup.mistake({"QUERYPULSE_AUTO_ATTACH": text})]

    assert wrong == texts[:4]
    assert startup.mistake({}) == ""


@pytest.fixture
def waiting(monkeypatch):
    """The hooks that are installed meanwhile."""
    others = [entry for entry in sys.meta_path if not isinstance(entry, ImportHook)]
    monkeypatch.setattr(sys, "meta_path", others)
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    for name in startup.SESSIONS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    sessions.warn_once.cache_clear()
    return lambda: [entry for entry in sys.meta_path if isinstance(entry, ImportHook)]


def test_a_value_that_is_not_understood_is_said_once_where_spark_is_used(
    waiting, monkeypatch, caplog
):
    monkeypatch.setattr(sys, "orig_argv", ["python", "job.py"])
    monkeypatch.setenv("QUERYPULSE_AUTO_ATTACH", "ja")
    startup.start_if_asked()
    (hook,) = waiting()
    assert caplog.text == ""  # a process without Spark has nothing to say
    for name in startup.SESSIONS:
        hook._act(ModuleType(name))

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "QUERYPULSE_AUTO_ATTACH is 'ja'" in record.getMessage()
    assert "1, true, yes, on" in record.getMessage()


@pytest.mark.parametrize("order", [("start_if_asked", "start"), ("start", "start_if_asked")])
def test_the_launcher_attaches_whatever_the_variable_says(order, waiting, monkeypatch, caplog):
    """Python reads the ``.pth`` file before our ``sitecustomize``."""
    attached = []
    monkeypatch.setattr(sessions, "attach_to_sessions", attached.append)
    monkeypatch.setattr(sys, "orig_argv", ["python", "job.py"])
    monkeypatch.setenv("QUERYPULSE_AUTO_ATTACH", "ja")
    for name in order:
        getattr(startup, name)()
    for hook in waiting():
        hook._act(ModuleType(startup.SESSIONS[0]))

    assert len(attached) == 1
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("value", "command"), [("0", "job.py"), ("", "job.py"), ("ja", "-m pyspark.daemon")]
)
def test_a_plain_no_and_a_process_that_is_no_driver_wait_for_nothing(
    value, command, waiting, monkeypatch
):
    monkeypatch.setattr(sys, "orig_argv", ["python", *command.split()])
    monkeypatch.setenv("QUERYPULSE_AUTO_ATTACH", value)
    startup.start_if_asked()

    assert waiting() == []


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
    """Write the awaited module; two hooks, of which one is installed, pass its value on."""
    seen = []
    monkeypatch.syspath_prepend(tmp_path)
    waiting = [entry for entry in sys.meta_path if not isinstance(entry, ImportHook)]
    monkeypatch.setattr(sys, "meta_path", waiting)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    for _ in range(2):
        ImportHook([NAME], lambda module: seen.append(module.value)).install()

    def write(text):
        (tmp_path / f"{NAME}.py").write_text(text)
        importlib.invalidate_caches()
        return seen

    return write


def test_the_action_follows_the_import_once(module):
    seen = module("value = 1\n")
    assert seen == []
    imported = importlib.import_module(NAME)

    assert seen == [1]
    assert imported.__spec__.loader is imported.__loader__


def test_a_loader_that_cannot_be_changed_is_followed_too(module):
    class Fixed:
        __slots__ = ()

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            module.value = 2

    class Finder:
        @staticmethod
        def find_spec(name, *_):
            return ModuleSpec(name, Fixed()) if name == NAME else None

    seen = module("value = 1\n")
    sys.meta_path.insert(1, Finder)

    assert importlib.import_module(NAME).value == 2
    assert seen == [2]


def test_a_module_that_cannot_be_imported_raises_its_own_error(module):
    seen = module("raise ImportError('half')\n")

    with pytest.raises(ImportError, match="half"):
        importlib.import_module(NAME)
    assert seen == []
    assert NAME not in sys.modules


def test_an_action_that_fails_ends_no_import(module, capsys):
    module("other = 1\n")

    assert importlib.import_module(NAME).other == 1
    assert capsys.readouterr().err.count("\n") == 1


# -- sessions ---------------------------------------------------------------------------------


class SparkContextDouble:
    _jsc = object()


def classic_session():
    """A class as in pyspark.sql.session; it raises for the context None."""

    class ClassicSession:
        def __init__(self, context):
            if context is None:
                raise ValueError("no context")
            self.sparkContext = context

    return hooked("pyspark.sql.session", ClassicSession)


def hooked(name, session):
    module = ModuleType(name)
    module.SparkSession = session
    sessions.attach_to_sessions(module)
    return session


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
    make, first, second = classic_session(), SparkContextDouble(), SparkContextDouble()
    created = [make(first), make(first), make(second)]

    assert attached.sessions == [created[0], created[2]]


def test_a_failing_attach_is_one_line_and_ends_nothing(attached, caplog):
    attached.error = RuntimeError("first line\nsecond line")
    caplog.set_level(logging.INFO, "querypulse")
    make, context = classic_session(), SparkContextDouble()

    assert make(context).sparkContext is context
    make(context)
    (record,) = caplog.records
    assert record.getMessage() == (
        "querypulse: not attached, the job continues without it: RuntimeError: first line second line"
    )


def test_an_interrupt_during_the_attach_reaches_the_job(attached):
    attached.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        classic_session()(SparkContextDouble())


def test_a_session_that_cannot_be_created_shows_no_frame_of_ours(attached):
    with pytest.raises(ValueError, match="no context") as failure:
        classic_session()(None)

    frames = [frame.filename for frame in traceback.extract_tb(failure.value.__traceback__)]
    # Python 3.10 keeps the frame.
    assert set(frames) - {__file__} == (
        {sessions.__file__} if sys.version_info < (3, 11) else set()
    )
    assert attached.sessions == []


def test_a_child_of_multiprocessing_attaches_nothing_and_says_so(attached, monkeypatch, caplog):
    sessions.warn_once.cache_clear()
    process = SimpleNamespace(parent_process=object)
    monkeypatch.setitem(sys.modules, "multiprocessing.process", process)
    classic_session()(SparkContextDouble())

    assert attached.sessions == []
    assert "attach(spark)" in caplog.text


def connect_builder():
    """A builder as in pyspark.sql.connect.session."""

    class ConnectSession:
        __module__ = "pyspark.sql.connect.session"
        client = SimpleNamespace(is_closed=False)

        class Builder:
            def create(self):
                return ConnectSession()

            def getOrCreate(self):
                return self.create()

    return hooked("pyspark.sql.connect.session", ConnectSession).Builder()


def test_the_first_connect_session_is_attached_once(attached):
    builder = connect_builder()
    created = [builder.getOrCreate(), builder.create()]

    assert attached.sessions == created[:1]


def test_beside_a_watched_context_a_connect_session_is_not_attached(attached):
    context = SparkContextDouble()
    first = classic_session()(context)
    connect_builder().getOrCreate()

    assert attached.sessions == [first]
