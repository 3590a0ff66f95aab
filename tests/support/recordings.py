"""Recordings of incidents, written as a driver writes them: four stories, and what they are made of.

Their states are real ones: a ``Tape`` applies Spark's JSON and the probe's reports to the state of a
driver. Second 0 is ``MONDAY``.
"""

from __future__ import annotations

import json

from support.story import MONDAY, Story, processing, run

from querypulse.alerting.alert import recording_id
from querypulse.core.text import rfc3339
from querypulse.listener.events import EventKind, decode
from querypulse.listener.probe_report import JobCounts, LongTask, SlotUse
from querypulse.recording.lines import (
    VERSION,
    AlertChanged,
    Begin,
    Change,
    End,
    Event,
    How,
    Notification,
    Recording,
    Request,
    SeenFrom,
    Silenced,
    Stack,
    State,
    Thinned,
    encode,
    patch_between,
)
from querypulse.recording.states import driver_state, query_state

APP = "orders"
MISTAKE = (
    "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: "
    "Traceback (most recent call last):\n"
    '  File "/job/billing.py", line 41, in write\n'
    "    raise ValueError('negative amount')\n"
    "ValueError: negative amount\n"
)
BROKER_DOWN = (
    "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment"
)


def spark_progress(query, run, *, batch, at, seconds, rows, end, latest, memory=None):
    """Spark's JSON of a batch that reads topic ``t``, of one partition."""
    operators = [{"operatorName": "stateStoreSave", "memoryUsedBytes": memory}] if memory else []
    return {
        "progress": {
            "id": f"id-{query}",
            "runId": f"{query}-{run}",
            "name": query,
            "timestamp": rfc3339(MONDAY + at - seconds),
            "batchId": batch,
            "numInputRows": rows,
            "durationMs": {"addBatch": int(seconds * 900), "triggerExecution": int(seconds * 1000)},
            "stateOperators": operators,
            "sources": [
                {
                    "description": "KafkaV2[Subscribe[t]]",
                    "endOffset": {"t": {"0": end}},
                    "latestOffset": {"t": {"0": latest}},
                    "numInputRows": rows,
                }
            ],
            "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
        }
    }


class Tape:
    """The lines of one recording, in the order of the calls; ``at`` is seconds after ``MONDAY``.

    ``query`` is its subject; a tape that ``continues`` another one is a later process, whose
    monotonic clock begins again at ``began``.
    """

    def __init__(self, query="billing", *, at, continues=None, seen_from=SeenFrom.DRIVER):
        first = recording_id({"app": APP, "query": query}, MONDAY + at)
        begin = Begin(
            at=MONDAY + at,
            version=VERSION,
            id=first if continues is None else f"{continues.begin.id}.2",
            app=APP,
            query=query,
            seen_from=seen_from,
            process="driver-1" if continues is None else "driver-2",
            querypulse_version="0.1.0",
            spark_version="4.1.3",
            continues="" if continues is None else continues.begin.id,
        )
        self.begin = begin
        self.query = query
        self.story = Story()
        self.began = 0.0 if continues is None else at
        self.lines = []
        self._driver = {}
        self._queries = {}

    @property
    def id(self):
        return self.begin.id

    @property
    def content(self) -> bytes:
        """The file."""
        return encode([self.begin, *self.lines])

    @property
    def recording(self) -> Recording:
        return Recording(self.begin, tuple(self.lines))

    def write_to(self, folder):
        """Write the file into a folder, and return its path."""
        path = folder / f"{self.id}.jsonl"
        path.write_bytes(self.content)
        return path

    # What Spark reports

    def started(self, query, run=1, *, at):
        data = {"id": f"id-{query}", "runId": f"{query}-{run}", "name": query}
        return self._event(query, "started", data | {"timestamp": rfc3339(MONDAY + at)}, at)

    def commit(self, query, run=1, *, batch, at, seconds=2.0, rows=100, lag=0, memory=None):
        end = 100 * (batch + 1)
        offsets = {"end": end, "latest": end + lag}
        data = spark_progress(
            query, run, batch=batch, at=at, seconds=seconds, rows=rows, memory=memory, **offsets
        )
        return self._event(query, "progress", data, at)

    def terminated(self, query, run=1, *, at, exception=None, error_class=None):
        data = {"id": f"id-{query}", "runId": f"{query}-{run}", "exception": exception}
        return self._event(query, "terminated", data | {"errorClassOnException": error_class}, at)

    def _event(self, query, kind, data, at):
        event = decode(EventKind(kind), json.dumps(data))
        self.story.state.apply_event(event, at - self.began)
        return self.add(Event(at=MONDAY + at, query=query, event=kind, data=data))

    def works(self, query, number=1, *, at, batch, **fields):
        """The probe sees the batch in flight; then the state is written."""
        self.story.probe(processing(query, number, batch=batch, **fields), at=at - self.began)
        return self.state(at=at)

    def waits(self, query, number=1, *, at):
        """The probe sees that the query waits for data; then the state is written."""
        self.story.probe(run(query, number), at=at - self.began)
        return self.state(at=at)

    # What querypulse does

    def state(self, *, at):
        """What has changed in the state."""
        now = at - self.began
        snapshot = self.story.snapshot(now)
        driver = driver_state(snapshot, None)
        queries = {query.label: query_state(query) for query in snapshot.queries}
        line = State(
            at=MONDAY + at,
            now=now,
            driver=patch_between(self._driver, driver),
            queries=patch_between(self._queries, queries),
        )
        self._driver = driver
        self._queries = queries
        return self.add(line)

    def alert(self, query, name, *, at, change=Change.OPENED, since=None, **fields):
        """An alert changes; ``reason`` becomes its words, beside its ``evidence``."""
        reason = fields.pop("reason", "")
        evidence = fields.pop("evidence", {})
        does = fields.pop("does", "")
        severity = fields.pop("severity", "critical")
        annotations = {"summary": f"[{APP}] {query} {does}: {reason}", "reason": reason, **evidence}
        suffix = "" if severity == "critical" else "/warning"
        line = AlertChanged(
            at=MONDAY + at,
            change=change,
            incident=f"querypulse/{APP}/{self.query}{suffix}",
            alertname=name,
            query=query,
            severity=severity,
            starts_at=MONDAY + (at if since is None else since),
            annotations=annotations if reason else {},
            **{"code": "failed", **fields},
        )
        return self.add(line)

    def notified(self, receiver="pagerduty", *, at, outcome="delivered", status="firing", **fields):
        incident = f"querypulse/{APP}/{self.query}"
        line = Notification(
            at=MONDAY + at,
            incident=incident,
            receiver=receiver,
            status=status,
            outcome=outcome,
            **fields,
        )
        return self.add(line)

    def stack(self, query, *, at, jvm=(), python=""):
        return self.add(Stack(at=MONDAY + at, query=query, jvm=jvm, python=python))

    def request(self, request, query, *, at, until=None):
        until = None if until is None else MONDAY + until
        return self.add(Request(at=MONDAY + at, request=request, query=query, until=until))

    def silenced(self, *silences, at):
        return self.add(Silenced(at=MONDAY + at, silences=silences))

    def thinned(self, *, at, until, lines):
        return self.add(Thinned(at=MONDAY + at, until=MONDAY + until, lines=lines))

    def end(self, *, at, how=How.RESOLVED):
        return self.add(End(at=MONDAY + at, how=how))

    def add(self, line):
        self.lines.append(line)
        return self


# -- stories ----------------------------------------------------------------------------------

FAILED = "StreamingQueryFailed"
STALLED = "StreamingQueryStalled"
MISTAKE_FACTS = {"failure": {"error_class": "ValueError", "message": "negative amount"}}


def failed_and_restarted() -> Tape:
    """A batch fails in the job's own code; somebody restarts the query 4 minutes later."""
    tape = Tape("billing", at=61)
    tape.started("billing", at=1)
    for batch in range(5):
        tape.commit("billing", batch=batch, at=10.0 + 10 * batch, rows=100 + batch, memory=4096)
    tape.terminated("billing", at=60.5, exception=MISTAKE)
    tape.state(at=61)
    tape.alert(
        "billing",
        FAILED,
        at=61,
        does="failed",
        reason="ValueError: negative amount",
        facts=MISTAKE_FACTS,
    )
    tape.notified("webhook", at=61.2, outcome="transient", error="503: overloaded")
    tape.notified("pagerduty", at=61.4, alerts=(FAILED,))
    tape.notified("webhook", at=66.3, alerts=(FAILED,))
    tape.started("billing", 2, at=300)
    tape.state(at=301)
    tape.commit("billing", 2, batch=5, at=310, seconds=8, rows=2400, memory=8192)
    tape.commit("billing", 2, batch=6, at=320, memory=8192)
    tape.state(at=321)
    tape.alert(
        "billing", FAILED, at=341, change=Change.ENDED, since=61, facts={}, outcome="commits"
    )
    tape.end(at=341)
    tape.notified("pagerduty", at=341.3, status="resolved", alerts=(FAILED,))
    tape.notified("webhook", at=341.5, status="resolved", alerts=(FAILED,))
    return tape


def hung_and_stopped() -> Tape:
    """A task hangs; the warning becomes critical; somebody stops the query and starts it again."""
    tape = Tape("bronze", at=160)
    tape.started("bronze", at=1)
    for batch in range(3):
        tape.commit("bronze", batch=batch, at=10.0 + 20 * batch, rows=500, lag=50 * batch)
    own = JobCounts(
        jobs_started=9,
        jobs_active=1,
        tasks_completed=8,
        tasks_active=1,
        longest=LongTask(12, 3, "host-7", 90.0, 1.5),
    )
    tape.works("bronze", at=70, batch=3)
    tape.works("bronze", at=120, batch=3, own=own, stack=("java.lang.Object.wait",))
    tape.works("bronze", at=160, batch=3, own=own, stack=("java.lang.Object.wait",))
    held = "1 task running (partition 3 of stage 12 on host-7 for 130 s), none finished for 90 s"
    flight = {"batch_id": 3, "seconds": 90.0}
    reason = f"task_running: batch 3 in flight for 90 s, {held}"
    hang = {"code": "task_running", "does": "is stalled"}
    tape.alert(
        "bronze",
        STALLED,
        at=160,
        severity="warning",
        reason=reason,
        facts={"flight": flight},
        **hang,
    )
    tape.stack(
        "bronze",
        at=160,
        jvm=("java.lang.Object.wait", "org.apache.spark.scheduler.JobWaiter.awaitResult"),
        python="/job/bronze.py:12 in write",
    )
    tape.notified("webhook", at=160.5, alerts=(STALLED,))
    tape.works("bronze", at=670, batch=3, own=own, stack=("java.lang.Object.wait",))
    reason = f"task_running: batch 3 in flight for 10 min, {held}"
    tape.alert(
        "bronze",
        STALLED,
        at=670,
        change=Change.CHANGED,
        since=160,
        reason=reason,
        facts={"flight": {"batch_id": 3, "seconds": 600.0}},
        **hang,
    )
    tape.notified("pagerduty", at=670.4, alerts=(STALLED,))
    tape.silenced(
        {"queries": "bronze", "until": MONDAY + 4000, "reason": "known", "app": APP}, at=700
    )
    tape.request("expect_stop", "bronze", at=880, until=1480)
    tape.terminated("bronze", at=900)
    tape.state(at=901)
    tape.started("bronze", 2, at=905)
    tape.commit("bronze", 2, batch=3, at=915, rows=9000, lag=0)
    tape.waits("bronze", 2, at=916)
    tape.alert(
        "bronze",
        STALLED,
        at=946,
        change=Change.ENDED,
        since=160,
        outcome="commits",
        code="task_running",
    )
    tape.end(at=946)
    tape.notified("pagerduty", at=946.5, status="resolved", alerts=(STALLED,))
    return tape


def killed_and_continued() -> list[Tape]:
    """A driver is killed while its query has failed; the next process continues the incident."""
    first = Tape("billing", at=62)
    first.started("billing", at=1)
    first.commit("billing", batch=0, at=10)
    first.terminated("billing", at=60.5, exception=MISTAKE)
    first.state(at=61)
    failed = {"does": "failed", "reason": "ValueError: negative amount", "facts": MISTAKE_FACTS}
    first.alert("billing", FAILED, at=61, **failed)
    first.notified("pagerduty", at=61.4, alerts=(FAILED,))
    second = Tape("billing", at=600, continues=first)
    second.alert("billing", FAILED, at=600, since=61, **failed)
    second.started("billing", 2, at=605)
    second.commit("billing", 2, batch=1, at=620)
    second.state(at=621)
    second.alert("billing", FAILED, at=651, change=Change.ENDED, since=61, outcome="commits")
    second.end(at=651)
    second.notified("pagerduty", at=651.5, status="resolved", alerts=(FAILED,))
    return [first, second]


def group_of_three() -> Tape:
    """Three queries fail together, since their broker is down; one of them waits for slots."""
    names = ("bronze", "silver", "gold")
    tape = Tape("*", at=61)
    for name in names:
        tape.started(name, at=1)
        tape.commit(name, batch=0, at=11)
    busy = JobCounts(jobs_started=3, jobs_active=1)
    slots = SlotUse(total=4, taken=4, holder="id-silver", held=3)
    tape.works("gold", at=50, batch=1, own=busy, slots=slots)
    for second, name in enumerate(names):
        tape.terminated(name, at=60 + second, exception=BROKER_DOWN)
    tape.state(at=62)
    facts = {"failure": {"error_class": "TimeoutException"}}
    reason = "TimeoutException: Timed out waiting for a node assignment"
    for name in names:
        tape.alert(name, FAILED, at=62, does="failed", reason=reason, facts=facts)
    tape.notified("pagerduty", at=62.5, alerts=(FAILED,) * 3)
    tape.thinned(at=70, until=500, lines=430)
    for name in names:
        tape.started(name, 2, at=600)
        tape.commit(name, 2, batch=1, at=610)
    tape.state(at=611)
    for name in names:
        tape.alert(name, FAILED, at=641, change=Change.ENDED, since=62, outcome="commits")
    tape.end(at=641)
    tape.notified("pagerduty", at=641.5, status="resolved", alerts=(FAILED,) * 3)
    return tape


def all_stories() -> list[list[Tape]]:
    """Each story with its parts."""
    return [
        [failed_and_restarted()],
        [hung_and_stopped()],
        killed_and_continued(),
        [group_of_three()],
    ]
