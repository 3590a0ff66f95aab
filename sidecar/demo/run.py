"""``querypulse demo``: the job runs in the main thread, blocked where real jobs block."""

from __future__ import annotations

import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

from ..attachment import attach
from .director import Director, Stage
from .narrator import Narrator
from .page_receiver import PageReceiver
from .pipeline import BRONZE, Pipeline
from .script import Script
from .spark_session import local_spark
from .telemetry import Fleet

STALL_FLOOR_SECONDS = 15.0
GONE_GRACE_SECONDS = 10.0
INTERRUPTED = 130


def run(script: Script) -> int:
    """Play the script; 0 when the fate was seen and told, 1 when not."""
    narrator = Narrator()
    narrator.say(f"{script.queries} streaming queries in one driver; fate: {script.fate}")
    with tempfile.TemporaryDirectory(prefix="querypulse-demo-", ignore_cleanup_errors=True) as name:
        stage = Stage(Path(name), PageReceiver(), narrator, threading.Event())
        spark = local_spark(stage.folder, script.event_log)
        # PySpark's own handler calls the JVM from inside the interrupted call, and fails.
        signal.signal(signal.SIGINT, lambda *_: stage.interrupted.set())
        try:
            told = _play(script, spark, stage)
        finally:
            spark.stop()
            stage.receiver.close()
    if stage.interrupted.is_set():
        narrator.say("interrupted")
        return INTERRUPTED
    return 0 if told else 1


def _play(script: Script, spark: Any, stage: Stage) -> bool:
    sidecar = attach(
        spark,
        webhook_url=script.webhook_url or stage.receiver.url,
        http_port=script.http_port,
        stall_floor_seconds=STALL_FLOOR_SECONDS,
        gone_grace_seconds=GONE_GRACE_SECONDS,
    )
    pipeline = Pipeline(spark, stage.folder, script.queries)
    fleet = Fleet(pipeline.landing)
    director = Director(script, sidecar, pipeline, stage)
    thread = threading.Thread(target=director.direct, name="demo-director", daemon=True)
    stage.narrator.say(f"Spark {spark.version}")
    if sidecar.url is not None:
        stage.narrator.say(f"status page: {sidecar.url}/  metrics: {sidecar.url}/metrics")
    try:
        fleet.start()
        pipeline.start()
        thread.start()
        # The trap of the incident: who waits for one query does not see another die.
        pipeline.queries[BRONZE].awaitTermination()
        thread.join()
    finally:
        fleet.stop()
        sidecar.close()
        pipeline.stop()
    return director.as_fated
