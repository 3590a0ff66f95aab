"""What a rule finds, and the health of a query that follows from it."""

from __future__ import annotations

from enum import Enum
from hashlib import sha256

import msgspec

from ..core.states import QueryState
from ..listener.failure import Failure
from .evidence import NO_EVIDENCE, Evidence, Slowness
from .facts import Facts, Failed, GivenUp, Reported, SessionExpired, ShareCause, Unnamed
from .kinds import SHOWN_CODES, Code, SharedCause, kind_of


class Severity(str, Enum):
    """How urgent an alert is."""

    CRITICAL = "critical"
    WARNING = "warning"


WHOLE_DRIVER = "*"
"""Replaces the query's name in an alert about all queries of the driver."""


class Words(msgspec.Struct, frozen=True):
    """A finding in words: one line with the cause, the headline, and the evidence by name."""

    reason: str = ""
    summary: str = ""
    evidence: dict[str, str] = {}


class Finding(msgspec.Struct, frozen=True):
    """A problem that one rule found in one query, as facts; ``words/`` says them.

    ``words`` are added at the end of an evaluation, and redacted before anything else sees them;
    what leaves the driver is made of them. ``state`` is the state that the query shows. Findings of
    one name with the same ``shared`` cause become one incident of the whole driver. ``members`` are
    the labels of the unnamed queries that the finding covers. ``holder`` is the other query for
    whose slots this one waits; ``pages_holder``: it has waited for so long that somebody must act.
    What ``is_past`` is an event that is over: it hides no other finding, and is no state.
    """

    alertname: str
    query: str
    severity: Severity
    state: QueryState
    facts: Facts
    evidence: Evidence = NO_EVIDENCE
    shared: SharedCause | None = None
    members: tuple[str, ...] = ()
    holder: str = ""
    pages_holder: bool = False
    is_past: bool = False
    words: Words | None = None

    @property
    def reason(self) -> str:
        """What is wrong, in words; empty before the end of the evaluation."""
        return "" if self.words is None else self.words.reason

    @property
    def code(self) -> Code:
        """What exactly is wrong."""
        return self.facts.code

    @property
    def failure(self) -> Failure | None:
        """The failure that it is about; None without one."""
        facts = self._newest
        return facts.failure if isinstance(facts, (Failed, GivenUp)) else None

    @property
    def error_class(self) -> str:
        """The error class of the failure that it is about; empty without one."""
        if self.failure is not None:
            return self.failure.error_class
        facts = self._newest
        return facts.evidence.get("error_class", "") if isinstance(facts, Reported) else ""

    @property
    def _newest(self) -> Facts:
        return self.facts.newest.facts if isinstance(self.facts, Unnamed) else self.facts

    @property
    def shared_cause(self) -> str:
        """What queries of the driver have in common; empty if nothing.

        Sessions of Spark Connect that end for different reasons are different causes.
        """
        if self.shared is None:
            return ""
        facts = self.facts.members[0].facts if isinstance(self.facts, ShareCause) else self.facts
        if self.shared is SharedCause.SESSION_ENDED and isinstance(facts, Failed):
            return f"{self.shared.value} {facts.failure.message}"
        if isinstance(facts, SessionExpired):
            return f"{self.shared.value} {facts.session.session}"
        return self.shared.value

    @property
    def group(self) -> str:
        """What alerts of one name have in common to be one incident: an error class, or a code."""
        code = self.code.value if self.code in SHOWN_CODES else ""
        return self.shared_cause or self.error_class or code

    @property
    def outage(self) -> str:
        """The hash of its error class and of the place that it names; empty if it names none.

        Within minutes, and over processes, an error class alone would not show one cause: two
        ``ValueError`` are two defects.
        """
        place = "" if self.failure is None or self.shared is not None else self.failure.place
        return sha256(f"{self.group} at {place}".encode()).hexdigest()[:16] if place else ""


def finding_about(
    label: str,
    alertname: str,
    severity: Severity,
    facts: Facts,
    evidence: Evidence = NO_EVIDENCE,
    *,
    state: QueryState | None = None,
    shared: SharedCause | None = None,
    is_past: bool = False,
) -> Finding:
    """Return the finding about one query, whose state is the usual one of the alert."""
    return Finding(
        alertname,
        label,
        severity,
        state or kind_of(alertname).state,
        facts,
        evidence,
        shared,
        is_past=is_past,
    )


NOT_WORKING = frozenset(
    {QueryState.FAILED, QueryState.MISSING, QueryState.STOPPED_UNEXPECTEDLY, QueryState.STALLED}
)
"""The states of a query that processes nothing, although it should."""


class QueryHealth(msgspec.Struct, frozen=True, gc=False):
    """The state of one query, why, its stall window in seconds, and its other limits.

    An ``ignored`` query has a state, but it raises no alert here and does not affect the process:
    the settings ignore it, or another process that monitors the same JVM reports it.
    """

    state: QueryState
    why: Facts | None = None
    window_seconds: float | None = None
    ignored: bool = False
    reported_elsewhere: bool = False
    expected_input_seconds: float | None = None
    severity: Severity | None = None
    """The severity of its most severe finding; None without one."""
    restarted: bool = False
    """Whether ``supervise`` restarts it, so that its failure is not final."""
    reason: str = ""
    """``why`` in words; what leaves the driver is made of them."""
    is_unknown: bool = False
    """An error of ours: nothing opens or ends an alert of the query."""
    due_at: float | None = None
    """By when a run of it must complete, in Unix seconds; None without such a time."""
    slowness: Slowness | None = None
    """Of its most severe finding, if that is about a batch that takes longer than usual."""
    likely_cause: str = ""
    """Its likely cause in words; empty if it is unknown."""
