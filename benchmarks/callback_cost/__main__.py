"""What a listener's callback costs Spark: PySpark's way, ours, and the least possible.

``python -I benchmarks/callback_cost`` prints the table and writes every sample as JSON.
"""

import json
import os
import platform
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from .candidates import MEANING, all_candidates
from .measuring import EVENTS_A_ROUND, ORDERS, Listeners, Round, progress_rounds, start_rounds
from .stopwatch import SETTLE_MILLISECONDS, Stopwatches, Timed
from .table import lines, summary
from .workloads import TRIGGER, WORKLOADS, session, stateless

PROJECT = Path(__file__).resolve().parents[2]
RESULT = PROJECT / "build" / "benchmarks" / "callback_cost.json"


def main() -> None:
    """Measure, print, write."""
    began = time.monotonic()
    spark = session()
    machine = _machine(spark)
    print(*_preface(machine), sep="\n", flush=True)
    measured = _measure(spark)
    spark.stop()
    _write(machine, measured)
    print(f"\n{time.monotonic() - began:.0f} s; every sample: {RESULT.relative_to(PROJECT)}")


def _measure(spark: SparkSession) -> dict[str, list[Round]]:
    measured = {}
    stopwatches = Stopwatches(spark.sparkContext._gateway)
    with all_candidates() as candidates:
        listeners: Listeners = {
            name: partial(Timed, candidate, stopwatches) for name, candidate in candidates.items()
        }
        for name, start in WORKLOADS.items():
            title = f"onQueryProgress, {name} query"
            measured[title] = progress_rounds(spark, start, listeners)
            _show(title, measured[title])
        title = "onQueryStarted, for which start() waits"
        measured[title] = start_rounds(spark, stateless, listeners)
        _show(title, measured[title])
    return measured


def _show(title: str, rounds: Sequence[Round]) -> None:
    print(*lines(title, summary(rounds)), sep="\n", flush=True)


def _machine(spark: SparkSession) -> dict[str, str]:
    jvm: Any = spark.sparkContext._jvm
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": jvm.System.getProperty("java.version"),
        "spark": f"{spark.version} {spark.sparkContext.master}",
    }


def _preface(machine: dict[str, str]) -> list[str]:
    return [
        "How long a listener's callback holds Spark's own thread, the way from the JVM to",
        "Python and back included, timed in the JVM. All listeners are registered in one job",
        "and called one after another for each event; every order of them has its round:",
        f"{len(ORDERS)} rounds, at least {EVENTS_A_ROUND} events each. Before a call a pause,",
        f"{SETTLE_MILLISECONDS} ms and not counted, lets others' after-work end: calls start cold.",
        "Whatever else runs on the machine is in the figures: compare ratios, not machines.",
        f"The queries: rate-micro-batch to noop, a trigger every {TRIGGER}.",
        *(f"  {name:22}{meaning}" for name, meaning in MEANING.items()),
        "Machine: " + ", ".join(f"{name} {value}" for name, value in machine.items()),
    ]


def _write(machine: dict[str, str], measured: dict[str, list[Round]]) -> None:
    result = {
        "machine": machine,
        "measured": {
            title: {**summary(rounds), "rounds_nanoseconds": rounds}
            for title, rounds in measured.items()
        },
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result))


main()
