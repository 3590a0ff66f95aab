"""Attaching to the SparkSessions of this process, as soon as they are created."""

from __future__ import annotations

import functools
import logging
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

log = logging.getLogger("querypulse")

_ATTACHED: weakref.WeakSet[Any] = weakref.WeakSet()
"""The SparkContexts and Connect sessions that were attached to, or could not be."""


@functools.cache
def warn_once(reason: str) -> None:
    """Log why nothing is attached, unless this process has said so."""
    log.warning("querypulse: not attached: %s", reason)


def attach_to_sessions(module: ModuleType) -> None:
    """Attach to each SparkContext once it has a session, or to the first session of Spark Connect.

    ``module`` is ``pyspark.sql.session``, where PySpark's constructor applies the builder's options
    (since 3.3), or ``pyspark.sql.connect.session``.
    """
    session = module.SparkSession
    if module.__name__ == "pyspark.sql.session":
        session.__init__ = _with_follower(session.__init__, lambda spark, _: _attach_classic(spark))
        return
    builder = session.Builder
    for name in ("create", "getOrCreate"):
        follow = _with_follower(getattr(builder, name), lambda _, spark: _attach_connect(spark))
        setattr(builder, name, follow)


def _with_follower(
    function: Callable[..., Any], follow: Callable[[Any, Any], None]
) -> Callable[..., Any]:
    """``function``, a method, and then ``follow(self, result)``; no trace of us in tracebacks."""

    @functools.wraps(function)
    def followed(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            result = function(self, *arguments, **options)
        except BaseException as error:
            # The traceback shows the same frames as without us (Python 3.11+).
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        try:
            follow(self, result)
        except Exception as error:  # noqa: BLE001 - the job continues after any error
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            log.warning("querypulse: not attached, the job continues without it: %s", reason)
        return result

    return followed


def _attach_classic(spark: Any) -> None:
    context = spark.sparkContext
    if context not in _ATTACHED:
        _attach(spark, context)


def _attach_connect(spark: Any) -> None:
    """Not where a local Connect server, whose queries we see, is in this process."""
    from ..sidecar.session import is_stopped

    if all(map(is_stopped, _ATTACHED)):
        _attach(spark, spark)


def _attach(spark: Any, marked: Any) -> None:
    """Attach once, whether that succeeds or not; not in a child of ``multiprocessing``."""
    # First: `attach` creates further objects of the same session.
    _ATTACHED.add(marked)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        warn_once("this process is a child of multiprocessing; call attach(spark) in it")
        return
    from ..sidecar.sidecar import attach_automatically

    attach_automatically(spark)
