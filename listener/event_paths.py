"""The event paths, the ways in which Spark's events reach us, best first.

============================ ==================================== ==============================
``bus_queue``                a Java listener on a queue of our    all sessions, from their start;
                             own on Spark's listener bus          no Python on Spark's threads
``session_listeners``        the same Java class, added to each   other sessions once the probe
                             session, where the bus refuses it    finds them
``python_proxy``             Py4J's proxy of a Python object,     a thread and a socket for each
                             where Janino is refused              run; a local port without token
``python_callbacks``         PySpark's own listener, where even   as above, and slower
                             the proxy is refused
============================ ==================================== ==============================
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from .bus_path import BusPath
from .event_path import EventPath, NotListeningError
from .event_queue import EventQueue
from .health_listener import HealthListener
from .java_errors import THROWN, reason_of
from .jvm import NETWORK_ERRORS
from .session_paths import ProxyPath, SessionPath

log = logging.getLogger("querypulse")

T = TypeVar("T")


def open_path(spark: Any, listener: HealthListener, *, by_hand: bool) -> EventPath:
    """Listen on the best path that this driver allows.

    Raises:
        Py4JError: the driver allows no path, or the JVM does not answer.
        NotListeningError: Spark does not list the listener just added.

    """
    queue = _unless_refused("a class of ours", lambda: EventQueue(spark))
    if queue is not None:
        for path in (BusPath, SessionPath):
            listen = partial(_listening, path, queue, spark, listener, by_hand=by_hand)
            listening = _unless_refused(path.name, listen)
            if listening is not None:
                return listening
        _unless_refused("an end", queue.close)
    proxy = ProxyPath(spark, listener)
    proxy.listen(by_hand=by_hand)
    return proxy


def _listening(
    path: type[BusPath | SessionPath],
    queue: EventQueue,
    spark: Any,
    listener: HealthListener,
    *,
    by_hand: bool,
) -> EventPath:
    opened = path(queue, spark, listener)
    opened.listen(by_hand=by_hand)
    return opened


def _unless_refused(what: str, action: Callable[[], T]) -> T | None:
    """What ``action`` returns; None where this driver refuses it. A lost JVM still raises."""
    try:
        return action()
    except NETWORK_ERRORS:
        raise
    except (*THROWN, OSError, ValueError, NotListeningError) as error:
        log.warning("querypulse: this driver refuses %s: %s", what, reason_of(error))
        return None
