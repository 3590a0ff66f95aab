"""The lines of one recording within its bound: the middle thins out, beginning and end stay."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from .lines import (
    AlertChanged,
    AnyLine,
    Begin,
    Change,
    End,
    Event,
    Notification,
    Patch,
    Recording,
    Stack,
    State,
    Thinned,
    decode,
    encode,
    patch_between,
    patched,
)

KEPT_SHARE = 0.25
"""Of the bound: the beginning that stays as it is, and the end."""
ROOM_SHARE = 0.75
"""Of the bound: what is left after thinning, so that it is rare."""
GENTLE_ROUNDS, ROUNDS = 12, 24


class Lines:
    """The encoded lines of one recording."""

    def __init__(self, begin: Begin) -> None:
        self._content = bytearray(encode([begin]))
        self._taken = 0
        self._least = 0
        """What thinning has left: it may be unable to leave less."""
        self._is_urgent = True
        self._is_rewritten = False

    @property
    def whole(self) -> bytes:
        """All of it."""
        return bytes(self._content)

    def add(self, line: AnyLine) -> None:
        """Add a line at the end."""
        self._content += encode([line])
        self._is_urgent |= isinstance(line, (AlertChanged, Notification, End))

    def take(self, most_bytes: int) -> tuple[bytes, bool] | None:
        """What was added since the last time, and whether it is urgent; None if nothing was.

        Where all of it is longer than ``most_bytes``, it is thinned out first, and nothing was
        added: all of it is new.
        """
        if len(self._content) > max(most_bytes, self._least / ROOM_SHARE):
            self._content = bytearray(thinned(bytes(self._content), most_bytes))
            self._least = len(self._content)
            self._is_rewritten = True
        if len(self._content) == self._taken and not self._is_rewritten:
            return None
        added = b"" if self._is_rewritten else bytes(self._content[self._taken :])
        is_urgent = self._is_urgent
        self._is_urgent = False
        self._is_rewritten = False
        self._taken = len(self._content)
        return added, is_urgent


def thinned(content: bytes, most_bytes: int) -> bytes:
    """A recording that is no longer than ``most_bytes``, if at all possible.

    Of its middle every second state, event and stack goes, again and again; then also what alerts
    said meanwhile, and attempts to notify. What changed in a state that goes is part of the next.
    """
    recording = decode(content, "")
    wanted = int(most_bytes * ROOM_SHARE)
    for number in range(ROUNDS):
        if len(encode(_all(recording))) <= wanted:
            break
        gone = _to_drop(recording, most_bytes, is_gentle=number < GENTLE_ROUNDS)
        if not gone:
            continue
        recording = replace(recording, lines=tuple(_without(recording.lines, gone)))
    return encode(_all(recording))


def _all(recording: Recording) -> list[AnyLine]:
    return [recording.begin, *recording.lines]


def _to_drop(recording: Recording, most_bytes: int, *, is_gentle: bool) -> frozenset[int]:
    """The positions of every second line of the middle that may go; the last state stays."""
    lines = recording.lines
    states = [position for position, line in enumerate(lines) if isinstance(line, State)]
    staying = {*states[:1], *states[-1:]}
    sizes = [len(encode([line])) for line in lines]
    kept = most_bytes * KEPT_SHARE if is_gentle else 0.0
    end = sum(sizes) - kept
    passed = 0.0
    middle = []
    for position, size in enumerate(sizes):
        passed += size
        is_middle = kept < passed <= end and position not in staying
        if is_middle and _may_go(lines[position], is_gentle=is_gentle):
            middle.append(position)
    return frozenset(middle[::2])


def _may_go(line: AnyLine, *, is_gentle: bool) -> bool:
    if isinstance(line, (State, Event, Stack)):
        return True
    if is_gentle:
        return False
    is_text = isinstance(line, AlertChanged) and line.change is Change.CHANGED
    return is_text or isinstance(line, Notification)


def _without(lines: Sequence[AnyLine], gone: Collection[int]) -> Iterator[AnyLine]:
    """The lines without those at these positions, and one that says where they were."""
    before = _States()
    written = _States()
    counted = [line for line in lines if isinstance(line, Thinned)]
    left_out = [lines[position] for position in sorted(gone)]
    spans = [(line.at, line.until) for line in counted] + [(line.at, line.at) for line in left_out]
    place = next((n for n, line in enumerate(lines) if n in gone or isinstance(line, Thinned)), -1)
    for position, line in enumerate(lines):
        if position == place:
            since = min(since for since, _ in spans)
            until = max(until for _, until in spans)
            count = sum(line.lines for line in counted) + len(left_out)
            yield Thinned(at=since, until=until, lines=count)
        if isinstance(line, State):
            before = before.after(line)
        if position in gone or isinstance(line, Thinned):
            continue
        if isinstance(line, State):
            yield written.line_to(before, line)
            written = before
        else:
            yield line


class _States:
    """The states of the driver and of its queries after some lines."""

    def __init__(self, driver: Patch | None = None, queries: Patch | None = None) -> None:
        self._driver = driver or {}
        self._queries = queries or {}

    def after(self, line: State) -> _States:
        """The states after one more line."""
        return _States(patched(self._driver, line.driver), patched(self._queries, line.queries))

    def line_to(self, other: _States, line: State) -> State:
        """The line that leads from these states to others, at the time of ``line``."""
        driver = patch_between(self._driver, other._driver)
        return replace(line, driver=driver, queries=patch_between(self._queries, other._queries))
