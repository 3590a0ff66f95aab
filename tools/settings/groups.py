"""The groups of settings, in the order of the page."""

from __future__ import annotations

from tools.settings.of_delivery import NETWORK, RECEIVERS, SERVER
from tools.settings.of_rules import ALERTS, DATA, JOB, STALLS

GROUPS = (JOB, RECEIVERS, ALERTS, STALLS, DATA, SERVER, NETWORK)
