"""Replays the recording of an incident: evaluates its states again, as then or with other settings.

A recording holds the states of all queries that its incident may depend on, whenever something was
found or changed, and at least every ten seconds. Only the alerts of its own incident are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ..alerting.evaluate import evaluate
from ..alerting.policy import Policy
from ..alerting.silences import Silence
from ..listener.mailbox import Ending
from ..listener.state.identity import base_label
from ..listener.state.snapshot import Pause, Snapshot
from ..recording.lines import (
    AnyLine,
    Begin,
    Event,
    Patch,
    Recording,
    RecordingError,
    Request,
    Silenced,
    State,
    Thinned,
    decode,
    patched,
)
from ..recording.recorder import MOST_QUERIES, NEIGHBOURS_SECONDS
from ..recording.states import ending_of, held_of, snapshot_of
from .engine import Change, Replayed, Reporter, Terms, iso
from .log_files import Application, ReplayError, read_lines
from .terms import recorded_terms

_NOT_A_STATE = (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError)


def is_recording(application: Application) -> bool:
    """Whether this is one file that begins as a recording does."""
    try:
        first = next(iter(read_lines(Path(application.files[0]), lambda _: None)), b"")
    except ReplayError:
        return False
    return len(application.files) == 1 and first.startswith(Recording.BEGINS)


def replay_recording(
    application: Application,
    chosen: Mapping[str, Any],
    replayed: Replayed,
    on_read: Callable[[int], object] = lambda _: None,
) -> Iterator[Change]:
    """Evaluate a recording with its settings, of which those that are ``chosen`` differ.

    Raises:
        NotInstalledError: the file's codec needs a package that is not installed.
        SettingsError: the chosen settings cannot be used with those of the recording.

    """
    place = application.path
    replayed.is_recording = True
    problems: list[str] = []
    try:
        recording = _read(application, problems, on_read)
    except RecordingError as error:
        replayed.error = "; ".join([*problems, str(error)])
        return
    begin = recording.begin
    terms, unknown = recorded_terms(begin, chosen)
    if unknown:
        written = f"querypulse {begin.querypulse_version}".strip()
        problems.append(f"{place}: settings of {written} that are left out: {', '.join(unknown)}")
    replayed.app = terms.app_name or begin.app
    replayed.unread = recording.unread
    replayed.began_at = begin.at
    engine = RecordedEngine(recording, terms, replayed)
    for line in recording.lines:
        replayed.began_at = min(replayed.began_at, line.at)
        replayed.ended_at = max(replayed.ended_at or line.at, line.at)
        yield from engine.apply(line)
    problems += [f"{place}: {problem}" for problem in engine.problems]
    replayed.error = "; ".join(problems) or None


def _read(
    application: Application, problems: list[str], on_read: Callable[[int], object]
) -> Recording:
    """The recording, as far as it can be read."""
    content = bytearray()
    try:
        for line in read_lines(Path(application.files[0]), on_read):
            content += line
    except ReplayError as error:
        problems.append(str(error))
    recording = decode(bytes(content), application.path)
    # A killed driver leaves an unfinished last line.
    is_cut = not content.endswith(b"\n")
    return replace(recording, unread=max(0, recording.unread - is_cut))


class RecordedEngine:
    """Receives the lines of a recording in order, and returns the changes of its alerts."""

    def __init__(self, recording: Recording, terms: Terms, replayed: Replayed) -> None:
        self._begin: Begin = recording.begin
        self._policy = terms.policy
        self._reporter = Reporter(terms, replayed, subject=recording.begin.query)
        self._replayed = replayed
        self._driver: Patch = {}
        self._queries: Patch = {}
        self._silences: tuple[Silence, ...] = ()
        self._evaluated_at: float | None = None
        self._gaps: tuple[Pause, ...] = ()
        """Where states were left out: nothing recovers there."""
        self._is_thinned = any(isinstance(line, Thinned) for line in recording.lines)
        self._unread_states = 0
        self._why_unread = ""

    @property
    def problems(self) -> list[str]:
        """What could not be evaluated."""
        if self._unread_states:
            return [f"{self._unread_states} states were not understood: {self._why_unread}"]
        is_empty = self._evaluated_at is None
        return [] if not is_empty else ["it has no states that could be evaluated"]

    def apply(self, line: AnyLine) -> list[Change]:
        """Apply a line, and evaluate a state."""
        if isinstance(line, State):
            return self._apply_state(line)
        if isinstance(line, Silenced):
            self._silence(line)
        elif isinstance(line, Request) and line.request == "forget":
            self._reporter.lifecycle.forget(line.query)
        elif isinstance(line, Event):
            self._replayed.events += 1
        elif isinstance(line, Thinned):
            since, until = iso(line.at), iso(line.until)
            left_out = f"{line.lines} lines from {since} to {until} were left out to keep it small"
            note = f"{self._replayed.path}: {left_out}; times of alerts there are less exact"
            self._replayed.notes += (note,)
        return []

    def _silence(self, line: Silenced) -> None:
        try:
            self._silences = msgspec.convert(line.silences, tuple[Silence, ...], strict=False)
        except msgspec.ValidationError:
            self._replayed.unread += 1

    def _apply_state(self, line: State) -> list[Change]:
        try:
            self._driver = patched(self._driver, line.driver)
            self._queries = patched(self._queries, line.queries)
            snapshot = snapshot_of(self._driver, self._queries.values())
            ending = ending_of(self._driver)
        except _NOT_A_STATE as error:
            self._unread_states += 1
            self._why_unread = self._why_unread or str(error)
            return []
        return self._evaluate(replace(snapshot, at=line.now), line.at, ending)

    def _evaluate(self, snapshot: Snapshot, wall: float, ending: Ending | None) -> list[Change]:
        now = snapshot.at
        lifecycle = self._reporter.lifecycle
        if self._evaluated_at is None:
            lifecycle.restore_opened(self._begin.opened, now)
            self._reporter.restore(self._begin.restored, now)
            self._resume()
        elif self._is_thinned and now - self._evaluated_at > NEIGHBOURS_SECONDS:
            self._gaps += (Pause(now, now - self._evaluated_at),)
        self._evaluated_at = now
        snapshot, policy = self._expecting(snapshot)
        if ending is not None:
            crashed, program = ending.crashed, ending.program
            policy = replace(policy, ends=True, crashed=crashed, program=program)
        is_silenced = partial(lifecycle.is_silenced, silences=self._silences, wall=wall)
        evaluation = evaluate(snapshot, now, policy, is_silenced)
        watched = replace(snapshot, pauses=snapshot.pauses + self._gaps)
        return self._reporter.update(
            evaluation, watched, wall, self._silences, is_last=ending is not None
        )

    def _resume(self) -> None:
        try:
            self._reporter.lifecycle.resume(held_of(self._begin.held))
        except _NOT_A_STATE:
            self._replayed.unread += 1

    def _expecting(self, snapshot: Snapshot) -> tuple[Snapshot, Policy]:
        """The queries that are expected: not a forgotten one, nor one that was not recorded."""
        before = self._begin.settings.get("expected_queries")
        named = filter(_is_text, before) if isinstance(before, list) else ()
        forgotten = frozenset(named) - snapshot.expected
        is_complete = len(snapshot.queries) < MOST_QUERIES
        names = {query.name for query in snapshot.queries}
        expected = tuple(
            name
            for name in self._policy.expected
            if name not in forgotten
            and (is_complete or name in names or base_label(name) == self._begin.query)
        )
        policy = replace(self._policy, expected=expected)
        return replace(snapshot, expected=frozenset(expected)), policy


def _is_text(value: object) -> bool:
    return isinstance(value, str)
