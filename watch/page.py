"""The page of all drivers: one HTML document, made from a ``Fleet``, without a script of its own.

It has the style of an incident's page. Its text comes from many drivers: all of it is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from urllib.parse import urlsplit

from ..alerting.finding import WHOLE_DRIVER
from ..core.text import duration, listed, utc
from ..exporter.pages import Reply, as_json, html, with_script
from ..recording import page as incident_page
from ..recording.picture import Html, date_of, element, joined, known_severity, symbol
from ..recording.section import scrolled
from .client import DriverFreshness
from .fleet import (
    DOWN,
    GONE,
    UP,
    Feed,
    Fleet,
    FleetCause,
    FleetDriver,
    FleetIncident,
    Group,
    QueryKey,
    Seen,
    fleet_of,
)

MAX_VALUES = 50
"""A label with more values than these is no way to group drivers."""
MAX_NAMED = 4
"""The most unhealthy queries, writers or readers that a cell names."""
MAX_STARVED = 12
TITLE = "All drivers"


@cache
def style() -> str:
    """The style of the page: that of an incident's page, and what only this one has."""
    return incident_page.style() + (files(__package__) / "fleet_page" / "page.css").read_text(
        "utf-8"
    )


def page_of(fleet: Fleet) -> str:
    """Draw the fleet as one document, the worst first."""
    parts = [
        _head(fleet),
        _causes(fleet),
        _incidents(fleet),
        _starved(fleet),
        _drivers(fleet),
        _groups(fleet),
        _healthy(fleet),
        _feeds(fleet),
    ]
    main = element("main", *filter(None, parts), id="main")
    about = f"querypulse {fleet.version}, beside the drivers. All times are in UTC."
    footer = element("footer", element("p", about), class_="soft")
    return incident_page.document(TITLE, style(), element("body", main, footer))


@cache
def shell() -> Reply:
    """The document that shows the page as it is now, again and again; it holds no data."""
    folder = files(__package__) / "fleet_page"
    document, script = ((folder / name).read_text("utf-8") for name in ("page.html", "page.js"))
    return with_script(document, style(), script)


def pages_of(seen: Callable[[], Seen]) -> dict[str, Callable[[], Reply]]:
    """What a watcher serves by path: the page, its document without script, and JSON."""
    rules = (*incident_page.policy(style()), "frame-ancestors 'none'")
    return {
        "/": shell,
        "/fleet.html": lambda: html(page_of(fleet_of(seen())), rules),
        "/status": lambda: as_json(200, fleet_of(seen())),
        "/readyz": lambda: as_json(200, {"ready": True, "reasons": []}),
    }


# -- the head ---------------------------------------------------------------------------------


def _head(fleet: Fleet) -> Html:
    counts = [*_counts(fleet.states, "drivers"), *_counts(fleet.queries, "queries")]
    peers = [element("li", f"peer {peer.url}: {peer.detail}") for peer in fleet.peers]
    role = "" if fleet.notifies else " This watcher holds its notifications: a peer sends them."
    return element(
        "header",
        element("h1", sentence(fleet), id="sentence", class_="headline"),
        element("p", f"As of {utc(fleet.at)}.{role}", class_="soft"),
        element("ul", *counts, class_="counts", aria_label="Drivers and queries by state"),
        element("ul", *peers, class_="counts soft", aria_label="Peers") if peers else "",
    )


def sentence(fleet: Fleet) -> str:
    """The state of all drivers in one sentence."""
    down = fleet.states.get(DOWN, 0)
    loud = sum(not incident.muted for incident in fleet.incidents)
    loud += fleet.left_out.get("incidents", 0)
    count = len(fleet.drivers)
    if not count:
        return "No driver is watched yet."
    up = f"{fleet.states.get(UP, 0)} of {_number(count, 'driver')} are up"
    if not (down or loud):
        return f"{up}; no incident is open."
    gone = f", {down} down" if down else ""
    return f"{up}{gone}; {_number(loud, 'incident')} {'is' if loud == 1 else 'are'} open."


def _counts(states: Mapping[str, int], what: str) -> list[Html]:
    total = f"{sum(states.values()):,} {what}"
    each = ", ".join(f"{count:,} {state}" for state, count in states.items())
    return [element("li", element("b", total), f": {each}")] if states else []


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


# -- tables -----------------------------------------------------------------------------------


def _table(
    name: str,
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left_out: int = 0,
    note: str = "",
) -> Html:
    """A section with one table, whose rows are cards on a phone."""
    head = element("tr", *(element("th", text, scope="col") for text in heads), role="row")
    lines = [
        element("tr", *(element("td", cell, role="cell") for cell in cells), role="row")
        for cells in rows
    ]
    caption = element("caption", title, class_="unseen")
    body = element("tbody", *lines, role="rowgroup")
    table = element("table", caption, element("thead", head), body, role="table")
    more = element("p", f"and {left_out:,} more", class_="soft") if left_out else ""
    return element(
        "section",
        element("h2", title, id=f"{name}-title", class_="title1"),
        element("p", note, class_="soft note") if note else "",
        scrolled(table, title, name),
        more,
        class_="fleet",
        aria_labelledby=f"{name}-title",
    )


def _since(at: float | None, now: float) -> Html:
    if at is None:
        return Html("")
    moment = f"{date_of(at):%Y-%m-%dT%H:%M:%SZ}"
    return element("time", f"{duration(max(0.0, now - at))}", datetime=moment, title=utc(at))


def _link(text: str, url: str) -> Html:
    """A link to a driver, if the address is one of the web."""
    if urlsplit(url).scheme not in ("http", "https"):
        return element("bdi", text)
    return element("a", element("bdi", text), href=url, rel="noreferrer")


def _labels(labels: Mapping[str, str]) -> Html:
    pairs = " ".join(f"{name}={value}" for name, value in labels.items())
    return element("span", f" {pairs}", class_="soft labels") if pairs else Html("")


def _of_driver(fleet: Fleet) -> Callable[[str], Html]:
    """A driver by its name: the link to its status page, and its labels."""
    known = {driver.name: driver for driver in fleet.drivers}

    def shown(name: str) -> Html:
        driver = known.get(name)
        if driver is None:
            return element("bdi", name)
        return joined([_link(name, driver.url), _labels(driver.labels)])

    return shown


# -- incidents --------------------------------------------------------------------------------


def _mark(severity: str, words: str, url: str = "") -> Html:
    unseen = element("span", f"{severity}: ", class_="unseen")
    return joined([symbol(known_severity(severity)), unseen, _link(words, url)])


def _query(name: str) -> Html:
    return element("bdi", "the driver" if name == WHOLE_DRIVER else name)


def _what(incident: FleetIncident) -> Html:
    muted = element("span", f" ({incident.muted})", class_="soft") if incident.muted else ""
    return joined([_mark(incident.severity, incident.headline, incident.url), muted])


def _causes(fleet: Fleet) -> Html:
    """A cause that drivers share is one line; its incidents fold out."""
    if not fleet.causes:
        return Html("")
    entries = [
        _cause(fleet, cause, f"cause-{number}") for number, cause in enumerate(fleet.causes, 1)
    ]
    return element(
        "section",
        element("h2", "One cause, many drivers", class_="title1", id="causes-title"),
        *entries,
        class_="fleet causes",
        aria_labelledby="causes-title",
    )


def _cause(fleet: Fleet, cause: FleetCause, name: str) -> Html:
    count = f"{_number(len(cause.incidents), 'incident')} in {cause.drivers} drivers"
    since = _since(cause.since, fleet.at)
    line = joined([_mark(cause.severity, cause.cause), f": {count}, for ", since])
    of_driver = _of_driver(fleet)
    whose: dict[str, list[str]] = {}
    for index in cause.incidents:
        incident = fleet.incidents[index]
        whose.setdefault(incident.driver, []).append(_subject(incident))
    lines = (
        element("li", of_driver(driver), ": ", listed(subjects, MAX_NAMED))
        for driver, subjects in whose.items()
    )
    return element("details", element("summary", line), element("ul", *lines), id=name)


def _subject(incident: FleetIncident) -> str:
    return "the driver" if incident.query == WHOLE_DRIVER else incident.query


def _incidents(fleet: Fleet) -> Html:
    """The incidents that no line of a shared cause holds."""
    folded = {index for cause in fleet.causes for index in cause.incidents}
    alone = [entry for index, entry in enumerate(fleet.incidents) if index not in folded]
    if not alone:
        return Html("")
    of_driver = _of_driver(fleet)
    return _table(
        "incidents",
        "Other open incidents" if folded else "Open incidents",
        ("since", "driver", "query", "what", "cause"),
        (
            (
                _since(incident.since, fleet.at),
                of_driver(incident.driver),
                _query(incident.query),
                _what(incident),
                incident.cause,
            )
            for incident in alone
        ),
        left_out=fleet.left_out.get("incidents", 0),
    )


# -- drivers ----------------------------------------------------------------------------------


def _drivers(fleet: Fleet) -> Html:
    bad = [driver for driver in fleet.drivers if driver.needs_somebody]
    if not bad:
        return Html("")
    heads = ("state", "driver", "since", "incidents", "queries", "what is wrong")
    rows = (_driver(driver, fleet.at) for driver in bad)
    return _table("drivers", f"Drivers that need somebody: {len(bad)}", heads, rows)


def _driver(driver: FleetDriver, now: float) -> tuple[str, ...]:
    count = element("span", str(driver.incidents or ""))
    unit = " incidents" if driver.incidents else ""
    return (
        element("span", driver.state, class_=f"state {driver.state.replace(' ', '-')}"),
        joined([_link(driver.name, driver.url), _labels(driver.labels)]),
        _since(driver.since, now),
        joined([count, element("span", unit, class_="card")]),
        _by_state(driver),
        joined([driver.detail, _unhealthy(driver), _freshness(driver)], " "),
    )


def _by_state(driver: FleetDriver) -> str:
    last = "at last " if driver.state in GONE and driver.queries else ""
    return last + ", ".join(f"{count} {state}" for state, count in driver.queries.items())


def _unhealthy(driver: FleetDriver) -> str:
    return listed([f"{query.name}: {query.state}" for query in driver.unhealthy], MAX_NAMED)


def _freshness(driver: FleetDriver) -> str:
    """What is left of the promises of freshness, as the driver says it."""
    promises = sorted(driver.freshness.items(), key=lambda pair: pair[1].budget_left_seconds)
    return listed([f"{name}: {_left(promise)}" for name, promise in promises], MAX_NAMED)


def _left(promise: DriverFreshness) -> str:
    left = promise.budget_left_seconds
    if left < 0:
        return f"freshness budget overspent by {duration(-left)}"
    return f"{duration(left)} of {duration(promise.budget_seconds)} of its freshness budget left"


def _healthy(fleet: Fleet) -> Html:
    """The drivers that need nobody, folded away."""
    well = [driver for driver in fleet.drivers if not driver.needs_somebody]
    if not well:
        return Html("")
    rows = (
        (
            driver.state,
            joined([_link(driver.name, driver.url), _labels(driver.labels)]),
            _by_state(driver),
            _freshness(driver),
        )
        for driver in sorted(well, key=lambda driver: driver.name)
    )
    title = f"Healthy drivers: {len(well)}"
    table = _table("healthy", title, ("state", "driver", "queries", "freshness"), rows)
    summary = element("summary", title)
    return element("details", summary, table, id="healthy-fold", class_="fold")


def _groups(fleet: Fleet) -> Html:
    """The drivers by each label; the word in the first cell is what the filter takes."""
    by_label = [
        (label, list(own)) for label, own in groupby(fleet.groups, lambda group: group.label)
    ]
    rows = [
        _group(group)
        for label, own in by_label
        if 1 < len(own) <= MAX_VALUES or label == "team"
        for group in own[:MAX_VALUES]
    ]
    heads = ("label", "drivers", "need somebody", "incidents")
    return _table("groups", "By label", heads, rows) if rows else Html("")


def _group(group: Group) -> tuple[str, ...]:
    name = element("bdi", f"{group.label}={group.value}", class_="pick")
    bad, incidents = (str(count or "") for count in (group.bad, group.incidents))
    units = ((str(group.drivers), " drivers"), (bad, " need somebody"), (incidents, " incidents"))
    return (
        name,
        *(
            joined([count, element("span", unit if count else "", class_="card")])
            for count, unit in units
        ),
    )


# -- who feeds whom ---------------------------------------------------------------------------


def _starved(fleet: Fleet) -> Html:
    if not fleet.starved:
        return Html("")
    of_driver = _of_driver(fleet)
    rows = (
        (
            joined([_query(entry.query), " of ", of_driver(entry.driver)]),
            "in a driver that is down" if entry.state == DOWN else entry.state,
            _named(entry.readers, MAX_STARVED),
        )
        for entry in fleet.starved
    )
    heads = ("broken", "which is", "get no data because of it")
    left_out = fleet.left_out.get("starved", 0)
    return _table("starved", "Starved across drivers", heads, rows, left_out=left_out)


def _feeds(fleet: Fleet) -> Html:
    """The datasets between drivers, folded away."""
    if not fleet.feeds:
        return Html("")
    rows = (_feed(feed) for feed in fleet.feeds)
    heads = ("dataset", "written by", "read by")
    left_out = fleet.left_out.get("feeds", 0)
    title = f"Who feeds whom: {_number(len(fleet.feeds) + left_out, 'dataset')} between drivers"
    table = _table("feeds", title, heads, rows, left_out=left_out)
    return element("details", element("summary", title), table, id="feeds-fold", class_="fold")


def _feed(feed: Feed) -> tuple[str, ...]:
    namespace = element("span", f" {feed.namespace}", class_="soft")
    return (
        joined([element("bdi", feed.name), namespace]),
        _named(feed.writers),
        _named(feed.readers),
    )


def _named(keys: Sequence[QueryKey], most: int = MAX_NAMED) -> str:
    return listed([f"{query} of {driver}" for driver, query in keys], most)
