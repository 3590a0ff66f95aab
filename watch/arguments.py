"""The arguments of ``querypulse watch``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import msgspec

from .target_tracker import TERMINATED_AFTER_SECONDS

SHORTEST_INTERVAL_SECONDS = 0.1
SHORTEST_GONE_SECONDS = 1.0
TIMES = {
    "interval": (SHORTEST_INTERVAL_SECONDS, "time between polls"),
    "gone_after": (SHORTEST_GONE_SECONDS, "how long a driver may not answer"),
    "terminated_after": (
        SHORTEST_GONE_SECONDS,
        "the same for a driver that was ended by a signal",
    ),
}
"""The shortest allowed time, and the help text."""
MORE = {
    "targets": "a file of such URLs, one per line; reread in every interval",
    "webhook_url_file": "contains the URL of a webhook, if the settings name no receiver",
    "token_file": "contains the bearer token of the drivers",
    "ca_file": "the CA certificates that verify the drivers",
    "client_cert_file": "our certificate, for drivers that require one",
    "client_key_file": "its key",
}


class WatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the command line; times in seconds."""

    urls: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    targets: str | None = None
    webhook_url_file: str | None = None
    interval: float = 5.0
    gone_after: float = 15.0
    terminated_after: float = TERMINATED_AFTER_SECONDS
    token_file: str | None = None
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the fields of a ``WatchRequest``."""
    defaults = WatchRequest()
    parser.add_argument(
        "urls", nargs="*", metavar="URL", help="a driver's server, such as http://HOST:9719"
    )
    parser.add_argument(
        "--dns",
        action="append",
        default=[],
        metavar="URL",
        help="the same for every address of the host name; drivers are identified by their app",
    )
    for name, text in MORE.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help=text)
    for name, (least, text) in TIMES.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=_seconds(least),
            default=getattr(defaults, name),
            metavar="SECONDS",
            help=f"{text} (%(default)g)",
        )


def _seconds(least: float) -> Callable[[str], float]:
    def seconds(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"seconds, {least:g} or more, given {text!r}")
        return value

    return seconds
