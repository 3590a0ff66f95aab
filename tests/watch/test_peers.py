"""Several watchers side by side: which one notifies, and what the next one knows."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace
from support.patience import PATIENCE_SECONDS, WALL, until
from support.watch_harness import A, left_open

from querypulse.alerting.delivery.deliveries import Delivery, Notifier
from querypulse.alerting.delivery.outbox import Outbox
from querypulse.alerting.receivers.receiver import DeliveryError, ReceiverCapabilities
from querypulse.core.guard import Guard
from querypulse.core.states import DeliveryOutcome
from querypulse.core.threads import Deadline
from querypulse.watch.peers import KEEP_ENDED_SECONDS, PEER, Leadership, decoded, peer_page

GONE_AFTER = 15.0
ELDER, OWN, YOUNGER = (1.0, "a"), (2.0, "b"), (3.0, "c")
URL, OTHER = "http://peer:9700", "http://other:9700"


def leadership(*urls):
    return Leadership(OWN, urls or (URL,), GONE_AFTER)


def play(lead, *answers, now=100.0, url=URL):
    """One poll a second, with these answers; the time after them."""
    for rank in answers:
        lead.polled(url, now, now, rank)
        now += 1.0
    return now


# -- who sends --------------------------------------------------------------------------------


def test_a_watcher_without_peers_sends_at_once():
    assert Leadership(OWN, (), GONE_AFTER).leads(0.0)


def test_nobody_sends_before_its_peer_was_asked():
    assert not leadership().leads(100.0)


def test_the_elder_sends_once_the_younger_had_time_to_learn_of_it():
    lead = leadership()
    now = play(lead, YOUNGER)
    assert not lead.leads(now)
    now = play(lead, YOUNGER, YOUNGER, now=now)
    assert lead.leads(now)


def test_the_younger_never_sends_while_the_elder_answers():
    lead = leadership()
    now = play(lead, *[ELDER] * 100)
    assert not lead.leads(now)


def test_the_younger_sends_once_the_elder_has_not_answered_for_long():
    lead = leadership()
    now = play(lead, ELDER, ELDER, *[None] * 14)
    assert not lead.leads(now)
    now = play(lead, *[None] * 4, now=now)
    assert lead.leads(now)


def test_a_peer_that_has_never_answered_is_waited_for_as_long():
    lead = leadership()
    now = play(lead, *[None] * 14)
    assert not lead.leads(now)
    assert lead.leads(play(lead, *[None] * 4, now=now))


def test_one_lost_answer_of_the_elder_changes_nothing():
    lead = leadership()
    now = play(lead, *[ELDER, None] * 30)
    assert not lead.leads(now)


def test_the_elder_goes_on_while_the_younger_does_not_answer():
    lead = leadership()
    now = play(lead, YOUNGER, YOUNGER, YOUNGER)
    for _ in range(30):
        now = play(lead, None, now=now)
        assert lead.leads(now)


def test_a_peer_that_restarts_is_younger_and_leaves_the_sending():
    lead = leadership()
    now = play(lead, ELDER, None, None, YOUNGER, YOUNGER, YOUNGER)
    assert lead.leads(now)


def test_the_younger_holds_back_at_the_first_answer_of_an_elder_that_was_gone():
    lead = leadership()
    now = play(lead, ELDER, *[None] * 20)
    assert lead.leads(now)
    now = play(lead, ELDER, now=now)
    assert not lead.leads(now)


def test_a_watcher_that_was_frozen_does_not_send_before_it_has_asked_again():
    lead = leadership()
    now = play(lead, YOUNGER, YOUNGER, YOUNGER)
    assert lead.leads(now)
    assert not lead.leads(now + 60)
    lead.polled(URL, now + 60, now + 60, YOUNGER)
    assert not lead.leads(now + 60)


def test_failures_before_a_pause_of_the_watcher_itself_do_not_count():
    lead = leadership()
    now = play(lead, ELDER, *[None] * 13)
    now = play(lead, None, None, None, now=now + 60)
    assert not lead.leads(now)


def test_a_watcher_ignores_itself_in_a_list_of_all_watchers():
    lead = leadership(URL, OTHER)
    now = 100.0
    for _ in range(4):
        lead.polled(OTHER, now, now, OWN)
        lead.polled(URL, now, now, YOUNGER)
        now += 1.0
    assert lead.leads(now)
    assert [peer.url for peer in lead.seen(now)] == [URL]


def test_of_three_the_second_does_not_send_while_the_first_answers():
    lead = leadership(URL, OTHER)
    now = 100.0
    for _ in range(30):
        lead.polled(OTHER, now, now, None)
        lead.polled(URL, now, now, ELDER)
        now += 1.0
    assert not lead.leads(now)
    assert lead.is_led_by(URL)


def play_failing(lead, seconds, *receivers, now=100.0):
    """The elder answers, and these receivers do not take what it sends; the time after them."""
    for _ in range(seconds):
        lead.polled(URL, now, now, ELDER, receivers)
        now += 1.0
    return now


def test_the_younger_sends_to_a_receiver_that_the_elder_cannot_reach_and_to_no_other():
    lead = leadership()
    now = play_failing(lead, 15, "pager")
    assert not lead.leads(now - 1.0, "pager")
    now = play_failing(lead, 2, "pager", now=now)
    assert lead.leads(now, "pager")
    assert not lead.leads(now, "chat")
    assert not lead.leads(now)


def test_the_younger_leaves_a_receiver_to_the_elder_once_that_reaches_it_again():
    lead = leadership()
    now = play_failing(lead, 20, "pager")
    now = play_failing(lead, 1, now=now)
    assert not lead.leads(now, "pager")


def test_a_receiver_that_fails_now_and_then_is_left_to_the_elder():
    lead = leadership()
    now = 100.0
    for _ in range(10):
        now = play_failing(lead, 10, "pager", now=now)
        assert not lead.leads(now, "pager")
        now = play_failing(lead, 1, now=now)


def test_of_three_the_last_sends_only_where_neither_of_the_others_reaches_the_receiver():
    lead = Leadership(YOUNGER, (URL, OTHER), GONE_AFTER)
    for failing_at_second, expected in ((), False), (("pager",), True):
        now = 100.0
        for _ in range(20):
            lead.polled(URL, now, now, ELDER, ("pager",))
            lead.polled(OTHER, now, now, OWN, failing_at_second)
            now += 1.0
        assert lead.leads(now, "pager") is expected


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((ELDER,), "sends"),
        ((YOUNGER,), "holds back"),
        ((ELDER, None), "does not answer"),
        ((ELDER, *[None] * 20), "is gone"),
    ],
    ids=("elder", "younger", "failing", "gone"),
)
def test_the_page_says_what_a_peer_does(answers, words):
    lead = leadership()
    now = play(lead, *answers)
    assert [peer.detail for peer in lead.seen(now)] == [words]


# -- what was sent ----------------------------------------------------------------------------


def outbox():
    return Outbox(ReceiverCapabilities(), keep_ended_seconds=KEEP_ENDED_SECONDS)


def send(box, now):
    """What the outbox sends now, all of it accepted."""
    sent = []
    while (incident := box.begin(now, now)) is not None:
        box.delivered(now)
        sent.append("resolved" if incident.is_over else "firing")
    return sent


INCIDENT = left_open("etl", A)


def over(at):
    (alert,) = INCIDENT.alerts
    return replace(INCIDENT, alerts=(alert.ended(at),))


def opened(*incidents, now=WALL):
    box = outbox()
    box.offer(incidents, now)
    return box


def rows_of(box):
    return [row for row in box.rows if not row.incident.is_orphan]


def mirror(box, other, now, *, is_leader=True):
    return box.mirror(rows_of(other), now, is_leader=is_leader)


def test_what_the_peer_has_sent_is_not_sent_again():
    leader, follower = opened(INCIDENT), opened(INCIDENT)
    assert send(leader, WALL) == ["firing"]
    mirror(follower, leader, WALL)
    assert send(follower, WALL + 60) == []


def test_what_the_peer_had_not_sent_is_sent():
    leader, follower = opened(INCIDENT), opened(INCIDENT)
    mirror(follower, leader, WALL)
    assert send(follower, WALL + 60) == ["firing"]


def test_what_was_open_is_resolved_by_the_next_one():
    leader, follower = opened(INCIDENT), opened(INCIDENT)
    send(leader, WALL)
    mirror(follower, leader, WALL)
    follower.offer([over(WALL + 60)], WALL + 60)
    assert send(follower, WALL + 60) == ["resolved"]


def test_what_the_peer_has_resolved_is_not_resolved_again():
    leader, follower = opened(INCIDENT), opened(INCIDENT)
    send(leader, WALL)
    leader.offer([over(WALL + 60)], WALL + 60)
    assert send(leader, WALL + 61) == ["resolved"]
    mirror(follower, leader, WALL + 62)
    follower.offer([over(WALL + 63)], WALL + 63)
    mirror(follower, leader, WALL + 64)
    assert send(follower, WALL + 65) == []


def test_what_the_peer_alone_has_opened_is_continued_and_ends_here():
    leader, other = opened(), opened(INCIDENT)
    send(other, WALL)
    assert mirror(leader, other, WALL + 1, is_leader=False) == [INCIDENT]
    leader.offer([INCIDENT], WALL + 2)
    assert send(leader, WALL + 2) == []
    leader.offer([over(WALL + 60)], WALL + 60)
    assert send(leader, WALL + 60) == ["resolved"]


def test_what_the_leader_never_had_to_send_is_dropped_once_it_is_over():
    follower = opened(INCIDENT)
    follower.offer([over(WALL + 60)], WALL + 60)
    mirror(follower, opened(), WALL + 61)
    assert send(follower, WALL + 62) == []


def test_what_the_leader_has_yet_to_send_is_kept_though_it_is_over():
    leader, follower = opened(INCIDENT), opened(INCIDENT)
    for box in (leader, follower):
        box.offer([over(WALL + 60)], WALL + 60)
    mirror(follower, leader, WALL + 61)
    assert send(follower, WALL + 62) == ["firing", "resolved"]


def test_what_only_the_follower_sees_is_sent_once_it_leads():
    follower = opened(INCIDENT)
    mirror(follower, opened(), WALL + 1)
    assert send(follower, WALL + 2) == ["firing"]


def test_reminders_of_the_peer_count():
    leader, follower = opened(INCIDENT), opened(INCIDENT)
    reminder = replace(INCIDENT, revision=1)
    send(leader, WALL)
    leader.offer([reminder], WALL + 10)
    assert send(leader, WALL + 10) == ["firing"]
    mirror(follower, leader, WALL + 11)
    follower.offer([reminder], WALL + 12)
    mirror(follower, leader, WALL + 13)
    assert send(follower, WALL + 14) == []


def test_a_revision_that_only_the_follower_counts_makes_nobody_send_again():
    leader, follower = opened(INCIDENT), opened(INCIDENT)
    send(leader, WALL)
    mirror(follower, leader, WALL)
    follower.offer([replace(INCIDENT, revision=1)], WALL + 1)
    for second in range(2, 5):
        mirror(follower, leader, WALL + second)
        mirror(leader, follower, WALL + second, is_leader=False)
        assert send(leader, WALL + second) == []
    assert send(follower, WALL + 6) == ["firing"]


def test_an_older_word_of_the_peer_does_not_replace_what_was_sent_since():
    leader, follower = opened(INCIDENT), opened(INCIDENT)
    send(leader, WALL)
    before = rows_of(leader)
    mirror(follower, leader, WALL)
    follower.offer([over(WALL + 60)], WALL + 60)
    assert send(follower, WALL + 60) == ["resolved"]
    follower.mirror(before, WALL + 61, is_leader=False)
    assert send(follower, WALL + 62) == []


def test_a_row_that_was_resolved_is_forgotten_after_a_while():
    box = opened(INCIDENT)
    send(box, WALL)
    box.offer([over(WALL + 1)], WALL + 1)
    send(box, WALL + 1)
    assert len(rows_of(box)) == 1
    box.offer([], WALL + 2 + KEEP_ENDED_SECONDS)
    assert rows_of(box) == []


# -- the page for peers -----------------------------------------------------------------------


def notifier_of(answer):
    """A notifier whose only receiver, ``pager``, answers all with this."""

    def send(incident, wall):
        raise DeliveryError("no", answer)

    receiver = SimpleNamespace(
        name="pager", capabilities=ReceiverCapabilities(), send=send, close=lambda: None
    )
    clock = itertools.count(0.0, 1000.0)
    return Notifier([Delivery(receiver, Guard(), clock=lambda: next(clock))])


def page(notifier, *, alive=True):
    reply = peer_page(leadership(), notifier, lambda: alive)[PEER]()
    return reply.code, reply.body


@pytest.mark.parametrize(
    ("answer", "failing"),
    [
        (DeliveryOutcome.TRANSIENT, ["pager"]),
        (DeliveryOutcome.MISCONFIGURED, ["pager"]),
        (DeliveryOutcome.REJECTED, []),
    ],
)
def test_a_watcher_says_which_receivers_it_does_not_reach(answer, failing):
    notifier = notifier_of(answer)
    (delivery,) = notifier.deliveries
    assert notifier.failing() == []
    notifier.start()
    try:
        notifier.offer((INCIDENT,))
        until(lambda: delivery.is_failing or delivery.outcomes["rejected"], "it was refused")
        code, body = page(notifier)
    finally:
        notifier.close(Deadline(PATIENCE_SECONDS))
    assert code == 200
    assert decoded(body).failing == failing


def test_a_page_whose_rows_lack_a_label_is_refused_as_a_whole():
    """What is taken over is sent later, and would fail there."""
    box = opened(INCIDENT)
    nameless = replace(INCIDENT, labels={"app": "orders"})
    rows = {"pager": [replace(row, incident=nameless) for row in rows_of(box)]}
    body = msgspec.json.encode({"id": "other", "since": WALL, "rows": rows})

    with pytest.raises(ValueError, match="without one of its labels"):
        decoded(body)


def test_a_watcher_whose_evaluation_hangs_does_not_claim_to_send():
    assert page(Notifier([]), alive=False)[0] == 503
