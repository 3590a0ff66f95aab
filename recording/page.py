"""The page of incidents: one document that needs nothing else, and no script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files

from ..core.installed import VERSION
from ..core.text import utc
from .picture import (
    MEASURES,
    PATTERNS,
    Axis,
    Html,
    amount,
    axis_over,
    date_of,
    days_of,
    element,
    grid,
    joined,
    known_severity,
    linked_mark,
    symbol,
    tick_line,
    use,
)
from .section import Room, Section, scrolled, skip
from .timeline import Timeline

MOST_QUERIES = 400
"""A page of more, in all its incidents, shows only those with an alert."""
MAX_STRIP_ROWS = 8
STRIP_GAP = 0.03
"""Incidents that are nearer to each other, as a share of the strip, are drawn below each other."""


def page_of(timelines: Sequence[Timeline], title: str) -> str:
    """Draw incidents as one HTML document, the oldest first; of several, it begins with an index.

    It loads nothing, runs no script, and works from a file.
    """
    ordered = sorted(timelines, key=lambda timeline: timeline.summary.since)
    room = _room(ordered)
    is_alone = len(ordered) == 1
    sections = [
        Section(timeline, f"i{number}", room, is_alone=is_alone)
        for number, timeline in enumerate(ordered, 1)
    ]
    parts = [] if is_alone else [_index(sections, title)]
    parts += [section.html() for section in sections]
    main = element("main", *parts, id="main")
    about = (
        f"querypulse {VERSION}. All times are in UTC; +1:05 is 1 min 5 s after the incident began."
    )
    footer = element("footer", element("p", about), class_="soft")
    return document(title, style(), element("body", PATTERNS, main, footer))


def document(title: str, style: str, body: Html) -> str:
    """One HTML document with this style, without a script, that loads nothing."""
    return f'<!doctype html>\n<html lang="en">{_head(title, style)}{body}</html>\n'


def _head(title: str, style: str) -> Html:
    tags = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy(style))}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="robots" content="noindex"><meta name="referrer" content="no-referrer">'
        '<link rel="icon" href="data:,">'
    )
    name = element("title", f"{title} · querypulse")
    return element("head", Html(tags), name, Html(f"<style>{style}</style>"))


@cache
def style() -> str:
    """The style of the pages that this package, and others, draw."""
    return (files(__package__) / "page.css").read_text("utf-8")


def hash_of(source: str) -> str:
    """A style or a script as a source of a Content Security Policy (version 3, "script-src")."""
    return f"'sha256-{b64encode(sha256(source.encode()).digest()).decode()}'"


def policy(style: str) -> tuple[str, ...]:
    """The directives of a page's Content Security Policy: nothing but this style and its icon."""
    return (
        "default-src 'none'",
        f"style-src {hash_of(style)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )


def _room(timelines: Sequence[Timeline]) -> Room:
    """What all incidents of a page share: a page of one shows more of it."""
    queries = sum(len(timeline.batches) for timeline in timelines)
    details = sum(bool(moment.detail) for timeline in timelines for moment in timeline.moments)
    return Room(
        columns=_share(120_000, queries * len(MEASURES), least=60, most=600),
        rows=_share(10_000, queries, least=20, most=500),
        moments=_share(12_000, len(timelines), least=20, most=600),
        detail=_share(2_000_000, details, least=400, most=20_000),
        others=queries <= MOST_QUERIES,
    )


def _share(whole: int, count: int, *, least: int, most: int) -> int:
    return max(least, min(most, whole // max(1, count)))


# -- the index --------------------------------------------------------------------------------


def _index(sections: Sequence[Section], title: str) -> Html:
    """All incidents as a strip of time and as a table."""
    heading = element("h1", title, class_="headline")
    if not sections:
        return element("section", heading, element("p", "No incident.", class_="empty"), id="index")
    return element(
        "section", heading, _sentence(sections), _strip(sections), _list(sections), id="index"
    )


def _sentence(sections: Sequence[Section]) -> Html:
    first, last = sections[0].summary.since, max(section.ended_at for section in sections)
    count = sum(section.summary.notifications for section in sections)
    still = sum(section.summary.until is None for section in sections)
    what = f"{len(sections)} incidents and {amount(count)} notifications"
    rest = f"; {still} did not end" if still else ""
    words = f"{what}, {utc(first)} to {utc(last)}{rest}."
    return element("p", words, class_="sentence")


def _strip(sections: Sequence[Section]) -> Html:
    """A mark for each incident, which is a link; those that are close lie below each other."""
    times = [at for section in sections for at in (section.summary.since, section.ended_at)]
    axis = axis_over(times, "strip-grid")
    rows: list[list[Html]] = []
    free_from: list[float] = []
    for section in sections:
        begin = axis.share(section.summary.since)
        line = next((n for n, free in enumerate(free_from) if free <= begin), len(rows))
        line = min(line, MAX_STRIP_ROWS - 1)
        if line == len(rows):
            rows.append([])
            free_from.append(0.0)
        free_from[line] = max(axis.share(section.ended_at), begin) + STRIP_GAP
        rows[line].append(_strip_mark(axis, section))
    lines = grid(axis)
    drawings = (
        element("svg", use(axis), *marks, class_="lane", role="group", aria_label="Incidents")
        for marks in rows
    )
    caption = element("figcaption", f"{days_of(times)}, UTC", class_="soft")
    past = skip("Skip to the table", "index-table")
    parts = (caption, past, lines, *drawings, tick_line(axis))
    return element("figure", *parts, class_="picture strip")


def _strip_mark(axis: Axis, section: Section) -> Html:
    summary = section.summary
    kind = known_severity(summary.severity)
    words = f"{utc(summary.since)}, {section.lasted}: {summary.headline}"
    width = axis.width(summary.since, section.ended_at)
    bar = element("rect", x=axis.x(summary.since), y="40%", width=width, height="20%", rx="2")
    group = element("g", bar, class_=f"bar alert {kind}")
    mark = linked_mark(axis.x(summary.since), kind, words, f"#{section.anchor}")
    return joined([group, mark])


def _list(sections: Sequence[Section]) -> Html:
    heads = ("since (UTC)", "lasted", "query", "what", "cause", "how it ended", "notifications")
    head = element("tr", *(element("th", text, scope="col") for text in heads), role="row")
    # On a phone the rows are cards, which are a table only by these roles.
    body = element("tbody", *map(_entry, sections), role="rowgroup")
    caption = element("caption", "All incidents", class_="unseen")
    table = element("table", caption, element("thead", head), body, role="table")
    return scrolled(table, "All incidents", "index-table")


def _entry(section: Section) -> Html:
    summary = section.summary
    severity = element("span", f"{summary.severity}: ", class_="unseen")
    link = element("a", summary.headline, href=f"#{section.anchor}")
    unit = " notification" if summary.notifications == 1 else " notifications"
    cells: tuple[str, ...] = (
        f"{date_of(summary.since):%Y-%m-%d %H:%M:%S}",
        section.lasted,
        element("bdi", "the driver" if summary.query == "*" else summary.query),
        joined([symbol(known_severity(summary.severity)), severity, link]),
        summary.cause,
        summary.how,
        joined([str(summary.notifications), element("span", unit, class_="card")]),
    )
    return element("tr", *(element("td", cell, role="cell") for cell in cells), role="row")
