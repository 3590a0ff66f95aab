"""The shell around the ledger: one thread, one request at a time, never in anybody's way."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from querypulse.alerting import Alert
from querypulse.alerting.delivery import Delivery
from querypulse.alerting.receivers.receiver import DeliveryError, Receiver
from querypulse.listener.guard import Guard

PATIENCE_SECONDS = 10.0
ROUTING_KEY = "R0123456789abcdefghijklmnopqrstu"


def alert(query="a", *, severity="critical", starts_at=1000.0) -> Alert:
    labels = {"alertname": "QueryFailed", "app": "etl", "query": query, "severity": severity}
    return Alert(labels, {"summary": f"{query} failed"}, starts_at)


def outage() -> DeliveryError:
    return DeliveryError("down", transient=True)


def refusal(text="answered 401") -> DeliveryError:
    return DeliveryError(text, transient=False)


class Recorder:
    """A receiver that writes down what it is told, and fails as told, per query."""

    name = "recorder"

    def __init__(self, **failures: list[Exception]) -> None:
        self.sent: list[tuple[str, str]] = []
        self.failures = failures
        self.closed = 0
        self.free = threading.Event()
        self.free.set()
        self._changed = threading.Condition()

    def send(self, one: Alert, wall: float) -> None:
        query = one.labels["query"]
        with self._changed:
            self.sent.append((query, "firing" if one.ends_at is None else "resolved"))
            self._changed.notify_all()
        self.free.wait(PATIENCE_SECONDS)
        if self.failures.get(query):
            raise self.failures[query].pop(0)

    def close(self) -> None:
        self.closed += 1
        self.free.set()

    def wait_for(self, count: int) -> list[tuple[str, str]]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.sent) >= count, PATIENCE_SECONDS)
        return self.sent[:count]


class Clock:
    """Time that passes when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def booked(delivery: Delivery) -> None:
    """Waits until the attempt under way is in the account."""
    with delivery._changed:
        assert delivery._changed.wait_for(lambda: not delivery._in_flight, PATIENCE_SECONDS)


Deliver = Callable[..., Delivery]


@pytest.fixture
def deliver() -> Iterator[Deliver]:
    """Starts deliveries, and closes them in the end."""
    started: list[Delivery] = []

    def start(receiver: Receiver, **options) -> Delivery:
        started.append(Delivery(receiver, Guard(), **options))
        started[-1].start()
        return started[-1]

    yield start
    for delivery in started:
        delivery.close(PATIENCE_SECONDS)
    left = [one.name for one in threading.enumerate() if one.name.startswith("querypulse-deliver")]
    assert not left


def test_alerts_are_told_when_they_come_and_when_they_go(deliver):
    """Level-triggered: only the set of firing alerts is handed over, again and again."""
    recorder = Recorder()
    delivery = deliver(recorder)
    for firing in ((alert("a"),), (alert("a"), alert("b")), (alert("b"),), (alert("b"),)):
        delivery.offer(firing)
        assert delivery.flush(PATIENCE_SECONDS)

    assert recorder.sent == [("a", "firing"), ("b", "firing"), ("a", "resolved")]
    assert delivery.outcomes == {"delivered": 3, "transient": 0, "refused": 0, "failed": 0}
    assert delivery.pending == 0


def test_a_resolve_waits_for_its_trigger(deliver):
    """However often the trigger fails on a receiver that may have taken it."""
    lost = [DeliveryError("no answer", transient=True, may_have_arrived=True)]
    recorder = Recorder(a=lost)
    recorder.free.clear()
    delivery = deliver(recorder)
    delivery.offer((alert("a"),))
    recorder.wait_for(1)
    delivery.offer(())
    recorder.free.set()

    assert delivery.flush(PATIENCE_SECONDS)
    assert recorder.sent == [("a", "firing"), ("a", "resolved")]


def test_the_newest_set_wins_and_offering_never_waits(deliver):
    """While a receiver hangs, the worker goes on; what it took back meanwhile is not told."""
    recorder = Recorder()
    recorder.free.clear()
    delivery = deliver(recorder)
    delivery.offer((alert("a"),))
    recorder.wait_for(1)
    began = time.monotonic()
    delivery.offer((alert("a"), alert("b")))
    delivery.offer((alert("a"), alert("c")))
    assert time.monotonic() - began < 0.5
    assert delivery.pending == 2
    recorder.free.set()

    assert delivery.flush(PATIENCE_SECONDS)
    assert recorder.sent == [("a", "firing"), ("c", "firing")]


def test_what_fails_does_not_block_the_rest(deliver):
    """Critical first; the failing one keeps its turn for later."""
    recorder = Recorder(a=[refusal(), outage()])
    delivery = deliver(recorder)
    delivery.offer((alert("b", severity="warning"), alert("c", starts_at=2000.0), alert("a")))
    recorder.wait_for(3)

    assert delivery.flush(PATIENCE_SECONDS) is False
    assert recorder.sent == [("a", "firing"), ("c", "firing"), ("b", "firing"), ("a", "firing")]
    assert delivery.pending == 1


def test_a_failed_alert_is_tried_again_when_its_time_has_come(deliver):
    """On the monotonic clock: 1 s after an outage, 300 s after a refusal."""
    clock = Clock()
    recorder = Recorder(a=[outage(), refusal()])
    delivery = deliver(recorder, clock=clock)
    for count, seconds in ((1, 0.0), (2, 1.0), (3, 301.0)):
        clock.now = seconds
        delivery.offer((alert("a"),))
        recorder.wait_for(count)
        booked(delivery)

    assert delivery.flush(PATIENCE_SECONDS)
    assert delivery.outcomes == {"delivered": 1, "transient": 1, "refused": 1, "failed": 0}


def test_an_error_is_logged_when_it_changes(deliver, caplog):
    """Once for many alerts and attempts; a refusal as an error, an outage as a warning."""
    recorder = Recorder(
        a=[refusal(), refusal(), refusal("answered 404"), outage()], b=[refusal(), refusal()]
    )
    delivery = deliver(recorder)
    delivery.offer((alert("a"), alert("b")))
    for _ in range(5):
        delivery.flush(PATIENCE_SECONDS)
    logged = [(one.levelname, one.getMessage()) for one in caplog.records]

    assert [level for level, _ in logged] == ["ERROR", "ERROR", "WARNING"]
    assert logged[0][1] == (
        "querypulse: recorder did not take QueryFailed of a: answered 401; "
        "kept, next attempt in 300 s"
    )


@pytest.mark.contains_errors
def test_a_bug_in_a_receiver_is_contained(deliver, caplog):
    """Counted, logged, and the alert is tried again."""
    delivery = deliver(Recorder(a=[KeyError("bug")]))
    delivery.offer((alert("a"),))
    while not delivery.flush(PATIENCE_SECONDS):
        assert delivery.outcomes["failed"] == 1

    assert delivery.outcomes == {"delivered": 1, "transient": 0, "refused": 0, "failed": 1}
    assert delivery._guard.errors == {"deliver-recorder": 1}


def test_flush_returns_as_soon_as_everything_was_attempted(deliver):
    """It does not sit out its deadline on a receiver that is down."""
    recorder = Recorder(a=[refusal() for _ in range(9)], b=[outage() for _ in range(9)])
    delivery = deliver(recorder)
    delivery.offer((alert("a"), alert("b")))
    recorder.wait_for(2)
    began = time.monotonic()

    assert delivery.flush(PATIENCE_SECONDS) is False
    assert time.monotonic() - began < 1.0
    assert delivery.outcomes["refused"] >= 1
    assert delivery.pending == 2


def test_flush_does_not_outlast_its_deadline(deliver):
    """Not even when a receiver hangs."""
    recorder = Recorder()
    recorder.free.clear()
    delivery = deliver(recorder)
    delivery.offer((alert("a"),))

    assert delivery.flush(0.05) is False


def test_flush_with_nothing_to_tell_is_true_at_once(deliver):
    """Before the first alert and after the last."""
    assert deliver(Recorder()).flush(PATIENCE_SECONDS)


def test_close_is_idempotent_and_ends_a_flush(deliver):
    """Also when nothing was ever started."""
    recorder = Recorder()
    delivery = Delivery(recorder, Guard())
    delivery.offer((alert("a"),))
    delivery.close(1.0)
    delivery.close(1.0)

    assert delivery.flush(PATIENCE_SECONDS) is False
    assert recorder.closed == 2


@pytest.mark.contains_errors
def test_a_receiver_that_cannot_close_is_contained():
    """Closing goes on."""
    recorder = Recorder()
    recorder.close = lambda: 1 / 0
    guard = Guard()
    Delivery(recorder, guard).close(1.0)

    assert guard.errors == {"close-recorder": 1}
