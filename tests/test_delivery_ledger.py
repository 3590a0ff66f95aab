"""The account of one receiver: what is due, in which order, and when again."""

from querypulse.alerting import Alert
from querypulse.alerting.ledger import Ledger
from querypulse.alerting.receivers.receiver import DeliveryError

OUTAGE = DeliveryError("down", transient=True)
REFUSAL = DeliveryError("answered 401", transient=False)
LOST_ANSWER = DeliveryError("no answer", transient=True, may_have_arrived=True)


def alert(query="a", *, severity="critical", starts_at=1000.0, summary="") -> Alert:
    labels = {"alertname": "QueryFailed", "app": "etl", "query": query, "severity": severity}
    return Alert(labels, {"summary": summary}, starts_at)


def due(ledger, now=0.0, urgent_round=0):
    """What is due, as (query, firing or resolved)."""
    return [
        (one.labels["query"], "firing" if one.ends_at is None else "resolved")
        for one in ledger.due(now, urgent_round)
    ]


def told(*alerts) -> Ledger:
    """A ledger whose receiver knows these alerts."""
    ledger = Ledger()
    ledger.offer(alerts, 1000.0)
    for one in alerts:
        ledger.delivered(one, 1000.0)
    return ledger


def fail(ledger, error, now=0.0, urgent_round=0):
    """The first due alert fails."""
    return ledger.failed(ledger.due(now, urgent_round)[0], error, now, 1000.0 + now, urgent_round)


def test_a_firing_alert_is_due_until_it_was_delivered():
    """Success is recorded afterwards, so a crash repeats rather than loses."""
    ledger = Ledger()
    ledger.offer([alert()], 1000.0)
    assert due(ledger) == [("a", "firing")]

    ledger.delivered(alert(), 1000.0)
    assert due(ledger) == []


def test_other_words_are_not_another_alert():
    """Annotations change with every look; nobody is told again for that."""
    ledger = told(alert(summary="60 s without a commit"))
    ledger.offer([alert(summary="61 s without a commit")], 1001.0)

    assert due(ledger) == []


def test_an_alert_that_stopped_is_resolved_with_its_end():
    """The end is when it was first missing, whenever the resolve gets through."""
    ledger = told(alert())
    ledger.offer([], 1060.0)
    fail(ledger, OUTAGE)
    ledger.offer([], 1061.0)
    (resolve,) = ledger.differences()

    assert (resolve.starts_at, resolve.ends_at) == (1000.0, 1060.0)


def test_an_end_is_never_before_the_beginning():
    """Wall clocks are set back now and then."""
    ledger = told(alert())
    ledger.offer([], 500.0)

    assert ledger.differences()[0].ends_at == 1000.0


def test_an_alert_that_came_and_went_unheard_is_not_told():
    """During an outage nothing arrived, so there is nothing to resolve."""
    ledger = Ledger()
    ledger.offer([alert()], 1000.0)
    fail(ledger, OUTAGE)
    ledger.offer([], 1060.0)

    assert due(ledger, now=9e9) == []


def test_a_trigger_that_may_have_arrived_is_resolved():
    """Or the incident would stay open for ever."""
    ledger = Ledger()
    ledger.offer([alert()], 1000.0)
    fail(ledger, LOST_ANSWER)
    ledger.offer([], 1060.0)

    assert due(ledger, now=9e9) == [("a", "resolved")]


def test_a_trigger_that_may_have_arrived_is_sent_again_while_it_fires():
    """A repetition costs nothing, a lost page does."""
    ledger = Ledger()
    ledger.offer([alert()], 1000.0)
    fail(ledger, LOST_ANSWER)

    assert due(ledger, now=1.0) == [("a", "firing")]


def test_a_trigger_that_lands_after_its_alert_ended_is_resolved():
    """The set changed while the request was under way."""
    ledger = Ledger()
    ledger.offer([alert()], 1000.0)
    (trigger,) = ledger.due(0.0, 0)
    ledger.offer([], 1005.0)
    ledger.delivered(trigger, 1010.0)

    assert due(ledger) == [("a", "resolved")]


def test_an_alert_that_comes_back_does_not_inherit_its_pause():
    """It is a new occurrence, and due at once."""
    ledger = Ledger()
    for wall in (1000.0, 1060.0):
        ledger.offer([alert(starts_at=wall)], wall)
        assert due(ledger) == [("a", "firing")]
        fail(ledger, REFUSAL)
        ledger.offer([], wall + 1)

    assert ledger.next_retry() is None


def test_firing_again_before_the_resolve_left_needs_no_telling():
    """The receiver never heard of the pause."""
    ledger = told(alert())
    ledger.offer([], 1060.0)
    fail(ledger, OUTAGE)
    ledger.offer([alert(starts_at=1070.0)], 1070.0)

    assert due(ledger, now=9e9) == []


def test_firing_again_after_a_resolve_that_may_have_arrived_is_told():
    """The receiver may believe that all is well."""
    ledger = told(alert())
    ledger.offer([], 1060.0)
    fail(ledger, LOST_ANSWER)
    ledger.offer([alert(starts_at=1070.0)], 1070.0)

    assert due(ledger, now=9e9) == [("a", "firing")]


def test_an_outage_is_retried_after_1_2_4_up_to_60_seconds():
    """Doubling."""
    ledger = Ledger()
    ledger.offer([alert()], 1000.0)
    pauses, now = [], 0.0
    for _ in range(9):
        retry = fail(ledger, OUTAGE, now)
        pauses.append(retry.at - now)
        now = retry.at

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_receiver_that_asks_for_rest_gets_it():
    """Retry-After makes a pause longer, never shorter."""
    ledger = Ledger()
    ledger.offer([alert("a"), alert("b")], 1000.0)
    for seconds in (45.0, 0.5):
        fail(ledger, DeliveryError("busy", transient=True, retry_after=seconds))

    assert due(ledger, now=1.0) == [("b", "firing")]
    assert due(ledger, now=44.9) == [("b", "firing")]
    assert due(ledger, now=45.0) == [("a", "firing"), ("b", "firing")]


def test_a_refused_alert_is_kept_and_retried_every_five_minutes():
    """A rotated token is put right in the end."""
    ledger = Ledger()
    ledger.offer([alert()], 1000.0)
    for attempt in range(50):
        fail(ledger, REFUSAL, now=attempt * 300.0)
        assert due(ledger, now=attempt * 300.0 + 299.9) == []

    assert due(ledger, now=50 * 300.0) == [("a", "firing")]


def test_new_before_failed_then_critical_then_oldest():
    """A failing alert never stands in the way of one that was not tried yet."""
    ledger = Ledger()
    ledger.offer([alert("failing")], 1000.0)
    fail(ledger, OUTAGE)
    fresh = [
        alert("warning", severity="warning", starts_at=1.0),
        alert("later", starts_at=3.0),
        alert("earlier", starts_at=2.0),
    ]
    ledger.offer([alert("failing"), *fresh], 1000.0)

    assert [query for query, _ in due(ledger, now=60.0)] == [
        "earlier",
        "later",
        "warning",
        "failing",
    ]


def test_a_round_overrides_every_pause_once():
    """Flushing attempts what is pending at once, and each only once."""
    ledger = Ledger()
    ledger.offer([alert()], 1000.0)
    fail(ledger, REFUSAL)
    assert due(ledger, urgent_round=1) == [("a", "firing")]
    assert not ledger.attempted(1)

    fail(ledger, REFUSAL, urgent_round=1)
    assert due(ledger, urgent_round=1) == []
    assert ledger.attempted(1)
