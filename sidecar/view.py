"""How a sidecar shows itself: in one line, and as a table in a notebook."""

from __future__ import annotations

from ..exporter.status import status
from .notebook import closed_page, page
from .runtime import Runtime


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
