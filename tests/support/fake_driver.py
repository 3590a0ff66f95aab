"""A fake Spark driver for tests that need a session and no JVM. Its parts fail on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from querypulse.listener.spark.health_listener import WRAPPER
from querypulse.listener.spark.jvm import COMPILER, FIELD, RECORD

GIVEN = "\x1d"
"""In an answer, a placeholder for the number of events given so far."""
SHARED_QUEUE = "queue.streams.numDroppedEvents"


def answer(
    *events: tuple,
    now=0,
    waiting=0,
    given: object = GIVEN,
    dropped=(0, 0, 0),
    terminated=False,
    watchers="",
) -> str:
    """The result of ``EventQueue.take`` in the JVM.

    Event: kind, arrival, session, trigger, checkpoint, replaced run, JSON.
    """
    head = [now, waiting, given, *dropped, str(terminated).lower(), watchers]
    return "".join(FIELD.join(map(str, record)) + RECORD for record in (head, *events))


class JavaListener:
    """A listener in the JVM, perhaps around a Python object; it equals only itself."""

    def __init__(self, proxy: object = None, name: str = "com.acme.Lineage") -> None:
        self.proxy = proxy
        self.name = name

    def getClass(self) -> Any:
        return SimpleNamespace(getName=lambda: self.name)

    def equals(self, other: object) -> bool:
        return self is other


class Manager:
    """The ``StreamingQueryManager`` of a session, with a foreign listener."""

    def __init__(self, *listeners: object) -> None:
        self.listeners = [JavaListener(), *listeners]
        self.added: list[object] = []
        self.forgets = False
        """Whether it accepts a listener and does not register it."""
        self.refusal: Exception | None = None

    def hashCode(self) -> int:
        return id(self)

    def listListeners(self) -> list[object]:
        return list(self.listeners)

    def addListener(self, listener: object) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.added.append(listener)
        if not self.forgets:
            self.listeners.append(listener)

    def removeListener(self, listener: object) -> None:
        if self.refusal is not None:
            raise self.refusal
        if listener in self.listeners:
            self.listeners.remove(listener)


class Execution:
    """A running query of one session."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager

    def sparkSession(self) -> Execution:
        return self

    def streams(self) -> Manager:
        return self.manager


class JavaQueue:
    """``EventQueue.java``: returns the ``answers`` of the test and records its calls."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.answers: list[str] = []
        self.waits: list[int] = []
        self.claims: list[str] = []
        self.wakes = self.closes = self.given = 0
        self.listener = JavaListener()
        self.prepared: tuple = ()
        self.sums_since: list[int] = []
        self._woken = threading.Event()

    def prepare(self, *arguments: object) -> None:
        self.prepared = arguments

    def listenOnBus(self, bus: FakeBus) -> bool:
        self.driver.require("bus")
        if not bus.forgets:
            bus.queues.append(self)
        bus.added += 1
        return self in bus.queues

    def busHealth(self) -> str:
        bus = self.driver.bus
        return f"{str(self in bus.queues).lower()}{FIELD}{bus.dropped}{bus.full_queues}"

    def sessionListener(self) -> JavaListener:
        return self.listener

    def claim(self, session: str) -> str:
        self.claims.append(session)
        return f"1:{session}"

    def wake(self) -> None:
        self.wakes += 1
        self._woken.set()

    def close(self) -> None:
        self.closes += 1
        if self in self.driver.bus.queues:
            self.driver.bus.queues.remove(self)
        self._woken.set()

    def take(self, wait_millis: int) -> str:
        self.waits.append(wait_millis)
        if not self.answers:
            self._woken.wait(wait_millis / 1000)
            self._woken.clear()
        text = self.answers.pop(0) if self.answers else answer()
        self.given += text.count(RECORD) - 1
        return text.replace(GIVEN, str(self.given))

    def executions(self) -> Any:
        return self.driver.executions

    def livingRuns(self) -> str:
        return f"false{RECORD}"

    def taskSums(self, since: int) -> str:
        self.sums_since.append(since)
        return f"{since + 1}{RECORD}"

    def jobCounts(self) -> str:
        return f"7{RECORD}id-a{FIELD}3{FIELD}1{FIELD}40{FIELD}2{RECORD}"


class FakeBus:
    """Spark's listener bus: its queues, and its dropped events."""

    def __init__(self, driver: FakeDriver) -> None:
        self.queues: list[JavaQueue] = []
        self.added = 0
        self.forgets = False
        self.dropped = 0
        self.shared_drops: dict[str, int] = {SHARED_QUEUE: 0}
        self.full_queues = ""
        self._driver = driver

    def metrics(self) -> Any:
        return SimpleNamespace(metricRegistry=lambda: self)

    def counter(self, name: str) -> Any:
        self._driver.require("metrics")
        return SimpleNamespace(getCount=lambda: self.shared_drops[name])


def python_jvm(wrapper: Callable[[Any], Any] = JavaListener) -> Any:
    """The parts of ``SparkContext._jvm`` that a Python listener needs."""
    return SimpleNamespace(**{WRAPPER: wrapper})


class FakeDriver:
    """A ``SparkSession``, its context and its JVM; ``java_errors`` has the error of each part.

    Parts: ``janino``, ``bus`` (at the listener), ``listener_bus`` (at the bus itself), ``metrics``,
    ``proxy``.
    """

    version = "4.0.0"

    def __init__(self, **java_errors: Exception) -> None:
        self.java_errors: dict[str, Exception] = java_errors
        self.manager = Manager()
        self.bus = FakeBus(self)
        self.queues: list[JavaQueue] = []
        self.sources: list[str] = []
        self.conf = SimpleNamespace(get=lambda name, default=None: default)
        self.spark_conf: dict[str, str] = {}
        self.executions = object()
        self.waits: list[float] = []
        self.streams = SimpleNamespace(awaitAnyTermination=self._await_any_termination, active=[])
        self.has_ended = True
        """Whether a query of the session has ended, as ``awaitAnyTermination`` knows it."""
        self._jsc = SimpleNamespace(sc=lambda: self)
        self._jsparkSession = SimpleNamespace(
            sharedState=lambda: SimpleNamespace(activeStreamingQueries=lambda: self.executions),
            sessionUUID=lambda: "session-1",
            streams=lambda: self.manager,
            conf=lambda: SimpleNamespace(getAll=lambda: SimpleNamespace(mkString=self._conf)),
        )
        utils = SimpleNamespace(getConfiguredLocalDirs=lambda _conf: ["/tmp"])
        jvm = SimpleNamespace(java=self._java(), **{"org.apache.spark.util.Utils": utils})
        self.sparkContext = FakeContext(self, jvm)

    def require(self, part: str) -> None:
        """Raise the error that the test set for this part."""
        if part in self.java_errors:
            raise self.java_errors[part]

    @property
    def queue(self) -> JavaQueue:
        (queue,) = self.queues
        return queue

    def isStopped(self) -> bool:
        return self.sparkContext._jsc is None

    def listenerBus(self) -> FakeBus:
        self.require("listener_bus")
        return self.bus

    def _await_any_termination(self, timeout: float) -> bool:
        self.waits.append(timeout)
        return self.has_ended

    def _conf(self, separator: str) -> str:
        return separator.join(f"{key} -> {text}" for key, text in self.spark_conf.items())

    def _java(self) -> Any:
        """The parts of ``java.*`` that compile our classes."""
        compiler = SimpleNamespace(
            setParentClassLoader=lambda loader: None,
            cook=self.sources.append,
            getClassLoader=lambda: SimpleNamespace(loadClass=lambda name: _class(self._queue)),
        )
        loader = SimpleNamespace(loadClass=lambda name: self._compiler(name, compiler))
        thread = SimpleNamespace(getContextClassLoader=lambda: loader)
        current = SimpleNamespace(currentThread=lambda: thread)
        return SimpleNamespace(lang=SimpleNamespace(Thread=current))

    def _compiler(self, name: str, compiler: Any) -> Any:
        assert name == COMPILER
        self.require("janino")
        return _class(lambda: compiler)

    def _queue(self) -> JavaQueue:
        self.queues.append(JavaQueue(self))
        return self.queues[-1]


class FakeContext:
    """PySpark's ``SparkContext``, which drops ``_jsc`` in ``stop()``."""

    def __init__(self, driver: FakeDriver, jvm: Any) -> None:
        self.appName = "etl"
        self._jvm = jvm
        self._jsc: Any = SimpleNamespace(sc=lambda: driver)
        self._gateway = object()

    def stop(self) -> None:
        self._jsc = None


def _class(new: Callable[[], Any]) -> Any:
    return SimpleNamespace(newInstance=new)
