"""The outbox has limited room; important messages are evicted last."""

import msgspec
import pytest
from support.deliveries import WALL, incident, outage, poison, wrong_token

from querypulse.alerting.outbox import Outbox
from querypulse.alerting.outbox_entry import OutboxEntry


def queries(outbox):
    return [entry.incident.alerts[0].labels["query"] for entry in outbox.entries]


def warning(query, **options):
    return incident(query, severity="warning", **options)


def report(outbox, wall=WALL):
    """Deliver everything that is due."""
    while (sent := outbox.begin(0.0, wall)) is not None:
        outbox.delivered(sent, wall)


def test_critical_incident_replaces_the_oldest_warning():
    outbox = Outbox(max_entries=2)
    outbox.offer([warning("old")], WALL)
    outbox.offer([warning("old"), warning("new")], WALL + 1)
    outbox.offer([warning("old"), warning("new"), incident("dead")], WALL + 2)

    assert queries(outbox) == ["new", "dead"]
    assert outbox.losses["evicted"] == 1


def test_resolved_incident_is_evicted_first_and_is_no_loss():
    from querypulse.alerting.receivers.receiver import ReceiverCapabilities

    outbox = Outbox(
        ReceiverCapabilities(resend_seconds=60.0, resend_resolved_seconds=300.0), max_entries=2
    )
    outbox.offer([incident("over")], WALL)
    report(outbox)
    outbox.offer([], WALL)
    report(outbox)
    outbox.offer([warning("a"), warning("b")], WALL)

    assert queries(outbox) == ["a", "b"]
    assert outbox.losses["evicted"] == 0


def test_unsent_critical_incident_is_not_evicted():
    outbox = Outbox(max_entries=1)
    outbox.offer([incident("dead")], WALL)
    outbox.offer([incident("dead"), warning("slow"), incident("newer")], WALL + 1)

    assert queries(outbox) == ["dead"]
    assert outbox.losses["evicted"] == 2


def test_unsent_critical_incident_that_is_over_gives_way_to_one_that_fires():
    """Otherwise a receiver that was down for long would hide new failures from its fallback."""
    outbox = Outbox(max_entries=1)
    outbox.offer([incident("over")], WALL)
    outbox.offer([], WALL + 1)
    assert queries(outbox) == ["over"]
    outbox.offer([incident("dead")], WALL + 2)

    assert queries(outbox) == ["dead"]
    assert outbox.losses["evicted"] == 1


def test_warning_does_not_evict_an_unsent_critical_incident_that_is_over():
    outbox = Outbox(max_entries=1)
    outbox.offer([incident("over")], WALL)
    outbox.offer([], WALL + 1)
    outbox.offer([warning("slow")], WALL + 2)

    assert queries(outbox) == ["over"]


def test_rejected_critical_entry_is_evicted_before_an_unsent_one():
    outbox = Outbox(max_entries=1)
    outbox.offer([incident("rejected")], WALL)
    outbox.failed(outbox.begin(0.0, WALL), poison(), 0.0, WALL)
    outbox.offer([incident("rejected"), incident("newer")], WALL + 1)

    assert queries(outbox) == ["newer"]


def test_warning_does_not_evict_a_sent_critical_incident():
    """Otherwise it would never be resolved."""
    outbox = Outbox(max_entries=1)
    outbox.offer([incident("dead")], WALL)
    report(outbox)
    outbox.offer([incident("dead"), warning("slow")], WALL)

    assert queries(outbox) == ["dead"]


@pytest.mark.fault(
    "Receivers",
    "More alerts than the outbox holds",
    "Each loss is counted, and sent when there is room",
)
def test_incident_without_room_is_counted_once_and_returns_when_there_is_room():
    """Incidents offered twice a second must not evict each other in turn."""
    outbox = Outbox(max_entries=2)
    firing = [warning("a"), warning("b"), warning("c")]
    for tick in range(100):
        outbox.offer(firing, WALL + tick)
        report(outbox, WALL + tick)
    assert outbox.losses["evicted"] == 1
    inside = set(queries(outbox))

    outbox.offer(
        [one for one in firing if one.alerts[0].labels["query"] != min(inside)], WALL + 100
    )
    report(outbox, WALL + 100)
    outbox.offer(
        [one for one in firing if one.alerts[0].labels["query"] != min(inside)], WALL + 101
    )
    assert set(queries(outbox)) == {"a", "b", "c"} - {min(inside)}


def test_bytes_are_limited_like_entries():
    outbox = Outbox(max_bytes=10_000)
    outbox.offer([warning(f"q{number}", summary="x" * 1000) for number in range(50)], WALL)

    assert sum(len(msgspec.json.encode(entry)) for entry in outbox.entries) <= 10_000
    assert len(outbox.entries) + outbox.losses["evicted"] == 50


def test_growing_entry_evicts_others():
    outbox = Outbox(max_bytes=10_000)
    outbox.offer([warning("a"), incident("dead")], WALL)
    outbox.offer([warning("a"), incident("dead", summary="x" * 9900)], WALL)

    assert queries(outbox) == ["dead"]


def test_single_critical_incident_is_kept_whatever_its_size():
    outbox = Outbox(max_bytes=1000)
    outbox.offer([incident("dead", summary="x" * 5000)], WALL)

    assert queries(outbox) == ["dead"]


def test_incident_in_progress_is_not_evicted():
    """Its outcome still has to be recorded."""
    outbox = Outbox(max_entries=1)
    outbox.offer([warning("slow")], WALL)
    sent = outbox.begin(0.0, WALL)
    outbox.offer([warning("slow"), incident("dead")], WALL)
    outbox.delivered(sent, WALL)

    assert queries(outbox) == ["slow"]
    outbox.offer([warning("slow"), incident("dead")], WALL)
    assert queries(outbox) == ["dead"]


@pytest.mark.fault("Receivers", "Years of alerts, simulated", "Memory is bounded")
def test_nothing_accumulates_over_the_years():
    """A new name every minute, with a working receiver and with failing ones."""
    for error in (None, outage(), wrong_token()):
        outbox = Outbox(max_entries=5)
        for minute in range(300):
            now, wall = minute * 60.0, WALL + minute * 60.0
            outbox.offer([warning(f"run-{minute}", starts_at=wall)], wall)
            while (sent := outbox.begin(now, wall)) is not None:
                if error is None:
                    outbox.delivered(sent, wall)
                else:
                    outbox.failed(sent, error, now, wall)
        assert len(outbox.entries) <= 2
        assert len(outbox._store._sizes) == len(outbox.entries)
        assert len(outbox._store._outside) <= 1
        assert len(outbox._schedule._retries) <= 2


def test_entries_survive_json():
    outbox = Outbox()
    outbox.offer([incident("a", "b", revision=3, muted="silenced")], WALL)
    (entry,) = outbox.entries

    assert msgspec.json.decode(msgspec.json.encode(entry), type=OutboxEntry) == entry
