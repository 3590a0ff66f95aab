"""Which drivers the watcher reports as down, on a fake clock."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.watch_harness import BAD, BEAT, HERE, WALL, A, B, WatchHarness, left_open, pod

from querypulse.exporter.pages import Notice
from querypulse.watch.client import Said


def proven(watch_harness, said, seconds, endpoint=A):
    """Polls with one answer while another host proves the network."""
    for _ in range(round(seconds)):
        watch_harness.proved().poll(endpoint, said)
    return watch_harness


def terminated():
    """A driver that a signal has ended."""
    return WatchHarness().polls(Said.HEALTHY, 10).stopped(notice=Notice.TERMINATED)


# -- reported drivers -------------------------------------------------------------------------


def test_a_driver_that_was_seen_is_reported_after_the_grace():
    reported = {}
    for said in BAD:
        watch_harness = WatchHarness().poll().polls(said, 15)
        reported[said] = (watch_harness.reported, watch_harness.poll(said=said).reported)
    assert reported == dict.fromkeys(BAD, ([], ["etl"]))


def test_a_driver_never_seen_is_reported_after_four_times_the_grace():
    watch_harness = WatchHarness().polls(Said.REFUSED, 60)
    assert watch_harness.reported == []
    assert watch_harness.poll(said=Said.REFUSED).reported == ["a:9719"]
    assert "never answered" in watch_harness.page["summary"]


def test_a_driver_that_only_rejected_the_watcher_is_reported_when_it_dies():
    watch_harness = WatchHarness().polls(Said.BARRED, 600).polls(Said.REFUSED, 15)
    assert watch_harness.reported == []
    assert watch_harness.poll(said=Said.REFUSED).reported == ["a:9719"]
    assert "was killed" in watch_harness.page["summary"]
    assert watch_harness.page["last_seen"] == "never by this watcher"


def test_an_answer_of_another_driver_proves_the_network():
    watch_harness = WatchHarness(A, B).poll(A).poll(B, app="other")
    for _ in range(6):
        watch_harness.poll(B, app="other").poll(A, Said.UNREACHABLE, took=3.0)
    assert watch_harness.reported == ["etl"]


def test_a_refusal_of_another_driver_proves_the_network():
    watch_harness = WatchHarness(A, B).poll(A)
    for _ in range(6):
        watch_harness.poll(B, Said.REFUSED).poll(A, Said.UNREACHABLE, took=3.0)
    assert watch_harness.reported == ["etl"]


def test_a_stuck_heartbeat_is_reported_while_the_server_answers():
    watch_harness = WatchHarness().poll(heartbeat=BEAT)
    watch_harness.polls(Said.HEALTHY, 19, heartbeat=BEAT)
    assert watch_harness.reported == []
    assert watch_harness.polls(Said.HEALTHY, 2, heartbeat=BEAT).reported == ["etl"]
    assert "heartbeat has not advanced" in watch_harness.page["connection"]


def test_a_driver_that_fails_in_different_ways_is_reported():
    watch_harness = WatchHarness().poll()
    for said in (Said.BROKEN, Said.REFUSED, Said.SILENT, Said.REFUSED, Said.STUCK, Said.REFUSED):
        watch_harness.poll(said=said, after=3.5)
    assert watch_harness.reported == ["etl"]


def test_each_driver_is_reported_separately():
    watch_harness = WatchHarness(A, B).poll(A, app="one").poll(B, app="two")
    for _ in range(10):
        watch_harness.poll(A, Said.REFUSED).poll(B, Said.REFUSED)
    assert watch_harness.reported == ["one", "two"]


REPORTED = {
    "never healthy": (lambda: WatchHarness().polls(Said.STUCK, 62), "a:9719"),
    "no app name": (lambda: WatchHarness().poll(app="").polls(Said.REFUSED, 17), "a:9719"),
    "no answer, and the network works": (
        lambda: proven(WatchHarness().poll(), Said.UNREACHABLE, 17), "etl",
    ),
    "no answer on this machine": (
        lambda: WatchHarness(HERE).poll(HERE).polls(Said.UNREACHABLE, 17, HERE), "etl",
    ),
    "down after a graceful shutdown and a new start": (
        lambda: WatchHarness().poll().stopped().polls(Said.REFUSED, 60).poll().polls(Said.REFUSED, 17),
        "etl",
    ),
    "down after a signal and a new start": (
        lambda: terminated().polls(Said.REFUSED, 60).polls(Said.HEALTHY, 10).polls(Said.REFUSED, 17),
        "etl",
    ),
    "two slow failures within a short grace": (
        lambda: WatchHarness(gone_after=1.0).poll().polls(Said.SILENT, 2, took=3.0), "etl",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REPORTED)
def test_a_driver_that_is_down_is_reported(what):
    history, name = REPORTED[what]
    assert history().reported == [name]


# -- drivers that are not reported ------------------------------------------------------------

NOT_REPORTED = {
    "healthy": lambda: WatchHarness().polls(Said.HEALTHY, 600, every=5.0),
    "no heartbeat": lambda: WatchHarness().polls(Said.HEALTHY, 600, heartbeat=None),
    "a slow start": lambda: WatchHarness().polls(Said.REFUSED, 60).polls(Said.HEALTHY, 60),
    "a slow start, then refuses": lambda: (
        WatchHarness().polls(Said.REFUSED, 60).polls(Said.BARRED, 600)
    ),
    "a pod that refuses": lambda: WatchHarness(pod(1)).polls(Said.BARRED, 600, pod(1)),
    "one slow failure within a short grace": lambda: (
        WatchHarness(gone_after=1.0).poll().poll(said=Said.SILENT, took=3.0)
    ),
    "a poll that the watcher slowed": lambda: (
        WatchHarness()
        .poll()
        .poll(said=Said.SILENT)
        .poll(said=Said.SILENT, took=3600.0)
        .poll(said=Said.SILENT)
    ),
    "a network proof from before the outage": lambda: (
        WatchHarness(gone_after=1.0).poll().proved().polls(Said.UNREACHABLE, 9)
    ),
    "no longer watched": lambda: (
        WatchHarness(A, B).poll(A).poll(B, app="other").listed(B).polls(Said.REFUSED, 60, A)
    ),
    "a shutdown notice after a failed poll": lambda: (
        WatchHarness().poll().poll(said=Said.STUCK).stopped(after=1.0).polls(Said.REFUSED, 600)
    ),
    "back within five minutes of a signal": lambda: (
        terminated().polls(Said.REFUSED, 200).polls(Said.HEALTHY, 60)
    ),
}


@pytest.mark.parametrize("what", NOT_REPORTED)
def test_a_driver_that_may_be_fine_is_not_reported(what):
    assert NOT_REPORTED[what]().ever_reported == set()


def test_a_driver_that_returns_in_time_is_not_reported():
    reported = {}
    for said in BAD:
        watch_harness = WatchHarness().poll()
        for _ in range(20):
            watch_harness.polls(said, 15).poll()
        reported[said] = watch_harness.ever_reported
    assert reported == {said: set() for said in BAD}


def test_a_rejection_resolves_the_alert_of_a_driver_that_never_answered():
    watch_harness = WatchHarness().polls(Said.REFUSED, 62)
    assert watch_harness.reported == ["a:9719"]
    assert watch_harness.poll(said=Said.BARRED).ended == ["a:9719"]


def test_an_unreachable_driver_is_not_reported_while_nothing_else_answers():
    watch_harness = WatchHarness(A, B).poll(A).poll(B, app="other")
    for _ in range(300):
        watch_harness.poll(A, Said.UNREACHABLE).poll(B, Said.UNREACHABLE)
    assert watch_harness.ever_reported == set()
    assert any("own network" in line for line in watch_harness.news)


def test_the_grace_restarts_after_an_outage_of_the_own_network():
    watch_harness = WatchHarness().poll().polls(Said.UNREACHABLE, 300).proved(1.0)
    watch_harness.polls(Said.REFUSED, 15)
    assert watch_harness.ever_reported == set()
    assert watch_harness.poll(said=Said.REFUSED).reported == ["etl"]


def test_the_grace_restarts_for_a_driver_that_refuses_after_an_outage():
    watch_harness = WatchHarness().poll().polls(Said.UNREACHABLE, 300)
    assert watch_harness.polls(Said.REFUSED, 15).reported == []


def test_a_local_driver_does_not_prove_the_network():
    watch_harness = WatchHarness(A, HERE).poll(A).poll(HERE, app="local")
    for _ in range(30):
        watch_harness.poll(HERE, app="local").poll(A, Said.UNREACHABLE)
    assert watch_harness.ever_reported == set()


def test_a_pause_of_the_watcher_is_not_blamed_on_the_driver():
    watch_harness = WatchHarness().poll().poll(said=Said.SILENT)
    assert watch_harness.poll(said=Said.SILENT, after=3600.0).reported == []
    assert watch_harness.poll().ever_reported == set()


def test_a_slow_heartbeat_counts_as_up():
    watch_harness = WatchHarness()
    for beat in range(60):
        watch_harness.polls(Said.HEALTHY, 4, heartbeat=BEAT + beat)
    assert watch_harness.ever_reported == set()


# -- graceful shutdown ------------------------------------------------------------------------


def test_a_driver_that_shut_down_gracefully_is_not_expected():
    reported = {
        said: WatchHarness().poll().stopped().polls(said, 600).ever_reported for said in BAD
    }
    assert reported == {said: set() for said in BAD}


def test_a_poll_begun_before_the_shutdown_notice_does_not_make_the_driver_expected():
    watch_harness = WatchHarness().poll()
    watch_harness.stopped(after=1.0)
    watch_harness.now -= 0.5
    watch_harness.poll(after=0.0)
    watch_harness.now += 1.0
    assert watch_harness.polls(Said.REFUSED, 600).ever_reported == set()


def test_a_graceful_shutdown_resolves_the_open_alert():
    watch_harness = WatchHarness(resolve_after=30.0).poll().polls(Said.REFUSED, 17).poll().stopped()
    assert (watch_harness.reported, watch_harness.ended) == ([], ["etl"])


# -- resolving --------------------------------------------------------------------------------


def test_a_returned_driver_resolves_its_alert_once():
    watch_harness = WatchHarness().poll().polls(Said.REFUSED, 17).poll()
    assert (watch_harness.reported, watch_harness.ended) == ([], ["etl"])
    assert watch_harness.poll().ended == []


def test_the_alert_resolves_after_resolve_after_seconds_of_health():
    watch_harness = (
        WatchHarness(resolve_after=30.0).poll().polls(Said.REFUSED, 17).polls(Said.HEALTHY, 30)
    )
    assert watch_harness.reported == ["etl"]
    assert watch_harness.poll().ended == ["etl"]


def test_a_driver_that_crashes_repeatedly_is_one_page():
    watch_harness = WatchHarness(resolve_after=30.0).poll().polls(Said.REFUSED, 17)
    for _ in range(10):
        watch_harness.polls(Said.HEALTHY, 20).polls(Said.REFUSED, 20)
        assert watch_harness.reported == ["etl"]
    sent = [one for incidents in watch_harness.all for one in incidents if not one.is_stale]
    assert {(one.starts_at, one.revision) for one in sent} == {(sent[0].starts_at, 0)}


def test_an_alert_that_its_driver_has_resolved_resolves_at_once():
    watch_harness = WatchHarness(resolve_after=30.0).poll().polls(Said.REFUSED, 17)
    assert watch_harness.polls(Said.HEALTHY, 40, holds_key=True).reported == ["etl"]

    assert (watch_harness.poll().ended, watch_harness.reported) == (["etl"], [])
    assert watch_harness.polls(Said.REFUSED, 17).reported == ["etl"]


@pytest.mark.parametrize("unread", [Said.HEALTHY, Said.BARRED])
def test_a_status_page_that_cannot_be_read_resolves_nothing(unread):
    watch_harness = WatchHarness(resolve_after=30.0).poll().polls(Said.REFUSED, 17)
    for _ in range(3):
        watch_harness.polls(Said.HEALTHY, 40, holds_key=True)
        watch_harness.poll(said=unread, holds_key=None)
    assert watch_harness.reported == ["etl"]
    assert watch_harness.ended == []


def test_a_driver_that_is_paused_repeatedly_is_sent_again_once():
    watch_harness = WatchHarness(resolve_after=30.0).poll()
    for _ in range(6):
        watch_harness.polls(Said.SILENT, 20).polls(Said.HEALTHY, 3)

    assert watch_harness.open[0].revision == 1


def test_an_alert_is_sent_again_although_the_pause_ended_with_a_broken_connection():
    watch_harness = WatchHarness(resolve_after=30.0).poll().polls(Said.SILENT, 30)
    watch_harness.poll(said=Said.BROKEN).polls(Said.HEALTHY, 2).polls(Said.REFUSED, 17)

    assert watch_harness.open[0].revision == 1


def test_an_alert_is_not_sent_again_when_a_new_process_is_gone_soon():
    watch_harness = WatchHarness(resolve_after=30.0).poll().polls(Said.SILENT, 30)
    watch_harness.poll(said=Said.REFUSED).polls(Said.HEALTHY, 10).polls(Said.REFUSED, 17)

    assert watch_harness.open[0].revision == 0


@pytest.mark.parametrize("said", [Said.SILENT, Said.STUCK])
def test_an_alert_of_a_paused_driver_is_sent_again_when_it_is_gone_just_after_the_pause(said):
    watch_harness = WatchHarness(resolve_after=30.0).poll().polls(said, 30).polls(Said.HEALTHY, 2)
    assert watch_harness.reported == ["etl"]
    assert watch_harness.open[0].revision == 0

    watch_harness.polls(Said.REFUSED, 17)
    assert watch_harness.open[0].revision == 1


def test_an_alert_is_not_sent_again_when_a_driver_without_a_jvm_is_gone():
    watch_harness = WatchHarness(resolve_after=30.0).poll().polls(Said.REFUSED, 17)
    watch_harness.polls(Said.HEALTHY, 40, holds_key=True).polls(Said.REFUSED, 600)

    assert watch_harness.open[0].revision == 0


def test_an_alert_stays_open_while_its_driver_reports_that_it_is_down():
    watch_harness = WatchHarness(resolve_after=30.0).poll().polls(Said.REFUSED, 17)
    assert watch_harness.polls(Said.HEALTHY, 600, holds_key=True).reported == ["etl"]
    assert watch_harness.ended == []


def test_an_alert_that_its_driver_may_have_resolved_is_sent_again_when_the_driver_is_gone_again():
    watch_harness = WatchHarness(resolve_after=30.0).poll().polls(Said.REFUSED, 17)
    watch_harness.polls(Said.HEALTHY, 25)
    assert watch_harness.open[0].revision == 0

    watch_harness.polls(Said.REFUSED, 17)
    assert watch_harness.open[0].revision == 1
    assert watch_harness.polls(Said.REFUSED, 600).open[0].revision == 1
    assert watch_harness.ended == []


def test_an_unreachable_network_resolves_nothing():
    assert WatchHarness().poll().polls(Said.REFUSED, 17).polls(Said.UNREACHABLE, 600).reported == [
        "etl"
    ]


# -- the page ---------------------------------------------------------------------------------


def test_the_page_has_the_last_known_state():
    watch_harness = WatchHarness().poll(unhealthy={"silver": "stalled"}).polls(Said.REFUSED, 17)
    assert watch_harness.page["reason"] == (
        "driver was killed or has crashed: nothing listens at its address (refused)"
    )
    assert watch_harness.page["unhealthy_before"] == "silver: stalled"
    assert watch_harness.page["last_seen"].endswith("16 s ago")
    assert watch_harness.page["last_heartbeat"].endswith("by the driver's clock")
    assert watch_harness.page["address"] == "http://a:9719"
    assert watch_harness.page["runbook_url"] == "https://runbooks.example/StreamingDriverDown.md"


def test_the_alert_covers_the_whole_driver_from_the_first_bad_poll_on():
    watch_harness = WatchHarness().poll().polls(Said.REFUSED, 16)
    (alert,) = watch_harness.open[0].alerts
    assert alert.labels == {
        "alertname": "StreamingDriverDown", "app": "etl", "query": "*", "severity": "critical",
    }  # fmt: skip
    assert alert.starts_at == WALL + 1002.0


def test_the_page_does_not_change_while_the_alert_is_open():
    watch_harness = WatchHarness().poll().polls(Said.REFUSED, 17)
    before = watch_harness.page
    assert watch_harness.polls(Said.SILENT, 600).page == before


def test_a_long_list_of_failing_queries_is_cut():
    failing = {f"q{number}": "stalled" for number in range(15)}
    page = WatchHarness().poll(unhealthy=failing).polls(Said.REFUSED, 17).page
    assert page["unhealthy_before"].endswith("q9: stalled and 5 more")


def test_a_reminder_is_sent_after_the_repeat_interval():
    watch_harness = WatchHarness().poll().polls(Said.REFUSED, 16)
    assert watch_harness.open[0].revision == 0
    assert watch_harness.update(3599.0).open[0].revision == 0
    assert watch_harness.update(1.0).open[0].revision == 1


def test_a_silence_mutes_the_open_alert():
    watch_harness = WatchHarness().poll()
    watch_harness.muted = "silenced until noon"
    assert watch_harness.polls(Said.REFUSED, 17).open[0].muted == "silenced until noon"
    watch_harness.muted = ""
    assert watch_harness.update(1.0).open[0].muted == ""


# -- restored and stale incidents --------------------------------------------------------------


def test_a_restored_alert_stays_open_until_the_driver_is_seen():
    watch_harness = WatchHarness().restored(left_open("etl", A, revision=3))
    assert watch_harness.polls(Said.REFUSED, 30).reported == ["etl"]
    assert watch_harness.open[0].revision == 3
    assert watch_harness.poll().ended == ["etl"]


def test_a_resolved_alert_is_not_restored():
    incident = left_open("etl", A)
    over = replace(incident, alerts=(incident.alerts[0].ended(WALL),))
    assert WatchHarness().restored(over).polls(Said.REFUSED, 10).ever_reported == set()


def test_a_healthy_driver_has_each_stale_incident_once():
    """Not the one under its own name: the driver may have one open there, and ends it itself."""
    watch_harness = WatchHarness(resolve_after=30.0).polls(Said.HEALTHY, 30)
    assert watch_harness.stale == []
    assert watch_harness.polls(Said.HEALTHY, 600).stale == ["etl@a:9719", "a:9719"]


def test_an_incident_of_this_watcher_is_never_stale():
    watch_harness = WatchHarness().polls(Said.REFUSED, 62).polls(Said.HEALTHY, 60)
    assert watch_harness.stale == ["etl@a:9719"]
    assert watch_harness.ever_reported == {"a:9719"}


def test_the_labels_of_the_driver_are_in_the_alert_and_the_key():
    watch_harness = WatchHarness().poll(labels={"env": "prod"}).polls(Said.REFUSED, 17)
    (incident,) = watch_harness.open
    assert incident.key == "querypulse/etl;env=prod/*"
    assert incident.labels == {"app": "etl", "query": "*", "env": "prod"}
    assert incident.alerts[0].labels["env"] == "prod"


# -- ended after a failure that was reported ---------------------------------------------------

FAILED = (("gold", "StreamingQueryFailed"),)
ENDED = (Said.REFUSED, Said.BROKEN, Said.REPLACED)


@pytest.mark.parametrize("said", ENDED)
def test_a_driver_that_has_reported_a_failure_has_five_minutes_to_return(said):
    watch_harness = WatchHarness().poll(reported=FAILED)
    assert watch_harness.polls(said, 290).reported == []
    assert watch_harness.polls(said, 20).reported == ["etl"]
    assert (
        "has ended after it reported StreamingQueryFailed of gold" in watch_harness.page["reason"]
    )
    assert watch_harness.page["unhealthy_before"] == "gold: StreamingQueryFailed"
    assert "gold: StreamingQueryFailed" in watch_harness.page["description"]


def test_the_notice_of_a_failure_gives_five_minutes_to_return():
    watch_harness = WatchHarness().poll().stopped(notice=Notice.FAILED, reported=FAILED)
    assert watch_harness.news[-1] == (
        "etl has ended after it reported StreamingQueryFailed of gold and may come back"
    )
    assert watch_harness.polls(Said.REFUSED, 290).reported == []
    assert watch_harness.polls(Said.REFUSED, 20).page["unhealthy_before"] == (
        "gold: StreamingQueryFailed"
    )


@pytest.mark.parametrize("by_notice", [True, False])
def test_a_job_that_fails_and_is_restarted_again_and_again_is_not_reported(by_notice):
    watch_harness = WatchHarness(resolve_after=30.0)
    for _ in range(10):
        watch_harness.polls(Said.HEALTHY, 60)
        if by_notice:
            watch_harness.stopped(notice=Notice.FAILED, reported=FAILED)
        else:
            watch_harness.poll(reported=FAILED)
        watch_harness.polls(Said.REFUSED, 20)
    assert watch_harness.ever_reported == set()


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ([{}], Said.REFUSED),
        ([{"reported": FAILED}, {}], Said.REFUSED),
        ([{"reported": FAILED}], Said.SILENT),
        ([{"reported": FAILED}], Said.STUCK),
    ],
    ids=["healthy", "recovered", "frozen", "stuck"],
)
def test_any_other_driver_is_reported_after_the_grace(before, said):
    watch_harness = WatchHarness()
    for fields in before:
        watch_harness.poll(**fields)
    assert watch_harness.polls(said, 17).reported == ["etl"]


# -- ended by a signal ----------------------------------------------------------------------------


def test_a_driver_ended_by_a_signal_has_five_minutes_to_return():
    watch_harness = terminated()
    assert watch_harness.news[-1] == "etl was terminated by a signal and may come back"
    assert watch_harness.polls(Said.REFUSED, 290).reported == []
    assert watch_harness.polls(Said.REFUSED, 20).reported == ["etl"]
    assert "was terminated by a signal and has not come back" in watch_harness.page["reason"]


# -- the log ----------------------------------------------------------------------------------


def test_the_log_says_each_change_once():
    watch_harness = (
        WatchHarness().polls(Said.HEALTHY, 10).polls(Said.REFUSED, 60).polls(Said.HEALTHY, 10)
    )
    watch_harness.stopped().polls(Said.REFUSED, 60)
    assert [line.split(":")[0] for line in watch_harness.news] == [
        "etl is up", "StreamingDriverDown", "etl is up", "etl shut down gracefully",
    ]  # fmt: skip
