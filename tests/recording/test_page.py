"""The page of incidents as a document: what is in it, and what never is."""

from __future__ import annotations

import math
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.timelines import BEGAN, QUERIES, bare, batches, hang, later, summary

import querypulse
from querypulse.recording.lines import END_OF_TIME
from querypulse.recording.page import hash_of, page_of, style
from querypulse.recording.timeline import Batch, Moment, Span, Timeline, What

HOSTILE = '</script></title><img src=x onerror=alert(1)>" onload="x\' {{7*7}} &amp; <!-- \x00\x1b\r\u202e\ud800'
SHOWN_TAGS = frozenset(
    re.findall(
        r"\w+",
        "html head meta link title style body a svg defs pattern rect main section header p span b h1 h2 h3"
        " h4 h5 dl div dt dd figure figcaption ul li g line text path use bdi details summary ol time pre"
        " table caption thead tbody tr th td em footer",
    )
)


class Document(HTMLParser):
    """The elements of a page, in order, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    @property
    def text(self) -> str:
        return "".join(self.texts)


def shown(*timelines: Timeline, title: str = "Incidents") -> Document:
    text = page_of(timelines, title)
    text.encode()
    return Document(text)


def moments_of(document: Document) -> list[str]:
    """The ids of the lines of the list."""
    return [
        attributes["id"]
        for tag, attributes in document.elements
        if tag == "li" and "id" in attributes
    ]


def at_times(*times: float, **changes) -> Timeline:
    """An incident with a moment at each of these times."""
    moments = tuple(
        Moment(at=at, what=What.RUN, text=f"moment {number}") for number, at in enumerate(times)
    )
    return Timeline(summary=summary(**changes), answers={}, moments=moments)


# -- what is never in it ----------------------------------------------------------------------


def hostile() -> Timeline:
    """Every text that a job, a person or an error can choose is hostile."""
    timeline = hang()
    return Timeline(
        summary=summary(
            app=HOSTILE,
            query=HOSTILE,
            headline=HOSTILE,
            severity=HOSTILE,
            cause=HOSTILE,
            how=HOSTILE,
        ),
        answers={"first": HOSTILE, HOSTILE: HOSTILE},
        moments=tuple(
            replace(moment, text=HOSTILE, query=HOSTILE, detail=HOSTILE, severity=HOSTILE)
            for moment in timeline.moments
        ),
        spans=tuple(
            replace(span, label=HOSTILE, query=HOSTILE, severity=HOSTILE) for span in timeline.spans
        ),
        batches={HOSTILE: timeline.batches["orders"], f"{HOSTILE}2": timeline.batches["q1"]},
    )


@pytest.mark.parametrize("count", [1, 3])
def test_no_text_of_a_job_becomes_markup(count):
    document = shown(*[hostile()] * count, title=HOSTILE)
    assert {tag for tag, _ in document.elements} <= SHOWN_TAGS
    names = {name for _, attributes in document.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    assert "<img src=x onerror=alert(1)>" in document.text


def test_no_invisible_character_of_a_text_is_in_it():
    text = page_of([hostile()], HOSTILE)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert r"\u202e" in text, "it is shown as what it is"


def test_page_loads_nothing_and_runs_nothing():
    text = page_of([hang(), later(hang(), 9000)], "Incidents")
    document = Document(text)
    tags = {tag for tag, _ in document.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "base", "form"}
    assert {link[0] for link in document.values("href")} == {"#", "d"}
    assert "data:," in document.values("href")
    assert not document.values("src")
    assert set(re.findall(r"url\(([^)]*)\)", text)) == {"#hatch"}
    assert not re.search(r"https?://|@import", text)


def test_policy_allows_only_its_own_style():
    document = shown(hang())
    (policy,) = (
        attributes["content"]
        for tag, attributes in document.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src {hash_of(style())}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]


@pytest.mark.parametrize(
    "timeline",
    [
        bare(),
        bare(until=None),
        bare(until=BEGAN - 50, severity="", query="*"),
        at_times(BEGAN),
        at_times(*[BEGAN + n / 10 for n in range(9)], until=BEGAN + 0.9),
        at_times(BEGAN, BEGAN + 60, BEGAN - 3600, BEGAN - 3500),
        at_times(0.0, 1.0, since=0.0, until=1.0),
        at_times(END_OF_TIME - 2, END_OF_TIME - 1, since=END_OF_TIME - 2, until=END_OF_TIME - 1),
        replace(
            hang(),
            batches={
                "empty": (),
                "odd": (
                    Batch(at=BEGAN, batch_id=1, seconds=math.inf),
                    Batch(at=BEGAN, batch_id=-1, seconds=-5.0, input_rows=0, lag_offsets=math.nan),
                    Batch(at=BEGAN, batch_id=2**63, seconds=1e300, state_memory_bytes=2**80),
                ),
            },
        ),
        replace(
            bare(),
            spans=(
                Span(what=What.ALERT, since=BEGAN + 60, until=BEGAN, label="back"),
                Span(what=What.BATCH, since=BEGAN + 60, until=BEGAN, label="back", query="q"),
            ),
        ),
    ],
    ids=[
        "only a summary",
        "open",
        "ends before it begins",
        "one moment",
        "one second",
        "a clock that goes back",
        "the first date",
        "the last date",
        "odd batches",
        "spans that end before they begin",
    ],
)
def test_any_timeline_has_a_page_without_a_coordinate_that_is_none(timeline):
    for document in (shown(timeline), shown(timeline, hang())):
        places = [*document.values("x"), *document.values("width"), *document.values("d")]
        assert not [place for place in places if re.search(r"nan|inf|e\+", place)]
        assert not [width for width in document.values("width") if width.startswith("-")]


def test_no_incident_is_a_page_that_says_so():
    assert "No incident." in shown().text


# -- what is in it ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_each_link_leads_to_one_place(count):
    document = shown(*(later(hang(), 9000.0 * number) for number in range(count)))
    ids = Counter(document.values("id"))
    assert set(ids.values()) == {1}
    places = {link.removeprefix("#") for link in document.values("href") if link != "data:,"}
    assert places <= ids.keys()


def test_headline_answers_and_moments_are_there_in_their_order():
    timeline = hang()
    text = shown(timeline).text
    answers, _, rest = text.partition("What happened, in order")
    for where, wanted in (
        (answers, [timeline.summary.headline, *timeline.answers.values()]),
        (rest, [moment.text for moment in timeline.moments]),
    ):
        places = [where.find(words) for words in wanted]
        assert -1 not in places
        assert places == sorted(places)
    assert "2026-11-29 09:14:30 UTC" in text
    assert "1 line of the recording could not be read." in text


def test_a_moment_has_its_time_and_the_time_since_the_beginning():
    text = shown(at_times(BEGAN - 90, BEGAN + 0.4, BEGAN + 59.6, BEGAN + 3725)).text
    times = re.findall(r"(\d\d:\d\d:\d\d)([+-][\d.:]+(?: s)?)", text)
    assert times == [
        ("09:13:00", "-1:30"),
        ("09:14:30", "+0.4 s"),
        ("09:15:29", "+1:00"),
        ("10:16:35", "+1:02:05"),
    ]


def test_a_moment_just_before_the_beginning_has_no_negative_nought():
    document = shown(at_times(BEGAN - 0.01, BEGAN))
    assert "-0 s" not in document.text


def test_a_bar_past_midnight_has_its_dates():
    span = Span(what=What.ALERT, since=BEGAN, until=BEGAN + 86_400, label="StreamingQueryFailed")
    words = shown(replace(bare(), spans=(span,))).text
    assert "2026-11-29 09:14:30 to 2026-11-30 09:14:30 UTC, 24 h" in words


def test_a_clock_that_goes_back_is_said_and_changes_no_order():
    text = shown(at_times(BEGAN, BEGAN + 60, BEGAN - 3540)).text
    assert re.search(r"moment 0.*moment 1.*moment 2 \(the clock went back by 60 min\)", text)


def test_each_kind_of_severity_has_a_colour_and_a_shape():
    document = shown(hang())
    bars = [
        a["class"] for tag, a in document.elements if tag == "g" and "bar " in a.get("class", "")
    ]
    assert {"bar alert critical", "bar alert warning"} <= set(bars)
    assert len([a for _, a in document.elements if a.get("fill") == "url(#hatch)"]) == 1
    marks = {
        a["class"] for tag, a in document.elements if tag == "g" and "mark " in a.get("class", "")
    }
    assert {"mark critical", "mark warning", "mark ended", "mark notification"} <= marks


def test_a_peak_among_twenty_thousand_batches_is_drawn():
    calm = batches(20_000, every=1.0)
    peak = replace(calm[12_017], seconds=95.0)
    timeline = replace(bare(), batches={"orders": (*calm[:12_017], peak, *calm[12_018:])})
    document = shown(timeline)
    bars = next(a["d"] for _, a in document.elements if a.get("class") == "bars")
    assert len(re.findall("V0(?=M|$)", bars)) == 1
    table = re.findall(r"\b95\b", document.text)
    assert table, "and its duration is in the table"


def test_a_first_batch_that_hangs_is_drawn_though_none_was_reported():
    flight = Span(what=What.BATCH, since=BEGAN - 60, until=None, label="batch 0", query="orders")
    timeline = replace(bare(), spans=(flight,))
    document = shown(timeline)
    assert len([a for _, a in document.elements if a.get("class") == "ramp"]) == 1
    assert "in flight" in document.text


def test_a_figure_that_is_always_0_is_a_line_of_text():
    idle = tuple(replace(batch, input_rows=0, lag_offsets=0) for batch in batches(9))
    document = shown(replace(bare(), batches={"orders": idle}))
    assert "always 0: rows, lag" in document.text
    plots = [a for _, a in document.elements if a.get("class") == "plot"]
    assert len(plots) == 2


def test_every_batch_of_a_short_story_is_in_a_table_as_it_was_reported():
    timeline = replace(bare(), batches={"orders": batches(3, first=7)})
    document = shown(timeline)
    for batch in timeline.batches["orders"]:
        assert f"{batch.batch_id}{batch.seconds:.4g}"[:4] in document.text
        assert str(batch.input_rows) in document.text
        assert str(batch.state_memory_bytes) in document.text


def test_queries_without_an_alert_are_folded():
    document = shown(hang())
    groups = [a for tag, a in document.elements if tag == "details" and a.get("class") == "group"]
    assert len(groups) == len(QUERIES)


def test_a_page_of_very_many_incidents_leaves_out_queries_without_an_alert():
    timeline = replace(bare(), batches={query: batches(2) for query in ("orders", *QUERIES)})
    document = shown(*(later(timeline, 9000.0 * number) for number in range(60)))
    assert "7 more queries, which a page of this incident alone shows" in document.text
    groups = [a for _, a in document.elements if a.get("class") == "group"]
    assert groups == []
    assert len([a for _, a in document.elements if a.get("class") == "plot"]) == 60 * 4


def test_many_moments_leave_out_the_middle_and_say_how_many():
    document = shown(at_times(*(BEGAN + n for n in range(5000))))
    assert "4400 moments in between are left out;" in document.text
    assert "moment 299" in document.text
    assert "moment 4700" in document.text
    assert "i1-rest" in moments_of(document)


def test_index_has_each_incident_with_a_link_the_oldest_first():
    timeline = [later(hang(), -day * 86_400.0, headline=f"headline {day}") for day in range(5)]
    document = shown(*timeline)
    links = [link for link in document.values("href") if re.fullmatch(r"#i\d", link)]
    assert sorted(links) == sorted([f"#i{n}" for n in range(1, 6)] * 2), (
        "on the strip and in the table"
    )
    assert [document.text.find(f"headline {day}") for day in (4, 3, 2, 1, 0)] == sorted(
        document.text.find(f"headline {day}") for day in range(5)
    )
    assert "5 incidents and 20 notifications" in document.text


@pytest.mark.slow
def test_thirty_incidents_of_eight_queries_stay_a_few_megabytes():
    shown_batches = {query: batches(3000, every=1.0) for query in ("orders", *QUERIES)}
    timeline = [later(replace(hang(), batches=shown_batches), n * 90_000.0) for n in range(30)]
    assert len(page_of(timeline, "A month").encode()) < 5_000_000


def test_colours_are_those_of_the_status_page():
    folder = Path(querypulse.__file__).parent
    own, status = (
        dict(re.findall(r"--(\w+): (#\w+);", (folder / name).read_text().split("@media")[0]))
        for name in ("recording/page.css", "exporter/status_page/page.css")
    )
    pairs = {
        "critical": "failed",
        "warning": "slow",
        "calm": "running",
        "run": "idle",
        "data": "starting",
    }
    shared = own.keys() & status.keys()
    assert {name: own[name] for name in shared} == {name: status[name] for name in shared}
    assert {own[name] for name in pairs} == {status[name] for name in pairs.values()}
