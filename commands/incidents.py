"""``querypulse incidents`` and ``querypulse incident``: what happened, from recordings."""

from __future__ import annotations

import argparse
import os
import re
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from ..alerting.finding import WHOLE_DRIVER
from ..alerting.receivers.receiver import public_part
from ..alerting.words.headlines import called
from ..core import CommandError
from ..core.certificates import load_authorities
from ..core.folders import is_uri
from ..core.text import duration, exact_duration, printable, utc
from ..recording.lines import (
    OUTLINE,
    SUFFIX,
    Recording,
    RecordingError,
    decode,
    first_part,
    part_number,
)
from ..recording.page import page_of
from ..recording.section import QUESTIONS
from ..recording.timeline import (
    Batch,
    Moment,
    Summary,
    Timeline,
    summary_of,
    timeline_of,
)
from ..settings.loading import load_strictly
from ..settings.receivers import as_settings_error
from .silence import Answer, Driver, PlaceError, bearer, require_unreadable

LAST = 50
MAX_BYTES = 100 * 1024 * 1024
"""A recording has at most 1 MB; a larger file than this is none."""
_URL = re.compile(r"https?://", re.IGNORECASE)
_OF_INCIDENT = re.compile(
    r"(https?://.+?)/(incidents/[^/?#]+?)(?:\.html)?/?(?:#.*)?", re.IGNORECASE
)
"""Also as a browser shows it."""
_TIME = re.compile(r"\d{8}T\d{6}Z-", re.ASCII)


class Access(msgspec.Struct, frozen=True):
    """How a driver is asked."""

    token_file: str | None = None
    ca_file: str | None = None
    allow_http: bool = False


def add_incidents_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``incidents``."""
    place = "a folder of recordings, or a driver, such as https://HOST:9719"
    parser.add_argument(
        "place", nargs="?", metavar="DIR|URL", help=f"{place} (default: of the settings)"
    )
    last = "the newest incidents, at most so many (%(default)d)"
    parser.add_argument("--last", type=_count, default=LAST, metavar="COUNT", help=last)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--html", metavar="OUT", help="write one page of them, with plots")
    _add_access(parser)


def add_incident_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``incident``."""
    what = "a recording, its id in the default folder, or http://DRIVER/incidents/ID"
    parser.add_argument("recording", metavar="FILE", help=what)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument(
        "--full", action="store_true", help="print stacks and errors, and each moment"
    )
    form.add_argument("--html", metavar="OUT", help="write a page, with plots")
    _add_access(parser)


def _add_access(parser: argparse.ArgumentParser) -> None:
    http = "send the token to another machine over http://: the network can read it"
    parser.add_argument("--token-file", metavar="FILE", help="the token of the driver")
    parser.add_argument(
        "--ca-file", metavar="FILE", help="the CA certificates that verify the driver"
    )
    parser.add_argument("--allow-http", action="store_true", help=http)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"a number, 1 or more, given {text!r}")
    return int(text)


# -- the table ----------------------------------------------------------------------------------


def list_incidents(
    environment: Mapping[str, str],
    place: str | None = None,
    *,
    last: int = LAST,
    json: bool = False,
    html: str | None = None,
    **access: Any,
) -> int:
    """Print the newest incidents, newest first, or write a page of them.

    Raises:
        CommandError: there is no such folder, or a driver refuses or does not answer.
        SettingsError: a setting or an argument cannot be used.

    """
    source: InDriver | InFolder
    if place is not None and _URL.match(place):
        url = place.rstrip("/").removesuffix("/incidents")
        source = InDriver(_driver(url, Access(**access), environment))
    else:
        source = InFolder(_recordings_in(_folder(place, environment)))
    named, older = source.newest(last)
    if html is not None:
        return _write_page(html, [source.timeline(name) for name, _ in named], "Incidents")
    summaries = [summary for _, summary in named]
    if json:
        return _print_json(summaries)
    _print_table(summaries)
    if older:
        sys.stdout.write(f"and {older} older; --last {len(summaries) + older} shows all\n")
    return 0


HEADINGS = ("SINCE (UTC)", "LASTED", "QUERY", "CAUSE", "HOW IT ENDED", "NOTIFIED", "RECORDING")


def _print_table(summaries: Sequence[Summary]) -> None:
    if not summaries:
        sys.stdout.write("no incident has been recorded\n")
        return
    rows = [HEADINGS, *(_row(summary) for summary in summaries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row, summary in zip(rows, (None, *summaries), strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
        if summary is not None:
            sys.stdout.write(f"    {printable(summary.headline)}\n")


def _row(summary: Summary) -> tuple[str, ...]:
    lasted = "-" if summary.until is None else duration(summary.until - summary.since)
    notified = str(summary.notifications)
    if summary.receivers:
        notified += f" ({', '.join(summary.receivers)})"
    cells = (
        utc(summary.since).removesuffix(" UTC"),
        lasted,
        "driver" if summary.query == WHOLE_DRIVER else called(summary.query),
        summary.cause,
        summary.how,
        notified,
        summary.id,
    )
    return tuple(map(printable, cells))


# -- one incident -------------------------------------------------------------------------------

MOST_MOMENTS = 200
"""Of more, the middle is counted."""


def show_incident(
    environment: Mapping[str, str],
    recording: str,
    *,
    json: bool = False,
    full: bool = False,
    html: str | None = None,
    **access: Any,
) -> int:
    """Print the timeline of a recording, or write it as a page.

    Raises:
        CommandError: there is no such recording, or a driver refuses or does not answer.
        SettingsError: a setting or an argument cannot be used.

    """
    if _URL.match(recording):
        match = _OF_INCIDENT.fullmatch(recording)
        if match is None:
            raise CommandError(
                "the URL of an incident ends in /incidents/ID; querypulse incidents URL lists them"
            )
        driver = _driver(match[1], Access(**access), environment)
        timeline = _ask(driver, Timeline, match[2])
    else:
        timeline = _timeline_of(_parts_of(_file(recording, environment)))
    if html is not None:
        return _write_page(html, [timeline], timeline.summary.headline)
    if json:
        return _print_json(timeline)
    lines = _text_of(timeline, full=full)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _print_json(value: object) -> int:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")
    return 0


def _write_page(path: str, timelines: Sequence[Timeline], title: str) -> int:
    if not timelines:
        raise CommandError(f"{path}: not written: no incident has been recorded")
    document = page_of(timelines, title)
    try:
        Path(path).write_text(document, encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return 0


def _text_of(timeline: Timeline, *, full: bool) -> Iterator[str]:
    summary = timeline.summary
    yield printable(summary.headline)
    files = f", {len(summary.parts)} files" if len(summary.parts) > 1 else ""
    yield printable(f"recording {summary.id}{files}")
    for name, question in QUESTIONS.items():
        yield ""
        yield question.removesuffix("?")
        yield f"  {printable(timeline.answers.get(name, ''))}"
    yield from _moments_text(timeline.moments, full=full)
    yield from _rest_text(timeline, full=full)


def _moments_text(moments: Sequence[Moment], *, full: bool) -> Iterator[str]:
    half = len(moments) if full else MOST_MOMENTS // 2
    day = ""
    for number, moment in enumerate(moments):
        if half <= number < len(moments) - half:
            if number == half:
                yield f"... {len(moments) - 2 * half} more; --full prints them"
            continue
        date, _, clock = utc(moment.at).removesuffix(" UTC").partition(" ")
        if date != day:
            day = date
            yield ""
            yield f"{date} (UTC)"
        yield printable(f"{clock}  {moment.what.value:<12}  {moment.text}")
        if full:
            for line in moment.detail.splitlines():
                yield f"          {printable(line)}"


def _rest_text(timeline: Timeline, *, full: bool) -> Iterator[str]:
    """What is not printed, and what could not be read, as counts."""
    details = [moment.detail for moment in timeline.moments if moment.detail]
    notes = [_batches_text(query, timeline.batches[query]) for query in _own(timeline)]
    others = [query for query in timeline.batches if query not in _own(timeline)]
    if others:
        count = sum(len(timeline.batches[query]) for query in others)
        whose = "1 other query" if len(others) == 1 else f"{len(others)} other queries"
        notes.append(f"{whose}: {count} batches")
    if details and not full:
        lines = sum(len(detail.splitlines()) for detail in details)
        notes.append(f"stacks and errors: {len(details)}, of {lines} lines; --full prints them")
    if timeline.unread:
        notes.append(f"{timeline.unread} lines could not be read")
    if notes:
        yield ""
    yield from map(printable, notes)


def _own(timeline: Timeline) -> list[str]:
    """The queries with batches that the incident is about."""
    subject = timeline.summary.query
    return [query for query in timeline.batches if subject in (query, WHOLE_DRIVER)]


def _batches_text(query: str, batches: Sequence[Batch]) -> str:
    longest = max((batch.seconds or 0.0 for batch in batches), default=0.0)
    count = "1 batch" if len(batches) == 1 else f"{len(batches)} batches"
    return f"{query}: {count}, the longest took {exact_duration(longest)}"


# -- places -------------------------------------------------------------------------------------


Named = tuple[str, Summary]
"""An incident, and the name under which its source has it."""


class InDriver(msgspec.Struct, frozen=True):
    """The incidents that a driver serves."""

    driver: Driver

    def newest(self, most: int) -> tuple[list[Named], int]:
        """The newest incidents, newest first, and how many are older."""
        summaries = _ask(self.driver, list[Summary], "incidents")
        named = _newest_first([(summary.id, summary) for summary in summaries])
        return named[:most], len(named[most:])

    def timeline(self, name: str) -> Timeline:
        """The whole story of one."""
        return _ask(self.driver, Timeline, f"incidents/{quote(name)}")


class InFolder(msgspec.Struct, frozen=True):
    """The recordings of a folder: the files of each, by the name of its first part."""

    files: dict[str, list[Path]]

    def newest(self, most: int) -> tuple[list[Named], int]:
        """The newest incidents, newest first, and how many are older; only those are read."""
        names = sorted(self.files, key=_when, reverse=True)
        refusals: list[str] = []
        named = [
            (name, summary_of(parts))
            for name in names[:most]
            if (parts := _readable(self.files[name], refusals, OUTLINE))
        ]
        _print_refusals(refusals)
        return _newest_first(named), len(names[most:])

    def timeline(self, name: str) -> Timeline:
        """The whole story of one."""
        return _timeline_of(self.files[name])


def _newest_first(named: list[Named]) -> list[Named]:
    return sorted(named, key=lambda entry: entry[1].since, reverse=True)


def _when(name: str) -> tuple[bool, str]:
    """Sort the newest recordings last: names begin with a time, except those that people gave."""
    return _TIME.match(name) is not None, name


def _timeline_of(paths: Sequence[Path]) -> Timeline:
    """The story of the parts that can be read.

    Raises:
        CommandError: none can be read.

    """
    refusals: list[str] = []
    parts = _readable(paths, refusals)
    if not parts:
        raise CommandError(refusals[0])
    _print_refusals(refusals)
    return timeline_of(parts)


def _readable(
    paths: Sequence[Path], refusals: list[str], beginnings: tuple[bytes, ...] = (b"",)
) -> list[Recording]:
    parts = []
    for path in paths:
        try:
            parts.append(_read(path, beginnings))
        except CommandError as error:  # noqa: PERF203 - there are few
            refusals.append(str(error))
    return parts


def _print_refusals(refusals: Sequence[str]) -> None:
    if refusals:
        more = f"; {len(refusals)} files are none" if len(refusals) > 1 else ""
        sys.stderr.write(f"querypulse: {printable(refusals[0])}{more}\n")


def _recordings_in(folder: Path) -> dict[str, list[Path]]:
    recordings: dict[str, list[Path]] = {}
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        raise CommandError(
            f"{folder}: no such folder; no incident has been recorded there"
        ) from None
    except NotADirectoryError:
        raise CommandError(
            f"{folder}: a file, not a folder; querypulse incident {folder} shows one recording"
        ) from None
    except (OSError, ValueError) as error:
        raise CommandError(f"{folder}: {getattr(error, 'strerror', None) or error}") from None
    for name in names:
        first = first_part(name.removesuffix(SUFFIX))
        recordings.setdefault(first, []).append(folder / name)
    return recordings


def _ask(driver: Driver, kind: type[Answer], path: str) -> Answer:
    try:
        return driver.ask(kind, "GET", path)
    except PlaceError as error:
        raise CommandError(printable(str(error))) from None


def _driver(url: str, access: Access, environment: Mapping[str, str]) -> Driver:
    """A driver; it gets a token if there is one.

    Raises:
        SettingsError: the URL or a file cannot be used, or the token would be readable.

    """
    with as_settings_error(load_strictly({}, environment), "incidents: "):
        name = public_part(url, setting="URL", allow_http=True)
        if access.ca_file is not None:
            load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), access.ca_file, "--ca-file")
        if access.token_file is None:
            return Driver(name, url, access.ca_file)
        if not access.allow_http:
            require_unreadable([name])
        return Driver(name, url, access.ca_file, bearer(access.token_file))


def _folder(place: str | None, environment: Mapping[str, str]) -> Path:
    """The folder that is named, else that of the settings.

    Raises:
        CommandError: no folder is named, or it is not on this machine.

    """
    if place is None:
        folder = _default_folder(environment)
        if folder is not None:
            return folder
        raise CommandError(
            "name a folder, or a driver such as https://HOST:9719, or set 'incidents_dir' or "
            "'spool_dir'"
        )
    return _local(place)


def _default_folder(environment: Mapping[str, str]) -> Path | None:
    settings = load_strictly({}, environment)
    if settings.incidents_dir is not None:
        return _local(settings.incidents_dir)
    return None if settings.spool_dir is None else _local(f"{settings.spool_dir}/incidents")


def _local(place: str) -> Path:
    if is_uri(place):
        raise CommandError(
            f"{place}: only Spark can read it: copy its files to a folder, or name a driver, which "
            "serves them"
        )
    return Path(place)


def _file(recording: str, environment: Mapping[str, str]) -> Path:
    """The path of a recording, which may be given by its id.

    Raises:
        CommandError: there is no such file.

    """
    path = _local(recording)
    with _refusing(path):
        if path.is_dir():
            raise CommandError(
                f"{path}: a folder; querypulse incidents {path} lists its recordings"
            )
        if path.exists() or path.name != recording:
            return path
    folder = _default_folder(environment)
    if folder is None:
        raise CommandError(f"{recording}: no such file")
    named = folder / f"{recording.removesuffix(SUFFIX)}{SUFFIX}"
    if not named.exists():
        raise CommandError(
            f"{recording}: no such file, and no such recording in {folder}; querypulse incidents "
            "lists what there is"
        )
    return named


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn what the system, or a decoder, says about a file into a ``CommandError``."""
    try:
        yield
    except RecordingError as error:
        raise CommandError(printable(str(error))) from None
    except (OSError, ValueError) as error:
        # A path that cannot be one, as with a null character, is a ValueError.
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _parts_of(path: Path) -> list[Path]:
    """The file, and those beside it that continue the same recording, or that it continues."""
    if path.suffix != SUFFIX:
        return [path]
    first = first_part(path.stem)
    beside = path.parent.glob(f"{escape(first)}.*{SUFFIX}")
    parts = {part for part in beside if first_part(part.stem) == first}
    own = path.with_name(f"{first}{SUFFIX}")
    if own.exists():
        parts.add(own)
    return sorted({*parts, path}, key=lambda part: part_number(part.stem))


def _read(path: Path, beginnings: tuple[bytes, ...]) -> Recording:
    """Read a file, and no more of one that is no recording than shows that.

    Raises:
        CommandError: it cannot be read, or is no recording.

    """
    with _refusing(path):
        if not path.is_file():
            raise CommandError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
        with path.open("rb") as file:
            content = file.read(len(Recording.BEGINS))
            if content != Recording.BEGINS:
                raise CommandError(f"{path}: not a recording of an incident")
            content += file.read(MAX_BYTES)
        return decode(content, str(path), beginnings=beginnings)
