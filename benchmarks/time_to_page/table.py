"""Fates and pages -> who reported what how late, in figures."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isinf
from statistics import median
from typing import NamedTuple

from ..common.difference import difference_of_medians
from ..common.result import Row, at_most
from .cast import Actor
from .desk import CANDIDATES, DEATH, EVENT_ONLY, HANG, OURS, PROMETHEUS, Page
from .phases import candidates

MEDIAN_SECONDS = 0.6
P99_SECONDS = 1.5
WORDS = {DEATH: "death", HANG: "hang"}


class Outcome(NamedTuple):
    """How late one candidate reported one query's fate; ``seconds`` is infinite when it did not.

    For a hang they are those beyond the window. ``watched`` is how long it had.
    """

    candidate: str
    phase: str
    fate: str
    query: str
    seconds: float
    watched: float


def outcomes(
    actors: Mapping[str, Iterable[Actor]],
    pages: Sequence[Page],
    windows: Mapping[str, float],
    own_window: float,
    ended: float,
) -> list[Outcome]:
    """One for each candidate and actor; ``windows`` by query, the event-only one has its own.

    Hangs that end before Prometheus can report them do not count for it.
    """
    found = []
    for phase, company in actors.items():
        for actor in company:
            for candidate in candidates(phase):
                if candidate == PROMETHEUS and actor.fate == HANG and not actor.kept:
                    continue
                window = own_window if candidate == EVENT_ONLY else windows[actor.name]
                due = actor.met_at + (window if actor.fate == HANG else 0.0)
                reported_at = _reported_at(pages, candidate, actor)
                known = (candidate, phase, actor.fate, actor.name)
                found.append(Outcome(*known, reported_at - due, ended - due))
    return found


def _reported_at(pages: Sequence[Page], candidate: str, actor: Actor) -> float:
    """When its fate was first reported; a page from before it met it was for nothing."""
    wanted = (candidate, actor.fate, actor.name)
    times = (page.at for page in pages if page[:3] == wanted and page.at >= actor.met_at)
    return min(times, default=inf)


def for_nothing(actors: Mapping[str, Iterable[Actor]], pages: Sequence[Page]) -> dict[str, int]:
    """By candidate: how many queries were reported dead or hung that were not, at that time."""
    met = {(one.fate, one.name): one.met_at for company in actors.values() for one in company}
    wrong = {
        (page.candidate, page.alertname, page.query)
        for page in pages
        if page.alertname in WORDS and page.at < met.get((page.alertname, page.query), inf)
    }
    return {name: sum(one[0] == name for one in wrong) for name in CANDIDATES}


def rows(found: Sequence[Outcome], phases: Sequence[str]) -> list[Row]:
    """Ours against what was promised, the others beside it; the bus is idle in the first phase,
    clogged in the last.
    """
    made = []
    for fate, word in WORDS.items():
        for phase in phases:
            reported = {name: _of(found, name, fate, phase) for name in candidates(phase)}
            mine = [one.seconds for one in reported[OURS]]
            title = f"{word} to page, {phase} bus"
            made += [
                at_most(f"{title}: median", median(mine), MEDIAN_SECONDS, " s"),
                at_most(f"{title}: p99 of {len(mine)}", p99(mine), P99_SECONDS, " s"),
            ]
            made += [
                Row(f"{title}: {name}, to ours", _ratio(reported[name], mine))
                for name in reported
                if name != OURS
            ]
        made.append(_between(found, fate, phases))
    return made


def _between(found: Sequence[Outcome], fate: str, phases: Sequence[str]) -> Row:
    """What the bus changes for ours: nothing but chance, as promised."""
    ends = phases[0], phases[-1]
    idle, clogged = ([one.seconds for one in _of(found, OURS, fate, phase)] for phase in ends)
    question = f"{WORDS[fate]} to page: clogged bus, above idle"
    if any(map(isinf, idle + clogged)):
        return Row(question, "not all were reported", "at most its margin", reached=False)
    return difference_of_medians(clogged, idle).within_margin(question, " s")


def shown(found: Sequence[Outcome], phases: Sequence[str]) -> list[str]:
    """All candidates' figures as a small table."""
    head = f"{'  seconds':38}{'median':>8}{'p99':>8}{'most':>8}"
    body = [
        _line(f"{word}, {phase} bus, {candidate}", _of(found, candidate, fate, phase))
        for fate, word in WORDS.items()
        for phase in phases
        for candidate in candidates(phase)
    ]
    return ["", head, *body]


def p99(values: Sequence[float]) -> float:
    """The value that 99 of 100 do not exceed; of fewer, the greatest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def _line(title: str, found: Sequence[Outcome]) -> str:
    values = [one.seconds for one in found]
    figures = "".join(f"{f(values):>8.2f}" for f in (median, p99, max))
    return f"  {title:36}{figures}   {_unreported(found)}".rstrip()


def _ratio(theirs: Sequence[Outcome], mine: Sequence[float]) -> str:
    middle = median(one.seconds for one in theirs)
    if isinf(middle):
        return _unreported(theirs)
    # Whose window begins with the last event it received may report a hang before its time.
    times = f"{middle / median(mine):.0f}x" if middle > 0 else "too early"
    return ", ".join(filter(None, (f"{middle:.3g} s", times, _unreported(theirs))))


def _unreported(found: Sequence[Outcome]) -> str:
    """How many were never reported, and how old the youngest of them was at the end."""
    waited = [one.watched for one in found if isinf(one.seconds)]
    return f"{len(waited)} of {len(found)} not reported in {min(waited):.0f} s" if waited else ""


def _of(found: Sequence[Outcome], candidate: str, fate: str, phase: str) -> list[Outcome]:
    return [
        one for one in found if (one.candidate, one.fate, one.phase) == (candidate, fate, phase)
    ]
