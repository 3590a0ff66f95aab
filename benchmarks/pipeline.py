"""The way of an event through Python, without Spark: from the JVM's answer to the page."""

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import Any
from unittest.mock import MagicMock

from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.incidents.lifecycle import Lifecycle, LifecycleSettings
from querypulse.alerting.policy import Policy
from querypulse.alerting.words.messages import Guidance
from querypulse.core.guard import Guard
from querypulse.exporter.published_state import Monitor, PublishedState
from querypulse.listener.event_reader import EventReader
from querypulse.listener.events import EventKind
from querypulse.listener.mailbox import Arrived, Mailbox
from querypulse.listener.probe_report import Context
from querypulse.listener.spark.event_paths import EventQueue
from querypulse.listener.spark.health_listener import HealthListener
from querypulse.listener.state.state import State
from querypulse.sidecar.runtime import MAILBOX_CAPACITY

from .harness import ROOT

APP = "scale"
ANSWER_CHARACTERS = 7000
"""As ``EventQueue.java``: the event that passes this is the answer's last."""
FIXTURES = ROOT / "tests" / "fixtures"
_FIELD = "\x1f"
_RECORD = "\x1e"
_BATCH_ID = "the batch id"


class EventPipeline:
    """Ours, from the JVM's answers on; ``now`` moves on a second with each batch.

    What Py4J takes to fetch an answer is not in it.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.state = State(self.now)
        self._guard = Guard()
        listener = HealthListener(capacity=1, start=object, start_on=list)
        self._queue = EventQueue(MagicMock(), listener, clock=lambda: self.now)
        # A mock has an attribute of every name: memory is measured by what is reached from here.
        self._queue.release()
        self._queue.java = _Answers(())
        self._arrived: Mailbox[Any] = Mailbox(MAILBOX_CAPACITY)
        self._reader = EventReader(
            self._queue,
            self._arrived,
            self._guard,
            context=lambda: Context.RUNNING,
            poke=lambda: None,
        )
        self._lifecycle = Lifecycle(
            APP, Guidance("https://example.test/runbooks/{alertname}.md"), LifecycleSettings()
        )

    def answers(self, texts: Iterable[str]) -> list[str]:
        """What ``EventQueue.java`` would answer with these progress events."""
        return list(_answers(texts, round(self.now * 1e9)))

    def feed(self, answers: list[str]) -> None:
        """Take in one answer after the other."""
        self._queue.java = _Answers(answers)
        for _ in answers:
            self._reader.step()
            if self._arrived.depth > MAILBOX_CAPACITY // 2:
                self._apply()
        self._apply()
        # What memory is measured of must not hold the JVM's answers: ours keeps none.
        self._queue.java = _Answers(())
        if any(self._reader.drops.values()) or self._guard.errors:
            raise RuntimeError("an event was lost")

    def _apply(self) -> None:
        for item in self._arrived.take(0.0):
            if isinstance(item, Arrived):
                self.state.apply_event(item.event, item.at, item.context)

    def tick(self) -> PublishedState:
        """One round of the worker: evaluate all, and publish."""
        snapshot = self.state.snapshot(self.now)
        evaluation = evaluate(snapshot, self.now, Policy())
        self._lifecycle.update(evaluation, snapshot, self.now, time.time(), ())
        return PublishedState(
            app=APP,
            spark_version="",
            snapshot=snapshot,
            health=evaluation.health,
            alerts=self._lifecycle.alerts,
            monitor=Monitor(),
            wall=time.time(),
        )


class _Answers:
    """Replaces the queue in the JVM."""

    def __init__(self, answers: Iterable[str]) -> None:
        self._answers = iter(answers)

    def take(self, _: int) -> str:
        return next(self._answers)


def _answers(texts: Iterable[str], now: int) -> Iterator[str]:
    nothing_waits_or_was_lost = ("0",) * 5
    nothing_of_a_start = ("",) * 4
    head = _FIELD.join((str(now), *nothing_waits_or_was_lost, "false", "")) + _RECORD
    answer = ""
    for text in texts:
        fields = (EventKind.PROGRESS.value, str(now), *nothing_of_a_start, text)
        answer += _FIELD.join(fields) + _RECORD
        if len(answer) >= ANSWER_CHARACTERS:
            yield head + answer
            answer = ""
    if answer:
        yield head + answer


class RecordedRuns:
    """Runs of so many queries, of all recorded shapes; ``batch`` gives one event of each."""

    def __init__(self, query_ids: Sequence[str]) -> None:
        self.run_ids = new_ids(len(query_ids))
        self._texts = []
        runs = zip(query_ids, self.run_ids, cycle(_shapes()))
        for number, (query_id, run_id, progress) in enumerate(runs):
            ids = {"id": query_id, "runId": run_id, "name": f"query-{number}"}
            text = json.dumps({"progress": {**progress, **ids, "batchId": _BATCH_ID}})
            self._texts.append(text.split(json.dumps(_BATCH_ID)))

    def batch(self, number: int) -> Iterator[str]:
        """The JSON text of each query's progress with this batch."""
        return (f"{before}{number}{after}" for before, after in self._texts)


def new_ids(number: int) -> list[str]:
    """So many ids, as Spark makes them."""
    return [str(uuid.uuid4()) for _ in range(number)]


def _shapes() -> list[dict[str, Any]]:
    """Every batch that was recorded of rate, file and Delta sources, as a listener is given it."""
    progresses = [
        json.loads(row["text"])["progress"]
        for row in _recorded("events-spark-4.3.0.jsonl")
        if (row["kind"], row["shape"]) == ("progress", "json")
    ]
    progresses += [
        json.loads(row["text"])
        for row in _recorded("sources-spark-4.2.0.jsonl")
        if row["source"] == "delta"
    ]
    return [progress for progress in progresses if "addBatch" in progress["durationMs"]]


def _recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / name).read_text().splitlines()]
