"""``python -m tools.wording``: report each retired word in the checkout.

Retired words belong to a private dialect that newcomers had to learn. Names are split into their
words: ``_is_told`` and ``ToldTwice`` are found, ``retold`` is not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from .links import ROOT, tracked

NOT_READ = {".png", ".svg", ".zstd"}
"""Pictures, and recordings of Spark's."""
RETIRED = {
    "anew": "again",
    "befall, befalls, befell": "happen to",
    "court, courts": "evaluation, replay engine",
    "cured, ill, misery, sick": "recovered, unhealthy",
    "deaf": "does not receive events",
    "farewell": "shutdown notice",
    "fate, fates": "scenario",
    "heard": "received",
    "judge, judged, judgement, judgements, judges, judging, verdict, verdicts": "evaluate, health",
    "mend, mended, mends": "fix",
    "outfit": "components",
    "roster": "expected queries",
    "shelf": "bounded store",
    "animal, animals, cage, desk, ward, zoo": "workload, harness",
    "standstill, stands": "stuck, does not advance",
    "tell, telling, tells, told, untold": "report, notify, send",
    "whoever": "who",
    "witness, witnesses": "signal",
}
"""Retired words, and what to write instead. "cast" and "missed" have other uses."""
_INSTEAD = {word: new for words, new in RETIRED.items() for word in words.split(", ")}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def retired(name: str) -> Iterator[str]:
    """A message for each retired word of a file."""
    text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        for word in map(str.lower, _WORD.findall(line)):
            if word in _INSTEAD:
                yield f"{name}:{number}: {word!r} is retired: write {_INSTEAD[word]!r}"


def main() -> int:
    """Check every text file but this one, which lists the words; 1 if there is a retired word."""
    names = [name for name in tracked() if Path(name).suffix not in NOT_READ]
    messages = [text for name in names if name != "tools/wording.py" for text in retired(name)]
    sys.stdout.writelines(f"{message}\n" for message in messages)
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
