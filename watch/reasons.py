"""The alert about a driver that is down. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from ..alerting.alert import Alert
from ..alerting.finding import WHOLE_DRIVER, Finding, Severity
from ..alerting.lifecycle.guidance import Guidance
from ..alerting.lifecycle.wording import alert_of
from ..alerting.receivers.encoding import rfc3339
from ..alerting.rules import driver_down
from ..core.listing import listed
from ..core.states import QueryState
from .memory import WatchedDriver
from .poll import Poll, Said

MAX_UNHEALTHY = 10
ADDRESS = "address"
"""The annotation with the address at which the driver was polled."""

HOW = {
    Said.STUCK: "is stuck: its server answers, but its worker does not advance",
    Said.SILENT: "is frozen: it accepts connections and does not answer",
    Said.REFUSED: "was killed or has crashed: nothing listens at its address",
    Said.BROKEN: "drops every connection",
    Said.UNREACHABLE: "is unreachable, although the network works",
    Said.REPLACED: "was replaced: another driver is at its address",
}
TERMINATED = "was terminated by a signal and has not come back"
NEVER = "has never answered since the watcher started"


def gone(driver: WatchedDriver, name: str, now: float, wall: float, guidance: Guidance) -> Alert:
    """The firing alert of driver ``name``; ``now`` is monotonic, ``wall`` Unix seconds."""
    how = HOW.get(driver.last.said, "") if driver.last is not None else ""
    if driver.terminated:
        how = TERMINATED
    elif not driver.seen:
        how = NEVER
    detail = driver.last.detail if driver.last is not None else ""
    finding = replace(_finding(f"{how} ({detail})"), evidence=_evidence(driver, now, wall))
    since = now if driver.bad_since is None else driver.bad_since
    return alert_of(finding, name, guidance, wall - (now - since))


def closing(name: str, wall: float, guidance: Guidance) -> Alert:
    """The resolved alert of driver ``name``, which an earlier watcher may have left open."""
    alert = alert_of(_finding("answers"), name, guidance, wall)
    return alert.ended(wall, outcome="driver answers")


def _finding(how: str) -> Finding:
    """The finding about a driver, without evidence."""
    return Finding(
        alertname=driver_down.NAME,
        query=WHOLE_DRIVER,
        severity=Severity.CRITICAL,
        state=QueryState.MISSING,
        reason=f"driver {how}",
        summary=f"driver {how}",
        evidence={},
    )


def _evidence(driver: WatchedDriver, now: float, wall: float) -> dict[str, str]:
    """The newest connection result, and what was known when the driver was last seen."""
    last, seen = driver.last, driver.last_seen
    facts = {ADDRESS: driver.endpoint.shown, "connection": last.detail if last else ""}
    if seen is None:
        return facts | {"last_seen": "never by this watcher"}
    beat = seen.heartbeat
    return facts | {
        "last_seen": f"{rfc3339(wall - (now - seen.at))}, {now - seen.at:.0f} s ago",
        "last_heartbeat": "unknown" if beat is None else f"{rfc3339(beat)} by the driver's clock",
        "unhealthy_before": _unhealthy(seen),
    }


def _unhealthy(poll: Poll) -> str:
    return listed(poll.unhealthy, MAX_UNHEALTHY) or "none: every query was healthy"
