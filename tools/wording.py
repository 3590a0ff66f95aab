"""``python -m tools.wording``: report each retired word in the checkout.

Retired words belong to a private dialect that newcomers had to learn. Names are split into their
words: ``_is_told`` and ``ToldTwice`` are found, ``retold`` is not.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
RETIRED_NAMES = {
    "QueryFailed": "StreamingQueryFailed",
    "QueryGone": "StreamingQueryStopped",
    "QueryMissing": "StreamingQueryMissing",
    "CommitStalled": "StreamingQueryStalled",
    "OffsetStalled": "StreamingOffsetsStalled",
    "OffsetRewound": "StreamingOffsetsRewound",
    "BatchSlow": "StreamingBatchSlow",
    "QueryLagging": "StreamingQueryLagging",
    "QueryFlapping": "StreamingQueryFlapping",
    "WatermarkStuck": "StreamingWatermarkStuck",
    "DataLossRisk": "StreamingDataLossRisk",
    "DriverGone": "StreamingDriverDown",
    "MonitorBlind": "QuerypulseMonitoringDegraded",
    "PagesNotDelivered": "QuerypulseDeliveryFailing",
    "querypulse_driver_needed_timestamp_seconds": "querypulse_driver_expected_timestamp_seconds",
    "querypulse_probe_seconds": "querypulse_probe_duration_seconds",
    "querypulse_callback_seconds": "querypulse_callback_duration_seconds",
    "config_fault": "misconfigured",
    "Calm": "RecoveryWindow",
    "Course": "ActiveAlert",
    "Habits": "ReceiverCapabilities",
    "Pace": "SendSchedule",
    "Roll": "TargetTracker",
    "_courses": "_active",
    "board, _board": "published",
    "first_sign_seen": "activity_seen",
    "forms_of": "secret_variants",
    "hand_over, take_over": "escalate_to_fallback",
    "is_proven": "has_recovered",
    "last_sign_at": "last_activity_at",
    "named_table": "table_from_error",
    "second_try": "minimal_payload",
}
"""Retired names of alerts, metrics, classes and functions, and those that replaced them."""
EXCEPTIONS = {
    ("tools/wording.py", "*"): "lists the words",
    ("tests/dashboards/test_runbooks.py", "board"): "a dashboard of Grafana",
}
"""A file and a word, ``*`` for all, and why the word stays there."""
_INSTEAD = {
    word: new for words, new in (RETIRED | RETIRED_NAMES).items() for word in words.split(", ")
}
_NAMES = {name for names in RETIRED_NAMES for name in names.split(", ")}
_WORDS = _INSTEAD.keys() - _NAMES
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAME = re.compile(r"\w+")


def retired(text: str) -> Iterator[tuple[int, str]]:
    """The retired words, in lower case, and names of a text, each with the number of its line."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from ((number, name) for name in _NAME.findall(line) if name in _NAMES)
        words = (word.lower() for word in _WORD.findall(line))
        yield from ((number, word) for word in words if word in _WORDS)


def unexpected(name: str, text: str, used: set[tuple[str, str]]) -> Iterator[str]:
    """A message for each retired word of a file; exceptions that apply are added to ``used``."""
    for number, word in retired(text):
        applying = EXCEPTIONS.keys() & {(name, word), (name, "*")}
        used |= applying
        if not applying:
            yield f"{name}:{number}: {word!r} is retired: write {_INSTEAD[word]!r}"


def main() -> int:
    """Check every tracked text file; 1 if there is a retired word or an unused exception."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], text=True)  # noqa: S607 - git of the PATH, as people use it
    names = [name for name in listed.split("\0") if name and Path(name).is_file()]
    used: set[tuple[str, str]] = set()
    found = [
        message
        for name in names
        if Path(name).suffix not in NOT_READ
        for message in unexpected(
            name, Path(name).read_text(encoding="utf-8", errors="replace"), used
        )
    ]
    found += [f"{name}: {word!r} needs no exception" for name, word in EXCEPTIONS.keys() - used]
    sys.stdout.writelines(f"{message}\n" for message in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
