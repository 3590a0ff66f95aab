"""What is remembered of each place and of each driver. No clock, no socket.

All times are monotonic seconds of the watcher.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from .look import Look, Place, Said

HEARTBEAT_SECONDS = 5.0
"""How long a heartbeat may stand; a worker judges about twice a second."""


class Spot(msgspec.Struct):
    """One place: the newest look, and the app that was last seen there."""

    look: Look | None = None
    app: str = ""
    stopped_at: float | None = None
    """When its driver closed in good order; None again once one is seen there."""
    beat: float | None = None
    beat_since: float = 0.0

    def take(self, look: Look) -> Look:
        """Remember a look; the answer says ``STANDING`` where the heartbeat stands."""
        if look.heartbeat is None or look.heartbeat != self.beat:
            self.beat, self.beat_since = look.heartbeat, look.at
        stands = look.at - self.beat_since
        if look.said is Said.WELL and stands >= HEARTBEAT_SECONDS:
            detail = f"its worker's heartbeat has stood still for {stands:.0f} s"
            look = msgspec.structs.replace(look, said=Said.STANDING, detail=detail)
        if look.said is Said.WELL:
            self.stopped_at = None
            self.app = look.app or self.app
        self.look = look
        return look

    @property
    def lives(self) -> bool:
        """Whether a driver is there; one that bars us is."""
        if self.look is None or self.stopped_at is not None:
            return False
        return self.look.said in (Said.WELL, Said.BARRED)

    @property
    def readable(self) -> bool:
        """Whether the newest look was let in, or the driver has closed in good order."""
        if self.look is None or self.look.said is Said.BARRED:
            return False
        return self.look.said is Said.WELL or self.stopped_at is not None


class Subject(msgspec.Struct):
    """One driver that is to be there: an app at a URL of the list, or under a DNS name.

    The subject without an app stands for the URL or name itself until a driver has been seen
    there.
    """

    place: Place
    """Where the newest look went."""
    app: str = ""
    seen: bool = False
    well_since: float | None = None
    bad_since: float | None = None
    bad_looks: int = 0
    """In a row: a single one is a glitch."""
    last: Look | None = None
    last_seen: Look | None = None
    """The newest look that found it well."""
    stopped: bool = False
    terminated: bool = False
    """Whether a signal has ended it, and it is not back yet."""

    @property
    def address(self) -> str:
        """What it is called before its app is known: host and port."""
        return urlsplit(self.place.group or self.place.url).netloc

    @property
    def name(self) -> str:
        """What it is called."""
        return self.app or self.address

    @property
    def full_name(self) -> str:
        """What it is called where another driver has the same app."""
        return f"{self.app}@{self.address}" if self.app else self.address

    @property
    def replaced(self) -> bool:
        """Whether another driver was found in its place."""
        return self.last is not None and self.last.said is Said.REPLACED

    @property
    def unsure(self) -> bool:
        """Whether the last look tells nothing, unless the network is known to work."""
        unreached = self.last is not None and self.last.said is Said.UNREACHABLE
        return unreached and self.bad_since is not None and not self.place.loopback

    def hear_well(self, place: Place, look: Look) -> None:
        """``look`` found it alive at ``place``."""
        self.place, self.last = place, look
        self.bad_since, self.bad_looks = None, 0
        self.stopped = self.terminated = False
        self.seen = True
        if look.reports_gone:
            # It has nothing to run queries any more: no time of health.
            self.well_since = None
        elif self.well_since is None:
            self.well_since = look.at
        if look.said is Said.WELL:
            self.last_seen = look

    def hear_bad(self, place: Place, look: Look, longest_pause: float) -> None:
        """It was not found; after a pause between looks, what was before proves nothing."""
        if self.stopped:
            return
        if self.last is not None and look.began_at - self.last.at > longest_pause:
            self.forgive()
        self.place, self.last = place, look
        self.well_since = None
        if self.bad_since is None:
            self.bad_since = look.began_at
        self.bad_looks += 1

    def forgive(self) -> None:
        """Begin anew: what was not found so far proves nothing."""
        self.bad_since, self.bad_looks = None, 0

    def stop(self) -> None:
        """It closed in good order, and is not missed until it is seen again."""
        self.forgive()
        self.stopped, self.terminated, self.well_since = True, False, None

    def terminate(self) -> None:
        """A signal ended it: it may come back, and is missed later than one that was killed."""
        self.forgive()
        self.terminated, self.well_since = True, None
