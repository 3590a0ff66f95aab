"""The components of a sidecar that need no Spark: their settings are checked first."""

from __future__ import annotations

import msgspec

from ..alerting.lifecycle.guidance import Guidance
from ..alerting.policy import Policy
from ..alerting.receivers.heartbeat import Heartbeat
from ..alerting.receivers.receiver import Receiver
from ..core.guard import Guard
from . import receivers_from_settings, wiring
from .links import guidance
from .pushing import PushConnections, push_connections
from .redacting import Redacting
from .settings import Settings
from .silencing import Silencing


class Components(msgspec.Struct, frozen=True):
    """Limits, receivers, silences, redaction and HTTP access. No thread runs yet."""

    guidance: Guidance
    policy: Policy
    receivers: list[Receiver]
    heartbeat: Heartbeat | None
    query_heartbeats: dict[str, Heartbeat]
    """By name pattern of queries."""
    pushing: PushConnections
    access: wiring.HttpAccess
    redacting: Redacting
    silencing: Silencing


def make_components(settings: Settings, guard: Guard) -> Components:
    """Make all components from the settings.

    Raises:
        SettingsError: a limit, receiver, link, key, certificate or pattern cannot be used.

    """
    return Components(
        guidance=guidance(settings),
        policy=wiring.policy(settings, probe_expected=True),
        receivers=receivers_from_settings.receivers(settings),
        heartbeat=receivers_from_settings.heartbeat(settings, guard),
        query_heartbeats=receivers_from_settings.query_heartbeats(settings, guard),
        pushing=push_connections(settings),
        access=wiring.http_access(settings),
        redacting=Redacting(settings),
        silencing=Silencing(settings.silences, settings.silence_file, guard),
    )
