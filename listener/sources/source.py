"""What sources have in common: interfaces, committed offsets, and shared clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..offsets import Position, parse_offsets
from ..query import Query
from ..source_polls import SourcePoll

# -- source -----------------------------------------------------------------------------------
# What sources have in common: their interfaces, and how they read a run's committed offsets.


class SourceError(Exception):
    """A source did not answer; the message is short and holds no secret."""


class SourceSilentError(SourceError):
    """The system did not answer in time: it is slow or unreachable."""


class Source(Protocol):
    """One source of a run whose system can be polled without Spark."""

    @property
    def address(self) -> str:
        """Where the system is; if it does not answer, no source at this address is polled."""
        ...

    def poll(self) -> SourcePoll:
        """Poll the system; takes a few seconds at most. Raises SourceError."""
        ...

    def close(self) -> None:
        """Close the connections; never raises."""
        ...


class Sources(Protocol):
    """Finds the sources of a run."""

    def open(self, query: Query) -> Mapping[int, Source] | None:
        """The sources by index; None while Spark does not know them yet. Raises SourceError."""
        ...

    def release(self, run_id: str) -> None:
        """Forget a run that will not be opened again."""
        ...


def committed_in(execution: Any, stream: Any) -> dict[str, Position]:
    """The last committed offsets by partition; empty without any, or for an unknown shape."""
    offset = execution.committedOffsets().get(stream)
    positions = parse_offsets(offset.get().json()) if offset.isDefined() else None
    return positions if isinstance(positions, dict) else {}


# -- shared clients ---------------------------------------------------------------------------
# Clients that all sources with the same cluster and credentials share.


OpenClient = Callable[[str], Any]
"""Opens a client with the given name."""


class SharedClients:
    """One client per configuration, for as long as a source needs it; used by one thread.

    A configuration is a Java map without the client's name: equal maps mean the same servers,
    security and behaviour. The maps, and the secrets in them, stay in Java.
    """

    def __init__(self, close: Callable[[Any], object]) -> None:
        self._close = close
        self._name = f"querypulse-admin-{uuid.uuid4().hex[:8]}"
        self._made = 0
        self._shared: list[_Shared] = []

    def lease(self, config: Any, open_client: OpenClient) -> Lease:
        """A lease of the configuration's client, which is opened when first needed."""
        shared = next((one for one in self._shared if one.config.equals(config)), None)
        if shared is None:
            self._made += 1
            shared = _Shared(config, f"{self._name}-{self._made}")
            self._shared.append(shared)
        shared.leases += 1
        return Lease(self, shared, open_client)

    def close(self, shared: _Shared) -> None:
        """Close a client for all its leases; the next use opens a new one."""
        client, shared.client = shared.client, None
        if client is not None:
            self._close(client)

    def release(self, shared: _Shared) -> None:
        """End one lease; the last one closes the client."""
        shared.leases -= 1
        if not shared.leases:
            self._shared.remove(shared)
            self.close(shared)


class _Shared:
    """One client, open or not, and its number of leases."""

    def __init__(self, config: Any, name: str) -> None:
        self.config = config
        self.name = name
        self.client: Any = None
        self.leases = 0


class Lease:
    """One source's lease of a client."""

    def __init__(self, clients: SharedClients, shared: _Shared, open_client: OpenClient) -> None:
        self._clients = clients
        self._shared = shared
        self._open = open_client
        self._released = False

    def client(self) -> Any:
        """The client; opens it if necessary, and then raises what opening it raises."""
        if self._shared.client is None:
            self._shared.client = self._open(self._shared.name)
        return self._shared.client

    def drop(self) -> None:
        """Close the client for all leases, because its cluster does not answer."""
        self._clients.close(self._shared)

    def release(self) -> None:
        """End this lease; a second call does nothing."""
        if not self._released:
            self._released = True
            self._clients.release(self._shared)
