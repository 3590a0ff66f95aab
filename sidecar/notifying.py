"""The notifier of a sidecar, from its settings and components."""

from __future__ import annotations

import time

from ..alerting.lifecycle.lifecycle import Lifecycle
from ..alerting.notifier import Notifier
from ..alerting.query_heartbeats import QueryHeartbeats
from ..core.guard import Guard
from ..settings import wiring
from ..settings.components import Components
from ..settings.settings import Settings


def make_notifier(
    app: str, settings: Settings, components: Components, lifecycle: Lifecycle, guard: Guard
) -> Notifier:
    """The notifier; ``lifecycle`` continues the alerts that its spool holds."""
    receivers = components.receivers
    spool = wiring.spool(settings, app, guard)
    notifier = Notifier(
        wiring.deliveries(settings, guard, receivers=receivers, spool=spool),
        spool,
        heartbeat=components.heartbeat,
        query_heartbeats=QueryHeartbeats(components.query_heartbeats),
        restore=lambda found: lifecycle.restore(found, time.monotonic()),
        redact=components.redacting.text,
    )
    lifecycle.restore(notifier.restored, time.monotonic())
    return notifier
