"""Settings -> the guidance in every alert: links, its runbook, and the next steps of that."""

from __future__ import annotations

import re
from importlib.resources import files
from urllib.parse import urlsplit

from msgspec.structs import replace

from .. import dashboards
from ..alerting.alert_text import Guidance
from .settings import DEFAULT_RUNBOOKS, Settings, SettingsError

_ALLOWED = re.compile(r"https?://[^\s\"'<>\\^`|{}]+", re.IGNORECASE)
_AFTER_PATH = re.compile(r"([?#]).*", re.DOTALL)
_PLACES = ("{app}", "{query}")
_FOLDER = "runbooks"
_INDEX = "README"
_NAME = re.compile(r"[A-Za-z]{1,100}")
_STEPS = re.compile(r"^## Next steps\n\n(.*?)\n\n## ", re.MULTILINE | re.DOTALL)


def external_url(settings: Settings) -> str:
    """The public URL of the status page, without a trailing slash; empty if not set.

    Raises:
        SettingsError: it cannot be shown as a link, or no path can be appended to it.

    """
    url = settings.external_url or ""
    if "?" in url or "#" in url:
        shown = _AFTER_PATH.sub(r"\1********", _without_user(url))
        raise _refusal("external_url", shown, ", token, query string and fragment")
    return _checked("external_url", url).rstrip("/") if url else ""


def runbook_base_url(settings: Settings) -> str:
    """The URL that precedes a runbook's name, without a trailing slash.

    Raises:
        SettingsError: it cannot be shown as a link.

    """
    return _checked("runbook_base_url", settings.runbook_base_url).rstrip("/")


def guidance(settings: Settings, spark_ui_url: str = "") -> Guidance:
    """Links and next steps for the alerts of one driver.

    Raises:
        SettingsError: an address cannot be shown as a link.

    """
    home = external_url(settings)
    own = bool(home) and settings.runbook_base_url == DEFAULT_RUNBOOKS
    base = runbook_base_url(settings)
    dashboard = settings.dashboard_url or ""
    return Guidance(
        runbook_url=f"{home}/runbooks/{{alertname}}" if own else f"{base}/{{alertname}}.md",
        dashboard_url=_checked("dashboard_url", dashboard, _PLACES) if dashboard else "",
        spark_ui_url=spark_ui_url,
        next_steps=next_steps(),
    )


def guidance_from_outside(settings: Settings) -> Guidance:
    """The same for alerts about a driver that is down and so serves no runbook.

    Raises:
        SettingsError: ``dashboard_url`` or ``runbook_base_url`` cannot be shown as a link.

    """
    return guidance(replace(settings, external_url=None))


def _checked(name: str, url: str, places: tuple[str, ...] = ()) -> str:
    plain = url
    for place in places:
        plain = plain.replace(place, "x")
    if not _is_address(plain):
        may_hold = f", and may hold {' and '.join(places)}" if places else ""
        raise _refusal(name, url, f" and token{may_hold}")
    return url


def _refusal(name: str, url: str, without: str) -> SettingsError:
    return SettingsError(
        f"setting {name!r}: it must be an http or https address with a host, without spaces, "
        f"quotes, user name, password{without}; write an @ in a path as %40 "
        f"(given: {_without_user(url)!r})"
    )


def _is_address(url: str) -> bool:
    # A password may hold a slash: any URL with an @ before the query may hold a secret.
    if _ALLOWED.fullmatch(url) is None or "@" in url.partition("?")[0]:
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _without_user(url: str) -> str:
    return re.sub(r"^(\w+://)?.*@", r"\1********@", url, flags=re.DOTALL)


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
