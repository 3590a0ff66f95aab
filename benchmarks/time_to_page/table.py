"""Failing queries and pages -> how late each candidate reported what, in figures."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isinf
from statistics import median
from typing import NamedTuple

from ..common.difference import difference_of_medians
from ..common.result import Row, at_most
from .page_receiver import CANDIDATES, DEATH, EVENT_ONLY, HANG, OURS, PROMETHEUS, TimedPage
from .workload import FailingQuery

MEDIAN_SECONDS = 0.6
P99_SECONDS = 1.5
WORDS = {DEATH: "death", HANG: "hang"}
IDLE, BLOCKED, SHARED, CLOGGED = PHASES = ("idle", "blocked", "shared", "clogged")
ALONE = (IDLE, BLOCKED)
"""Phases without the event-only listener, which keeps the bus and a core busy."""


def candidates(phase: str) -> tuple[str, ...]:
    """The candidates of a phase."""
    return tuple(name for name in CANDIDATES if phase not in ALONE or name != EVENT_ONLY)


class ReportDelay(NamedTuple):
    """How late one candidate reported one query; ``seconds`` is infinite if it did not.

    For a hang, ``seconds`` counts from the end of the window. ``watched`` is how long it had.
    """

    candidate: str
    phase: str
    alertname: str
    query: str
    seconds: float
    watched: float


def outcomes(
    failing: Mapping[str, Iterable[FailingQuery]],
    pages: Sequence[TimedPage],
    windows: Mapping[str, float],
    own_window: float,
    ended: float,
) -> list[ReportDelay]:
    """One for each candidate and query; ``windows`` by query, the event-only one has its own.

    Hangs that end before Prometheus can report them do not count for it.
    """
    found = []
    for phase, company in failing.items():
        for query in company:
            for candidate in candidates(phase):
                if candidate == PROMETHEUS and query.alertname == HANG and not query.kept:
                    continue
                window = own_window if candidate == EVENT_ONLY else windows[query.name]
                due = query.met_at + (window if query.alertname == HANG else 0.0)
                reported_at = _reported_at(pages, candidate, query)
                known = (candidate, phase, query.alertname, query.name)
                found.append(ReportDelay(*known, reported_at - due, ended - due))
    return found


def _reported_at(pages: Sequence[TimedPage], candidate: str, query: FailingQuery) -> float:
    """When the query was first reported; a page from before it failed or hung does not count."""
    wanted = (candidate, query.alertname, query.name)
    times = (page.at for page in pages if page[:3] == wanted and page.at >= query.met_at)
    return min(times, default=inf)


def for_nothing(
    failing: Mapping[str, Iterable[FailingQuery]], pages: Sequence[TimedPage]
) -> dict[str, int]:
    """By candidate: how many queries were reported as failed or hung before they were."""
    met = {(one.alertname, one.name): one.met_at for company in failing.values() for one in company}
    wrong = {
        (page.candidate, page.alertname, page.query)
        for page in pages
        if page.alertname in WORDS and page.at < met.get((page.alertname, page.query), inf)
    }
    return {name: sum(one[0] == name for one in wrong) for name in CANDIDATES}


def rows(found: Sequence[ReportDelay], phases: Sequence[str]) -> list[Row]:
    """Ours against its targets, and the others, in each phase."""
    made = []
    for alertname, word in WORDS.items():
        for phase in phases:
            reported = {name: _of(found, name, alertname, phase) for name in candidates(phase)}
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
        made.append(_blocked_above_idle(found, alertname))
    return made


def _blocked_above_idle(found: Sequence[ReportDelay], alertname: str) -> Row:
    """The effect of the bus on ours: the target is that it is within noise."""
    idle, blocked = (
        [one.seconds for one in _of(found, OURS, alertname, phase)] for phase in (IDLE, BLOCKED)
    )
    question = f"{WORDS[alertname]} to page: blocked bus, above idle"
    if any(map(isinf, idle + blocked)):
        return Row(question, "not all were reported", "at most its margin", reached=False)
    return difference_of_medians(blocked, idle).within_margin(question, " s")


def shown(found: Sequence[ReportDelay], phases: Sequence[str]) -> list[str]:
    """All candidates' figures as a small table."""
    head = f"{'  seconds':38}{'median':>8}{'p99':>8}{'most':>8}"
    body = [
        _line(f"{word}, {phase} bus, {candidate}", _of(found, candidate, alertname, phase))
        for alertname, word in WORDS.items()
        for phase in phases
        for candidate in candidates(phase)
    ]
    return ["", head, *body]


def p99(values: Sequence[float]) -> float:
    """The value that 99 of 100 do not exceed; of fewer, the greatest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def _line(title: str, found: Sequence[ReportDelay]) -> str:
    values = [one.seconds for one in found]
    figures = "".join(f"{f(values):>8.2f}" for f in (median, p99, max))
    return f"  {title:36}{figures}   {_unreported(found)}".rstrip()


def _ratio(theirs: Sequence[ReportDelay], mine: Sequence[float]) -> str:
    middle = median(one.seconds for one in theirs)
    if isinf(middle):
        return _unreported(theirs)
    # A candidate whose window begins at its last event may report a hang too early.
    times = f"{middle / median(mine):.0f}x" if middle > 0 else "too early"
    return ", ".join(filter(None, (f"{middle:.3g} s", times, _unreported(theirs))))


def _unreported(found: Sequence[ReportDelay]) -> str:
    """How many were never reported, and how old the youngest of them was at the end."""
    waited = [one.watched for one in found if isinf(one.seconds)]
    return f"{len(waited)} of {len(found)} not reported in {min(waited):.0f} s" if waited else ""


def _of(
    found: Sequence[ReportDelay], candidate: str, alertname: str, phase: str
) -> list[ReportDelay]:
    return [
        one
        for one in found
        if (one.candidate, one.alertname, one.phase) == (candidate, alertname, phase)
    ]
