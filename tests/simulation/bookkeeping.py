"""P6, P7 and P8: counters and labels never go back, memory is bounded, every loss is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import isfinite

from querypulse.alerting.delivery.outbox import OutboxRow
from querypulse.alerting.incidents.lifecycle import Evaluated
from querypulse.listener.state.history import Totals
from querypulse.listener.state.identity import ID_CHARACTERS, LABEL_CHARACTERS
from querypulse.listener.state.query import Query
from querypulse.listener.state.state import MAX_GONE_UNNAMED

from .driver import Courier, SimDriver
from .stage import Property, Violation, WorldView

COUNTS = tuple(name for name in Totals.__struct_fields__ if name != "batch_buckets")
LISTS = ("unended_runs", "failures", "longest_batches", "recent_batches")
LONGEST_LIST = 50
LONGEST_LABEL = LABEL_CHARACTERS + ID_CHARACTERS + 5
"""With the id that is appended if another query has the name."""
MOST_ROWS = 1000
FORGET_SECONDS = 65.0
"""The worker forgets once a minute."""
MOST_SHOWN_BESIDES = 4


class Bookkeeping(Property):
    """Checks every evaluation of every driver."""

    def __init__(self, stage: WorldView) -> None:
        super().__init__(stage)
        self._totals: dict[tuple[SimDriver, str], Totals] = {}
        self._owners: dict[tuple[SimDriver, str], str] = {}
        self._unreported: dict[Courier, dict[str, OutboxRow]] = {}
        self._losses: dict[Courier, int] = {}
        self._within_at = stage.time.now

    def tick(self) -> None:
        """Check that no process contained an error, and that counts of a driver match its input."""
        broken = f"rule {self._stage.plan.setup.broken_rule}"
        for where, error in self._stage.guard.contained:
            if where != broken:
                raise Violation("P8", f"an error was contained in {where}: {error!r}")
        for driver in self._stage.drivers.values():
            if driver.attached and driver.awake:
                _check_events(driver)
                for courier in driver.couriers:
                    self._check_losses(courier)

    def evaluated(self, driver: SimDriver, evaluated: Evaluated) -> None:
        labels = evaluated.snapshot.labels()
        for label, query in labels.items():
            self._check_label(driver, label, query)
            self._check_counters(driver, label, query)
        self._check_twice(driver, labels)
        # Expected queries are never forgotten.
        expected = {query.name for query in self._stage.plan.queries if query.expected}
        gone = sum(
            not query.run.alive and query.name not in expected
            for query in evaluated.snapshot.queries
        )
        if gone <= self._stage.plan.setup.memory:
            self._within_at = driver.time.now
        elif driver.time.now - self._within_at > FORGET_SECONDS:
            raise Violation("P7", f"{gone} queries that have ended are remembered")
        lost = any(query.is_lost for query in self._stage.queries.values())
        most = len(self._stage.queries) + MOST_SHOWN_BESIDES + (MAX_GONE_UNNAMED if lost else 0)
        if len(labels) > most:
            raise Violation("P7", f"{len(labels)} queries are shown: {', '.join(labels)}")

    def _check_twice(self, driver: SimDriver, labels: Mapping[str, Query]) -> None:
        """Check that no query with a name of its own is shown under two labels."""
        # Nothing shows the name of a run whose start was lost and that failed before a poll.
        named = [label for label, query in labels.items() if not query.is_unnamed]
        shown = Counter(driver.owners.get(label, label) for label in named)
        for key, count in shown.items():
            query = self._stage.queries.get(key)
            named = query is not None and query.spec.name and not self.has_namesake(query)
            if named and count > 1:
                raise Violation("P6", f"{key} is shown under {count} labels: {sorted(labels)}")

    def _check_label(self, driver: SimDriver, label: str, query: Query) -> None:
        if len(label) > LONGEST_LABEL:
            raise Violation("P7", f"a label has {len(label)} characters")
        owner = driver.spark.keys.get(query.run.run_id, query.query_id)
        before = self._owners.setdefault((driver, label), owner)
        if before != owner and not self._seems_renamed(driver, before):
            raise Violation(
                "P6", f"label {label!r} belonged to {before} and belongs to {owner} now"
            )

    def _seems_renamed(self, driver: SimDriver, key: str) -> bool:
        """Whether a start of another query on this one's checkpoint shows only a new name.

        Earlier processes have seen both on it, and this one has not.
        """
        query = self._stage.queries.get(key)
        return query is not None and isfinite(query.taken_at) and query.taken_at < driver.born_at

    def _check_counters(self, driver: SimDriver, label: str, query: Query) -> None:
        place = (driver, label)
        before, now = self._totals.get(place), query.history.totals
        if before is now:
            return
        self._totals[place] = now
        if before is not None:
            fell = [name for name in COUNTS if getattr(now, name) < getattr(before, name)]
            if fell:
                raise Violation("P6", f"counters of {label!r} fell: {', '.join(fell)}")
        for name in LISTS:
            length = len(getattr(query.history, name))
            if length > LONGEST_LIST:
                raise Violation("P7", f"{name} of {label!r} holds {length}")

    def _check_losses(self, courier: Courier) -> None:
        """Check that every critical alert that was never delivered is counted as lost."""
        rows = courier.rows
        if len(rows) > MOST_ROWS:
            raise Violation("P7", f"{len(rows)} rows in the outbox of {courier.name}")
        before, losses = self._unreported.get(courier, {}), courier.losses.total()
        held = {row.incident.key for row in rows}
        gone = [
            key
            for key, row in before.items()
            if key not in held
            and not self._was_received(courier, key)
            and not self._is_silenced(row)
        ]
        if len(gone) > losses - self._losses.get(courier, 0):
            raise Violation("P8", f"{gone[0]} was lost on the way to {courier.name}, uncounted")
        self._unreported[courier] = {
            row.incident.key: row
            for row in rows
            if row.is_unsent and row.incident.is_critical and not row.incident.muted
        }
        self._losses[courier] = self._losses[courier] + len(gone) if gone else losses

    def _is_silenced(self, row: OutboxRow) -> bool:
        """Whether nobody wants it any more."""
        wall = self._stage.time.wall()
        silences = self._stage.silences.given
        return all(
            any(silence.covers(alert, wall) for silence in silences)
            for alert in row.incident.alerts
        )

    @staticmethod
    def _was_received(courier: Courier, key: str) -> bool:
        receiver = courier.receiver
        received = receiver.open.keys() | {end.incident.key for end in receiver.closed}
        # Alertmanager identifies alerts by their labels, so it knows every alert that it received.
        return key in received or receiver.kind == "alertmanager"


def _check_events(driver: SimDriver) -> None:
    """Check that every event of Spark was folded, was a repetition, or was counted as lost."""
    folded = sum(driver.worker.state.events.values())
    lost = sum(driver.reader.drops.values())
    waiting = driver.inbox.depth
    repeated = driver.bus.repeated
    if folded + lost + waiting + repeated != driver.bus.given:
        raise Violation(
            "P8",
            f"{driver.bus.given} events were given, {folded} folded, {lost} lost, "
            f"{repeated} came twice, {waiting} are queued",
        )
