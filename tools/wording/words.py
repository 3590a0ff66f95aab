"""Retired words, and how to find them in a text. Pure.

Retired words belong to a private dialect that newcomers had to learn. Names are split into their
words: ``_is_told`` and ``ToldTwice`` are found, ``retold`` is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

RETIRED = {
    "anew": "again",
    "befall, befalls, befell": "happen to",
    "cured, misery, sick": "recovered, unhealthy",
    "farewell": "shutdown notice",
    "heard": "received",
    "judge, judged, judgement, judgements, judges, judging, verdict, verdicts": "evaluate, health",
    "mend, mended, mends": "fix",
    "animal, animals, cage, desk, ward, zoo": "workload, harness",
    "standstill, stands": "stuck, does not advance",
    "tell, telling, tells, told, untold": "report, notify, send",
    "whoever": "who",
    "witness, witnesses": "signal",
}
"""Retired words, and what to write instead."""
EXCEPTIONS = {
    ("tools/wording/words.py", "*"): "lists the words",
    ("tests/repository/test_wording.py", "*"): "tests the list",
    ("alerting/outbox/entry.py", "told"): "names in a spool's file, which earlier versions wrote",
    ("tests/alerting/test_spool.py", "told"): "tests these names",
}
"""A file and a word, ``*`` for all, and why the word stays there."""
_INSTEAD = {word: new for words, new in RETIRED.items() for word in words.split(", ")}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def retired(text: str) -> Iterator[tuple[int, str]]:
    """The retired words of a text, in lower case, each with the number of its line."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in _WORD.findall(line):
            if word.lower() in _INSTEAD:
                yield number, word.lower()


def unexpected(name: str, text: str, used: set[tuple[str, str]]) -> Iterator[str]:
    """A message for each retired word of a file; exceptions that apply are added to ``used``."""
    for number, word in retired(text):
        applying = EXCEPTIONS.keys() & {(name, word), (name, "*")}
        used |= applying
        if not applying:
            yield f"{name}:{number}: {word!r} is retired: write {_INSTEAD[word]!r}"
