"""What the application announces: planned stops, queries that will not come back, silences."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any

from ..listener.forgetting import is_called
from ..listener.query import Query
from ..settings.components import Components
from ..settings.silence_settings import SilenceSettings
from ..settings.silencing import Silencing, silence_until, unmatched
from .runtime import Runtime
from .supervisor import Supervisor

log = logging.getLogger("querypulse")


class Announcements(ABC):
    """The part of ``Sidecar`` through which the application announces."""

    _runtime: Runtime | None
    _components: Components
    _supervisor: Supervisor

    @abstractmethod
    def flush(self, timeout: float = 5.0) -> bool:
        """See ``Sidecar.flush``."""

    def expect_stop(self, name: Any) -> None:
        """Announce a planned stop of the current run, before ``query.stop()``; failures still page.

        ``name`` is a query's name, or the ``StreamingQuery``.

        Raises:
            ValueError: no such query is known.

        """
        expect_stop(self._runtime, self.flush, name)

    def forget(self, name: Any) -> None:
        """Drop a query that will not come back: its alerts resolve, its series end.

        It is no longer expected or supervised. ``"unnamed"`` drops every query without a name
        that has ended.

        Raises:
            ValueError: no query of this name is known, or it is still running.

        """
        forget(self._runtime, self.flush, name, self._supervisor.forget)

    def silence(
        self,
        queries: str,
        minutes: float | None = None,
        until: datetime | None = None,
        reason: str = "",
        alertname: str = "*",
    ) -> None:
        """Suppress alerts of queries that match a name pattern, for ``minutes`` or ``until``.

        Alerts sent before stay open, and their resolution is sent. The silence ends with this
        process; those of ``querypulse silence`` and of the setting ``silences`` outlive it.

        Raises:
            ValueError: the end is missing, past or without time zone, or 1,000 are in force.

        """
        one = silence_until(queries, minutes, until, alertname=alertname, reason=reason)
        silence(self._runtime, self._components.silencing, one)


def expect_stop(runtime: Runtime | None, flush: Callable[[], bool], query: Any) -> None:
    """See ``Sidecar.expect_stop``."""
    name = _name_of("expect_stop", runtime, query)
    if runtime is None or not (_called(runtime, name) or (flush() and _called(runtime, name))):
        raise ValueError(f"expect_stop: no query is named {name!r}; known: {_known(runtime)}")
    runtime.expect_stop(name)


def forget(
    runtime: Runtime | None,
    flush: Callable[[], bool],
    query: Any,
    end_supervision: Callable[[str], bool],
) -> None:
    """See ``Sidecar.forget``."""
    name = _name_of("forget", runtime, query)
    # The event of a query that stopped just now may not have arrived.
    if runtime is not None and not _can_be_forgotten(runtime, name):
        flush()
    absent = runtime is None or not (_called(runtime, name) or name in runtime.published.expected)
    if absent and end_supervision(name):
        return
    if runtime is None or absent:
        raise ValueError(f"forget: no query is named {name!r}; known: {_known(runtime)}")
    if not _can_be_forgotten(runtime, name):
        raise ValueError(f"forget: {name!r} is still running; stop it first")
    end_supervision(name)
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
        return name in runtime.published.expected
    return any(not query.alive for query in called)


def _called(runtime: Runtime, name: str) -> list[Query]:
    return [query for query in runtime.evaluated.snapshot.queries if is_called(query, name)]


def _known(runtime: Runtime | None) -> list[str]:
    if runtime is None:
        return []
    return list(dict.fromkeys((*runtime.evaluated.snapshot.labels(), *runtime.published.expected)))
