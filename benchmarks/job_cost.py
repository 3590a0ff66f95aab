"""What listening takes of the CPU of a driver with eight queries.

``python -m benchmarks.job_cost``. The driver is Python and JVM together, without the JIT compiler,
which compiles Spark for minutes, with any listener or none. Scraper, receiver and gateway are
processes of their own and not counted.

By its threads: what Python and those threads of the JVM use that serve it, less what they use when
nobody listens; ours is measured over one long turn, when its code is warm. In all: how many rows
the job does with a CPU second of its driver, in turns of one trigger. Each turn is compared with
nobody's turns before and after it, which takes out what changes slowly: a growing heap, other
tenants of the machine.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, sha2, window
from pyspark.sql.functions import max as largest
from pyspark.sql.streaming.query import StreamingQuery

from querypulse.listener.spark.event_paths import EventQueue
from querypulse.sidecar import Sidecar, attach

from .candidates import NONE, OURS, PEER, STOCK, StockListener, peer
from .harness import Row, at_least, at_most, report, rows_of, session, short, spread
from .receiver import receiving

QUERIES = 8
TRIGGER_SECONDS = 2
ROWS_A_BATCH = 240_000
GAP_SECONDS = 0.15
GAPS = 3
"""So many are waited for when batches overrun; then half batches must do."""
WRITTEN = 750
"""Progress events of each query, written before anything is measured: a driver has written as many
after half an hour, and then the JVM has compiled what writes them.
"""
WARM_UP_POLLS = 3600
"""As many as in half an hour: then the JVM has compiled what answers them."""
NOBODY_SECONDS = 4.0
SETTLE_SECONDS = 6.0
MEASURED_SECONDS = 16.0
OTHERS = (OURS, STOCK, OURS, PEER, OURS, OURS, PEER, OURS, STOCK, OURS, OURS, STOCK, OURS, PEER)
ENOUGH_SECONDS = 40.0
"""After so long, with a turn for everybody, there are no more; a slow machine has fewer."""
ALLOWED_MS_A_SECOND = 10
OF_NOBODY = 0.99
OF_STOCK = 1
FINE = 0.01
"""Above this the table says that chance does as much as what it is to show."""
KEEP_COMPILERS = "-XX:-UseDynamicNumberOfCompilerThreads"
"""For the JVM: the time of a thread that has ended could not be read any more."""
SCRAPER = """
import sys, time, urllib.request
while True:
    time.sleep(1)
    try:
        with urllib.request.urlopen(sys.argv[1], timeout=1) as answer:
            print(len(answer.read()), flush=True)
    except OSError:
        pass  # nobody listens there while others have their turn
"""

Candidate = Callable[[], AbstractContextManager[Any]]


def main() -> int:
    """Measure, print, write."""
    spark = session("job cost", KEEP_COMPILERS)
    job = EightQueries(spark)
    job.await_gap()
    meter = Meter(spark)
    job.write_progress(WRITTEN)
    with _candidates(spark) as candidates:
        own = _steady(meter, candidates[OURS])
        turns = _measure(job, meter, candidates)
    job.stop()
    spark.stop()
    report("job_cost", __doc__, _rows(own, turns), {"steady": own, "turns": turns})
    return 0


class Cpu(NamedTuple):
    """CPU seconds; ``serving``, a part of the JVM's, is what its threads do for Python and us."""

    python: float
    jvm: float
    serving: float


class Turn(NamedTuple):
    """What was done in one turn, and with how much."""

    name: str
    rows: int
    seconds: float
    cpu: Cpu

    @property
    def rows_a_cpu_second(self) -> float:
        return self.rows / (self.cpu.python + self.cpu.jvm)

    @property
    def ms_a_second(self) -> float:
        return 1e3 * (self.cpu.python + self.cpu.jvm) / self.seconds

    @property
    def own_ms_a_second(self) -> float:
        return 1e3 * (self.cpu.python + self.cpu.serving) / self.seconds


def _rows(own: float, turns: Sequence[Turn]) -> list[Row]:
    ratios = _ratios(turns)
    ours = median(ratios[OURS])
    stock = median(ratios[STOCK])
    nobody = [turn for turn in turns if turn.name == NONE]
    job = median(turn.ms_a_second for turn in nobody)
    idle = median(turn.own_ms_a_second for turn in nobody)
    threads = {
        name: median(turn.own_ms_a_second for turn in turns if turn.name == name) - idle
        for name in (STOCK, PEER)
    }
    low, _, high = quantiles(ratios[NONE], n=4)
    chance = "" if (high - low) / 2 <= FINE else " (noise above 1%)"
    return [
        at_most(f"{OURS}: CPU of its threads", own, ALLOWED_MS_A_SECOND, " ms/s"),
        *(Row(f"{name}: the same", f"{short(ms)} ms/s") for name, ms in threads.items()),
        at_least(f"{OURS} / {NONE}, by its own threads", job / (job + own), OF_NOBODY),
        at_least(f"{OURS} / {NONE}{chance}", ours, OF_NOBODY),
        at_least(f"{OURS} / {STOCK}", ours / stock, OF_STOCK),
        *(Row(f"{name} / {NONE}", spread(ratios[name])) for name in (OURS, STOCK, PEER)),
        Row(f"{NONE} / {NONE}: chance", spread(ratios[NONE])),
    ]


def _ratios(turns: Sequence[Turn]) -> dict[str, list[float]]:
    """Of each turn to nobody's around it; nobody's own show what chance does."""
    ratios: dict[str, list[float]] = {}
    for place, turn in enumerate(turns):
        step = 2 if turn.name == NONE else 1
        if step <= place < len(turns) - step:
            around = turns[place - step].rows_a_cpu_second + turns[place + step].rows_a_cpu_second
            ratios.setdefault(turn.name, []).append(2 * turn.rows_a_cpu_second / around)
    return ratios


class EightQueries:
    """Eight running queries, half of them stateful, with the same work for every trigger.

    Spark starts batches at whole multiples of the trigger's interval, so all eight begin at once
    and are done before the next multiple: from one gap between batches to the next, whole batches.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._queries = [_start(spark, number) for number in range(QUERIES)]

    def rows_done(self) -> int:
        """Rows of all batches completed so far."""
        return sum(map(_batches, self._queries)) * ROWS_A_BATCH

    def await_gap(self) -> None:
        """Sleep until just before the next trigger, when no batch runs."""
        for _ in range(GAPS):
            time.sleep((-time.time() - GAP_SECONDS) % TRIGGER_SECONDS)
            if not any(query._jsq.status().isTriggerActive() for query in self._queries):
                return

    def write_progress(self, times: int) -> None:
        """Let Spark write the JSON of each query's last progress so often."""
        while not all(map(_batches, self._queries)):
            self.await_gap()
        for progress in [query._jsq.lastProgress() for query in self._queries]:
            for _ in range(times):
                progress.json()

    def stop(self) -> None:
        """End all queries."""
        for query in self._queries:
            query.stop()


def _start(spark: SparkSession, number: int) -> StreamingQuery:
    frame = rows_of(spark, ROWS_A_BATCH)
    hashed = frame.withColumn("hash", sha2(col("value").cast("string"), 256))
    writer = (_counted(hashed) if number % 2 else hashed).writeStream.format("noop")
    writer = writer.queryName(f"query-{number}")
    return writer.trigger(processingTime=f"{TRIGGER_SECONDS} seconds").start()


def _counted(frame: DataFrame) -> DataFrame:
    late = frame.withWatermark("timestamp", "5 seconds")
    groups = late.groupBy(window("timestamp", "2 seconds"), col("value") % 1000)
    return groups.agg(largest("hash"))


def _batches(query: StreamingQuery) -> int:
    progress = query._jsq.lastProgress()
    return progress.batchId() + 1 if progress is not None else 0


class Meter:
    """Reads the kernel's own counts, to the nanosecond and without asking the JVM.

    Make one while queries run and before anybody else listens: Spark has its own threads then.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        pid = jvm.java.lang.ProcessHandle.current().pid()
        # Linux: the clock of a process's time on CPU, clock_getcpuclockid(3). It counts threads
        # that have ended, too.
        self._clock = (~pid << 3) | 2
        self._threads = Path(f"/proc/{pid}/task")
        # The kernel keeps 15 characters of a thread's name: those of all queues are the same.
        self._queues_of_spark = {
            thread for thread, name in self._named() if "spark-listener-" in name
        }

    def read(self) -> Cpu:
        """CPU seconds so far."""
        compiling = serving = 0.0
        for thread, name in self._named():
            ours = "spark-listener-" in name and thread not in self._queues_of_spark
            if "Compile" in name:
                compiling += _seconds(thread)
            elif "Thread-" in name or ours:  # Py4J's, and our queue's
                serving += _seconds(thread)
        jvm = time.clock_gettime(self._clock) - compiling
        return Cpu(time.process_time(), jvm, serving)

    def since(self, before: Cpu) -> Cpu:
        """What was used since then."""
        return Cpu(*(now - then for now, then in zip(self.read(), before, strict=True)))

    def _named(self) -> Iterator[tuple[Path, str]]:
        for thread in self._threads.iterdir():
            # Others of the JVM's threads come and go.
            with suppress(OSError):
                yield thread, (thread / "comm").read_text()


def _seconds(thread: Path) -> float:
    with suppress(OSError):
        return int((thread / "schedstat").read_text().split()[0]) / 1e9
    return 0.0


@contextmanager
def _candidates(spark: SparkSession) -> Iterator[dict[str, Candidate]]:
    """Each by name, to be entered for its turn; what they need runs in other processes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as stack:
        receiver = stack.enter_context(receiving())
        gateway = stack.enter_context(receiving())
        command = [sys.executable, "-c", SCRAPER, f"http://127.0.0.1:{port}/metrics"]
        scraper = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        stack.callback(scraper.kill)
        yield {
            NONE: nullcontext,
            OURS: partial(_ours, spark, port, receiver.url),
            STOCK: partial(_listening, spark, StockListener()),
            PEER: partial(_listening, spark, peer(gateway.url)),
        }
        scraper.kill()
        assert scraper.stdout is not None
        scraped = len(scraper.stdout.readlines())
        pushed = len(gateway.posts())
        if not (scraped and pushed):
            raise RuntimeError(f"nothing scraped, or nothing pushed: {scraped}, {pushed}")


@contextmanager
def _listening(spark: SparkSession, listener: Any) -> Iterator[None]:
    spark.streams.addListener(listener)
    yield
    spark.streams.removeListener(listener)


@contextmanager
def _ours(spark: SparkSession, port: int, receiver: str) -> Iterator[Sidecar]:
    sidecar = attach(spark, http_port=port, webhook_url=receiver)
    yield sidecar
    status = sidecar.snapshot()
    path = status.monitor.listener_path
    seen = len(status.queries)
    if path != EventQueue.name or sidecar.url is None or seen != QUERIES:
        raise RuntimeError(f"not our normal way: {path}, {sidecar.url}, {seen} queries")
    sidecar.close()


def _steady(meter: Meter, ours: Candidate) -> float:
    """CPU milliseconds a second of our threads above nobody's, once our code is warm.

    In the short turns it has only just been attached, and the JVM still interprets what it
    compiled for it. A driver runs for days.
    """
    nobody = _own_ms_a_second(meter, NOBODY_SECONDS)
    with ours() as sidecar:
        for _ in range(WARM_UP_POLLS):
            sidecar.flush()
        time.sleep(SETTLE_SECONDS)
        return _own_ms_a_second(meter, MEASURED_SECONDS) - nobody


def _own_ms_a_second(meter: Meter, seconds: float) -> float:
    before = meter.read()
    began = time.monotonic()
    time.sleep(seconds)
    cpu = meter.since(before)
    return 1e3 * (cpu.python + cpu.serving) / (time.monotonic() - began)


def _measure(job: EightQueries, meter: Meter, candidates: dict[str, Candidate]) -> list[Turn]:
    """All turns, nobody's between any two others'; the first and the last are nobody's."""
    enough_at = time.monotonic() + ENOUGH_SECONDS
    job.await_gap()
    turns = [_turn(NONE, job, meter, candidates)]
    for name in OTHERS:
        turns += [_turn(who, job, meter, candidates) for who in (name, NONE)]
        if time.monotonic() > enough_at and {turn.name for turn in turns} == set(candidates):
            break
    return turns


def _turn(name: str, job: EightQueries, meter: Meter, candidates: dict[str, Candidate]) -> Turn:
    with candidates[name]():
        if name != NONE:
            # One trigger to settle.
            job.await_gap()
        done = job.rows_done()
        cpu = meter.read()
        began = time.monotonic()
        job.await_gap()
        while job.rows_done() == done:
            job.await_gap()
        used = meter.since(cpu)
        passed = time.monotonic() - began
        return Turn(name, job.rows_done() - done, passed, used)


if __name__ == "__main__":
    sys.exit(main())
