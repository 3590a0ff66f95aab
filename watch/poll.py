"""An endpoint, and the result of one poll of it. Values only."""

from __future__ import annotations

from enum import Enum

import msgspec


class Endpoint(msgspec.Struct, frozen=True):
    """One address at which a driver answers.

    ``url`` is scheme, host and port, which may be shown. ``address`` is the IP address to
    connect to, empty if the host's name is resolved for each request. ``group`` is the DNS name
    that led here: under a DNS name, drivers are known by their app, because addresses change.
    """

    url: str
    address: str = ""
    group: str = ""
    loopback: bool = False
    """Whether it is on this machine, so that no network can be at fault."""

    @property
    def listed_as(self) -> str:
        """The target that led here: the DNS name, else the URL itself."""
        return self.group or self.url

    @property
    def shown(self) -> str:
        """The address in a form for people."""
        return f"{self.url} ({self.address})" if self.address else self.url


class Said(str, Enum):
    """What a driver, or the network in its place, answered to one poll."""

    HEALTHY = "healthy"
    STUCK = "stuck"
    """It answers, but its worker does not advance."""
    SILENT = "silent"
    """It accepts the connection and does not answer, as a frozen process does."""
    REFUSED = "refused"
    """Nothing listens: the machine's answer when a process is gone."""
    BROKEN = "broken"
    """The connection ended without a complete answer."""
    UNREACHABLE = "unreachable"
    """Nothing answered; the watcher's own network may be at fault."""
    REPLACED = "replaced"
    """Another driver answers at its address."""
    BARRED = "barred"
    """It is up and refuses the watcher: a token or a certificate is wrong."""


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one poll; times are monotonic seconds of the watcher."""

    began_at: float
    at: float
    said: Said
    detail: str = ""
    """What happened on the connection, for a person."""
    app: str = ""
    """The driver's ``app`` label, empty if unknown."""
    heartbeat: float | None = None
    """When the driver's worker last evaluated, in Unix seconds of the driver's clock."""
    reports_gone: bool | None = None
    """Whether it fires ``StreamingDriverDown`` itself: Python answers, but its JVM has ended.

    None if its status could not be read.
    """
    unhealthy: tuple[str, ...] = ()
    """``name: state`` of each unhealthy query."""

    @property
    def is_up(self) -> bool:
        """Whether a driver answered; one that refuses the watcher is up."""
        return self.said in (Said.HEALTHY, Said.BARRED)
