"""Retired words are found in prose and in names, and nowhere else."""

from __future__ import annotations

import runpy
from types import SimpleNamespace

import pytest
from support.repository import ROOT

wording = SimpleNamespace(**runpy.run_path(str(ROOT / "tools/wording/words.py")))

FOUND = [
    ("Whoever sees it first", ["whoever"]),
    ("it is told, told twice", ["told", "told"]),
    ("def _is_told(self):", ["told"]),
    ("class ToldTwice:", ["told"]),
    ("TOLD_AT = 1", ["told"]),
    ("the `witnesses`", ["witnesses"]),
    ("ListenerDeaf fires", ["deaf"]),
    ("a query is ill", ["ill"]),
    ("no Verdict of a Court", ["verdict", "court"]),
    ("alert: QueryFailed", ["QueryFailed"]),
    ("rate(querypulse_probe_seconds[5m])", ["querypulse_probe_seconds"]),
    ("class Trouble(NamedTuple):", ["Trouble"]),
    ("outbox.take_over()", ["take_over"]),
]
KEPT = [
    "a wardrobe for the retold story, standing outstanding, broadcast forward",
    "the threshold is unheard-of in heartbeat, amended, recommended",
    "install, cancellation, intelligent, satellite, telltale",
    "TOLDAT",
    "StreamingQueryFailed, querypulse_probe_duration_seconds, test_data_loss_risk",
    "of course, a pace, calm, trouble, in a roll, still, fill",
    "rule_group_iterations_total, CAST(value AS STRING), a courtesy",
    "",
]


@pytest.mark.parametrize(("text", "words"), FOUND)
def test_a_retired_word_is_found(text, words):
    assert [word for _, word in wording.retired(text)] == words


@pytest.mark.parametrize("text", KEPT)
def test_other_words_are_kept(text):
    assert list(wording.retired(text)) == []


def test_a_message_names_the_place_and_the_word_to_write():
    assert list(wording.unexpected("docs/x.md", "fine\n\nit starts anew", set())) == [
        "docs/x.md:3: 'anew' is retired: write 'again'"
    ]


def test_an_exception_keeps_one_word_in_one_file_and_is_marked_as_used():
    name, word = "alerting/outbox_entry.py", "told"
    used = set()

    assert list(wording.unexpected(name, "told", used)) == []
    assert used == {(name, word)}
    assert len(list(wording.unexpected(name, "anew", set()))) == 1
    assert len(list(wording.unexpected("alerting/outbox.py", "told", set()))) == 1


def test_every_exception_has_a_reason():
    assert all(len(reason.split()) > 2 for reason in wording.EXCEPTIONS.values())
