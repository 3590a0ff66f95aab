"""The receivers; each kind has a file, and is one of ``AnyReceiverSettings``."""

from __future__ import annotations

from typing import get_args

from .alertmanager import AlertmanagerSettings
from .email import EmailSettings
from .pagerduty import PagerDutySettings
from .receiver import ReceiverSettings
from .slack import SlackSettings
from .teams import TeamsSettings
from .webhook import WebhookSettings

AnyReceiverSettings = (
    WebhookSettings
    | PagerDutySettings
    | AlertmanagerSettings
    | SlackSettings
    | TeamsSettings
    | EmailSettings
)
"""The tables of the setting ``receivers``, distinguished by ``type``."""
RECEIVER_TYPES: tuple[type[ReceiverSettings], ...] = get_args(AnyReceiverSettings)
"""In the order in which short forms define receivers."""
