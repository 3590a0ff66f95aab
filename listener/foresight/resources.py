"""What a driver uses of its memory and its disks: the newest reading, and how it was before.

Pure; times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from .filling import Full, Series, follow, until_full
from .intake import end_at

GC_MINUTES = 3
MAX_DISKS = 20
HEAP = "heap"
CONTAINER = "container"


class Heap(msgspec.Struct, frozen=True, gc=False):
    """The heap of the driver's JVM (``java.lang.management``), as ``DriverHeap.java`` reads it."""

    used_bytes: int
    after_gc_bytes: int | None
    """What the last collection of the whole heap left; None before the first one. Young collections
    do not count: the garbage of the old generation is in what they leave."""
    max_bytes: int
    gc_seconds: float
    """In collections that stop the threads, of any generation, since the JVM began."""
    collections: int = 0
    """Of the whole heap."""
    at: float = 0.0


class Container(msgspec.Struct, frozen=True, gc=False):
    """The memory of the driver's control group: all of its processes, with Python's.

    Of its usage, what the kernel can take back at once (``inactive_file``) does not count: the
    working set is what it kills for, as Kubernetes measures it.
    """

    working_set_bytes: int
    limit_bytes: int


class Disk(msgspec.Struct, frozen=True, gc=False):
    """A local file system, and what of ours and of Spark's is on it."""

    path: str
    holds: tuple[str, ...]
    """Such as ``checkpoint of orders``, ``spark.local.dir``, ``spool_dir``."""
    free_bytes: int
    """To those who are not root."""
    total_bytes: int

    @property
    def used_bytes(self) -> int:
        """What is not free, also what is reserved."""
        return self.total_bytes - self.free_bytes


SCARCE = 0.8
"""A driver that uses this part of its memory may have died of it."""


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the driver; what is not known is None.

    ``heap_full`` and ``container_full``: when these are, if they fill up. ``gc_share``: what part
    of the last minutes collections took.
    """

    heap: Heap | None = None
    heap_full: Full | None = None
    gc_share: float | None = None
    container: Container | None = None
    container_full: Full | None = None

    @property
    def is_scarce(self) -> bool:
        """Whether it may have ended a driver that ends now."""
        heap, container = self.heap, self.container
        left = 0 if heap is None else heap.after_gc_bytes or 0
        heap_is_full = heap is not None and left >= SCARCE * heap.max_bytes
        return heap_is_full or (
            container is not None and container.working_set_bytes >= SCARCE * container.limit_bytes
        )


class Resources(msgspec.Struct, frozen=True, gc=False):
    """The newest readings; ``at`` is that of container and disks. What is not known is missing."""

    at: float = 0.0
    heap: Heap | None = None
    container: Container | None = None
    disks: tuple[Disk, ...] = ()


class Usage(msgspec.Struct, frozen=True, gc=False):
    """How the driver's memory and disks were used until now."""

    after_gc: Series = Series()
    """Bytes that collections of the whole heap left; a point only where there was another one."""
    gc_seconds: Series = Series()
    working_set: Series = Series()
    disks: Mapping[str, Series] = {}
    """Bytes in use, by path."""


def follow_heap(usage: Usage, heap: Heap, before: Heap | None) -> Usage:
    """Add a reading of the heap; ``before`` is the one before it."""
    seen = 0 if before is None else before.collections
    if heap.collections < seen:
        # Another JVM.
        usage = replace(usage, after_gc=Series(), gc_seconds=Series())
    after_gc = usage.after_gc
    if heap.after_gc_bytes is not None and heap.collections != seen:
        after_gc = follow(after_gc, heap.at, heap.after_gc_bytes)
    return replace(
        usage, after_gc=after_gc, gc_seconds=follow(usage.gc_seconds, heap.at, heap.gc_seconds)
    )


def follow_host(usage: Usage, reading: Resources) -> Usage:
    """Add a reading of the container and the disks."""
    working_set = usage.working_set
    if reading.container is not None:
        working_set = follow(working_set, reading.at, reading.container.working_set_bytes)
    # One that is missing in a reading may only be slow.
    disks = dict(usage.disks)
    for disk in reading.disks:
        before = disks.pop(disk.path, Series())
        disks[disk.path] = follow(before, reading.at, disk.used_bytes)
    newest = dict(list(disks.items())[-MAX_DISKS:])
    return replace(usage, working_set=working_set, disks=newest)


def full_of(resources: Resources, usage: Usage, now: float) -> dict[str, Full]:
    """Return when what fills up is full: ``HEAP``, ``CONTAINER``, and disks by their paths."""
    answers = {
        HEAP: heap_full(resources, usage, now),
        CONTAINER: container_full(resources, usage, now),
        **{disk.path: disk_full(disk, usage, now) for disk in resources.disks},
    }
    return {name: full for name, full in answers.items() if full is not None}


def heap_full(resources: Resources, usage: Usage, now: float) -> Full | None:
    """Return when collections leave nothing free."""
    heap = resources.heap
    return None if heap is None else until_full(usage.after_gc, heap.max_bytes, now)


def container_full(resources: Resources, usage: Usage, now: float) -> Full | None:
    """Return when the container is at its limit."""
    container = resources.container
    if container is None:
        return None
    return until_full(usage.working_set, container.limit_bytes, now)


def disk_full(disk: Disk, usage: Usage, now: float) -> Full | None:
    """Return when a disk has no room."""
    return until_full(usage.disks.get(disk.path, Series()), disk.total_bytes, now)


def gc_share(usage: Usage, now: float, minutes: int = GC_MINUTES) -> float | None:
    """The least share of a minute that collections took, of the last minutes.

    None where one of these minutes has no reading: then a single long collection, or a pause of
    this process, may be all there was.
    """
    points = usage.gc_seconds.points
    shares = []
    for minute in range(minutes):
        end = now - 60.0 * minute
        if not any(end - 60.0 < at <= end for at, _ in points):
            return None
        shares.append((end_at(points, end) - end_at(points, end - 60.0)) / 60.0)
    return min(shares)
