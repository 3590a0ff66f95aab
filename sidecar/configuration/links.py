"""Settings -> what every alert adds for its reader: links, and the first steps of its runbook."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from msgspec.structs import replace

from ...alerting.lifecycle.guidance import Guidance
from ..runbooks import next_steps
from .settings import DEFAULT_RUNBOOKS, Settings, SettingsError

_ALLOWED = re.compile(r"https?://[^\s\"'<>\\^`|{}]+", re.IGNORECASE)
_PLACES = ("{app}", "{query}")


def external_url(settings: Settings) -> str:
    """Where people reach the status page, without a slash at its end; empty where not known.

    Raises:
        SettingsError: it is no address that can be shown as a link.

    """
    return _checked("external_url", settings.external_url or "").rstrip("/")


def guidance(settings: Settings, spark_ui_url: str = "") -> Guidance:
    """Links and first steps of the alerts of one driver.

    Raises:
        SettingsError: ``external_url`` or ``dashboard_url`` cannot be shown as a link.

    """
    home = external_url(settings)
    own = bool(home) and settings.runbook_base_url == DEFAULT_RUNBOOKS
    base = settings.runbook_base_url.rstrip("/")
    return Guidance(
        runbook_url=f"{home}/runbooks/{{alertname}}" if own else f"{base}/{{alertname}}.md",
        dashboard_url=_checked("dashboard_url", settings.dashboard_url or "", _PLACES),
        spark_ui_url=spark_ui_url,
        next_steps=next_steps(),
    )


def guidance_from_outside(settings: Settings) -> Guidance:
    """The same of alerts about a driver that is down, and so serves no runbook.

    Raises:
        SettingsError: ``dashboard_url`` cannot be shown as a link.

    """
    return guidance(replace(settings, external_url=None))


def _checked(name: str, url: str, places: tuple[str, ...] = ()) -> str:
    plain = url
    for place in places:
        plain = plain.replace(place, "x")
    if url and not _is_address(plain):
        allowed = f", and may hold {' and '.join(places)}" if places else ""
        raise SettingsError(
            f"setting {name!r}: it must be an http or https address with a host, without spaces, "
            f"quotes, user name, password and token{allowed}; an @ in a path is written %40 "
            f"(given: {_without_user(url)!r})"
        )
    return url


def _is_address(url: str) -> bool:
    # A password may hold a slash: whatever has an @ before the query may hold a secret.
    if _ALLOWED.fullmatch(url) is None or "@" in url.partition("?")[0]:
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _without_user(url: str) -> str:
    return re.sub(r"^(\w+://)?.*@", r"\1********@", url, flags=re.DOTALL)
