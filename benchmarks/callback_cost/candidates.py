"""Who is compared: PySpark's own listener, querypulse's, a peer, and a proxy that does nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from querypulse.core.guard import Guard
from querypulse.core.threads import Loop
from querypulse.listener.event_reader import EventReader
from querypulse.listener.mailbox import Mailbox
from querypulse.listener.probe import Context
from querypulse.listener.spark.event_queue import EventQueue
from querypulse.sidecar.runtime import MAILBOX_CAPACITY
from querypulse.sidecar.worker import TICK_SECONDS

from ..common.listeners import (
    NOTHING,
    OURS,
    PEER,
    STOCK,
    NothingListener,
    StockListener,
    peer,
)
from ..common.pushgateway import pushgateway

MEANING = {
    STOCK: "a pyspark StreamingQueryListener with empty methods",
    PEER: "version 0.1.3 with an instant Pushgateway on loopback",
    NOTHING: "a Py4J proxy with empty methods: the least for Python",
}
"""Those whose callback runs on the one thread that all streaming listeners share."""
SHARED = tuple(MEANING)
OWN = f"{OURS}, CPU of its own queue's thread"
"""The normal way: its callback runs on a thread of its own."""
NAMES = (*SHARED, OWN)
JOIN_SECONDS = 10.0


class Candidates(NamedTuple):
    """What is listened with: listeners by name, and the queue that the bus feeds."""

    shared: dict[str, Any]
    own: EventQueue


@contextmanager
def all_candidates(spark: SparkSession) -> Iterator[Candidates]:
    """Everything that takes a turn; what it needs runs until the end."""
    with _emptied(spark) as own, pushgateway() as gateway:
        shared = {
            STOCK: StockListener(),
            PEER: peer(gateway.url),
            NOTHING: NothingListener(),
        }
        yield Candidates(shared, own)
        if not gateway.taken().answered:
            raise RuntimeError("the peer has pushed nothing")


@contextmanager
def _emptied(spark: SparkSession) -> Iterator[EventQueue]:
    """A queue in the JVM, and the two threads that take and decode its events, as ours do."""
    guard, queue = Guard(), EventQueue(spark)
    arrived: Mailbox[Any] = Mailbox(MAILBOX_CAPACITY)
    reader = EventReader(
        queue, arrived, guard, context=lambda: Context.RUNNING, on_started=lambda: None
    )
    loops = [
        Loop("reader", reader.step, guard),
        Loop("worker", lambda: arrived.take(TICK_SECONDS), guard),
    ]
    for loop in loops:
        loop.start()
    try:
        yield queue
    finally:
        for loop in loops:
            loop.stop()
        queue.wake()
        for loop in loops:
            loop.join(JOIN_SECONDS)
        queue.close()
    lost = {**reader.drops, **queue.drops, **guard.errors}
    if any(lost.values()):
        raise RuntimeError(f"events were lost: {lost}")
