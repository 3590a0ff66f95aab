"""Alerts stay open while their query is unhealthy, always resolve, and do not repeat."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lifecycle_harness import STATES, WALL, WARNINGS, LifecycleHarness

from querypulse.alerting.alert import Alert, Incident, Silence, incident_key, incident_labels
from querypulse.alerting.lifecycle import FACTS, FLAP_WINDOW_SECONDS, GROUP_SECONDS
from querypulse.listener.state.snapshot import Pause

pytestmark = pytest.mark.slow

QUERIES = ("a", "b", "c", "d")
DRIVER_NAMES = (
    "StreamingQueryStalled",
    "StreamingQueryStopped",
    "QuerypulseMonitoringDegraded",
    "QuerypulseEventsMissing",
)
OWN_NAMES = tuple(sorted(set(STATES) - {*DRIVER_NAMES[2:], "StreamingDriverDown"}))
CONDITIONS = (
    *OWN_NAMES,
    *(
        f"{name}+StreamingQueryFlapping"
        for name in ("StreamingQueryFailed", "StreamingQueryStalled")
    ),
    *(
        "StreamingDataLossRisk",
        "StreamingDataLossRisk!",
        "StreamingQueryStalled+StreamingDataLossRisk",
        "StreamingQueryFailed+StreamingDataLossRisk!",
    ),
    *("StreamingQueryFlapping", "commits", "commits", "idle", "idle", "starts", "ends", "stopped"),
    *("completed", "forgotten", "expected"),
)
SILENCES = (
    (),
    (Silence("*", WALL + 1e9),),
    (Silence("[ab]", WALL + 300),),
    (Silence("*", WALL + 900, "StreamingQueryFailed"),),
)

conditions = st.one_of(
    st.tuples(st.sampled_from(QUERIES), st.sampled_from(CONDITIONS)),
    st.tuples(st.just("*"), st.sampled_from((*DRIVER_NAMES, "healthy", "healthy"))),
)
changes = st.lists(conditions, max_size=4)
seconds = st.sampled_from((0.0, 0.25, 1.0, 1.0, 5.0, 31.0, 200.0, 1900.0))
steps = st.lists(st.tuples(seconds, changes, st.sampled_from(SILENCES)), max_size=40)
left_open = st.lists(
    st.tuples(
        st.lists(st.sampled_from((*QUERIES, "*")), min_size=1, max_size=4, unique=True),
        st.sampled_from(("StreamingQueryFailed", "StreamingQueryStalled", "StreamingBatchSlow")),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=4,
)


class Watch:
    """A harness that checks the invariants after every step."""

    def __init__(self) -> None:
        self.harness = LifecycleHarness(repeat_interval_seconds=120.0)
        self.open: dict[str, Incident] = {}
        self.calm = 0.0
        """Seconds since an alert last opened."""

    def step(self, after, changes, silences) -> None:
        harness = self.harness
        harness.now += after
        before = {identity(alert) for alert in harness.lifecycle.alerts}
        if after > 1000:
            harness.pauses = (*harness.pauses, Pause(harness.now, after - 100))[-3:]
        harness.silences = list(silences)
        for query, what in changes:
            if what != "forgotten" or query in harness._conditions:
                harness.condition(query, what)
        harness.tick()
        opened = {identity(alert) for alert in harness.lifecycle.alerts} - before
        self.calm = 0.0 if opened else self.calm + after
        self.check()

    def found(self) -> set[tuple[str, str]]:
        """The conditions that hold: name of the alert, and query."""
        return {
            (name, query)
            for query, what in self.harness._conditions.items()
            for name in what.split("+")
            if name in STATES
        }

    def check(self) -> None:
        incidents = {one.key: one for one in self.harness.incidents}
        assert len(incidents) == len(self.harness.incidents), "keys are unique"
        assert self.open.keys() <= incidents.keys(), "no incident disappears without its end"
        for key, incident in incidents.items():
            self.check_sent(incident, self.open.get(key))
        self.open = {key: one for key, one in incidents.items() if one.ends_at is None}
        subjects = [incident.query for incident in self.open.values()]
        assert len(set(subjects)) == len(subjects), "one open incident for each subject"
        firing = [identity(alert) for one in self.open.values() for alert in one.firing]
        assert len(set(firing)) == len(firing), "each alert is in one incident"
        shown = {identity(alert) for alert in self.harness.lifecycle.alerts}
        assert set(firing) <= shown
        loud = {identity(alert) for alert in self.harness.lifecycle.alerts if not alert.muted}
        if self.calm > GROUP_SECONDS:
            assert loud <= set(firing), "no alert waits longer than for a group"

    def check_sent(self, incident, before) -> None:
        over = [alert for alert in incident.alerts if alert.ends_at is not None]
        assert all(alert.ends_at >= alert.starts_at for alert in over)
        done = {identity(alert) for alert in over if "superseded_by" not in alert.annotations}
        assert not self.found() & (done - ended(before)), "nothing resolves while it holds"
        critical = any(alert.is_critical for alert in incident.firing)
        assert incident.is_over or incident.is_critical == critical
        if before is None:
            assert incident.ends_at is None, "an incident fires before it resolves"
            return
        silenced = {identity(alert) for alert in self.harness.lifecycle.alerts if alert.muted}
        known = {identity(alert) for alert in before.alerts} - silenced
        assert known <= {identity(alert) for alert in incident.alerts}, "no alert is lost"
        assert before.revision <= incident.revision <= before.revision + 1
        assert not incident.muted or incident.revision == before.revision

    def recover_all(self) -> None:
        self.step(0.0, [(query, "idle") for query in QUERIES] + [("*", "healthy")], ())
        for _ in range(20):
            self.step(60.0, (), ())
        # A flapping alert resolves after an absence as long as its last three times: up to a day.
        for _ in range(int(FLAP_WINDOW_SECONDS / 900)):
            if self.harness.incidents:
                self.step(900.0, (), ())


def identity(alert: Alert) -> tuple[str, str]:
    return alert.name, alert.query


def ended(incident: Incident | None) -> set[tuple[str, str]]:
    alerts = () if incident is None else incident.alerts
    return {identity(alert) for alert in alerts if alert.ends_at is not None}


@given(steps)
def test_invariants_hold_for_any_history(story):
    watch = Watch()
    for step in story:
        watch.step(*step)


@given(steps)
def test_recovery_resolves_every_alert_exactly_once(story):
    watch = Watch()
    for step in story:
        watch.step(*step)
    watch.recover_all()
    sent = Counter(reported.split(" ")[1] for reported in watch.harness.reported)

    assert watch.harness.incidents == watch.harness.lifecycle.alerts == ()
    assert sent["+"] == sent["-"]


@given(steps)
def test_critical_at_two_polls_is_open_unless_an_alert_of_the_driver_covers_it(story):
    watch = Watch()
    before = set()
    for step in story:
        watch.step(*step)
        found = watch.found()
        alerts = watch.harness.lifecycle.alerts
        covers_all = any(alert.query == "*" and alert.is_critical for alert in alerts)
        sure = {one for one in found if one in before or one[0] in FACTS}
        critical = {one for one in sure if one[0] not in WARNINGS}
        if covers_all:
            critical = {one for one in critical if one[0] in FACTS}
        assert critical <= {identity(alert) for alert in alerts}
        before = found


@given(left_open, steps)
def test_restored_incidents_resolve(restored, story):
    watch = Watch()
    watch.harness.lifecycle.restore(newest(restored), 0.0)
    watch.step(0.0, (), ())
    for step in story:
        watch.step(*step)
    watch.recover_all()

    assert watch.harness.incidents == ()


def incident(queries, name, revision, first_is_over) -> Incident:
    alerts = [
        Alert(
            {"alertname": name, "app": "etl", "query": query, "severity": "critical"}, {}, WALL - 9
        )
        for query in queries
    ]
    if first_is_over:
        alerts[0] = Alert(alerts[0].labels, {}, WALL - 9, WALL - 5)
    labels = incident_labels("etl", queries[0] if len(queries) == 1 else "*", {})
    return Incident(incident_key(labels, "critical"), labels, "critical", tuple(alerts), revision)


def newest(restored) -> list[Incident]:
    """As ``Dispatch.restore`` returns them: each key once."""
    found = sorted((incident(*one) for one in restored), key=lambda one: one.revision)
    return list({one.key: one for one in found}.values())


@given(left_open)
def test_restored_incident_of_an_unseen_query_resolves_after_a_day(restored):
    watch = Watch()
    watch.harness.lifecycle.restore(newest(restored), 0.0)
    for _ in range(24):
        watch.step(3600.0, (), ())
    watch.harness.tick()

    assert watch.harness.incidents == ()
