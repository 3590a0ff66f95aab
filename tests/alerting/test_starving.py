"""Which queries get no data because another one is broken."""

from __future__ import annotations

import pytest
from support.story import Lake

from querypulse.alerting.evaluate import evaluate
from querypulse.alerting.policy import Policy
from querypulse.alerting.words.messages import say
from querypulse.alerting.words.reasons import reason_of
from querypulse.listener.state.flow import Declared, path_dataset

BOOM = "java.lang.IllegalStateException: boom"


def chain():
    lake = Lake(bronze="landing", silver="bronze", gold="silver", other="elsewhere")
    return lake.batches(1, at=10)


def failed():
    """Bronze has failed at 20 s; since then the others are idle."""
    return chain().ended("bronze", at=20, exception=BOOM).waits("silver", "gold", "other", at=25)


def reasons(evaluation):
    return {
        label: reason_of(one.why) for label, one in evaluation.health.items() if label != "bronze"
    }


def test_queries_downstream_of_a_failed_one_are_idle_and_both_name_the_other():
    found = failed().evaluate(30)
    (finding,) = found.findings

    starved = dict.fromkeys(("silver", "gold"), "upstream bronze failed")
    assert reasons(found) == {**starved, "other": ""}
    assert found.health["silver"].state.value == "idle"
    assert finding.query == "bronze"
    assert say(finding).evidence["downstream"] == "gold, silver get no data from it"


def test_alert_names_ten_of_many():
    lake = Lake(bronze="landing", **{f"silver{number:02}": "bronze" for number in range(17)})
    lake.batches(1, at=10).ended("bronze", at=20, exception=BOOM)
    (finding,) = lake.evaluate(21).findings

    assert say(finding).evidence["downstream"].startswith("silver00, silver01, ")
    assert say(finding).evidence["downstream"].endswith("silver09 and 7 more get no data from it")


def test_own_failure_outranks_the_starvation():
    lake = failed().ended("silver", at=26, exception="java.lang.Error: own")
    found = lake.evaluate(30)

    assert found.health["silver"].state.value == "failed"
    assert {finding.query for finding in found.findings} == {"bronze", "silver"}
    assert reasons(found)["gold"] == "upstream silver failed"


def still_reads():
    return chain().ended("bronze", at=20, exception=BOOM).batch("silver", 2, at=29)


def ended_as_intended(*, stopped):
    lake = chain()
    if stopped:
        lake.expect_stop("bronze")
    return lake.ended("bronze", at=20).waits("silver", "gold", at=25)


def restarted():
    lake = failed().started("bronze", 2, at=26)
    return lake.commit("bronze", 2, batch=2, at=28, sink="FileSink[/lake/bronze]")


def two_writers():
    lake = Lake(bronze="landing", backup="landing", silver="bronze").batches(1, at=10)
    return lake.commit("backup", batch=2, at=11, sink="FileSink[/lake/bronze]")


def second_writer_lives():
    lake = two_writers().ended("bronze", at=20, exception=BOOM)
    return lake.waits("silver", "backup", at=25)


@pytest.mark.parametrize(
    ("lake", "silver"),
    [
        (still_reads(), "running"),
        (still_reads().waits("gold", at=29), "running"),
        (ended_as_intended(stopped=True), "idle"),
        (ended_as_intended(stopped=False), "idle"),
        (restarted(), "idle"),
        (second_writer_lives(), "idle"),
    ],
    ids=["still reads", "behind a running one", "stopped", "completed", "restarted", "two writers"],
)
def test_query_that_is_not_cut_off_has_no_such_reason(lake, silver):
    found = lake.evaluate(30)

    assert not any(reasons(found).values())
    assert found.health["silver"].state.value == silver


def test_alert_names_no_reader_that_a_second_writer_feeds():
    assert second_writer_lives().evaluate(30).findings[0].evidence.downstream == ()


def test_stopped_second_writer_feeds_no_reader():
    lake = two_writers().expect_stop("backup").ended("backup", at=12)
    lake.ended("bronze", at=20, exception=BOOM).waits("silver", at=25)

    assert reasons(lake.evaluate(30))["silver"] == "upstream bronze failed"


def test_cycle_and_self_loop_end():
    lake = Lake(bronze="landing", a="bronze b", b="a b").batches(1, at=10)
    lake.ended("bronze", at=20, exception=BOOM).waits("a", "b", at=25)

    assert reasons(lake.evaluate(30)) == dict.fromkeys("ab", "upstream bronze failed")


def test_expected_query_that_never_started_starves_its_declared_readers():
    lake = Lake(silver="bronze").batches(1, at=10).waits("silver", at=301)
    declared = (Declared("bronze", writes=(path_dataset("/lake/bronze"),)),)
    policy = Policy(expected=("bronze",), declared=declared)
    found = evaluate(lake.state.snapshot(301), 301, policy)

    assert reason_of(found.health["silver"].why) == "upstream bronze is missing"


def test_finding_of_a_starving_query_names_the_broken_one():
    lake = failed().waits("silver", "gold", "other", at=495)
    found = lake.evaluate(500, expected_input_seconds=60.0)
    (missing,) = (one for one in found.findings if one.query == "silver")

    assert say(missing).evidence["upstream"] == "bronze failed"
