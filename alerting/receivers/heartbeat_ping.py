"""When to ping a dead man's switch, and what to say. Pure.

https://healthchecks.io/docs/http_api/ describes the paths; a check takes 5 pings a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from ..alert import Incident
from ..finding import Severity
from ..headline import headline_of
from .encoding import shorten

LEAST_SECONDS = 12.5
"""Between two pings: a little less than 5 a minute."""
MAX_TEXT_CHARACTERS = 2000


class Ping(msgspec.Struct, frozen=True):
    """One ping: ``path`` after the check's URL, and the text that its log shows."""

    path: str
    text: str


START = Ping("/start", "watching")
STOPPED = Ping("/log", "stopped")
TEST = Ping("/log", "querypulse test-alert: nothing is wrong")


def ping_of(incidents: Sequence[Incident]) -> Ping:
    """``/fail`` while a critical incident fires that is not muted, else the plain ping."""
    firing = [one for one in incidents if one.ends_at is None]
    loud = [one for one in firing if one.severity == Severity.CRITICAL.value and not one.muted]
    if loud:
        text = "\n".join(headline_of(one) for one in loud)
        return Ping("/fail", shorten(text, MAX_TEXT_CHARACTERS))
    return Ping("", f"healthy; {len(firing)} not critical or silenced" if firing else "healthy")


def due_at(ping: Ping, last: Ping | None, last_at: float, interval_seconds: float) -> float:
    """When ``ping`` may leave; ``last`` is the last that arrived, ``last_at`` when one last left.

    A change between healthy and failing does not wait for the interval.
    """
    changed = last is None or last == START or (ping.path == "/fail") != (last.path == "/fail")
    return last_at + (min(LEAST_SECONDS, interval_seconds) if changed else interval_seconds)


def ping_url(url: str, path: str, run: str) -> str:
    """The check's URL with the signal's path; ``run`` identifies the pings of one process."""
    parts = urlsplit(url)
    query = "&".join(filter(None, [parts.query, urlencode({"rid": run})]))
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, query=query))
