"""What the application says of its queries: a stop that is planned, one that will not come back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..listener.forgetting import is_called
from ..listener.query import Query
from .configuration.receiver_settings import SilenceSettings
from .runtime import Runtime
from .silence_hints import unmatched
from .silencing import Silencing

log = logging.getLogger("querypulse")


def expect_stop(parts: Runtime | None, flush: Callable[[], bool], query: Any) -> None:
    """See ``Sidecar.expect_stop``."""
    name = _name_of("expect_stop", parts, query)
    if parts is None or not (_called(parts, name) or (flush() and _called(parts, name))):
        raise ValueError(f"expect_stop: no query is called {name!r}; known: {_known(parts)}")
    parts.expect_stop(name)


def forget(parts: Runtime | None, flush: Callable[[], bool], query: Any) -> None:
    """See ``Sidecar.forget``."""
    name = _name_of("forget", parts, query)
    # The end of a query that was stopped just now may still be on its way.
    if parts is not None and not _can_be_forgotten(parts, name):
        flush()
    if parts is None or not (_called(parts, name) or name in parts.board.expected):
        raise ValueError(f"forget: no query is called {name!r}; known: {_known(parts)}")
    if not _can_be_forgotten(parts, name):
        raise ValueError(f"forget: {name!r} lives; stop it first")
    parts.forget(name)


def silence(parts: Runtime | None, silencing: Silencing, one: SilenceSettings) -> None:
    """See ``Sidecar.silence``; what matches nothing now is logged."""
    silencing.add(one)
    note = unmatched(one, _known(parts) if parts is not None else None)
    if note:
        log.warning("querypulse: silence: %s", note)


def shown(parts: Runtime | None, *, closed: bool) -> str:
    """The sidecar in one line."""
    if parts is None or closed:
        return f"<Sidecar {'closed' if closed else 'not started'}>"
    count = len(parts.board.snapshot.queries)
    alerts = len(parts.evaluated.alerts)
    return f"<Sidecar app={parts.board.app!r} url={parts.url!r} queries={count} alerts={alerts}>"


def _name_of(asked: str, parts: Runtime | None, query: Any) -> str:
    """What a query is called here, given its name or the ``StreamingQuery`` itself."""
    if isinstance(query, str):
        return query
    if not hasattr(query, "id") or not hasattr(query, "name"):
        kind = type(query).__name__
        raise ValueError(f"{asked}: give a query's name or a StreamingQuery, not {kind}")
    known = parts.evaluated.snapshot.queries if parts is not None else ()
    labels = [one.label for one in known if one.query_id == str(query.id)]
    return labels[0] if labels else str(query.name or query.id)


def _can_be_forgotten(parts: Runtime, name: str) -> bool:
    called = _called(parts, name)
    if not called:
        return name in parts.board.expected
    return any(not query.alive for query in called)


def _called(parts: Runtime, name: str) -> list[Query]:
    return [query for query in parts.evaluated.snapshot.queries if is_called(query, name)]


def _known(parts: Runtime | None) -> list[str]:
    if parts is None:
        return []
    return list(dict.fromkeys((*parts.evaluated.snapshot.labels(), *parts.board.expected)))
