"""What a Prometheus Pushgateway gets. Pure.

The group of a driver is ``{job="querypulse", instance="<app>"}``, and has no part that changes from
one process to the next: the figures of a new driver replace those that a crashed one left behind.
See https://github.com/prometheus/pushgateway, "API".
"""

from __future__ import annotations

from base64 import urlsafe_b64encode

from ..exposition import TEXT, as_text
from ..published_state import PublishedState
from ..query_collector import all_families

JOB = "querypulse"
HEADERS = {"Content-Type": TEXT}


def group_url(base: str, app: str) -> str:
    """The URL of a driver's group at the gateway ``base``; any app name has one."""
    encoded = urlsafe_b64encode(app.encode("utf-8", "replace")).decode("ascii")
    return f"{base.rstrip('/')}/metrics/job/{JOB}/instance@base64/{encoded}"


def group_body(published: PublishedState) -> bytes:
    """All metrics of a driver, as the gateway reads them."""
    return as_text(all_families(published))
