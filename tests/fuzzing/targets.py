"""The targets: each is a function of bytes that raises when a promise is broken."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from pathlib import Path

import msgspec
from support.exporter_http import raw, serving
from support.published_states import full_published, published
from support.story import Story

from querypulse.alerting.alert import Alert
from querypulse.alerting.silences import SilenceStore, post_silence, read_silences
from querypulse.core.guard import Guard
from querypulse.exporter import exposition
from querypulse.exporter.metrics import all_families
from querypulse.exporter.pages import Notice
from querypulse.exporter.status import status
from querypulse.listener.commit_log import LogReport
from querypulse.listener.events import (
    DecodeError,
    EventKind,
    Idle,
    Progress,
    Started,
    Terminated,
    decode,
)
from querypulse.listener.probe_report import ProbeReport
from querypulse.listener.source_polls import SourceReport
from querypulse.settings.links import runbook
from querypulse.settings.loading import CONFIG_VARIABLE, load_settings
from querypulse.settings.settings import SettingsError

MOST_LINES = 60
MOST_SECONDS = 1e6
LARGEST = 2**63
"""Every number of the JVM is a long at most, or a finite double."""
KINDS = {
    b"S": (EventKind.STARTED, Started),
    b"P": (EventKind.PROGRESS, Progress),
    b"I": (EventKind.IDLE, Idle),
    b"T": (EventKind.TERMINATED, Terminated),
}
REPORTS = {b"R": ProbeReport, b"L": LogReport, b"D": SourceReport}
TOKEN = "t0ken"
SHOWN = full_published()
_TEMPORARY = tempfile.TemporaryDirectory(prefix="querypulse-fuzzing-")
FOLDER = Path(_TEMPORARY.name)


class Broken(AssertionError):
    """A promise is broken."""


# -- the event decoder ------------------------------------------------------------------------


def events(data: bytes) -> None:
    """A letter of ``KINDS``, and the JSON of an event: a record of that kind, or ``DecodeError``."""
    kind, record = KINDS.get(data[:1], KINDS[b"P"])
    for text in (data[1:], data[1:].decode("utf-8", "surrogateescape")):
        with suppress(DecodeError):
            event = decode(kind, text)
            _require(isinstance(event, record), "another kind of event")
            if isinstance(event, Progress):
                _require(event.input_rows >= 0, "negative rows")
                _require(isfinite(event.watermark_timestamp or 0.0), "no finite watermark")
                lags = [source.lag_offsets or 0.0 for source in event.sources]
                _require(min(lags, default=0.0) >= 0, "negative lag")


# -- the state of the queries -----------------------------------------------------------------


def state(data: bytes) -> None:
    """Lines of one observation each, then an evaluation and what is published of it."""
    story, clock = Story(), _Clock()
    for line in data.splitlines()[:MOST_LINES]:
        _apply(story, clock, line[:1], line[1:])
    shown = published(story, now=clock.now, expected=("expected",))
    exposition.as_text(all_families(shown))
    exposition.as_openmetrics(all_families(shown))
    text = msgspec.json.encode(status(shown))
    _require(json.loads(text) is not None, "no status")


class _Clock:
    now = 1.0


def _apply(story: Story, clock: _Clock, letter: bytes, text: bytes) -> None:
    if letter in KINDS:
        with suppress(DecodeError):
            story.state.apply_event(decode(KINDS[letter][0], text), clock.now)
    elif letter in REPORTS:
        _apply_report(story, clock, letter, text)
    else:
        _command(story, clock, letter, text.decode("utf-8", "replace"))


def _apply_report(story: Story, clock: _Clock, letter: bytes, text: bytes) -> None:
    report = _decoded(text, REPORTS[letter])
    if report is None:
        return
    report = msgspec.structs.replace(report, at=clock.now)
    if isinstance(report, ProbeReport):
        began = min(max(0.0, report.began_at), clock.now)
        story.state.apply_probe(msgspec.structs.replace(report, began_at=began))
    elif isinstance(report, LogReport):
        story.state.apply_commit_log(report)
    else:
        story.state.apply_sources(report)


def _command(story: Story, clock: _Clock, letter: bytes, name: str) -> None:
    if letter == b"+":
        clock.now += _seconds(name)
    elif letter == b"E":
        story.state.expect_stop(name)
    elif letter == b"N":
        story.state.forget_name(name)
    elif letter == b"F":
        story.state.forget(clock.now)
    elif letter == b"Z":
        story.state.pause(clock.now, min(clock.now, 60.0))
    elif letter == b"V":
        story.evaluate(clock.now, expected=("expected",))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 1.0
    return seconds if 0.0 <= seconds <= MOST_SECONDS else 1.0


def _decoded(text: bytes, record: type):
    """A report as a probe or a reader could have made it; None for any other text."""
    try:
        _require_of_the_jvm(json.loads(text))
        return msgspec.json.decode(text, type=record)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def _require_of_the_jvm(value: object) -> None:
    if isinstance(value, (dict, list)):
        for entry in value.values() if isinstance(value, dict) else value:
            _require_of_the_jvm(entry)
    elif isinstance(value, (int, float)) and not abs(value) < LARGEST:
        raise ValueError


# -- the HTTP server --------------------------------------------------------------------------


def http(data: bytes) -> None:
    """What a client sends before it sends no more: an answer or none, and no data without a token."""
    guard, silencing, uses = Guard(), SilenceStore(None, Guard()), []
    content = {
        "alive": lambda: uses.append("the worker's state") or True,
        "runbook": runbook,
        "silence": lambda body: (
            uses.append("a silence") or post_silence(body, silencing, ("billing",))
        ),
    }

    def shown():
        uses.append("the published state")
        return SHOWN

    with serving(shown, guard=guard, host="0.0.0.0", token=TOKEN, **content) as server:
        server._shutdown_notice.said = Notice.STOPPED
        answer = raw(server, data[:60_000], is_all=True)
    _require(not guard.errors, f"an error of ours: {guard.errors}")
    _require(b"Traceback" not in answer, "a traceback")
    _require(not uses or TOKEN.encode() in data, f"{uses} without the token")
    if answer.startswith(b"HTTP/1."):
        _require(int(answer.split()[1]) != 500, "an answer of 500")
    elif answer:
        # A request of one or two words is one of HTTP/0.9, and one whose version cannot be read
        # counts as such: both are answered without a status line.
        is_old = len(data.split(b"\n")[0].split()) < 3 or answer.startswith(b"<!DOCTYPE HTML>")
        _require(is_old, "an answer without a status line")


# -- the settings -----------------------------------------------------------------------------


def settings(data: bytes) -> None:
    """A letter for the source, and its text: settings, or an error that names the source."""
    letter, rest = data[:1], data[1:]
    if letter == b"S":
        _silence_file(rest)
        return
    text = rest.decode("utf-8", "surrogateescape")
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    environment, conf, arguments = {}, {}, {}
    if letter == b"E":
        environment = {f"QUERYPULSE_{key}": value for key, value in pairs.items()}
        environment.pop(CONFIG_VARIABLE, None)
    elif letter == b"C":
        conf = {f"spark.querypulse.{key}": value for key, value in pairs.items()}
    elif letter == b"A":
        arguments = _arguments(rest)
    else:
        path = FOLDER / "settings.toml"
        path.write_bytes(rest)
        environment = {CONFIG_VARIABLE: str(path)}
    try:
        loaded = load_settings(arguments, environment, conf)
    except SettingsError as error:
        _require(_names_source(str(error)), f"an error without its source: {error}")
    else:
        _require(all(map(_names_source, loaded.problems)), "a problem without its source")
        # All texts can leave the process.
        msgspec.json.encode((loaded.settings, loaded.problems))


def _arguments(text: bytes) -> dict[str, object]:
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _names_source(message: str) -> bool:
    return any(
        word in message for word in ("variable QUERYPULSE_", "Spark conf", "argument ", "file ")
    )


def _silence_file(data: bytes) -> None:
    path = FOLDER / "silences"
    path.write_bytes(data)
    with suppress(ValueError):
        labels = {"alertname": "a", "app": "b", "query": "c", "severity": "critical"}
        for silence in read_silences(path):
            silence.covers(Alert(labels, {}, 0.0), 0.0)


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Broken(otherwise)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "events": events,
    "state": state,
    "http": http,
    "settings": settings,
}
