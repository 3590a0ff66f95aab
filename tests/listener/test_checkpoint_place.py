"""A checkpoint that does not survive a restart is reported: once in the log, always in /status."""

from __future__ import annotations

import logging

from msgspec.structs import replace
from support.published_states import published
from support.story import Story, run

from querypulse.exporter.status import status
from querypulse.listener.checkpoints import TEMPORARY, CheckpointWarnings, checkpoint_problem

UUID = "4f0c1c7e-91d4-4b8e-9a51-0c8b1a2d3e4f"
LOCAL = "file:/tmp/cp"


def test_checkpoint_that_does_not_survive_has_a_problem():
    places = [
        (f"file:/tmp/temporary-{UUID}", "temporary"),
        (f"file:/local_disk0/tmp/temporary-{UUID}/", "temporary"),
        (f"hdfs://nn/tmp/temporary-{UUID}", "temporary"),
        ("file:/tmp/cp/bronze", "under /tmp "),
        ("file:///tmp/cp", "under /tmp "),
        ("file:/tmp", "under /tmp "),
        ("file:/var/tmp/cp", "under /var/tmp "),
        ("file:/dev/shm/cp", "under /dev/shm "),
    ]
    problems = [(place, begins, checkpoint_problem(place)) for place, begins in places]

    assert [problem for problem in problems if not problem[2].startswith(problem[1])] == []


def test_other_checkpoint_has_no_problem():
    places = [
        "",
        "s3a://bucket/tmp/cp",
        "hdfs://nn/tmp/cp",
        "dbfs:/tmp/cp",
        "abfss://c@account.dfs.core.windows.net/tmp/cp",
        "file:/data/cp",
        "file:/tmpfs/cp",
        "file:/home/me/tmp/cp",
        "file:/mnt/cp/temporary-bronze",
        f"file:/mnt/temporary-{UUID}/bronze",
        f"file:/mnt/{UUID}",
    ]

    assert [place for place in places if checkpoint_problem(place)] == []


def at(place, query="a", number=1):
    seen = run(query, number)
    return replace(seen, facts=replace(seen.facts, checkpoint=place))


def warnings(caplog):
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


def test_problem_is_logged_once_with_the_queries_that_have_it(caplog):
    named, story = CheckpointWarnings(), Story()
    temporary = f"file:/tmp/temporary-{UUID}"
    story.probe(at(temporary), at(temporary, "b"), at(LOCAL, "c"), at=1)
    named.poll(story.state.snapshot(1))
    story.probe(at(temporary, number=2), at(LOCAL, "d"), at("s3a://b/cp", "e"), at=2)
    named.poll(story.state.snapshot(2))

    assert warnings(caplog) == [
        f"querypulse: the checkpoint of a, b is {TEMPORARY}",
        f"querypulse: the checkpoint of c is {checkpoint_problem(LOCAL)}",
    ]


def test_nothing_is_logged_before_the_probe_knows_the_checkpoint(caplog):
    CheckpointWarnings().poll(Story().started(at=0).state.snapshot(1))

    assert warnings(caplog) == []


def test_status_shows_the_problem_as_long_as_it_exists():
    story = Story().probe(at(LOCAL), at("s3a://b/cp", "b"), at=0).started("c", at=0)
    shown = {one.name: one.checkpoint_problem for one in status(published(story)).queries}

    assert shown == {"a": checkpoint_problem(LOCAL), "b": "", "c": None}
