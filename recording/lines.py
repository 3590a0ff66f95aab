"""The lines of a recording: one JSON object each, of one kind, in the order of their time.

A recording is everything about one incident: the problems of one query, or of the whole driver
(``*``), from a little before the first alert opens until the last one ends. ``docs/incidents.md``
documents the kinds and their fields. A newer version may add kinds and fields; a reader skips what
it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Any, ClassVar

import msgspec

from ..alerting.alert import Incident
from ..alerting.incidents.lifecycle import Opened

VERSION = 1
SUFFIX = ".jsonl"
END_OF_TIME = 253_402_300_800.0
"""The Unix time at which Python's calendar ends: the year 10000."""

UnixSeconds = Annotated[float, msgspec.Meta(ge=0, lt=END_OF_TIME)]

Patch = dict[str, Any]
"""What is new in a JSON object: an object is patched itself, any other value replaces the old one.

``$removed`` lists the members that are gone; a name that begins with ``$`` has one more.
"""


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What all lines have: ``at`` is in Unix seconds."""

    at: UnixSeconds


class SeenFrom(str, Enum):
    """Who recorded."""

    DRIVER = "driver"
    WATCH = "watch"
    REPLAY = "replay"


class Begin(Line, frozen=True, kw_only=True, tag="begin"):
    """The first line: whose incident it is, and what is needed to evaluate it again."""

    version: int
    id: str
    """The name of the file, without its suffix."""
    app: str
    query: str
    """The subject of the incident: a query's label, or ``*``."""
    seen_from: SeenFrom
    labels: dict[str, str] = {}
    """Those of the settings."""
    process: str = ""
    querypulse_version: str = ""
    spark_version: str = ""
    continues: str = ""
    """The id of the recording of an earlier process that this one goes on from."""
    settings: dict[str, Any] = {}
    """The settings that the evaluation depends on, without secrets."""
    opened: tuple[Opened, ...] = ()
    """When its alerts opened lately, in the monotonic seconds of ``State.now``."""
    restored: tuple[Incident, ...] = ()
    """The incident as an earlier process has left it."""
    held: Patch = {}
    """What was open and pending before the first state, also elsewhere: of a ``Held``."""


class Event(Line, frozen=True, kw_only=True, tag="event"):
    """An event of Spark, as its JSON: ``started``, ``progress``, ``idle`` or ``terminated``."""

    query: str
    event: str
    data: dict[str, Any]
    """Spark's own JSON."""
    left_out: tuple[str, ...] = ()
    """The members of ``data`` that were too long to keep."""


class State(Line, frozen=True, kw_only=True, tag="state"):
    """What had changed at one evaluation, in the driver and in each query, as patches.

    The first one is complete. ``now`` is in monotonic seconds, and so are all times in a state.
    """

    now: float
    driver: Patch = {}
    """Of a ``Snapshot`` without its queries."""
    queries: Patch = {}
    """By label: of a ``Query``."""


class Change(str, Enum):
    """What became of an alert."""

    OPENED = "opened"
    CHANGED = "changed"
    """Another severity, code or text, or people are no longer notified, or are again."""
    ENDED = "ended"


class AlertChanged(Line, frozen=True, kw_only=True, tag="alert"):
    """An alert opens, changes or ends, as facts and as the words that people read."""

    change: Change
    incident: str
    """The key of the incident, as receivers know it."""
    alertname: str
    query: str
    severity: str
    code: str
    starts_at: UnixSeconds
    annotations: dict[str, str] = {}
    facts: dict[str, Any] = {}
    cause: str = ""
    """What is wrong, and where, in the same words in each driver."""
    muted: str = ""
    """Why nobody is notified of it; empty if people are."""
    outcome: str = ""
    """At its end: an ``AlertOutcome``, what its query does."""
    goes_on: str = ""
    """At its end: a ``GoesOn``, where it goes on."""


class Notification(Line, frozen=True, kw_only=True, tag="notification"):
    """One attempt to notify a receiver, and its answer."""

    incident: str
    receiver: str
    status: str
    """``firing`` or ``resolved``."""
    outcome: str
    """A ``DeliveryOutcome``, or ``failed``."""
    alerts: tuple[str, ...] = ()
    """The names of the alerts in the message, the most prominent first."""
    error: str = ""


class Stack(Line, frozen=True, kw_only=True, tag="stack"):
    """Where the threads of a query are, when that has changed."""

    query: str
    jvm: tuple[str, ...] = ()
    python: str = ""


class Request(Line, frozen=True, kw_only=True, tag="request"):
    """Somebody announced something: ``expect_stop``, ``expect_end`` or ``forget``."""

    request: str
    query: str
    until: UnixSeconds | None = None
    """Unix seconds; None without a limit."""


class Silenced(Line, frozen=True, kw_only=True, tag="silences"):
    """The silences that are in force from now on."""

    silences: tuple[dict[str, Any], ...] = ()


class Thinned(Line, frozen=True, kw_only=True, tag="thinned"):
    """Here lines were left out, to keep the file small: from ``at`` until ``until``."""

    until: UnixSeconds
    lines: int


class How(str, Enum):
    """How a recording ended."""

    RESOLVED = "resolved"
    """The last alert ended."""
    CLOSED = "closed"
    """The process ended in order, with the incident open."""


class End(Line, frozen=True, kw_only=True, tag="end"):
    """The end; only notifications may follow. A file without it ends where its process did."""

    how: How


AnyLine = (
    Begin | Event | State | AlertChanged | Notification | Stack | Request | Silenced | Thinned | End
)

_decoder = msgspec.json.Decoder(AnyLine)


class RecordingError(ValueError):
    """A file is no recording, or one of a version that this one cannot read."""


class Recording(msgspec.Struct, frozen=True):
    """All lines of one recording, in order.

    ``unread`` lines were cut off, or are of no known kind.
    """

    begin: Begin
    lines: tuple[AnyLine, ...]
    """Without ``begin``."""
    unread: int = 0

    @property
    def ends_at(self) -> float:
        """When its newest line was written, in Unix seconds."""
        return max((line.at for line in self.lines), default=self.begin.at)

    BEGINS: ClassVar[bytes] = b'{"kind":"begin"'


def encode(lines: Iterable[AnyLine]) -> bytes:
    """The lines as they are written."""
    return b"".join(_encoded(line) + b"\n" for line in lines)


def _encoded(line: AnyLine) -> bytes:
    try:
        return msgspec.json.encode(line)
    except UnicodeEncodeError:
        # A name from the environment may have bytes that are no text.
        return msgspec.json.encode(_as_text(msgspec.to_builtins(line)))


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_as_text(name): _as_text(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_text(part) for part in value]
    return value


OUTLINE = tuple(f'{{"kind":"{kind}"'.encode() for kind in ("alert", "notification", "end"))
"""How the lines begin that a summary needs."""


def decode(content: bytes, place: str, *, beginnings: tuple[bytes, ...] = (b"",)) -> Recording:
    """Read the content of a file, which may be cut off anywhere after its first line.

    Of its other lines, those that begin with one of ``beginnings``.

    Raises:
        RecordingError: its first line is not that of a recording; the message names ``place``.

    """
    first, *rest = content.split(b"\n")
    try:
        begin = _decoder.decode(first)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RecordingError(f"{place}: not a recording of an incident: {error}") from None
    if not isinstance(begin, Begin):
        raise RecordingError(f"{place}: not a recording of an incident: it has no beginning")
    if begin.version > VERSION:
        written = f"{place}: written by querypulse {begin.querypulse_version}, as version"
        raise RecordingError(f"{written} {begin.version}; this one reads up to {VERSION}")
    lines: list[AnyLine] = []
    unread = 0
    for text in rest:
        if not text or not text.startswith(beginnings):
            continue
        line = _decoded(text)
        if line is None:
            unread += 1
        else:
            lines.append(line)
    return Recording(begin, tuple(lines), unread)


def _decoded(text: bytes) -> AnyLine | None:
    try:
        line: AnyLine = _decoder.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return line


# -- parts ------------------------------------------------------------------------------------

_PART = re.compile(r"\.(\d{1,9})\Z", re.ASCII)


def part_id(recording: str, number: int) -> str:
    """The id of a part, by that of the first one: the part of the next process is ``ID.2``."""
    return recording if number == 1 else f"{recording}.{number}"


def part_number(recording: str) -> int:
    """Return the number of a part by its id: 2 of ``ID.2``, and 1 of the first one."""
    match = _PART.search(recording)
    return int(match.group(1)) if match else 1


def first_part(recording: str) -> str:
    """Return the id of the first part, by the id of any part."""
    return _PART.sub("", recording)


# -- patches ----------------------------------------------------------------------------------


REMOVED = "$removed"
_ESCAPE = "$"
"""Put before a name that begins with it: a query may be called ``$removed``."""


def patch_between(before: Patch, after: Patch) -> Patch:
    """The patch that makes ``after`` of ``before``."""
    patch: Patch = {}
    for name, value in after.items():
        old = before.get(name)
        if old is value and name in before:
            continue  # states share what has not changed
        member = f"{_ESCAPE}{name}" if name.startswith(_ESCAPE) else name
        if isinstance(old, dict) and isinstance(value, dict):
            inner = patch_between(old, value)
            if inner:
                patch[member] = inner
        elif name not in before or old != value:
            patch[member] = value
    removed = sorted(before.keys() - after.keys())
    return {**patch, REMOVED: removed} if removed else patch


def patched(target: Patch, patch: Patch) -> Patch:
    """The target with the patch applied; both stay as they are."""
    removed = set(patch.get(REMOVED, ()))
    result = {name: value for name, value in target.items() if name not in removed}
    for name, value in patch.items():
        if name == REMOVED:
            continue
        member = name.removeprefix(_ESCAPE)
        old = result.get(member)
        if isinstance(old, dict) and isinstance(value, dict):
            result[member] = patched(old, value)
        else:
            result[member] = value
    return result
