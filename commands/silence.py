"""``querypulse silence``: silences alerts in drivers, in the silence file and in Alertmanager."""

from __future__ import annotations

import argparse
import re
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import translate
from glob import escape
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import requests

from ..alerting.receivers.receiver import is_readable, public_part
from ..alerting.silences import (
    NO_END,
    Ending,
    Silence,
    Written,
    change_silences,
    end_text,
    in_force,
    read_silences,
    unmatched,
    written,
)
from ..core.certificates import load_authorities
from ..core.secret import Secret
from ..core.text import rfc3339
from ..core.wall_time import Times, parse_window
from ..settings.loading import load_strictly
from ..settings.receivers import as_settings_error
from ..settings.settings import Settings

LONGEST = timedelta(days=366)
_DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?", re.ASCII)
Answer = TypeVar("Answer")


class SilenceRequest(msgspec.Struct, frozen=True):
    """The arguments of the command line; without any, the command lists all silences."""

    queries: str | None = None
    lasting: timedelta | None = None
    every: Times | None = None
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


def add_silence_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the fields of a ``SilenceRequest``."""

    def add(name: str, text: str, **options: Any) -> None:
        parser.add_argument(name, help=text, **options)

    which = "which queries, such as 'bronze*'; without it and --end, silences are listed"
    lasting = "how long, such as 90s, 30m, 2h, 1d12h"
    every = "again and again, such as 'sun 02:00-04:00 Europe/Berlin'; until --end, or --for"
    app = "which app (default: the setting app_name, and all apps with --url alone); '*' is all"
    end = "end the silences of exactly this pattern and exactly --app"
    url = "a driver to silence until it ends, such as https://HOST:9719; may be repeated"
    manager = "an Alertmanager to silence, for all senders, by the setting labels, too"
    http = "send the token to another machine over http://: the network can read it"
    add("queries", which, nargs="?", metavar="PATTERN")
    add("--for", lasting, type=_duration, dest="lasting", metavar="TIME")
    add("--every", every, type=_windows, metavar="TIMES")
    add("--alertname", "only alerts of this name", default="*", metavar="PATTERN")
    add("--app", app, metavar="PATTERN")
    add("--reason", "shown with the silence", default="")
    add("--end", end, metavar="PATTERN")
    add("--file", "use this file, not the setting silence_file")
    add("--url", url, action="append", default=[], dest="urls", metavar="URL")
    add("--token-file", "the token of the drivers", metavar="FILE")
    add("--alertmanager", manager, metavar="URL")
    add("--ca-file", "the CA certificates that verify the servers", metavar="FILE")
    add("--allow-http", http, action="store_true")


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    days, hours, minutes, seconds = (
        (int(part or 0) for part in match.groups()) if match else [0] * 4
    )
    lasting = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if not timedelta() < lasting <= LONGEST:
        raise argparse.ArgumentTypeError(f"such as 90s, 30m, 2h or 1d12h, given {text!r}")
    return lasting


def _windows(text: str) -> Times:
    try:
        return parse_window(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def silence(request: SilenceRequest, environment: Mapping[str, str]) -> int:
    """Add, end or list silences in each place that is named; 1 when a place refused or did not
    answer, or there was none to end.

    Raises:
        SettingsError: the arguments contradict each other, or a setting or a file with a token or
            certificates cannot be used.

    """
    now = time.time()
    settings = load_strictly({}, environment)
    with as_settings_error(settings, "silence: "):
        _require_consistent(request, now)
        places = _places(request, settings)
    if request.end is None and request.queries is None:
        return _list(places, now)
    app = _app(request, settings, places)
    if request.queries is None:
        return _end(places, Ending(request.end or "", app))
    until = NO_END if request.lasting is None else int(now) + request.lasting.total_seconds()
    silence = Silence(request.queries, until, request.alertname, request.reason, app, request.every)
    # The query names are not known here.
    if note := unmatched(silence, None):
        sys.stderr.write(f"querypulse: {note}\n")
    answers = _ask_each(places, lambda place: place.add(silence))
    if answers:
        _print([(silence, "")], now)
    for place, note in answers:
        sys.stdout.write(f"{place.name}: silenced{note and f': {note}'}\n")
    return 1 if len(answers) < len(places) else 0


def _require_consistent(request: SilenceRequest, now: float) -> None:
    has_time = request.lasting is not None or request.every is not None
    is_new = request.queries is not None or has_time
    if request.end is not None and (is_new or request.alertname != "*" or request.reason):
        raise ValueError(
            "--end takes its own pattern, --app and places: PATTERN, --for, --every, --alertname "
            "and --reason are for a new silence"
        )
    if (request.queries is not None) != has_time:
        raise ValueError(
            "PATTERN goes together with --for or --every: a silence has an end, or windows"
        )
    if request.every is not None and request.lasting is not None:
        end = now + request.lasting.total_seconds()
        if Silence("*", end, every=request.every).window(now) is None:
            raise ValueError(
                f"--every {request.every.text} would never hold: --for ends before it begins"
            )
    if not request.allow_http:
        require_unreadable(request.urls)


def require_unreadable(urls: Sequence[str]) -> None:
    """Require that no network can read the token that is sent to these drivers.

    Raises:
        ValueError: one is another machine, without TLS.

    """
    readable = [url for url in urls if is_readable(url)]
    if readable:
        raise ValueError(
            f"{', '.join(readable)}: the token of another machine needs https://; "
            "--allow-http sends it over plain http:// where the network is trusted"
        )


def bearer(token_file: str) -> Secret:
    """The header that sends the token of ``--token-file``.

    Raises:
        ValueError: the file cannot be read.

    """
    token = Secret.from_file(token_file, setting="--token-file")
    return Secret(f"Bearer {token.known}")


def _app(request: SilenceRequest, settings: Settings, places: Sequence[Place]) -> str:
    """The pattern of --app, else exactly the app of the settings."""
    if request.app:
        return request.app
    # A driver that gets a silence over HTTP knows its own app.
    if all(isinstance(place, Driver) for place in places):
        return "*"
    if settings.app_name is not None:
        return escape(settings.app_name)
    raise settings.error(
        "silence: name the app with --app or the setting 'app_name': several drivers may read "
        "the file; --app '*' is all apps"
    )


def _places(request: SilenceRequest, settings: Settings) -> list[Place]:
    file = request.file or settings.silence_file
    ca_file = request.ca_file
    if ca_file is not None:
        load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ca_file, "--ca-file")
    places: list[Place] = [] if file is None else [File(Path(file))]
    if (url := request.alertmanager) is not None:
        name = public_part(url, setting="--alertmanager", allow_http=True)
        header = _alertmanager_authorization(url, settings)
        places.append(Alertmanager(name, url, ca_file, header, labels=settings.labels))
    if request.urls and request.token_file is None:
        raise ValueError("--url needs --token-file, the drivers' http_token_file")
    if request.urls and request.token_file is not None:
        header = bearer(request.token_file)
        places += [Driver(url.rstrip("/"), url, ca_file, header) for url in request.urls]
    if not places:
        raise ValueError(
            "name a place: --url, --alertmanager, --file or the setting 'silence_file'"
        )
    return places


def _alertmanager_authorization(url: str, settings: Settings) -> Secret | None:
    """The header of ``alertmanager_credentials_file``, for one of ``alertmanager_urls`` only.

    Raises:
        ValueError: the file cannot be used.

    """
    path = settings.alertmanager_credentials_file
    ours = [own.rstrip("/") for own in settings.alertmanager_urls]
    if path is None or url.rstrip("/") not in ours:
        return None
    credentials = Secret.from_file(path, setting="alertmanager_credentials_file")
    return Secret(credentials.authorization())


def _ask_each(
    places: Sequence[Place], ask: Callable[[Place], Answer]
) -> list[tuple[Place, Answer]]:
    """The places that answered, and what; the others are named on stderr."""
    answers = []
    for place in places:
        try:
            answers.append((place, ask(place)))
        except (PlaceError, OSError, ValueError) as error:  # noqa: PERF203 - there are few
            sys.stderr.write(f"querypulse: {error}\n")
    return answers


def _end(places: Sequence[Place], ending: Ending) -> int:
    answers = _ask_each(places, lambda place: place.end(ending))
    if not any(ended for _, ended in answers):
        whose = f" of app {ending.app!r}" if ending.app != "*" else ""
        sys.stderr.write(
            f"querypulse: no silence of {ending.end!r}{whose}; without --end, they are listed\n"
        )
        return 1
    for place, ended in answers:
        sys.stdout.write(f"{place.name}: ended: {ended} of {ending.end}\n")
    return 1 if len(answers) < len(places) else 0


def _list(places: Sequence[Place], now: float) -> int:
    answers = _ask_each(places, lambda place: place.silences())
    entries = [entry for _, entries in answers for entry in entries]
    if not entries and len(answers) == len(places):
        sys.stdout.write("nothing is silenced\n")
    _print(entries, now)
    return 1 if len(answers) < len(places) else 0


def _print(entries: Iterable[Entry], now: float) -> None:
    for silence, labels in entries:
        why = f": {silence.reason}" if silence.reason else ""
        patterns = f"{silence.app}{labels}  {silence.queries}  {silence.alertname}"
        sys.stdout.write(f"{patterns}  {_time_text(silence, now)}{why}\n")


def _time_text(silence: Silence, now: float) -> str:
    """Until when it holds; of one that recurs its windows, and the present or the next one."""
    until = f"until {end_text(silence.until)}"
    if silence.every is None:
        return f"{until} ({_left(silence.until, now)} left)"
    text = silence.every.text if silence.until == NO_END else f"{silence.every.text} {until}"
    window = silence.window(now)
    if window is None:
        return f"{text} (no window is left)"
    begin, end = window
    if begin <= now:
        return f"{text} (now, until {end_text(end)}: {_left(end, now)} left)"
    return f"{text} (next {end_text(begin)} to {end_text(end)}: in {_left(begin, now)})"


def _left(wall: float, now: float) -> timedelta:
    return timedelta(seconds=round(wall - now))


# -- places -----------------------------------------------------------------------------------

SECONDS = 10.0
Entry = tuple[Silence, str]
"""A silence in force, and the labels that it is limited to."""


class PlaceError(Exception):
    """A place refused or did not answer; the message names it."""


class File(msgspec.Struct, frozen=True):
    """The silence file, which drivers and watchers read."""

    path: Path

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def add(self, silence: Silence) -> str:
        """Add the silence."""
        change_silences(self.path, time.time(), add=silence)
        return ""

    def end(self, ending: Ending) -> int:
        """End silences; returns how many."""
        return change_silences(self.path, time.time(), end=ending)

    def silences(self) -> list[Entry]:
        """Those in force."""
        return [(silence, "") for silence in in_force(read_silences(self.path), time.time())]


class Server(msgspec.Struct, frozen=True):
    """What drivers and Alertmanager have in common; ``name`` is what of the URL may be shown."""

    name: str
    url: str
    ca_file: str | None
    authorization: Secret | None = None
    """The header of this name."""

    def ask(self, kind: type[Answer], method: str, path: str, body: object = None) -> Answer:
        """Send a request, and decode its answer.

        Raises:
            PlaceError: there is no answer, or it is a refusal, or of another kind.

        """
        with requests.Session() as session:
            if self.authorization is not None:
                # No proxy or netrc of the environment: only the server may receive it.
                session.trust_env = False
                session.headers["Authorization"] = self.authorization.known
            session.verify = self.ca_file or True
            try:
                response = session.request(
                    method,
                    f"{self.url.rstrip('/')}/{path}",
                    data=None if body is None else msgspec.json.encode(body),
                    headers={"Content-Type": "application/json"},
                    timeout=SECONDS,
                    allow_redirects=False,
                )
            except (OSError, ValueError) as error:
                raise PlaceError(f"{self.name}: {type(error).__name__}: no answer") from None
        if not response.ok or response.is_redirect:
            raise PlaceError(f"{self.name} answered {response.status_code}: {_reason(response)}")
        try:
            return msgspec.json.decode(response.content or b"null", type=kind)
        except msgspec.DecodeError as error:
            raise PlaceError(f"{self.name} is no {type(self).__name__}: {error}") from None


def _reason(response: requests.Response) -> str:
    try:
        return str(response.json()["error"])
    except (ValueError, TypeError, KeyError):
        return " ".join(response.text.split())[:200]


class Driver(Server, frozen=True):
    """A running driver, which keeps silences until it ends."""

    def add(self, silence: Silence) -> str:
        """Add the silence; returns what the driver remarks."""
        return self.ask(dict[str, str], "POST", "silences", written(silence)).get("note", "")

    def end(self, ending: Ending) -> int:
        """End silences; returns how many."""
        return self.ask(dict[str, int], "POST", "silences", ending).get("ended", 0)

    def silences(self) -> list[Entry]:
        """Those in force."""
        return [(entry.silence(), "") for entry in self.ask(list[Written], "GET", "silences")]


# -- Alertmanager -----------------------------------------------------------------------------
# https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml

CREATOR = "querypulse"
_PARTS = re.compile(r"\[!?.[^]]*\]|\*|[^*[]+|\[", re.DOTALL)
_ANY = ".+"
"""Any value of a label, but not its absence."""


class Matcher(msgspec.Struct, frozen=True, rename="camel"):
    """One label that a silence of Alertmanager selects; a regex matches the whole value."""

    name: str
    value: str
    is_regex: bool
    is_equal: bool = True

    def __str__(self) -> str:
        """What it selects, as Alertmanager has it; ``*`` is any value."""
        return "*" if self.is_regex and self.value == _ANY else self.value


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
    return Matcher(label, _ANY if pattern == "*" else "".join(parts), is_regex=True)


class _AlertmanagerSilence(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    matchers: tuple[Matcher, ...]
    ends_at: datetime
    comment: str
    created_by: str
    status: dict[str, str]

    def silence(self) -> Silence:
        """The silence; its patterns are Alertmanager's regular expressions."""
        shown = {label.name: str(label) for label in self.matchers if label.is_equal}
        queries, alertname, app = (shown.get(name, "*") for name in ("query", "alertname", "app"))
        return Silence(queries, self.ends_at.timestamp(), alertname, self.comment, app)

    def labels(self) -> dict[str, str]:
        return {
            label.name: label.value
            for label in self.matchers
            if label.name not in {"query", "alertname", "app"}
            and label == Matcher(label.name, label.value, is_regex=False)
        }


class Alertmanager(Server, frozen=True, kw_only=True):
    """An Alertmanager, where silences hold for all senders, and for the alerts with ``labels``."""

    labels: dict[str, str]

    def add(self, silence: Silence) -> str:
        """Add the silence; returns the labels that it is limited to.

        Raises:
            PlaceError: it recurs, or Alertmanager refused it.

        """
        if silence.every is not None:
            raise PlaceError(
                f"{self.name}: a silence of Alertmanager cannot recur: name the times in its "
                "configuration, in 'time_intervals', and those in 'mute_time_intervals' of a route"
            )
        patterns = {"app": silence.app, "query": silence.queries, "alertname": silence.alertname}
        body = {
            "matchers": [
                *(matcher(name, pattern) for name, pattern in patterns.items()),
                *(Matcher(name, value, is_regex=False) for name, value in self.labels.items()),
                # Its receiver raises the alarm when it stays away.
                Matcher("alertname", "QuerypulseWatchdog", is_regex=False, is_equal=False),
            ],
            "startsAt": rfc3339(time.time()),
            "endsAt": rfc3339(silence.until),
            "createdBy": CREATOR,
            "comment": silence.reason or "querypulse silence",
        }
        self.ask(dict[str, str], "POST", "api/v2/silences", body)
        return f"only alerts with the labels {_labels_text(self.labels)}" if self.labels else ""

    def end(self, ending: Ending) -> int:
        """End silences that have ``labels``; returns how many."""
        wanted = Ending(str(matcher("query", ending.end)), str(matcher("app", ending.app)))
        ids = [
            silence.id
            for silence in self._silences()
            if wanted.ends(silence.silence()) and self.labels.items() <= silence.labels().items()
        ]
        for silence_id in ids:
            self.ask(object, "DELETE", f"api/v2/silence/{silence_id}")
        return len(ids)

    def silences(self) -> list[Entry]:
        """Those in force, with any labels."""
        return [(silence.silence(), _labels_text(silence.labels())) for silence in self._silences()]

    def _silences(self) -> list[_AlertmanagerSilence]:
        """Those of this command that have not ended."""
        return [
            silence
            for silence in self.ask(list[_AlertmanagerSilence], "GET", "api/v2/silences")
            if silence.created_by == CREATOR and silence.status.get("state") != "expired"
        ]


def _labels_text(labels: Mapping[str, str]) -> str:
    text = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{text}}}" if text else ""


Place = File | Driver | Alertmanager
