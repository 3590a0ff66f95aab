"""Who is compared: PySpark's own listener, querypulse's, a peer, and a proxy that does nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from querypulse.listener import HealthListener
from querypulse.listener.guard import Guard
from querypulse.listener.loop import Loop
from querypulse.listener.mailbox import Mailbox
from querypulse.listener.probing import Context
from querypulse.listener.reader import EventReader
from querypulse.sidecar.parts import MAILBOX_CAPACITY
from querypulse.sidecar.worker import TICK_SECONDS

from ..common.listeners import NOTHING, OURS, PEER, STOCK, NothingListener, StockListener, peer
from ..common.pushgateway import pushgateway

MEANING = {
    STOCK: "a pyspark StreamingQueryListener with empty methods",
    PEER: "version 0.1.3 with an instant Pushgateway on loopback",
    OURS: "querypulse's HealthListener, its reader thread at work",
    NOTHING: "a Py4J proxy with empty methods: the least for Python",
}
NAMES = tuple(MEANING)


@contextmanager
def all_candidates() -> Iterator[dict[str, Any]]:
    """Each candidate's listener by name; what theirs needs runs until the end."""
    with _ours() as ours, pushgateway() as gateway:
        yield {
            STOCK: StockListener(),
            PEER: peer(gateway.url),
            OURS: ours,
            NOTHING: NothingListener(),
        }
        if not gateway.taken().answered:
            raise RuntimeError("the peer has pushed nothing")


@contextmanager
def _ours() -> Iterator[HealthListener]:
    guard = Guard()
    heard: Mailbox[Any] = Mailbox(MAILBOX_CAPACITY)
    arrived: Mailbox[Any] = Mailbox(MAILBOX_CAPACITY)
    listener = HealthListener(heard, guard, lambda: None)
    reader = EventReader(
        heard, arrived, guard, context=lambda: Context.RUNNING, on_started=lambda: None
    )
    loops = [
        Loop("reader", reader.step, guard),
        Loop("worker", lambda: arrived.take(TICK_SECONDS), guard),
    ]
    for loop in loops:
        loop.start()
    try:
        yield listener
    finally:
        for loop in loops:
            loop.stop()
    lost = (guard.errors, heard.dropped, reader.dropped)
    if listener.path != "raw" or any(lost):
        raise RuntimeError(f"not our normal way: {listener.path}, lost {lost}")
