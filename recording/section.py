"""One incident as a section of a page: its answers, its picture, its moments and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from ..core.text import exact_duration, utc
from .picture import (
    DURATION,
    MEASURES,
    NAMES,
    Html,
    Linked,
    Measure,
    Point,
    ages_of,
    axis_over,
    clock,
    date_of,
    day,
    days_of,
    element,
    grid,
    joined,
    kind_of,
    known_severity,
    lane,
    plot,
    plot_words,
    points_of,
    row,
    scale_of,
    symbol,
    tick_line,
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
HOUR_MINUTES = 60
SHORT_SECONDS = 59.5
"""A shorter time since the beginning is shown with tenths of a second."""


class Room(msgspec.Struct, frozen=True):
    """How much of each incident fits, so that a page of many stays a few megabytes."""

    columns: int
    """Of a plot."""
    rows: int
    """Of a table of batches."""
    moments: int
    detail: int
    """Characters of what is folded below a moment."""
    others: bool
    """Whether queries without an alert are shown, too."""


class Section:
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

    def html(self) -> Html:
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
                symbol(known_severity(summary.severity)),
                summary.severity,
                class_=f"badge {known_severity(summary.severity)}",
            ),
            element("b", element("bdi", whose)),
            element("span", "of ", element("bdi", summary.app), class_="soft"),
            element("span", f"since {utc(summary.since)}"),
            element("span", self.lasted),
            element("span", summary.how, class_="how"),
        )
        title = element(f"h{self._level}", summary.headline, id=name, class_="headline")
        return element("header", element("p", *facts, class_="whose"), title)

    def _answers(self) -> Html:
        answers = self.timeline.answers
        pairs = (
            element("div", element("dt", question), element("dd", answers.get(name) or UNKNOWN))
            for name, question in QUESTIONS.items()
        )
        return element("dl", *pairs, class_="answers")

    # -- the picture --------------------------------------------------------------------------

    def _picture(self) -> Html:
        caption = f"{self._days}, times in UTC. The dashed line is when the incident began."
        others = self._others()
        groups = [joined(self._group(query)) for query in self._shown]
        head = row("time (UTC)", "", tick_line(self.axis))
        foot = row("", "", tick_line(self.axis)) if self._shown else ""
        lines = grid(self.axis, self.summary.since)
        return element(
            "figure",
            element("figcaption", self._title("The picture"), element("p", caption, class_="soft")),
            skip("Skip the picture", f"{self.anchor}-moments"),
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

    def _others(self) -> list[Html]:
        """The queries without an alert, folded."""
        if self._room.others or not self._apart:
            return [element("details", *self._group(name), class_="group") for name in self._apart]
        words = f"{len(self._apart)} more queries, which a page of this incident alone shows"
        return [element("p", words, class_="soft")]

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
        plots: list[Html] = []
        zeros: list[str] = []
        for measure in MEASURES:
            points = points_of(measure, batches)
            flown = ages_of(self.axis, flights) if measure is DURATION else []
            if flown or any(value for _, value in points):
                columns = self._room.columns
                drawing = plot(self.axis, measure, points, flown, alerts, columns=columns)
                plots.append(row(measure.name, _note(measure, points, flown), drawing))
            elif points:
                zeros.append(measure.name)
        words = f"always 0: {', '.join(zeros)}"
        return [*plots, element("p", words, class_="soft")] if zeros else plots

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
        name = f"{self.anchor}-moments"
        return joined([title, element("ol", *items, class_="moments", id=name, tabindex="-1")])

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
        queries = self._queries if self._room.others else self._shown
        tables = [self._table(query, self.timeline.batches.get(query, ())) for query in queries]
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
        return element("details", summary, scrolled(table, f"Batches of {query}"), class_="data")


def _batch_row(batches: Sequence[Batch]) -> Html:
    first, last = batches[0], batches[-1]
    ids = str(first.batch_id) if first is last else f"{first.batch_id} to {last.batch_id}"
    values = (_highest(measure.of(batch) for batch in batches) for measure in MEASURES)
    cells = (f"{date_of(first.at):%Y-%m-%d %H:%M:%S}", ids, *values)
    return element("tr", *(element("td", text) for text in cells))


def _highest(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{round(max(known), 3):.12g}" if known else ""


def scrolled(table: Html, words: str, name: str | None = None) -> Html:
    """A table that scrolls within its own box, also with the keyboard."""
    box = {"class_": "scroll", "tabindex": "0", "role": "region", "aria_label": words}
    return element("div", table, id=name, **box)


def skip(words: str, name: str) -> Html:
    """A link past what has many stops of the Tab key."""
    return element("a", words, href=f"#{name}", class_="skip")


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
    highest = max(values, default=0.0)
    texts = [_figures(measure, values)] if values else []
    longest = max((age for _, age in flights), default=0.0)
    texts += [f"in flight {measure.write(longest)}"] if longest > highest else []
    texts += ["log scale"] if scale_of(points, flights).is_logarithmic else []
    return "; ".join(texts)


def _figures(measure: Measure, values: Sequence[float]) -> str:
    usual, highest = measure.write(median(values)), measure.write(max(values))
    return f"about {highest}" if usual == highest else f"median {usual}, up to {highest}"


def _legend(kinds: Iterable[str]) -> Html:
    """The marks that the picture has, in a line."""
    used = set(kinds)
    items = (element("li", symbol(kind), name) for kind, name in NAMES.items() if kind in used)
    return element("ul", *items, class_="legend", aria_label="Marks")


def _since(seconds: float) -> str:
    """A time from the beginning of the incident, such as ``+0.4 s`` or ``-1:05:30``."""
    sign = "-" if round(seconds, 1) < 0 else "+"
    minutes, rest = divmod(round(abs(seconds)), 60)
    if abs(seconds) < SHORT_SECONDS:
        return f"{sign}{round(abs(seconds), 1):g} s"
    if minutes < HOUR_MINUTES:
        return f"{sign}{minutes}:{rest:02}"
    hours, minutes = divmod(minutes, HOUR_MINUTES)
    return f"{sign}{hours}:{minutes:02}:{rest:02}"
