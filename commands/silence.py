"""``querypulse silence``: writes silences to the file that sidecars read, or sends them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from glob import escape
from pathlib import Path
from typing import Any

import msgspec
import requests

from ..alerting.receivers.receiver import is_readable
from ..alerting.silences import end_text
from ..core.secret import Secret
from ..settings.loading import load_strictly
from ..settings.receivers import as_settings_error
from ..settings.settings import SettingsError, SilenceSettings
from ..settings.silencing import (
    Silences,
    add_silence,
    end_silences,
    in_force,
    read_silences,
    unmatched,
)

# -- silence drivers --------------------------------------------------------------------------
# ``querypulse silence --url``: sends silences to running drivers, without a shared disk.


SECONDS = 10.0
CREATED = 201


def require_private(urls: Iterable[str], *, allow_http: bool) -> None:
    """Refuse to send the token where anybody on the network can read it, unless that is allowed.

    Raises:
        SettingsError: a URL of another machine has no TLS.

    """
    readable = [url for url in urls if is_readable(url)]
    if readable and not allow_http:
        raise SettingsError(
            f"silence: {', '.join(readable)}: the token of another machine needs https://; "
            "--allow-http sends it over plain http:// where the network is trusted"
        )


def silence_drivers(
    urls: tuple[str, ...], one: SilenceSettings, token_file: str | None, ca_file: str | None
) -> int:
    """Send the silence to each driver and print its answer; 1 when one did not accept it.

    Raises:
        SettingsError: there is no token, or a file cannot be read.

    """
    if token_file is None:
        raise SettingsError("silence: --url needs --token-file, the drivers' http_token_file")
    if ca_file is not None and not Path(ca_file).is_file():
        raise SettingsError(f"silence: --ca-file {ca_file}: no such file")
    with as_settings_error("silence: "):
        token = Secret.from_file(token_file, setting="--token-file")
    with requests.Session() as session:
        # No proxy or netrc of the environment: only the driver may receive the token.
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {token.known}"
        session.verify = ca_file or True
        answers = [_silence(session, url.rstrip("/"), one) for url in urls]
    return 0 if all(answers) else 1


def _silence(session: requests.Session, url: str, one: SilenceSettings) -> bool:
    try:
        answer = session.post(
            f"{url}/silences",
            data=msgspec.json.encode(one),
            timeout=SECONDS,
            allow_redirects=False,
        )
    except (requests.RequestException, ValueError) as error:
        sys.stderr.write(f"querypulse: {url}: {type(error).__name__}: not silenced\n")
        return False
    if answer.status_code != CREATED:
        sys.stderr.write(f"querypulse: {url} answered {answer.status_code}: {_reason(answer)}\n")
        return False
    note = _field(answer, "note")
    sys.stdout.write(f"{url}: silenced{': ' + note if note else ''}\n")
    return True


def _reason(answer: requests.Response) -> str:
    return _field(answer, "error") or answer.text.strip()[:200]


def _field(answer: requests.Response, name: str) -> str:
    try:
        found: Any = answer.json()
    except requests.JSONDecodeError:
        return ""
    return str(found.get(name, "")) if isinstance(found, dict) else ""


# -- silence command --------------------------------------------------------------------------


_DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?", re.ASCII)
LONGEST = timedelta(days=366)


class SilenceRequest(msgspec.Struct, frozen=True):
    """The arguments of the command line; without any, the command lists all silences."""

    queries: str | None = None
    lasting: timedelta | None = None
    end: str | None = None
    alertname: str = "*"
    app: str | None = None
    reason: str = ""
    file: str | None = None
    urls: tuple[str, ...] = ()
    token_file: str | None = None
    ca_file: str | None = None
    allow_http: bool = False


def add_silence_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the fields of a ``SilenceRequest``."""
    parser.add_argument(
        "queries", nargs="?", metavar="PATTERN", help="which queries, such as 'bronze*'"
    )
    parser.add_argument(
        "--for",
        type=_duration,
        dest="lasting",
        metavar="TIME",
        help="how long, such as 90s, 30m, 2h, 1d12h",
    )
    parser.add_argument(
        "--alertname", default="*", metavar="PATTERN", help="only alerts of this name"
    )
    parser.add_argument(
        "--app",
        metavar="PATTERN",
        help="which app (default: the setting app_name); '*' is all apps",
    )
    parser.add_argument("--reason", default="", help="shown with the silence")
    parser.add_argument("--end", metavar="PATTERN", help="end the silences of this pattern")
    parser.add_argument("--file", help="use this file, not the setting silence_file")
    parser.add_argument(
        "--url",
        action="append",
        default=[],
        dest="urls",
        metavar="URL",
        help="send it to a driver, such as https://HOST:9719, not to a file; may be repeated",
    )
    parser.add_argument("--token-file", metavar="FILE", help="the token of the drivers")
    parser.add_argument(
        "--ca-file", metavar="FILE", help="the CA certificates that verify the drivers"
    )
    parser.add_argument(
        "--allow-http",
        action="store_true",
        help="send the token to another machine over http://: the network can read it",
    )


def silence(request: SilenceRequest, environment: Mapping[str, str]) -> int:
    """Add, end or list silences; 1 when there was none to end.

    Raises:
        SettingsError: the arguments contradict each other, or the file cannot be used.

    """
    _require_consistent(request)
    now = datetime.now(timezone.utc)
    if request.urls:
        # A driver that gets a silence over HTTP knows its own app.
        one = _requested(request, now, request.app)
        require_private(request.urls, allow_http=request.allow_http)
        return silence_drivers(tuple(request.urls), one, request.token_file, request.ca_file)
    path = _path(request, environment)
    try:
        if request.end is not None:
            return _end(path, request.end, now, request.app)
        if request.queries is not None:
            one = _requested(request, now, _app(request, environment))
            add_silence(path, one, now)
            _warn_unmatched(one)
            return _print((one,), now)
        return _print(in_force(read_silences(path), now), now)
    except (OSError, ValueError) as error:
        raise SettingsError(f"silence: {error}") from None


def _require_consistent(request: SilenceRequest) -> None:
    if request.end is not None and (request.queries is not None or request.lasting is not None):
        raise SettingsError("silence: --end takes its own pattern and nothing else")
    if (request.queries is None) != (request.lasting is None):
        raise SettingsError("silence: PATTERN and --for go together: every silence has an end")
    if request.urls and (request.queries is None or request.file is not None):
        raise SettingsError("silence: --url takes PATTERN and --for, and no --file")


def _requested(request: SilenceRequest, now: datetime, app: str | None) -> SilenceSettings:
    return SilenceSettings(
        queries=request.queries or "",
        until=(now + (request.lasting or timedelta())).replace(microsecond=0),
        alertname=request.alertname,
        reason=request.reason,
        app=app,
    )


def _warn_unmatched(one: SilenceSettings) -> None:
    """Warn of an alert name that matches nothing; the query names are not known here."""
    note = unmatched(one, None)
    if note:
        sys.stderr.write(f"querypulse: {note}\n")


def _path(request: SilenceRequest, environment: Mapping[str, str]) -> Path:
    file = request.file or load_strictly({}, environment).settings.silence_file
    if file is None:
        raise SettingsError("silence: name the file with --file or the setting 'silence_file'")
    return Path(file)


def _app(request: SilenceRequest, environment: Mapping[str, str]) -> str:
    """The pattern of --app, else exactly the app of the settings."""
    own = load_strictly({}, environment).settings.app_name
    app = request.app or (escape(own) if own else "")
    if not app:
        raise SettingsError(
            "silence: name the app with --app or the setting 'app_name': several drivers may "
            "read the file; --app '*' is all apps"
        )
    return app


def _end(path: Path, queries: str, now: datetime, app: str | None) -> int:
    ended = end_silences(path, queries, now, app)
    if not ended:
        known = sorted({f"{one.app}/{one.queries}" for one in in_force(read_silences(path), now)})
        whose = f" of app {app!r}" if app is not None else ""
        sys.stderr.write(
            f"querypulse: no silence of {queries!r}{whose} in {path}; there are: {known}\n"
        )
        return 1
    sys.stdout.write(f"ended: {len(ended)} of {queries}\n")
    return 0


def _print(silences: Silences, now: datetime) -> int:
    if not silences:
        sys.stdout.write("nothing is silenced\n")
    for one in silences:
        left = timedelta(seconds=round((one.until - now).total_seconds()))
        why = f": {one.reason}" if one.reason else ""
        until = end_text(one.until.timestamp())
        whose = f"{one.app}  {one.queries}"
        sys.stdout.write(f"{whose}  {one.alertname}  until {until} ({left} left){why}\n")
    return 0


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    days, hours, minutes, seconds = (
        (int(part or 0) for part in found.groups()) if found else [0] * 4
    )
    lasting = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if not timedelta() < lasting <= LONGEST:
        raise argparse.ArgumentTypeError(f"such as 90s, 30m, 2h or 1d12h, given {text!r}")
    return lasting
