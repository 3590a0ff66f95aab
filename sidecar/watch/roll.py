"""The roll of drivers that are to be there, and what the looks say of each. Pure.

All times are monotonic seconds of the watcher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ...exporter.farewell import Notice
from .look import Look, Place, Said
from .memory import Spot, Subject

NEVER_SEEN_FACTOR = 4
"""How much longer one may be silent that was never seen: it may still be starting."""
TERMINATED_AFTER_SECONDS = 300.0
"""So long a driver that a signal has ended may take to be back."""
LONGEST_LOOK_SECONDS = 10.0
"""A look that took longer tells of the watcher, not of the driver."""
SLACK_SECONDS = 5.0
"""By how much looks, and proofs that the network works, may come later than the interval."""

Key = tuple[str, str]
"""A URL or a DNS name, and an app; the first app seen there keeps the key without one."""


class Roll:
    """Remembers what was seen of each driver; ``subjects`` are those that are to be there.

    ``is_listed`` says whether it is known by now where to look.
    """

    def __init__(
        self,
        gone_after_seconds: float,
        interval_seconds: float,
        terminated_after_seconds: float = TERMINATED_AFTER_SECONDS,
    ) -> None:
        self._gone_after = gone_after_seconds
        self._terminated_after = max(gone_after_seconds, terminated_after_seconds)
        self._longest_pause = interval_seconds + SLACK_SECONDS
        self._spots: dict[Place, Spot] = {}
        self._listed: frozenset[Place] = frozenset()
        self.is_listed = False
        self._proof_at: float | None = None
        self.subjects: dict[Key, Subject] = {}

    @property
    def places(self) -> frozenset[Place]:
        """Where to look: what is listed, and addresses that left DNS without a farewell."""
        return frozenset(self._spots)

    @property
    def spots(self) -> Mapping[Place, Spot]:
        """What is remembered of each place where to look."""
        return self._spots

    @property
    def unsure(self) -> bool:
        """Whether a proof that the network works is needed, for a driver cannot be reached."""
        return any(subject.unsure for subject in self.subjects.values())

    def listed(self, places: Iterable[Place]) -> None:
        """Watch these places from now on; who is listed no more is missed no more.

        An address that left DNS is: its driver may have been killed. ``forget`` ends that.
        """
        self._listed = frozenset(places)
        self.is_listed = True
        for place in self._listed - self._spots.keys():
            self._spots[place] = Spot()
            if not any(key[0] == place.listed_as for key in self.subjects):
                self.subjects[place.listed_as, ""] = Subject(place)
        names = {place.listed_as for place in self._listed}
        for key in [key for key in self.subjects if key[0] not in names]:
            del self.subjects[key]
        self._drop_spots()

    def forget(self, key: Key) -> None:
        """Miss this one no more, and look no more where only it was."""
        del self.subjects[key]
        self._drop_spots()

    def expect(self, shown: str, name: str) -> Key | None:
        """Who was called ``name`` at the listed URL ``shown`` is known by that app from now on.

        None where no such URL is listed, or another app is known there.
        """
        for place in self._listed:
            subject = self.subjects.get((place.listed_as, ""))
            if subject is not None and not place.group and place.shown == shown:
                known = name != subject.address
                app = name.removesuffix(f"@{subject.address}") if known else subject.app
                if not subject.app:
                    subject.app = self._spots[place].app = app
                return (place.listed_as, "") if subject.app == app else None
        return None

    def is_down(self, shown: str) -> bool:
        """Whether nothing answers at the listed place ``shown``, and nobody closed there."""
        return any(
            place.shown == shown
            and (spot := self._spots[place]).look is not None
            and spot.stopped_at is None
            and not spot.lives
            for place in self._listed
        )

    def looked(self, place: Place, look: Look) -> None:
        """Take one look into account."""
        spot = self._spots.get(place)
        if spot is None or (spot.stopped_at is not None and look.began_at <= spot.stopped_at):
            return
        if look.at - look.began_at > LONGEST_LOOK_SECONDS:
            for subject in self._under(place.listed_as):
                subject.forgive()
            return
        if look.said is not Said.UNREACHABLE and not place.loopback:
            self.proved(look.at)
        look = spot.take(look)
        self._know_app(place, spot.app)
        for subject in self._under(place.listed_as):
            self._tell(subject, place, look)
        self._drop_spots()

    def closes(self, place: Place, at: float, notice: Notice) -> None:
        """The driver at ``place`` gave notice at ``at`` that it closes."""
        spot = self._spots.get(place)
        if spot is None:
            return
        spot.stopped_at = at
        for subject in self._under(place.listed_as):
            if place in self._places_of(subject) and not self._lives(subject):
                (subject.stop if notice is Notice.STOPPED else subject.terminate)()

    def names(self) -> dict[Key, str]:
        """What each driver is called: one app at two places is two drivers, ``app@host:port``."""
        apps = Counter(one.app for one in self.subjects.values() if not one.stopped)
        return {
            key: one.full_name if apps[one.app] > (not one.stopped) else one.name
            for key, one in self.subjects.items()
        }

    def proved(self, at: float) -> None:
        """Something answered over the network at ``at``.

        After a time without any proof, everything that could not be reached is looked at afresh.
        """
        lost = self._proof_at is None or at - self._proof_at > self._longest_pause
        self._proof_at = at
        for subject in self.subjects.values():
            if lost and subject.unsure:
                subject.forgive()

    def is_gone(self, subject: Subject) -> bool:
        """Whether it has not been found for so long that somebody should know."""
        if subject.last is None or subject.bad_since is None or subject.bad_looks < 2:  # noqa: PLR2004 - one is a glitch
            return False
        needed = self._gone_after * (1 if subject.seen else NEVER_SEEN_FACTOR)
        if subject.terminated:
            needed = self._terminated_after
        return subject.last.at - subject.bad_since >= needed

    def network_works(self, subject: Subject) -> bool:
        """Whether something else has answered since this one does not, and just now."""
        if self._proof_at is None or subject.last is None or subject.bad_since is None:
            return False
        just_now = subject.last.at - self._proof_at <= self._longest_pause
        return just_now and self._proof_at >= subject.bad_since

    def _tell(self, subject: Subject, place: Place, look: Look) -> None:
        """Let one subject know of a look under its name."""
        own = self._places_of(subject)
        if self._lives(subject):
            if place in own and self._spots[place].lives:
                subject.hear_well(place, look)
        elif place in own:
            subject.hear_bad(place, look, self._longest_pause)
        elif not own:
            if look.said is Said.WELL:
                detail = f"{look.app or 'another driver'} answers there now"
                look = msgspec.structs.replace(look, said=Said.REPLACED, detail=detail)
            subject.hear_bad(place, look, self._longest_pause)

    def _know_app(self, place: Place, app: str) -> None:
        """Each app is a driver of its own from when it is first seen.

        One that closed in good order is forgotten when another app is there.
        """
        name = place.listed_as
        if not app or any(subject.app == app for subject in self._under(name)):
            return
        waited_for = self.subjects.get((name, ""))
        if waited_for is not None and not waited_for.app:
            waited_for.app = app
            return
        for key in [key for key, one in self.subjects.items() if key[0] == name and one.stopped]:
            del self.subjects[key]
        self.subjects[name, app] = Subject(place, app)

    def _under(self, name: str) -> list[Subject]:
        return [subject for key, subject in self.subjects.items() if key[0] == name]

    def _places_of(self, subject: Subject) -> list[Place]:
        """Where it was seen last; of one never seen, all places of its name."""
        name = subject.place.listed_as
        return [
            place
            for place, spot in self._spots.items()
            if place.listed_as == name and subject.app in ("", spot.app)
        ]

    def _lives(self, subject: Subject) -> bool:
        return any(self._spots[place].lives for place in self._places_of(subject))

    def _drop_spots(self) -> None:
        """Look no more where nothing is listed and nobody is missed."""
        missed = set(self._missed_places())
        for place in [place for place in self._spots if place not in self._listed | missed]:
            del self._spots[place]

    def _missed_places(self) -> Iterator[Place]:
        for subject in self.subjects.values():
            if subject.app and not subject.stopped:
                own = self._places_of(subject)
                if not any(place in self._listed and self._spots[place].lives for place in own):
                    yield from own
