"""Whether a replay, which decodes, folds and evaluates, is as fast as a script that only parses.

``python -m benchmarks.replay``. One process: whole logs, the readers in turn and in changing
order, medians of the rounds, in seconds of CPU: the files are in memory already, and nothing
waits. Then ``--spark``, on one core and on two in turn: several
applications' logs, and the same number of logs with nothing in them, which is what Spark itself
takes for such a job.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

from ..common.result import Row, at_least, at_most, lines, write
from .long_logs import ShortLog
from .long_logs import write as write_log
from .on_spark import sparks
from .readers import JSON, OURS, READERS, second_core

MIXED, STREAMING = "mixed log", "streaming only"
MIXED_BYTES = 100_000_000
EVENTS = 8_000
ROUNDS = 3
APPLICATIONS = 8
EVENTS_ON_SPARK = 8_000
ROUNDS_ON_SPARK = 2
SCALING = 0.8
"""Of what the second core is worth: the driver, which plans the job, shares it."""

Samples = dict[str, list[float]]
"""Seconds of each round, by who."""


def main() -> int:
    """Measure, print, write."""
    with tempfile.TemporaryDirectory() as folder:
        recording = ShortLog()
        logs = _logs(recording, Path(folder))
        samples = {name: _rounds(path) for name, path in logs.items()}
        on_spark = _on_spark(recording, Path(folder))
        machine = second_core(logs[STREAMING])
        sizes = {name: path.with_suffix("").stat().st_size for name, path in logs.items()}
    rows = _rows(samples, sizes, on_spark, machine)
    write("replay", rows, {"one process": samples, "on Spark": on_spark})
    print(*_details(samples | {"on Spark": on_spark}), sep="\n")
    print(*lines("Replay of event logs", rows), sep="\n")
    return 0


def _logs(recording: ShortLog, folder: Path) -> dict[str, Path]:
    """What is read, by its name."""
    found = {}
    kinds = {MIXED: recording.mixed(MIXED_BYTES), STREAMING: recording.streaming(EVENTS)}
    for name, content in kinds.items():
        found[name], found[f"{name}, zstd"] = write_log(content, folder / name.replace(" ", "_"))
    return found


def _rounds(path: Path) -> Samples:
    """Run every reader in turn; ours must read each event that the other one parsed."""
    events = {name: read(path) for name, read in READERS.items()}
    if events[OURS] != events[JSON]:
        raise RuntimeError(f"{path.name}: not the same events: {events}")
    samples: Samples = {name: [] for name in READERS}
    names = list(READERS)
    for number in range(ROUNDS):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            samples[name].append(_seconds(lambda read=READERS[name]: read(path)))
    return samples


def _seconds(call: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    call()
    return time.process_time() - began


def _on_spark(recording: ShortLog, folder: Path) -> Samples:
    """Seconds of the job by cores, with logs to read and without; each first time is warm-up."""
    full, events = _fleet(recording, folder / "full", EVENTS_ON_SPARK)
    bare, bare_events = _fleet(recording, folder / "bare", 1)
    samples: Samples = {}
    with sparks(1, 2) as cores:
        for number in range(1 + ROUNDS_ON_SPARK):
            for count, one in sorted(enumerate(cores, 1), reverse=bool(number % 2)):
                for name, logs, size in (("logs", full, events), ("nothing", bare, bare_events)):
                    if number or name == "nothing":
                        seconds = one.seconds(logs, size)
                        samples.setdefault(f"{name}, {_cores(count)}", []).append(seconds)
    return {name: found[-ROUNDS_ON_SPARK:] for name, found in samples.items()}


def _fleet(recording: ShortLog, folder: Path, events: int) -> tuple[Path, int]:
    """A folder of applications' logs, and how many events they hold in all."""
    folder.mkdir()
    log, packed = write_log(recording.streaming(events), folder / "application-0")
    packed.unlink()
    for number in range(1, APPLICATIONS):
        (folder / f"application-{number}").write_bytes(log.read_bytes())
    return folder, APPLICATIONS * READERS[JSON](log)


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"


def _rows(
    samples: dict[str, Samples], sizes: dict[str, int], on_spark: Samples, machine: float
) -> list[Row]:
    medians = {log: {who: median(s) for who, s in of.items()} for log, of in samples.items()}
    ratios = {log: times[OURS] / times[JSON] for log, times in medians.items()}
    one, two = (median(on_spark[f"logs, {cores}"]) for cores in ("1 core", "2 cores"))
    bare_one, bare_two = (median(on_spark[f"nothing, {cores}"]) for cores in ("1 core", "2 cores"))
    return [
        *(at_most(f"{name}: ours / json.loads", ratio, 1, "x") for name, ratio in ratios.items()),
        Row(f"{MIXED}, unpacked", f"{sizes[MIXED] / medians[MIXED][OURS] / 1e6:,.0f} MB/s"),
        Row(f"{STREAMING}, one core", f"{EVENTS / medians[STREAMING][OURS]:,.0f} events/s"),
        Row("two processes that only parse / one", f"{machine:.2f}x"),
        at_least(
            "on Spark: 2 cores / 1 core, to these",
            (one - bare_one) / (two - bare_two) / machine,
            SCALING,
        ),
        Row("on Spark: 2 cores / 1 core", f"{one / two:.2f}x"),
        Row("a job without events, of all on 2 cores", f"{bare_two:.2f} of {two:.2f} s"),
    ]


def _details(samples: dict[str, Samples]) -> list[str]:
    head = f"{'  milliseconds':60}{'median':>10}{'p99':>10}"
    return [
        head,
        *(
            f"  {f'{log}: {who}':58}{median(found) * 1e3:>10,.0f}{_p99(found) * 1e3:>10,.0f}"
            for log, of in samples.items()
            for who, found in of.items()
        ),
    ]


def _p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100, method="inclusive")[-1]


if __name__ == "__main__":
    sys.exit(main())
