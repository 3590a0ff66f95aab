"""Reverts of fixes to incident keys and to stale resolves."""

from __future__ import annotations

import math
from typing import Any

from msgspec.structs import replace

from querypulse.alerting import grouping, lifecycle, outbox, reconciliation
from querypulse.alerting.alert import Incident
from querypulse.alerting.grouping import Grouping
from querypulse.alerting.outbox import StaleResolves
from querypulse.alerting.outbox_entry import DeliveryState, PendingSend, SendReason
from querypulse.watch import alerts as alerts_module
from querypulse.watch.tracker import WatchedDriver

from .mutating import Mutation, only
from .scenarios import plan_of

_begin = StaleResolves.__init__
_wants = outbox.Outbox._wants
_place, _offered = Grouping._place, outbox.offered


def _open_as_the_first(self: Grouping, alerts: Any, _: str) -> None:
    self._put(Incident(alerts))


def _join_the_group(self: Grouping, kind: Any, alerts: Any) -> None:
    page = self._pages.get(f"querypulse/etl/*/{kind[0]}")
    if page is None:
        _place(self, kind, alerts)
    else:
        members = (*page.incident.alerts, *alerts)
        self._put(replace(page.incident, alerts=members, revision=page.incident.revision + 1))


def _known_is_known(one: Any, incident: Any, wall: float) -> Any:
    found = _offered(one, incident, wall)
    if found.earlier_end is None:
        return found
    return replace(found, state=DeliveryState.FIRING, sent_at=one.sent_at, earlier_end=None)


def _asks_nobody(self: StaleResolves, *, asks: bool) -> None:
    _begin(self, asks=False)


def _stale_first(self: outbox.Outbox, wall: float) -> list[PendingSend]:
    stale = self.stale_resolves.first_due
    return _wants(self, wall) if stale is None else [PendingSend(stale, SendReason.STALE_RESOLVE)]


def _believes_only_itself(self: alerts_module.DriverAlerts, driver: WatchedDriver) -> bool:
    return (self._healthy_seconds(driver) or 0.0) >= self._resolve_after


def _renewed_by_health(self: alerts_module.DriverAlerts, key: Any, one: Any) -> Any:
    driver = self.tracker.drivers[key]
    if one.was_back and self._is_gone(driver):
        return replace(one, revision=one.revision + 1, was_back=False)
    return replace(one, was_back=True) if self._is_almost_healthy(driver) else one


def _keeps_labels(active: Any) -> Any:
    return replace(active, is_relapse=False)


KEYS = (
    Mutation("a group has the key of its first alert", "P1|P3|P4",
             Grouping, "_open", _open_as_the_first, plan=plan_of("a member of a group recovers and fails again: nobody is paged")),
    Mutation("a query that fails later joins an open group", "P1|P4",
             Grouping, "_place", _join_the_group,
             only("restart", around=("die together",), around_share=0.6, queries=(6,), minutes=(8.0,)), 60),
    Mutation("a warning that becomes critical keeps its open key", "P1",
             grouping, "_suffix", lambda _: (), plan=plan_of("a warning becomes critical, and its key is open")),
    Mutation("an alert that lasts keeps its open key", "P1",
             lifecycle.Lifecycle, "_suffix", lambda *_: "", plan=plan_of("a failure no longer recovers by itself, and its alert is held open")),
    Mutation("an alert that lasts keeps its labels at Alertmanager", "P1|P3",
             lifecycle, "as_news", _keeps_labels, plan=plan_of("the same at Alertmanager, whose alert has the same labels")),
    Mutation("a generic name is trusted: another driver's page is resolved", "P3|P4",
             reconciliation, "is_generic", lambda _: False, plan=plan_of("a second driver with the same app name resolves the page of the first"), essential=True),
    Mutation("an alert that another driver keeps posting is resolved at Alertmanager", "P3|P4",
             outbox, "HELD_SECONDS", 0.0, plan=plan_of("at Alertmanager, a second driver with the same app name resolves the page of the first")),
    Mutation("watch treats two drivers of one app as one", "P1",
             WatchedDriver, "full_name", WatchedDriver.name, plan=plan_of("two drivers with one app name are killed, one after the other")),
    Mutation("stale resolves are sent all at once", "P5",
             outbox, "STALE_RESOLVE_SECONDS", 0.0, plan=plan_of("a start resolves all incidents at once, which were never open")),
    Mutation("stale resolves are sent repeatedly", "P5",
             StaleResolves, "settle", lambda *_: None, plan=plan_of("a start resolves all incidents at once, which were never open")),
    Mutation("Alertmanager is not asked what is open", "P5",
             StaleResolves, "__init__", _asks_nobody,
             plan=plan_of("a start resolves incidents at Alertmanager that were never open")),
    Mutation("watch does not ask Alertmanager what is open", "P5",
             StaleResolves, "__init__", _asks_nobody, plan=plan_of("watch repeats its start-up resolve, and resolves what the driver itself reports")),
    Mutation("watch resolves an incident that it saw recover some seconds ago", "P1",
             alerts_module, "FRESH_SECONDS", math.inf, plan=plan_of("watch sends its start-up resolve late, after the driver has reported the end of its JVM")),
    Mutation("the watcher does not believe a driver that resolves its own end", "P2",
             alerts_module.DriverAlerts, "_is_healthy", _believes_only_itself,
             plan=plan_of("an alert that the watcher repeats after its driver resolved it")),
    Mutation("an incident waits as long as the stale resolve of its key", "P1",
             outbox.SendSchedule, "renew", lambda *_: None,
             plan=plan_of("a start-up resolve gets 410, and its query fails once the receiver works again")),
    Mutation("stale resolves are sent before pages", "P1",
             outbox.Outbox, "_wants", _stale_first, plan=plan_of("a query fails while stale resolves are being sent")),
    Mutation("a driver that was paused counts as healthy only from then on", "P1",
             alerts_module.DriverAlerts, "_renewed", _renewed_by_health,
             plan=plan_of("a driver that is killed just after its pause, with a late resolve")),
    Mutation("a rejected resolve is not sent again", "P3",
             outbox, "leaves_open", lambda *_: False, plan=plan_of("a receiver answers 400 to a resolve")),
    Mutation("a rejected alert is not sent again when another unnamed query joins", "P1",
             Incident, "members", frozenset(), plan=plan_of("a receiver answers 400 to the shared alert of unnamed queries")),
    Mutation("warnings of an earlier driver stay open", "P3",
             reconciliation, "WARNINGS", (), plan=plan_of("without a spool, the warning of a slow batch stays open for ever")),
    Mutation("groups of an earlier driver stay open", "P3",
             reconciliation.Reconciliation, "_of_all", lambda *_, **__: iter(()),
             plan=plan_of("without a spool, a group stays open")),
    Mutation("an alert that fires again before its resolve was accepted is not sent", "P1|P4",
             outbox, "offered", _known_is_known, plan=plan_of("a failure recurs before the receiver has accepted the resolve of the last one")),
)  # fmt: skip
