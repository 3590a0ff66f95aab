"""The page of incidents: one document that needs nothing else, and no script."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from statistics import median

import msgspec

from ..core.installed import VERSION
from ..core.text import exact_duration, utc
from .picture import (
    DURATION,
    MEASURES,
    NAMES,
    PATTERNS,
    Axis,
    Html,
    Linked,
    Measure,
    Point,
    ages_of,
    amount,
    axis_over,
    clock,
    date_of,
    day,
    days_of,
    element,
    grid,
    joined,
    kind_of,
    lane,
    linked_mark,
    plot,
    plot_words,
    points_of,
    row,
    scale_of,
    symbol,
    tick_line,
    use,
)
from .timeline import Batch, Moment, Span, Timeline, What

QUESTIONS = {
    "first": "What happened first?",
    "held_by": "What held it?",
    "notified": "Who was notified?",
    "done": "What was done?",
    "ended": "What ended it?",
}
UNKNOWN = "The recording does not say."
MAX_ALERT_LANES = 12
MAX_STRIP_ROWS = 8
HOUR_MINUTES = 60
SHORT_SECONDS = 59.5
"""A shorter time since the beginning is shown with tenths of a second."""
STRIP_GAP = 0.03
"""Incidents that are nearer to each other, as a share of the strip, are drawn below each other."""


class Room(msgspec.Struct, frozen=True):
    """How much of each incident fits, so that a page of many stays a few megabytes."""

    columns: int
    """Of a plot."""
    rows: int
    """Of a table of batches."""
    moments: int
    detail: int
    """Characters of what is folded below a moment."""


def page_of(timelines: Sequence[Timeline], title: str) -> str:
    """Draw incidents as one HTML document, the oldest first; of several, it begins with an index.

    It loads nothing, runs no script, and works from a file.
    """
    ordered = sorted(timelines, key=lambda timeline: timeline.summary.since)
    room = _room(ordered)
    is_alone = len(ordered) == 1
    stories = [
        _Story(timeline, f"i{number}", room, is_alone=is_alone)
        for number, timeline in enumerate(ordered, 1)
    ]
    parts = [] if is_alone else [_index(stories, title)]
    parts += [story.section() for story in stories]
    main = element("main", *parts, id="main")
    skip = element("a", "Skip to what happened", href="#main", class_="skip")
    about = (
        f"querypulse {VERSION}. All times are in UTC; +1:05 is 1 min 5 s after the incident began."
    )
    footer = element("footer", element("p", about), class_="soft")
    body = element("body", skip, PATTERNS, main, footer)
    return f'<!doctype html>\n<html lang="en">{_head(title)}{body}</html>\n'


def _head(title: str) -> Html:
    tags = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy())}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta name="robots" content="noindex"><meta name="referrer" content="no-referrer">'
        '<link rel="icon" href="data:,">'
    )
    style = Html(f"<style>{_style()}</style>")
    name = element("title", f"{title} · querypulse")
    return element("head", Html(tags), name, style)


@cache
def _style() -> str:
    return (files(__package__) / "page.css").read_text("utf-8")


def style_hash() -> str:
    """The source of the page's only style, for a Content Security Policy."""
    return f"'sha256-{b64encode(sha256(_style().encode()).digest()).decode()}'"


def policy() -> tuple[str, ...]:
    """The directives of the page's Content Security Policy: nothing but its style and its icon."""
    return (
        "default-src 'none'",
        f"style-src {style_hash()}",
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
    )


def _share(whole: int, count: int, *, least: int, most: int) -> int:
    return max(least, min(most, whole // max(1, count)))


class _Story:
    """One incident, and the names of its parts in the document."""

    def __init__(self, timeline: Timeline, anchor: str, room: Room, *, is_alone: bool) -> None:
        self._level = 1 if is_alone else 2
        self.timeline = timeline
        self.summary = timeline.summary
        self.anchor = anchor
        self._room = room
        times = _times(timeline)
        self.axis = axis_over(times, f"{anchor}-grid")
        self._days = days_of(times)
        self._rest = self._left_out()
        self._linked = [self._link(number) for number in range(len(timeline.moments))]

    @property
    def ended_at(self) -> float:
        """When it ended, or when something was last recorded."""
        times = (moment.at for moment in self.timeline.moments)
        last = max(times, default=self.summary.since)
        return last if self.summary.until is None else self.summary.until

    @property
    def lasted(self) -> str:
        """How long it lasted."""
        seconds = max(0.0, self.ended_at - self.summary.since)
        return f"{'at least ' if self.summary.until is None else ''}{exact_duration(seconds)}"

    def _left_out(self) -> range:
        """The numbers of the moments for which there is no room: those in the middle."""
        count, most = len(self.timeline.moments), self._room.moments
        return range(most // 2, most // 2 + max(0, count - most))

    def _link(self, number: int) -> Linked:
        anchor = "rest" if number in self._rest else str(number)
        return Linked(self.timeline.moments[number], f"{self.anchor}-{anchor}")

    # -- the section --------------------------------------------------------------------------

    def section(self) -> Html:
        """The incident: its headline, answers, picture, moments, stacks and tables."""
        name = f"{self.anchor}-title"
        back = element("p", element("a", "All incidents", href="#index"), class_="back")
        parts = [] if self._level == 1 else [back]
        parts += [self._heading(name), self._answers(), self._picture()]
        parts += [self._moments(), self._tables()]
        return element(
            "section",
            *parts,
            id=self.anchor,
            class_="incident",
            aria_labelledby=name,
            tabindex="-1",
        )

    def _title(self, text: str, below: int = 1) -> Html:
        return element(f"h{self._level + below}", text, class_=f"title{below}")

    def _heading(self, name: str) -> Html:
        summary = self.summary
        whose = "the whole driver" if summary.query == "*" else summary.query
        facts = (
            element(
                "span",
                symbol(_known(summary.severity)),
                summary.severity,
                class_=_badge(summary.severity),
            ),
            element("b", element("bdi", whose)),
            element("span", "of ", element("bdi", summary.app), class_="soft"),
            element("span", f"since {utc_of(summary.since)}"),
            element("span", self.lasted),
            element("span", summary.how, class_="how"),
        )
        title = element(f"h{self._level}", summary.headline, id=name, class_="headline")
        return element("header", element("p", *facts, class_="whose"), title)

    def _answers(self) -> Html:
        answers = self.timeline.answers
        names = [*QUESTIONS, *(name for name in answers if name not in QUESTIONS)]
        pairs = (
            element(
                "div",
                element("dt", QUESTIONS.get(name, name)),
                element("dd", answers.get(name) or UNKNOWN),
            )
            for name in names
        )
        return element("dl", *pairs, class_="answers")

    # -- the picture --------------------------------------------------------------------------

    def _picture(self) -> Html:
        caption = f"{self._days}, times in UTC. The dashed line is when the incident began."
        others = [element("details", *self._group(query), class_="group") for query in self._apart]
        groups = [joined(self._group(query)) for query in self._shown]
        head = row("time (UTC)", "", tick_line(self.axis))
        foot = row("", "", tick_line(self.axis)) if self._shown else ""
        lines = grid(self.axis, self.summary.since)
        return element(
            "figure",
            element("figcaption", self._title("The picture"), element("p", caption, class_="soft")),
            _legend(kind_of(linked.moment) for linked in self._linked),
            lines,
            head,
            *self._lanes(),
            *groups,
            foot,
            *others,
            class_="picture",
        )

    @property
    def _queries(self) -> list[str]:
        """The queries of which something is drawn, the incident's own first."""
        active = {span.query for span in self._spans(What.RUN, What.BATCH)}
        active |= {linked.moment.query for linked in self._linked_of(What.RUN, What.BATCH)}
        named = sorted({*self.timeline.batches, *active} - {"", "*"})
        return sorted(named, key=lambda query: query != self.summary.query)

    @property
    def _shown(self) -> list[str]:
        """The queries with an alert, or else the first one: the others are folded."""
        alerted = {span.query for span in self._spans(What.ALERT)} | {self.summary.query}
        queries = self._queries
        return [query for query in queries if query in alerted] or queries[:1]

    @property
    def _apart(self) -> list[str]:
        shown = set(self._shown)
        return [query for query in self._queries if query not in shown]

    def _spans(self, *kinds: What, query: str | None = None) -> list[Span]:
        return [
            span
            for span in self.timeline.spans
            if span.what in kinds and query in (None, span.query)
        ]

    def _linked_of(self, *kinds: What, query: str | None = None) -> list[Linked]:
        return [
            linked
            for linked in self._linked
            if linked.moment.what in kinds and query in (None, linked.moment.query)
        ]

    def _lane(
        self, name: str, spans: Sequence[Span], marks: Sequence[Linked], of: str = ""
    ) -> Html:
        words = f"{name} {of}".strip()
        note = "" if not of else "of the driver" if of == "*" else ""
        drawing = lane(self.axis, words, spans, marks)
        return row(name, note, drawing, of="" if of == "*" else of)

    def _lanes(self) -> list[Html]:
        """What concerns the whole incident."""
        lanes = self._alert_lanes()
        kinds = (
            ("notifications", What.NOTIFICATION),
            ("silences", What.SILENCE),
            ("announcements", What.REQUEST),
            ("recording", What.RECORDING),
        )
        for name, what in kinds:
            spans, marks = self._spans(what), self._linked_of(what)
            if spans or marks:
                lanes.append(self._lane(name, spans, marks))
        driver = self._linked_of(What.RUN, query="") + self._linked_of(What.RUN, query="*")
        return [*lanes, self._lane("driver", [], driver)] if driver else lanes

    def _alert_lanes(self) -> list[Html]:
        """A lane for each alert of each query, the first one on top."""
        spans: dict[tuple[str, str], list[Span]] = {}
        for span in sorted(self._spans(What.ALERT), key=lambda span: span.since):
            spans.setdefault((span.label, span.query), []).append(span)
        marks = self._linked_of(What.ALERT)
        lanes = [self._lane("alerts", [], marks)] if marks else []
        shown = list(spans)[:MAX_ALERT_LANES]
        lanes += [self._lane(label, spans[label, query], [], query) for label, query in shown]
        rest = len(spans) - len(shown)
        more = element("p", f"and {rest} more alerts, which are in the list below", class_="soft")
        return [*lanes, more] if rest > 0 else lanes

    def _group(self, query: str) -> list[Html]:
        """The runs, the batches in flight and the plots of one query."""
        batches = self.timeline.batches.get(query, ())
        runs, flights = self._spans(What.RUN, query=query), self._spans(What.BATCH, query=query)
        words = plot_words(DURATION, points_of(DURATION, batches)) if batches else "no batches"
        name = element("bdi", query)
        if query in self._shown:
            head = self._title(name, 2)
        else:
            head = element(
                "summary", element("b", name), " ", element("span", words, class_="soft")
            )
        parts = [head]
        for title, spans, what in (
            ("runs", runs, What.RUN),
            ("batch in flight", flights, What.BATCH),
        ):
            marks = self._linked_of(what, query=query)
            if spans or marks:
                parts.append(self._lane(title, spans, marks))
        return parts + self._plots(query, batches, flights)

    def _plots(self, query: str, batches: Sequence[Batch], flights: Sequence[Span]) -> list[Html]:
        alerts = self._spans(What.ALERT, query=query)
        plots = []
        for measure in MEASURES:
            points = points_of(measure, batches)
            if not points:
                continue
            columns = self._room.columns
            flown = ages_of(self.axis, flights) if measure is DURATION else []
            drawing = plot(self.axis, measure, points, flown, alerts, columns=columns)
            plots.append(row(measure.name, _note(measure, points, flown), drawing))
        return plots

    # -- the moments --------------------------------------------------------------------------

    def _moments(self) -> Html:
        items = []
        before: Moment | None = None
        for number, linked in enumerate(self._linked):
            if number == self._rest.start and self._rest:
                items.append(self._gap())
            if number not in self._rest:
                items.append(self._moment(linked, before))
            before = linked.moment
        title = self._title("What happened, in order")
        return joined([title, element("ol", *items, class_="moments")])

    def _gap(self) -> Html:
        text = f"{len(self._rest)} moments in between are left out; querypulse incident lists them."
        return element(
            "li", element("span", text, class_="soft"), id=f"{self.anchor}-rest", class_="gap"
        )

    def _moment(self, linked: Linked, before: Moment | None) -> Html:
        moment = linked.moment
        is_new_day = before is None or day(before.at) != day(moment.at)
        date = [element("span", day(moment.at), class_="date"), " "] if is_new_day else []
        iso = f"{date_of(moment.at):%Y-%m-%dT%H:%M:%SZ}"
        when = element("time", *date, clock(moment.at), datetime=iso)
        kind = kind_of(moment)
        parts = [symbol(kind), element("span", f"{NAMES[kind]}: ", class_="unseen"), moment.text]
        is_named = moment.query in ("", self.summary.query) or moment.query in moment.text
        if not is_named:
            query = "the driver" if moment.query == "*" else moment.query
            parts += [" ", element("bdi", query, class_="of")]
        if before is not None and before.at - moment.at >= 1.0:
            back = f"the clock went back by {exact_duration(before.at - moment.at)}"
            parts += [" ", element("em", f"({back})")]
        since = element("span", _since(moment.at - self.summary.since), class_="since")
        text = element("p", *parts)
        detail = [self._detail(moment.detail)] if moment.detail else []
        what = element("div", text, *detail)
        return element("li", when, since, what, id=linked.anchor, tabindex="-1", class_=kind)

    def _detail(self, text: str) -> Html:
        """A stack or an error, folded; one line of it is shown."""
        shown = text[: self._room.detail]
        rest = len(text) - len(shown)
        note = f"\n… and {rest:,} more characters, which are in the recording" if rest else ""
        lines = text.count("\n") + 1
        words = "Show 1 line" if lines == 1 else f"Show {lines} lines"
        block = element("pre", shown, note, tabindex="0")
        return element("details", element("summary", words), block)

    # -- the tables ---------------------------------------------------------------------------

    def _tables(self) -> Html:
        tables = [
            self._table(query, self.timeline.batches.get(query, ())) for query in self._queries
        ]
        shown = [table for table in tables if table]
        unread = self.timeline.unread
        lines = "1 line" if unread == 1 else f"{unread} lines"
        words = f"{lines} of the recording could not be read."
        note = [element("p", words, class_="note soft")] if unread else []
        title = self._title("The batches as tables")
        folded = [element("div", title, *shown, class_="tables")] if shown else []
        return joined([*note, *folded])

    def _table(self, query: str, batches: Sequence[Batch]) -> Html | str:
        if not batches:
            return ""
        size = -(-len(batches) // self._room.rows)
        groups = [batches[first : first + size] for first in range(0, len(batches), size)]
        name = element("bdi", query)
        count = "1 batch" if len(batches) == 1 else f"{len(batches)} batches"
        note = f", {size} of them in a row with the highest values" if size > 1 else ""
        summary = element("summary", name, element("span", f": {count}{note}", class_="soft"))
        heads = ("time (UTC)", "batch", "seconds", "rows", "lag (offsets)", "state (bytes)")
        head = element("tr", *(element("th", text, scope="col") for text in heads))
        table = element(
            "table",
            element("caption", "Batches of ", name, class_="unseen"),
            element("thead", head),
            element("tbody", *map(_batch_row, groups)),
        )
        return element("details", summary, _scrolled(table, f"Batches of {query}"), class_="data")


def _batch_row(batches: Sequence[Batch]) -> Html:
    first, last = batches[0], batches[-1]
    ids = str(first.batch_id) if first is last else f"{first.batch_id} to {last.batch_id}"
    values = (_highest(measure.of(batch) for batch in batches) for measure in MEASURES)
    cells = (f"{date_of(first.at):%Y-%m-%d %H:%M:%S}", ids, *values)
    return element("tr", *(element("td", text) for text in cells))


def _highest(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{round(max(known), 3):.12g}" if known else ""


def _scrolled(table: Html, words: str) -> Html:
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=words)


def _times(timeline: Timeline) -> list[float]:
    """All times of a picture."""
    summary = timeline.summary
    times = [summary.since, *(moment.at for moment in timeline.moments)]
    times += [batch.at for batches in timeline.batches.values() for batch in batches]
    times += [span.since for span in timeline.spans]
    ends = (summary.until, *(span.until for span in timeline.spans))
    return times + [end for end in ends if end is not None]


def _note(measure: Measure, points: Sequence[Point], flights: Sequence[Point]) -> str:
    """The figures of a plot, and its scale."""
    values = [value for _, value in points]
    usual, highest = measure.write(median(values)), measure.write(max(values))
    figures = f"median {usual}, up to {highest}" if usual != highest else f"about {highest}"
    longest = max((age for _, age in flights), default=0.0)
    flown = f"; in flight {measure.write(longest)}" if longest > max(values) else ""
    scale = "; log scale" if scale_of(points, flights).is_logarithmic else ""
    return f"{figures}{flown}{scale}"


def _legend(kinds: Iterable[str]) -> Html:
    """The marks that the picture has, in a line."""
    used = set(kinds)
    items = (element("li", symbol(kind), name) for kind, name in NAMES.items() if kind in used)
    return element("ul", *items, class_="legend", aria_label="Marks")


def _since(seconds: float) -> str:
    """A time from the beginning of the incident, such as ``+0.4 s`` or ``-1:05:30``."""
    sign = "-" if seconds < 0 else "+"
    minutes, rest = divmod(round(abs(seconds)), 60)
    if abs(seconds) < SHORT_SECONDS:
        return f"{sign}{round(abs(seconds), 1):g} s"
    if minutes < HOUR_MINUTES:
        return f"{sign}{minutes}:{rest:02}"
    hours, minutes = divmod(minutes, HOUR_MINUTES)
    return f"{sign}{hours}:{minutes:02}:{rest:02}"


def _known(severity: str) -> str:
    return "critical" if severity == "critical" else "warning"


def _badge(severity: str) -> str:
    return f"badge {_known(severity)}"


def utc_of(at: float) -> str:
    """A time for people; one that no calendar has is the nearest."""
    return utc(date_of(at).timestamp())


# -- the index --------------------------------------------------------------------------------


def _index(stories: Sequence[_Story], title: str) -> Html:
    """All incidents as a strip of time and as a table."""
    heading = element("h1", title, class_="headline")
    if not stories:
        return element("section", heading, element("p", "No incident.", class_="empty"), id="index")
    return element(
        "section", heading, _sentence(stories), _strip(stories), _list(stories), id="index"
    )


def _sentence(stories: Sequence[_Story]) -> Html:
    first, last = stories[0].summary.since, max(story.ended_at for story in stories)
    count = sum(story.summary.notifications for story in stories)
    still = sum(story.summary.until is None for story in stories)
    what = f"{len(stories)} incidents and {amount(count)} notifications"
    rest = f"; {still} did not end" if still else ""
    words = f"{what}, {utc_of(first)} to {utc_of(last)}{rest}."
    return element("p", words, class_="sentence")


def _strip(stories: Sequence[_Story]) -> Html:
    """A mark for each incident, which is a link; those that are close lie below each other."""
    times = [at for story in stories for at in (story.summary.since, story.ended_at)]
    axis = axis_over(times, "strip-grid")
    rows: list[list[Html]] = []
    free_from: list[float] = []
    for story in stories:
        begin = axis.share(story.summary.since)
        line = next((n for n, free in enumerate(free_from) if free <= begin), len(rows))
        line = min(line, MAX_STRIP_ROWS - 1)
        if line == len(rows):
            rows.append([])
            free_from.append(0.0)
        free_from[line] = max(axis.share(story.ended_at), begin) + STRIP_GAP
        rows[line].append(_strip_mark(axis, story))
    lines = grid(axis)
    drawings = (
        element("svg", use(axis), *marks, class_="lane", role="group", aria_label="Incidents")
        for marks in rows
    )
    caption = element("figcaption", f"{days_of(times)}, UTC", class_="soft")
    return element("figure", caption, lines, *drawings, tick_line(axis), class_="picture strip")


def _strip_mark(axis: Axis, story: _Story) -> Html:
    summary = story.summary
    kind = _known(summary.severity)
    words = f"{utc_of(summary.since)}, {story.lasted}: {summary.headline}"
    width = axis.width(summary.since, story.ended_at)
    bar = element("rect", x=axis.x(summary.since), y="40%", width=width, height="20%", rx="2")
    group = element("g", bar, class_=f"bar alert {kind}")
    mark = linked_mark(axis.x(summary.since), kind, words, f"#{story.anchor}")
    return joined([group, mark])


def _list(stories: Sequence[_Story]) -> Html:
    heads = ("since (UTC)", "lasted", "query", "what", "cause", "how it ended", "notifications")
    head = element("tr", *(element("th", text, scope="col") for text in heads), role="row")
    # On a phone the rows are cards, which are a table only by these roles.
    body = element("tbody", *map(_entry, stories), role="rowgroup")
    caption = element("caption", "All incidents", class_="unseen")
    table = element("table", caption, element("thead", head), body, role="table")
    return _scrolled(table, "All incidents")


def _entry(story: _Story) -> Html:
    summary = story.summary
    severity = element("span", f"{summary.severity}: ", class_="unseen")
    link = element("a", summary.headline, href=f"#{story.anchor}")
    unit = " notification" if summary.notifications == 1 else " notifications"
    cells: tuple[str, ...] = (
        f"{date_of(summary.since):%Y-%m-%d %H:%M:%S}",
        story.lasted,
        element("bdi", "the driver" if summary.query == "*" else summary.query),
        joined([symbol(_known(summary.severity)), severity, link]),
        summary.cause,
        summary.how,
        joined([str(summary.notifications), element("span", unit, class_="card")]),
    )
    return element("tr", *(element("td", cell, role="cell") for cell in cells), role="row")
