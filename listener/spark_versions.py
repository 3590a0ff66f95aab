"""The Spark versions that querypulse runs on. Pure.

What differs between supported versions is found by trying, because vendors backport: the classes
in Java call methods by name, and each path of events has a fallback.
"""

from __future__ import annotations

import re

OLDEST = (3, 5)
"""The first with ``onQueryIdle`` and with a listener API that PySpark supports on every path."""
_NUMBERS = re.compile(r"(\d+)\.(\d+)")
_MAJOR = re.compile(r"v?(\d+)(?:\.|$)")


class UnsupportedSparkError(RuntimeError):
    """Spark is older than the oldest version that is supported."""


def require_supported(version: str) -> None:
    """Accept the text of ``spark.version``, also where it is a vendor's and starts otherwise.

    Raises:
        UnsupportedSparkError: it is older than ``OLDEST``.

    """
    found = _NUMBERS.match(version)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UnsupportedSparkError(
            f"Spark {version} is too old: querypulse needs {oldest} or newer"
        )


def is_before(major: int, version: str) -> bool:
    """Whether ``version`` is older than Spark ``major``; False where it is not understood."""
    found = _MAJOR.match(version)
    return found is not None and int(found[1]) < major


def has_execution_context(version: str) -> bool:
    """Whether a query keeps its batch id in ``getLatestExecutionContext``, as Spark 4 does."""
    return not is_before(4, version)
