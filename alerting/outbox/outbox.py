"""One receiver's account: what it should know, what it knows, and what to send next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..alert import Incident
from ..receivers.answer import Answer
from ..receivers.receiver import DeliveryError, Habits
from .closings import Closings
from .pace import Pace
from .refused import buried, leaves_open, refused
from .row import (
    NO_NEWS,
    Row,
    Told,
    Want,
    Why,
    accepted,
    begun,
    delayed,
    ended,
    is_expired,
    is_obsolete,
    is_settled,
    offered,
    queued,
    wanted,
)
from .shelf import MAX_BYTES, MAX_ROWS, Shelf

__all__ = ["LOSSES", "Outbox", "Row", "Told"]

LOSSES = ("evicted", "expired", "obsolete", "rejected")
"""Why: no room; over for a day; a warning that came and went; a message that was refused."""


class Outbox:
    """Compares the incidents offered with what one receiver was told, and sends the difference.

    So a lost hand-off heals, nothing is dropped while it fires, and a resolve never comes
    before its trigger: there is one row for each incident, and one of them is under way at a
    time, from ``begin`` to ``delivered`` or ``failed``. ``now`` is monotonic, ``wall`` Unix time.
    """

    def __init__(
        self,
        habits: Habits | None = None,
        *,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._habits = habits if habits is not None else Habits()
        self._pace = Pace(self._habits.per_minute)
        self._shelf = Shelf(max_rows, max_bytes)
        self._begun: Row | None = None
        self._reconciles = self._habits.reconciles
        self.closings = Closings(asks=self._habits.can_be_asked)
        self._losses: Counter[str] = Counter(dict.fromkeys(LOSSES, 0))

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, as they are to survive the process."""
        return tuple(self._shelf)

    @property
    def losses(self) -> Counter[str]:
        """How many were not told, by why."""
        return Counter({**self._losses, "evicted": self._shelf.evicted})

    @property
    def circuit_open(self) -> bool:
        """Whether the receiver counts as down."""
        return self._pace.is_open

    def adopt(self, rows: Iterable[Row], wall: float) -> None:
        """Take over what an earlier driver's outbox held; what is known since then goes first.

        What is open is known then, and nothing else is resolved.
        """
        self._reconciles = False
        self.closings.offer(())
        for row in rows:
            mine = self._shelf.get(row.incident.key)
            if mine is None:
                self._put(row)
            elif mine.told is Told.NOTHING:
                self._put(offered(row, mine.incident, wall))
        self._tidy(wall)

    def offer(
        self, incidents: Iterable[Incident], wall: float, closings: Iterable[Incident] | None = None
    ) -> None:
        """Replace the set of incidents that are open at Unix time ``wall``.

        One that ended may be offered once more, with its end, or be left out; ``closings`` are
        what an earlier process may have left open, None where they are as before.
        """
        newest = {incident.key: incident for incident in incidents}
        self._shelf.forget_outsiders(newest)
        for row in self._shelf:
            if row.incident.key not in newest:
                self._put(ended(row, wall))
        self.add(newest.values(), wall)
        if self._reconciles:
            rows = (row.incident.key for row in self._shelf)
            self.closings.offer(closings, held={*newest, *rows})
        self._tidy(wall)

    def add(self, incidents: Iterable[Incident], wall: float) -> None:
        """Let these be known too."""
        for incident in incidents:
            row = self._shelf.get(incident.key)
            if row is not None:
                if row.is_over and incident.ends_at is None:
                    self._pace.renew(incident.key)
                self._put(offered(row, incident, wall))
                continue
            row = queued(incident, wall, self.closings.claim(incident.key))
            if row.is_over and not row.is_critical:
                continue
            self._put(row)
        self._tidy(wall)

    def holds(self, key: str) -> bool:
        """Whether the receiver is to be told how that incident goes on."""
        row = self._shelf.get(key)
        return row is not None and row.told is not Told.RESOLVED

    def pending(self, wall: float) -> int:
        """How many differences the receiver has not been told yet."""
        return len(self._differences(wall))

    def overdue(self, wall: float, after_seconds: float) -> tuple[Incident, ...]:
        """What nobody has surely heard of by this way for so long, or never will as it is."""
        return tuple(
            row.incident
            for row in self._shelf
            if row.is_unnotified
            and not row.incident.muted
            and (row.dead or wall - row.queued_at >= after_seconds)
        )

    def begin(self, now: float, wall: float, urgent_round: int = 0) -> Incident | None:
        """What to send now, the most urgent first; None when there is nothing, or not yet.

        In a flush (``urgent_round`` above 0) that is anything not yet attempted in it.
        """
        self._tidy(wall)
        want = self._pace.choose(self._wants(wall), now, urgent_round)
        if want is None:
            return None
        self._pace.sent(want, now)
        self._begun = row = self._shelf.get(want.incident.key)
        if row is None:
            return want.incident
        sent = delayed(want, row, wall)
        self._put(begun(row, want.incident))
        return sent

    def next_at(self, now: float, wall: float) -> float | None:
        """When ``begin`` may find something, None if there is nothing to send."""
        return self._pace.next_at(self._wants(wall), now)

    def question(self, now: float, wall: float) -> tuple[Incident, ...]:
        """Of what the receiver is to be asked now whether it is open there."""
        ask_at = self.ask_at(wall)
        return self.closings.unasked if ask_at is not None and ask_at <= now else ()

    def ask_at(self, wall: float) -> float | None:
        """When ``question`` may find something; not while there is anything to tell."""
        return None if self._differences(wall) else self.closings.ask_at

    def delivered(self, sent: Incident, wall: float) -> None:
        """The receiver took what was begun."""
        row = self._shelf.get(sent.key)
        self._begun = None
        self._pace.delivered(sent.key)
        if row is not None:
            self._put(accepted(row, sent, wall))
        else:
            self.closings.settle(sent.key)
        self._tidy(wall)

    def failed(
        self, sent: Incident, error: DeliveryError, now: float, wall: float, urgent_round: int = 0
    ) -> float | None:
        """The receiver did not take it; returns when it is tried again, None for never."""
        row, before = self._shelf.get(sent.key), self._begun
        self._begun = None
        again_at = None
        if row is not None and before is not None:
            self._put(refused(row, before, may_have_arrived=error.may_have_arrived))
        if error.answer is Answer.REJECTED and not leaves_open(sent, before):
            self._bury(sent, before)
        else:
            again_at = self._pace.failed(sent.key, error, now, urgent_round)
        self._tidy(wall)
        return again_at

    def is_attempted(self, wall: float, urgent_round: int) -> bool:
        """Whether every difference has failed in this flush already."""
        return self._pace.is_attempted(self._differences(wall), urgent_round)

    def knows_error(self, text: str) -> bool:
        """Whether something still to be told has failed with this very error."""
        return self._pace.knows_error(text)

    def _wants(self, wall: float) -> list[Want]:
        found = (wanted(row, self._habits, wall) for row in self._shelf)
        wants = [want for want in found if want is not None]
        if any(want.why not in NO_NEWS for want in wants):
            return wants
        closing = self.closings.first_due
        return wants if closing is None else [*wants, Want(closing, Why.CLOSING)]

    def _differences(self, wall: float) -> list[Want]:
        return [want for want in self._wants(wall) if want.why not in NO_NEWS]

    def _put(self, row: Row) -> None:
        self._shelf.put(row, keep=self._begun.incident.key if self._begun is not None else None)

    def _bury(self, sent: Incident, before: Row | None) -> None:
        """The very message is not taken, now or later; what has changed since may be."""
        self._pace.buried(sent.key)
        if before is None:
            self.closings.settle(sent.key)
            return
        self._losses["rejected"] += 1
        row = self._shelf.get(sent.key)
        if row is not None:
            self._put(buried(row, before))

    def _tidy(self, wall: float) -> None:
        """Forget what needs no telling any more, and count what nobody heard of."""
        for row in self._shelf:
            key = row.incident.key
            if is_obsolete(row):
                self._losses["obsolete"] += not (row.incident.muted or row.dead)
                self._shelf.drop(key)
            elif is_settled(row, self._habits, wall):
                self._shelf.drop(key)
            elif is_expired(row, wall):
                self._losses["expired"] += not row.dead and row.told is not Told.RESOLVED
                self._shelf.drop(key)
        self._pace.keep({want.incident.key for want in self._wants(wall)})
