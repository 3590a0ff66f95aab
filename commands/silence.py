"""``querypulse silence``: silences alerts in drivers, in the silence file and in Alertmanager."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from fnmatch import translate
from glob import escape
from pathlib import Path
from typing import Any

import msgspec
import requests

from ..alerting.alert import Silence, end_text
from ..alerting.receivers.receiver import is_readable, public_part
from ..core.secret import Secret
from ..core.text import rfc3339
from ..settings.loading import load_strictly
from ..settings.receivers import as_settings_error
from ..settings.settings import Settings, SettingsError
from ..settings.silencing import (
    Ending,
    add_silence,
    end_silences,
    in_force,
    read_silences,
    unmatched,
    written,
)

LONGEST = timedelta(days=366)
_DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?", re.ASCII)


class SilenceRequest(msgspec.Struct, frozen=True):
    """The arguments of the command line; without any, the command lists all silences."""

    queries: str | None = None
    lasting: timedelta | None = None
    end: str | None = None
    alertname: str = "*"
    app: str | None = None
    reason: str = ""
    file: str | None = None
    urls: Sequence[str] = ()
    token_file: str | None = None
    alertmanager: str | None = None
    ca_file: str | None = None
    allow_http: bool = False


HELP = {
    "queries": "which queries, such as 'bronze*'; without it and --end, silences are listed",
    "--for": "how long, such as 90s, 30m, 2h, 1d12h",
    "--alertname": "only alerts of this name",
    "--app": "which app (default: the setting app_name, and all apps with --url alone); '*' is all",
    "--reason": "shown with the silence",
    "--end": "end the silences of exactly this pattern and exactly --app",
    "--file": "use this file, not the setting silence_file",
    "--url": "a driver to silence until it ends, such as https://HOST:9719; may be repeated",
    "--token-file": "the token of the drivers",
    "--alertmanager": "an Alertmanager to silence, for alerts from Prometheus, too",
    "--ca-file": "the CA certificates that verify the servers",
    "--allow-http": "send the token to another machine over http://: the network can read it",
}


def add_silence_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the fields of a ``SilenceRequest``."""

    def add(name: str, **options: Any) -> None:
        parser.add_argument(name, help=HELP[name], **options)

    add("queries", nargs="?", metavar="PATTERN")
    add("--for", type=_duration, dest="lasting", metavar="TIME")
    add("--alertname", default="*", metavar="PATTERN")
    add("--app", metavar="PATTERN")
    add("--reason", default="")
    add("--end", metavar="PATTERN")
    add("--file")
    add("--url", action="append", default=[], dest="urls", metavar="URL")
    add("--token-file", metavar="FILE")
    add("--alertmanager", metavar="URL")
    add("--ca-file", metavar="FILE")
    add("--allow-http", action="store_true")


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    days, hours, minutes, seconds = (
        (int(part or 0) for part in match.groups()) if match else [0] * 4
    )
    lasting = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if not timedelta() < lasting <= LONGEST:
        raise argparse.ArgumentTypeError(f"such as 90s, 30m, 2h or 1d12h, given {text!r}")
    return lasting


def silence(request: SilenceRequest, environment: Mapping[str, str]) -> int:
    """Add, end or list silences, in each place that is named; 1 when a driver refused, or there
    was none to end.

    Raises:
        SettingsError: the arguments contradict each other, or a place cannot be used.

    """
    _require_consistent(request)
    now, settings = time.time(), load_strictly({}, environment).settings
    file = request.file or settings.silence_file
    if file is None and not request.urls and request.alertmanager is None:
        raise SettingsError(
            "silence: name a place: --url, --alertmanager, --file or the setting 'silence_file'"
        )
    path = None if file is None else Path(file)
    if request.end is None and request.queries is None:
        return _list(request, path, now)
    needs_app = path is not None or request.alertmanager is not None
    # A driver that gets a silence over HTTP knows its own app.
    app = _app(request, settings) if needs_app else request.app or "*"
    if request.queries is None:
        return _end(request, Ending(request.end or "", app), path, now)
    until = int(now) + (request.lasting or timedelta()).total_seconds()
    silence = Silence(request.queries, until, request.alertname, request.reason, app)
    # The query names are not known here.
    if note := unmatched(silence, None):
        sys.stderr.write(f"querypulse: {note}\n")
    if path is not None:
        with _file_errors():
            add_silence(path, silence, now)
    if request.alertmanager is not None:
        _silence_alertmanager(request, silence)
    if needs_app:
        _print((silence,), now)
    return _silence_drivers(request, silence)


def _require_consistent(request: SilenceRequest) -> None:
    if request.end is not None and (request.queries is not None or request.lasting is not None):
        raise SettingsError("silence: --end takes its own pattern and nothing else")
    if (request.queries is None) != (request.lasting is None):
        raise SettingsError("silence: PATTERN and --for go together: every silence has an end")
    readable = [url for url in request.urls if is_readable(url)]
    if readable and not request.allow_http:
        raise SettingsError(
            f"silence: {', '.join(readable)}: the token of another machine needs https://; "
            "--allow-http sends it over plain http:// where the network is trusted"
        )


def _app(request: SilenceRequest, settings: Settings) -> str:
    """The pattern of --app, else exactly the app of the settings."""
    if app := request.app or escape(settings.app_name or ""):
        return app
    raise SettingsError(
        "silence: name the app with --app or the setting 'app_name': several drivers may "
        "read the file; --app '*' is all apps"
    )


@contextmanager
def _file_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise SettingsError(f"silence: {error}") from None


def _end(request: SilenceRequest, ending: Ending, path: Path | None, now: float) -> int:
    ended = 0
    if path is not None:
        with _file_errors():
            ended += len(end_silences(path, ending, now))
    for silence in _alertmanager_silences(request):
        is_meant = matcher("query", ending.end) in silence.matchers
        if is_meant and (ending.app == "*" or matcher("app", ending.app) in silence.matchers):
            _ask_alertmanager(request, "DELETE", f"silence/{silence.id}")
            ended += 1
    answers = _ask_drivers(request, msgspec.structs.asdict(ending))
    ended += sum(answer["ended"] for answer in answers if answer is not None)
    if not ended:
        whose = f" of app {ending.app!r}" if ending.app != "*" else ""
        others = _outside_drivers(request, path, now)
        names = sorted({f"{silence.app}/{silence.queries}" for silence in others})
        sys.stderr.write(f"querypulse: no silence of {ending.end!r}{whose}; there are: {names}\n")
        return 1
    sys.stdout.write(f"ended: {ended} of {ending.end}\n")
    return 0


def _list(request: SilenceRequest, path: Path | None, now: float) -> int:
    silences = _outside_drivers(request, path, now)
    answers = _ask_drivers(request)
    for silence in (silence for answer in answers for silence in answer or ()):
        until = msgspec.convert(silence["until"], datetime).timestamp()
        silences.append(msgspec.convert(silence | {"until": until}, Silence))
    if not silences and None not in answers:
        sys.stdout.write("nothing is silenced\n")
    _print(silences, now)
    return 1 if None in answers else 0


def _outside_drivers(request: SilenceRequest, path: Path | None, now: float) -> list[Silence]:
    """The silences in force of the file and of Alertmanager."""
    with _file_errors():
        of_file = () if path is None else in_force(read_silences(path), now)
    return [*of_file, *(silence.as_ours() for silence in _alertmanager_silences(request))]


def _print(silences: Iterable[Silence], now: float) -> None:
    for silence in silences:
        left = timedelta(seconds=round(silence.until - now))
        why = f": {silence.reason}" if silence.reason else ""
        patterns = f"{silence.app}  {silence.queries}  {silence.alertname}"
        sys.stdout.write(f"{patterns}  until {end_text(silence.until)} ({left} left){why}\n")


# -- drivers ----------------------------------------------------------------------------------


SECONDS = 10.0


def _silence_drivers(request: SilenceRequest, silence: Silence) -> int:
    """Send the silence to each driver and print its answer; 1 when one did not accept it."""
    answers = _ask_drivers(request, written(silence))
    for url, answer in zip(request.urls, answers, strict=True):
        if answer is not None:
            note = f": {answer['note']}" if answer.get("note") else ""
            sys.stdout.write(f"{url.rstrip('/')}: silenced{note}\n")
    return 1 if None in answers else 0


def _ask_drivers(request: SilenceRequest, body: dict[str, str] | None = None) -> list[Any]:
    """The JSON answer of each driver to a POST of ``body``, or to a GET; None where it refuses.

    Raises:
        SettingsError: there is no token, or a file cannot be read.

    """
    if not request.urls:
        return []
    if request.token_file is None:
        raise SettingsError("silence: --url needs --token-file, the drivers' http_token_file")
    if request.ca_file is not None and not Path(request.ca_file).is_file():
        raise SettingsError(f"silence: --ca-file {request.ca_file}: no such file")
    with as_settings_error("silence: "):
        token = Secret.from_file(request.token_file, setting="--token-file")
    with requests.Session() as session:
        # No proxy or netrc of the environment: only the driver may receive the token.
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {token.known}"
        session.verify = request.ca_file or True
        return [_ask_driver(session, url, body) for url in request.urls]


def _ask_driver(session: requests.Session, url: str, body: dict[str, str] | None) -> Any:
    method = "GET" if body is None else "POST"
    data = None if body is None else msgspec.json.encode(body)
    address = f"{url.rstrip('/')}/silences"
    try:
        answer = session.request(method, address, data=data, timeout=SECONDS, allow_redirects=False)
        content = msgspec.json.decode(answer.content or b"null")
    except msgspec.DecodeError:
        content = None
    except (requests.RequestException, ValueError) as error:
        sys.stderr.write(f"querypulse: {url}: {type(error).__name__}: no answer\n")
        return None
    if answer.ok and content is not None:
        return content
    reason = content.get("error") if isinstance(content, dict) else answer.text.strip()[:200]
    sys.stderr.write(f"querypulse: {url} answered {answer.status_code}: {reason}\n")
    return None


# -- Alertmanager -----------------------------------------------------------------------------
# https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml


CREATOR = "querypulse"
_PARTS = re.compile(r"\[!?.[^]]*\]|\*|[^*[]+|\[", re.DOTALL)


class Matcher(msgspec.Struct, frozen=True, rename="camel"):
    """One label that a silence of Alertmanager selects; a regex matches the whole value."""

    name: str
    value: str
    is_regex: bool
    is_equal: bool = True


class _AlertmanagerSilence(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    matchers: tuple[Matcher, ...]
    ends_at: datetime
    comment: str
    created_by: str
    status: dict[str, str]

    def as_ours(self) -> Silence:
        patterns = {matcher.name: matcher.value for matcher in self.matchers if matcher.is_equal}
        queries, alertname, app = (
            patterns.get(name, "*") for name in ("query", "alertname", "app")
        )
        return Silence(queries, self.ends_at.timestamp(), alertname, self.comment, app)


def matcher(label: str, pattern: str) -> Matcher:
    """A name pattern as Alertmanager has it: its regular expressions are Go's (RE2).

    The pattern ``*`` selects only alerts that have the label.
    """
    if not set(pattern) & set("*?["):
        return Matcher(label, pattern, is_regex=False)
    # fnmatch puts its result between "(?s:" and ")\\Z".
    parts = (
        ".*" if part == "*" else translate(part)[len("(?s:") : -len(r")\Z")]
        for part in _PARTS.findall(pattern)
    )
    return Matcher(label, ".+" if pattern == "*" else "".join(parts), is_regex=True)


def _silence_alertmanager(request: SilenceRequest, silence: Silence) -> None:
    """Silence the alerts of ``silence``, from all senders, until it ends."""
    patterns = {"app": silence.app, "query": silence.queries, "alertname": silence.alertname}
    body = {
        "matchers": [
            *(matcher(label, pattern) for label, pattern in patterns.items()),
            # Its receiver raises the alarm when it stays away.
            Matcher("alertname", "QuerypulseWatchdog", is_regex=False, is_equal=False),
        ],
        "startsAt": rfc3339(time.time()),
        "endsAt": rfc3339(silence.until),
        "createdBy": CREATOR,
        "comment": silence.reason or "querypulse silence",
    }
    _ask_alertmanager(request, "POST", "silences", body)


def _alertmanager_silences(request: SilenceRequest) -> list[_AlertmanagerSilence]:
    """Those of this command that have not ended; none without an Alertmanager."""
    if request.alertmanager is None:
        return []
    answer = _ask_alertmanager(request, "GET", "silences")
    try:
        silences = msgspec.json.decode(answer, type=list[_AlertmanagerSilence])
    except msgspec.DecodeError as error:
        shown = _without_secrets(request.alertmanager)
        raise SettingsError(f"silence: {shown} is no Alertmanager (API v2): {error}") from None
    return [
        silence
        for silence in silences
        if silence.created_by == CREATOR and silence.status.get("state") != "expired"
    ]


def _ask_alertmanager(
    request: SilenceRequest, method: str, path: str, body: object = None
) -> bytes:
    url = request.alertmanager or ""
    shown = _without_secrets(url)
    try:
        answer = requests.request(
            method,
            f"{url.rstrip('/')}/api/v2/{path}",
            data=None if body is None else msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
            timeout=SECONDS,
            verify=request.ca_file or True,
        )
    except (requests.RequestException, ValueError) as error:
        raise SettingsError(f"silence: {shown}: {type(error).__name__}: no answer") from None
    if not answer.ok:
        raise SettingsError(
            f"silence: {shown} answered {answer.status_code}: {answer.text.strip()[:200]}"
        )
    return answer.content


def _without_secrets(url: str) -> str:
    with as_settings_error("silence: "):
        return public_part(url, setting="--alertmanager", allow_http=True)
