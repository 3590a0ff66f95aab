"""The possible steps of a plan, and their probabilities."""

from __future__ import annotations

import msgspec


class Terms(msgspec.Struct, frozen=True):
    """Weights of what may happen to queries and around them."""

    queries: tuple[int, ...] = (1, 2, 2, 3, 3, 4, 6)
    minutes: tuple[float, ...] = (4.0, 5.0, 6.0, 8.0, 12.0)
    steps: tuple[int, ...] = (1, 2, 3, 4, 6, 9)
    mailboxes: tuple[int, ...] = (2000,)
    slow_critical: tuple[float, ...] = (1800.0, 240.0)
    declares: float = 0.3
    """The share of named queries with ``expected_input_seconds``."""
    expected_input: tuple[float, ...] = (70.0, 150.0)
    finite: float = 0.2
    named: float = 0.85
    expected: float = 0.3
    kept: float = 0.8
    """The share of queries that keep their checkpoint when a supervisor restarts them."""
    twins: float = 0.15
    twins_end: bool = True
    """Whether a driver with namesakes may end."""
    logs_rarely: float = 0.15
    """The share of queries with async progress tracking."""
    small_memory: float = 0.3
    """The share of drivers that remember only ``memory`` ended queries."""
    memory: int = 3
    every: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 600.0)
    real_time: float = 0.05
    """The share of queries whose batches last as long as the trigger interval."""
    polls: tuple[float, ...] = (0.0, 0.0, 0.0, 0.5, 1.5, 3.0)
    """How long polls of the probe take."""
    dated: float = 0.5
    """The share of histories in which start events have a timestamp."""
    apart: float = 0.5
    """The share of pairs of drivers with app names of their own, and the same query names."""
    jumps_back: float = 0.5
    """The share of jumps of the wall clock that set it back."""
    late_kinds: tuple[str, ...] = ("idle", "started", "progress", "failed")
    two_drivers: float = 0.2
    """The share of histories with a second driver."""
    gone: bool = True
    """Whether a receiver may answer that it is gone."""
    takes: tuple[float, ...] = (0.2, 1.0, 2.0, 5.0)
    outages: tuple[str, ...] = ("down", "busy", "slow", "cut", "cut before")
    around_share: float = 0.25
    to_query: tuple[tuple[str, float], ...] = (
        ("die", 5.0), ("die and restart", 5.0), ("fail_first", 1.0), ("restart", 1.0),
        ("stop", 2.0), ("plan_stop", 2.0), ("hang", 3.0), ("crawl", 2.0), ("ask", 1.5),
        ("dry", 1.5), ("crash_loop", 1.5), ("delay", 2.0), ("drop", 1.5), ("repeat", 1.0),
        ("probe_partial", 1.0), ("probe_misses", 1.5), ("late", 1.0), ("new", 1.5),
        ("die unreported", 1.0), ("die unseen", 1.0), ("die in outage", 1.5),
        ("silence", 1.5), ("die in silence", 1.0),
        ("log_stuck", 1.0), ("unreadable", 1.0),
        ("bad_batch", 1.0), ("fan_out", 1.0), ("skew", 2.0), ("starve", 1.0), ("lag", 1.5), ("stall", 1.0), ("rewind", 1.0),
    )  # fmt: skip
    around: tuple[tuple[str, float], ...] = (
        ("jvm_pause", 1.0), ("pause", 1.0), ("probe_refused", 1.0), ("receiver", 3.0),
        ("acknowledge", 1.0), ("kill", 1.5), ("close", 0.5), ("jvm_crash", 0.5), ("jump", 1.0),
        ("app_stops", 0.5), ("delay all", 0.7), ("drop all", 0.5), ("context_dies", 0.5),
        ("silence all", 0.5), ("poison", 1.0), ("raise", 0.5), ("terminate", 0.5),
        ("die together", 1.5), ("no_executors", 0.7), ("kill_within", 1.0),
        ("die apart", 1.0),
    )  # fmt: skip


PLAIN = Terms(
    every=(1.0, 2.0, 5.0, 10.0, 20.0), real_time=0.0, polls=(0.0,), dated=0.0, apart=0.0,
    jumps_back=0.0, late_kinds=("idle",), twins_end=False, around=Terms().around[:-1],
)  # fmt: skip
"""Without what was added later: it would change the plans of older seeds."""
