"""The picture of an incident: lanes and plots over one axis of time, as inline SVG.

No drawing has a size of its own: x is a share of the width, so that a picture fits any
screen, and no text is scaled. ``page.css`` colours it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from html import escape
from itertools import pairwise
from statistics import median

import msgspec

from ..core.text import encodable, exact_duration, shorten
from .timeline import Batch, Moment, Span, What

LATEST = 253_402_300_799.0
"""The last second of the year 9999: Python's dates end there."""
SHORTEST_SECONDS = 10.0
"""The least that an axis covers: an incident may begin and end in one second."""
MARGIN = 0.02
"""Of an axis, on either side."""
MOST_TICKS = 8
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
STEPS = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(HOUR * count for count in (1, 2, 3, 6, 12)),
)
NEAR_EDGE = 4.0
"""Per cent of the width within which a tick's text would not fit."""
CLOSE_MARKS = 0.03
"""Marks of one lane that are nearer to each other, as a share of the axis, are one mark."""
CLOSE_GROUPS = 0.05
"""The same where a mark is several, with their number beside it."""
FEW_BARS = 80
"""Up to so many bars are drawn wide."""
ALMOST_SECOND = 0.9995
"""What rounds to less than a second in milliseconds."""
FLAT_RATIO = 20.0
"""A plot that is so many times higher than its median is logarithmic."""
RAMP_STEPS = 16
BROKEN_INTERVALS = 5
"""A line is broken where nothing was reported for so many of its usual intervals."""
LABEL_CHARACTERS = 200

_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What would be invalid in a document, or would reorder the text around it."""


# -- markup -----------------------------------------------------------------------------------


class Html(str):
    """Markup. Any other text is escaped where it enters."""

    __slots__ = ()


def markup(text: str) -> Html:
    """The text as markup: nothing in it is markup, invisible or without an encoding."""
    if isinstance(text, Html):
        return text
    lines = encodable(text).replace("\r\n", "\n")
    shown = _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", lines)
    return Html(escape(shown))


def element(tag: str, *children: str, **attributes: str | None) -> Html:
    """One element; ``_`` in a name is ``-``, and an attribute that is None is left out."""
    names = ((name.strip("_").replace("_", "-"), text) for name, text in attributes.items())
    pairs = "".join(f' {name}="{markup(text)}"' for name, text in names if text is not None)
    return Html(f"<{tag}{pairs}>{''.join(map(markup, children))}</{tag}>")


def joined(parts: Iterable[str], between: str = "") -> Html:
    """The parts in a row."""
    return Html(between.join(map(markup, parts)))


# -- times and figures ------------------------------------------------------------------------


def date_of(at: float) -> datetime:
    """A time in UTC; one that no calendar has, as in a margin, is the nearest."""
    return datetime.fromtimestamp(min(max(at, 0.0), LATEST), timezone.utc)


def clock(at: float) -> str:
    """The time of a day, such as ``09:14:30``."""
    return f"{date_of(at):%H:%M:%S}"


def day(at: float) -> str:
    """A date, such as ``2026-11-29``."""
    return f"{date_of(at):%Y-%m-%d}"


def days_of(times: Sequence[float]) -> str:
    """The first and the last day of some times."""
    days = dict.fromkeys(map(day, (min(times), max(times))))
    return " to ".join(days)


def between(since: float, until: float | None) -> str:
    """A stretch of time, with the zone, and with dates if it goes past midnight."""
    if until is None:
        return f"since {clock(since)} UTC"
    lasted = exact_duration(until - since)
    if day(since) == day(until):
        return f"{clock(since)} to {clock(until)} UTC, {lasted}"
    return f"{day(since)} {clock(since)} to {day(until)} {clock(until)} UTC, {lasted}"


def took(seconds: float) -> str:
    """How long a batch took, such as ``640 ms`` or ``1.5 s``."""
    is_short = seconds < ALMOST_SECOND
    return f"{round(seconds * 1000)} ms" if is_short else exact_duration(seconds)


def amount(value: float) -> str:
    """A number of rows or offsets, such as ``12,345`` or ``1.2 M``."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}"


def memory(value: float) -> str:
    """Bytes, such as ``1.5 GiB``."""
    for size, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


# -- the axis ---------------------------------------------------------------------------------


class Axis(msgspec.Struct, frozen=True):
    """The stretch of time of a picture, in Unix seconds."""

    begin: float
    end: float
    name: str
    """Of the lines that all drawings of the picture share."""

    def share(self, at: float) -> float:
        """Where a time is: 0 at the beginning, 1 at the end; never beyond."""
        return min(max((at - self.begin) / (self.end - self.begin), 0.0), 1.0)

    def x(self, at: float) -> str:
        """Where a time is, for an attribute."""
        return f"{100 * self.share(at):.5g}%"

    def width(self, since: float, until: float) -> str:
        """How wide a stretch of time is, for an attribute."""
        return f"{100 * max(0.0, self.share(until) - self.share(since)):.5g}%"

    @property
    def step(self) -> float:
        """Seconds between two ticks."""
        least = (self.end - self.begin) / MOST_TICKS
        days = math.ceil(least / DAY) * DAY
        return next((step for step in STEPS if step >= least), days)

    @property
    def ticks(self) -> list[float]:
        """The times that are marked."""
        first = math.ceil(self.begin / self.step)
        last = math.floor(self.end / self.step)
        return [number * self.step for number in range(first, last + 1)]


def axis_over(times: Sequence[float], name: str) -> Axis:
    """An axis that covers all times, with a margin on both sides."""
    begin = min(times)
    end = max(times)
    seconds = max(end - begin, SHORTEST_SECONDS)
    margin = (seconds - (end - begin)) / 2 + seconds * MARGIN
    return Axis(begin - margin, end + margin, name)


def tick_line(axis: Axis) -> Html:
    """The times below or above a picture."""
    texts = (_tick(axis, at, number) for number, at in enumerate(axis.ticks))
    return element("svg", *texts, class_="ticks", aria_hidden="true")


def _tick(axis: Axis, at: float, number: int) -> Html:
    at_x = 100 * axis.share(at)
    is_midnight = at % DAY == 0
    seconds = "%H:%M:%S" if axis.step < MINUTE else "%H:%M"
    text = f"{date_of(at):{'%m-%d' if is_midnight else seconds}}"
    anchor = "start" if at_x < NEAR_EDGE else None
    anchor = "end" if at_x > 100 - NEAR_EDGE else anchor
    kind = "minor" if number % 2 else None
    return element("text", text, x=axis.x(at), y="12", text_anchor=anchor, class_=kind)


def grid(axis: Axis, *begins: float) -> Html:
    """The lines that all drawings of a picture share."""
    lines = [_line(axis, at, None) for at in axis.ticks]
    lines += [_line(axis, at, "begin") for at in begins]
    group = element("g", *lines, id=axis.name, class_="grid")
    return element("svg", element("defs", group), class_="unseen", aria_hidden="true")


def _line(axis: Axis, at: float, kind: str | None) -> Html:
    return element("line", x1=axis.x(at), x2=axis.x(at), y1="0", y2="100%", class_=kind)


def use(axis: Axis) -> Html:
    """The lines of ``grid`` in a drawing."""
    return element("use", href=f"#{axis.name}", width="100%", height="100%")


# -- marks ------------------------------------------------------------------------------------


SHAPES = {
    "critical": "M5 1.5H11L14.5 5V11L11 14.5H5L1.5 11V5ZM5.5 5.5L10.5 10.5M10.5 5.5L5.5 10.5",
    "warning": "M8 2L15 14H1ZM8 6.5V9.5M8 11.7V11.8",
    "ended": "M3 8.5L6.5 12L13 4.5",
    What.NOTIFICATION: "M2 4H14V12.5H2ZM2 4.5L8 9L14 4.5",
    What.RUN: "M5 3L12.5 8L5 13Z",
    What.BATCH: "M5.5 3.5V12.5M10.5 3.5V12.5",
    What.SILENCE: "M2.5 6H5L8.5 3V13L5 10H2.5ZM11 6.2L14.5 9.8M14.5 6.2L11 9.8",
    What.REQUEST: "M2.5 3H13.5V10.5H8L5 13.5V10.5H2.5Z",
    What.RECORDING: "M8 4A4 4 0 1 0 8.01 4Z",
}
"""Paths in a box of 16 x 16, drawn with a round stroke."""
NAMES = {
    "critical": "critical alert",
    "warning": "warning",
    "ended": "alert ended",
    What.NOTIFICATION: "notification",
    What.RUN: "start, end or recovery of a query",
    What.BATCH: "what held a batch",
    What.SILENCE: "silence",
    What.REQUEST: "announcement",
    What.RECORDING: "the recording itself",
}


def kind_of(moment: Moment) -> str:
    """Which mark a moment has: a key of ``SHAPES``."""
    if moment.what is What.ALERT:
        return known_severity(moment.severity) if moment.severity else "ended"
    kind: str = moment.what.value
    return kind


def symbol(kind: str) -> Html:
    """A mark in a line of text; the text next to it says the same."""
    path = element("path", d=SHAPES[kind])
    return element("svg", path, viewBox="0 0 16 16", class_=f"symbol {kind}", aria_hidden="true")


def known_severity(severity: str) -> str:
    """The mark of a severity; ``info`` and what is not known are shown as a warning."""
    return "critical" if severity == "critical" else "warning"


class Linked(msgspec.Struct, frozen=True):
    """A moment, and the anchor of its line in the list."""

    moment: Moment
    anchor: str


def _groups(axis: Axis, moments: Sequence[Linked]) -> list[list[Linked]]:
    """The moments whose marks would lie on each other."""
    groups: list[list[Linked]] = []
    for linked in sorted(moments, key=lambda linked: linked.moment.at):
        share = axis.share(linked.moment.at)
        last = groups[-1] if groups else []
        room = CLOSE_MARKS if len(last) == 1 else CLOSE_GROUPS
        if last and share - axis.share(last[0].moment.at) < room:
            last.append(linked)
        else:
            groups.append([linked])
    return groups


def _mark(axis: Axis, group: list[Linked]) -> Html:
    """A link from the picture to the line of a moment, or of the first of several."""
    kinds = [kind_of(linked.moment) for linked in group]
    kind = min(kinds, key=list(SHAPES).index)
    first = group[0].moment
    words = f"{clock(first.at)} UTC: {shorten(first.text, LABEL_CHARACTERS)}"
    count = Html()
    if len(group) > 1:
        words += f", and {len(group) - 1} more until {clock(group[-1].moment.at)} UTC"
        count = element("text", f"\N{MULTIPLICATION SIGN}{len(group)}", x="11", y="4")
    return linked_mark(axis.x(first.at), kind, words, f"#{group[0].anchor}", count)


def linked_mark(x: str, kind: str, words: str, to: str, *more: str) -> Html:
    """A mark in a drawing that is a link; ``more`` is drawn with it."""
    path = element("path", d=SHAPES[kind], transform="translate(-8 -8)")
    shape = element("g", path, *more, class_=f"mark {kind}")
    place = element("svg", shape, x=x, y="50%", overflow="visible")
    return element("a", element("title", words), place, href=to, aria_label=words)


# -- lanes ------------------------------------------------------------------------------------


def row(name: str, note: str, drawing: Html, *, of: str = "") -> Html:
    """A line of a picture: its name, something about it, and the drawing."""
    about = element("span", note, class_="soft") if note else ""
    subject = element("bdi", of, class_="of") if of else ""
    label = element("div", element("b", name), " ", subject, " ", about, class_="label")
    return element("div", label, drawing, class_="row")


def lane(axis: Axis, words: str, spans: Sequence[Span], marks: Sequence[Linked]) -> Html:
    """What lasted, as bars, and what happened, as marks."""
    bars = (_bar(axis, span) for span in spans)
    shapes = (_mark(axis, group) for group in _groups(axis, marks))
    return element("svg", use(axis), *bars, *shapes, class_="lane", role="group", aria_label=words)


def _bar(axis: Axis, span: Span) -> Html:
    """A bar, of which colour and pattern show the severity; one that is open has no right end."""
    severity = f"{known_severity(span.severity)} " if span.severity else ""
    until = axis.end if span.until is None else span.until
    words = f"{severity}{shorten(span.label, LABEL_CHARACTERS)}: {between(span.since, span.until)}"
    box = {"x": axis.x(span.since), "width": axis.width(span.since, until)}
    place = {"y": "22%", "height": "56%"}
    kind = f"bar {span.what.value} {severity}{'open' if span.until is None else ''}".strip()
    title = element("title", words)
    bar = element("rect", **box, **place, rx="2")
    pattern = element("rect", **box, **place, rx="2", fill="url(#hatch)", class_="pattern")
    is_hatched = span.severity and severity != "critical "
    shapes = [title, bar, pattern] if is_hatched else [title, bar]
    return element("g", *shapes, class_=kind, role="img", aria_label=words)


PATTERNS = Html(
    '<svg class="unseen" aria-hidden="true"><defs><pattern id="hatch" width="7" height="7"'
    ' patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="3" height="7"/>'
    "</pattern></defs></svg>"
)
"""What all pictures of a page share."""


# -- plots ------------------------------------------------------------------------------------


class Measure(msgspec.Struct, frozen=True):
    """One figure of each batch."""

    name: str
    of: Callable[[Batch], float | None]
    write: Callable[[float], str]
    is_level: bool
    """Whether it goes on between two batches, as a lag does; else it is that of a batch."""


MEASURES = (
    Measure("batch duration", lambda batch: batch.seconds, took, is_level=False),
    Measure("rows", lambda batch: batch.input_rows, amount, is_level=False),
    Measure("lag", lambda batch: batch.lag_offsets, amount, is_level=True),
    Measure("state memory", lambda batch: batch.state_memory_bytes, memory, is_level=True),
)
DURATION = MEASURES[0]

Point = tuple[float, float]
"""A time and a value."""


def points_of(measure: Measure, batches: Sequence[Batch]) -> list[Point]:
    """The values that were reported, in the order of their times."""
    return sorted(
        (batch.at, float(value))
        for batch in batches
        if (value := measure.of(batch)) is not None and 0 <= value < math.inf
    )


class Scale(msgspec.Struct, frozen=True):
    """The height of a value: linear, or logarithmic where the usual would be too low to see."""

    top: float
    usual: float

    @property
    def is_logarithmic(self) -> bool:
        """Whether heights are logarithmic."""
        return self.top > FLAT_RATIO * self.usual > 0

    def y(self, value: float) -> str:
        """Where a value is, from the top, in per cent."""
        share = value / self.top
        if self.is_logarithmic:
            share = math.log1p(value / self.usual) / math.log1p(self.top / self.usual)
        return f"{100 - 100 * min(share, 1.0):.3g}"


def scale_of(points: Sequence[Point], flights: Sequence[Point]) -> Scale:
    """The scale of a plot; ``flights`` are the ages of batches in flight."""
    values = [value for _, value in points]
    ages = [age for _, age in flights]
    return Scale(max(values + ages, default=0.0) or 1.0, median(values or [0.0]))


def ages_of(axis: Axis, spans: Sequence[Span]) -> list[Point]:
    """When each batch in flight was last seen, and its age then."""
    ends = [axis.end if span.until is None else span.until for span in spans]
    return [(end, max(0.0, end - span.since)) for span, end in zip(spans, ends, strict=True)]


def plot(
    axis: Axis,
    measure: Measure,
    points: Sequence[Point],
    flights: Sequence[Point],
    alerts: Sequence[Span],
    *,
    columns: int,
) -> Html:
    """Draw one measure, the alerts behind it, and as ramps the ages of batches in flight."""
    scale = scale_of(points, flights)
    thinned = _thinned(axis, points, columns)
    if measure.is_level:
        usual = _usual_interval(points) / (axis.end - axis.begin) * columns
        path = _level(thinned, scale, max(2.0, BROKEN_INTERVALS * usual))
        kind = "level"
    else:
        path = "".join(f"M{x} 100V{scale.y(high)}" for x, _, high in thinned)
        kind = "bars few" if len(thinned) <= FEW_BARS else "bars"
    ramps = "".join(_ramp(axis, scale, flight, columns) for flight in flights)
    shapes = [element("path", d=ramps, class_="ramp")] if ramps else []
    shapes.append(element("path", d=path, class_=kind))
    box = f"-0.5 0 {columns} 100"
    drawing = element("svg", *shapes, viewBox=box, preserveAspectRatio="none")
    bands = (_band(axis, span) for span in alerts)
    words = f"{measure.name}: {plot_words(measure, points)}"
    return element("svg", *bands, use(axis), drawing, class_="plot", role="img", aria_label=words)


def _ramp(axis: Axis, scale: Scale, flight: Point, columns: int) -> str:
    """The growing age of a batch in flight."""
    end, age = flight
    ages = [age * part / RAMP_STEPS for part in range(RAMP_STEPS + 1)]
    steps = (f"L{axis.share(end - age + at) * columns - 0.5:.4g} {scale.y(at)}" for at in ages)
    return f"M{''.join(steps)[1:]}V100Z"


def plot_words(measure: Measure, points: Sequence[Point]) -> str:
    """A plot in a sentence."""
    if not points:
        return "no batch was reported"
    at, highest = max(points, key=lambda point: point[1])
    usual = measure.write(median(value for _, value in points))
    count = "1 batch" if len(points) == 1 else f"{len(points)} batches"
    return f"{count}, median {usual}, highest {measure.write(highest)} at {clock(at)} UTC"


def _band(axis: Axis, span: Span) -> Html:
    until = axis.end if span.until is None else span.until
    kind = f"band {known_severity(span.severity)}"
    width = axis.width(span.since, until)
    return element("rect", x=axis.x(span.since), width=width, height="100%", class_=kind)


Column = tuple[int, float, float]
"""The number of a column of a plot, and the lowest and the highest value in it."""


def _thinned(axis: Axis, points: Sequence[Point], columns: int) -> list[Column]:
    """The extremes of each column that has points: no peak disappears."""
    width = (axis.end - axis.begin) / columns
    found: dict[int, list[float]] = {}
    for at, value in points:
        column = min(max(int((at - axis.begin) / width), 0), columns - 1)
        found.setdefault(column, []).append(value)
    return [(column, min(found[column]), max(found[column])) for column in sorted(found)]


def _usual_interval(points: Sequence[Point]) -> float:
    times = [at for at, _ in points]
    intervals = [later - at for at, later in pairwise(times)]
    return median(intervals) if len(intervals) > 1 else 0.0


def _level(columns: Sequence[Column], scale: Scale, longest: float) -> str:
    """A line through the extremes of each column, broken where nothing was reported."""
    path: list[str] = []
    before = -math.inf
    for x, low, high in columns:
        step = "L" if x - before <= longest else "M"
        path.append(f"{step}{x} {scale.y(low)}V{scale.y(high)}")
        before = x
    return "".join(path)
