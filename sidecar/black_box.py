"""Records incidents in a thread of its own: what the worker evaluates, and whom receivers notify.

Nobody waits for it. Where it falls behind, evaluations are left out, and the next one shows what
has changed since the last one that was recorded.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ..alerting.alert import FIRING, RESOLVED
from ..alerting.delivery.deliveries import Attempt
from ..alerting.incidents.lifecycle import Evaluated
from ..alerting.policy import LimitSettings
from ..core.folders import Folder
from ..core.guard import Guard
from ..core.installed import VERSION
from ..core.threads import Loop
from ..exporter.published_state import RecordingFolder, process_of
from ..recording.lines import (
    OUTLINE,
    Notification,
    Recording,
    RecordingError,
    SeenFrom,
    decode,
    first_part,
    part_number,
)
from ..recording.recorder import About, Recorder, is_quiet, most_steps
from ..recording.ring import Ring
from ..recording.store import RecordingStore
from ..recording.timeline import (
    OPEN,
    Summary,
    Timeline,
    summary_of,
    timeline_of,
)
from ..settings.settings import Settings

MOST_ATTEMPTS = 256
"""Attempts to notify that wait for the thread; the oldest give way."""
KEPT_BYTES = 2 * 1024 * 1024
"""What recordings that have ended may hold in memory, where there is no folder."""
PAUSE_SECONDS = 2.0
"""Between two writes while an incident is open."""
CALM_SECONDS = 60.0
"""Between two looks at the folder while none is."""
MOST_SHOWN = 200
"""Incidents that are listed, the newest."""
MOST_READ = 8 * 1024 * 1024
"""Bytes of one timeline; a driver that restarts all night leaves hundreds of files."""
EVALUATED_BY = (
    *LimitSettings.__struct_fields__,
    "expected_queries",
    "expected_errors",
    "queries",
    "resolve_after_seconds",
    "repeat_interval_seconds",
    "probe_interval_seconds",
)
"""The settings that an evaluation depends on."""
NOT_EVALUATED = ("heartbeat_url", "heartbeat_url_file", "restart_hint")
"""What else a query may have."""


class BlackBox:
    """The recordings of one process; without a ``folder``, the newest ones are kept in memory."""

    def __init__(
        self,
        about: About,
        guard: Guard,
        *,
        redact: Callable[[str], str] = str,
        folder: Folder | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.place = "" if folder is None else folder.place
        self.ring = Ring()
        self.store = None if folder is None else RecordingStore(folder, wall)
        self._recorder = Recorder(about, self.ring, redact, self._parts_of)
        self.inherit = self._recorder.inherit
        """Go on with what an earlier process has left open; never waits."""
        self._wall = wall
        self._evaluated: deque[Evaluated] = deque()
        """What waits for the thread: as much as ``most_steps``; the oldest give way."""
        self._attempts: deque[Attempt] = deque(maxlen=MOST_ATTEMPTS)
        self._was_quiet = True
        """Whether the newest evaluation showed nothing."""
        self._wakes = threading.Event()
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._summaries: dict[str, tuple[int, Summary]] = {}
        """Of the newest incidents, with the size of what was read."""
        self._loop = Loop("recording", self._step, guard, last=self._end, wake=self._wakes.set)

    @property
    def problem(self) -> str:
        """Why recordings may not be in their folder; empty without a problem, or a folder."""
        return "" if self.store is None else self.store.problem

    @property
    def published(self) -> RecordingFolder:
        """What ``/status`` shows of the folder."""
        return RecordingFolder(
            place=self.place or None,
            failures=0 if self.store is None else self.store.failures,
            left_out=self._recorder.left_out,
            problem=self.problem or None,
        )

    def start(self) -> None:
        """Begin to record."""
        self._loop.start()

    def offer(self, evaluated: Evaluated) -> None:
        """Record an evaluation that shows, or ends, something; never waits."""
        was_quiet = self._was_quiet
        self._was_quiet = is_quiet(evaluated)
        if self._was_quiet and was_quiet and not self._recorder.is_recording:
            return
        self._evaluated.append(evaluated)
        while len(self._evaluated) > most_steps(evaluated):
            # The thread may have taken the last one.
            with suppress(IndexError):
                self._evaluated.popleft()
        self._wakes.set()

    def attempted(self, attempt: Attempt) -> None:
        """Record an attempt to notify a receiver; never waits."""
        self._attempts.append(attempt)
        self._wakes.set()

    def close(self, timeout: float) -> None:
        """Write what is left, within ``timeout`` seconds."""
        self._loop.stop()
        self._loop.join(timeout)

    def summaries(self) -> list[Summary]:
        """The newest incidents, the newest first; reads what it has not read yet.

        Raises:
            OSError: the store refuses.

        """
        sizes = self._sizes()
        parts: dict[str, list[str]] = {}
        for name in sizes:
            parts.setdefault(first_part(name), []).append(name)
        newest = sorted(parts, reverse=True)[:MOST_SHOWN]
        seen = {
            identity: self._summary(identity, {name: sizes[name] for name in parts[identity]})
            for identity in newest
        }
        self._summaries = {identity: entry for identity, entry in seen.items() if entry is not None}
        return [self._as_now(summary) for _, summary in self._summaries.values()]

    def timeline(self, identity: str) -> Timeline | None:
        """The story of one incident; None if there is no such recording.

        Of very many files, those in the middle are not read.

        Raises:
            OSError: the store refuses.

        """
        sizes = {name: size for name, size in self._sizes().items() if first_part(name) == identity}
        parts = self._read(first_and_newest(sizes), (b"",))
        if not parts:
            return None
        return timeline_of(parts, is_open=identity in self._recorder.open_ids)

    def _as_now(self, summary: Summary) -> Summary:
        """``open`` while this process records it, which a file does not show."""
        is_open = summary.until is None and summary.id in self._recorder.open_ids
        return msgspec.structs.replace(summary, how=OPEN) if is_open else summary

    def _summary(self, identity: str, sizes: dict[str, int]) -> tuple[int, Summary] | None:
        """The summary of a recording, and the size that its files had; None if none can be read."""
        size = sum(sizes.values())
        before = self._summaries.get(identity)
        if before is not None and before[0] == size:
            return before
        parts = self._read(sizes, OUTLINE)
        return (size, summary_of(parts)) if parts else None

    def _read(self, names: Iterable[str], beginnings: tuple[bytes, ...]) -> list[Recording]:
        parts = []
        for name in sorted(names, key=part_number):
            # A file may be deleted meanwhile, or be somebody else's.
            with suppress(FileNotFoundError, RecordingError):
                parts.append(decode(self._content(name), name, beginnings=beginnings))
        return parts

    def _content(self, name: str) -> bytes:
        if self.store is not None:
            return self.store.read(name)
        content = self._kept.get(name)
        if content is None:
            raise FileNotFoundError(name)
        return content

    def _sizes(self) -> dict[str, int]:
        """Bytes of each file, by its id."""
        if self.store is not None:
            return self.store.sizes()
        return {name: len(content) for name, content in tuple(self._kept.items())}

    def _step(self) -> None:
        if self.store is not None:
            self.store.tidy(self._wall())
        is_busy = self._recorder.is_recording or bool(self.problem)
        self._wakes.wait(PAUSE_SECONDS if is_busy else CALM_SECONDS)
        self._wakes.clear()
        self._record()

    def _end(self) -> None:
        self._record()
        self._recorder.close(self._wall())
        self._write()
        if self.store is not None:
            self.store.close()

    def _record(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, Evaluated):
                self._recorder.update(item)
            else:
                self._recorder.notified(item.incident.recording, notification_of(item))
        self._write()

    def _next(self) -> Evaluated | Attempt | None:
        """The oldest of what waits; None if nothing does, or if the worker has just dropped it."""
        with suppress(IndexError):
            at = self._evaluated[0].wall if self._evaluated else math.inf
            is_attempt = bool(self._attempts) and self._attempts[0].at < at
            return (self._attempts if is_attempt else self._evaluated).popleft()
        return None

    def _write(self) -> None:
        for written in self._recorder.take(self._wall()):
            if self.store is None:
                self._keep(written.id, written.whole)
                continue
            self.store.put(written.id, written.whole, written.added, urgent=written.is_urgent)
            if written.is_over:
                self.store.finish(written.id)

    def _keep(self, name: str, whole: bytes) -> None:
        self._kept[name] = whole
        self._kept.move_to_end(name)
        while sum(map(len, self._kept.values())) > KEPT_BYTES and len(self._kept) > 1:
            self._kept.popitem(last=False)

    def _parts_of(self, identity: str) -> int:
        """The number of a recording's last file; earlier ones may have been deleted."""
        numbers = (part_number(name) for name in self._sizes() if first_part(name) == identity)
        return max(numbers, default=0)


def first_and_newest(sizes: Mapping[str, int]) -> list[str]:
    """The ids of the files of one incident to read, by their sizes in bytes.

    The first one, and of the newest as many as fit into ``MOST_READ``.
    """
    names = sorted(sizes, key=part_number)
    chosen = names[:1]
    left = MOST_READ - sum(sizes[name] for name in chosen)
    for name in reversed(names[1:]):
        left -= sizes[name]
        if left < 0:
            break
        chosen.append(name)
    return chosen


def notification_of(attempt: Attempt) -> Notification:
    """What a recording says of an attempt."""
    incident = attempt.incident
    return Notification(
        at=attempt.at,
        incident=incident.key,
        receiver=attempt.receiver,
        status=RESOLVED if incident.is_over else FIRING,
        outcome=attempt.outcome,
        alerts=tuple(alert.name for alert in incident.alerts),
        error=attempt.error,
    )


def about_process(settings: Settings, app: str, spark_version: str, seen_from: SeenFrom) -> About:
    """What the recordings of this process begin with."""
    return About(
        app=app,
        seen_from=seen_from,
        labels=settings.labels,
        process=process_of(os.getpid()).id,
        querypulse_version=VERSION,
        spark_version=spark_version,
        settings=evaluation_settings(settings),
    )


def evaluation_settings(settings: Settings) -> dict[str, Any]:
    """The settings that an evaluation depends on; no secret is among them."""
    given = msgspec.to_builtins(settings)
    chosen = {name: given[name] for name in EVALUATED_BY if given.get(name) is not None}
    chosen["queries"] = {
        pattern: {
            name: value
            for name, value in own.items()
            if value is not None and name not in NOT_EVALUATED
        }
        for pattern, own in given["queries"].items()
    }
    return chosen
