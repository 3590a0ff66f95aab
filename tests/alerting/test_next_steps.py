"""The next steps of each code name only what the message shows, and say how this job is restarted."""

from __future__ import annotations

import re
from itertools import product

import pytest
from support.found import EVIDENCES, FOUND, IDS, PAST, risk
from support.receiver_incidents import holding

from querypulse.alerting import facts, kinds
from querypulse.alerting.evidence import (
    NO_EVIDENCE,
)
from querypulse.alerting.finding import Severity, finding_about
from querypulse.alerting.kinds import Code
from querypulse.alerting.receivers.slack import slack_message
from querypulse.alerting.words.messages import FIRST, LAST, Guidance, alert_of
from querypulse.alerting.words.next_steps import NAMED_BY_STEPS
from querypulse.listener.failure import Failure, RaisedAt
from querypulse.settings.links import next_steps

HINT = "kubectl -n streaming rollout restart deploy/orders"
OTHERS = (
    "deaths",
    "known_queries",
    "listener_registered",
    "other_listeners",
    "exception",
    "waiting",
)
NAMES = {*FIRST, *LAST, *OTHERS} - {
    "reason",
    "queries",
    "table",
    "trigger",
    "sink",
    "checkpoint",
    "lag",
}
"""The names of evidence that are no plain words of a sentence; ``tasks`` and ``slots`` are both."""
PLAIN = {
    "cause",
    "tasks",
    "slots",
    "backlog",
    "where",
    "signals",
    "exception",
    "window",
    "downstream",
    "waiting",
    "retention",
    "traceback",
}
GUIDES = {
    hint: Guidance("https://runbooks/{alertname}", next_steps=next_steps(), restart_hints=hints)
    for hint, hints in {"": (), HINT: (("*", HINT),)}.items()
}


def shown(alertname, found, evidence, hint=""):
    finding = finding_about("a", alertname, Severity.CRITICAL, found, evidence)
    return alert_of(finding, "etl", GUIDES[hint], 0.0).annotations


def named_in(steps):
    """The names of evidence in next steps."""
    words = set(re.findall(r"[a-z]+(?:_[a-z]+)*", steps)) & (NAMES - PLAIN)
    read = re.findall(r"(?:[Rr]ead|and|those in) ([a-z_]+)[:;,. ]", steps)
    return words | (
        {*read}
        & (NAMES - {"window", "lag"})
        & PLAIN - {"where", "exception", "retention", "traceback"}
    )


CASES = [
    pytest.param(name, found, id=f"{name}-{found.code.value}-{index}")
    for name, every in FOUND.items()
    for index, found in enumerate(every)
]


@pytest.mark.parametrize(("alertname", "found"), CASES)
def test_next_steps_name_only_evidence_that_the_message_has(alertname, found):
    for given in EVIDENCES:
        annotations = shown(alertname, found, given)
        named = named_in(annotations["next_steps"])

        assert named <= annotations.keys(), annotations["next_steps"]
        assert named <= NAMED_BY_STEPS, "a group would not show it"
        lines = re.findall(r"^(\w+): ", annotations["description"], re.MULTILINE)
        assert named <= {*lines}, "Alertmanager would not show it"


@pytest.mark.parametrize(("alertname", "found"), CASES)
def test_next_steps_are_three_short_lines_without_marks(alertname, found):
    for given in EVIDENCES:
        steps = shown(alertname, found, given)["next_steps"].splitlines()

        assert [line[:3] for line in steps] == ["1. ", "2. ", "3. "]
        assert max(map(len, steps)) <= 170, steps
        assert not set("[]`*") & set("".join(steps))


LONG = Failure("ValueError", "m " * 750, "ValueError", raised_at=RaisedAt("/job.py:3", "t\n" * 600))


@pytest.mark.parametrize(
    ("alertname", "found"),
    [
        (kinds.QUERY_FAILED, facts.Failed(failure=LONG)),
        (kinds.QUERY_GIVEN_UP, facts.GivenUp(why=LONG.message, restarts=3)),
        (
            kinds.QUERY_FLAPPING,
            facts.PoisonBatch(
                times=3,
                error_class="ValueError",
                earlier=0,
                failures=PAST * 50,
                failure=LONG,
                batch_id=7,
            ),
        ),
    ],
)
def test_a_long_error_cuts_off_neither_the_next_steps_nor_the_restart_hint(alertname, found):
    finding = finding_about("a", alertname, Severity.CRITICAL, found, EVIDENCES[-1])
    alert = alert_of(finding, "etl", GUIDES[HINT], 0.0)

    for shown in (alert.annotations["description"][:1200], str(slack_message(holding(alert)))):
        assert "1. " in shown
        assert f"To restart it here: {HINT}" in shown


def test_the_longest_restart_hint_is_shown_in_slack_after_any_next_steps():
    hint = "h" * 500
    guidance = Guidance(
        "https://r/{alertname}", next_steps=next_steps(), restart_hints=(("*", hint),)
    )
    long = facts.Failed(failure=Failure("ValueError", "m " * 140, "ValueError"))
    cases = [*FOUND.items(), (kinds.QUERY_FAILED, [long])]
    for (name, every), given in product(cases, EVIDENCES):
        for found in every:
            alert = alert_of(
                finding_about("a", name, Severity.CRITICAL, found, given), "etl", guidance, 0.0
            )
            is_hinted = hint in alert.annotations["next_steps"]
            assert (hint in str(slack_message(holding(alert)))) == is_hinted, found


def code_of(found):
    return found.newest.facts.code if isinstance(found, facts.Unnamed) else found.code


def has_hint(alertname, found, given=NO_EVIDENCE):
    plain, hinted = (shown(alertname, found, given, hint)["next_steps"] for hint in ("", HINT))
    assert hinted in {plain, f"{plain}\nTo restart it here: {HINT}"}
    return hinted != plain


WITHOUT_HINT = {
    # It has happened already.
    Code.ATTEMPT_LOST,
    # Only their cause can be removed.
    Code.NO_EXECUTORS,
    Code.EXECUTORS_LOST,
    Code.WAITING_FOR_SLOTS,
    Code.LAG_RISES,
    Code.WAITED_TOO_LONG,
    Code.OPEN_TRANSACTION,
    Code.BATCHES_GROW,
    Code.WORKING,
    Code.ROWS_DROPPED,
    Code.DEGRADED,
    Code.PASSED_OVER,
    Code.DISK_FULL,
    # Another checkpoint, path, or a decision which query goes on.
    Code.OFFSETS_WENT_BACK,
    Code.BATCH_IDS_WENT_BACK,
    Code.SKIPPED_BY_SINK,
    Code.SINK_REMEMBERS,
    Code.WATERMARK_STUCK,
    Code.WATERMARK_AHEAD,
    Code.STATE_GROWS,
    Code.FOLDER_GONE,
    Code.CHECKPOINT_TAKEN,
    # It begins again from nothing.
    Code.NOT_COMMITTED,
    # Its client has ended, not the driver, which serves others.
    Code.SESSION_EXPIRED,
}
"""Codes after which a restart of the job as it is does harm, or cannot help."""


def test_a_restart_hint_is_shown_where_a_restart_as_it_is_helps():
    for (name, every), given in product(FOUND.items(), EVIDENCES):
        for found in every:
            if code_of(found) is not Code.RETENTION_USED:
                assert has_hint(name, found, given) == (code_of(found) not in WITHOUT_HINT), found


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("CONCURRENT_STREAM_LOG_UPDATE", ""),
        ("IllegalStateException", "Multiple streaming queries are concurrently using /cp"),
        ("OffsetOutOfRangeException", ""),
        ("UnknownTopicOrPartitionException", ""),
        ("StreamingQueryException", "t-0's offset was changed from 5000 to 12, some data may"),
        ("DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE", ""),
        ("DELTA_VERSIONS_NOT_CONTIGUOUS", ""),
        ("DELTA_SOURCE_IGNORE_DELETE", ""),
        ("DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", ""),
        ("FAILED_READ_FILE.FILE_NOT_EXIST", ""),
        ("IllegalStateException", "Cannot load current offset at snapshot 12"),
        ("IllegalStateException", "snapshot 1 is not a parent ancestor of end snapshot 2"),
        ("RuntimeException", "The snapshot with id 7 has expired"),
    ],
)
def test_after_an_error_that_a_restart_repeats_no_restart_hint_is_shown(error, message):
    assert not has_hint(kinds.QUERY_FAILED, facts.Failed(failure=Failure(error, message, error)))


@pytest.mark.parametrize(
    "error",
    [
        "ConnectException",
        "UNRELEASED_THREAD_ERROR",
        "UNKNOWN_FIELD_EXCEPTION",
        "CONNECT_SESSION_ENDED",
    ],
)
def test_after_an_error_that_a_restart_repairs_its_hint_is_shown(error):
    assert has_hint(kinds.QUERY_FAILED, facts.Failed(failure=Failure(error, "", error)))


def test_unread_data_that_is_gone_has_the_steps_of_the_error_of_its_source():
    def error(text):
        found = facts.Failed(failure=Failure("IllegalStateException", text, text))
        return shown(kinds.QUERY_FAILED, found, NO_EVIDENCE)["next_steps"]

    def unread(**changes):
        return shown(kinds.DATA_LOSS_RISK, risk(**changes), NO_EVIDENCE)["next_steps"]

    assert unread(gone="has expired", unit="snapshot") == error(
        "Cannot load current offset at snapshot 12"
    )
    assert unread(lost=3, unit="version") == error("DELTA_LOG_FILE_NOT_FOUND")
    assert unread(lost=3) == error("OffsetOutOfRangeException")
    assert has_hint(kinds.DATA_LOSS_RISK, risk())
    assert not has_hint(kinds.DATA_LOSS_RISK, risk(gone="x", unit="snapshot"))


def test_batch_ids_that_a_sink_remembers_have_the_steps_against_skipped_batches():
    went_back = shown(kinds.OFFSETS_REWOUND, IDS, NO_EVIDENCE)["next_steps"]
    skipped = shown(kinds.DATA_LOSS_RISK, facts.SinkRemembers(sink="x", ids=IDS), NO_EVIDENCE)

    assert went_back == skipped["next_steps"]


ALIKE = {
    (Code.WAITED_TOO_LONG, Code.LAG_RISES),
    (Code.SKIPPED_BY_SINK, Code.SINK_REMEMBERS),
    (Code.NO_EXECUTORS, Code.EXECUTORS_LOST),
    (Code.SILENT, Code.SHARED_CAUSE),
    (Code.STOPPED, Code.SHARED_CAUSE),
}
"""Codes of one kind with the same next steps: the same is to be done."""


def test_every_code_of_a_finding_is_in_the_table_and_codes_of_one_kind_have_steps_of_their_own():
    codes = {code_of(found) for every in FOUND.values() for found in every}
    without = {Code.UNNAMED, Code.NOT_EVALUATED, Code.NOT_SEEN_YET, Code.RESTARTING, Code.UPSTREAM}

    assert codes == set(Code) - without
    for name, every in FOUND.items():
        by_steps: dict[str, dict[Code, None]] = {}
        for found in every:
            steps = shown(name, found, NO_EVIDENCE)["next_steps"]
            by_steps.setdefault(steps, {})[code_of(found)] = None
        assert {tuple(alike) for alike in by_steps.values() if len(alike) > 1} <= ALIKE, name


def test_no_next_step_says_that_nothing_is_lost_where_rows_may_be_written_twice():
    for (name, every), given in product(FOUND.items(), EVIDENCES):
        for found in every:
            assert "nothing is lost" not in shown(name, found, given)["next_steps"]
