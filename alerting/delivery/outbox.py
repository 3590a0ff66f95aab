"""The outbox of one receiver: what it should know, what it knows, what to send next.

There is one row for each incident. The difference between what the receiver should know and what
it knows is sent, the most urgent first, one message at a time: so a lost hand-off is repaired, no
firing incident is dropped, and a resolve never comes before its trigger.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from enum import Enum, IntEnum
from hashlib import sha256

import msgspec
import tenacity
from msgspec.structs import replace

from ...core.states import LOSS_REASONS, DeliveryOutcome
from ..alert import GoesOn, Incident
from ..finding import WHOLE_DRIVER
from ..receivers.receiver import DeliveryError, ReceiverCapabilities

# -- row --------------------------------------------------------------------------------------

EXPIRES_AFTER_SECONDS = 24 * 3600.0
"""How long an incident that has ended is still worth sending."""
LATE_SECONDS = 60.0
"""A page that is sent later than this after it was queued says so."""


class Known(str, Enum):
    """What the receiver knows of an incident."""

    NOTHING = "nothing"
    UNSURE = "unsure"
    """A trigger or a resolve may have arrived, or not."""
    FIRING = "firing"
    RESOLVED = "resolved"


class SendReason(IntEnum):
    """Why something is sent, the most urgent first."""

    TRIGGER = 0
    RESOLVE = 1
    REPEAT = 2
    """The receiver knows it, but needs repetition."""
    ORPHAN = 3
    """An earlier process may have left it open."""

    @property
    def is_difference(self) -> bool:
        """Whether the receiver does not know yet what it should."""
        return self <= SendReason.RESOLVE


class OutboxRow(msgspec.Struct, frozen=True):
    """One incident as one receiver should know it, and what was sent; times in Unix seconds.

    ``version`` changes when the receiver must get the incident again; ``sent_version`` was accepted
    last. ``sent_at`` is when a message was last accepted; None while it is not sure that any was
    since the incident opened. ``queued_at`` is when it began to wait. ``dead``: the receiver
    refuses this message for good; it is not sent again before its version changes or it ends.
    """

    incident: Incident
    queued_at: float
    version: str = ""
    known: Known = Known.NOTHING
    sent_version: str = ""
    sent_at: float | None = None
    dead: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the incident has ended."""
        return self.incident.is_over

    @property
    def is_unsent(self) -> bool:
        """Whether it may not have notified anyone."""
        return not self.incident.is_orphan and (
            self.known is Known.NOTHING or (self.known is Known.UNSURE and self.sent_at is None)
        )

    @property
    def is_missed(self) -> bool:
        """Whether people must hear of it even if it is over."""
        return self.is_unsent and self.incident.is_critical and not self.incident.muted

    def loss(self, capabilities: ReceiverCapabilities, wall: float) -> str | None:
        """Why no message of it is worth sending any more: a reason of losses, empty without a loss.

        None while one may be. What a receiver refused is no new loss; a critical one is kept for a
        fallback.
        """
        incident, ends_at = self.incident, self.incident.ends_at
        if ends_at is None:
            return None
        is_worthless = not incident.is_critical or bool(incident.muted)
        if self.known is Known.NOTHING and is_worthless:
            return "" if incident.muted or self.dead else "obsolete"
        if self.dead and not (incident.is_critical and self.is_unsent):
            return ""
        is_resolved = self.known is Known.RESOLVED
        repeated_until = ends_at + capabilities.resend_resolved_seconds
        if is_resolved and not self.dead and wall >= repeated_until:
            return ""
        if wall > max(ends_at, self.queued_at) + EXPIRES_AFTER_SECONDS:
            return "" if self.dead or incident.is_orphan or is_resolved else "expired"
        return None

    def reason(self, capabilities: ReceiverCapabilities, wall: float) -> SendReason | None:
        """Why to send it at Unix time ``wall``; None if there is nothing to send."""
        if self.incident.is_orphan:
            is_due = _is_past(self.queued_at, capabilities.orphan_after_seconds, wall)
            return SendReason.ORPHAN if is_due and self.known is Known.UNSURE else None
        if self.dead:
            # An attempt before the refused one may have arrived, and nobody else would resolve it.
            may_be_open = self.is_over and self.known is Known.UNSURE
            return SendReason.RESOLVE if may_be_open else None
        if self.is_over:
            if self.known is not Known.RESOLVED:
                return SendReason.TRIGGER if self.is_missed else SendReason.RESOLVE
        elif self.incident.muted:
            return None
        elif self.known is not Known.FIRING or self.sent_version != self.version:
            return SendReason.TRIGGER
        is_due = _is_past(self.sent_at, capabilities.resend_seconds, wall)
        return SendReason.REPEAT if is_due else None

    def message(self, wall: float) -> Incident:
        """What to send at Unix time ``wall``; a late page says how late it is.

        A page that was missed is sent as it was while its critical alerts fired.
        """
        incident, late = self.incident, wall - self.queued_at
        alerts = incident.alerts
        if self.is_over:
            if self.dead or not self.is_missed:
                return incident
            critical = [alert for alert in alerts if alert.is_critical]
            alerts = tuple(
                replace(alert, end=None, later_end=alert.end) for alert in critical or alerts
            )
        if self.is_unsent and late > LATE_SECONDS:
            alerts = tuple(replace(alert, late_seconds=late) for alert in alerts)
        return replace(incident, alerts=alerts)

    def offered(self, incident: Incident, version: str, wall: float) -> OutboxRow:
        """The row with the newest state of its incident.

        An incident that begins again before its end was accepted is simply still open there.
        """
        row = self
        if row.is_over and not incident.is_over:
            known = Known.NOTHING if row.known is Known.RESOLVED else row.known
            sent_at = row.sent_at if known is Known.FIRING else None
            row = replace(row, known=known, sent_at=sent_at, queued_at=wall, dead=False)
        elif row.is_unsent and row.incident.muted and not incident.muted:
            row = replace(row, queued_at=wall)
        is_same = (row.version, row.is_over) == (version, incident.is_over)
        return replace(row, incident=incident, version=version, dead=row.dead and is_same)

    def mirrored(self, theirs: OutboxRow) -> OutboxRow:
        """The row with what another process has sent, where that is newer than what this one has.

        Revisions of both count reminders from almost the same moment.
        """
        if theirs.sent_at is None or theirs.known not in (Known.FIRING, Known.RESOLVED):
            return self
        if self.sent_at is not None and self.sent_at > theirs.sent_at:
            return self
        return replace(
            self,
            known=theirs.known,
            sent_at=theirs.sent_at,
            sent_version=self.version if self._is_sent(theirs) else theirs.sent_version,
            dead=False,
        )

    def _is_sent(self, theirs: OutboxRow) -> bool:
        """Whether what another process has sent last was not older than this row."""
        revision, sent = self.incident.revision, theirs.sent_version
        if self.version == str(revision) and sent.isdigit():
            return revision <= int(sent)
        return self.version == sent


def essence(row: OutboxRow) -> tuple[object, ...]:
    """The parts of a row that are worth a write: not its texts, which change with every poll."""
    incident = row.incident
    alerts = tuple((alert.labels, alert.starts_at, alert.ends_at) for alert in incident.alerts)
    sent = (row.version, row.known, row.sent_version, row.sent_at, row.queued_at, row.dead)
    return (incident.key, incident.revision, incident.muted, alerts, *sent)


def _is_past(since: float | None, seconds: float | None, wall: float) -> bool:
    """Whether it was that long ago; a clock that is set back must not prevent it for ever."""
    return since is not None and seconds is not None and not 0.0 <= wall - since < seconds


# -- schedule ---------------------------------------------------------------------------------
# When a delivery is retried, and how often a receiver is sent anything: the same for every
# receiver; docs/receivers.md has it as a table. The first success sends all that waits. A flush, as
# at the driver's exit, waits for none of the pauses.

TRANSIENT_WAIT = tenacity.wait_exponential(multiplier=1.0, max=300.0)
LEAST_WAIT_SECONDS = 1.0
MISCONFIGURED_WAIT_SECONDS = 300.0
"""Of one message; also of one that was rejected and is sent again nevertheless."""
OPEN_AFTER = 5
NEWS_PAUSE_SECONDS = 5.0
"""A new page does not wait for a long pause to end, only this long after the last failure."""
MINUTE_SECONDS = 60.0
BURST_SHARE = 0.2
"""The share of a minute's requests that may leave at once; the others flow in over the minute."""


def nth_wait(number: int) -> float:
    """How long the whole receiver waits after so many transient errors in a row, in seconds."""
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = number
    return TRANSIENT_WAIT(state)


class Failures(msgspec.Struct, frozen=True):
    """The last failures of one message: ``count`` with one answer in a row.

    It is due at ``due_at``; if the receiver ``asked`` for that time, as soon as it has accepted
    anything since then (``successes``). ``flush``: the number of the last flush in which it failed.
    """

    count: int
    due_at: float
    flush: int
    error: str
    answer: DeliveryOutcome
    asked: bool
    successes: int


class Schedule:
    """When one receiver may be sent what, as the table in docs/receivers.md says.

    Transient errors delay all messages, any other error only its own. ``per_minute`` is a token
    bucket: a full bucket and a minute's inflow are together never more. Times are monotonic
    seconds; nothing is dropped.
    """

    def __init__(self, per_minute: float | None = None) -> None:
        self._per_minute = per_minute
        self._tokens = 0.0
        self._tokens_at = -math.inf
        self._successes = 0
        self.answered()

    @property
    def is_open(self) -> bool:
        """Whether the receiver is considered down, so that attempts are rare."""
        return self._outage >= OPEN_AFTER

    def due_at(self, failures: Failures | None, *, is_news: bool) -> float:
        """When a message with these failures may be sent; ``is_news``: a critical page."""
        if failures is None:
            # The receiver may have been up for minutes already, and the page is urgent.
            sooner = self._failed_at + NEWS_PAUSE_SECONDS if is_news else math.inf
            return min(self._not_before, max(self._asked_until, sooner))
        has_accepted = failures.asked and failures.successes < self._successes
        if failures.answer is DeliveryOutcome.TRANSIENT or has_accepted:
            return self._not_before
        return max(self._not_before, failures.due_at)

    def token_at(self, now: float) -> float:
        """When the rate limit allows a request: ``now``, or later."""
        if self._per_minute is None:
            return now
        missing = max(0.0, 1.0 - self._tokens_left(now, self._per_minute))
        return now + missing * MINUTE_SECONDS / (self._per_minute * (1.0 - BURST_SHARE))

    def spend(self, now: float) -> None:
        """Count a request; one that cannot wait overdraws the limit."""
        if self._per_minute is not None:
            self._tokens, self._tokens_at = self._tokens_left(now, self._per_minute) - 1.0, now

    def delivered(self) -> None:
        """Note that the receiver accepted a message."""
        self._successes += 1
        self.answered()

    def answered(self) -> None:
        """Note that the receiver has answered: everything that waited for that is due."""
        self._outage = 0  # transient failures in a row
        self._failed_at = self._not_before = self._asked_until = -math.inf

    def failed(
        self, before: Failures | None, error: DeliveryError, now: float, flush: int
    ) -> Failures:
        """Note that the receiver did not accept a message; return its failures.

        A brief outage, such as a lost connection, must not cost the page of a driver that exits: a
        flush tries again at once what has failed for the first time.
        """
        is_brief = error.answer is DeliveryOutcome.TRANSIENT and error.retry_after is None
        if error.answer is DeliveryOutcome.TRANSIENT:
            self._wait(now, error.retry_after)
        else:
            self.answered()
        again = before is not None and before.answer is error.answer
        return Failures(
            before.count + 1 if before is not None and again else 1,
            now + max(MISCONFIGURED_WAIT_SECONDS, error.retry_after or 0.0),
            0 if before is None and is_brief else flush,
            str(error),
            error.answer,
            error.retry_after is not None,
            self._successes,
        )

    def _wait(self, now: float, retry_after: float | None) -> None:
        """Pause after a transient failure; one out of turn (a flush, a new page) prolongs nothing.

        ``Retry-After`` replaces the pause: a receiver that answers is up, only busy.
        """
        self._failed_at = now
        if now < self._not_before:
            return
        if retry_after is None:
            self._outage += 1
            self._not_before = now + nth_wait(self._outage)
        else:
            self._asked_until = self._not_before = now + max(retry_after, LEAST_WAIT_SECONDS)

    def _tokens_left(self, now: float, per_minute: float) -> float:
        inflow = (now - self._tokens_at) * per_minute * (1.0 - BURST_SHARE) / MINUTE_SECONDS
        return min(max(1.0, per_minute * BURST_SHARE), self._tokens + inflow)


# -- outbox -----------------------------------------------------------------------------------

MAX_ROWS = 1000


class Entry(msgspec.Struct):
    """A row, and what only this process needs to know of it.

    ``is_handed``: the fallback was given it, as it was overdue.
    """

    row: OutboxRow
    failures: Failures | None = None
    is_handed: bool = False


class Attempt(msgspec.Struct, frozen=True):
    """The message in flight, the row before it, and the flush in which it was sent (0: none)."""

    message: Incident
    before: OutboxRow
    flush: int


class Outbox:
    """The rows of one receiver. ``now`` is monotonic, ``wall`` Unix time.

    There are at most ``max_rows``. What has the least rank gives way:
    nothing left to send, then a warning, then what is over. An open critical incident is evicted
    only by itself, and comes back when there is room.
    """

    def __init__(
        self,
        capabilities: ReceiverCapabilities,
        *,
        max_rows: int = MAX_ROWS,
        keep_ended_seconds: float = 0.0,
    ) -> None:
        self.losses: Counter[str] = Counter(dict.fromkeys(LOSS_REASONS, 0))
        """How many incidents were not sent, by reason."""
        self._capabilities = capabilities
        self._max_rows = max_rows
        self._keep_ended = keep_ended_seconds
        self._schedule = Schedule(capabilities.per_minute)
        self._entries: dict[str, Entry] = {}
        self._outside: set[str] = set()
        """The keys of evicted incidents that are still offered: each is counted once."""
        self._in_flight: Attempt | None = None
        self._takes_orphans = capabilities.orphan_after_seconds is not None
        self._knows_open = False
        """Whether an earlier process has left what it knew to be open."""

    @property
    def rows(self) -> tuple[OutboxRow, ...]:
        """All rows, as they are stored for the next process."""
        return tuple(entry.row for entry in self._entries.values())

    @property
    def is_sending(self) -> bool:
        """Whether a message is in flight."""
        return self._in_flight is not None

    @property
    def circuit_open(self) -> bool:
        """Whether the receiver is considered down."""
        return self._schedule.is_open

    def is_barred(self, wall: float) -> bool:
        """Whether something waits that the receiver refuses as ours, such as for a wrong token."""
        return any(
            entry.failures is not None and entry.failures.answer is DeliveryOutcome.MISCONFIGURED
            for entry in self._differences(wall)
        )

    # What the receiver should know

    def restore(self, rows: Iterable[OutboxRow], wall: float, *, is_complete: bool = True) -> None:
        """Restore the rows of an earlier process; newer ones of this process win.

        If they are complete, what is open is known then, so that no incident is an orphan, except
        that of the driver: it may not have waited for the disk when it reported its own end.
        """
        self._knows_open = is_complete
        self._entries = {
            key: entry
            for key, entry in self._entries.items()
            if not (entry.row.incident.is_orphan and self._is_known(entry.row.incident))
        }
        for row in rows:
            newer = self._entries.get(row.incident.key)
            if newer is None:
                self._put(row)
            elif newer.row.known is Known.NOTHING:
                newer.row = row.offered(newer.row.incident, newer.row.version, wall)
        self._tidy(wall)

    def offer(self, incidents: Iterable[Incident], wall: float) -> None:
        """Replace the set of incidents that are open at Unix time ``wall``.

        One that ended may be offered once more, with its end, or be left out. An orphan is
        offered once.
        """
        newest = {incident.key: incident for incident in incidents}
        self._outside.intersection_update(newest)
        for key, entry in self._entries.items():
            if key not in newest and not entry.row.is_over:
                alerts = (
                    alert if alert.ends_at is not None else alert.ended(wall)
                    for alert in entry.row.incident.alerts
                )
                self._change(entry, replace(entry.row.incident, alerts=tuple(alerts)), wall)
        self.add(newest.values(), wall)

    def add(self, incidents: Iterable[Incident], wall: float) -> None:
        """Add these incidents too."""
        for incident in incidents:
            entry = self._entries.get(incident.key)
            if incident.is_orphan:
                if entry is None and self._takes_orphans and not self._is_known(incident):
                    self._put(OutboxRow(incident, wall, known=Known.UNSURE))
            elif entry is not None:
                self._change(entry, incident, wall)
            elif not incident.is_over or incident.is_critical:
                self._put(OutboxRow(incident, wall, self._version(incident)))
        self._tidy(wall)

    def mirror(self, rows: Iterable[OutboxRow], wall: float, *, is_leader: bool) -> list[Incident]:
        """Take over what another process has sent, which watches the same; the newer word counts.

        Returns what is open at the receiver, and not known here. ``is_leader``: the other one
        sends, so that nobody needs to hear what it has never had to send, and is over.
        """
        theirs = {row.incident.key: row for row in rows}
        busy = self._in_flight.message.key if self._in_flight is not None else None
        unknown = []
        for key, row in theirs.items():
            entry = self._entries.get(key)
            if entry is not None and key != busy:
                entry.row = entry.row.mirrored(row)
            elif entry is None and row.known in (Known.FIRING, Known.UNSURE):
                self._put(row)
                unknown.append(row.incident)
        for key, entry in list(self._entries.items()):
            is_unsent = entry.row.is_over and entry.row.known is Known.NOTHING
            if is_leader and is_unsent and key not in theirs:
                del self._entries[key]
        self._tidy(wall)
        return [incident for incident in unknown if not incident.is_over]

    def _is_known(self, incident: Incident) -> bool:
        """Whether it would be known that an orphan is open."""
        return self._knows_open and incident.query != WHOLE_DRIVER

    def _change(self, entry: Entry, incident: Incident, wall: float) -> None:
        if entry.row.is_over and not incident.is_over:
            # It begins again: it does not wait for an earlier retry.
            entry.failures = None
        entry.row = entry.row.offered(incident, self._version(incident), wall)

    def _version(self, incident: Incident) -> str:
        """What changes when the receiver must get the incident again.

        One that groups by itself must know each change of the alerts; others are read by people.
        """
        if not self._capabilities.groups_itself:
            return str(incident.revision)
        alerts = sorted(
            (sorted(alert.labels.items()), alert.ends_at is not None, alert.muted != "")
            for alert in incident.alerts
        )
        return sha256(msgspec.json.encode(alerts)).hexdigest()[:16]

    def _put(self, row: OutboxRow) -> None:
        """Add a row, and make room: what is worth least goes, a newcomer before its equals."""
        newest = row.incident.key
        self._entries[newest] = Entry(row)
        if len(self._entries) > self._max_rows:
            busy = self._in_flight.message.key if self._in_flight is not None else None
            others = [row for row in self.rows if row.incident.key != busy]
            row = min(
                others, key=lambda row: (_rank(row), row.incident.key != newest, row.queued_at)
            )
            key = row.incident.key
            del self._entries[key]
            if _rank(row) > 0 and key not in self._outside:
                self.losses["evicted"] += 1
                self._outside.add(key)
        if newest in self._entries:
            self._outside.discard(newest)

    def _tidy(self, wall: float) -> None:
        """Remove rows that need no message any more, and count those that were never sent."""
        for row in self.rows:
            loss = row.loss(self._capabilities, wall)
            is_resolved = row.known is Known.RESOLVED and row.sent_at is not None
            is_kept = is_resolved and not _is_past(row.sent_at, self._keep_ended, wall)
            if loss is not None and not is_kept:
                del self._entries[row.incident.key]
            if loss:
                self.losses[loss] += 1

    # What it does not know yet

    def holds(self, key: str) -> bool:
        """Whether the receiver should get updates of this incident."""
        row = self._entries[key].row if key in self._entries else None
        return row is not None and row.known is not Known.RESOLVED and not row.incident.is_orphan

    def pending(self, wall: float) -> int:
        """How many differences have not been sent to the receiver yet."""
        return len(self._differences(wall))

    def is_flushed(self, wall: float, flush: int) -> bool:
        """Whether every difference has failed in this flush already."""
        return all(_has_failed_in(flush, entry) for entry in self._differences(wall))

    def knows_error(self, text: str) -> bool:
        """Whether a waiting message has already failed with this same error."""
        failures = [entry.failures for entry in self._entries.values()]
        return any(failed is not None and failed.error == text for failed in failures)

    def take_overdue(self, wall: float, after_seconds: float) -> tuple[Incident, ...]:
        """Incidents that may not have notified for ``after_seconds``, or never will as they are.

        One that has ended is returned once, an open one each time: it may be new again.
        """
        handed = []
        for entry in self._entries.values():
            row, was_handed = entry.row, entry.is_handed
            is_late = row.dead or wall - row.queued_at >= after_seconds
            entry.is_handed = row.is_unsent and not row.incident.muted and is_late
            if entry.is_handed and not (was_handed and row.is_over):
                handed.append(row.incident)
        return tuple(handed)

    def _waiting(self, wall: float) -> list[tuple[Entry, SendReason]]:
        """What is to be sent, now or later; no orphan while anything else waits.

        What was not posted again in time looks like an orphan itself. A resolve that was refused
        for good, and is tried again nevertheless, holds nothing back.
        """
        waiting, is_urgent = [], False
        for entry in self._entries.values():
            reason, failures = entry.row.reason(self._capabilities, wall), entry.failures
            if reason is not None:
                waiting.append((entry, reason))
                is_refused = failures is not None and failures.answer is DeliveryOutcome.REJECTED
                is_urgent |= reason is not SendReason.ORPHAN and not is_refused
        return [row for row in waiting if row[1] is not SendReason.ORPHAN] if is_urgent else waiting

    def _differences(self, wall: float) -> list[Entry]:
        return [entry for entry, reason in self._waiting(wall) if reason.is_difference]

    # Sending

    def begin(self, now: float, wall: float, flush: int = 0) -> Incident | None:
        """What to send now, the most urgent first; None when there is nothing, or not yet.

        In a flush (a number above 0) that is any difference not yet tried in it. From now on the
        message may have arrived: if the driver is killed, its successor knows that it may.
        """
        self._tidy(wall)
        has_token = self._schedule.token_at(now) <= now
        for entry, reason in sorted(self._waiting(wall), key=self._urgency):
            is_untried = flush > 0 and reason.is_difference and not _has_failed_in(flush, entry)
            # A page cannot wait for a token when the driver may be about to exit.
            may_go = has_token or (is_untried and reason is SendReason.TRIGGER)
            if may_go and (is_untried or self._due_at(entry, reason) <= now):
                self._schedule.spend(now)
                row, message = entry.row, self._message(entry.row, wall)
                self._in_flight = Attempt(message, row, flush)
                if message.is_over and row.known is not Known.RESOLVED:
                    entry.row = replace(row, known=Known.UNSURE)
                elif not message.is_over and row.known is not Known.FIRING:
                    entry.row = replace(row, known=Known.UNSURE, sent_at=None)
                return message
        return None

    def next_at(self, now: float, wall: float) -> float | None:
        """When ``begin`` may find something; None if there is nothing to send."""
        due_at = min((self._due_at(*waiting) for waiting in self._waiting(wall)), default=None)
        return None if due_at is None else max(due_at, self._schedule.token_at(now))

    def delivered(self, wall: float) -> None:
        """Note that the receiver accepted the message in flight."""
        sent, entry = self._taken()
        self._schedule.delivered()
        if entry is not None:
            entry.failures, row = None, entry.row
            if not sent.message.is_over:
                version = sent.before.version
                entry.row = replace(row, known=Known.FIRING, sent_version=version, sent_at=wall)
            elif row.is_over and not row.dead and row.queued_at == sent.before.queued_at:
                entry.row = replace(row, known=Known.RESOLVED, sent_at=wall)
            else:
                # It has begun, and possibly even ended, again meanwhile.
                entry.row = replace(row, known=Known.NOTHING, sent_at=None)
        self._tidy(wall)

    def failed(self, error: DeliveryError, now: float, wall: float) -> float | None:
        """Note that it was not accepted; return when it is tried again, None for never.

        A resolve that is refused for good is tried again all the same: while the incident is open
        there, the next failure would not notify.
        """
        sent, entry = self._taken()
        before, message = sent.before, sent.message
        is_resolve = (
            message.is_over and not message.is_orphan and before.known is not Known.RESOLVED
        )
        is_final = error.answer is DeliveryOutcome.REJECTED and not is_resolve
        failures = None
        if is_final:
            self._schedule.answered()
            self.losses["rejected"] += not message.is_orphan
        else:
            earlier = None if entry is None else entry.failures
            failures = self._schedule.failed(earlier, error, now, sent.flush)
        if entry is not None and is_final and entry.row.incident.is_orphan:
            del self._entries[message.key]
        elif entry is not None:
            row = entry.row
            is_same = (row.version, row.is_over) == (before.version, before.is_over)
            if not error.may_have_arrived and row.known is Known.UNSURE:
                row = replace(row, known=before.known, sent_at=before.sent_at)
            entry.failures = failures
            entry.row = replace(row, dead=is_same) if is_final else row
        self._tidy(wall)
        return None if is_final else self._schedule.due_at(failures, is_news=False)

    def _message(self, row: OutboxRow, wall: float) -> Incident:
        """What to send; a receiver of single alerts learns which of them go on elsewhere."""
        message = row.message(wall)
        if not self._capabilities.groups_itself or message.is_orphan:
            return message
        shown = [row.incident for row in self.rows if not row.incident.muted]
        firing = [alert.labels for incident in shown for alert in incident.firing]
        alerts = (
            replace(alert, end=replace(alert.end, goes_on=GoesOn.ANOTHER_INCIDENT))
            if alert.end is not None and alert.labels in firing
            else alert
            for alert in message.alerts
        )
        return replace(message, alerts=tuple(alerts))

    def _urgency(self, waiting: tuple[Entry, SendReason]) -> tuple[int, SendReason, bool, float]:
        """New before failed, triggers before resolves, critical first, then the oldest.

        In an outage, failed messages take turns: one that is never accepted must not be the only
        one that is tried. Once the receiver is back, how often each has failed says nothing.
        """
        entry, reason = waiting
        incident, failed = entry.row.incident, entry.failures.count if entry.failures else 0
        turn = failed if self._schedule.is_open else min(failed, 1)
        return turn, reason, not incident.is_critical, incident.starts_at

    def _due_at(self, entry: Entry, reason: SendReason) -> float:
        is_news = reason is SendReason.TRIGGER and entry.row.incident.is_critical
        return self._schedule.due_at(entry.failures, is_news=is_news)

    def _taken(self) -> tuple[Attempt, Entry | None]:
        """The message that is not in flight any more, and its entry."""
        sent, self._in_flight = self._in_flight, None
        assert sent is not None, "no message is in flight"
        return sent, self._entries.get(sent.message.key)


def _has_failed_in(flush: int, entry: Entry) -> bool:
    return entry.failures is not None and entry.failures.flush >= flush


def _rank(row: OutboxRow) -> int:
    """How much the row is worth a place in a full outbox."""
    if row.incident.is_orphan or (row.is_over and (row.known is Known.RESOLVED or row.dead)):
        return 0
    return 1 if not row.incident.is_critical else 2 if row.is_over else 3
