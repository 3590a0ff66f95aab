"""Links of a dashboard: the other dashboard, a driver's status page, the runbooks."""

from __future__ import annotations

from typing import Any

from querypulse.settings.settings import DEFAULT_RUNBOOKS

FLEET = "querypulse-fleet"
QUERY = "querypulse-query"

CHOSEN = "${datasource:queryparam}&${job:queryparam}&${instance:queryparam}"
"""The variables that a link to the other dashboard keeps."""


def runbook(alertname: str) -> str:
    """Markdown for a panel's description."""
    return f"[{alertname}]({DEFAULT_RUNBOOKS}/{alertname}.md)"


def to_dashboard(title: str, uid: str, tooltip: str) -> dict[str, Any]:
    """A link at the top of a dashboard that keeps the time range and the chosen drivers."""
    return {**_top(title, f"/d/{uid}?{CHOSEN}&${{app:queryparam}}", tooltip), "keepTime": True}


def to_runbooks() -> dict[str, Any]:
    """A link at the top of a dashboard to all runbooks."""
    link = _top("Runbooks", DEFAULT_RUNBOOKS, "What each alert means and what to do about it")
    return {**link, "icon": "doc", "targetBlank": True}


def query_of_row(app: str, query: str) -> dict[str, Any]:
    """From a table's row, or a series, to *Query*; the arguments are the fields with its names."""
    where = f"var-app=${{{app}:percentencode}}&var-query=${{{query}:percentencode}}"
    url = f"/d/{QUERY}?${{__url_time_range}}&{CHOSEN}&{where}"
    return {"title": "Look at this query", "url": url}


def status_page_of_row() -> dict[str, Any]:
    """From an ``instance`` in a table to the status page of this driver."""
    return _away("The driver's own status page", "http://${__value.raw}/")


def runbook_of_row() -> dict[str, Any]:
    """From an alert's name in a table to its runbook."""
    return _away("Runbook", f"{DEFAULT_RUNBOOKS}/${{__value.raw}}.md")


def _away(title: str, url: str) -> dict[str, Any]:
    return {"title": title, "url": url, "targetBlank": True}


def _top(title: str, url: str, tooltip: str) -> dict[str, Any]:
    return {
        "type": "link",
        "title": title,
        "url": url,
        "tooltip": tooltip,
        "icon": "dashboard",
        "tags": [],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": False,
        "targetBlank": False,
    }
