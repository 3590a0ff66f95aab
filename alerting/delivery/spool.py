"""What outlives a driver, in a file: outboxes, failures of queries, and when alerts opened."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from ...core.files import HangDetector
from ...core.folders import Folder, LocalFolder
from ...core.guard import Guard, Problem
from ...core.threads import Deadline, Loop
from ...listener.checkpoints import TEMPORARY, checkpoint_problem
from ...listener.past_failures import (
    KEEP_SECONDS,
    MAX_KEPT,
    FailedQuery,
    PastFailures,
    QueryKey,
    key_of,
    mark_of,
    shifted,
)
from ...listener.state.freshness import Freshness, FreshnessCounts
from ...listener.state.positions import LastRead, to_store, without_run
from ...listener.state.query import Query, last_read
from ...listener.state.snapshot import DriverAttempt, Snapshot
from ...listener.state.state import State
from ..incidents.lifecycle import Lifecycle, Opened
from ..policy import RESTART_WINDOW_SECONDS, Policy, has_deadline
from ..rules.query_ends import is_committed, repeated
from ..silences import END_OF_TIME
from .outbox import OutboxRow, essence
from .spool_holder import Lease, Lock
from .spool_version_2 import OLD_VERSION, upgrade

log = logging.getLogger("querypulse")

T = TypeVar("T")

# -- file -------------------------------------------------------------------------------------

APP_CHARACTERS = 16

INCIDENT_LABELS = {"app", "query"}
ALERT_LABELS = {"alertname", "app", "query", "severity"}

LEAST_NUMBER = -2
"""Kafka's offset for "the earliest"; -1 is "the latest", and a batch that is not known."""
NUMBERS_END = 2**63
"""Sources count in 64 bits."""


class Header(msgspec.Struct, frozen=True):
    """What every version of the file has."""

    version: int = 0


class Kept(msgspec.Struct, frozen=True):
    """All that outlives a process of one application; times are Unix seconds.

    ``rows`` are those of all outboxes, by receiver; ``failures`` those of queries; ``opened`` says
    when alerts opened. ``attempt`` has begun and has not ended in an orderly way.
    """

    version: Literal[3] = 3
    rows: dict[str, tuple[OutboxRow, ...]] = {}
    failures: tuple[FailedQuery, ...] = ()
    opened: tuple[Opened, ...] = ()
    freshness: dict[str, Freshness] = {}
    """By the mark of a label."""
    attempt: DriverAttempt | None = None


def complete(kept: Kept) -> Kept:
    """Return ``kept`` if its records have what the lifecycle and the receivers rely on.

    Raises:
        ValueError: one has not; somebody else has written the file.

    """
    if not all(opened.at for opened in kept.opened):
        raise ValueError("an alert that opened at no time")
    if not all(
        0 <= failed.unrecovered_failures <= len(failed.failures) for failed in kept.failures
    ):
        raise ValueError("a query with more failures than it lists, or fewer than none")
    counts = kept.freshness.values()
    if not all(count.bad_seconds <= count.total_seconds for count in counts):
        raise ValueError("a query whose data was older than promised for longer than it ran")
    incidents = [row.incident for rows in kept.rows.values() for row in rows]
    if not all(incident.labels.keys() >= INCIDENT_LABELS for incident in incidents):
        raise ValueError("an incident without one of its labels")
    alerts = [alert for incident in incidents for alert in incident.alerts]
    if not all(alert.labels.keys() >= ALERT_LABELS for alert in alerts):
        raise ValueError("an alert without one of its labels")
    _require_known_range(kept)
    return kept


def _require_known_range(kept: Kept) -> None:
    """Require that each number is one that we write: every float is a time.

    Raises:
        ValueError: a time is outside the calendar, or a count or an offset is impossible.

    """
    for number in _numbers(msgspec.to_builtins(kept)):
        if isinstance(number, float) and not 0.0 <= number <= END_OF_TIME:
            raise ValueError(f"{number!r} is no time in Unix seconds")
        if isinstance(number, int) and not LEAST_NUMBER <= number < NUMBERS_END:
            raise ValueError("a number that is no count and no offset")


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)


class SpoolFile:
    """The file of one application, a JSON document; on a disk, only its owner can read it.

    Only one running process, and one spool of it, may write it. What was left in a store can be
    read before that, because the lease of a process that was killed there lasts a while.
    """

    def __init__(
        self,
        folder: Path | Folder,
        app: str,
        wall: Callable[[], float] = time.time,
        attempt: DriverAttempt | None = None,
    ) -> None:
        name = f"outbox-{sha256(app.encode()).hexdigest()[:APP_CHARACTERS]}"
        self.holder: Lock | Lease
        self._folder: Folder
        if isinstance(folder, Path):
            self.holder = Lock(folder / f"{name}.lock")
            self._folder = LocalFolder(folder)
        else:
            self.holder = Lease(folder, f"{name}.lease", wall, attempt=attempt)
            self._folder = folder
        self._name = f"{name}.json"
        self.place = self._place_of(self._name)
        self.is_older = False
        """Whether what was read is of the version before, so that it is written again."""

    def take(self) -> bool:
        """Make the folder, and take the file if nobody else holds it.

        Raises:
            OSError: the store refuses, or the file system has no locks.

        """
        self._folder.make()
        return self.holder.take()

    def read(self, wall: float) -> Kept | None:
        """The content; an unreadable file gets another name at Unix time ``wall``.

        Raises:
            OSError: it cannot be read.

        """
        for draft in self._folder.entries():
            if draft.startswith(f".{self._name}."):
                self._folder.delete(draft)
        try:
            content = self._folder.read(self._name)
        except FileNotFoundError:
            return None
        try:
            return self._decoded(content)
        except (msgspec.DecodeError, ValueError, ArithmeticError, RecursionError) as error:
            aside = f"{self._name}.corrupt-{wall:.0f}"
            self._folder.write(aside, content)
            self._folder.delete(self._name)
            text = "querypulse: the alerts' spool %s: %s; put aside as %s"
            log.warning(text, self.place, error, self._place_of(aside))
            return None

    def write(self, kept: Kept) -> bool:
        """Replace the content, unless another process has taken it; return whether it is ours.

        Raises:
            OSError: it cannot be written; the old content is still there.

        """
        is_ours = self.holder.is_ours()
        if is_ours:
            self._folder.write(self._name, msgspec.json.encode(kept))
        return is_ours

    def close(self) -> None:
        """Let another process take it."""
        self.holder.release()

    @property
    def is_shared(self) -> bool:
        """Whether it can be read while another process may write it."""
        return isinstance(self.holder, Lease)

    def _place_of(self, name: str) -> str:
        return f"{self._folder.place.rstrip('/')}/{name}"

    def _decoded(self, content: bytes) -> Kept:
        self.is_older = msgspec.json.decode(content, type=Header).version == OLD_VERSION
        if self.is_older:
            content = msgspec.json.encode(upgrade(msgspec.json.decode(content)))
        return complete(msgspec.json.decode(content, type=Kept))


def try_folder(folder: Path, *, locks: bool = True) -> None:
    """Write a file in ``folder``, or in the nearest one above it that exists, and lock it.

    Nothing is left there, and no folder is made: the driver may be another user.

    Raises:
        OSError: one of these failed.

    """
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    with TemporaryDirectory(dir=nearest, prefix=".querypulse-check-") as made:
        file = SpoolFile(Path(made), "check")
        try:
            if locks:
                file.take()
            file.write(Kept())
        finally:
            file.close()


# -- spool ------------------------------------------------------------------------------------

LOAD_SECONDS = 2.0
RETRY_SECONDS = 3.0
WRITE_AHEAD_SECONDS = 0.2
"""How long a message waits for the disk; a disk of a server writes within milliseconds."""


class Spool:
    """Stores in a thread what outlives the process.

    It writes as soon as an important part changes. Deliveries do not depend on it: without a disk
    everything works while the process runs. What an earlier process left is not overwritten before
    ``load`` has returned it.
    """

    def __init__(
        self,
        folder: Path | Folder,
        app: str,
        guard: Guard,
        *,
        attempt: DriverAttempt | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.attempt = attempt
        """This attempt of the driver, where YARN starts another, until it closes."""
        self._problem = Problem("querypulse: the alerts' spool: %s")
        self._hang = HangDetector()
        self.is_taken = False
        """Whether another running process of the same app uses the file, or may."""
        self._file = SpoolFile(folder, app, wall, attempt)
        self._guard = guard
        self._wall = wall
        self._loop = Loop("spool", self._step, guard, last=self._file.close)
        self._is_open = False
        self._left: Kept | None = None
        """What an earlier process left, until ``load`` returns it."""
        self._known: Kept | None = None
        """What the file held when ``load`` returned it, or when it was last written."""
        self._newest = Kept(attempt=attempt)
        """What the file should hold."""
        self._on_disk: tuple[object, ...] = ()
        self._offered = self._written = 0
        """How often something was offered, and how much of that is on the disk."""
        self._is_late = False
        """Whether a write was too slow to wait for, and has not ended yet."""
        # Guards what was left and offered; never held while the disk is at work.
        self._changed = threading.Condition()

    @property
    def problem(self) -> str:
        """Why what was offered may not be on the disk; empty without a problem."""
        hangs = self._hang.problem
        return f"{self._file.place}: {hangs}" if hangs else self._problem.text

    def load(self, timeout: float = LOAD_SECONDS) -> Kept | None:
        """Start, and return what an earlier process left, once.

        None if there was no spool, or if it could not be read within ``timeout`` seconds: then
        call again with 0, since it may come later, and so may what another process adds before
        this one may write.
        """
        self._loop.start()
        with self._changed:
            self._changed.wait_for(lambda: self._is_open or self._problem.text, timeout)
            left, self._left = self._left, None
            if left is None:
                return None
            news = since(self._known, left)
            # What was offered before does not include it; the next offers will.
            self._known = left
            self._newest = replace(left, attempt=self._newest.attempt)
            self._changed.notify_all()
            return news

    def offer_rows(self, receiver: str, rows: tuple[OutboxRow, ...]) -> None:
        """Store exactly these rows of one receiver; never waits for the disk."""
        with self._changed:
            by_receiver = {**self._newest.rows, receiver: rows}
            by_receiver = {name: kept for name, kept in by_receiver.items() if kept}
            self._replace(replace(self._newest, rows=by_receiver))

    def offer_history(self, failures: tuple[FailedQuery, ...], opened: tuple[Opened, ...]) -> None:
        """Store exactly these failures and opened alerts; never waits for the disk."""
        with self._changed:
            self._replace(replace(self._newest, failures=failures, opened=opened))

    def offer_freshness(self, freshness: dict[str, Freshness]) -> None:
        """Store exactly these counts; never waits for the disk."""
        with self._changed:
            self._replace(replace(self._newest, freshness=freshness))

    def offer_end(self, *, is_expected: bool) -> None:
        """Store whether the next attempt need not report the end of this one; never waits."""
        with self._changed:
            attempt = None if is_expected else self.attempt
            self._replace(replace(self._newest, attempt=attempt))

    def flush(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds; True when all that was offered is on the disk."""
        with self._changed:
            due = self._offered
            return self._changed.wait_for(lambda: self._written >= due, timeout)

    def write_ahead(self) -> None:
        """Wait shortly until all that was offered is on the disk.

        Does not wait while the disk fails, nor again before a write that was too slow has ended.
        """
        if self._is_open and not self._problem.text and not self._is_late:
            self._is_late = not self.flush(WRITE_AHEAD_SECONDS)

    def close(self, timeout: float) -> None:
        """Write what is pending if there is time, and that this is an end; release the file."""
        deadline = Deadline(timeout)
        # Without a running thread, or on a disk that fails, nothing will be written.
        with self._changed:
            self.attempt = None
            self._replace(replace(self._newest, attempt=None))
            if self._left is None and not self._loop.join(0.0):
                self._changed.wait_for(
                    lambda: self._written == self._offered or self._problem.text, timeout
                )
            self._loop.stop()
            self._changed.notify_all()
        self._loop.join(deadline.left)

    def _replace(self, newest: Kept) -> None:
        if newest != self._newest:
            self._newest = newest
            self._offered += 1
            self._changed.notify_all()

    def _step(self) -> None:
        """Open the file, or write what is new; after a failure, wait a little."""
        try:
            if self._is_open:
                self._write_newest()
            else:
                self._open()
        except OSError as error:
            self._guard.report("spool", error)
            if isinstance(error, FileNotFoundError):
                # The folder is gone, and our lock with it.
                self._file.close()
                self._is_open = False
            self._pause(str(error))

    def _open(self) -> None:
        with self._hang:
            is_taken = not self._file.take()
            # A lease may be that of a process that was killed: what it left is known at once.
            is_first = self._known is None and self._left is None
            may_read = is_first if is_taken and self._file.is_shared else not is_taken
            left = self._file.read(self._wall()) if may_read else None
            self.is_taken = is_taken
        with self._changed:
            if left != self._known:
                self._left = left
            if not is_taken:
                # A folder that was made again is empty: nothing that was written before is there.
                self._on_disk = ()
                if left is not None and not self._file.is_older:
                    self._on_disk = _essence(left)
                self._is_open = True
                self._offered += 1
            self._changed.notify_all()
        if is_taken:
            self._pause(self._file.holder.held)

    def _write_newest(self) -> None:
        with self._hang:
            self._is_open = self._file.holder.keep()
        if not self._is_open:
            return
        with self._changed:
            if self._left is not None or self._written == self._offered:
                self._problem.note("")
                if not self._loop.stopping.is_set():
                    self._changed.wait(self._file.holder.renew_seconds)
                return
            newest, offered = self._newest, self._offered
        wanted = _essence(newest)
        if wanted != self._on_disk:
            with self._hang:
                self._is_open = self._file.write(newest)
            if not self._is_open:
                return
            self._known = newest
        with self._changed:
            self._on_disk, self._written, self._is_late = wanted, offered, False
            self._problem.note("")
            self._changed.notify_all()

    def _pause(self, problem: str) -> None:
        self._problem.note(f"{self._file.place}: {problem}")  # it logs, which may take long
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(self._loop.stopping.is_set, RETRY_SECONDS)


def since(known: Kept | None, left: Kept) -> Kept:
    """What is in ``left`` and is to be restored, where ``known`` was before.

    Rows may be restored again. Failures, times of alerts, and a lost attempt would count twice.
    """
    if known is None:
        return left
    died = {failed.key: failed.failures for failed in known.failures}
    at = {(opened.alertname, opened.query): opened.at for opened in known.opened}
    failures = [
        replace(failed, failures=_without(failed.failures, died.get(failed.key, ())))
        for failed in left.failures
    ]
    opened = [
        replace(opened, at=_without(opened.at, at.get((opened.alertname, opened.query), ())))
        for opened in left.opened
    ]
    return replace(
        left,
        attempt=None,
        failures=tuple(query for query in failures if query.failures or query.key not in died),
        freshness={
            mark: count for mark, count in left.freshness.items() if mark not in known.freshness
        },
        opened=tuple(alert for alert in opened if alert.at),
    )


def _without(times: tuple[T, ...], known: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(entry for entry in times if entry not in known)


def _essence(kept: Kept) -> tuple[object, ...]:
    """The parts that are worth a write: not the texts of rows, which change with every poll."""
    rows = [(name, *map(essence, held)) for name, held in sorted(kept.rows.items())]
    return (rows, kept.failures, kept.opened, kept.attempt, kept.freshness)


# -- what the rules and the lifecycle need --------------------------------------------------------


def kept_failures(
    queries: Iterable[Query],
    unmet: Iterable[FailedQuery],
    now: float,
    readings: Mapping[QueryKey, LastRead] | None = None,
    completions: Mapping[QueryKey, float] = {},
) -> tuple[FailedQuery, ...]:
    """For each query, the failures within its window and those that may show a poison batch.

    ``readings`` are positions by the keys of queries, which are kept with them, and ``completions``
    when runs of them completed. ``unmet`` are
    queries of earlier processes that this process has not seen. Queries with the same name are kept
    without failures: their own id shows that they do not continue a failed one. So are queries with
    a checkpoint, which shows in the next process whether their id was lost.
    """
    queries, read = tuple(queries), readings or {}
    failures = [_trimmed(failed, now) for failed in unmet]
    failures += [
        _trimmed(_failed(query, read.get(key_of(query)), completions.get(key_of(query))), now)
        for query in queries
        if query.history.failures or key_of(query) in read or key_of(query) in completions
    ]
    failed = [
        query
        for query in failures
        if query.failures or query.reading is not None or query.completed_at is not None
    ]
    failed.sort(key=lambda query: query.failures[-1].at if query.failures else 0.0)
    kept = {query.key: query for query in failed[-MAX_KEPT:]}
    marks = {query.mark for query in kept.values() if query.mark}
    namesakes = [_nameless(query) for query in queries if marks and mark_of(query.name) in marks]
    namesakes += [query for query in failures if query.mark in marks]
    others = [query for query in (*map(_nameless, queries), *failures) if query.folder]
    # Without the time of each end: it would be written after each run of a loop.
    others = [replace(query, gone_at=None) for query in others]
    for query in (*namesakes, *others):
        if len(kept) < MAX_KEPT:
            kept.setdefault(query.key, query)
    return tuple(kept.values())


def _failed(
    query: Query, reading: LastRead | None, completed_at: float | None = None
) -> FailedQuery:
    history = query.history
    is_open = history.unrecovered_failures > 0 and not is_committed(query, history.failures[-1])
    unrecovered = history.unrecovered_failures if is_open else 0
    failed = _nameless(query)
    if not history.failures and reading is None:
        # Of completions alone, each run would write its end.
        failed = replace(failed, gone_at=None)
    return replace(
        failed,
        failures=history.failures,
        unrecovered_failures=unrecovered,
        reading=reading,
        completed_at=completed_at,
    )


def _nameless(query: Query) -> FailedQuery:
    has_place = checkpoint_problem(query.run.checkpoint_folder) != TEMPORARY
    folder = mark_of(query.run.checkpoint_folder) if has_place else ""
    return FailedQuery(
        query.query_id, mark_of(query.name), gone_at=query.run.gone_at, folder=folder
    )


def _trimmed(failed: FailedQuery, now: float) -> FailedQuery:
    fresh = sum(now - died.at <= RESTART_WINDOW_SECONDS for died in failed.failures)
    young = [died for died in failed.failures if now - died.at <= KEEP_SECONDS]
    same = repeated(young) if failed.unrecovered_failures else 0
    failures = failed.failures[len(failed.failures) - max(fresh, same) :]
    unrecovered = min(failed.unrecovered_failures, len(failures))
    reading = failed.reading
    is_old = reading is not None and now - reading.at > KEEP_SECONDS
    completed_at = failed.completed_at
    is_long_ago = completed_at is not None and now - completed_at > KEEP_SECONDS
    return replace(
        failed,
        completed_at=None if is_long_ago else completed_at,
        failures=failures,
        unrecovered_failures=unrecovered,
        reading=None if is_old else reading,
    )


def stored_readings(
    before: Mapping[QueryKey, LastRead],
    snapshot: Snapshot,
    *,
    is_last: bool,
    process_ends: bool = False,
) -> Mapping[QueryKey, LastRead]:
    """By the key of a query: where the queries had read up to when that was last stored.

    Without a name and a checkpoint of its own, a query is not found again. What a query reads after
    the sidecar has closed is not known, unless the process ends.
    """
    now, stopped_at = snapshot.at, snapshot.context_stopped_at
    reads_on = is_last and stopped_at is None and not process_ends
    readings = {}
    for query in snapshot.queries:
        reading = without_run(last_read(query, now, stopped_at))
        if reads_on and query.run.alive:
            reading = replace(reading, positions={}, earlier=None)
        is_known = reading.positions or reading.earlier or reading.gaps
        if is_known and (query.name or _nameless(query).folder):
            readings[key_of(query)] = reading
    return to_store(before, readings, is_last=is_last)


COMPLETION_SECONDS = 600.0
"""Completions are stored at most so often: a loop may complete each second."""


def completions_of(snapshot: Snapshot, policy: Policy) -> Mapping[QueryKey, float]:
    """By the key of a query with ``complete_by``: when a run of it last completed."""
    return {
        key_of(query): query.completed_at
        for query in snapshot.queries
        if query.completed_at is not None and has_deadline(policy, query)
    }


FRESHNESS_SECONDS = 15.0
"""How often these counts are stored; after a kill, the time since counts as dead."""
CLOCK_SET_SECONDS = 5.0
"""A larger step against the monotonic clock means that the wall clock was set."""


class FailureHistory:
    """Restores and keeps failures, positions, and when alerts opened; without a spool, nothing.

    Only the worker uses it. ``left`` is what an earlier process left, until ``restore`` applies it.
    ``redact`` cleans the error classes before they are kept.
    """

    def __init__(self, spool: Spool | None = None, redact: Callable[[str], str] = str) -> None:
        self.left: Kept | None = None
        self._spool = spool
        self._redact = redact
        self._past = PastFailures()
        self._readings: Mapping[QueryKey, LastRead] = {}
        """By the keys of queries, as they are stored."""
        self._completions: Mapping[QueryKey, float] = {}
        """By the keys of queries, as they are stored since ``_completions_at``."""
        self._completions_at = -math.inf
        self._wall_of_zero: float | None = None
        self._offered: tuple[object, ...] = ()
        self._freshness: dict[str, Freshness] = {}
        self._freshness_at = -math.inf
        self._stored: Mapping[str, Freshness] = {}
        """By label, as stored last."""

    def restore(self, state: State, lifecycle: Lifecycle, now: float, wall: float) -> None:
        """Apply what was left, also to the queries that have appeared since the last call."""
        left, self.left = self.left, None
        if left is not None:
            self._past.add(left.failures, now=now, wall=wall, began_at=state.began_at)
            lifecycle.restore_opened([_shifted(record, now - wall) for record in left.opened], now)
            self._offered = ()
            self._freshness = left.freshness
            self._freshness_at = -math.inf
            self._restore_attempt(state, left.attempt)
        state.restore(self._past)

    def take_freshness(self) -> dict[str, Freshness]:
        """Return what was left of how fresh the queries were, once."""
        left, self._freshness = self._freshness, {}
        return left

    def keep_freshness(
        self, counts: FreshnessCounts, now: float, wall: float, *, is_last: bool
    ) -> None:
        """Store how fresh the queries were, every few seconds and at the last evaluation."""
        is_new = counts.counts.keys() != self._stored.keys()
        is_due = is_last or is_new or now - self._freshness_at >= FRESHNESS_SECONDS
        if self._spool is None or not is_due or not counts.counts:
            return
        self._freshness_at = now
        self._stored = counts.counts
        self._spool.offer_freshness(counts.kept(wall - now))

    def as_stored(self, counts: Mapping[str, Freshness]) -> Mapping[str, Freshness]:
        """Return the counts with the seconds that were stored last.

        The next process counts on from there: of what was published, a kill takes nothing back.
        """
        return {
            label: replace(
                count, total_seconds=stored.total_seconds, bad_seconds=stored.bad_seconds
            )
            for label, count in counts.items()
            for stored in (self._stored.get(label, count),)
        }

    def keep(
        self,
        snapshot: Snapshot,
        lifecycle: Lifecycle,
        wall: float,
        policy: Policy,
    ) -> None:
        """Store what the next process needs; all of it at the last evaluation.

        Where the process ends with its main program, its queries end with it.
        """
        if self._spool is None:
            return
        self._spool.offer_end(is_expected=snapshot.end_expected)
        process_ends = policy.program is not None
        self._readings = stored_readings(
            self._readings, snapshot, is_last=policy.ends, process_ends=process_ends
        )
        completions = completions_of(snapshot, policy)
        is_due = policy.ends or snapshot.at - self._completions_at >= COMPLETION_SECONDS
        if is_due and completions != self._completions:
            self._completions, self._completions_at = completions, snapshot.at
        failures = kept_failures(
            snapshot.queries, self._past.unmet, snapshot.at, self._readings, self._completions
        )
        opened, seconds = lifecycle.opened, self._clock(snapshot.at, wall)
        if (failures, opened, seconds) != self._offered:
            self._offered = failures, opened, seconds
            self._spool.offer_history(
                tuple(self._written(failed, seconds) for failed in failures),
                tuple(_shifted(record, seconds) for record in opened),
            )

    def _restore_attempt(self, state: State, left: DriverAttempt | None) -> None:
        own = None if self._spool is None else self._spool.attempt
        if left is not None and own is not None and own.replaces(left):
            state.add_lost_attempt(left)

    def _written(self, failed: FailedQuery, seconds: float) -> FailedQuery:
        failures = tuple(
            replace(died, error_class=self._redact(died.error_class)) for died in failed.failures
        )
        return shifted(replace(failed, failures=failures), seconds)

    def _clock(self, now: float, wall: float) -> float:
        """The wall-clock time at monotonic 0.

        It is constant until the clock is set, so that each failure is written once.
        """
        before, newest = self._wall_of_zero, wall - now
        if before is None or abs(newest - before) > CLOCK_SET_SECONDS:
            before = self._wall_of_zero = newest
        return before


def _shifted(record: Opened, seconds: float) -> Opened:
    """The record on a clock that is ``seconds`` ahead."""
    return replace(record, at=tuple(at + seconds for at in record.at))
