"""``querypulse watch``: from arguments and settings to a running watcher, and to its end."""

from __future__ import annotations

import argparse
import logging
import math
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec

from ..alerting.alert import Incident, incident_labels, why_muted
from ..alerting.delivery import Notifier
from ..alerting.finding import WHOLE_DRIVER
from ..core.files import FileLoop
from ..core.guard import Guard
from ..core.redaction import RedactedLog
from ..core.threads import Deadline
from ..settings import receivers as receivers_from_settings
from ..settings import wiring
from ..settings.links import guidance
from ..settings.loading import load_strictly
from ..settings.secrets import Redacting
from ..settings.settings import Settings, SettingsError
from ..settings.silencing import Silencing
from .alerts import APP, DriverAlerts
from .client import Access
from .targets import Targets, receiver_hosts
from .tracker import TERMINATED_AFTER_SECONDS, TargetTracker
from .watcher import Watcher

log = logging.getLogger("querypulse")


TIMES = {
    "interval": (0.1, "time between polls"),
    "gone_after": (1.0, "how long a driver may not answer"),
    "terminated_after": (1.0, "the same for a driver that was ended by a signal"),
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
            type=seconds_from(least),
            default=getattr(defaults, name),
            metavar="SECONDS",
            help=f"{text} (%(default)g)",
        )


def seconds_from(least: float) -> Callable[[str], float]:
    """The type of an argument in seconds, ``least`` or more."""

    def seconds(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"seconds, {least:g} or more, given {text!r}")
        return value

    return seconds


# -- command ----------------------------------------------------------------------------------


FILES_SECONDS = 1.0
CLOSING_SECONDS = 6.0
UNLABELLED = (
    "querypulse: no receiver takes critical incidents without labels (see `match` and "
    "`severities`): nobody is notified of a driver that has never answered"
)
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def watch(request: WatchRequest, environment: Mapping[str, str]) -> int:
    """Watch until SIGTERM or SIGINT, then return 0. The log goes to standard error.

    Raises:
        SettingsError: a setting, a file or a URL cannot be used, or there is no receiver or
            nothing to watch.

    """
    file = request.webhook_url_file
    arguments = {} if file is None else {"webhook_url_file": file, "webhook_url": None}
    settings = load_strictly(arguments, environment).settings
    redacting, guard = Redacting(settings), Guard()
    silencing = Silencing(settings.silence_file, guard)
    access = access_of(request)
    evaluate = DriverAlerts(
        TargetTracker(request.gone_after, request.interval, request.terminated_after),
        resolve_after_seconds=settings.resolve_after_seconds,
        repeat_interval_seconds=settings.repeat_interval_seconds,
        guidance=guidance(settings, from_outside=True),
    )
    notifier = make_notifier(settings, evaluate, guard)
    watcher = Watcher(
        targets=Targets(request.urls, request.targets, request.dns),
        evaluate=evaluate,
        access=access,
        hosts=receiver_hosts(settings),
        sink=notifier,
        guard=guard,
        muted=lambda alert: why_muted(alert, silencing(), time.time()),
    )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    log.addFilter(RedactedLog(redacting.text))
    if not receivers_from_settings.is_taken(settings, incident_labels(APP, WHOLE_DRIVER, {})):
        log.warning(UNLABELLED)
    ended = threading.Event()
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda *_: ended.set())
    files = FileLoop("secret-files", partial(_read_again, redacting, access), FILES_SECONDS, guard)
    for part in (files, silencing, notifier, watcher):
        part.start()
    ended.wait()
    deadline = Deadline(CLOSING_SECONDS)
    watcher.close(deadline.left / 3)
    notifier.flush(Deadline(deadline.left / 2))
    notifier.close(deadline)
    silencing.stop()
    files.end()
    return 0


def make_notifier(settings: Settings, evaluate: DriverAlerts, guard: Guard) -> Notifier:
    """The notifier of the watcher, the same as in a driver.

    Raises:
        SettingsError: a receiver cannot be used, or there is none.

    """
    receivers = receivers_from_settings.receivers(settings)
    if not receivers:
        raise SettingsError("watch: no receiver: give --webhook-url-file, or configure a receiver")

    def restore(incidents: Iterable[Incident]) -> None:
        evaluate.restore(incidents, time.monotonic())

    return wiring.make_notifier(
        settings,
        APP,
        guard,
        receivers,
        restore=restore,
        heartbeat=receivers_from_settings.heartbeat(settings, guard),
    )


def _read_again(redacting: Redacting, access: Access) -> None:
    """Read secrets in files again: they may be rotated. In a separate thread: a mount may hang."""
    redacting.refresh()
    if access.token is not None:
        access.token.reveal()


def access_of(request: WatchRequest) -> Access:
    """Token and certificates of the request.

    Raises:
        SettingsError: a file cannot be read or used.

    """
    token = wiring.secret_in(request.token_file, "--token-file")
    if request.client_key_file is not None and request.client_cert_file is None:
        raise SettingsError("--client-key-file needs --client-cert-file")
    try:
        context = ssl.create_default_context(cafile=request.ca_file)
    except OSError as error:
        raise SettingsError(f"--ca-file {request.ca_file}: {error}") from None
    if request.client_cert_file is not None:
        cert, key = request.client_cert_file, request.client_key_file
        try:
            # Without a password, OpenSSL would prompt for that of an encrypted key.
            context.load_cert_chain(cert, key, password="")
        except OSError as error:
            raise SettingsError(f"--client-cert-file {cert}, key {key}: {error}") from None
    return Access(token, context)
