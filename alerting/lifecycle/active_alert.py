"""One alert, from its first finding to its end. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ..alert import LASTING, OCCURRENCE, Alert
from ..finding import Severity
from ..rules import query_failed, query_given_up
from .flap_guard import note
from .health import DriverHealth, RecoveryWindow

FACTS = frozenset({query_failed.NAME, query_given_up.NAME})
"""Alerts that fire at the first evaluation; all others need two in a row, to ignore glitches."""

POLLS = 2
UNSEEN_SECONDS = 24 * 3600.0
"""An alert of an earlier driver waits this long for its query to be seen."""


class ActiveAlert(msgspec.Struct, frozen=True):
    """Pending until ``begun``; then firing while ``found``, and recovering otherwise.

    ``polls`` counts the evaluations with its finding. ``held_seconds``: the alert has fired too
    often, and stays open until its finding is absent for this long. ``unseen_since`` (monotonic
    seconds): an earlier driver left the alert open, and this one has not seen its query since then.
    ``found_since`` is when the finding appeared, None while it is absent; ``is_relapse``: the alert
    was open by then, so nobody was notified of that.
    """

    alert: Alert
    polls: int = 1
    begun: bool = False
    found: bool = True
    recovery: RecoveryWindow | None = None
    held_seconds: float = 0.0
    unseen_since: float | None = None
    found_since: float | None = None
    is_relapse: bool = False

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


def found_again(active: ActiveAlert, alert: Alert, health: DriverHealth) -> ActiveAlert:
    """The alert with the newest annotations, but its old start; a critical one stays critical.

    Otherwise a value that oscillates around its limit would notify each time.
    """
    seen = health.knows(active.query)
    known = active.alert
    labels = _labels(alert, known) if active.begun else alert.labels
    is_back = not active.found
    return replace(
        active,
        alert=_worded(
            replace(alert, labels=labels, starts_at=known.starts_at), held=active.held_seconds
        ),
        polls=active.polls + 1,
        found=True,
        recovery=None,
        unseen_since=None if seen else active.unseen_since,
        found_since=health.now if is_back else active.found_since,
        is_relapse=active.begun if is_back else active.is_relapse,
    )


def escalates(active: ActiveAlert, alert: Alert) -> bool:
    """Whether a warning that has fired has become critical."""
    return active.begun and _is_milder(active.alert, alert)


def is_news(active: ActiveAlert, health: DriverHealth, news_seconds: float) -> bool:
    """Whether a critical alert that is held open fires again, and for so long that it is news."""
    if not (active.is_relapse and active.held_seconds and active.found_since is not None):
        return False
    critical = active.severity == Severity.CRITICAL.value
    return critical and health.watched_since(active.found_since) > news_seconds


def as_news(active: ActiveAlert) -> ActiveAlert:
    """The alert under the other one of its two identities, which is not open."""
    labels = {**active.alert.labels, OCCURRENCE: LASTING}
    if active.alert.is_lasting:
        del labels[OCCURRENCE]
    alert = _worded(replace(active.alert, labels=labels), held=active.held_seconds, lasts=True)
    return replace(active, alert=alert, is_relapse=False)


def not_found(active: ActiveAlert, health: DriverHealth) -> ActiveAlert:
    """The alert without its finding: it recovers unless its query is unhealthy in another way."""
    active = replace(active, found=False, found_since=None)
    if active.unseen_since is not None and not health.knows(active.query):
        return replace(active, recovery=None)
    recovery = health.recovery(active.query, active.severity, active.recovery)
    unseen_since = None if health.has_seen(active.query) else active.unseen_since
    return replace(active, recovery=recovery, unseen_since=unseen_since)


def begin(active: ActiveAlert, held_seconds: float) -> ActiveAlert:
    """The alert, firing from now on."""
    return replace(
        active,
        begun=True,
        held_seconds=held_seconds,
        alert=_worded(active.alert, held=held_seconds),
    )


def is_over(active: ActiveAlert, health: DriverHealth, resolve_after_seconds: float) -> bool:
    """Whether the query has been proven healthy for long enough."""
    if active.recovery is None:
        return False
    seconds = max(active.held_seconds, resolve_after_seconds)
    return health.has_recovered(active.query, active.recovery, seconds)


def is_expired(active: ActiveAlert, now: float) -> bool:
    """Whether its query has not been seen for a day; call it only if the finding is absent."""
    since = active.unseen_since
    return since is not None and now - since >= UNSEEN_SECONDS


def _is_milder(new: Alert, old: Alert) -> bool:
    critical = Severity.CRITICAL.value
    return old.labels["severity"] == critical != new.labels["severity"]


def _labels(new: Alert, known: Alert) -> dict[str, str]:
    """The labels of an open alert, which only becomes more severe."""
    if _is_milder(known, new):
        return new.labels
    kept = {name: known.labels[name] for name in (OCCURRENCE, "severity") if name in known.labels}
    return new.labels | kept


def _worded(alert: Alert, *, held: float, lasts: bool = False) -> Alert:
    if not held:
        return alert
    text = note(held, lasts=lasts or alert.is_lasting)
    return replace(alert, annotations={**alert.annotations, "flapping": text})
