"""Fates and pages -> who told what how late, in figures."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median, quantiles
from typing import NamedTuple

from ..common.result import Row, at_most
from .cast import Actor
from .desk import CANDIDATES, DEATH, HANG, OURS, Page

MEDIAN_SECONDS = 0.6
P99_SECONDS = 1.5
WORDS = {DEATH: "death", HANG: "hang"}


class Outcome(NamedTuple):
    """What one candidate made of one query's fate; ``seconds`` None when it never told.

    For a hang they are those beyond the window. ``watched`` is how long it had.
    """

    candidate: str
    phase: str
    fate: str
    query: str
    seconds: float | None
    watched: float


def outcomes(
    actors: Mapping[str, Iterable[Actor]],
    pages: Sequence[Page],
    windows: Mapping[str, float | None],
    floor: float,
    ended: float,
) -> list[Outcome]:
    """One for each candidate and actor; ours and Prometheus go by our window."""
    first: dict[tuple[str, str, str], float] = {}
    for page in pages:
        first.setdefault((page.candidate, page.alertname, page.query), page.at)
    return [
        _outcome(candidate, phase, actor, first, windows[actor.name] or floor, ended)
        for phase, company in actors.items()
        for actor in company
        for candidate in CANDIDATES
    ]


def _outcome(
    candidate: str,
    phase: str,
    actor: Actor,
    first: Mapping[tuple[str, str, str], float],
    window: float,
    ended: float,
) -> Outcome:
    met_at = actor.met_at or 0.0
    due = met_at + window if actor.fate == HANG else met_at
    told = first.get((candidate, actor.fate, actor.name))
    seconds = None if told is None else told - due
    return Outcome(candidate, phase, actor.fate, actor.name, seconds, ended - due)


def rows_of(found: Sequence[Outcome], phases: Sequence[str]) -> list[Row]:
    """Ours against what was promised, the others beside it."""
    rows = []
    for fate, word in WORDS.items():
        for phase in phases:
            mine = _seconds(found, OURS, fate, phase)
            title = f"{word} to page, {phase} bus"
            rows.append(at_most(f"{title}, median of {len(mine)}", median(mine), 0.6, " s"))
            rows.append(at_most(f"{title}, p99 of {len(mine)}", p99(mine), 1.5, " s"))
    return rows


def p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[98]


def _seconds(found, candidate, fate, phase):
    return [
        float("inf") if one.seconds is None else one.seconds
        for one in found
        if (one.candidate, one.fate, one.phase) == (candidate, fate, phase)
    ]


def shown(found: Sequence[Outcome]) -> list[str]:
    text = []
    for fate in WORDS:
        for phase in ("idle", "clogged"):
            for candidate in CANDIDATES:
                s = sorted(_seconds(found, candidate, fate, phase))
                text.append(
                    f"{fate} {phase} {candidate} median {median(s):.2f} p99 {p99(s):.2f} max {s[-1]:.2f} min {s[0]:.2f} never {sum(x == float('inf') for x in s)} of {len(s)}"
                )
    return text
