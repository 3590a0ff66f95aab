"""What is watched, and what one look at it gave. Values only."""

from __future__ import annotations

from enum import Enum

import msgspec


class Endpoint(msgspec.Struct, frozen=True):
    """One address at which a driver answers.

    ``url`` is scheme, host and port, which may be shown. ``address`` is the IP address to
    connect to, empty where the host's name is to be looked up each time. ``group`` is the DNS
    name that led here: under one, drivers are known by their app, for addresses come and go.
    """

    url: str
    address: str = ""
    group: str = ""
    loopback: bool = False
    """On this machine, so that no network can be at fault."""

    @property
    def listed_as(self) -> str:
        """What led here: the DNS name, else the URL itself."""
        return self.group or self.url

    @property
    def shown(self) -> str:
        """Where it is, for a person."""
        return f"{self.url} ({self.address})" if self.address else self.url


class Said(str, Enum):
    """What a driver, or the network in its stead, said to one look."""

    HEALTHY = "well"
    STUCK = "standing"
    """It answers, but not that its worker beats."""
    SILENT = "silent"
    """The connection is taken, and no answer comes: what a frozen process does."""
    REFUSED = "refused"
    """Nobody listens: what a machine says of a process that is gone."""
    BROKEN = "broken"
    UNREACHABLE = "unreachable"
    """No word at all; the network on our side may be at fault."""
    REPLACED = "replaced"
    """Another driver answers at its address."""
    BARRED = "barred"
    """It lives, and does not let us in: a token or a certificate is wrong."""


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """One look; times are monotonic seconds of the watcher."""

    began_at: float
    at: float
    said: Said
    detail: str = ""
    """What the connection said, in words."""
    app: str = ""
    """The driver's name for itself, empty when it was not told."""
    heartbeat: float | None = None
    """When the driver's worker last judged, in Unix seconds of the driver's clock."""
    reports_gone: bool = False
    """Whether it says ``StreamingDriverDown`` of itself: Python answers, its JVM has ended."""
    unwell: tuple[str, ...] = ()
    """``name: state`` of the queries that were not well."""
