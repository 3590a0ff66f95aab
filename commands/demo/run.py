"""``querypulse demo``: the job runs in the main thread, which blocks where real jobs block."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...sidecar.attachment import attach
from ...sidecar.sidecar import Sidecar
from ..exit_code import INTERRUPTED
from .demo_arguments import DemoSettings
from .demo_output import DemoOutput
from .demo_run import DemoRun, DemoSetup
from .file_pipeline import FilePipeline
from .page_receiver import PageReceiver
from .pipeline import Pipeline, made
from .scenarios import SCENARIOS
from .spark_session import local_spark
from .waiting import Blocked, Supervised

GONE_GRACE_SECONDS = 10.0
REPORTED, NOT_REPORTED, ENDED_BY_FAILURE = 0, 1, 3
"""Exit codes. At the third, a scheduler restarts a supervised job."""


def run(settings: DemoSettings, kind: type[Pipeline] = FilePipeline) -> int:
    """Run the demo; the exit code says whether the scenario was detected and reported.

    What prevents a pipeline of this kind from starting is raised.
    """
    output = DemoOutput()
    output.say(f"{settings.queries} streaming queries in one driver; scenario: {settings.scenario}")
    with _folder(settings.folder) as folder:
        pipeline = kind(folder, settings.queries, output.say)
        setup = DemoSetup(PageReceiver(), output)
        try:
            spark = local_spark(folder, pipeline.prepare(), settings.event_log)
            # PySpark's own handler calls the JVM from inside the interrupted call, and fails.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: setup.interrupted.set())
            try:
                code = _play(settings, spark, pipeline, setup)
            finally:
                spark.stop()
        finally:
            setup.receiver.close()
            pipeline.close()
    if setup.interrupted.is_set():
        output.say("interrupted")
        return INTERRUPTED
    return code


def _play(settings: DemoSettings, spark: Any, pipeline: Pipeline, setup: DemoSetup) -> int:
    sidecar = _attach(settings, spark, pipeline, setup)
    awaited = SCENARIOS[settings.scenario].waits_for
    waiting = Supervised(sidecar) if settings.supervised else Blocked(pipeline, awaited)
    demo = DemoRun(settings, sidecar, pipeline, waiting, setup)
    thread = threading.Thread(target=demo.run, name="demo-run", daemon=True)
    try:
        thread.start()
        pipeline.start(spark)
        failure = waiting.wait()
        if failure is not None:
            setup.output.say(f"{waiting.where}() raises QueryFailure: {failure.reason}")
            setup.over.set()
        thread.join()
    finally:
        sidecar.close()
        pipeline.stop()
    if failure is not None:
        setup.output.say(f"the job ends with {ENDED_BY_FAILURE}; its scheduler starts it again")
    return _exit_code(demo.as_expected, failed=failure is not None)


def _exit_code(as_expected: bool, *, failed: bool) -> int:
    if not as_expected:
        return NOT_REPORTED
    return ENDED_BY_FAILURE if failed else REPORTED


def _attach(settings: DemoSettings, spark: Any, pipeline: Pipeline, setup: DemoSetup) -> Sidecar:
    folder = None if settings.folder is None else str(Path(settings.folder).resolve() / "spool")
    sidecar = attach(
        spark,
        webhook_url=settings.webhook_url or setup.receiver.url,
        http_port=settings.http_port,
        stall_floor_seconds=pipeline.stall_floor_seconds,
        gone_grace_seconds=GONE_GRACE_SECONDS,
        **({} if folder is None else {"spool_dir": folder}),
    )
    setup.output.say(f"Spark {spark.version}")
    if sidecar.url is not None:
        setup.output.say(f"status page: {sidecar.url}/  metrics: {sidecar.url}/metrics")
    return sidecar


@contextmanager
def _folder(name: str | None) -> Iterator[Path]:
    """The folder of this name, which stays; without a name, one that is deleted at the end."""
    if name is not None:
        yield made(Path(name).resolve())
        return
    with tempfile.TemporaryDirectory(prefix="querypulse-demo-", ignore_cleanup_errors=True) as path:
        yield Path(path)
