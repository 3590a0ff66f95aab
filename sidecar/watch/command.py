"""``querypulse watch``: from arguments and settings to a running watcher, and to its end."""

from __future__ import annotations

import argparse
import logging
import math
import signal
import ssl
import threading
from collections.abc import Callable, Mapping

import msgspec

from ...alerting.alert import Incident
from ...alerting.dispatch import Dispatch
from ...listener.guard import Guard
from .. import wiring
from ..deadline import Deadline
from ..settings import Settings, SettingsError
from ..settings_sources import load_settings
from .client import Access
from .judge import Judge, Terms
from .network import receiver_hosts
from .roll import Roll
from .targets import Targets
from .watcher import Watcher

CLOSING_SECONDS = 5.0
SHORTEST_GONE_SECONDS = 1.0
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for on the command line; times in seconds."""

    urls: tuple[str, ...] = ()
    targets: str | None = None
    dns: tuple[str, ...] = ()
    webhook_url: str | None = None
    interval: float = 5.0
    gone_after: float = 15.0
    token_file: str | None = None
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Tell the parser what can be asked for: the fields of a ``Request``."""
    add = parser.add_argument
    add("urls", nargs="*", metavar="URL", help="a driver's server: http://HOST:9719")
    add("--targets", metavar="FILE", help="a file of such URLs, one a line; read anew all the time")
    add("--dns", action="append", default=[], metavar="URL", help="the same, for every address of the host")  # fmt: skip
    add("--webhook-url", metavar="URL", help="who is told, unless settings say so")
    add("--interval", type=_seconds(0.1), default=5.0, metavar="SECONDS", help="between looks (%(default)s)")  # fmt: skip
    add("--gone-after", type=_seconds(SHORTEST_GONE_SECONDS), default=15.0, metavar="SECONDS", help="how long a driver may be silent (%(default)s)")  # fmt: skip
    add("--token-file", metavar="FILE", help="the bearer token that drivers want to see")
    add("--ca-file", metavar="FILE", help="who vouches for the drivers' certificates")
    add("--client-cert-file", metavar="FILE", help="shown to drivers that ask for a certificate")
    add("--client-key-file", metavar="FILE")


def watch(request: Request, environment: Mapping[str, str]) -> int:
    """Watch until SIGTERM or SIGINT; 0 then.

    Raises:
        SettingsError: a setting or a file is no good, or there is nobody to tell.
        TargetError: there is nothing to watch, or it is no URL.

    """
    arguments = {} if request.webhook_url is None else {"webhook_url": request.webhook_url}
    settings = load_settings(arguments, environment, {}).settings
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    guard = Guard()
    pages = Pages(settings, guard)
    watcher = make_watcher(request, settings, pages, guard)
    ended = threading.Event()
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda *_: ended.set())
    pages.start()
    watcher.start()
    ended.wait()
    deadline = Deadline(CLOSING_SECONDS)
    watcher.close(deadline.left)
    pages.close(deadline)
    return 0


class Pages:
    """The way to the receivers, the same as a sidecar has: the only part that knows of it."""

    def __init__(self, settings: Settings, guard: Guard) -> None:
        """Make the deliveries.

        Raises:
            SettingsError: a receiver cannot be used as set, or there is none.

        """
        self._deliveries = wiring.deliveries(settings, guard)
        if not self._deliveries:
            raise SettingsError("nobody to tell: give --webhook-url, or settings of a receiver")
        self._dispatch = Dispatch(self._deliveries)

    def start(self) -> None:
        """Begin delivering."""
        for delivery in self._deliveries:
            delivery.start()

    def inherited(self) -> tuple[Incident, ...]:
        """What an earlier watcher told and left open."""
        return ()

    def offer(self, incidents: tuple[Incident, ...], closings: tuple[Incident, ...]) -> None:
        """See ``Dispatch.offer``."""
        self._dispatch.offer(incidents, closings)

    def close(self, deadline: Deadline) -> None:
        """Attempt all that is pending, then stop."""
        for delivery in self._deliveries:
            delivery.flush(deadline.left / 2)
        for delivery in self._deliveries:
            delivery.close(deadline.left)


def make_watcher(request: Request, settings: Settings, pages: Pages, guard: Guard) -> Watcher:
    """Join the parts.

    Raises:
        SettingsError: a file of the request cannot be used.
        TargetError: there is nothing to watch, or it is no URL.

    """
    roll = Roll(request.gone_after, request.interval)
    terms = Terms(**{name: getattr(settings, name) for name in Terms.__struct_fields__})
    return Watcher(
        targets=Targets(request.urls, request.targets, request.dns),
        roll=roll,
        judge=Judge(roll, terms, pages.inherited()),
        access=access(request),
        interval_seconds=request.interval,
        hosts=receiver_hosts(settings),
        teller=pages,
        guard=guard,
    )


def access(request: Request) -> Access:
    """Token and certificates of the request.

    Raises:
        SettingsError: a file cannot be read, or holds nothing of use.

    """
    token = wiring.read_secret("--token-file", request.token_file)
    try:
        context = ssl.create_default_context(cafile=request.ca_file)
        if request.client_cert_file is not None:
            # Without a password given, an encrypted key would ask for it at the terminal.
            context.load_cert_chain(request.client_cert_file, request.client_key_file, password="")
    except OSError as error:
        files = (request.ca_file, request.client_cert_file, request.client_key_file)
        shown = ", ".join(file for file in files if file)
        raise SettingsError(f"TLS files {shown}: {error}") from None
    return Access(token, context)


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
