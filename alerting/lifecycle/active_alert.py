"""One alert, from its first finding to its end. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ..alert import Alert
from ..finding import Severity
from ..rules import query_failed
from .flap_guard import note
from .health import DriverHealth, RecoveryWindow

FACTS = frozenset({query_failed.NAME})
"""Alerts that fire at the first evaluation; all others need two in a row, to ignore glitches."""

POLLS = 2
UNSEEN_SECONDS = 24 * 3600.0
"""An alert of an earlier driver waits this long for its query to be seen."""


class ActiveAlert(msgspec.Struct, frozen=True):
    """Pending until ``begun``; then firing while ``found``, and recovering otherwise.

    ``polls`` counts the evaluations with its finding. ``held_seconds``: the alert has fired too
    often, and stays open until its finding is absent for this long. ``unseen_since`` (monotonic
    seconds): an earlier driver left the alert open, and this one has not seen its query since then.
    """

    alert: Alert
    polls: int = 1
    begun: bool = False
    found: bool = True
    recovery: RecoveryWindow | None = None
    held_seconds: float = 0.0
    unseen_since: float | None = None

    @property
    def query(self) -> str:
        """The value of its label ``query``."""
        return self.alert.labels["query"]

    @property
    def severity(self) -> str:
        """The value of its label ``severity``."""
        return self.alert.labels["severity"]

    @property
    def is_firing(self) -> bool:
        """Whether its query is unhealthy, or has not been seen yet."""
        return self.begun and (self.found or self.unseen_since is not None)

    @property
    def is_ripe(self) -> bool:
        """Whether it may begin to fire: in ``FACTS``, or found at two evaluations in a row."""
        return not self.begun and (self.polls >= POLLS or self.alert.name in FACTS)


def found_again(course: ActiveAlert, alert: Alert, health: DriverHealth) -> ActiveAlert:
    """The alert with the newest annotations, but its old start; a critical one stays critical.

    Otherwise a value that oscillates around its limit would notify each time.
    """
    seen = health.knows(course.query)
    known = course.alert
    labels = known.labels if course.begun and _is_milder(alert, known) else alert.labels
    return replace(
        course,
        alert=_worded(
            replace(alert, labels=labels, starts_at=known.starts_at), held=course.held_seconds
        ),
        polls=course.polls + 1,
        found=True,
        recovery=None,
        unseen_since=None if seen else course.unseen_since,
    )


def escalates(course: ActiveAlert, alert: Alert) -> bool:
    """Whether a warning that has fired has become critical."""
    return course.begun and _is_milder(course.alert, alert)


def not_found(course: ActiveAlert, health: DriverHealth) -> ActiveAlert:
    """The alert without its finding: it recovers unless its query is unhealthy in another way."""
    if course.unseen_since is not None and not health.knows(course.query):
        return replace(course, found=False, recovery=None)
    recovery = health.recovery(course.query, course.severity, course.recovery)
    return replace(course, found=False, recovery=recovery, unseen_since=None)


def begin(course: ActiveAlert, held_seconds: float) -> ActiveAlert:
    """The alert, firing from now on."""
    return replace(
        course,
        begun=True,
        held_seconds=held_seconds,
        alert=_worded(course.alert, held=held_seconds),
    )


def is_over(course: ActiveAlert, health: DriverHealth, resolve_after_seconds: float) -> bool:
    """Whether the query has been proven healthy for long enough."""
    if course.recovery is None:
        return False
    seconds = max(course.held_seconds, resolve_after_seconds)
    return health.has_recovered(course.query, course.recovery, seconds)


def is_expired(course: ActiveAlert, now: float) -> bool:
    """Whether its query has not been seen for a day; call it only if the finding is absent."""
    since = course.unseen_since
    return since is not None and now - since >= UNSEEN_SECONDS


def _is_milder(new: Alert, old: Alert) -> bool:
    critical = Severity.CRITICAL.value
    return old.labels["severity"] == critical != new.labels["severity"]


def _worded(alert: Alert, *, held: float) -> Alert:
    if not held:
        return alert
    return replace(alert, annotations={**alert.annotations, "flapping": note(held)})
