"""What the spool keeps of runs that completed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support.story import Story, policy

from querypulse.alerting.delivery.spool import FailureHistory
from querypulse.settings.settings import Settings, SettingsError
from querypulse.sidecar.assemble import make_policy

AVAILABLE_NOW = "AvailableNowTrigger"


def begun(at, number=1, story=None):
    story = (story or Story()).started(run=number, at=at)
    return story.seen(number=number, trigger=AVAILABLE_NOW, at=at)


def completed(at, number=1, story=None):
    return begun(at - 5, number, story).ended(run=number, at=at)


class Keeping:
    """A history that keeps what a story shows; ``offers`` are the completions of each write."""

    def __init__(self, **settings):
        self.offers = []
        self.policy = policy(**settings)
        self.history = FailureHistory(
            SimpleNamespace(attempt=None, offer_end=lambda **_: None, offer_history=self._offer)
        )

    def _offer(self, failures, _):
        self.offers.append([failed.completed_at for failed in failures])

    def keep(self, story, now, *, ends=False):
        lifecycle = SimpleNamespace(opened=())
        self.history.keep(story.snapshot(now), lifecycle, now, replace(self.policy, ends=ends))


def test_completion_is_kept_and_that_of_a_loop_only_now_and_then():
    keeping, story = Keeping(complete_by="06:00"), None
    for number in range(1, 122):
        story = completed(10.0 * number, number, story)
        keeping.keep(story, 10.0 * number + 1)
        keeping.keep(begun(10.0 * number + 2, number + 1, story), 10.0 * number + 3)
    assert keeping.offers == [[10], [610], [1210]]
    keeping.keep(completed(1220, 122, story), 1221)
    keeping.keep(story, 1222, ends=True)
    assert keeping.offers[3:] == [[1220]]


def test_without_complete_by_no_completion_is_kept():
    keeping = Keeping()
    keeping.keep(completed(100), 101, ends=True)
    assert keeping.offers == [[None]]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"complete_by": "6 o'clock"}, "setting 'complete_by': "),
        ({"complete_by": "06:00-07:00"}, "is a window"),
        ({"complete_by": "x" * 201}, "'xxxxxxxxxxxxxxxxxxxx'... has 201 characters"),
        ({"complete_by": "06:00 Mars"}, "time zone 'Mars' is unknown"),
        ({"queries": {"nightly": {"complete_by": "funday 06:00"}}}, "in 'nightly', complete_by: "),
    ],
)
def test_time_that_cannot_be_read_is_refused_with_its_setting(settings, words):
    with pytest.raises(SettingsError) as refused:
        make_policy(Settings(**settings))

    assert words in str(refused.value)
