"""Alertmanager's API v2 as measured on 0.25: it accepts the good alerts of a bad batch."""

from __future__ import annotations

import json
from typing import Any

from .http_double import Answer, DoubleHandler, HttpDouble, reply


class AlertmanagerDouble(HttpDouble):
    """Keeps accepted alerts in ``alerts``, in order; rejects queries named in ``disliked``.

    ``open`` is its answer to a GET.
    """

    def __init__(self, *script: Answer, disliked: frozenset[str] = frozenset()) -> None:
        super().__init__(*script, otherwise=self.process)
        self.disliked = disliked
        self.alerts: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []

    def process(self, handler: DoubleHandler) -> None:
        request = self.requests[-1]
        if request.method == "GET" and request.path.startswith("/api/v2/alerts?"):
            return reply(200, body=json.dumps(self.open).encode())(handler)
        if (request.method, request.path) != ("POST", "/api/v2/alerts"):
            return reply(404)(handler)
        if request.headers["Content-Type"] != "application/json":
            return reply(415)(handler)
        posted = json.loads(request.body)
        good = [one for one in posted if one["labels"]["query"] not in self.disliked]
        self.alerts += good
        if len(good) < len(posted):
            return reply(400, body=b'"bad label set"')(handler)
        return reply(200)(handler)

    @property
    def queries(self) -> list[str]:
        return [one["labels"]["query"] for one in self.alerts]
