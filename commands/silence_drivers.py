"""``querypulse silence --url``: sends silences to running drivers, without a shared disk."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import requests

from ..alerting.receivers.address import is_readable
from ..core.secret import Secret
from ..settings.settings import SettingsError
from ..settings.silence_settings import SilenceSettings

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
    try:
        token = Secret.from_file(token_file, setting="--token-file")
    except ValueError as error:
        raise SettingsError(f"silence: {error}") from None
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
