"""Events as Spark writes them: recorded ones, logs that a test writes, and replays of these."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

from querypulse.listener.events import EventKind
from querypulse.replay.engine import Change, Replayed, replay_application
from querypulse.replay.log_files import find_applications
from querypulse.replay.recordings import Recordings
from querypulse.replay.terms import terms_of
from querypulse.settings.settings import Settings

BEGAN = 1_790_000_000.0
STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$Query{}Event"
SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution{}"
CONFLICT = "io.delta.exceptions.ConcurrentAppendException: Files were added"


def spark_time(seconds: float) -> str:
    """Seconds after ``BEGAN`` in the format of a streaming event."""
    moment = datetime.fromtimestamp(BEGAN + seconds, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def millis(seconds: float) -> int:
    return round((BEGAN + seconds) * 1000)


class EventLog:
    """One application's log; all times are seconds after ``BEGAN``."""

    def __init__(self, app: str | None = "etl") -> None:
        self.lines: list[str] = []
        if app is not None:
            self.add("SparkListenerLogStart", **{"Spark Version": "4.3.0"})
            self.add(
                "SparkListenerApplicationStart",
                **{"App Name": app, "App ID": "local-1", "Timestamp": millis(0), "User": "etl"},
            )

    def add(self, event: str, **fields: object) -> EventLog:
        self.lines.append(json.dumps({"Event": event, **fields}, separators=(",", ":")))
        return self

    def started(self, query="a", run=1, *, at):
        fields = {"name": query, "timestamp": spark_time(at), "jobTags": []}
        return self.add(STREAMING.format("Started"), **ids(query, run), **fields)

    def commit(self, query="a", run=1, *, batch, at, seconds=1.0, rows=None):
        """A batch committed ``at``, after ``seconds``; its row count, if ``rows`` is given."""
        reported = progress(query, run, batch, at, seconds)
        sources = [] if rows is None else [{"description": "RateStreamV2", "numInputRows": rows}]
        return self.add(STREAMING.format("Progress"), progress=reported | {"sources": sources})

    def commits(self, query="a", run=1, *, since, until, batch=0):
        """A batch every two seconds."""
        while since <= until:
            self.commit(query, run, batch=batch, at=since)
            since, batch = since + 2.0, batch + 1
        return self

    def idle(self, query="a", run=1, *, at):
        return self.add(STREAMING.format("Idle"), **ids(query, run), timestamp=spark_time(at))

    def ended(self, query="a", run=1, *, exception=None):
        return self.add(
            STREAMING.format("Terminated"),
            **ids(query, run),
            exception=exception,
            errorClassOnException=None,
        )

    def work(self, *, at):
        """The end of a SQL execution, which has a timestamp."""
        return self.add(SQL.format("End"), executionId=1, time=millis(at), errorMessage="")

    def stopped(self, *, at):
        return self.add("SparkListenerApplicationEnd", Timestamp=millis(at))

    @property
    def content(self) -> bytes:
        return "".join(f"{line}\n" for line in self.lines).encode()

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content)
        return path


def ids(query: str, run: int) -> dict[str, str]:
    return {"id": f"id-{query}", "runId": f"{query}-{run}"}


def progress(query: str, run: int, batch: int, at: float, seconds: float) -> dict[str, object]:
    return {
        **ids(query, run),
        "name": query,
        "timestamp": spark_time(at - seconds),
        "batchId": batch,
        "batchDuration": round(seconds * 1000),
        "durationMs": {"addBatch": 1, "triggerExecution": round(seconds * 1000)},
        "sources": [],
    }


FIXTURES = Path(__file__).parent.parent / "fixtures"


def recorded(
    kind: str | None = None, shape: str | None = None, spark: str = "*"
) -> list[tuple[EventKind, str]]:
    """Recorded events as (kind, JSON text), of one Spark version or of all."""
    lines = [
        json.loads(line)
        for path in sorted(FIXTURES.glob(f"events-spark-{spark}.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [
        (EventKind(line["kind"]), line["text"])
        for line in lines
        if kind in (None, line["kind"]) and shape in (None, line["shape"])
    ]


def replayed(*paths: Path, **settings):
    """Replay every application at ``paths``: (changes, replayed input) of each."""
    wanted = Settings(**settings)
    reported = []
    for application in find_applications(map(str, paths)):
        replay = Replayed(wanted.app_name or application.label, application.path)
        changes = replay_application(application, terms_of(wanted), replay)
        reported.append((list(changes), replay))
    return reported


def changes(*paths: Path, **settings) -> list[Change]:
    """The changes in the one application at ``paths``."""
    ((changed, replay),) = replayed(*paths, **settings)
    assert replay.error is None
    return changed


def reported(log, folder: Path, **settings):
    """The alerts of a log: (status, alertname, query, seconds after its beginning)."""
    changed = changes(log.write(folder / "log"), **settings)
    return [
        (finding.status, finding.alertname, finding.query, after(finding.at)) for finding in changed
    ]


def after(at: str) -> float:
    return round(datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp() - BEGAN, 3)


def recordings_of(log: Path, folder: Path, **settings) -> list[Path]:
    """Replay a log, and record its incidents in a folder: their files, the oldest first."""
    wanted = Settings(**settings)
    folder.mkdir()
    recordings = Recordings(folder, wanted)
    for application in find_applications([str(log)]):
        replay = Replayed(application.label, application.path)
        for _ in replay_application(application, terms_of(wanted), replay, recordings=recordings):
            pass
    return sorted(folder.iterdir())
