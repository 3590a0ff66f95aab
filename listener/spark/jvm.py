"""The driver's JVM: whether it lives, its errors, its version, and our classes in it."""

from __future__ import annotations

import logging
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import Any, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from ...core.redaction import redact

log = logging.getLogger("querypulse")


NETWORK_ERRORS = (Py4JNetworkError, ConnectionError, EOFError)
"""Raised by a command to a JVM that has ended or cannot be reached."""
CONNECT_SECONDS = 1.0
SHELL_BASE = 128
TERMINATED = frozenset(
    code for number in (signal.SIGTERM, signal.SIGINT) for code in (SHELL_BASE + number, -number)
)
"""Exit codes of a JVM that ran its shutdown hooks after a signal, or that a signal ended before."""


def is_gone(gateway: Any) -> bool:
    """Whether the JVM behind a Py4J gateway has ended.

    A JVM that this process started has ended when its process has (``gateway.proc``, set by
    PySpark's ``launch_gateway``); any other JVM when its gateway refuses a connection. A slow
    JVM has not ended.
    """
    # Use vars(): a gateway returns a Java member for every attribute that it does not have.
    process = vars(gateway).get("proc")
    if process is not None and process.poll() is not None:
        return True
    parameters = gateway.gateway_parameters
    try:
        with socket.create_connection((parameters.address, parameters.port), CONNECT_SECONDS):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def was_terminated(gateway: Any) -> bool:
    """Whether SIGTERM or SIGINT has ended a JVM that this process started: its exit code says so.

    Where the JVM started this process, nobody here knows its exit code.
    """
    process = vars(gateway).get("proc")
    return process is not None and process.poll() in TERMINATED


# PySpark converts some Java exceptions, such as an IllegalArgumentException, into its own. A lost
# connection (Py4JNetworkError) is included: Py4J drops it when a file system lacks a class.
THROWN = (Py4JError, PySparkException)


def active_runs(spark: Any) -> Any:
    """The active runs of all classic sessions by query id, a Java ``Map``; stable in 3.5 to 4.3."""
    return spark._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001 - private


class NoFieldError(LookupError):
    """A class of Spark or of a connector, in this version, has no such field."""


def private_field(java: Any, name: str) -> Any:
    """The value of a private field, declared in the object's class or a superclass.

    Raises:
        NoFieldError: there is no such field.

    """
    declaring = java.getClass()
    while declaring is not None:
        with suppress(Py4JJavaError):
            field = declaring.getDeclaredField(name)
            field.setAccessible(True)
            return field.get(java)
        declaring = declaring.getSuperclass()
    raise NoFieldError(f"{java.getClass().getName()} has no {name}")


REASON_CHARACTERS = 200


def reason_of(error: Exception) -> str:
    """The Java exception's own line from the text of Py4J or PySpark, redacted."""
    java = re.search(r"^: (.*)", str(error), re.MULTILINE)
    line = java.group(1) if java else str(error).partition("\n")[0]
    return redact(line)[:REASON_CHARACTERS] or type(error).__name__


@contextmanager
def java_errors(of: type[Exception]) -> Iterator[None]:
    """Raise any Java exception, or a missing field, as one of type ``of``, in one redacted line."""
    try:
        yield
    except (*THROWN, NoFieldError) as error:
        raise of(reason_of(error)) from error


T = TypeVar("T")
D = TypeVar("D")


class OptionalCalls:
    """Returns an answer or a default; ``missing`` names each refused detail, logged once."""

    def __init__(self) -> None:
        self.missing: set[str] = set()

    def ask(self, name: str, call: Callable[[], T], default: D) -> T | D:
        """Return one detail; an error in the call affects only this detail.

        Raises:
            Py4JNetworkError, ConnectionError, EOFError: the JVM does not answer.

        """
        try:
            return call()
        except NETWORK_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 - an odd answer is any error
            if name not in self.missing:
                self.missing.add(name)
                log.warning("querypulse: Spark does not report %s: %s", name, reason_of(error))
            return default


_IMPORT = re.compile(r"^import .*;$", re.MULTILINE)
COMPILER = "org.codehaus.janino.SimpleCompiler"
SOURCES = (
    "EventQueue",
    "JobCounter",
    "TaskCounter",
    "LivingRuns",
    "Executions",
    "ConnectSessions",
    "DriverHeap",
    "Neighbours",
    "Watchers",
    "Calls",
)


def compile_in_driver(jvm: Any) -> Any:
    """Compile this package's Java; return the ``Class`` of ``EventQueue``.

    Spark compiles its generated code with Janino, so every driver has it. The classes and their
    loader can be collected once nothing refers to them.

    Raises:
        OSError: a source is missing, for example in a package shipped without its data.
        Py4JError: this driver forbids compiling, or rejects the class.
        Py4JNetworkError: the JVM does not answer.

    """
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = loader.loadClass(COMPILER).newInstance()
    compiler.setParentClassLoader(loader)
    # Py4J caches methods by class name and would call those of an earlier class.
    suffix = uuid4().hex
    compiler.cook(java_source(suffix))
    return compiler.getClassLoader().loadClass(f"{SOURCES[0]}_{suffix}")


def java_source(suffix: str) -> str:
    """All sources as one text, as Janino requires, with the suffix added to each class name.

    Raises:
        OSError: a source is missing.

    """
    folder = files(__package__)
    sources = [folder.joinpath(f"{name}.java").read_text(encoding="utf-8") for name in SOURCES]
    imports = dict.fromkeys(line for source in sources for line in _IMPORT.findall(source))
    text = "\n".join([*imports, *(_IMPORT.sub("", source) for source in sources)])
    return re.sub(rf"\b({'|'.join(SOURCES)})\b", rf"\1_{suffix}", text)


FIELD = "\x1f"
RECORD = "\x1e"
GROUP = "\x1d"
"""They end the fields and the records, and divide the answers, in what our Java classes write."""


# What differs between supported versions is found by trying, because vendors backport: the classes
# in Java call methods by name, and each path of events has a fallback.
OLDEST = (3, 5)
"""The first with ``onQueryIdle`` and with a listener API that PySpark supports on every path."""
_NUMBERS = re.compile(r"(\d+)\.(\d+)")


class UnsupportedSparkError(RuntimeError):
    """Spark is older than the oldest version that is supported."""


def require_supported(version: str) -> None:
    """Accept the text of ``spark.version``, also where it is a vendor's and starts otherwise.

    Raises:
        UnsupportedSparkError: it is older than ``OLDEST``.

    """
    numbers = _NUMBERS.match(version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UnsupportedSparkError(
            f"Spark {version} is too old: querypulse needs {oldest} or newer"
        )
