"""What the application announces: planned stops, queries that will not come back, silences."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..listener.forgetting import is_called
from ..listener.query import Query
from ..settings.silence_settings import SilenceSettings
from ..settings.silencing import Silencing, unmatched
from .runtime import Runtime

log = logging.getLogger("querypulse")


def expect_stop(runtime: Runtime | None, flush: Callable[[], bool], query: Any) -> None:
    """See ``Sidecar.expect_stop``."""
    name = _name_of("expect_stop", runtime, query)
    if runtime is None or not (_called(runtime, name) or (flush() and _called(runtime, name))):
        raise ValueError(f"expect_stop: no query is named {name!r}; known: {_known(runtime)}")
    runtime.expect_stop(name)


def forget(runtime: Runtime | None, flush: Callable[[], bool], query: Any) -> None:
    """See ``Sidecar.forget``."""
    name = _name_of("forget", runtime, query)
    # The event of a query that stopped just now may not have arrived.
    if runtime is not None and not _can_be_forgotten(runtime, name):
        flush()
    if runtime is None or not (_called(runtime, name) or name in runtime.board.expected):
        raise ValueError(f"forget: no query is named {name!r}; known: {_known(runtime)}")
    if not _can_be_forgotten(runtime, name):
        raise ValueError(f"forget: {name!r} is still running; stop it first")
    runtime.forget(name)


def silence(runtime: Runtime | None, silencing: Silencing, one: SilenceSettings) -> None:
    """See ``Sidecar.silence``; a pattern that matches nothing now is logged."""
    silencing.add(one)
    note = unmatched(one, _known(runtime) if runtime is not None else None)
    if note:
        log.warning("querypulse: silence: %s", note)


def _name_of(method: str, runtime: Runtime | None, query: Any) -> str:
    """The name we use for a query, given its name or the ``StreamingQuery`` itself."""
    if isinstance(query, str):
        return query
    if not hasattr(query, "id") or not hasattr(query, "name"):
        kind = type(query).__name__
        raise ValueError(f"{method}: give a query's name or a StreamingQuery, not {kind}")
    known = runtime.evaluated.snapshot.queries if runtime is not None else ()
    labels = [one.label for one in known if one.query_id == str(query.id)]
    return labels[0] if labels else str(query.name or query.id)


def _can_be_forgotten(runtime: Runtime, name: str) -> bool:
    called = _called(runtime, name)
    if not called:
        return name in runtime.board.expected
    return any(not query.alive for query in called)


def _called(runtime: Runtime, name: str) -> list[Query]:
    return [query for query in runtime.evaluated.snapshot.queries if is_called(query, name)]


def _known(runtime: Runtime | None) -> list[str]:
    if runtime is None:
        return []
    return list(dict.fromkeys((*runtime.evaluated.snapshot.labels(), *runtime.board.expected)))
