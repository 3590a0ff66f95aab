"""Who is gone, and who is not: the watcher's judgement on a fake clock."""

from __future__ import annotations

import pytest
from support.lookout import BAD, BEAT, HERE, WALL, A, B, Lookout, pod

from querypulse.alerting.alert import Alert, Incident
from querypulse.exporter.shutdown_notice import Notice
from querypulse.sidecar.watch.poll import Said

DAY = 24 * 3600.0


def proven(lookout, said, seconds, endpoint=A):
    """Looks of one kind while something else answers over the network."""
    for _ in range(round(seconds)):
        lookout.proved().poll(endpoint, said)
    return lookout


# -- who is told ------------------------------------------------------------------------------


@pytest.mark.parametrize("said", BAD)
def test_a_driver_that_was_seen_is_told_when_it_has_been_away_for_the_time(said):
    lookout = Lookout().poll()
    assert lookout.polls(said, 15).told == []
    assert lookout.poll(said=said).told == ["etl"]


def test_one_that_was_never_seen_is_told_after_four_times_as_long():
    lookout = Lookout().polls(Said.REFUSED, 60)
    assert lookout.told == []
    assert lookout.poll(said=Said.REFUSED).told == ["a:9719"]
    assert "never answered" in lookout.page["summary"]


def test_one_that_never_answers_as_it_should_is_told_after_four_times_as_long():
    assert Lookout().polls(Said.STUCK, 62).told == ["a:9719"]


def test_one_that_has_only_barred_us_is_told_when_it_dies():
    lookout = Lookout().polls(Said.BARRED, 600).polls(Said.REFUSED, 15)
    assert lookout.told == []
    assert lookout.poll(said=Said.REFUSED).told == ["a:9719"]
    assert "was killed" in lookout.page["summary"]
    assert lookout.page["last_seen"] == "never by this watcher"


def test_an_unreachable_driver_is_told_when_something_else_answers():
    assert proven(Lookout().poll(), Said.UNREACHABLE, 17).told == ["etl"]


def test_another_driver_that_answers_is_proof_of_the_network():
    lookout = Lookout(A, B).poll(A).poll(B, app="other")
    for _ in range(6):
        lookout.poll(B, app="other").poll(A, Said.UNREACHABLE, took=3.0)
    assert lookout.told == ["etl"]


def test_another_driver_that_refuses_is_proof_of_the_network():
    lookout = Lookout(A, B).poll(A)
    for _ in range(6):
        lookout.poll(B, Said.REFUSED).poll(A, Said.UNREACHABLE, took=3.0)
    assert lookout.told == ["etl"]


def test_on_this_machine_no_network_can_be_at_fault():
    assert Lookout(HERE).poll(HERE).polls(Said.UNREACHABLE, 17, HERE).told == ["etl"]


def test_a_heart_that_stands_still_while_the_server_answers_is_told():
    lookout = Lookout().poll(heartbeat=BEAT)
    lookout.polls(Said.HEALTHY, 19, heartbeat=BEAT)
    assert lookout.told == []
    assert lookout.polls(Said.HEALTHY, 2, heartbeat=BEAT).told == ["etl"]
    assert "heartbeat has not advanced" in lookout.page["connection"]


def test_a_driver_that_dies_in_changing_ways_is_told():
    lookout = Lookout().poll()
    for said in (Said.BROKEN, Said.REFUSED, Said.SILENT, Said.REFUSED, Said.STUCK, Said.REFUSED):
        lookout.poll(said=said, after=3.5)
    assert lookout.told == ["etl"]


def test_each_driver_is_told_by_itself():
    lookout = Lookout(A, B).poll(A, app="one").poll(B, app="two")
    for _ in range(10):
        lookout.poll(A, Said.REFUSED).poll(B, Said.REFUSED)
    assert lookout.told == ["one", "two"]


# -- who is not told --------------------------------------------------------------------------


def test_a_driver_that_is_well_is_never_told():
    assert Lookout().polls(Said.HEALTHY, 600, every=5.0).ever_told == set()


@pytest.mark.parametrize("said", BAD)
def test_one_that_is_back_in_time_is_not_told(said):
    lookout = Lookout().poll()
    for _ in range(20):
        lookout.polls(said, 15).poll()
    assert lookout.ever_told == set()


def test_a_single_poll_is_a_glitch_however_short_the_time():
    lookout = Lookout(gone_after=1.0).poll().poll(said=Said.SILENT, took=3.0)
    assert lookout.told == []
    assert lookout.poll(said=Said.SILENT, took=3.0).told == ["etl"]


def test_a_driver_that_starts_slowly_is_not_told():
    assert Lookout().polls(Said.REFUSED, 60).polls(Said.HEALTHY, 60).ever_told == set()


def test_one_that_bars_us_after_it_was_seen_lives():
    lookout = Lookout().poll().polls(Said.BARRED, 600)
    assert lookout.ever_told == set()


def test_one_that_bars_us_from_the_beginning_lives():
    assert Lookout().polls(Said.BARRED, 600).ever_told == set()


def test_one_that_starts_slowly_and_then_bars_us_lives():
    assert Lookout().polls(Said.REFUSED, 60).polls(Said.BARRED, 600).ever_told == set()


def test_a_pod_that_bars_us_from_the_beginning_lives():
    assert Lookout(pod(1)).polls(Said.BARRED, 600, pod(1)).ever_told == set()


def test_one_that_never_answered_and_then_bars_us_is_there():
    lookout = Lookout().polls(Said.REFUSED, 62)
    assert lookout.told == ["a:9719"]
    assert lookout.poll(said=Said.BARRED).ended == ["a:9719"]


def test_an_unreachable_driver_is_not_told_while_nothing_else_answers():
    lookout = Lookout(A, B).poll(A).poll(B, app="other")
    for _ in range(300):
        lookout.poll(A, Said.UNREACHABLE).poll(B, Said.UNREACHABLE)
    assert lookout.ever_told == set()
    assert any("own network" in line for line in lookout.news)


def test_when_our_network_is_back_everything_is_polled_at_afresh():
    lookout = Lookout().poll().polls(Said.UNREACHABLE, 300).proved(1.0)
    lookout.polls(Said.REFUSED, 15)
    assert lookout.ever_told == set()
    assert lookout.poll(said=Said.REFUSED).told == ["etl"]


def test_a_driver_that_refuses_first_thing_after_our_outage_is_polled_at_afresh():
    lookout = Lookout().poll().polls(Said.UNREACHABLE, 300)
    assert lookout.polls(Said.REFUSED, 15).told == []


def test_a_proof_from_before_the_silence_proves_nothing():
    lookout = Lookout(gone_after=1.0).poll().proved()
    assert lookout.polls(Said.UNREACHABLE, 9).ever_told == set()


def test_a_local_driver_does_not_prove_the_network():
    lookout = Lookout(A, HERE).poll(A).poll(HERE, app="local")
    for _ in range(30):
        lookout.poll(HERE, app="local").poll(A, Said.UNREACHABLE)
    assert lookout.ever_told == set()


def test_a_watcher_that_stood_still_itself_does_not_blame_the_driver():
    lookout = Lookout().poll().poll(said=Said.SILENT)
    assert lookout.poll(said=Said.SILENT, after=3600.0).told == []
    assert lookout.poll().ever_told == set()


def test_a_poll_that_took_too_long_tells_of_the_watcher():
    lookout = Lookout().poll().poll(said=Said.SILENT).poll(said=Said.SILENT, took=3600.0)
    assert lookout.poll(said=Said.SILENT).ever_told == set()


def test_a_heart_that_beats_slowly_beats():
    lookout = Lookout()
    for beat in range(60):
        lookout.polls(Said.HEALTHY, 4, heartbeat=BEAT + beat)
    assert lookout.ever_told == set()


def test_a_driver_whose_heartbeat_is_not_shown_is_evaluated_by_its_answers():
    assert Lookout().polls(Said.HEALTHY, 600, heartbeat=None).ever_told == set()


def test_a_driver_without_a_name_goes_by_its_address():
    lookout = Lookout().poll(app="")
    assert lookout.polls(Said.REFUSED, 17).told == ["a:9719"]


def test_what_is_not_watched_any_more_is_not_told():
    lookout = Lookout(A, B).poll(A).poll(B, app="other").listed(B)
    assert lookout.polls(Said.REFUSED, 60, A).ever_told == set()


# -- a close in good order --------------------------------------------------------------------


@pytest.mark.parametrize("said", BAD)
def test_a_driver_that_closed_in_good_order_is_not_missed(said):
    assert Lookout().poll().stopped().polls(said, 600).ever_told == set()


def test_a_farewell_that_comes_after_the_first_bad_poll_counts():
    lookout = Lookout().poll().poll(said=Said.STUCK).stopped(after=1.0)
    assert lookout.polls(Said.REFUSED, 600).ever_told == set()


def test_a_poll_from_before_the_farewell_does_not_bring_the_driver_back():
    lookout = Lookout().poll()
    lookout.stopped(after=1.0)
    lookout.now -= 0.5
    lookout.poll(after=0.0)
    lookout.now += 1.0
    assert lookout.polls(Said.REFUSED, 600).ever_told == set()


def test_after_a_farewell_the_driver_is_missed_again_once_it_was_seen():
    lookout = Lookout().poll().stopped().polls(Said.REFUSED, 60).poll()
    assert lookout.polls(Said.REFUSED, 17).told == ["etl"]


def test_a_driver_that_closes_while_it_is_told_ends_its_alert():
    lookout = Lookout(resolve_after=30.0).poll().polls(Said.REFUSED, 17).poll().stopped()
    assert (lookout.told, lookout.ended) == ([], ["etl"])


# -- the end of an alert ----------------------------------------------------------------------


def test_a_driver_that_is_back_ends_its_alert_once():
    lookout = Lookout().poll().polls(Said.REFUSED, 17).poll()
    assert (lookout.told, lookout.ended) == ([], ["etl"])
    assert lookout.poll().ended == []


def test_it_has_to_stay_well_for_the_time_that_is_set():
    lookout = Lookout(resolve_after=30.0).poll().polls(Said.REFUSED, 17).polls(Said.HEALTHY, 30)
    assert lookout.told == ["etl"]
    assert lookout.poll().ended == ["etl"]


def test_a_driver_that_crashes_again_and_again_is_one_page():
    lookout = Lookout(resolve_after=30.0).poll().polls(Said.REFUSED, 17)
    for _ in range(10):
        lookout.polls(Said.HEALTHY, 20).polls(Said.REFUSED, 20)
        assert lookout.told == ["etl"]
    assert len({one.starts_at for told in lookout.all for one in told.incidents}) == 1


def test_no_answer_from_the_network_ends_nothing():
    assert Lookout().poll().polls(Said.REFUSED, 17).polls(Said.UNREACHABLE, 600).told == ["etl"]


def test_an_alert_of_what_is_not_watched_any_more_ends():
    lookout = Lookout(A, B).poll(A).polls(Said.REFUSED, 17, A).listed(B)
    assert lookout.ended == ["etl"]


def test_who_never_answered_and_then_does_ends_its_alert():
    lookout = Lookout().polls(Said.REFUSED, 62).poll()
    assert (lookout.told, lookout.ended) == ([], ["a:9719"])


# -- what is told -----------------------------------------------------------------------------


def test_the_page_says_what_was_last_known():
    lookout = Lookout().poll(unhealthy=("silver: stalled",)).polls(Said.REFUSED, 17)
    assert lookout.page["reason"] == (
        "driver was killed or has crashed: nothing listens at its address (refused)"
    )
    assert lookout.page["not_well_then"] == "silver: stalled"
    assert lookout.page["last_seen"].endswith("16 s ago")
    assert lookout.page["last_heartbeat"].endswith("by the driver's clock")
    assert lookout.page["address"] == "http://a:9719"
    assert lookout.page["runbook_url"] == "https://runbooks.example/StreamingDriverDown.md"


def test_the_alert_is_of_the_whole_driver_and_began_with_the_first_bad_poll():
    lookout = Lookout().poll().polls(Said.REFUSED, 16)
    (alert,) = lookout.all[-1].incidents[0].alerts
    assert alert.labels == {
        "alertname": "StreamingDriverDown", "app": "etl", "query": "*", "severity": "critical",
    }  # fmt: skip
    assert alert.starts_at == WALL + 1002.0


def test_what_is_told_does_not_change_while_it_is_open():
    lookout = Lookout().poll().polls(Said.REFUSED, 17)
    before = lookout.page
    assert lookout.polls(Said.SILENT, 600).page == before


def test_a_long_list_of_sick_queries_is_cut():
    sick = tuple(f"q{number}: stalled" for number in range(15))
    page = Lookout().poll(unhealthy=sick).polls(Said.REFUSED, 17).page
    assert page["not_well_then"].endswith("q9: stalled and 5 more")


def test_the_reminder_comes_after_the_time_that_is_set():
    lookout = Lookout().poll().polls(Said.REFUSED, 16)
    assert lookout.all[-1].incidents[0].revision == 0
    assert lookout.update(3599.0).all[-1].incidents[0].revision == 0
    assert lookout.update(1.0).all[-1].incidents[0].revision == 1


def test_a_silence_mutes_what_is_open():
    lookout = Lookout().poll()
    lookout.muted = "silenced until noon"
    assert lookout.polls(Said.REFUSED, 17).all[-1].incidents[0].muted == "silenced until noon"
    lookout.muted = ""
    assert lookout.update(1.0).all[-1].incidents[0].muted == ""


# -- what an earlier watcher left -------------------------------------------------------------


def left_open(app, ends_at=None):
    labels = {"alertname": "StreamingDriverDown", "app": app, "query": "*", "severity": "critical"}
    return Incident((Alert(labels, {"summary": "gone"}, WALL, ends_at),), revision=3)


def test_what_an_earlier_watcher_left_open_stays_open_until_the_driver_is_seen():
    lookout = Lookout()
    lookout.evaluate.restore([left_open("etl")], lookout.now)
    assert lookout.polls(Said.REFUSED, 30).told == ["etl"]
    assert lookout.all[-1].incidents[0].revision == 3
    assert lookout.poll().ended == ["etl"]


def test_what_an_earlier_watcher_left_open_does_not_wait_for_ever():
    lookout = Lookout()
    lookout.evaluate.restore([left_open("other")], lookout.now)
    assert lookout.update(DAY).told == ["other"]
    assert lookout.update(1.0).ended == ["other"]


def test_what_had_ended_is_not_inherited():
    lookout = Lookout()
    lookout.evaluate.restore([left_open("etl", ends_at=WALL)], lookout.now)
    assert lookout.polls(Said.REFUSED, 10).ever_told == set()


def test_a_driver_found_well_closes_once_what_may_have_been_left_open():
    lookout = Lookout(resolve_after=30.0).polls(Said.HEALTHY, 30)
    assert lookout.stale_resolves == []
    assert lookout.polls(Said.HEALTHY, 600).stale_resolves == ["etl", "etl@a:9719", "a:9719"]
    assert all(one.ends_at is not None for one in lookout.all[-1].stale_resolves)


def test_what_is_closed_was_over_by_the_newest_poll_and_not_later():
    """What the driver reports itself after that look is not closed by it."""
    lookout = Lookout(resolve_after=30.0).polls(Said.HEALTHY, 60)
    (told,) = [lookout.evaluate.update(lookout.now + late, WALL + late) for late in (0.9,)]
    assert {round(one.ends_at - WALL, 3) for one in told.stale_resolves} == {0.0}
    assert lookout.evaluate.update(lookout.now + 1.1, WALL).stale_resolves == ()


def test_nothing_is_closed_for_a_driver_that_was_told_here():
    lookout = Lookout().polls(Said.REFUSED, 62).polls(Said.HEALTHY, 60)
    assert lookout.stale_resolves == []
    assert lookout.ever_told == {"a:9719"}


def test_a_driver_that_reports_the_end_of_its_jvm_closes_and_ends_nothing():
    lookout = Lookout()
    lookout.evaluate.restore([left_open("etl")], lookout.now)
    lookout.polls(Said.HEALTHY, 60, reports_gone=True)
    assert (lookout.stale_resolves, lookout.told) == ([], ["etl"])
    assert lookout.poll().ended == ["etl"]


# -- ended by a signal ----------------------------------------------------------------------------


def test_a_driver_that_a_signal_has_ended_has_five_minutes_to_be_back():
    lookout = Lookout().polls(Said.HEALTHY, 10).stopped(notice=Notice.TERMINATED)
    assert lookout.polls(Said.REFUSED, 290).told == []
    assert lookout.polls(Said.REFUSED, 20).told == ["etl"]
    assert "was terminated by a signal and has not come back" in lookout.page["reason"]


def test_one_that_is_back_within_five_minutes_is_told_to_nobody():
    lookout = Lookout().polls(Said.HEALTHY, 10).stopped(notice=Notice.TERMINATED)
    lookout.polls(Said.REFUSED, 200).polls(Said.HEALTHY, 60)
    assert lookout.ever_told == set()


def test_one_that_came_back_and_is_killed_is_gone_as_soon_as_any():
    lookout = Lookout().polls(Said.HEALTHY, 10).stopped(notice=Notice.TERMINATED)
    lookout.polls(Said.REFUSED, 60).polls(Said.HEALTHY, 10).polls(Said.REFUSED, 17)
    assert lookout.told == ["etl"]


def test_the_log_says_that_a_signal_has_ended_it():
    lookout = Lookout().polls(Said.HEALTHY, 10).stopped(notice=Notice.TERMINATED)
    assert lookout.news[-1] == "etl was terminated by a signal and may come back"


# -- the log ----------------------------------------------------------------------------------


def test_the_log_says_each_change_once():
    lookout = Lookout().polls(Said.HEALTHY, 10).polls(Said.REFUSED, 60).polls(Said.HEALTHY, 10)
    lookout.stopped().polls(Said.REFUSED, 60)
    assert [line.split(":")[0] for line in lookout.news] == [
        "etl is up", "StreamingDriverDown", "etl is up", "etl shut down gracefully",
    ]  # fmt: skip
