"""``querypulse connect-server``, without Spark: its options, its errors, and how it ends."""

from __future__ import annotations

import os
import re
import signal
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from querypulse.commands import cli, connect_server
from querypulse.commands.connect_server import (
    PORT,
    SUBMIT_OPTIONS,
    SUBMIT_VARIABLE,
    end_by_signal,
    open_port,
    submit_arguments,
)
from querypulse.core import CommandError
from querypulse.sidecar.session import CONNECT_SERVICE

USAGE_ERROR = 2
BIND = "An error occurred\n: java.net.BindException: Failed to bind to address 0.0.0.0:15002"
BIND_OF_3_5 = "An error occurred\n: java.io.IOException: Failed to bind to address 0.0.0.0:15002"

pytestmark = pytest.mark.usefixtures("clean_environment")


class MissingClass:
    """What Py4J returns for the name of a class that is not there."""

    def __getattr__(self, name):
        return MissingClass()

    def __call__(self, *_):
        raise TypeError("'JavaPackage' object is not callable")


class FakeService:
    """Spark's Connect server; ``refusal`` is raised when it is started."""

    def __init__(self, refusal=None):
        self.refusal = refusal
        self.starts = 0

    def start(self, _context):
        if self.refusal is not None:
            raise self.refusal
        self.starts += 1

    def localPort(self):
        return 25002


class FakeSpark:
    """A classic session, with what the command asks of it."""

    version = "3.5.9"

    def __init__(self, service=None, **conf):
        conf = {name.replace("_", "."): value for name, value in conf.items()}
        self.service = service or FakeService()
        self.conf = SimpleNamespace(get=lambda name, default=None: conf.get(name, default))
        properties = SimpleNamespace(versionNumberString=lambda: "2.12.18")
        scala = SimpleNamespace(util=SimpleNamespace(Properties=properties))
        module = SimpleNamespace(**{"MODULE$": self.service})
        jvm = SimpleNamespace(scala=scala, **{CONNECT_SERVICE: module})
        self.is_stopped = False
        self._jsc = SimpleNamespace(sc=lambda: self)
        self.sparkContext = SimpleNamespace(_jvm=jvm, _jsc=self._jsc, _gateway=None)

    def isStopped(self):
        if isinstance(self.is_stopped, Exception):
            raise self.is_stopped
        return self.is_stopped


@pytest.fixture
def given(monkeypatch):
    """What the command line hands over to the command."""
    received = []

    def serve(environment, **arguments):
        received.append(arguments)
        return 0

    monkeypatch.setattr(cli, "connect_server", serve)
    return received


@pytest.fixture(autouse=True)
def signals():
    """Restore the handlers of signals, and the variable, which the command sets."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    handlers = [signal.getsignal(number) for number in numbers]
    variable = os.environ.get(SUBMIT_VARIABLE)
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)
    if variable is None:
        os.environ.pop(SUBMIT_VARIABLE, None)


# -- options --------------------------------------------------------------------------------------


def test_options_of_spark_submit_are_taken_each_as_often_as_it_is_given(given):
    words = ["--conf", "a=1", "--port", "0", "--conf", "b=2", "--driver-memory", "2g"]
    assert cli.main(["connect-server", *words]) == 0
    (arguments,) = given
    assert arguments.pop("port") == 0
    assert arguments.pop("conf") == ["a=1", "b=2"]
    assert arguments.pop("driver_memory") == ["2g"]
    assert set(arguments) == {name.replace("-", "_") for name in SUBMIT_OPTIONS} - {
        "conf",
        "driver_memory",
    }
    assert not any(arguments.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "65536"], "'65536': allowed are 0 to 65535"),
        (["--port", "-1"], "'-1': allowed are 0 to 65535"),
        (["--port", "²"], "'²': allowed are 0 to 65535"),
        (["--port", "sparks"], "'sparks': allowed are 0 to 65535"),
        (["--maste", "local"], "--maste; did you mean '--master'?"),
        (["--deploy-mode", "cluster"], "unrecognized arguments: --deploy-mode"),
        (["--class", "com.acme.Job"], "unrecognized arguments: --class"),
        (["--remote", "sc://host"], "unrecognized arguments: --remote"),
        (["job.py"], "--help lists what is allowed"),
        (["--conf"], "expected one argument"),
    ],
)
def test_option_that_makes_no_server_is_an_error_that_names_it(given, capsys, words, message):
    with pytest.raises(SystemExit) as end:
        cli.main(["connect-server", *words])
    assert end.value.code == USAGE_ERROR
    assert message in capsys.readouterr().err
    assert given == []


def submitted(given="", **options):
    return submit_arguments(given, options)


def test_options_follow_those_of_the_environment_and_win():
    inherited = "--master yarn --conf 'spark.x=a b' pyspark-shell"
    assert submitted(inherited, name=["orders"], conf=["spark.x=c d"]).endswith(
        "--master yarn --conf 'spark.x=a b' --name orders --conf 'spark.x=c d' pyspark-shell"
    )


NAMED = "--conf 'spark.app.name=Spark Connect server'"


@pytest.mark.parametrize(
    ("inherited", "options", "words"),
    [
        ("", {}, ""),
        ("--name orders pyspark-shell", {}, " --name orders"),
        ("--name=orders pyspark-shell", {}, " --name=orders"),
        ("", {"name": ["orders"]}, " --name orders"),
        ("", {"conf": ["spark.app.name=orders"]}, " --conf spark.app.name=orders"),
    ],
)
def test_application_is_named_as_spark_names_its_server_before_any_name_that_is_given(
    inherited, options, words
):
    """To spark-submit, ``--name`` is more than a conf, and a later conf more than an earlier one."""
    assert submitted(inherited, **options) == f"{NAMED}{words} pyspark-shell"


def test_inherited_options_that_no_shell_could_read_are_an_error_that_names_them():
    with pytest.raises(CommandError, match="PYSPARK_SUBMIT_ARGS: No closing quotation"):
        submitted("--name it's pyspark-shell")


def test_port_and_options_reach_spark_and_nothing_makes_the_session_a_client(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    monkeypatch.setattr(connect_server, "require_spark", lambda who: None)

    def refuse():
        raise CommandError("enough")

    monkeypatch.setattr(connect_server, "_started_spark", refuse)
    with pytest.raises(CommandError, match="enough"):
        connect_server.connect_server({}, 0, master=["local[2]"], conf=["a=b"])

    assert os.environ[SUBMIT_VARIABLE] == (
        f"{NAMED} --master 'local[2]' --conf a=b --conf {PORT}=0 pyspark-shell"
    )
    assert "SPARK_REMOTE" not in os.environ


# -- the port -------------------------------------------------------------------------------------


def test_port_is_opened_and_its_address_is_the_one_that_spark_binds():
    spark = FakeSpark(spark_driver_host="10.0.0.7")
    assert open_port(spark) == "sc://10.0.0.7:25002"
    assert spark.service.starts == 1
    bound = FakeSpark(spark_driver_host="10.0.0.7", spark_connect_grpc_binding_address="127.0.0.1")
    assert open_port(bound) == "sc://127.0.0.1:25002"


def test_port_that_sparks_plugin_has_opened_is_not_opened_again():
    plugins = "com.acme.Plugin,org.apache.spark.sql.connect.SparkConnectPlugin"
    spark = FakeSpark(spark_plugins=plugins, spark_driver_host="h")
    assert open_port(spark) == "sc://h:25002"
    assert spark.service.starts == 0


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (Py4JError(BIND), "port 15002 cannot be opened: is it taken? Give another --port"),
        (Py4JError(BIND_OF_3_5), "port 15002 cannot be opened: is it taken? Give another --port"),
        (Py4JError("x\n: com.acme.OddError: no"), "15002 cannot be opened: com.acme.OddError: no"),
    ],
)
def test_port_that_cannot_be_opened_is_named_with_the_reason(refusal, message):
    with pytest.raises(CommandError, match=re.escape(message)):
        open_port(FakeSpark(FakeService(refusal)))


def test_spark_without_the_server_names_the_package_that_has_it():
    spark = FakeSpark()
    setattr(spark.sparkContext._jvm, CONNECT_SERVICE, MissingClass())
    package = re.escape("org.apache.spark:spark-connect_2.12:3.5.9")
    with pytest.raises(CommandError, match=f"--packages {package}"):
        open_port(spark)


# -- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_server_and_not_the_process(number):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ended = end_by_signal()
    assert not ended.is_set()
    os.kill(os.getpid(), number)
    assert ended.is_set()


def test_sigterm_and_only_that_is_announced_by_the_handler_of_the_sidecar():
    announced = []
    signal.signal(signal.SIGTERM, lambda number, _: announced.append(number))
    end_by_signal()
    os.kill(os.getpid(), signal.SIGINT)
    assert announced == []
    os.kill(os.getpid(), signal.SIGTERM)
    assert announced == [signal.SIGTERM]


def waited(spark, monkeypatch):
    monkeypatch.setattr(connect_server, "CHECK_SECONDS", 0.01)
    return connect_server._wait(spark, end_by_signal())


def test_server_whose_spark_has_ended_ends_with_1(monkeypatch, capsys):
    spark = FakeSpark()
    spark.is_stopped = True
    assert waited(spark, monkeypatch) == 1
    assert "Spark has ended" in capsys.readouterr().err


@pytest.mark.parametrize("is_gone", [True, False])
def test_only_a_jvm_that_has_ended_ends_the_server_not_one_that_is_slow(monkeypatch, is_gone):
    spark = FakeSpark()
    spark.is_stopped = Py4JNetworkError("no answer")
    asked = []

    def has_gone(_gateway):
        asked.append(1)
        if not is_gone:
            os.kill(os.getpid(), signal.SIGTERM)
        return is_gone

    monkeypatch.setattr("querypulse.listener.spark.jvm.is_gone", has_gone)
    assert waited(spark, monkeypatch) == (1 if is_gone else 0)
    assert asked
