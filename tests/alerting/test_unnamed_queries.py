"""Queries without a name are identified by id and share one alert per alert name."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.story import CONFLICT, IdStory, polled, progress, source
from support.worker_harness import WorkerHarness

from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.incidents.recovery import DriverHealth, RecoveryWindow
from querypulse.alerting.policy import Policy
from querypulse.alerting.words.messages import say
from querypulse.listener.events import Started, Terminated
from querypulse.listener.state.snapshot import Ownership
from querypulse.listener.state.state import MAX_GONE_UNNAMED
from querypulse.sidecar.failure import first_failure


def failed(number, story=None, *, at=0.0):
    story = story or IdStory()
    story.start(f"{number:08}-id", f"r-{number}", None, at=at)
    return story.fails(f"{number:08}-id", f"r-{number}", at=at + 1)


def test_unnamed_queries_with_one_alert_name_share_a_finding_that_says_what_they_read():
    orders = source(None, description="KafkaV2[Subscribe[orders]]")
    story = IdStory().start("00000001-id", "r-1", None, at=0)
    story.commits("00000001-id", "r-1", None, at=1, batch=0, sources=(orders,))
    story = failed(2, story.fails("00000001-id", "r-1", at=2), at=3)
    finding, named = sorted(
        story.start("id", "r", "q", at=4).fails("id", "r", at=5).evaluate(6).findings,
        key=lambda one: one.query,
        reverse=True,
    )

    assert (finding.query, named.query) == ("unnamed", "q")
    assert say(finding).reason.startswith("2 queries without a name, the newest 00000002: ")
    lines = say(finding).evidence["queries"].splitlines()
    assert [line[:8] for line in lines] == ["00000002", "00000001"]
    story.start("00000002-id", "r-3", None, at=7).commits("00000002-id", "r-3", None, at=8, batch=0)
    (alone,) = (one for one in story.evaluate(9).findings if one.query == "unnamed")
    assert say(alone).reason.startswith("00000001: ")
    assert say(alone).evidence["reads"] == "KafkaV2[Subscribe[orders]]"


def test_long_list_of_unnamed_queries_is_cut():
    story = IdStory()
    for number in range(15):
        failed(number, story)
    (finding,) = story.evaluate(5).findings

    assert say(finding).evidence["queries"].endswith("\nand 5 more")


def test_unnamed_query_of_another_process_does_not_end_this_one():
    story = IdStory().start("00000001-id", "r", None, at=0, session="theirs")
    story.probe(polled("00000001-id", "r", None, session="theirs"), at=1)
    story.ends("00000001-id", "r", at=2)
    for own, ends in (("ours", False), ("theirs", True)):
        story.state.own(Ownership(own=frozenset({own}), has_others=True))
        snapshot = story.state.snapshot(500)
        evaluation = evaluate(snapshot, 500, Policy())
        assert [one.query for one in evaluation.findings] == ["unnamed"]
        assert (first_failure(snapshot, evaluation) is not None) is ends


def unnamed(harness, number, *, exception):
    ids = (f"{number:08}-id", f"r-{number}")
    harness.receive(Started(*ids, None))
    harness.receive(Terminated(*ids, exception, None))
    return harness.step()


def incidents(harness):
    """Every incident that was offered, by its key and revision."""
    return {(one.key, one.revision) for offer in harness.offers for one in offer}


def test_sixty_restarts_in_an_hour_are_one_incident():
    harness = WorkerHarness()
    for number in range(60):
        unnamed(harness, number, exception=CONFLICT).step(after=59.0)

    assert incidents(harness) == {("querypulse/etl/unnamed", 0)}


def test_incident_resolves_when_every_unnamed_query_has_recovered():
    harness = unnamed(unnamed(WorkerHarness(), 1, exception=CONFLICT), 2, exception=CONFLICT)
    for number, batch in ((1, 5), (2, 6)):
        assert harness.offers[-1][0].ends_at is None
        harness.receive(Started(f"{number:08}-id", f"r-new-{number}", None))
        harness.receive(_progress(number, batch)).step()
    for number in (1, 2):
        harness.step().receive(_progress(number, 7)).step()
    for _ in range(30):
        harness.step()

    assert [one.ends_at is not None for offer in harness.offers for one in offer][-1]
    assert harness.offers[-1] == ()


def _progress(number, batch):
    ids = {"query_id": f"{number:08}-id", "run_id": f"r-new-{number}", "name": None}
    return replace(progress(batch=batch), **ids)


def test_number_of_dead_unnamed_queries_is_bounded():
    story = IdStory()
    for number in range(MAX_GONE_UNNAMED + 50):
        failed(number, story, at=number)

    labels = list(story.shown())
    assert len(labels) <= MAX_GONE_UNNAMED + 1
    assert labels[-1] == f"{MAX_GONE_UNNAMED + 49:08}"
    assert "00000000" not in labels


@pytest.mark.parametrize(("number", "closed"), [(1, []), (2, ["*", "unnamed"])])
def test_stale_incident_of_the_shared_label_is_ended_once_all_have_committed(number, closed):
    harness = WorkerHarness()
    for started in (1, 2):
        harness.receive(Started(f"{started:08}-id", f"r-new-{started}", None))
    for batch in range(40):
        for committing in range(1, number + 1):
            harness.receive(_progress(committing, batch))
        harness.step()

    keys = [f"querypulse/etl/{label}{end}" for label in closed for end in ("", "/warning")]
    assert sorted(harness.stale) == keys


def test_nothing_recovers_while_no_poll_shows_whether_an_unnamed_query_is_still_in_its_batch():
    busy = polled("00000001-id", "r", None, message="Processing new data", busy=True, batch=3)
    story = IdStory().probe(busy, at=0)

    def recovery(now):
        health = DriverHealth(story.evaluate(now), story.state.snapshot(now), now)
        return health.recovery("unnamed", "warning", RecoveryWindow(-5.0, 0))

    assert recovery(5) is not None
    assert recovery(15) is None


@pytest.mark.parametrize("name", ["unnamed", "00000001"])
def test_dead_unnamed_queries_can_be_forgotten_together_or_singly(name):
    story = failed(2, failed(1))
    story.state.forget_name(name)

    assert list(story.shown()) == ([] if name == "unnamed" else ["00000002"])
