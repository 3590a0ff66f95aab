"""Rules about what fills up in the driver: its memory and its disks."""

from __future__ import annotations

from ...listener.foresight.filling import Full, Series
from ...listener.foresight.resources import (
    Disk,
    MemoryUse,
    container_full,
    disk_full,
    gc_share,
    heap_full,
)
from ...listener.probe_report import Context
from ...listener.state.snapshot import Snapshot
from ..facts import (
    ContainerFull,
    DisksFull,
    DriverMemory,
    FullDisk,
    HeapFull,
    InCollection,
)
from ..finding import WHOLE_DRIVER, Finding, Severity, finding_about
from ..kinds import DISK_FILLING, DRIVER_MEMORY
from ..policy import Policy

SOON_SECONDS = 4 * 3600.0
"""What is full later can wait."""
MINUTES_SECONDS = 600.0
"""What is full sooner is critical."""
NEAR_MAXIMUM = 0.98
"""Of the heap after garbage collection: nothing lives there for long, ..."""
HIGH = 0.9
"""... but a load that comes each day may take so much, ..."""
BEGINS_TO_COLLECT = 0.1
"""... unless collections took this part of the last minute: they become ever longer."""
NEAR_LIMIT = 0.97
"""Of a container, whose heap may take 90% of it for as long as it lives."""
NEAR_SECONDS = 300.0
"""Each reading of the last minutes must be near, ..."""
SHORTEST_SECONDS = 60.0
MIN_READINGS = 3
"""... over a minute at least: a large batch may need much for a moment."""
MUCH_IN_COLLECTION = 0.5
ROOM_SHARE = 0.01
ROOM_BYTES = 1_000_000_000
"""A disk with less room than either is full, whether it fills up or not."""
NO_ROOM_BYTES = 1_000_000


# -- memory -------------------------------------------------------------------------------------


def driver_memory(snapshot: Snapshot, now: float, _policy: Policy) -> Finding | None:
    """``StreamingDriverMemory``: the heap or the container fills up, or collections take over.

    What a collection leaves counts, so that a heap that saws, or was given to the JVM at once, is
    not near its maximum; of a container, what the kernel cannot take back. A JVM that has ended
    has not got memory again.
    """
    if snapshot.context not in (Context.RUNNING, Context.JVM_GONE):
        return None
    now = _last_read(snapshot, now)
    memory = memory_of(snapshot, now)
    heap_is_near = _heap_is_near(snapshot, now)
    collects = memory.gc_share is not None and memory.gc_share > MUCH_IN_COLLECTION
    if heap_is_near or _is_soon(memory.heap_full):
        is_dying = (heap_is_near and collects) or _is_in_minutes(memory.heap_full)
        return _about(HeapFull(memory=memory), is_critical=is_dying)
    if _container_is_near(snapshot, now) or _is_soon(memory.container_full):
        is_dying = _is_in_minutes(memory.container_full)
        return _about(ContainerFull(memory=memory), is_critical=is_dying)
    return _about(InCollection(memory=memory), is_critical=False) if collects else None


def _about(found: DriverMemory | DisksFull, *, is_critical: bool) -> Finding:
    name = DISK_FILLING if isinstance(found, DisksFull) else DRIVER_MEMORY
    severity = Severity.CRITICAL if is_critical else Severity.WARNING
    return finding_about(WHOLE_DRIVER, name, severity, found)


def _is_soon(full: Full | None) -> bool:
    return full is not None and full.seconds <= SOON_SECONDS


def _is_in_minutes(full: Full | None) -> bool:
    return full is not None and full.seconds <= MINUTES_SECONDS


def _last_read(snapshot: Snapshot, now: float) -> float:
    """When the memory was read last: of a JVM that has ended, it stays as it was then."""
    ended_at = snapshot.context_stopped_at
    return now if snapshot.context is not Context.JVM_GONE or ended_at is None else ended_at


def memory_of(snapshot: Snapshot, now: float) -> MemoryUse:
    """Return how the driver uses its memory, or did as its JVM ended, and when that is full."""
    now = _last_read(snapshot, now)
    resources, usage = snapshot.resources, snapshot.usage
    return MemoryUse(
        heap=resources.heap,
        heap_full=heap_full(resources, usage, now),
        gc_share=gc_share(usage, now),
        container=resources.container,
        container_full=container_full(resources, usage, now),
    )


def _heap_is_near(snapshot: Snapshot, now: float) -> bool:
    heap = snapshot.resources.heap
    if heap is None:
        return False
    collecting = gc_share(snapshot.usage, now, minutes=1)
    begins = collecting is not None and collecting > BEGINS_TO_COLLECT
    near = HIGH if begins else NEAR_MAXIMUM
    return _is_near(snapshot, snapshot.usage.after_gc, near * heap.max_bytes, now)


def _container_is_near(snapshot: Snapshot, now: float) -> bool:
    container = snapshot.resources.container
    return container is not None and _is_near(
        snapshot, snapshot.usage.working_set, NEAR_LIMIT * container.limit_bytes, now
    )


def _is_near(snapshot: Snapshot, series: Series, near: float, now: float) -> bool:
    """Whether all readings of the last minutes are that high, and are some over some time."""
    recent = [
        (at, amount) for at, amount in series.points if snapshot.watched(at, now) <= NEAR_SECONDS
    ]
    is_long = len(recent) >= MIN_READINGS and recent[-1][0] - recent[0][0] >= SHORTEST_SECONDS
    high = [amount >= near for _, amount in recent]
    return is_long and all(high)


# -- disks --------------------------------------------------------------------------------------


def disk_filling(snapshot: Snapshot, now: float, _policy: Policy) -> Finding | None:
    """``StreamingDiskFilling``: a disk with a checkpoint, working files or our spool fills up.

    A disk that is nearly full and stays so is somebody's choice, until there is no room to speak
    of.
    """
    disks = [
        FullDisk(disk, full)
        for disk in snapshot.resources.disks
        if (full := _full(disk, disk_full(disk, snapshot.usage, now))) is not None
    ]
    if not disks:
        return None
    disks.sort(key=lambda entry: entry.full.seconds)
    is_critical = any(
        entry.disk.free_bytes < NO_ROOM_BYTES or 0 < entry.full.seconds <= MINUTES_SECONDS
        for entry in disks
    )
    return _about(DisksFull(disks=tuple(disks)), is_critical=is_critical)


def _full(disk: Disk, full: Full | None) -> Full | None:
    if disk.free_bytes < min(ROOM_BYTES, ROOM_SHARE * disk.total_bytes):
        return Full(0.0, 0.0, 0.0)
    return full if _is_soon(full) else None
