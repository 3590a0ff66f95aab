"""Settings -> the guidance in every alert: links, its runbook, and the next steps of that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from urllib.parse import urlsplit

from .. import dashboards
from ..alerting.words.messages import Guidance
from .settings import Settings

_ALLOWED = re.compile(r"https?://[^\s\"'<>\\^`|{}]+", re.IGNORECASE)
_PLACES = ("{app}", "{query}")
_PLACE = re.compile(r"\{[^{}]*\}")
_EXAMPLES = {
    "external_url": "https://spark.example.com/orders",
    "dashboard_url": "https://grafana.example.com/d/querypulse-query?var-app={app}&var-query={query}",
    "runbooks_url": "https://wiki.example.com/runbooks",
}
_FOLDER = "runbooks"
_INDEX = "README"
_NAME = re.compile(r"[A-Za-z]{1,100}")
_STEPS = re.compile(r"^## Next steps\n\n(.*?)\n\n## ", re.MULTILINE | re.DOTALL)


def external_url(settings: Settings) -> str:
    """The public URL of the status page, without a trailing slash; empty if not set.

    Raises:
        SettingsError: it cannot be shown as a link, or no path can be appended to it.

    """
    url = settings.external_url or None
    return _link(settings, "external_url", url, ", query string or fragment").rstrip("/")


def runbooks_url(settings: Settings) -> str:
    """The URL that precedes a runbook's name, without a trailing slash.

    Raises:
        SettingsError: it cannot be shown as a link.

    """
    return _link(settings, "runbooks_url", settings.runbooks_url).rstrip("/")


def guidance(settings: Settings) -> Guidance:
    """Links and next steps for the alerts of one driver.

    Runbooks are never the driver's own: they are read when it has ended.

    Raises:
        SettingsError: an address cannot be shown as a link.

    """
    return Guidance(
        runbook_url=f"{runbooks_url(settings)}/{{alertname}}.md",
        dashboard_url=_link(
            settings, "dashboard_url", settings.dashboard_url or None, places=_PLACES
        ),
        next_steps=next_steps(),
        restart_hints=_restart_hints(settings),
        external_url=external_url(settings),
    )


def _restart_hints(settings: Settings) -> tuple[tuple[str, str], ...]:
    """By name pattern, the most general first."""
    hints = {"*": settings.restart_hint}
    hints |= {pattern: own.restart_hint for pattern, own in settings.queries.items()}
    return tuple((pattern, hint) for pattern, hint in hints.items() if hint is not None)


def _link(
    settings: Settings, name: str, url: str | None, without: str = "", places: Sequence[str] = ()
) -> str:
    """The value of a setting that people open; empty if it is not set."""
    if url is None:
        return ""
    plain = url
    for place in places:
        plain = plain.replace(place, "x")
    if not _is_address(plain) or (without and set(url) & {"?", "#"}):
        unknown = [place for place in _PLACE.findall(url) if place not in places]
        may_hold = f"; it may hold {' and '.join(places)}" if places else ""
        if places and unknown:
            may_hold += f", and not {', '.join(unknown)}"
        raise settings.error(
            f"setting {name!r} must be an http or https address with a host, without spaces, "
            f"quotes, user name, password{without}{may_hold}; write an @ in a path as %40; "
            f"example: {_EXAMPLES[name]}"
        )
    return url


def _is_address(url: str) -> bool:
    # A password may hold a slash: any URL with an @ before the query may hold a secret.
    if _ALLOWED.fullmatch(url) is None or "@" in url.partition("?")[0]:
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def runbook(alertname: str) -> str | None:
    """The runbook of an alert, as Markdown; None if there is none.

    Runbooks link to each other as files, so a name may end with ``.md``.
    """
    alertname = alertname.removesuffix(".md")
    if _NAME.fullmatch(alertname) is None or alertname == _INDEX:
        return None
    file = files(dashboards) / _FOLDER / f"{alertname}.md"
    return file.read_text("utf-8") if file.is_file() else None


def next_steps() -> dict[str, str]:
    """The section "Next steps" of each runbook, by alert name."""
    names = [file.name.removesuffix(".md") for file in (files(dashboards) / _FOLDER).iterdir()]
    matches = {name: _STEPS.search(runbook(name) or "") for name in sorted(names)}
    return {name: match.group(1) for name, match in matches.items() if match is not None}
