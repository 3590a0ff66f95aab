"""Receivers for tests: they send to a double, with made-up secrets."""

from __future__ import annotations

import base64

from querypulse.alerting.receivers.pagerduty import PagerDuty
from querypulse.alerting.receivers.webhook import Webhook
from querypulse.core.secret import Secret

from .http_double import HttpDouble
from .pagerduty_double import PagerDutyDouble

SIGNING_KEY = bytes(range(24))
SIGNING_SECRET = "whsec_" + base64.b64encode(SIGNING_KEY).decode()
NEXT_SIGNING_SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()
ROUTING_KEY = "R0123456789abcdefghijklmnopqrstu"


def webhook(double: HttpDouble, **options) -> Webhook:
    return Webhook(Secret(f"{double.url}/hook"), **options)


def pagerduty(double: PagerDutyDouble, **options) -> PagerDuty:
    return PagerDuty(Secret(ROUTING_KEY), url=double.enqueue_url, source="driver-1", **options)
