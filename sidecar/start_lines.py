"""What the log says when a sidecar has started: what is watched, and who is notified."""

from __future__ import annotations

import logging
from collections.abc import Sequence

log = logging.getLogger("querypulse")

NOBODY = (
    "no receiver is configured, so nobody is notified of alerts; set one of "
    "pagerduty_routing_key_file, alertmanager_urls, slack_webhook_url_file, webhook_url, receivers"
)


def log_start(app: str, receivers: Sequence[str], status_page: str | None) -> None:
    """Log one line, and a warning when there is no receiver."""
    log.info("querypulse: %s", watching(app, receivers, status_page))
    if not receivers:
        log.warning("querypulse: %s", NOBODY)


def watching(app: str, receivers: Sequence[str], status_page: str | None) -> str:
    """``watching "orders": 2 receivers (oncall, team), status page at http://...``."""
    where = f"status page at {status_page}" if status_page else "no status page"
    return f'watching "{app}": {receivers_text(receivers)}, {where}'


def receivers_text(receivers: Sequence[str]) -> str:
    """The number of receivers, and their names."""
    if not receivers:
        return "no receiver"
    count = "1 receiver" if len(receivers) == 1 else f"{len(receivers)} receivers"
    return f"{count} ({', '.join(receivers)})"
