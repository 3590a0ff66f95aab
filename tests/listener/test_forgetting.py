"""``sidecar.forget``, and limits on what is remembered."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.story import CONFLICT, IdStory, Story
from support.worker_harness import WorkerHarness

from querypulse.listener.mailbox import Forget
from querypulse.listener.state import state as state_module
from querypulse.listener.state.identity import MAX_FORGOTTEN, MAX_PAST, Identity
from querypulse.listener.state.state import MAX_GONE_UNNAMED, State
from querypulse.sidecar import Settings, Sidecar


def names(harness):
    return list(harness.worker.evaluated.snapshot.labels())


def forget(harness, name):
    harness.inbox.put(Forget(name), lifecycle=True)
    return harness.step()


def test_query_whose_restart_is_due_is_not_forgotten_however_many_others_failed(monkeypatch):
    monkeypatch.setattr(state_module, "MAX_GONE_QUERIES", 10)
    story = Story().started(at=0).ended(at=100, exception=CONFLICT).supervised(due_at=400.0)
    for number in range(20):
        name, at = f"x{number}", 101.0 + number
        story.started(name, at=at).ended(name, at=at + 0.5, exception=CONFLICT)
    story.state.forget(130)

    assert "a" in story.snapshot(130).labels()
    assert len(story.snapshot(130).queries) == 11


def test_forgetting_a_query_resolves_its_alerts_and_ends_its_series():
    harness = WorkerHarness().started().ended(exception=CONFLICT).step()
    forget(harness, "a")
    assert (names(harness), harness.worker.evaluated.evaluation.findings) == ([], ())
    for _ in range(30):
        harness.step()

    *_, last = (incident for offer in harness.offers for incident in offer)
    assert (last.key, last.is_over) == ("querypulse/etl/a", True)
    assert harness.worker.evaluated.alerts == ()


def test_forgotten_query_is_no_longer_expected():
    harness = WorkerHarness(start_grace_seconds=1.0)
    harness.worker.policy = replace(harness.worker.policy, expected=("a", "b"))
    harness.worker.state.expected = frozenset("ab")
    for _ in range(4):
        harness.step()
    assert {finding.query for finding in harness.worker.evaluated.evaluation.findings} == {"a", "b"}

    forget(harness, "a")
    assert {finding.query for finding in harness.worker.evaluated.evaluation.findings} == {"b"}


class Running:
    """The parts of a sidecar's runtime that ``forget`` needs."""

    def __init__(self, harness, expected=(), flush=lambda: None):
        self.harness = harness
        self.published = self
        self.expected = expected
        self.on_flush = flush
        self.forgotten = []

    @property
    def evaluated(self):
        return self.harness.worker.evaluated

    def flush(self, deadline):
        self.on_flush()
        return False

    def ask_worker(self, request):
        self.forgotten.append(request.name)


def forgotten_by(harness, name, **parts):
    sidecar = Sidecar(Settings(http_port=-1))
    sidecar._runtime = running = Running(harness, **parts)
    sidecar.forget(name)
    return running.forgotten


def test_ended_and_expected_queries_can_be_forgotten_once_pending_events_are_read():
    ended, running = WorkerHarness().started().ended().step(), WorkerHarness().started().step()

    assert forgotten_by(ended, "a") == ["a"]
    assert forgotten_by(ended, "b", expected=("b",)) == ["b"]
    assert forgotten_by(running, "a", flush=lambda: running.ended().step()) == ["a"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a", "forget: 'a' is still running; stop it first"),
        ("bronse", r"forget: no query is named 'bronse'; known: \['a', 'bronze'\]"),
        ("unnamed", "no query is named 'unnamed'"),
    ],
)
def test_query_that_cannot_be_forgotten_is_an_error_with_a_reason(name, message):
    with pytest.raises(ValueError, match=message):
        forgotten_by(WorkerHarness().started().step(), name, expected=("bronze",))


def test_number_of_remembered_past_runs_is_limited():
    identity = Identity({})
    for number in range(MAX_PAST // 2 + 5):
        identity.add_past("q", f"r-{number}", f"id-{number}")

    assert [identity.label(f"r-{number}") for number in (4, 5)] == [None, "q"]
    assert [identity.label(f"id-{number}") for number in (4, 5)] == [None, "q"]


def test_number_of_remembered_forgotten_queries_is_limited_and_unnamed_ones_go_first():
    story = IdStory()
    for number in range(MAX_FORGOTTEN + 5):
        story.start(f"id-{number}", f"r-{number}", f"q-{number}" if number else None, at=0)
        story.fails(f"id-{number}", f"r-{number}", at=1)
    for name in ("unnamed", *(f"q-{number}" for number in range(1, MAX_FORGOTTEN + 5))):
        story.state.forget_name(name)
    for number, name in enumerate((None, "q-1", f"q-{MAX_FORGOTTEN + 4}")):
        story.start(f"new-{number}" if name else "id-0", f"again-{number}", name, at=2)

    restarts = {query.name: query.history.totals.restarts for query in story.shown().values()}
    assert restarts == {None: 0, "q-1": 0, f"q-{MAX_FORGOTTEN + 4}": 1}


def test_query_restarted_forever_under_new_ids_takes_limited_memory():
    story = IdStory()
    for number in range(300):
        story.start(f"id-{number}", f"r-{number}", at=number)
        story.fails(f"id-{number}", f"r-{number}", at=number + 0.5)

    (query,) = story.shown().values()
    assert len(query.history.unended_runs) == 0
    assert len(query.history.failures) <= 16
    assert story.state.query("id-0") is query


def test_query_forgotten_by_its_label_is_no_longer_expected_by_its_name():
    name = "n" * 150
    story = IdStory()
    story.state = State(0.0, [name])
    story.start("id", "run", name, at=1).ends("id", "run", at=2)
    (label,) = story.shown(3)
    story.state.forget_name(label)

    assert (label != name, story.state.expected) == (True, frozenset())


def test_of_two_queries_with_one_name_only_the_ended_one_is_forgotten_and_the_name_is_expected():
    story = IdStory()
    story.state = State(0.0, ["q"])
    story.start("11111111", "r1", at=0, session="s1").start("22222222", "r2", at=1, session="s2")
    story.fails("11111111", "r1", at=2).state.forget_name("q")

    assert (list(story.shown()), story.state.expected) == (["q-22222222"], {"q"})


def test_failed_unnamed_query_is_forgotten_last():
    story = IdStory()
    for number in range(MAX_GONE_UNNAMED + 10):
        ids = f"{number:08}-id", f"run-{number}"
        story.start(*ids, None, at=number + 1)
        story.ends(*ids, at=number + 1.5, exception=None if number else CONFLICT)

    assert "00000000" in story.shown(99)


def test_oldest_failures_are_forgotten_first_and_before_a_sudden_stop(monkeypatch):
    """Its grace period may not be over: nobody was notified yet."""
    monkeypatch.setattr(state_module, "MAX_GONE_QUERIES", 3)
    story = Story()
    for number, failure in enumerate([CONFLICT, CONFLICT, None, CONFLICT]):
        name = f"q{number}"
        story.started(name, at=number).ended(name, at=number + 0.5, exception=failure)
    story.state.forget(99.0)

    assert set(story.snapshot(99).labels()) == {"q1", "q2", "q3"}
