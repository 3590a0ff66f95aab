"""The Kafka Java client of Spark's connector, through Py4J."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..java_errors import THROWN, reason_of
from .source import SourceError, SourceSilentError

API_SECONDS = 4
_SILENCE = ("TimeoutException", "No resolvable bootstrap", "DisconnectException")


class KafkaJava:
    """Java classes by name, each resolved once, and the containers that calls need."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._found: dict[str, Any] = {}
        self._package = "org.apache.kafka"
        self._seconds = self.java("java.util.concurrent.TimeUnit").SECONDS

    def use_package_of(self, client: Any) -> None:
        """Use the package of a client's class for all classes: a vendor may have moved them."""
        self._package = str(client.getClass().getName()).partition(".clients.")[0]

    def java(self, name: str) -> Any:
        """A class by its full name."""
        if name not in self._found:
            self._found[name] = getattr(self._jvm, name)
        return self._found[name]

    def kafka(self, name: str) -> Any:
        """A class by its name within Kafka's packages."""
        return self.java(f"{self._package}.{name}")

    def array_list(self, *items: Any) -> Any:
        """A Java list."""
        made = self.java("java.util.ArrayList")()
        for item in items:
            made.add(item)
        return made

    def partition(self, partition: str) -> Any:
        """The ``TopicPartition`` for ``topic/0``."""
        topic, _, number = partition.rpartition("/")
        return self.kafka("common.TopicPartition")(topic, int(number))

    def millis(self, seconds: float) -> Any:
        """A Java duration."""
        return self.java("java.time.Duration").ofMillis(int(seconds * 1000))

    def text(self, future: Any) -> str:
        """A future's result as text; the future itself fails after ``API_SECONDS``."""
        return str(future.get(API_SECONDS + 1, self._seconds).toString())


def private_field(java: Any, name: str) -> Any:
    """The value of a private field, declared in the object's class or a superclass.

    Raises:
        SourceError: there is no such field.

    """
    declaring = java.getClass()
    while declaring is not None:
        if name in [field.getName() for field in declaring.getDeclaredFields()]:
            field = declaring.getDeclaredField(name)
            field.setAccessible(True)
            return field.get(java)
        declaring = declaring.getSuperclass()
    raise SourceError(f"{java.getClass().getName()} has no {name}")


@contextmanager
def java_errors() -> Iterator[None]:
    """Raise Java exceptions as ``SourceError``, timeouts as ``SourceSilentError``."""
    try:
        yield
    except THROWN as error:
        silent = any(word in str(error) for word in _SILENCE)
        raise (SourceSilentError if silent else SourceError)(reason_of(error)) from error
