"""``querypulse demo``: the job runs in the main thread, blocked where real jobs block."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..attachment import attach
from ..sidecar import Sidecar
from .demo_output import DemoOutput
from .demo_run import DemoRun, DemoSetup
from .demo_settings import DemoSettings
from .page_receiver import PageReceiver
from .pipelines.kinds import PIPELINES
from .pipelines.pipeline import Pipeline, made
from .spark_session import local_spark
from .waiting import Blocked, Supervised

GONE_GRACE_SECONDS = 10.0
REPORTED, NOT_REPORTED, ENDED_BY_FAILURE, INTERRUPTED = 0, 1, 3, 130
"""Exit codes. The third is what a scheduler restarts a supervised job for."""


def run(script: DemoSettings) -> int:
    """Play the script; the exit code says whether the scenario was seen and told.

    Raises:
        ArtifactsError: what the pipeline needs cannot be fetched.
        BrokerError: the pipeline's broker does not start.

    """
    narrator = DemoOutput()
    narrator.say(f"{script.queries} streaming queries in one driver; scenario: {script.scenario}")
    with _folder(script.folder) as folder:
        pipeline = PIPELINES[script.pipeline](folder, script.queries, narrator.say)
        stage = DemoSetup(PageReceiver(), narrator)
        try:
            spark = local_spark(folder, pipeline.prepare(), script.event_log)
            # PySpark's own handler calls the JVM from inside the interrupted call, and fails.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stage.interrupted.set())
            try:
                code = _play(script, spark, pipeline, stage)
            finally:
                spark.stop()
        finally:
            stage.receiver.close()
            pipeline.close()
    if stage.interrupted.is_set():
        narrator.say("interrupted")
        return INTERRUPTED
    return code


def _play(script: DemoSettings, spark: Any, pipeline: Pipeline, stage: DemoSetup) -> int:
    sidecar = _attach(script, spark, pipeline, stage)
    waiting = Supervised(sidecar) if script.supervised else Blocked(pipeline)
    director = DemoRun(script, sidecar, pipeline, waiting, stage)
    thread = threading.Thread(target=director.direct, name="demo-director", daemon=True)
    try:
        thread.start()
        pipeline.start(spark)
        failure = waiting.wait()
        if failure is not None:
            stage.narrator.say(f"{waiting.where}() raises QueryFailure: {failure.reason}")
            stage.over.set()
        thread.join()
    finally:
        sidecar.close()
        pipeline.stop()
    if failure is not None:
        stage.narrator.say(f"the job ends with {ENDED_BY_FAILURE}; its scheduler starts it again")
    return _exit_code(director.as_expected, failed=failure is not None)


def _exit_code(as_expected: bool, *, failed: bool) -> int:
    if not as_expected:
        return NOT_REPORTED
    return ENDED_BY_FAILURE if failed else REPORTED


def _attach(script: DemoSettings, spark: Any, pipeline: Pipeline, stage: DemoSetup) -> Sidecar:
    folder = None if script.folder is None else str(Path(script.folder).resolve() / "spool")
    sidecar = attach(
        spark,
        webhook_url=script.webhook_url or stage.receiver.url,
        http_port=script.http_port,
        stall_floor_seconds=pipeline.stall_floor_seconds,
        gone_grace_seconds=GONE_GRACE_SECONDS,
        **({} if folder is None else {"spool_dir": folder}),
    )
    stage.narrator.say(f"Spark {spark.version}")
    if sidecar.url is not None:
        stage.narrator.say(f"status page: {sidecar.url}/  metrics: {sidecar.url}/metrics")
    return sidecar


@contextmanager
def _folder(name: str | None) -> Iterator[Path]:
    """The folder of this name, which stays; else one that goes when the demo ends."""
    if name is not None:
        yield made(Path(name).resolve())
        return
    with tempfile.TemporaryDirectory(prefix="querypulse-demo-", ignore_cleanup_errors=True) as gone:
        yield Path(gone)
