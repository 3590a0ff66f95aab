"""All kinds of receivers."""

from __future__ import annotations

from . import alertmanager, email, pagerduty, slack, teams, webhook
from .alertmanager import AlertmanagerSettings
from .email import EmailSettings
from .pagerduty import PagerDutySettings
from .receiver import ReceiverSettings, ReceiverType
from .slack import SlackSettings
from .teams import TeamsSettings
from .webhook import WebhookSettings

RECEIVER_TYPES = (
    webhook.TYPE,
    pagerduty.TYPE,
    alertmanager.TYPE,
    slack.TYPE,
    teams.TYPE,
    email.TYPE,
)
"""In the order in which short forms define receivers."""
AnyReceiverSettings = (
    WebhookSettings
    | PagerDutySettings
    | AlertmanagerSettings
    | SlackSettings
    | TeamsSettings
    | EmailSettings
)
"""The tables of the setting ``receivers``, distinguished by ``type``."""

_BY_SETTINGS = {kind.settings: kind for kind in RECEIVER_TYPES}


def type_of(given: ReceiverSettings) -> ReceiverType:
    """The kind of receiver that a table defines."""
    return _BY_SETTINGS[type(given)]
