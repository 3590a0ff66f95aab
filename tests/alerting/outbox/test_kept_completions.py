"""What the spool keeps of runs that completed."""

from __future__ import annotations

import pytest
from support.story import Story

from querypulse.alerting.delivery.spool import kept_failures, stored_completions
from querypulse.listener.past_failures import FailedQuery, key_of
from querypulse.settings.settings import Settings, SettingsError
from querypulse.sidecar.assemble import make_policy

AVAILABLE_NOW = "AvailableNowTrigger"


def completed(at, number=1, story=None):
    story = (story or Story()).started(run=number, at=at - 5)
    return story.seen(number=number, trigger=AVAILABLE_NOW, at=at - 4).ended(run=number, at=at)


def kept(story, before, now, *, is_last=False):
    snapshot = story.snapshot(now)
    completions = stored_completions(before, snapshot, is_last=is_last)
    (failed,) = kept_failures(snapshot.queries, (), now, {}, completions)
    assert isinstance(failed, FailedQuery)
    return failed.completed_at, completions


def test_completion_is_kept_and_that_of_a_loop_only_now_and_then():
    story = completed(100)
    at, before = kept(story, {}, 101)
    assert (at, list(before)) == (100, [key_of(story.query())])
    story = completed(160, 2, story)
    at, before = kept(story, before, 161)
    assert at == 100
    assert kept(story, before, 162, is_last=True)[0] == 160
    assert kept(completed(701, 3, story), before, 702)[0] == 701


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"complete_by": "6 o'clock"}, "setting 'complete_by': "),
        ({"complete_by": "06:00-07:00"}, "is a window"),
        ({"complete_by": "06:00 Mars"}, "time zone 'Mars' is unknown"),
        ({"queries": {"nightly": {"complete_by": "funday 06:00"}}}, "in 'nightly', complete_by: "),
    ],
)
def test_time_that_cannot_be_read_is_refused_with_its_setting(settings, words):
    with pytest.raises(SettingsError) as refused:
        make_policy(Settings(**settings))

    assert words in str(refused.value)
