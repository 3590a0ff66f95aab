"""``python -m tools.wording``: reports each retired word in the checkout.

Retired words belong to a private dialect that newcomers had to learn. Names are split into their
words: ``_is_told`` and ``ToldTwice`` are found, ``retold`` is not.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
    ("CHANGELOG.md", "*"): "describes earlier versions in their own words",
    ("tools/wording.py", "*"): "lists the words",
    ("tests/test_wording.py", "*"): "tests the list",
    ("alerting/outbox/entry.py", "told"): "names in a spool's file, which earlier versions wrote",
}
"""A file and a word, ``*`` for all, and why the word stays there."""
_GENERATED = {".png", ".svg", ".zstd"}
"""Not read: pictures, and recordings of Spark's."""
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


def main() -> int:
    """Check every tracked text file; 1 if a word or an unused exception was found."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], text=True)  # noqa: S607 - git of the PATH, as people use it
    names = [name for name in listed.split("\0") if name and Path(name).is_file()]
    used: set[tuple[str, str]] = set()
    found = [
        message
        for name in names
        if Path(name).suffix not in _GENERATED
        for message in unexpected(name, Path(name).read_text(encoding="utf-8"), used)
    ]
    found += [f"{name}: {word!r} needs no exception" for name, word in EXCEPTIONS.keys() - used]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
