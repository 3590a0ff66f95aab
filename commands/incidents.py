"""``querypulse incidents`` and ``querypulse incident``: what happened, from recordings."""

from __future__ import annotations

import argparse
import os
import re
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

import msgspec

from ..alerting.receivers.receiver import is_readable, public_part
from ..alerting.words.headlines import called
from ..core import CommandError
from ..core.certificates import load_authorities
from ..core.secret import Secret
from ..core.text import duration, exact_duration, printable, utc
from ..recording.lines import OUTLINE, SUFFIX, Recording, RecordingError, decode
from ..recording.timeline import (
    Moment,
    Summary,
    Timeline,
    first_part,
    part_number,
    summary_of,
    timeline_of,
)
from ..settings.loading import load_strictly
from ..settings.receivers import as_settings_error
from .silence import Driver, PlaceError

LAST = 50
MAX_BYTES = 100 * 1024 * 1024
"""A recording has at most 1 MB; a larger file than this is none."""
REFUSED = 1
_URL = re.compile(r"https?://", re.IGNORECASE)
_OF_INCIDENT = re.compile(r"(https?://.+?)/(incidents/[^/?#]+)/?", re.IGNORECASE)
_TIME = re.compile(r"\d{8}T\d{6}Z-", re.ASCII)
_STORE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/")
"""A URI of Hadoop; a drive of Windows has one letter."""


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
    parser.add_argument("--json", action="store_true", help="print JSON")
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
    **access: Any,
) -> int:
    """Print the newest incidents, newest first; 1 when a driver refuses or does not answer.

    Raises:
        CommandError: there is no such folder, or a setting or a file cannot be used.

    """
    older = 0
    if place is not None and _URL.match(place):
        url = place.rstrip("/").removesuffix("/incidents")
        try:
            summaries = _driver(url, Access(**access), environment).ask(
                list[Summary], "GET", "incidents"
            )
        except PlaceError as error:
            return _refused(error)
    else:
        folder = _folder(place, environment)
        recordings = _recordings_in(folder)
        older = max(0, len(recordings) - last)
        newest = sorted(recordings, key=_when, reverse=True)[:last]
        summaries = list(_summaries([recordings[name] for name in newest]))
    summaries.sort(key=lambda summary: summary.since, reverse=True)
    older += max(0, len(summaries) - last)
    del summaries[last:]
    if json:
        _print_json(summaries)
        return 0
    _print_table(summaries)
    if older:
        sys.stdout.write(f"and {older} older; --last {len(summaries) + older} shows all\n")
    return 0


def _when(name: str) -> tuple[bool, str]:
    """Sort the newest recordings last: names begin with a time, except those that people gave."""
    return _TIME.match(name) is not None, name


def _refused(error: Exception) -> int:
    sys.stderr.write(f"querypulse: {printable(str(error))}\n")
    return REFUSED


def _recordings_in(folder: Path) -> dict[str, list[Path]]:
    """The files of each recording by the name of its first part."""
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
    except OSError as error:
        raise CommandError(f"{folder}: {error.strerror}") from None
    for name in names:
        first = first_part(name.removesuffix(SUFFIX))
        recordings.setdefault(first, []).append(folder / name)
    return recordings


def _summaries(recordings: Sequence[Sequence[Path]]) -> Iterator[Summary]:
    refusals: list[str] = []
    for paths in recordings:
        parts = [part for path in paths if (part := _read_or_note(path, refusals)) is not None]
        if parts:
            yield summary_of(parts)
    if refusals:
        more = f"; and {len(refusals) - 1} more files" if len(refusals) > 1 else ""
        sys.stderr.write(f"querypulse: {printable(refusals[0])}{more}\n")


def _read_or_note(path: Path, refusals: list[str]) -> Recording | None:
    try:
        return _read(path, OUTLINE)
    except CommandError as error:
        refusals.append(str(error))
        return None


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
        called(summary.query),
        summary.cause,
        summary.how,
        notified,
        summary.id,
    )
    return tuple(map(printable, cells))


# -- one incident -------------------------------------------------------------------------------

QUESTIONS = {
    "first": "What happened first",
    "held_by": "What held it",
    "notified": "Who was notified",
    "done": "What was done",
    "ended": "What ended it",
}
MOST_MOMENTS = 200
"""Of more, the middle is counted."""


def show_incident(
    environment: Mapping[str, str],
    recording: str,
    *,
    json: bool = False,
    full: bool = False,
    **access: Any,
) -> int:
    """Print the timeline of a recording; 1 when a driver refuses or does not answer.

    Raises:
        CommandError: there is no such recording, or a setting or a file cannot be used.

    """
    if _URL.match(recording):
        match = _OF_INCIDENT.fullmatch(recording)
        if match is None:
            raise CommandError(
                "the URL of an incident ends in /incidents/ID; querypulse incidents URL lists them"
            )
        driver = _driver(match[1], Access(**access), environment)
        try:
            timeline = driver.ask(Timeline, "GET", match[2])
        except PlaceError as error:
            return _refused(error)
    else:
        paths = _parts_of(_file(recording, environment))
        timeline = timeline_of([_read(path) for path in paths])
    if json:
        _print_json(timeline)
        return 0
    lines = _text_of(timeline, full=full)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


def _text_of(timeline: Timeline, *, full: bool) -> Iterator[str]:
    summary = timeline.summary
    yield printable(summary.headline)
    files = f", {len(summary.parts)} files" if len(summary.parts) > 1 else ""
    yield printable(f"recording {summary.id}{files}")
    for name, question in QUESTIONS.items():
        yield ""
        yield question
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
    notes = []
    for query, batches in timeline.batches.items():
        longest = max((batch.seconds or 0.0 for batch in batches), default=0.0)
        count = "1 batch" if len(batches) == 1 else f"{len(batches)} batches"
        notes.append(f"{query}: {count}, the longest took {exact_duration(longest)}")
    if details and not full:
        lines = sum(len(detail.splitlines()) for detail in details)
        notes.append(f"{len(details)} stacks and errors of {lines} lines; --full prints them")
    if timeline.unread:
        notes.append(f"{timeline.unread} lines could not be read")
    if notes:
        yield ""
    yield from map(printable, notes)


# -- places -------------------------------------------------------------------------------------


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
        if is_readable(url) and not access.allow_http:
            raise ValueError(
                f"{name}: the token of another machine needs https://; --allow-http sends it over "
                "plain http:// where the network is trusted"
            )
        token = Secret.from_file(access.token_file, setting="--token-file")
    return Driver(name, url, access.ca_file, Secret(f"Bearer {token.known}"))


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
    named = getattr(settings, "incidents_dir", None)
    if named is not None:
        return _local(named)
    return None if settings.spool_dir is None else _local(f"{settings.spool_dir}/incidents")


def _local(place: str) -> Path:
    if _STORE.match(place):
        raise CommandError(
            f"{place}: only Spark can read it: copy its files to a folder, or name a driver, which "
            "serves them"
        )
    return Path(place.removeprefix("file://"))


def _file(recording: str, environment: Mapping[str, str]) -> Path:
    """The path of a recording, which may be given by its id.

    Raises:
        CommandError: there is no such file.

    """
    path = Path(recording)
    if path.is_dir():
        raise CommandError(f"{path}: a folder; querypulse incidents {path} lists its recordings")
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


def _read(path: Path, beginnings: tuple[bytes, ...] = (b"",)) -> Recording:
    """Read a file, and no more of one that is no recording than shows that.

    Raises:
        CommandError: it cannot be read, or is no recording.

    """
    try:
        if not path.is_file():
            what = "not a file" if path.exists() else "no such file"
            raise CommandError(f"{path}: {what}")
        with path.open("rb") as file:
            content = file.read(len(Recording.BEGINS))
            if content != Recording.BEGINS:
                raise CommandError(f"{path}: not a recording of an incident")
            content += file.read(MAX_BYTES)
        return decode(content, str(path), beginnings=beginnings)
    except RecordingError as error:
        raise CommandError(str(error)) from None
    except (OSError, ValueError) as error:
        # A null character in a path is a ValueError.
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
