"""The way of an event, without Spark: mailbox, reader, mailbox, state, judgement, board, page."""

import time
from collections.abc import Callable
from typing import Any

from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.lifecycle.lifecycle import Lifecycle, Terms
from querypulse.alerting.policy import Policy
from querypulse.exporter.board import Board, Monitor
from querypulse.exporter.exposition import as_text
from querypulse.exporter.query_collector import QueryCollector
from querypulse.listener.events import EventKind
from querypulse.listener.guard import Guard
from querypulse.listener.health_listener import Heard
from querypulse.listener.mailbox import Mailbox
from querypulse.listener.probing import Context
from querypulse.listener.reader import Arrived, EventReader
from querypulse.listener.state import State
from querypulse.sidecar.parts import MAILBOX_CAPACITY

APP = "scale"


class Line:
    """Ours, from the mailbox on; ``now`` moves on a second with each batch."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.state = State(self.now)
        self._guard = Guard()
        self._heard: Mailbox[Any] = Mailbox(MAILBOX_CAPACITY)
        self._arrived: Mailbox[Any] = Mailbox(MAILBOX_CAPACITY)
        self._reader = EventReader(
            self._heard,
            self._arrived,
            self._guard,
            context=lambda: Context.RUNNING,
            on_started=lambda: None,
        )
        self._lifecycle = Lifecycle(APP, "https://example.test/runbooks", Terms())

    def feed(self, texts: list[str]) -> None:
        """Take in events, as many at a time as the mailbox holds."""
        for first in range(0, len(texts), MAILBOX_CAPACITY):
            for text in texts[first : first + MAILBOX_CAPACITY]:
                self._heard.put(Heard(EventKind.PROGRESS, text, self.now), lifecycle=False)
            self._heard.wake()
            self._reader.step()
            for item in self._arrived.take(0.0):
                if isinstance(item, Arrived):
                    self.state.hear(item.event, item.at, item.context)
        if self._heard.dropped or self._reader.dropped or self._guard.errors:
            raise RuntimeError("an event was lost")

    def tick(self) -> Board:
        """One round of the worker: judge all, and publish."""
        snapshot = self.state.snapshot(self.now)
        judgement = evaluate(snapshot, self.now, Policy())
        self._lifecycle.update(judgement, snapshot, self.now, time.time(), ())
        return Board(
            app=APP,
            spark_version="",
            snapshot=snapshot,
            verdicts=judgement.verdicts,
            alerts=self._lifecycle.alerts,
            monitor=Monitor(),
            wall=time.time(),
        )


def scrape_of(board: Board) -> Callable[[], bytes]:
    """What a scrape is answered, without the way there."""
    collector = QueryCollector(lambda: board)
    return lambda: as_text(collector.collect())
