"""What this machine's second core is worth: two bare processes beside one."""

import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

from .readers import json_loads

ROUNDS = 5


def second_core(log: Path) -> float:
    """How many times as much work two processes do that only parse; 2 on two whole cores."""
    with ProcessPoolExecutor(2) as pool:
        # The first time starts the processes.
        list(pool.map(json_loads, (log, log)))
        return median(2 * _seconds(pool, log) / _seconds(pool, log, log) for _ in range(ROUNDS))


def _seconds(pool: ProcessPoolExecutor, *logs: Path) -> float:
    began = time.perf_counter()
    list(pool.map(json_loads, logs))
    return time.perf_counter() - began
