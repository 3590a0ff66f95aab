"""Alerts, and the incidents that people are notified of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from enum import Enum
from hashlib import sha256
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from .finding import WHOLE_DRIVER, Severity
from .kinds import kind_of

PREFIX_CHARACTERS = 190
MAX_KEY_CHARACTERS = 255
"""PagerDuty's limit for a ``dedup_key``."""
FIRING = "firing"
RESOLVED = "resolved"
"""The status of an alert or an incident: without, and with an end."""
WARNING = Severity.WARNING.value
CRITICAL = Severity.CRITICAL.value
TEST_ALERT = "QuerypulseTest"
"""The name of the alert that ``querypulse test-alert`` sends."""
FLAPS = 3
FLAP_WINDOW_SECONDS = 24 * 3600.0
"""An alert that opens so often within so long keeps coming back."""


class AlertOutcome(str, Enum):
    """What the query of an alert, or its driver, does once it has ended."""

    COMMITS = "commits"
    HEALTHY = "healthy"
    IDLE = "idle"
    STOPPED = "stopped"
    COMPLETED = "completed"
    UNWATCHED = "unwatched"
    # Of a driver
    RECOVERED = "recovered"
    ANSWERS = "answers"
    SHUT_DOWN = "shut_down"
    DOWN_AGAIN = "down_again"
    FORGOTTEN = "forgotten"
    DRIVER_UNWATCHED = "driver_unwatched"
    # Of the watcher, and of a test
    ACCEPTED = "accepted"
    TEST_OVER = "test_over"


def recovered(alertname: str, *, of_one_query: bool = True) -> AlertOutcome:
    """The outcome for a query that commits again; for several queries, that they are healthy."""
    kind = kind_of(alertname)
    if kind.recovers:
        return AlertOutcome.RECOVERED
    return AlertOutcome.COMMITS if of_one_query and kind.stops_commits else AlertOutcome.HEALTHY


class GoesOn(str, Enum):
    """Where an alert goes on that has ended in its incident."""

    CRITICAL_ALERT = "critical_alert"
    CRITICAL_INCIDENT = "critical_incident"
    WARNING = "warning"
    ANOTHER_INCIDENT = "another_incident"


class End(msgspec.Struct, frozen=True):
    """When an alert ended, in Unix seconds, and how: with an outcome, or it goes on elsewhere.

    ``caught_up`` says when its query, which works again, has read all that has arrived since.
    """

    at: float
    outcome: AlertOutcome | None = None
    goes_on: GoesOn | None = None
    caught_up: str = ""


class Alert(msgspec.Struct, frozen=True):
    """One problem of one query, since ``starts_at`` (Unix seconds) until its ``end``.

    ``annotations`` are the words of its finding, and ``code`` what exactly is wrong. ``cause`` is
    what it was first found to be, in words that drivers share (``cause.py``). ``outage`` is the
    hash of its first error class and place; empty if its failure names no place. ``incident`` is
    the subject of its incident where that is not its query, such as ``*``. ``muted`` says why
    nobody is notified of it ("silenced until ..."). One that keeps coming back is held open until
    it has been absent for ``calm_seconds``. ``late_seconds``: its message is so late; one that was
    missed is sent as if it fired, and ``later_end`` is how it has ended since.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: float
    end: End | None = None
    code: str = ""
    cause: str = ""
    outage: str = ""
    incident: str = ""
    muted: str = ""
    calm_seconds: float = 0.0
    late_seconds: float = 0.0
    later_end: End | None = None

    @property
    def ends_at(self) -> float | None:
        """When it ended, in Unix seconds; None while it is open."""
        return None if self.end is None else self.end.at

    @property
    def name(self) -> str:
        """The alert's name, which is also its rule's and its runbook's."""
        return self.labels["alertname"]

    @property
    def query(self) -> str:
        """The label of its query; ``*`` for the whole driver."""
        return self.labels["query"]

    @property
    def is_critical(self) -> bool:
        """Whether its severity is critical."""
        return self.labels["severity"] == CRITICAL

    @property
    def is_superseded(self) -> bool:
        """Whether it has ended in this incident only, and goes on in another."""
        goes_on = None if self.end is None else self.end.goes_on
        return goes_on is not None and goes_on is not GoesOn.CRITICAL_ALERT

    def ended(
        self,
        wall: float,
        outcome: AlertOutcome | None = None,
        *,
        goes_on: GoesOn | None = None,
        caught_up: str = "",
    ) -> Alert:
        """The alert, ended at Unix time ``wall``."""
        return replace(self, end=End(max(wall, self.starts_at), outcome, goes_on, caught_up))


class Incident(msgspec.Struct, frozen=True):
    """What people are notified of: all open alerts of one query, or of the driver.

    ``labels`` are ``app``, ``query`` (``*`` for the driver and for queries that fail together) and
    those of the settings; ``key`` follows from them and ``severity``. ``alerts`` begin with the
    most prominent one; those that have ended since the incident opened come last. ``revision``
    grows when people must be notified again. ``muted`` says why they are not notified now; what
    was sent before stays open. An incident without alerts has ended: an earlier process may have
    left it open. ``recording`` is the id of its recording, which one of another severity, and of
    the next process, goes on with.
    """

    key: str
    labels: dict[str, str]
    severity: str
    alerts: tuple[Alert, ...]
    revision: int = 0
    muted: str = ""
    recording: str = ""

    @property
    def query(self) -> str:
        """The query that it is about; ``*`` for the driver."""
        return self.labels["query"]

    @property
    def is_critical(self) -> bool:
        """Whether one of its open alerts is critical."""
        return self.severity == CRITICAL

    @property
    def is_orphan(self) -> bool:
        """Whether it ends what an earlier process may have left open."""
        return not self.alerts

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.ends_at is not None

    @property
    def firing(self) -> tuple[Alert, ...]:
        """The alerts that are open."""
        return tuple(alert for alert in self.alerts if alert.ends_at is None)

    @property
    def starts_at(self) -> float:
        """When the first alert began, in Unix seconds."""
        return min((alert.starts_at for alert in self.alerts), default=0.0)

    @property
    def ends_at(self) -> float | None:
        """When the last alert ended, in Unix seconds; None while any is open."""
        end = 0.0
        for alert in self.alerts:
            if alert.ends_at is None:
                return None
            end = max(end, alert.ends_at)
        return end


def incident_labels(app: str, query: str, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of an incident; ``labels`` are those of the settings."""
    return {"app": app, "query": query, **labels}


def incident_key(labels: Mapping[str, str], severity: str) -> str:
    """``querypulse/<app>[;<label>=<value>...]/<query>``, and ``/warning`` for warnings.

    Each part is percent-encoded, so that no two incidents share a key. A key that is longer than
    PagerDuty's limit ends in its hash.
    """
    more = sorted((name, value) for name, value in labels.items() if name not in {"app", "query"})
    job = ";".join(
        [_encode(labels["app"]), *(f"{_encode(name)}={_encode(value)}" for name, value in more)]
    )
    key = f"querypulse/{job}/{_encode(labels['query'])}"
    if severity == WARNING:
        key += "/warning"
    if len(key) <= MAX_KEY_CHARACTERS:
        return key
    return f"{key[:PREFIX_CHARACTERS]}/{sha256(key.encode()).hexdigest()[:40]}"


def _encode(part: str) -> str:
    return quote(part, safe="*", errors="surrogatepass")


SLUG_CHARACTERS = 40
HASH_CHARACTERS = 6
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")


def recording_id(labels: Mapping[str, str], at: float) -> str:
    """The id of a recording: when its incident opened, whose it is, and a hash of both.

    It is the name of a file, whatever the names of the app and the query are.
    """
    when = datetime.fromtimestamp(at, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    whole = repr((sorted(labels.items()), at))
    digest = sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_CHARACTERS]
    query = labels["query"]
    subject = "driver" if query == WHOLE_DRIVER else _slug(query)
    return f"{when}-{_slug(labels['app'])}-{subject}-{digest}"


def _slug(name: str) -> str:
    return _UNSAFE.sub("-", name).strip("-")[:SLUG_CHARACTERS] or "unnamed"


# -- names of applications that several may have -----------------------------------------------

GENERIC_APPS = frozenset(
    {
        "pyspark-shell",  # `python job.py`, Jupyter: PySpark's own PYSPARK_SUBMIT_ARGS
        "pysparkshell",  # bin/pyspark
        "spark shell",  # bin/spark-shell
        "spark-shell",
        "sparkr",
        "spark",  # Spark on Kubernetes, without another name
        "databricks shell",
        # The start script of a Spark Connect server, whose clients share its name.
        "spark connect server",
        "org.apache.spark.sql.connect.service.sparkconnectserver",
        "zeppelin",
        "main.py",  # spark-submit names an application after its script
        "app.py",
        "job.py",
        "run.py",
        "launcher.py",  # under `querypulse launcher`, without --name
        "cli.py",  # under `spark-pipelines run`, without --name
    }
)
"""Two running drivers are likely to share one of these names; case does not matter."""


def is_generic(app: str) -> bool:
    """Whether another running driver is likely to have the same name."""
    return app.casefold() in GENERIC_APPS


def problem_of(app: str) -> str:
    """What a generic name prevents, and how to fix it; empty for any other name."""
    if not is_generic(app):
        return ""
    return (
        f"the app is called {app!r}, and other drivers may be too: alerts that an earlier process "
        "left open are not resolved at the start, except from spool_dir; set app_name to a "
        "unique name"
    )
