"""The job that runs on a real cluster manager, and the receivers that its driver notifies.

A test makes files in the job's folder: ``fail`` lets the query ``silver`` fail once, ``end`` lets
the script stop its queries and Spark.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
from support.pagerduty_double import PagerDutyDouble
from support.pages import PageRecorder, ReceivedPage
from support.patience import until

START_SECONDS = 300.0
"""An application takes a minute to its first commit, and more on a busy machine."""
SPARK_HOME = Path(pyspark.__file__).parent
ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
JOB = """
import os
import threading
import time
from pathlib import Path
from pyspark.sql import SparkSession
from querypulse.sidecar import attach
from querypulse.sidecar.session import spark_ui_url

folder = Path(os.environ["FOLDER"])
spark = SparkSession.builder.appName(folder.name).getOrCreate()
sidecar = attach(spark, http_port=-1, resolve_after_seconds=1.0)


def write(batch, _):
    if (folder / "fail").exists():
        (folder / "fail").unlink()
        raise ValueError("the test lets it fail")
    batch.write.format("noop").mode("append").save()


for name in ("bronze", "silver"):
    stream = spark.readStream.format("rate").load().writeStream.queryName(name)
    stream.option("checkpointLocation", str(folder / name)).trigger(processingTime="1 second")
    (stream.format("noop") if name == "bronze" else stream.foreachBatch(write)).start()


def have_committed():
    batches = [query.last_commit_batch for query in sidecar.snapshot().queries]
    return len(batches) == 2 and None not in batches


def report_ready():
    while not have_committed():
        time.sleep(0.05)
    (folder / "spark_ui_url").write_text(spark_ui_url(spark))
    (folder / f"ready.{os.getpid()}").touch()


# Meanwhile it waits as most jobs do, also for what the attempt before this one has left.
threading.Thread(target=report_ready, daemon=True).start()
if "WAITS_FOR_END" in os.environ:
    while not (folder / "end").exists():
        time.sleep(0.05)
    for query in spark.streams.active:
        query.stop()
    spark.stop()
else:
    sidecar.await_any_failure()
"""
DOWN = ("StreamingDriverDown", "*")
FAILED = ("StreamingQueryFailed", "silver")
STOPPED = ("StreamingQueryStopped", "*")


class Job:
    """One application, whose driver notifies ``pages`` and ``pagerduty``.

    ``submit`` starts a script with these variables in its environment, and returns the application:
    ``state`` is its state and final status, ``kill`` ends it as a user does.
    """

    def __init__(
        self,
        submit: Callable[..., Any],
        folder: Path,
        pages: PageRecorder,
        pagerduty: PagerDutyDouble,
        **environment: str,
    ) -> None:
        self.pages = pages
        self.pagerduty = pagerduty
        self.folder = folder
        self._seen: set[str] = set()
        (folder / "job.py").write_text(JOB)
        (folder / "key").write_text("0" * 32)
        self.application = submit(
            folder / "job.py",
            FOLDER=str(folder),
            QUERYPULSE_APP_NAME=folder.name,
            QUERYPULSE_WEBHOOK_URL=pages.url,
            QUERYPULSE_PAGERDUTY_URL=pagerduty.enqueue_url,
            QUERYPULSE_PAGERDUTY_ROUTING_KEY_FILE=str(folder / "key"),
            **environment,
        )

    def driver(self) -> int:
        """The process id of the next driver's Python, once its queries have committed."""

        def new() -> set[str]:
            state = self.application.state
            assert state[0] not in ENDED, state
            return {path.suffix[1:] for path in self.folder.glob("ready.*")} - self._seen

        found = until(new, "the next driver commits", START_SECONDS)
        self._seen |= found
        return int(max(found))

    def ends(self) -> None:
        """Let the script stop its queries and Spark; it ``WAITS_FOR_END``."""
        (self.folder / "end").touch()

    @property
    def fired(self) -> list[tuple[str, str]]:
        return [page.what for page in self.pages.pages if page.status == "firing"]

    def fires(self, what: tuple[str, str], count: int = 1) -> ReceivedPage:
        """The newest page of an alert, once it was sent so often."""
        until(lambda: self.fired.count(what) >= count, f"{what} is sent", START_SECONDS)
        return [page for page in self.pages.pages if page.what == what][-1]

    def is_resolved(self) -> None:
        """Wait until no incident is open at PagerDuty."""
        until(lambda: not self.pagerduty.open, "PagerDuty's incident is resolved", START_SECONDS)


def submit_command(
    master: str, settings: Mapping[str, str], script: Path, *options: str
) -> list[str]:
    """The command line of ``spark-submit`` for a script."""
    entries = [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
    program = str(SPARK_HOME / "bin" / "spark-submit")
    return [program, "--master", master, *options, *entries, str(script)]


# -- processes --------------------------------------------------------------------------------


def kill_jvm_of(python: int) -> float:
    """End the driver's JVM, the parent of this Python process, as ``kill -9`` does.

    Returns when, in monotonic seconds.
    """
    status = Path(f"/proc/{python}/status").read_text()
    parent = int(re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE)[1])
    command = Path(f"/proc/{parent}/cmdline").read_text()
    assert "ApplicationMaster" in command or "SparkSubmit" in command, command
    at = time.monotonic()
    os.kill(parent, signal.SIGKILL)
    return at


def kill_both(python: int) -> float:
    """End Python and the JVM of a driver at once, as the end of its machine does.

    Returns when, in monotonic seconds.
    """
    os.kill(python, signal.SIGSTOP)
    at = kill_jvm_of(python)
    os.kill(python, signal.SIGKILL)
    return at


def executors_of(application_id: str) -> list[int]:
    """The process ids of the executors of an application, which are JVMs of this machine."""
    return [pid for pid, words in _processes() if _is_executor(words, application_id)]


def _is_executor(words: list[str], application_id: str) -> bool:
    is_java = words[0].endswith("java")
    return is_java and application_id in words and any("ExecutorBackend" in word for word in words)


def _processes() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "cmdline").read_text(errors="replace").split("\0")
            except OSError:
                continue
            yield int(folder.name), words


def has_ended(pid: int) -> None:
    """Wait until a process has ended."""
    until(lambda: not Path(f"/proc/{pid}").exists(), f"process {pid} has ended", START_SECONDS)
