"""What a driver uses of its memory and its disks, one reading at a time."""

from __future__ import annotations

import msgspec


class Heap(msgspec.Struct, frozen=True, gc=False):
    """The heap of the driver's JVM (``java.lang.management``)."""

    used_bytes: int
    after_gc_bytes: int | None
    """What the last collection left; None before the first one, or where the JVM does not say."""
    max_bytes: int
    gc_seconds: float
    """In collections that stop the threads, since the JVM began."""


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
    total_bytes: int


class Resources(msgspec.Struct, frozen=True, gc=False):
    """One reading; ``at`` is monotonic seconds. What cannot be read is None, or missing."""

    at: float
    heap: Heap | None = None
    container: Container | None = None
    disks: tuple[Disk, ...] = ()
