"""The table that a notebook shows for a sidecar."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from html import escape

from ..core.text import duration
from ..exporter.status import QueryStatus, Status, status
from .runtime import Runtime

# -- notebook ---------------------------------------------------------------------------------


MAX_ROWS = 50
HEADS = ("query", "state", "reason", "last commit", "alerts")


def page(status: Status, url: str | None) -> str:
    """The queries of a status, the unhealthy first, at most ``MAX_ROWS``; all text is escaped."""
    alerts = _alerts_by_query(status)
    shown = {query.name for query in status.queries}
    others = sorted({name for query in alerts.keys() - shown for name in alerts[query]})
    queries = sorted(status.queries, key=lambda query: query.name not in alerts)
    left_out = len(queries) - MAX_ROWS
    parts = [_title(status.app, url), _table(queries[:MAX_ROWS], alerts)]
    parts += [f"<p>and {left_out} more</p>"] if left_out > 0 else []
    parts += [f"<p>other alerts: {escape(', '.join(others))}</p>"] if others else []
    return f"<div>{''.join(parts)}</div>"


def closed_page(why: str) -> str:
    """A sidecar that watches nothing."""
    return f"<div><p><b>querypulse</b> {escape(why)}</p></div>"


def _title(app: str, url: str | None) -> str:
    link = f' · <a href="{escape(url)}">{escape(url)}</a>' if url else ""
    return f"<p><b>querypulse</b> {escape(app)}{link}</p>"


def _table(queries: Iterable[QueryStatus], alerts: Mapping[str, list[str]]) -> str:
    head = "".join(f"<th>{one}</th>" for one in HEADS)
    rows = [_row(query, alerts.get(query.name, [])) for query in queries]
    body = "".join(rows) or f'<tr><td colspan="{len(HEADS)}">no query yet</td></tr>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(query: QueryStatus, alerts: list[str]) -> str:
    age = query.last_commit_age_seconds
    commit = "" if age is None else f"{duration(age)} ago"
    cells = (query.name, query.state, query.reason, commit, ", ".join(alerts))
    return f"<tr>{''.join(f'<td>{escape(one)}</td>' for one in cells)}</tr>"


def _alerts_by_query(status: Status) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for alert in status.alerts:
        found[alert.labels["query"]].append(alert.labels["alertname"])
    return dict(found)


# -- view -------------------------------------------------------------------------------------
# How a sidecar shows itself: in one line, and as a table in a notebook.


class SidecarView:
    """Both forms; a notebook calls ``_repr_html_`` for the last value of a cell."""

    _runtime: Runtime | None
    _closed: bool

    def __repr__(self) -> str:
        if self._runtime is None or self._closed:
            return f"<Sidecar {self._without_runtime}>"
        published = self._runtime.published
        count, alerts = len(published.snapshot.queries), len(self._runtime.evaluated.alerts)
        app, url = published.app, self._runtime.url
        return f"<Sidecar app={app!r} url={url!r} queries={count} alerts={alerts}>"

    def _repr_html_(self) -> str:
        if self._runtime is None or self._closed:
            return closed_page(self._without_runtime)
        return page(status(self._runtime.published), self._runtime.url)

    @property
    def _without_runtime(self) -> str:
        return "closed" if self._closed else "not started"
