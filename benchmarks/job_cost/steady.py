"""What querypulse's own threads take once its code is warm: one long turn, thread by thread.

In the short turns that are compared with nobody's it has only just been attached, and the JVM
still interprets what it compiled for it. A driver runs for days.
"""

import time

from .candidates import Candidate
from .meter import Meter

NOBODY_SECONDS = 4.0
WARM_UP_SECONDS = 18.0
MEASURED_SECONDS = 16.0

Shares = dict[str, float]
"""CPU milliseconds a second by thread, without those of the benchmark."""


def steady(meter: Meter, ours: Candidate) -> Shares:
    """What each thread takes above what it takes when nobody listens."""
    nobody = _shares(meter, NOBODY_SECONDS)
    with ours():
        time.sleep(WARM_UP_SECONDS)
        found = _shares(meter, MEASURED_SECONDS)
    return {name: share - nobody.get(name, 0.0) for name, share in found.items()}


def _shares(meter: Meter, seconds: float) -> Shares:
    before, began = meter.by_thread(), time.monotonic()
    time.sleep(seconds)
    after, passed = meter.by_thread(), time.monotonic() - began
    return {name: 1e3 * (after[name] - before.get(name, 0.0)) / passed for name in after}
