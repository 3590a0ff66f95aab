"""Which drivers the watcher reports as down, on a fake clock.

Drivers are identified by URL and app: another app at a URL, or another URL, is another driver. Under a
DNS name they are identified by their app, at any address.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.watch_harness import BAD, DAY, ENDPOINTS, WALL, A, B, WatchHarness, left_open, pod

from querypulse.alerting.words.messages import Guidance
from querypulse.alerting.words.next_steps import has_restart
from querypulse.exporter.pages import Notice
from querypulse.watch.alerts import DriverAlerts
from querypulse.watch.client import Endpoint, Poll, Said
from querypulse.watch.tracker import TargetTracker, WatchedDriver


def harness_of(places: str = "A", **terms) -> WatchHarness:
    return WatchHarness(*(ENDPOINTS[place] for place in places.split()), **terms)


def by_name(names, rows):
    """A case for each row, which begins with its name."""
    values = [row[1:] if "," in names else row[1] for row in rows]
    return pytest.mark.parametrize(names, values, ids=[row[0] for row in rows])


# -- reported drivers -------------------------------------------------------------------------

REPORTED = [
    *((f"{said.value}, after the grace", "A", f"healthy, {said.value} 16", ["etl"]) for said in BAD),
    ("never seen, after four times the grace", "A", "refused 61", ["a:9719"]),
    ("never healthy", "A", "stuck 62", ["a:9719"]),
    ("no app name", "A", "healthy app=, refused 17", ["a:9719"]),
    ("refused the watcher, and dies", "A", "barred 600, refused 16", ["a:9719"]),
    ("fails in different ways", "A",
     "healthy, broken after=3.5, refused after=3.5, silent after=3.5, refused after=3.5, stuck after=3.5, refused after=3.5", ["etl"]),
    ("no answer, and the network works", "A", "healthy, proved + unreachable 17", ["etl"]),
    ("no answer, and another driver answers", "A B", "healthy, B healthy app=other + unreachable took=3 7", ["etl"]),
    ("no answer, and another driver refuses", "A B", "healthy, B refused + unreachable took=3 6", ["etl"]),
    ("no answer on this machine", "HERE", "HERE healthy, HERE unreachable 17", ["etl"]),
    ("refuses after an outage of the own network", "A", "healthy, unreachable 300, proved, refused 16", ["etl"]),
    ("never returns after a signal", "A", "healthy 10, terminated, refused 310", ["etl"]),
    ("down after a graceful shutdown and a new start", "A", "healthy, stopped, refused 60, healthy, refused 17", ["etl"]),
    ("never returns after an announced kill", "A", "healthy ends 10, refused 310", ["etl"]),
    ("killed after an announced end that did not come", "A", "healthy ends 10, healthy 5, refused 17", ["etl"]),
    ("frozen although its end was announced", "A", "healthy ends 10, silent 17", ["etl"]),
    ("down after a signal and a new start", "A", "healthy 10, terminated, refused 60, healthy 10, refused 17", ["etl"]),
    ("each driver separately", "A B", "healthy app=one, B healthy app=two, refused + B refused 10", ["one", "two"]),
    ("another app has its place", "A", "healthy, refused 5, healthy app=other 12", ["etl"]),
    ("another app stays in its place", "A", "healthy, refused 17, healthy app=other 600", ["etl"]),
    ("another app shuts down in its place", "A", "healthy, refused 5, healthy app=other 5, stopped, refused 17", ["etl"]),
    *((f"another app answers once, then it is {said}", "A", f"healthy, refused, healthy app=other, {said} 14", ["etl"])
      for said in ("refused", "silent", "barred")),
    ("another app is killed, too", "A", "healthy, refused 17, healthy app=other 10, refused 17", ["etl", "other"]),
    ("a day without a replacement", "A", "healthy, refused 17, wait 172800, refused 2", ["etl"]),
    ("one app at two URLs", "A B", "healthy, B healthy, refused + B refused 17", ["etl@a:9719", "etl@b:9719"]),
    ("seen at a second URL while it is down", "A B", "healthy, refused 17, B healthy", ["etl"]),
    ("a graceful shutdown at one of two URLs", "A B", "healthy, B healthy, stopped, refused + B refused 17", ["etl"]),
    ("a killed pod without a replacement", "ONE", "ONE healthy, list NAME, ONE refused 17", ["etl"]),
    ("a pod whose address left DNS", "ONE TWO", "ONE healthy, TWO healthy app=other, list TWO, ONE refused 17", ["etl"]),
    ("the last pod of an app", "ONE TWO", "ONE healthy, TWO healthy, ONE refused + TWO refused 17", ["etl"]),
    ("the new pod, after the old one shut down", "ONE TWO", "ONE healthy, TWO healthy, ONE stopped, ONE refused + TWO refused 17", ["etl"]),
    ("one of two apps under a name", "ONE TWO", "ONE healthy app=one, TWO healthy app=two, ONE refused + TWO healthy app=two 17", ["one"]),
    ("a name that is never resolved", "NAME", "proved + NAME unreachable 62", ["drivers:9719"]),
    ("a pod whose app is known late", "ONE", "ONE healthy app= 30, ONE healthy, ONE refused 17", ["etl"]),
    ("two slow failures, within a short grace", "A", "healthy, silent took=8, silent took=8", ["etl"]),
]  # fmt: skip


@by_name("places, story, names", REPORTED)
def test_a_driver_that_is_down_is_reported(places, story, names):
    assert harness_of(places).play(story).reported == names


# -- drivers that are not reported ------------------------------------------------------------

FINE = [
    ("healthy", "A", "healthy after=5 120"),
    *((f"{said.value}, within the grace, again and again", "A", f"healthy, {said.value} 15, " * 5) for said in BAD),
    *((f"{said.value} after a graceful shutdown", "A", f"healthy, stopped, {said.value} 600") for said in BAD),
    ("never seen, within four times the grace", "A", "refused 60, healthy 60"),
    ("a slow start, then it refuses the watcher", "A", "refused 60, barred 600"),
    ("a pod that refuses", "ONE", "ONE barred 600"),
    ("a poll that the watcher slowed", "A", "healthy, silent 2, silent took=3600, silent"),
    ("a pause of the watcher", "A", "healthy, silent, silent after=3600, healthy"),
    ("no answer, and nothing else answers", "A B", "healthy, B healthy app=other, unreachable + B unreachable 300"),
    ("no answer, and only this machine answers", "A HERE", "healthy, HERE healthy app=local + unreachable 30"),
    ("a network proof from before the outage", "A", "healthy, proved, unreachable 5"),
    ("refuses shortly after an outage of the own network", "A", "healthy, unreachable 300, proved, refused 15"),
    ("refuses shortly after an outage that nothing else has ended", "A", "healthy, unreachable 300, refused 15"),
    ("no longer watched", "A B", "healthy, B healthy app=other, list B, refused 60"),
    ("a shutdown notice after a failed poll", "A", "healthy, stuck, stopped, refused 600"),
    ("back within five minutes of an announced kill", "A", "healthy ends 10, refused 200, healthy 60"),
    ("an announced end in order", "A", "healthy ends 10, stopped, refused 400"),
    ("an announced end that does not come", "A", "healthy ends 60, healthy 60"),
    ("back within five minutes of a signal", "A", "healthy 10, terminated, refused 200, healthy 60"),
    ("no app name once", "A", "healthy, healthy app= 600"),
    ("shut down, and another app in its place", "A", "healthy, stopped, healthy app=other 600"),
    ("a pod replaced in time", "ONE", "ONE healthy, ONE refused 10, list TWO, TWO healthy, ONE refused 60, TWO healthy 60"),
    ("one of two pods of an app", "ONE TWO", "ONE healthy, TWO healthy, ONE refused + TWO healthy 60"),
    ("a rolling update", "ONE", "ONE healthy, list ONE TWO, TWO healthy, ONE stopped, list TWO, ONE refused + TWO healthy 60"),
    ("a shutdown notice of the last pod", "ONE TWO", "ONE healthy, TWO healthy, ONE refused 5, TWO stopped, ONE refused 60"),
    ("shut down and removed from DNS", "ONE", "ONE healthy, ONE stopped, list TWO, TWO healthy app=other"),
    ("an address that never answered and left DNS", "ONE TWO", "ONE healthy, TWO refused 100, list ONE"),
]  # fmt: skip


@by_name("places, story", FINE)
def test_a_driver_that_may_be_fine_is_not_reported(places, story):
    assert harness_of(places).play(story).ever_reported == set()


@pytest.mark.parametrize(
    "story",
    [
        "healthy, " + "healthy app=other 7, refused 7, healthy, " * 20,
        "healthy, terminated, healthy app=other 200, healthy 60",
    ],
)
def test_an_app_that_returns_after_another_one_is_not_reported(story):
    assert "etl" not in WatchHarness().play(story).ever_reported


def test_a_poll_begun_before_the_shutdown_notice_does_not_make_the_driver_expected():
    harness = WatchHarness().poll().stopped(after=1.0)
    harness.now -= 0.5
    harness.poll(after=0.0)
    harness.now += 1.0
    assert harness.polls(Said.REFUSED, 600).ever_reported == set()


# -- resolving --------------------------------------------------------------------------------

DOWN = "healthy, refused 17, "
BACK = [
    ("it answers", "A", DOWN, "healthy"),
    ("it answers after another app", "A", DOWN + "healthy app=other 600", "healthy"),
    ("a graceful shutdown", "A", DOWN + "healthy 5", "stopped"),
    ("a pod at another address", "ONE", "ONE healthy, ONE refused 17, list TWO", "TWO healthy"),
    ("it is no longer watched", "A B", DOWN, "list B"),
]


@by_name("places, down, back", BACK)
def test_an_alert_ends_once_when_its_driver_is_back(places, down, back):
    harness = harness_of(places, resolve_after=0.0 if back != "stopped" else 30.0).play(down)
    assert harness.reported == ["etl"]
    assert (harness.play(back).ended, harness.reported) == (["etl"], [])
    assert harness.update().ended == []


@pytest.mark.parametrize(
    ("places", "down", "back", "name"),
    [
        ("A", "refused 62", "barred", "a:9719"),
        ("NAME", "proved + NAME unreachable 62, list ONE", "ONE healthy", "drivers:9719"),
        ("A B", "healthy, B healthy, refused 17", "healthy", "etl@a:9719"),
    ],
)
def test_an_alert_ends_under_the_name_that_it_has(places, down, back, name):
    harness = harness_of(places).play(down)
    assert harness.reported == [name]
    assert harness.play(back).ended == [name]


@pytest.mark.parametrize(
    "story",
    ["healthy 30", "unreachable 600", "healthy holds 600"],
    ids=["healthy for less than resolve_after", "the own network is down", "it is down itself"],
)
def test_an_alert_stays_open(story):
    harness = WatchHarness(resolve_after=30.0).play(DOWN + story)
    assert (harness.reported, harness.ended) == (["etl"], [])


@pytest.mark.parametrize("back", ["healthy 31", "healthy holds 40, healthy"])
def test_an_alert_resolves_after_resolve_after_seconds_of_health_or_when_its_driver_resolves_it(
    back,
):
    harness = WatchHarness(resolve_after=30.0).play(DOWN + back)
    assert (harness.ended, harness.reported) == (["etl"], [])
    assert harness.play("refused 17").reported == ["etl"]


@pytest.mark.parametrize("unread", [Said.HEALTHY, Said.BARRED])
def test_a_status_page_that_cannot_be_read_resolves_nothing(unread):
    harness = WatchHarness(resolve_after=30.0).play(DOWN)
    for _ in range(3):
        harness.play("healthy holds 40").poll(said=unread, holds_key=None)
    assert (harness.reported, harness.ended) == (["etl"], [])


SENT_AGAIN = [
    ("crashes repeatedly", DOWN + "healthy 20, refused 20, " * 10, 1),
    ("paused repeatedly", "healthy, " + "silent 20, healthy 3, " * 6, 1),
    ("a pause that ends in a cut", "healthy, silent 30, broken, healthy 2, refused 17", 1),
    ("gone just after a pause", "healthy, silent 30, healthy 2, refused 17", 1),
    ("gone just after it was stuck", "healthy, stuck 30, healthy 2, refused 17", 1),
    ("gone as it wakes up", "healthy, silent 30, stuck, refused 17", 1),
    ("wakes up stuck", "healthy, silent 30, stuck 30", 1),
    ("answers before its worker as it wakes up", "healthy, silent 30, stuck, wait 1, healthy 2", 0),
    ("stuck, and then gone", "healthy, stuck 30, refused 30", 0),
    ("back from a pause", "healthy, silent 30, healthy 2", 0),
    ("a new process is gone soon", "healthy, silent 30, refused, healthy 10, refused 17", 1),
    ("its JVM had ended", DOWN + "healthy holds 40, refused 600", 0),
    ("healthy for almost long enough", DOWN + "healthy 25", 0),
    ("gone after almost long enough", DOWN + "healthy 25, refused 617", 1),
]


@by_name("story, revision", SENT_AGAIN)
def test_an_alert_that_its_driver_may_have_resolved_is_sent_again_once_it_is_gone_again(
    story, revision
):
    harness = WatchHarness(resolve_after=30.0).play(story)
    assert [incident.revision for incident in harness.open] == [revision]
    assert not any(incident.is_over for incident in harness.all[-1])


@pytest.mark.parametrize(
    ("places", "story"),
    [
        ("A", "healthy, refused 17, healthy app=renamed"),
        ("ONE TWO", "ONE healthy, TWO healthy app=renamed, list TWO, ONE refused 17"),
    ],
    ids=["replaced at its URL", "not seen in DNS"],
)
def test_a_driver_without_a_place_stays_reported_for_any_time_until_somebody_forgets_it(
    places, story
):
    harness = harness_of(places).play(story)
    assert harness.reported == ["etl"]
    assert harness.update(3 * DAY).reported == ["etl"]
    (incident,) = harness.open

    successor = harness_of(places, forgotten=["etl"]).restored(incident)
    assert successor.update().ended == ["etl"]
    other = harness_of(places, forgotten=["orders"]).restored(incident)
    assert other.update().ended == []


def test_successive_apps_at_a_url_are_forgotten():
    harness = WatchHarness()
    for number in range(50):
        harness.poll(app=f"night-{number}").stopped()
    assert len(harness.tracker.drivers) == 1
    assert harness.ever_reported == set()


POLLED = [
    (
        "its driver is expected",
        "ONE TWO",
        "ONE healthy, TWO healthy app=other, list TWO",
        {"ONE", "TWO"},
    ),
    ("its driver has moved", "ONE", "ONE healthy, list TWO, TWO healthy", {"TWO"}),
    ("its driver has shut down", "ONE", "ONE healthy, ONE stopped, list TWO", {"TWO"}),
    ("it never answered", "ONE TWO", "ONE healthy, TWO refused 100, list ONE", {"ONE"}),
    ("DNS fails", "ONE", "ONE healthy, list NAME", {"ONE", "NAME"}),
]


@by_name("places, story, polled", POLLED)
def test_an_address_that_left_dns_is_polled_only_while_its_driver_is_expected(
    places, story, polled
):
    endpoints = harness_of(places).play(story).tracker.endpoint_states.keys()
    assert endpoints == {ENDPOINTS[name] for name in polled}


# -- the page ---------------------------------------------------------------------------------


def test_the_page_has_the_last_known_state():
    page = WatchHarness().poll(unhealthy={"silver": "stalled"}).play("refused 17").page
    assert page["reason"].endswith("has crashed: nothing listens at its address (refused)")
    assert page["unhealthy_before"] == "silver: stalled"
    assert page["last_seen"].endswith("16 s ago")
    assert page["last_heartbeat"].endswith("by the driver's clock")
    assert page["address"] == "http://a:9719"
    assert page["runbook_url"] == "https://runbooks.example/StreamingDriverDown.md"


REASONS = [
    ("never seen", "refused 62", "never answered"),
    ("it refused the watcher", "barred 600, refused 17", "was killed"),
    (
        "another app",
        "healthy, healthy app=other 17",
        "another driver is at its address (other answers there now)",
    ),
    (
        "a signal",
        "healthy, terminated, refused 310",
        "was terminated by a signal and has not come back",
    ),
    (
        "a kill that was announced",
        "healthy ends, refused 310",
        "has ended as announced and has not come back",
    ),
    (
        "a signal that was announced",
        "healthy ends, terminated, refused 310",
        "has ended as announced and has not come back",
    ),
]


@by_name("story, reason", REASONS)
def test_the_page_says_what_happened(story, reason):
    assert reason in WatchHarness().play(story).page["reason"]


FIRST_STEPS = [
    ("never seen", "refused 62", "address that the watcher polls"),
    ("unreachable", "healthy, proved + unreachable 17", "whether it still runs"),
    ("a broken connection", "healthy, broken 17", "whether it still runs"),
    ("replaced", "healthy, healthy app=other 17", "has been replaced"),
    ("frozen", "healthy, silent 17", "before a restart"),
    ("stuck", "healthy, stuck 17", "before a restart"),
    # The runbook's own: nothing is left to look at, or that may still run.
    ("killed", "healthy, refused 17", ""),
    ("a signal", "healthy, terminated, refused 310", ""),
    ("an announced end, without an answer", "healthy ends, proved + unreachable 310", ""),
]


@by_name("story, step", FIRST_STEPS)
def test_the_next_steps_are_those_of_what_the_watcher_has_found(story, step):
    steps = WatchHarness().play(story).page.get("next_steps", "")

    assert step in steps.partition("\n2. ")[0]
    assert bool(step) == bool(steps)
    assert len(steps.splitlines()) in (0, 3)
    assert max(map(len, steps.splitlines()), default=0) <= 170
    is_running = step not in ("", "before a restart")
    assert not (is_running and has_restart(steps)), "two drivers would use the same checkpoints"


def test_what_a_driver_has_reported_explains_its_end_before_an_announcement():
    reported = (("gold", "StreamingQueryFailed"),)
    harness = WatchHarness().poll(end_expected=True, reported=reported).play("refused 310")

    assert "has ended after it reported StreamingQueryFailed of gold" in harness.page["reason"]


def test_the_alert_covers_the_whole_driver_from_the_first_bad_poll_on():
    (incident,) = WatchHarness().poll(labels={"env": "prod"}).play("refused 16").open
    (alert,) = incident.alerts
    assert incident.key == "querypulse/etl;env=prod/*"
    assert incident.labels == {"app": "etl", "query": "*", "env": "prod"}
    assert alert.labels == {
        "alertname": "StreamingDriverDown",
        "severity": "critical",
        **incident.labels,
    }
    assert alert.starts_at == WALL + 1002.0
    (incident,) = harness_of("A B").play("healthy, B healthy, refused 17").open
    assert incident.key == "querypulse/etl%40a%3A9719/*"


def test_the_page_does_not_change_while_the_alert_is_open_and_cuts_a_long_list():
    failing = {f"q{number}": "stalled" for number in range(15)}
    harness = WatchHarness().poll(unhealthy=failing).play("refused 17")
    assert harness.page["unhealthy_before"].endswith("q9: stalled and 5 more")
    assert harness.page == harness.play("silent 600").page


def test_a_reminder_is_sent_after_the_repeat_interval():
    harness = WatchHarness().play("healthy, refused 16")
    revisions = [harness.update(seconds).open[0].revision for seconds in (0.0, 3599.0, 1.0)]
    assert revisions == [0, 0, 1]


def test_a_silence_mutes_the_open_alert():
    harness = WatchHarness().play("healthy")
    harness.muted = "silenced until noon"
    assert harness.play("refused 17").open[0].muted == "silenced until noon"
    harness.muted = ""
    assert harness.update(1.0).open[0].muted == ""


def test_the_log_says_each_change_once():
    harness = WatchHarness().play("healthy 10, refused 60, healthy 10, stopped, refused 60")
    assert [line.split(":")[0] for line in harness.news] == [
        "etl is up",
        "StreamingDriverDown",
        "etl is up",
        "etl shut down gracefully",
    ]
    harness = WatchHarness().play("healthy, unreachable 60, healthy, terminated")
    assert "own network" in harness.news[1]
    assert harness.news[-1] == "etl was terminated by a signal and may come back"


# -- ended with its main program ----------------------------------------------------------------


def test_a_driver_whose_main_program_ended_is_a_warning_unless_it_returns_in_five_minutes():
    harness = WatchHarness().poll().stopped(notice=Notice.ENDED)
    assert harness.news[-1].endswith("while queries ran and may come back")
    assert harness.polls(Said.REFUSED, 290).reported == []
    assert harness.polls(Said.REFUSED, 20).reported == ["etl"]
    assert [incident.severity for incident in harness.open] == ["warning"]
    assert "has ended with its main program while queries ran" in harness.page["reason"]

    assert harness.polls(Said.HEALTHY, 40).reported == []


def test_a_driver_that_returns_after_its_main_program_ended_is_not_reported():
    harness = WatchHarness().poll().stopped(notice=Notice.ENDED)
    harness.polls(Said.REFUSED, 200).polls(Said.HEALTHY, 60)

    assert harness.ever_reported == set()


def test_a_driver_that_returns_for_a_moment_and_is_killed_is_critical():
    harness = WatchHarness(resolve_after=30.0).poll().stopped(notice=Notice.ENDED)
    harness.polls(Said.REFUSED, 310)
    assert [incident.severity for incident in harness.open] == ["warning"]
    harness.polls(Said.HEALTHY, 5).polls(Said.REFUSED, 40)

    assert [incident.severity for incident in harness.open] == ["critical"]


# -- ended after a failure that was reported ---------------------------------------------------

FAILED = (("gold", "StreamingQueryFailed"),)


@pytest.mark.parametrize("ended", [Said.REFUSED, Said.BROKEN, Said.REPLACED, Notice.FAILED])
def test_a_driver_that_has_reported_a_failure_has_five_minutes_to_return(ended):
    harness = WatchHarness().poll(reported=FAILED)
    if ended is Notice.FAILED:
        ended = Said.REFUSED
        harness = WatchHarness().poll().stopped(notice=Notice.FAILED, reported=FAILED)
        assert harness.news[-1].endswith("reported StreamingQueryFailed of gold and may come back")
    assert harness.polls(ended, 290).reported == []
    assert harness.polls(ended, 20).reported == ["etl"]
    assert "has ended after it reported StreamingQueryFailed of gold" in harness.page["reason"]
    assert harness.page["unhealthy_before"] == "gold: StreamingQueryFailed"


@pytest.mark.parametrize("by_notice", [True, False])
def test_a_job_that_fails_and_is_restarted_again_and_again_is_not_reported(by_notice):
    harness = WatchHarness(resolve_after=30.0)
    for _ in range(10):
        harness.polls(Said.HEALTHY, 60)
        if by_notice:
            harness.stopped(notice=Notice.FAILED, reported=FAILED)
        else:
            harness.poll(reported=FAILED)
        harness.polls(Said.REFUSED, 20)
    assert harness.ever_reported == set()


@pytest.mark.parametrize("story", ["healthy, refused 17", "silent 17", "stuck 17"])
def test_a_driver_that_has_recovered_or_is_frozen_is_reported_after_the_grace(story):
    assert WatchHarness().poll(reported=FAILED).play(story).reported == ["etl"]


# -- what an earlier watcher has left open -------------------------------------------------------

LEFT = [
    *(
        (f"{said} for long, as {name}", name, "A", f"{said} 600", [name])
        for name in ("etl", "etl@a:9719", "a:9719")
        for said in ("refused", "silent", "broken")
    ),
    ("the same for days", "etl", "A", "refused 30, wait 172800, refused 30", ["etl"]),
    ("healthy at another URL", "etl", "A B", "B healthy 30", ["etl"]),
    ("another app in its place", "etl", "A", "healthy app=other 60", ["etl"]),
    ("back", "etl", "A", "refused 5, healthy", []),
    ("back, under its name with the URL", "etl@a:9719", "A B", "B healthy 30, healthy", []),
    ("back, and killed again", "a:9719", "A", "healthy, refused 17", ["etl"]),
    ("back, without an app name", "etl", "A", "refused 5, healthy app=", []),
    ("no longer watched", "etl", "A B", "refused 5, list B", []),
    (
        "another app in its place for days",
        "etl",
        "A",
        "healthy app=other, wait 172800, healthy app=other",
        ["etl"],
    ),
]


@by_name("name, places, story, reported", LEFT)
def test_a_restored_alert_continues_until_its_driver_is_back(name, places, story, reported):
    harness = harness_of(places).restored(left_open(name, A, revision=3)).update()
    assert [incident.revision for incident in harness.open] == [3]
    assert harness.play(story).reported == reported
    assert harness.ever_reported == {name, *reported}


def test_a_restored_alert_of_a_pod_does_not_resolve_when_its_address_leaves_dns():
    harness = WatchHarness(pod(1), pod(2)).restored(left_open("etl", pod(1)))
    assert "etl" in harness.play("ONE refused, wait 172800, ONE refused").reported
    assert "etl" in harness.play("list TWO").reported


def test_a_restored_alert_waits_for_the_list_of_targets():
    harness = WatchHarness(None).restored(left_open("etl", A)).update().listed(A)
    assert harness.play("refused 600").ever_reported == {"etl"}


def test_an_alert_restored_late_resolves_with_the_one_opened_meanwhile():
    harness = WatchHarness().play("refused 90").restored(left_open("etl", A))
    assert harness.play("wait 86400, refused 30").reported == ["a:9719", "etl"]
    assert harness.play("healthy").ended == ["a:9719", "etl"]


def test_a_resolved_alert_is_not_restored():
    incident = left_open("etl", A)
    over = replace(incident, alerts=(incident.alerts[0].ended(WALL),))
    assert WatchHarness().restored(over).play("refused 10").ever_reported == set()


ORPHAN = [
    ("before it was healthy for long enough", None, "healthy 30", []),
    ("once", None, "healthy 600", ["etl@a:9719", "a:9719"]),
    ("not what is open", "a:9719", "healthy 60", ["etl@a:9719"]),
    ("not what this watcher has opened", None, "refused 62, healthy 60", ["etl@a:9719"]),
]


@by_name("left, story, stale", ORPHAN)
def test_what_may_be_open_of_a_healthy_driver_is_ended_but_not_under_the_name_of_the_driver(
    left, story, stale
):
    """The driver may have opened something under its own name meanwhile, and ends it itself."""
    incidents = () if left is None else (left_open(left, A),)
    assert WatchHarness(resolve_after=30.0).restored(*incidents).play(story).stale == stale


# -- drivers that refuse the watcher --------------------------------------------------------------


def test_a_driver_that_refuses_the_watcher_is_an_alert_of_the_watcher():
    harness = WatchHarness().play("healthy, barred 17")
    (alert,) = harness.blind
    assert (alert.name, alert.labels["app"]) == ("QuerypulseMonitoringDegraded", "querypulse-watch")
    assert (alert.query, alert.labels["severity"]) == ("*", "warning")
    assert "http://a:9719: barred; check --token-file" in alert.annotations["reason"]
    assert harness.ever_reported == set()
    harness.play("barred 3700")
    assert (harness.open[0].revision, harness.open[0].starts_at) == (1, alert.starts_at)


REFUSED = [
    (
        "two drivers",
        "A B",
        "healthy, B healthy app=other, barred + B barred 20",
        "http://a:9719, http://b:9719: ",
    ),
    (
        "a pod with an unknown app",
        "ONE TWO",
        "ONE healthy + TWO barred 20",
        "http://drivers:9719 (10.0.0.2): ",
    ),
    ("one that still does", "A B", "barred + B barred 20, healthy", "http://b:9719: "),
    ("never seen", "A", "barred 17", "http://a:9719: "),
]


@by_name("places, story, names", REFUSED)
def test_the_alert_names_each_driver_that_refuses_the_watcher(places, story, names):
    (alert,) = harness_of(places).play(story).blind
    assert alert.annotations["reason"].startswith(f"{names}barred; check")


NOT_REFUSED = [
    *(f"healthy, {said.value} 60" for said in (Said.HEALTHY, Said.UNREACHABLE, *BAD)),
    "healthy, barred 12, healthy, barred 12",
    "healthy, barred 10, refused 60, barred 10",
]


@pytest.mark.parametrize("story", NOT_REFUSED)
def test_other_answers_and_a_brief_refusal_raise_no_alert_of_the_watcher(story):
    assert WatchHarness().play(story).blind == []


@pytest.mark.parametrize(
    "after", ["wait 30, healthy", "refused 30", "wait 30, stopped, refused", "wait 30, list B"]
)
def test_the_alert_resolves_when_no_driver_refuses_the_watcher_any_more(after):
    harness = harness_of("A B").play("barred 17")
    assert sum("refuses this watcher: barred" in line for line in harness.news) == 1
    harness.play(after)
    assert harness.blind == []


def test_the_next_watcher_keeps_the_alert_until_it_knows_whether_it_is_refused():
    (left,) = WatchHarness().play("barred 17").open
    refused = WatchHarness(None).restored(left).update().listed(A)
    for _ in range(60):
        assert len(refused.play("barred").blind) == 1
    assert WatchHarness(B).restored(left).play("B healthy 31").blind == []


# -- runs that are late -----------------------------------------------------------------------

LATE = ("StreamingQueryMissing", "nightly")
DUE_AFTER = 600.0


def ran(*, due=DUE_AFTER, **fields):
    """A driver whose query must have completed its next run after so many seconds."""
    harness = WatchHarness(resolve_after=5.0)
    return harness.poll(due={"nightly": WALL + harness.now + due}, **fields)


def opened(harness):
    return [
        (alert.name, alert.labels["query"])
        for incident in harness.open
        for alert in incident.alerts
    ]


def test_run_that_is_late_is_reported_once_its_driver_has_ended_for_good():
    harness = ran().stopped()
    assert opened(harness.polls(Said.REFUSED, DUE_AFTER - 5)) == []
    assert opened(harness.polls(Said.REFUSED, 20)) == [LATE]
    (incident,) = harness.open
    assert incident.key == "querypulse/etl/nightly"
    assert "no run has completed for " in incident.alerts[0].annotations["reason"]
    harness.polls(Said.REFUSED, 600)
    assert [entry.key for entry in harness.open] == [incident.key]
    assert opened(harness.polls(Said.HEALTHY, 10)) == []


def test_run_is_late_although_another_app_was_at_the_address_meanwhile():
    harness = ran().stopped().polls(Said.HEALTHY, 20, app="other").stopped()
    assert opened(harness.polls(Said.REFUSED, DUE_AFTER)) == [LATE]


def moved(*, app="etl", due):
    """A job that has ended at A and runs at B, where its next run is due after ``due`` seconds."""
    harness = WatchHarness(A, B, resolve_after=5.0)
    began = WALL + harness.now
    harness.poll(due={"nightly": began + DUE_AFTER}).stopped()
    return harness.polls(Said.HEALTHY, 700, B, app=app, due={"nightly": began + due})


def test_run_of_a_job_that_has_moved_is_not_late_where_it_was():
    assert opened(moved(due=DUE_AFTER + DAY)) == []
    assert opened(moved(due=DUE_AFTER)) == [LATE]
    assert opened(moved(due=DUE_AFTER + DAY, app="other")) == [LATE]


def test_late_run_of_a_job_ends_once_it_has_completed_elsewhere():
    harness = moved(due=DUE_AFTER)
    harness.poll(B, due={"nightly": WALL + harness.now + DAY})
    assert opened(harness) == []


def test_killed_driver_and_its_late_run_are_two_incidents():
    harness = ran().polls(Said.REFUSED, DUE_AFTER + 20)
    assert sorted(opened(harness)) == [("StreamingDriverDown", "*"), LATE]


def test_restored_incident_of_a_late_run_ends_when_its_driver_is_back():
    (left,) = ran().stopped().polls(Said.REFUSED, DUE_AFTER + 20).open
    harness = WatchHarness(resolve_after=5.0).restored(left)
    assert opened(harness.polls(Said.REFUSED, 5)) == [LATE]
    assert LATE not in opened(harness.polls(Said.HEALTHY, 10))


def test_incident_that_the_driver_has_taken_over_is_open_until_the_driver_resolves_it():
    harness = ran().stopped().polls(Said.REFUSED, DUE_AFTER + 20)
    harness.polls(Said.HEALTHY, 60, reported=(("nightly", "StreamingQueryFailed"),))
    assert opened(harness) == [LATE]
    sent = [incident for incidents in harness.all for incident in incidents]
    assert not any(incident.is_over and not incident.is_orphan for incident in sent)
    assert opened(harness.polls(Said.HEALTHY, 2)) == []


@pytest.mark.parametrize(
    "story",
    [
        lambda: ran().polls(Said.HEALTHY, DUE_AFTER + 60, due={"nightly": WALL + 1500}),
        lambda: ran(due=DUE_AFTER).stopped().polls(Said.REFUSED, 60),
        # The next run has completed in time.
        lambda: (
            ran().stopped().poll(due={"nightly": WALL + 90_000}).stopped().polls(Said.REFUSED, 900)
        ),
        # It has no deadline any more.
        lambda: ran().poll().stopped().polls(Said.REFUSED, 900),
        # The driver has reported that itself.
        lambda: (
            ran(reported=(("nightly", "StreamingQueryMissing"),)).stopped().polls(Said.REFUSED, 900)
        ),
        lambda: (
            ran(
                reported=(
                    ("nightly", "StreamingQueryMissing"),
                    ("nightly", "StreamingQueryFlapping"),
                )
            )
            .stopped()
            .polls(Said.REFUSED, 900)
        ),
        # One poll that fails is no end.
        lambda: ran().polls(Said.HEALTHY, DUE_AFTER + 5).poll(said=Said.REFUSED),
    ],
    ids=["it runs", "not due yet", "completed", "no deadline", "reported", "two", "one poll"],
)
def test_run_that_is_not_late_or_is_known_is_not_reported(story):
    assert LATE not in opened(story())


# -- many drivers -----------------------------------------------------------------------------


def test_a_poll_of_one_driver_does_not_go_through_the_endpoints_of_all(monkeypatch):
    harness = harness_of("A B")
    tracker = harness.tracker
    many = [Endpoint(f"http://driver-{number}:9719") for number in range(100)]
    tracker.listed(many)
    for endpoint in many:
        poll = Poll(began_at=1.0, at=1.0, said=Said.HEALTHY, app=endpoint.url, holds_key=False)
        tracker.polled(endpoint, poll)
    looked_at = []
    look = tracker._endpoints_of
    monkeypatch.setattr(
        tracker, "_endpoints_of", lambda driver: looked_at.append(driver.app) or look(driver)
    )
    tracker.polled(many[0], replace(poll, app=many[0].url))

    assert set(looked_at) == {many[0].url}
    assert len(tracker.endpoint_states) == 100


def test_an_outage_of_all_drivers_compares_each_incident_with_the_drivers_at_its_address(
    monkeypatch,
):
    tracker = TargetTracker(15.0, 1.0)
    many = [Endpoint(f"http://driver-{number}:9719", loopback=True) for number in range(40)]
    tracker.listed(many)
    alerts = DriverAlerts(
        tracker,
        resolve_after_seconds=0.0,
        repeat_interval_seconds=DAY,
        guidance=Guidance("https://runbooks.example/{alertname}.md"),
    )
    for second in range(80):
        for endpoint in many:
            poll = Poll(began_at=second, at=second, said=Said.REFUSED)
            tracker.polled(endpoint, poll)
    assert len(alerts.update(80.0, WALL)) == len(many)
    named = []
    name = WatchedDriver.full_name.fget
    monkeypatch.setattr(
        WatchedDriver, "full_name", property(lambda self: named.append(0) or name(self))
    )
    alerts.update(81.0, WALL + 1)

    assert len(named) <= 10 * len(many)
